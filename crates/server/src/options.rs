//! What a server is told when it starts.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Everything a server can be told. The default listens on loopback, port 6379, without TLS,
/// password or metrics.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Addresses to listen on in clear text. Port 0 takes a free one.
    pub addresses: Vec<SocketAddr>,
    /// A Unix socket to listen on as well. A stale socket file at the path is replaced.
    pub unix_socket: Option<PathBuf>,
    /// A second port that speaks TLS.
    pub tls: Option<TlsOptions>,
    /// Where Prometheus metrics (`/metrics`) and the health check (`/healthz`) are served.
    pub metrics_address: Option<SocketAddr>,
    /// Event loops. 0: one per core but one, and at least one.
    pub threads: usize,
    /// Numbered databases that `SELECT` offers; database `n` is the map named `n`. At most 64.
    pub databases: usize,
    /// Password of the user `default`. `None`: clients need not authenticate.
    pub password: Option<String>,
    /// Refuse remote clients as long as there is no password.
    pub protected_mode: bool,
    /// What clients may take.
    pub limits: Limits,
    /// Commands that take at least this long are kept in the slow log. `None`: none are.
    pub slow_log_threshold: Option<Duration>,
    /// Entries the slow log keeps.
    pub slow_log_entries: usize,
    /// Events that take at least this long are kept by the latency monitor. `None`: none are.
    pub latency_threshold: Option<Duration>,
    /// Probes a connection's peer after this much silence. `None`: never.
    pub tcp_keepalive: Option<Duration>,
    /// How long a shutdown waits for clients to take their replies.
    pub drain_timeout: Duration,
}

impl Default for ServerOptions {
    fn default() -> ServerOptions {
        ServerOptions {
            addresses: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 6379))],
            unix_socket: None,
            tls: None,
            metrics_address: None,
            threads: 0,
            databases: 16,
            password: None,
            protected_mode: true,
            limits: Limits::default(),
            slow_log_threshold: Some(Duration::from_millis(10)),
            slow_log_entries: 128,
            latency_threshold: None,
            tcp_keepalive: Some(Duration::from_secs(300)),
            drain_timeout: Duration::from_secs(5),
        }
    }
}

/// Bounds on what clients may take from the server. Each is enforced.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at one time; one more is told so and closed. Lowered at start when the
    /// process may not open as many files.
    pub clients_max: usize,
    /// Bytes of one argument.
    pub bulk_bytes_max: usize,
    /// Arguments of one request, the command's name included.
    pub arguments_max: usize,
    /// Bytes of a request typed as a line.
    pub inline_bytes_max: usize,
    /// Arguments of one request before `AUTH`.
    pub unauthenticated_arguments_max: usize,
    /// Bytes of one argument before `AUTH`.
    pub unauthenticated_bulk_bytes_max: usize,
    /// Bytes a client may have sent that are not executed yet, a queued transaction included.
    /// At most 2 GiB.
    pub query_buffer_bytes_max: usize,
    /// Bytes of replies a client may leave unread; beyond, it is closed.
    pub output_buffer_bytes_max: usize,
    /// Bytes all clients' buffers may take together; beyond, the clients that hold most are closed at once, and
    /// before anyone else is served.
    pub all_buffers_bytes_max: usize,
    /// Queues that clients may make by pushing to a name that has none.
    pub queues_max: usize,
    /// Ledgers that clients may make by opening accounts in them.
    pub ledgers_max: usize,
    /// Bytes that queries of SQL may take together; what sorts or joins more writes it to temporary files, or fails.
    pub sql_bytes_max: usize,
    /// A client silent for this long is closed. `None`: never.
    pub idle_timeout: Option<Duration>,
    /// A client that stops in the middle of a request, or of taking a reply, is closed after
    /// this long without a byte. `None`: never.
    pub stall_timeout: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            clients_max: 10_000,
            bulk_bytes_max: 512 << 20,
            arguments_max: 1_048_576,
            inline_bytes_max: 64 << 10,
            unauthenticated_arguments_max: 10,
            unauthenticated_bulk_bytes_max: 16 << 10,
            query_buffer_bytes_max: 1 << 30,
            output_buffer_bytes_max: 1 << 30,
            all_buffers_bytes_max: 2 << 30,
            queues_max: 16,
            ledgers_max: 16,
            sql_bytes_max: 512 << 20,
            idle_timeout: None,
            stall_timeout: Some(Duration::from_secs(300)),
        }
    }
}

/// A port that speaks TLS 1.2 and 1.3.
#[derive(Clone, Debug)]
pub struct TlsOptions {
    /// Where to listen. Port 0 takes a free one.
    pub address: SocketAddr,
    /// PEM file of the server's certificate and the chain above it.
    pub certificate: PathBuf,
    /// PEM file of the certificate's private key.
    pub key: PathBuf,
    /// PEM file of the authorities that client certificates must descend from. `None`: clients
    /// need no certificate.
    pub client_authorities: Option<PathBuf>,
}

/// Why a server could not start, or did not end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// An address could not be listened on.
    #[error("cannot listen on {address}: {cause}")]
    Listen {
        /// The address, or the path of the Unix socket.
        address: String,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The operating system refused something a server cannot do without.
    #[error("{what}: {cause}")]
    System {
        /// What was asked for.
        what: &'static str,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The certificate, the key or the authorities cannot be used.
    #[error("TLS: {file}: {cause}")]
    Tls {
        /// The PEM file at fault.
        file: PathBuf,
        /// What is wrong with it.
        cause: String,
    },
    /// An option has a value that cannot be.
    #[error("{option}: {cause}")]
    Option {
        /// Name of the field.
        option: &'static str,
        /// What is wrong with its value.
        cause: String,
    },
    /// The database refused to open a map.
    #[error(transparent)]
    Database(#[from] terrace::Error),
    /// An event loop ended by a panic: a bug. The server shut down.
    #[error("an event loop panicked; this is a bug, please report it")]
    LoopPanicked,
}

/// Offsets into a connection's input are kept in 32 bits, with room for what one read adds.
pub(crate) const QUERY_BUFFER_BYTES_MAX: usize = 1 << 31;

impl ServerOptions {
    /// Refuses values that the rest of the server relies on not to meet.
    pub(crate) fn check(&self) -> Result<(), ServerError> {
        let refuse = |option, cause: &str| Err(ServerError::Option { option, cause: cause.into() });
        if self.databases == 0 || self.databases > 64 {
            return refuse("databases", "1 to 64");
        }
        if self.limits.query_buffer_bytes_max > QUERY_BUFFER_BYTES_MAX {
            return refuse("query_buffer_bytes_max", "at most 2 GiB");
        }
        if self.limits.clients_max == 0 {
            return refuse("clients_max", "at least 1");
        }
        if self.threads > 1024 {
            return refuse("threads", "at most 1024");
        }
        if self.password.as_deref() == Some("") {
            return refuse("password", "empty; leave it out for none");
        }
        Ok(())
    }
}
