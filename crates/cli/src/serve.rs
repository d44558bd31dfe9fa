//! `terrace serve`: opens the directory, says what it promises and where to connect, and ends by
//! draining clients and flushing.

use crate::output::{Failure, Outcome, print, say};
use crate::settings::{self, Flags};
use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use terrace::config::{Config, ServerConfig, WordsConfig, format_size};
use terrace::memory::tier::SystemPaths;
use terrace::memory::{TierSpec, Topology};
use terrace::{Database, Durability, Map, Opening, WhenFull, durability_of};
use terrace_server::{Addresses, Limits, Server, ServerError, ServerOptions, TlsOptions};

#[derive(Args)]
pub struct Arguments {
    /// Directory of the database; created if absent
    #[arg(default_value = DEFAULT_DIR)]
    dir: PathBuf,
    /// Read this configuration instead of DIR/terrace.toml
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    flags: Flags,
}

const DEFAULT_DIR: &str = "./data";

impl Default for Arguments {
    fn default() -> Self {
        Self { dir: DEFAULT_DIR.into(), config: None, flags: Flags::default() }
    }
}

/// Serves until a signal or SHUTDOWN.
pub fn main(arguments: Arguments) -> Outcome {
    let start = Instant::now();
    let dir = &arguments.dir;
    let (config, source) = settings::read(dir, arguments.config.as_deref(), &arguments.flags)?;
    let tiers = tiers(&config)?;
    let db = Arc::new(settings::open_directory(dir, &config)?);
    let (server, first) = start_server(&db, &config)?;
    // From here on a signal drains; before, during a long recovery, it ends the process at once,
    // which recovery survives like any crash.
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(Failure::new)?;
    let addresses = server.addresses().clone();
    let stopper = Arc::clone(&server);
    let handle = signals.handle();
    let watcher = std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            let (name, hint) = match signal {
                SIGINT => ("SIGINT", "; send it again to exit at once"),
                _ => ("SIGTERM", ""),
            };
            say(format_args!("{name}: draining clients and flushing{hint}"));
            // A second signal ends the process as if nobody listened.
            for signal in [SIGINT, SIGTERM] {
                let _ = signal_hook::flag::register_conditional_default(
                    signal,
                    Arc::new(std::sync::atomic::AtomicBool::new(true)),
                );
            }
            stopper.shutdown();
        }
    });
    let mut lines = vec![banner(&db, source.as_deref(), &config, &first, start)];
    drop(first);
    lines.extend(tiers);
    lines.extend(listening(&addresses));
    lines.push(example(&addresses.tcp, &config.server));
    // Whoever read the first lines and closed the pipe has a server all the same, which a signal ends.
    if lines.into_iter().try_for_each(print).is_err() {
        say("standard output is closed; the server keeps running");
    }
    let ended = server.wait();
    handle.close();
    let _ = watcher.join();
    drop(server);
    close(db)?;
    ended.map_err(Failure::new)?;
    print("flushed and closed")
}

/// Listens, then opens what is to be served: clients are told to wait meanwhile, and whoever looks at standard error
/// how far it is.
fn start_server(db: &Arc<Database>, config: &Config) -> Result<(Arc<Server>, Map), Failure> {
    let mut opened = None;
    let (over, is_over) = std::sync::mpsc::channel::<()>();
    let watched = Arc::clone(db);
    let teller = std::thread::spawn(move || tell_of_opening(&watched, &is_over));
    let started = Server::start_opening(Arc::clone(db), options(&config.server), || {
        let first =
            settings::open_declared(db, config).and_then(|()| settings::open_map(db, "0", config));
        let is_open = first.is_ok();
        opened = Some(first);
        // What is told then is the failure itself.
        let failed = || terrace::Error::ReadOnly("it could not be opened".into());
        is_open.then_some(()).ok_or_else(failed)
    });
    drop(over);
    let _ = teller.join();
    match (started, opened) {
        (_, Some(Err(failure))) => Err(failure),
        (Ok(server), Some(Ok(first))) => Ok((Arc::new(server), first)),
        (Err(error @ ServerError::Listen { .. }), _) => Err(cannot_listen(&error)),
        (Err(error), _) => Err(Failure::new(error)),
        (Ok(_), None) => Err(Failure::new("nothing was opened")),
    }
}

/// Why a server cannot listen, with the way out.
fn cannot_listen(error: &ServerError) -> Failure {
    let way = match error {
        ServerError::Listen { cause, .. } => match cause.kind() {
            ErrorKind::AddrInUse => {
                ": another server has this address. End it, or choose another port with --port"
            }
            ErrorKind::AddrNotAvailable => {
                ": this machine has no such address. Give one of its own with --listen"
            }
            ErrorKind::PermissionDenied => ". Choose a port of 1024 or more with --port",
            _ => "",
        },
        _ => "",
    };
    Failure::new(format_args!("{error}{way}"))
}

/// Says now and then how far the opening is, until it is over.
fn tell_of_opening(db: &Database, is_over: &Receiver<()>) {
    let mut patience = Duration::from_secs(1);
    while is_over.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
        let Opening { loaded_bytes, total_bytes } = db.opening();
        let percent = loaded_bytes * 100 / total_bytes.max(1);
        let (loaded, total) = (format_size(loaded_bytes), format_size(total_bytes));
        say(format_args!("opening: {percent} % read ({loaded} of {total})"));
        patience = Duration::from_secs(5);
    }
}

/// The declared tiers, each checked against this machine.
fn tiers(config: &Config) -> Result<Vec<String>, Failure> {
    if config.tiers.is_empty() {
        return Ok(Vec::new());
    }
    let topology = Topology::read().map_err(Failure::new)?;
    let line = |spec: &TierSpec| {
        let tier = spec.resolve(&topology, &SystemPaths).map_err(Failure::new)?;
        let bytes = tier.bytes.map_or("no limit".into(), format_size);
        Ok(format!("tier         {}: {}, {bytes}; {}", tier.name, tier.kind.word(), tier.medium))
    };
    config.tiers.iter().map(line).collect()
}

/// Flushes every map and queue. The server has let go of the database by now; if a reader still holds it,
/// everything is made durable all the same.
fn close(db: Arc<Database>) -> Outcome {
    match Arc::try_unwrap(db) {
        Ok(db) => db.close().map_err(Failure::new),
        Err(db) => db.sync().map_err(Failure::new),
    }
}

fn options(config: &ServerConfig) -> ServerOptions {
    let limits = &config.limits;
    let at = |ip: &IpAddr, port| SocketAddr::new(*ip, port);
    let tls = match (&config.tls.port, &config.tls.cert, &config.tls.key) {
        (Some(port), Some(certificate), Some(key)) => Some(TlsOptions {
            address: at(&config.listen[0], *port),
            certificate: certificate.clone(),
            key: key.clone(),
            client_authorities: config.tls.client_ca.clone(),
        }),
        _ => None,
    };
    ServerOptions {
        addresses: config.listen.iter().map(|ip| at(ip, config.port)).collect(),
        unix_socket: config.unix_socket.clone(),
        tls,
        metrics_address: config.metrics,
        threads: config.threads,
        databases: config.databases,
        password: config.password.clone(),
        protected_mode: config.protected_mode,
        limits: Limits {
            clients_max: limits.clients,
            bulk_bytes_max: limits.argument_bytes,
            arguments_max: limits.arguments,
            inline_bytes_max: limits.inline_bytes,
            unauthenticated_arguments_max: limits.unauthenticated_arguments,
            unauthenticated_bulk_bytes_max: limits.unauthenticated_argument_bytes,
            query_buffer_bytes_max: limits.query_buffer_bytes,
            output_buffer_bytes_max: limits.output_buffer_bytes,
            all_buffers_bytes_max: limits.all_buffers_bytes,
            queues_max: limits.queues,
            ledgers_max: limits.ledgers,
            sql_bytes_max: limits.sql_bytes,
            idle_timeout: limits.idle,
            stall_timeout: limits.stall,
        },
        slow_log_threshold: config.slow_log,
        slow_log_entries: config.slow_log_entries,
        latency_threshold: config.latency,
        tcp_keepalive: config.keepalive,
        drain_timeout: config.drain,
    }
}

/// What is promised, before the first client comes.
fn banner(
    db: &Database,
    source: Option<&Path>,
    config: &Config,
    first: &Map,
    start: Instant,
) -> String {
    let (options, stats, recovery) = (config.options(), first.stats(), first.recovery());
    let durability = match options.durability {
        Durability::Sync => "sync: an acknowledged write survives power loss".to_string(),
        Durability::Interval(time) => format!(
            "interval: a killed process keeps every acknowledged key, a power cut takes at most the last {} ms",
            time.as_millis()
        ),
        Durability::None => {
            "none: a crash may lose any write; an orderly end loses nothing".to_string()
        }
    };
    let when_full = match options.when_full {
        WhenFull::Refuse => "then writes are refused",
        WhenFull::Evict => "then old keys are evicted",
        WhenFull::Spill => "then old values leave memory and are read from the disk",
    };
    let settings = source.map_or("defaults".into(), |s| s.display().to_string());
    let limits = &config.server.limits;
    let mut lines = vec![
        format!("terrace {}", env!("CARGO_PKG_VERSION")),
        format!("directory    {} ({} keys in database 0)", db.dir().display(), stats.keys),
        format!("settings     {settings}"),
        format!("values       {}", stats.design),
        format!("medium       {}", db.durability_of_medium()),
    ];
    lines.extend(media_of_words(db, config));
    lines.extend([
        format!("durability   {durability}"),
        format!(
            "memory       {} for all maps, indexes and buffers included; {when_full}",
            format_size(options.memory_budget_bytes)
        ),
        format!(
            "limits       {} clients, {} of unread replies each",
            limits.clients,
            format_size(limits.output_buffer_bytes as u64)
        ),
    ]);
    let mut opened = format!(
        "opened in    {:.0} ms; database 0: {} items in {} of files, read in {:.0} ms",
        start.elapsed().as_secs_f64() * 1e3,
        recovery.items,
        format_size(recovery.bytes),
        recovery.elapsed.as_secs_f64() * 1e3,
    );
    if recovery.replayed > 0 {
        opened.push_str(&format!("; {} keys replayed from its redo log", recovery.replayed));
    }
    if !recovery.torn.is_empty() {
        // Alone, the number reads like damage.
        opened.push_str(&format!(
            "; {} torn ends of logs truncated, as a kill leaves them",
            recovery.torn.len()
        ));
    }
    lines.push(opened);
    lines.join("\n")
}

/// The same of word tables that have a directory or a domain of their own.
fn media_of_words(db: &Database, config: &Config) -> Vec<String> {
    let told = |(name, own): (&String, &WordsConfig)| {
        let place = own.path.clone().unwrap_or_else(|| db.dir().join("words"));
        let domain = own.domain.unwrap_or(config.domain);
        format!("words        {name}: {}", durability_of(&place.join(name), domain))
    };
    let own = config.words.iter().filter(|(_, own)| own.path.is_some() || own.domain.is_some());
    own.map(told).collect()
}

/// Where clients find it, in the form the tests and scripts read.
fn listening(addresses: &Addresses) -> Vec<String> {
    let tcp = addresses.tcp.iter().map(|a| format!("listening on {a}"));
    let tls = addresses.tls.iter().map(|a| format!("listening on {a} (TLS)"));
    let unix = addresses.unix.iter().map(|p| format!("listening on {}", p.display()));
    let metrics = addresses.metrics.iter().map(|a| format!("metrics at http://{a}/metrics"));
    tcp.chain(tls).chain(unix).chain(metrics).collect()
}

/// One line to copy.
fn example(addresses: &[SocketAddr], config: &ServerConfig) -> String {
    let Some(first) = addresses.first() else {
        return String::new();
    };
    let host = match first.ip() {
        ip if ip.is_loopback() && ip.is_ipv4() || ip.is_unspecified() => String::new(),
        ip => format!(" -h {ip}"),
    };
    let auth = if config.password.is_some() { " -a PASSWORD" } else { "" };
    format!("try          redis-cli{host} -p {}{auth} set greeting hello", first.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_of_the_file_are_the_servers_defaults() {
        let ours = options(&ServerConfig::default());
        assert_eq!(format!("{ours:?}"), format!("{:?}", ServerOptions::default()));
    }
}
