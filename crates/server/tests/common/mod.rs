//! What the tests share: a server on a free port, a raw client, replies in a readable notation,
//! scripts of `request => reply`, and the real redis-server to check the scripts against.
#![allow(dead_code, clippy::unwrap_used)] // Each test file uses its part; a failed unwrap is a failed test.

pub mod script;

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace::{Database, Durability, Kind, MapOptions};
use terrace_server::{Server, ServerOptions};

/// Long enough for a loaded machine, short enough to fail in one's lifetime.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Options for a test: a free port, two loops.
pub fn options() -> ServerOptions {
    ServerOptions {
        addresses: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))],
        threads: 2,
        ..ServerOptions::default()
    }
}

/// A server over a database in a temporary directory.
pub struct TestServer {
    pub server: Server,
    pub database: Arc<Database>,
    dir: tempfile::TempDir,
}

impl TestServer {
    pub fn start() -> TestServer {
        TestServer::with(options())
    }
    pub fn with(options: ServerOptions) -> TestServer {
        let maps = MapOptions {
            durability: Durability::None,
            memory_budget_bytes: 512 << 20,
            ..MapOptions::default()
        };
        TestServer::with_maps(options, maps)
    }
    /// One whose maps are ordered.
    pub fn ordered() -> TestServer {
        let maps = MapOptions {
            kind: Kind::Ordered,
            durability: Durability::None,
            memory_budget_bytes: 512 << 20,
            ..MapOptions::default()
        };
        TestServer::with_maps(options(), maps)
    }
    pub fn with_maps(options: ServerOptions, maps: MapOptions) -> TestServer {
        TestServer::over(tempfile::tempdir().unwrap(), options, maps)
    }
    /// One over what is in a directory already.
    pub fn over(dir: tempfile::TempDir, options: ServerOptions, maps: MapOptions) -> TestServer {
        let database = Arc::new(Database::open(dir.path(), maps).unwrap());
        let server = Server::start(Arc::clone(&database), options).unwrap();
        TestServer { server, database, dir }
    }
    pub fn address(&self) -> SocketAddr {
        self.server.addresses().tcp[0]
    }
    pub fn port(&self) -> String {
        self.address().port().to_string()
    }
    pub fn client(&self) -> Client<TcpStream> {
        Client::connect(self.address())
    }
    pub fn dir(&self) -> &std::path::Path {
        self.dir.path()
    }
}

/// A reply, both protocols.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Verbatim(Vec<u8>),
    Null,
    /// A double, or a boolean, with the sign of its type.
    Typed(String),
    Array(Vec<Reply>),
    Set(Vec<Reply>),
    Map(Vec<Reply>),
}

impl std::fmt::Display for Reply {
    /// `OK`, `-ERR no`, `:1`, `"bulk"`, `nil`, `[a, b]`, `~[a]`, `{k: v}`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let list =
            |items: &[Reply]| items.iter().map(Reply::to_string).collect::<Vec<_>>().join(", ");
        match self {
            Reply::Simple(text) => write!(f, "{text}"),
            Reply::Error(text) => write!(f, "-{text}"),
            Reply::Integer(value) => write!(f, ":{value}"),
            Reply::Bulk(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Reply::Verbatim(bytes) => write!(f, "={}", bytes.escape_ascii()),
            Reply::Null => write!(f, "nil"),
            Reply::Typed(text) => write!(f, "{text}"),
            Reply::Array(items) => write!(f, "[{}]", list(items)),
            Reply::Set(items) => write!(f, "~[{}]", list(items)),
            Reply::Map(items) => {
                let pairs: Vec<String> =
                    items.chunks(2).map(|pair| format!("{}: {}", pair[0], pair[1])).collect();
                write!(f, "{{{}}}", pairs.join(", "))
            }
        }
    }
}

/// A request in the protocol's form.
pub fn request<A: AsRef<[u8]>>(arguments: &[A]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        bytes.extend(format!("${}\r\n", argument.as_ref().len()).bytes());
        bytes.extend(argument.as_ref());
        bytes.extend(b"\r\n");
    }
    bytes
}

/// A client that sees every byte.
pub struct Client<S> {
    pub stream: S,
    buffer: Vec<u8>,
    at: usize,
}

impl Client<TcpStream> {
    pub fn connect(address: SocketAddr) -> Client<TcpStream> {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client::over(stream)
    }
}

impl<S: Read + Write> Client<S> {
    pub fn over(stream: S) -> Client<S> {
        Client { stream, buffer: Vec::new(), at: 0 }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends a request and returns its reply.
    pub fn call<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> Reply {
        self.send(&request(arguments));
        self.reply()
    }

    /// The same for a line of words; see [`script::words`]. The reply in readable notation.
    pub fn line(&mut self, line: &str) -> String {
        self.call(&script::words(line)).to_string()
    }

    /// More bytes; false at the end of the stream.
    fn fill(&mut self) -> bool {
        let mut part = [0; 16 << 10];
        match self.stream.read(&mut part) {
            Ok(0) => false,
            Ok(n) => {
                self.buffer.extend_from_slice(&part[..n]);
                true
            }
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe
                ) =>
            {
                false
            }
            Err(error) => panic!(
                "no reply: {error}; so far: {:?}",
                self.buffer[self.at..].escape_ascii().to_string()
            ),
        }
    }

    fn line_end(&mut self) -> String {
        loop {
            let rest = &self.buffer[self.at..];
            if let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") {
                let line = String::from_utf8_lossy(&rest[..end]).into_owned();
                self.at += end + 2;
                return line;
            }
            assert!(
                self.fill(),
                "closed in the middle of {:?}",
                self.buffer[self.at..].escape_ascii().to_string()
            );
        }
    }

    fn exactly(&mut self, len: usize) -> Vec<u8> {
        while self.buffer.len() < self.at + len {
            assert!(self.fill(), "closed in the middle of a reply");
        }
        let bytes = self.buffer[self.at..self.at + len].to_vec();
        self.at += len;
        bytes
    }

    /// The next reply.
    pub fn reply(&mut self) -> Reply {
        if self.at > 1 << 20 {
            self.buffer.drain(..self.at);
            self.at = 0;
        }
        let line = self.line_end();
        let (kind, text) = line.split_at(1);
        let number = || text.parse::<i64>().unwrap();
        match kind {
            "+" => Reply::Simple(text.into()),
            "-" => Reply::Error(text.into()),
            ":" => Reply::Integer(number()),
            "_" => Reply::Null,
            "," | "#" => Reply::Typed(line),
            "$" | "*" if number() < 0 => Reply::Null,
            "$" | "=" => {
                let mut bytes = self.exactly(number() as usize + 2);
                bytes.truncate(bytes.len() - 2);
                if kind == "$" { Reply::Bulk(bytes) } else { Reply::Verbatim(bytes[4..].to_vec()) }
            }
            "*" => Reply::Array((0..number()).map(|_| self.reply()).collect()),
            "~" => Reply::Set((0..number()).map(|_| self.reply()).collect()),
            "%" => Reply::Map((0..2 * number()).map(|_| self.reply()).collect()),
            _ => panic!("not a reply: {line:?}"),
        }
    }

    /// Everything until the server closes.
    pub fn rest(&mut self) -> Vec<u8> {
        while self.fill() {}
        self.buffer[self.at..].to_vec()
    }

    pub fn assert_closed(&mut self) {
        let rest = self.rest();
        assert!(rest.is_empty(), "before the end came {:?}", rest.escape_ascii().to_string());
    }
}

/// Waits until `condition` holds.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}: not in {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The value of `name` in the reply of INFO.
pub fn info<S: Read + Write>(client: &mut Client<S>, name: &str) -> String {
    let (Reply::Bulk(text) | Reply::Verbatim(text)) = client.call(&["INFO", "everything"]) else {
        panic!("INFO")
    };
    let text = String::from_utf8(text).unwrap();
    let prefix = format!("{name}:");
    let line = text
        .lines()
        .find(|line| line.starts_with(&prefix))
        .unwrap_or_else(|| panic!("{name} is not in INFO"));
    line[prefix.len()..].to_string()
}

/// The real redis-server, when it is installed: what the scripts are checked against.
pub struct RealRedis {
    child: Child,
    pub address: SocketAddr,
    _dir: tempfile::TempDir,
}

impl RealRedis {
    pub fn start() -> Option<RealRedis> {
        let free = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let dir = tempfile::tempdir().unwrap();
        let spawned = Command::new("redis-server")
            .args(["--port", &address.port().to_string(), "--save", "", "--dir"])
            .arg(dir.path())
            .stdout(Stdio::null())
            .spawn();
        let Ok(child) = spawned else {
            eprintln!("\n*** redis-server is not installed: NOT compared with the real one ***\n");
            return None;
        };
        let server = RealRedis { child, address, _dir: dir };
        eventually("redis-server answers", || TcpStream::connect(address).is_ok());
        Some(server)
    }
}

impl Drop for RealRedis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
