//! Leaving a scenario's code from inside an event, and learning how it ended.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Once;

/// Why an execution is left.
#[derive(Debug)]
pub(crate) struct Halt(Option<String>);

impl Halt {
    /// An end that is a failure of the scenario.
    pub fn new(message: String) -> Self {
        Halt(Some(message))
    }

    /// An end for reasons that are recorded elsewhere.
    pub fn stopped() -> Self {
        Halt(None)
    }

    /// Unwinds to the [`caught`] around the execution.
    pub fn leave(self) -> ! {
        resume_unwind(Box::new(self))
    }
}

/// How an execution ended that did not return.
#[derive(Debug)]
pub(crate) enum Ended {
    /// It panicked, or was left with a message.
    Failed(String),
    /// It was left by [`Halt::stopped`].
    Stopped,
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
    static WHERE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs `execution`. A panic in it is a finding, not a message on the terminal.
pub(crate) fn caught<T>(execution: impl FnOnce() -> T) -> Result<T, Ended> {
    install_hook();
    let was_quiet = QUIET.replace(true);
    let result = catch_unwind(AssertUnwindSafe(execution));
    QUIET.set(was_quiet);
    result.map_err(|payload| match payload.downcast::<Halt>() {
        Ok(halt) => halt.0.map_or(Ended::Stopped, Ended::Failed),
        Err(payload) => {
            let words = payload
                .downcast_ref::<String>()
                .map(String::as_str)
                .or(payload.downcast_ref::<&str>().copied())
                .unwrap_or("(no message)");
            Ended::Failed(format!("panicked{}: {words}", WHERE.take()))
        }
    })
}

/// The hook is the process's; ours passes on every panic that is not a finding.
fn install_hook() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if QUIET.get() {
                let place = info.location().map(|l| format!(" at {}:{}", l.file(), l.line()));
                WHERE.replace(place.unwrap_or_default());
            } else {
                usual(info);
            }
        }));
    });
}
