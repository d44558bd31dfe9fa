//! Listening, and handing connections to the loops.
//!
//! One thread accepts for all loops and gives each connection to the loop with the fewest: fifty
//! clients on two loops are twenty-five each, which a hash over sockets would not promise. The
//! thread also keeps the once-a-second duties that belong to no loop.

use crate::clients::{ClientInfo, NO_TRANSACTION};
use crate::event_loop::Incoming;
use crate::options::{ServerError, ServerOptions};
use crate::shared::{Addresses, Message, Shared};
use crate::tls;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, SendFlags, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Connections the system keeps for us until they are accepted.
const BACKLOG: i32 = 511;
/// Connections accepted from one listener before the others are looked at.
const ACCEPTS_IN_A_ROW: usize = 256;
/// Bytes of buffers that were given up since memory was given back last.
const GIVEN_BACK_BYTES: u64 = 8 << 20;
/// Pause after the system had no file descriptor left for a connection.
const OUT_OF_FILES_PAUSE: Duration = Duration::from_millis(50);

const FULL: &str = "-ERR max number of clients reached\r\n";
const DENIED: &str = concat!(
    "-DENIED Terrace is running in protected mode because protected mode is enabled and no ",
    "password is set for the default user. In this mode connections are only accepted from the ",
    "loopback interface. If you want to connect from external computers to Terrace you may adopt ",
    "one of the following solutions: 1) Just disable protected mode sending the command ",
    "'CONFIG SET protected-mode no' from the loopback interface by connecting to Terrace from the ",
    "same host the server is running, however MAKE SURE Terrace is not publicly accessible from ",
    "internet if you do so. 2) Alternatively you can just disable the protected mode by setting ",
    "the protected-mode option to 'no' in the configuration, and then restarting the server. ",
    "3) Set up a password for the default user. NOTE: You only need to do one of ",
    "the above things in order for the server to start accepting connections from the outside.\r\n",
);

/// A socket that is listened on.
struct Listener {
    socket: OwnedFd,
    tls: Option<Arc<rustls::ServerConfig>>,
    /// Path of a Unix socket.
    path: Option<String>,
}

/// All listeners of a server.
pub(crate) struct Listeners(Vec<Listener>);

impl Listeners {
    /// Binds every address that `options` name and fills in `addresses`.
    pub(crate) fn bind(
        options: &ServerOptions,
        addresses: &mut Addresses,
    ) -> Result<Listeners, ServerError> {
        let mut listeners = Vec::new();
        for address in &options.addresses {
            let (socket, bound) = listen_tcp(*address)?;
            addresses.tcp.push(bound);
            listeners.push(Listener { socket, tls: None, path: None });
        }
        if let Some(tls) = &options.tls {
            let config = tls::server_config(tls)?;
            let (socket, bound) = listen_tcp(tls.address)?;
            addresses.tls = Some(bound);
            listeners.push(Listener { socket, tls: Some(config), path: None });
        }
        if let Some(path) = &options.unix_socket {
            let socket = listen_unix(path)?;
            addresses.unix = Some(path.clone());
            listeners.push(Listener { socket, tls: None, path: Some(path.display().to_string()) });
        }
        Ok(Listeners(listeners))
    }
}

fn refused(address: impl ToString) -> impl Fn(Errno) -> ServerError {
    move |cause| ServerError::Listen { address: address.to_string(), cause: cause.into() }
}

/// Listens on `address`; returns where that is, port included.
pub(crate) fn listen_tcp(address: SocketAddr) -> Result<(OwnedFd, SocketAddr), ServerError> {
    let refused = refused(address);
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(family, SocketType::STREAM, flags, None).map_err(&refused)?;
    sockopt::set_socket_reuseaddr(&socket, true).map_err(&refused)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true).map_err(&refused)?;
    }
    net::bind(&socket, &address).map_err(&refused)?;
    net::listen(&socket, BACKLOG).map_err(&refused)?;
    let bound = net::getsockname(&socket).and_then(SocketAddr::try_from).map_err(&refused)?;
    Ok((socket, bound))
}

fn listen_unix(path: &Path) -> Result<OwnedFd, ServerError> {
    let refused = refused(path.display());
    let address = SocketAddrUnix::new(path).map_err(&refused)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket =
        net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(&refused)?;
    if net::bind(&socket, &address) == Err(Errno::ADDRINUSE) {
        // The file may be left over from a server that was killed: then nobody answers on it.
        let probe = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .map_err(&refused)?;
        if net::connect(&probe, &address) != Err(Errno::CONNREFUSED) {
            return Err(refused(Errno::ADDRINUSE));
        }
        std::fs::remove_file(path)
            .map_err(|cause| ServerError::Listen { address: path.display().to_string(), cause })?;
        net::bind(&socket, &address).map_err(&refused)?;
    }
    net::listen(&socket, BACKLOG).map_err(&refused)?;
    Ok(socket)
}

/// Accepts connections until the server stops.
pub(crate) fn run(shared: &Arc<Shared>, listeners: &Listeners) {
    let mut next_id = 1;
    let mut sampled = Instant::now();
    while !shared.stopping() {
        let mut polled: Vec<PollFd<'_>> = listeners
            .0
            .iter()
            .map(|listener| PollFd::new(&listener.socket, PollFlags::IN))
            .collect();
        let waker = shared.acceptor_waker.file();
        polled.push(PollFd::from_borrowed_fd(waker, PollFlags::IN));
        let second = Timespec { tv_sec: 1, tv_nsec: 0 };
        // An interrupted wait is a wait that ended early.
        let _ = poll(&mut polled, Some(&second));
        let ready: Vec<bool> = polled.iter().map(|polled| !polled.revents().is_empty()).collect();
        for (listener, _) in listeners.0.iter().zip(&ready).filter(|(_, ready)| **ready) {
            accept_some(shared, listener, &mut next_id);
        }
        if ready.last() == Some(&true) {
            shared.acceptor_waker.reset();
        }
        save_in_background(shared);
        let elapsed = sampled.elapsed();
        if elapsed >= Duration::from_secs(1) {
            sampled = Instant::now();
            shared.sample_rate(elapsed);
            give_memory_back(shared);
        }
    }
    for listener in &listeners.0 {
        if let Some(path) = &listener.path {
            // Somebody else may have removed it already.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Gives what clients' buffers took and gave up back to the system: the allocator keeps it otherwise.
fn give_memory_back(shared: &Shared) {
    let held = shared.sum(|stats| stats.buffer_bytes.get());
    if shared.sum(|stats| stats.buffer_bytes_peak.get()) >= held + GIVEN_BACK_BYTES {
        shared
            .loops
            .iter()
            .for_each(|each| each.stats.buffer_bytes_peak.set(each.stats.buffer_bytes.get()));
        terrace::memory::heap::give_back();
    }
}

/// Starts a BGSAVE.
fn save_in_background(shared: &Arc<Shared>) {
    if !shared.save_requested.swap(false, Relaxed) {
        return;
    }
    let saver = Arc::clone(shared);
    let save = move || {
        // INFO tells how it went.
        let _ = saver.save();
        saver.saving.store(false, Relaxed);
    };
    if std::thread::Builder::new().name("terrace-save".into()).spawn(save).is_err() {
        shared.saving.store(false, Relaxed);
        shared.save_failed.store(true, Relaxed);
    }
}

fn accept_some(shared: &Shared, listener: &Listener, next_id: &mut u64) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    for _ in 0..ACCEPTS_IN_A_ROW {
        match net::acceptfrom_with(&listener.socket, flags) {
            Ok((socket, peer)) => {
                *next_id += 1;
                hand_over(shared, listener, socket, peer, *next_id);
            }
            Err(Errno::AGAIN) => return,
            Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => {
                return std::thread::sleep(OUT_OF_FILES_PAUSE);
            }
            // The peer gave up before it was accepted.
            Err(_) => {}
        }
    }
}

/// Whether protected mode refuses a client from `peer`.
fn is_denied(shared: &Shared, peer: Option<SocketAddr>) -> bool {
    let remote = peer.is_some_and(|peer| !peer.ip().to_canonical().is_loopback());
    remote && shared.config.protected_mode.load(Relaxed) && !shared.config.has_password()
}

fn hand_over(
    shared: &Shared,
    listener: &Listener,
    socket: OwnedFd,
    peer: Option<SocketAddrAny>,
    id: u64,
) {
    let peer =
        peer.and_then(|peer| SocketAddr::try_from(peer).ok()).filter(|_| listener.path.is_none());
    let refusal = if is_denied(shared, peer) {
        Some((&shared.accepts.refused_protected, DENIED))
    } else if shared.connected.load(Relaxed) >= shared.config.clients_max.load(Relaxed) {
        Some((&shared.accepts.refused_full, FULL))
    } else {
        None
    };
    if let Some((counter, text)) = refusal {
        counter.fetch_add(1, Relaxed);
        if listener.tls.is_none() {
            // One try: a fresh socket has room for a line, and nobody waits for it.
            let _ = net::send(&socket, text.as_bytes(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        }
        return;
    }
    shared.accepts.accepted.fetch_add(1, Relaxed);
    let session = match &listener.tls {
        None => None,
        Some(config) => match tls::Session::new(Arc::clone(config)) {
            Ok(session) => Some(session),
            Err(_) => return,
        },
    };
    if listener.path.is_none() {
        set_up(shared, &socket);
    }
    let fewest =
        shared.loops.iter().enumerate().min_by_key(|(_, each)| each.connections.load(Relaxed));
    let Some((owner, target)) = fewest else { return };
    let info = Arc::new(client_info(shared, listener, &socket, peer, id, owner));
    shared.clients.add(Arc::clone(&info));
    shared.connected.fetch_add(1, Relaxed);
    target.connections.fetch_add(1, Relaxed);
    target.send(Message::Accepted(Box::new(Incoming { socket, tls: session, info })));
}

/// Options of a fresh TCP socket. A connection that refuses them works all the same.
fn set_up(shared: &Shared, socket: &OwnedFd) {
    let _ = sockopt::set_tcp_nodelay(socket, true);
    let keepalive_s = shared.config.keepalive_s.load(Relaxed);
    if keepalive_s > 0 {
        let _ = sockopt::set_socket_keepalive(socket, true);
        let _ = sockopt::set_tcp_keepidle(socket, Duration::from_secs(keepalive_s));
        let _ = sockopt::set_tcp_keepintvl(socket, Duration::from_secs((keepalive_s / 3).max(1)));
        let _ = sockopt::set_tcp_keepcnt(socket, 3);
    }
}

fn client_info(
    shared: &Shared,
    listener: &Listener,
    socket: &OwnedFd,
    peer: Option<SocketAddr>,
    id: u64,
    owner: usize,
) -> ClientInfo {
    let local = net::getsockname(socket).and_then(SocketAddr::try_from).ok();
    let name = |address: Option<SocketAddr>| match (&listener.path, address) {
        (Some(path), _) => format!("{path}:0"),
        (None, Some(address)) => address.to_string(),
        (None, None) => "?:0".into(),
    };
    let now_ms = shared.uptime_ms();
    ClientInfo {
        id,
        owner,
        address: name(peer),
        local_address: name(local),
        file: socket.as_raw_fd(),
        connected_ms: now_ms,
        seen_ms: AtomicU64::new(now_ms),
        database: AtomicU32::new(0),
        queued: AtomicU32::new(NO_TRANSACTION),
        watched: AtomicU32::new(0),
        input_bytes: AtomicU64::new(0),
        output_bytes: AtomicU64::new(0),
        memory_bytes: AtomicU64::new(0),
        command: AtomicU32::new(u32::MAX),
        resp3: AtomicBool::new(false),
        no_evict: AtomicBool::new(false),
        no_touch: AtomicBool::new(false),
        killed: AtomicBool::new(false),
        paused: AtomicBool::new(false),
        waits: Default::default(),
        words: Default::default(),
    }
}
