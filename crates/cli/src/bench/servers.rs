//! The three servers of a comparison as child processes on loopback, each gone when dropped.

use super::load::Protocol;
use std::ffi::OsStr;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Durability of an acknowledged write, the same word for every server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Durability {
    /// Every write survives power loss (Redis: append-only file, fsync always)
    Sync,
    /// One second of writes may be lost (Redis: append-only file, fsync every second)
    Interval,
    /// The kernel decides when to write back (Redis: no file)
    None,
}

/// A program and the Debian package that has it.
pub struct Needed {
    pub program: &'static str,
    pub package: &'static str,
}

pub const REDIS: Needed = Needed { program: "redis-server", package: "redis-server" };
pub const REDIS_BENCHMARK: Needed = Needed { program: "redis-benchmark", package: "redis-tools" };
pub const MEMCACHED: Needed = Needed { program: "memcached", package: "memcached" };

/// Where a program is on the search path.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|d| d.join(program)).find(|f| f.is_file())
}

/// A running server.
pub struct Running {
    pub name: &'static str,
    /// What was started, for the report: with DIR and PORT for what is of this run alone.
    pub command: String,
    pub version: String,
    pub address: SocketAddr,
    pub protocol: Protocol,
    child: Child,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Terrace: this very binary.
pub fn terrace(
    dir: &Path,
    durability: Durability,
    threads: usize,
    extra: &[String],
) -> Result<Running, String> {
    let binary = std::env::current_exe().map_err(|e| e.to_string())?;
    let port = free_port()?;
    let mut command = Command::new(binary);
    let word = match durability {
        Durability::Sync => "sync",
        Durability::Interval => "interval",
        Durability::None => "none",
    };
    command.arg("serve").arg(dir.join("terrace"));
    command.args(["--port", &port.to_string(), "--durability", word]);
    command.args(["--threads", &threads.to_string()]).args(extra);
    let version = env!("CARGO_PKG_VERSION").to_string();
    start("terrace", version, command, dir, port, Protocol::Resp)
}

/// redis-server with the persistence that matches.
pub fn redis(dir: &Path, durability: Durability) -> Result<Running, String> {
    let port = free_port()?;
    let own = dir.join("redis");
    std::fs::create_dir_all(&own).map_err(|e| format!("{}: {e}", own.display()))?;
    let mut command = Command::new(REDIS.program);
    command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", ""]);
    command.arg("--dir").arg(&own);
    match durability {
        Durability::Sync => command.args(["--appendonly", "yes", "--appendfsync", "always"]),
        Durability::Interval => command.args(["--appendonly", "yes", "--appendfsync", "everysec"]),
        Durability::None => command.args(["--appendonly", "no"]),
    };
    start("redis-server", version_of(REDIS.program), command, dir, port, Protocol::Resp)
}

/// memcached, which keeps nothing whatever is asked.
pub fn memcached(dir: &Path, threads: usize) -> Result<Running, String> {
    let port = free_port()?;
    let mut command = Command::new(MEMCACHED.program);
    command.args(["-l", "127.0.0.1", "-p", &port.to_string(), "-U", "0", "-m", "4096"]);
    if threads > 0 {
        command.args(["-t", &threads.to_string()]);
    }
    // It refuses to run as root unless told which user to become.
    if rustix::process::geteuid().is_root() {
        command.args(["-u", "root"]);
    }
    start("memcached", version_of(MEMCACHED.program), command, dir, port, Protocol::Memcached)
}

fn start(
    name: &'static str,
    version: String,
    mut command: Command,
    dir: &Path,
    port: u16,
    protocol: Protocol,
) -> Result<Running, String> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let (dir, port) = (dir.to_string_lossy(), port.to_string());
    let word = |argument: &OsStr| match argument.to_string_lossy() {
        word if word == port.as_str() => "PORT".to_string(),
        word => word.replace(&*dir, "DIR"),
    };
    let words: Vec<_> = command.get_args().map(word).collect();
    let text = format!("{name} {}", words.join(" "));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().map_err(|e| format!("{name} could not be started: {e}"))?;
    let mut running = Running { name, command: text, version, address, protocol, child };
    let patience = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(address).is_err() {
        if let Ok(Some(status)) = running.child.try_wait() {
            return Err(format!("{name} ended with {status}; command: `{}`", running.command));
        }
        if Instant::now() > patience {
            return Err(format!("{name} does not answer; command: `{}`", running.command));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(running)
}

/// A port nobody has now; a race for it is lost loudly.
fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
    listener.local_addr().map(|a| a.port()).map_err(|e| e.to_string())
}

/// The first number with dots that `--version` prints.
fn version_of(program: &str) -> String {
    let output = Command::new(program).arg("--version").output();
    let text = output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default();
    let words = text.split_whitespace().map(|w| w.trim_start_matches("v="));
    let number = |w: &&str| w.contains('.') && w.starts_with(|c: char| c.is_ascii_digit());
    words.into_iter().find(number).unwrap_or("unknown").to_string()
}
