//! The threads that compute queries.

use crate::error::{Error, Result};
use std::future::Future;
use tokio::runtime::{Builder, Handle, Runtime};

/// The stack of a thread that deep statements run on (`depth.rs` says how deep). Memory is taken as it is used.
const STACK_BYTES: usize = 256 << 20;

/// Runs `f`, on a thread with a large stack if it is deep.
///
/// # Errors
/// [`Error::System`] if there can be no such thread.
pub(crate) fn with_stack<R: Send>(is_deep: bool, f: impl FnOnce() -> R + Send) -> Result<R> {
    if !is_deep {
        return Ok(f());
    }
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("sql".into()).stack_size(STACK_BYTES);
        let failed =
            |source| Error::System { doing: "start a thread for a deep statement", source };
        let ran = thread.spawn_scoped(scope, f).map_err(failed)?.join();
        Ok(ran.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// A runtime that may be dropped anywhere, by an asynchronous task too.
pub(crate) struct Threads(Option<Runtime>);

impl Threads {
    /// One for each processor.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn start() -> Result<Threads> {
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        let runtime = Builder::new_multi_thread()
            .worker_threads(count)
            .thread_name("sql")
            .thread_stack_size(STACK_BYTES)
            .build();
        let failed = |source| Error::System { doing: "start threads for queries", source };
        Ok(Threads(Some(runtime.map_err(failed)?)))
    }

    /// Waits for `future`; in an asynchronous task too, which waits with it.
    pub fn block_on<F: Future<Output: Send> + Send>(&self, future: F) -> F::Output {
        let runtime = self.0.as_ref().expect("invariant: there until it is dropped");
        match Handle::try_current() {
            Err(_) => runtime.block_on(future),
            // Tokio refuses to wait on a thread that runs tasks: another one does.
            Ok(_) => std::thread::scope(|scope| {
                let waited = scope.spawn(|| runtime.block_on(future)).join();
                waited.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            }),
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
