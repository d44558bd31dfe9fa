//! What a transaction that others came before waits until it is tried again.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

/// The first pause is about so long; each is twice the one before, up to the longest.
const SHORTEST: Duration = Duration::from_micros(2);
const LONGEST: Duration = Duration::from_millis(4);
/// What is shorter is spent spinning: the system's own pauses are longer.
const SPUN: Duration = Duration::from_micros(50);
/// How often one is tried again whose moment had ended. It may itself take longer than older versions are kept.
const ENDED_MOST: u32 = 3;

#[derive(Default)]
pub(super) struct Pause {
    tried: u32,
    ended: u32,
}

impl Pause {
    /// Waits; `ended`: the transaction's moment had ended, which is tried again only so often.
    ///
    /// # Errors
    /// `ended`.
    pub fn before_next<E>(&mut self, ended: Option<E>) -> Result<(), E> {
        if let Some(ended) = ended {
            self.ended += 1;
            if self.ended > ENDED_MOST {
                return Err(ended);
            }
        }
        let longest = (SHORTEST * 2u32.pow(self.tried.min(12))).min(LONGEST);
        self.tried += 1;
        // Two that meet are not to meet again: between half of it and all.
        let start = Instant::now();
        let part = RandomState::new().build_hasher().finish() as u32 % 256;
        let pause = longest / 2 + longest / 512 * part;
        if pause > SPUN {
            std::thread::sleep(pause);
        }
        while start.elapsed() < pause {
            std::hint::spin_loop();
        }
        Ok(())
    }
}
