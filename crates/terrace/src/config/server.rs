//! What the configuration says of the server. Plain data: this room knows no transport; the binary
//! hands it on.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Where the server listens and whom it lets in.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerConfig {
    /// Addresses the server listens on.
    pub listen: Vec<IpAddr>,
    /// Port of the Redis protocol; 0 lets the system choose.
    pub port: u16,
    /// A Unix socket to listen on as well.
    pub unix_socket: Option<PathBuf>,
    /// Numbered databases; database `n` is the map named `n`.
    pub databases: usize,
    /// Event loops; 0 means one per core but one, and at least one.
    pub threads: usize,
    /// Clients must send it before anything else.
    pub password: Option<String>,
    /// Refuse remote clients as long as there is no password.
    pub protected_mode: bool,
    /// Address of the HTTP metrics, if any.
    pub metrics: Option<SocketAddr>,
    /// Commands that take at least this long are kept in the slow log.
    pub slow_log: Option<Duration>,
    /// Entries the slow log keeps.
    pub slow_log_entries: usize,
    /// Events that take at least this long are kept by the latency monitor.
    pub latency: Option<Duration>,
    /// Probes a connection's peer after this much silence.
    pub keepalive: Option<Duration>,
    /// How long a shutdown waits for clients to take their replies.
    pub drain: Duration,
    /// Encryption of the wire.
    pub tls: TlsConfig,
    /// Bounds the server enforces.
    pub limits: LimitsConfig,
}

/// Encryption of the wire. All of it absent: plain TCP only.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TlsConfig {
    /// Port of the encrypted listener.
    pub port: Option<u16>,
    /// Certificate chain, PEM.
    pub cert: Option<PathBuf>,
    /// Private key, PEM.
    pub key: Option<PathBuf>,
    /// Authorities that client certificates must descend from, PEM.
    pub client_ca: Option<PathBuf>,
}

/// Bounds the server enforces, each with an error the client can read.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitsConfig {
    /// Connections at once.
    pub clients: usize,
    /// Bytes of one argument.
    pub argument_bytes: usize,
    /// Arguments of one request.
    pub arguments: usize,
    /// Bytes of a request typed as a line.
    pub inline_bytes: usize,
    /// Bytes of one argument before `AUTH`.
    pub unauthenticated_argument_bytes: usize,
    /// Arguments of one request before `AUTH`.
    pub unauthenticated_arguments: usize,
    /// Bytes a client may have sent that are not executed yet.
    pub query_buffer_bytes: usize,
    /// Replies waiting for one client.
    pub output_buffer_bytes: usize,
    /// All clients' buffers together.
    pub all_buffers_bytes: usize,
    /// `limits.sql`
    pub sql_bytes: usize,
    /// Ledgers that clients may make, beside those declared.
    pub ledgers: usize,
    /// Queues that clients may make, beside those declared.
    pub queues: usize,
    /// Silence after which a client is closed.
    pub idle: Option<Duration>,
    /// Silence in the middle of a request or a reply after which a client is closed.
    pub stall: Option<Duration>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
            port: 6379,
            unix_socket: None,
            databases: 16,
            threads: 0,
            password: None,
            protected_mode: true,
            metrics: None,
            slow_log: Some(Duration::from_millis(10)),
            slow_log_entries: 128,
            latency: None,
            keepalive: Some(Duration::from_secs(300)),
            drain: Duration::from_secs(5),
            tls: TlsConfig::default(),
            limits: LimitsConfig::default(),
        }
    }
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            clients: 10_000,
            argument_bytes: 512 << 20,
            arguments: 1 << 20,
            inline_bytes: 64 << 10,
            unauthenticated_argument_bytes: 16 << 10,
            unauthenticated_arguments: 10,
            query_buffer_bytes: 1 << 30,
            output_buffer_bytes: 1 << 30,
            all_buffers_bytes: 2 << 30,
            sql_bytes: 512 << 20,
            ledgers: 16,
            queues: 16,
            idle: None,
            stall: Some(Duration::from_secs(300)),
        }
    }
}
