//! The server as the outside sees it: started, asked where it is, shut down, waited for.

use crate::options::{ServerError, ServerOptions};
use crate::shared::{Addresses, Shared};
use crate::{accept, backups, event_loop, http, scripts};
use parking_lot::Mutex;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use terrace::Database;

/// Files a server needs besides its clients' sockets: listeners, epolls, and the maps' own.
const OTHER_FILES: usize = 128;

/// A running server. Dropping it shuts it down.
pub struct Server {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// One event loop per core but one, which the maps' own threads and the system's network use: a loop
/// that is woken late delays every connection it serves. On two cores shared with the clients, one
/// loop measured faster than two without pipelining, and had the lower p99.
fn usual_loops() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().saturating_sub(1).max(1))
}

impl Server {
    /// Starts to serve `database`. When this returns, every address is listened on, clients can connect, and the maps,
    /// queues and ledgers that they may ask for are open; clients that come before are told `LOADING`.
    ///
    /// The process's limit of open files is raised to what `options.limits.clients_max` needs;
    /// where the system does not allow that, `clients_max` is lowered to what is possible.
    ///
    /// # Errors
    /// An option that cannot be, an address that cannot be listened on, a certificate that cannot
    /// be used, a map that cannot be opened, or a system that refuses threads or files.
    pub fn start(database: Arc<Database>, options: ServerOptions) -> Result<Server, ServerError> {
        Server::start_opening(database, options, || Ok(()))
    }

    /// As [`Server::start`]; runs `open` first, once clients can connect. Until it has returned, and what else is to be
    /// served is open, their commands are answered `LOADING`, and INFO tells how far it is.
    ///
    /// # Errors
    /// The errors of [`Server::start`], and those of `open`: the server is shut down again.
    pub fn start_opening(
        database: Arc<Database>,
        options: ServerOptions,
        open: impl FnOnce() -> terrace::Result<()>,
    ) -> Result<Server, ServerError> {
        options.check()?;
        let threads = if options.threads == 0 { usual_loops() } else { options.threads };
        let options = ServerOptions { threads, ..options };
        let mut addresses = Addresses::default();
        let listeners = accept::Listeners::bind(&options, &mut addresses)?;
        let metrics_listener = options.metrics_address.map(accept::listen_tcp).transpose()?;
        addresses.metrics = metrics_listener.as_ref().map(|(_, bound)| *bound);
        let clients_max = raise_file_limit(options.limits.clients_max);
        let shared = Arc::new(Shared::new(database, options, threads)?);
        shared.config.clients_max.store(clients_max, Relaxed);
        shared.addresses.get_or_init(|| addresses);

        let server = Server { shared, threads: Mutex::default() };
        for id in 0..threads {
            server.spawn(format!("terrace-loop-{id}"), move |shared| {
                event_loop::run(shared, id);
            })?;
        }
        for worker in 0..scripts::WORKERS {
            server.spawn(format!("terrace-script-{worker}"), move |shared| {
                scripts::run(shared, threads + worker);
            })?;
        }
        server.spawn("terrace-backup".into(), move |shared| {
            backups::run(shared, threads + scripts::WORKERS);
        })?;
        server.spawn("terrace-accept".into(), move |shared| {
            accept::run(shared, &listeners);
        })?;
        if let Some((socket, _)) = metrics_listener {
            server.spawn("terrace-metrics".into(), move |shared| {
                http::run(shared, &socket);
            })?;
        }
        if let Err(error) = open().and_then(|()| server.shared.open()) {
            // There is nothing to flush but what was opened whole, which is when it is dropped.
            server.shared.skip_final_sync.store(true, Relaxed);
            return Err(error.into());
        }
        Ok(server)
    }

    /// Starts a thread. If it panics the server stops: with a loop
    /// missing it would look alive and answer only some of its clients.
    fn spawn(
        &self,
        name: String,
        body: impl FnOnce(&Arc<Shared>) + Send + 'static,
    ) -> Result<(), ServerError> {
        struct StopIfPanicked(Arc<Shared>);
        impl Drop for StopIfPanicked {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    self.0.stop();
                }
            }
        }
        let shared = StopIfPanicked(Arc::clone(&self.shared));
        let run = move || {
            // The guard moves in whole: it has to be dropped by this thread.
            let shared = shared;
            body(&shared.0);
        };
        let thread = std::thread::Builder::new().name(name).spawn(run);
        let thread =
            thread.map_err(|cause| ServerError::System { what: "cannot start a thread", cause })?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// Where the server listens, with the ports it was given.
    pub fn addresses(&self) -> &Addresses {
        self.shared.addresses.get_or_init(Addresses::default)
    }

    /// Asks the server to end: no connection is accepted any more, requests that were read are
    /// finished and committed, replies are sent, connections are closed. Returns at once;
    /// [`Server::wait`] returns when all this is done. May be called from any thread.
    pub fn shutdown(&self) {
        self.shared.stop();
    }

    /// Waits until the server has ended, by [`Server::shutdown`] or a client's `SHUTDOWN`.
    ///
    /// # Durability
    /// Everything acknowledged to any client is durable when this returns `Ok`, whatever the
    /// maps' durability, unless a client said `SHUTDOWN NOSAVE`.
    ///
    /// # Errors
    /// The last flush failed, or a thread of the server panicked.
    pub fn wait(&self) -> Result<(), ServerError> {
        let mut threads = self.threads.lock();
        let mut panicked = false;
        for thread in threads.drain(..) {
            panicked |= thread.join().is_err();
        }
        drop(threads);
        self.shared.sql.wait();
        if !self.shared.skip_final_sync.load(Relaxed) {
            self.shared.save()?;
        }
        match panicked {
            true => Err(ServerError::LoopPanicked),
            false => Ok(()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shutdown();
        // Nobody is left to be told; those who want to know call `wait` first.
        let _ = self.wait();
    }
}

/// Makes room for `clients` connections, as far as the system allows; how many there is room for.
pub(crate) fn raise_file_limit(clients: usize) -> usize {
    let wanted = (clients + OTHER_FILES) as u64;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return clients;
    }
    let possible = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
    match setrlimit(Resource::Nofile, Rlimit { current: Some(possible), maximum: limit.maximum }) {
        Ok(()) => clients.min((possible as usize).saturating_sub(OTHER_FILES).max(1)),
        Err(_) => clients
            .min((limit.current.unwrap_or(wanted) as usize).saturating_sub(OTHER_FILES).max(1)),
    }
}
