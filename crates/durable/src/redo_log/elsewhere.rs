//! Another run of the kernel, and a mistake in what belongs together, as crash tests need them: of the thread that
//! opens a map. Compiled for tests, and with the feature `faults`.

use super::BOOT_BYTES;
use std::cell::RefCell;

/// What a thread takes for so.
pub struct Elsewhere {
    boots: Box<dyn Fn() -> u8>,
    accepts_any: bool,
}

thread_local! {
    static HERE: RefCell<Option<Elsewhere>> = const { RefCell::new(None) };
}

impl Elsewhere {
    /// For this thread, from here on: `boots` tells how often the machine has lost power, and with `accepts_any` a redo
    /// log is taken for that of whatever checkpoint is found.
    pub fn enter(boots: impl Fn() -> u8 + 'static, accepts_any: bool) {
        HERE.set(Some(Elsewhere { boots: Box::new(boots), accepts_any }));
    }

    pub(super) fn accepts_any() -> bool {
        HERE.with_borrow(|here| here.as_ref().is_some_and(|here| here.accepts_any))
    }

    pub(super) fn boot(mut boot: [u8; BOOT_BYTES]) -> [u8; BOOT_BYTES] {
        boot[0] ^= HERE.with_borrow(|here| here.as_ref().map_or(0, |here| (here.boots)()));
        boot
    }
}

impl std::fmt::Debug for Elsewhere {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Elsewhere").field("accepts_any", &self.accepts_any).finish_non_exhaustive()
    }
}
