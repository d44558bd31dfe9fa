//! The fall-back for sections of more pages than the write-set buffer holds: a redo log of words, in software.
//!
//! ```text
//! log: | words, hash, .. | address, value | .. |
//! write the log and its mark, WAIT | store in place, write back, WAIT | clear the mark, WAIT
//! ```
//! The log has the program's addresses, so that it is right wherever a consolidation has put their pages. "In place" is
//! the place that the committed bitmap names: no open section has these lines, which is the program's care as always.

use super::super::bytes::{Bytes, LineWords, Owner, hash};
use super::super::controller::Class;
use super::super::engine::{Commit, Engine, Refused, flush};
use super::super::hardware::Hardware;
use super::super::parameters::{Fault, LINE_WORDS};
use super::Shadow;

/// How far a core's fall-back is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum FallBack {
    #[default]
    Idle,
    Logged,
    Stored,
    Cleared,
}

const MARK: usize = 2;

/// The log, its mark first.
fn stream(stores: &[(u64, u64)]) -> Vec<u64> {
    let words: Vec<u64> = stores.iter().flat_map(|(at, value)| [*at, *value]).collect();
    let mut stream = vec![words.len() as u64, hash(words.len() as u64, words.iter().copied())];
    stream.extend(words);
    stream
}

impl Shadow {
    pub(super) fn fall_back_step(
        &mut self,
        on: &mut Hardware,
        core: usize,
        stores: &[(u64, u64)],
    ) -> Result<Commit, Refused> {
        on.bytes.settle(Owner::Core(core));
        self.fall_backs[core] = match self.fall_backs[core] {
            FallBack::Idle => {
                self.write_log(on, core, stores)?;
                match on.parameters.has(Fault::FallbackLog) {
                    true => FallBack::Logged,
                    false => {
                        self.store_in_place(on, core, stores);
                        FallBack::Stored
                    }
                }
            }
            FallBack::Logged => {
                self.store_in_place(on, core, stores);
                FallBack::Stored
            }
            FallBack::Stored => {
                let (now, at) = (on.cores[core].clock, self.layout.log(core));
                let owner = Owner::Core(core);
                let done = on.write_uncached(now, at, [0; LINE_WORDS], owner, Class::Log);
                on.until(core, done);
                on.barrier(core);
                FallBack::Cleared
            }
            FallBack::Cleared => {
                on.events.fallbacks += 1;
                on.events.sections += 1;
                self.fall_backs[core] = FallBack::Idle;
                return Ok(Commit::Done);
            }
        };
        Ok(Commit::Again)
    }

    fn write_log(
        &mut self,
        on: &mut Hardware,
        core: usize,
        stores: &[(u64, u64)],
    ) -> Result<(), Refused> {
        let stream = stream(stores);
        if stream.len().div_ceil(LINE_WORDS) > on.parameters.log_lines as usize {
            return Err(Refused::LogFull { lines: on.parameters.log_lines });
        }
        on.barrier(core);
        let now = on.cores[core].clock;
        for (number, words) in stream.chunks(LINE_WORDS).enumerate() {
            let line: LineWords = std::array::from_fn(|word| words.get(word).copied().unwrap_or(0));
            let at = self.layout.log(core) + number as u32;
            let done = on.write_uncached(now, at, line, Owner::Core(core), Class::Log);
            on.until(core, done);
        }
        on.barrier(core);
        Ok(())
    }

    fn store_in_place(&mut self, on: &mut Hardware, core: usize, stores: &[(u64, u64)]) {
        let mut lines = Vec::new();
        for (at, value) in stores {
            let line = self.place(on, core, (at / 64) as u32);
            on.store(core, line);
            on.bytes.newest_mut(line)[(at / 8 % 8) as usize] = *value;
            lines.push(line);
        }
        flush(on, core, &lines);
    }

    pub(super) fn replay_fall_backs(&mut self, bytes: &mut Bytes) {
        for core in 0..self.fall_backs.len() {
            for (at, value) in self.read_log(bytes, core) {
                let line = self.recovered_place((at / 64) as u32);
                bytes.newest_mut(line)[(at / 8 % 8) as usize] = value;
                bytes.post(line, Owner::Background);
            }
        }
    }

    pub(super) fn clear_fall_backs(&mut self, bytes: &mut Bytes) {
        for core in 0..self.fall_backs.len() {
            let at = self.layout.log(core);
            if *bytes.durable(at) != [0; LINE_WORDS] {
                *bytes.newest_mut(at) = [0; LINE_WORDS];
                bytes.post(at, Owner::Background);
            }
        }
    }

    fn read_log(&self, bytes: &Bytes, core: usize) -> Vec<(u64, u64)> {
        let at = self.layout.log(core);
        let word =
            |number: usize| bytes.durable(at + (number / LINE_WORDS) as u32)[number % LINE_WORDS];
        let (count, vouched) = (word(0) as usize, word(1));
        let most = (self.layout.log_lines() as usize * LINE_WORDS).saturating_sub(MARK);
        if count == 0 || count > most || !count.is_multiple_of(2) {
            return Vec::new();
        }
        let words: Vec<u64> = (MARK..MARK + count).map(word).collect();
        if hash(count as u64, words.iter().copied()) != vouched {
            return Vec::new();
        }
        let (pairs, _) = words.as_chunks::<2>();
        pairs.iter().map(|[at, value]| (*at, *value)).collect()
    }
}
