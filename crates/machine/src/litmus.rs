//! What two threads of a machine may rely on when they share memory (Wu, listings 12 and 13).
//!
//! Three probes, each run for many rounds in which threads do not wait for one another, so that they meet
//! at every possible moment:
//!
//! * **Increments.** Both add to one word; at the end it must hold the sum.
//! * **Message passing.** One writes `a`, then `b`; a reader that finds a new `b` must find a new `a`.
//! * **Store buffering.** Each writes a word of its own and then reads the other's; one of them at the
//!   least must find the other's write.
//!
//! From the outcomes follows how devices may share ([`Sharing`]): with atomics, words; with ordering
//! alone, whatever a lock of loads and stores protects (Lamport's bakery needs both orderings); with
//! neither, nothing. A probe proves a failure and never an order: rounds without one are evidence.
//!
//! Each probe has a broken form ([`LitmusForm::Broken`]), which must fail, or the probe sees nothing. That of
//! store buffering is one without its barriers: every processor of today fails it by itself.

use crate::test_bed::{Bench, TestBed};
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst, fence};
use terrace_memory::{Domain, Memory};

/// The probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// Two threads increment one word.
    Increments,
    /// One thread writes two words in order, the other reads them in the opposite order.
    Passing {
        /// Whether the second thread is the writer.
        backwards: bool,
    },
    /// Two threads write one word each and read the other's.
    Buffering,
}

/// How it is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LitmusForm {
    /// With atomics and barriers, which must hold.
    Sound,
    /// Increments that load and store; messages written in the wrong order; stores without barriers
    /// behind them.
    Broken,
}

/// What came of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LitmusOutcome {
    /// The probe.
    pub probe: Probe,
    /// Rounds of each thread.
    pub rounds: u64,
    /// Outcomes that must not be: increments lost, messages or writes not seen.
    pub forbidden: u64,
}

/// How two devices may share data. The later ones need less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sharing {
    /// Both change the same words, by compare-exchange.
    Words,
    /// Both change the same data, one at a time, under a lock made of loads and stores.
    UnderLock,
    /// Each has data of its own.
    Apart,
}

/// Probes that decide.
pub const PROBES: [Probe; 4] = [
    Probe::Increments,
    Probe::Passing { backwards: false },
    Probe::Passing { backwards: true },
    Probe::Buffering,
];
/// Rounds of one run: the outcomes of a run are kept in memory.
const RUN: u64 = 1 << 20;
const BYTES: u64 = 4096;
/// Two words, on lines that no prefetcher takes together.
const A: u64 = 0;
const B: u64 = 1024;
/// Rounds of a step.
const STEP: u64 = 64;

impl Sharing {
    /// What these outcomes of all [`PROBES`] allow: a probe that is missing, or had no rounds, has failed.
    pub fn allowed_by(found: &[LitmusOutcome]) -> Sharing {
        let holds = |probe: Probe| {
            let of = |found: &&LitmusOutcome| found.probe == probe && found.rounds > 0;
            let mut all = found.iter().filter(of).peekable();
            all.peek().is_some() && all.all(|found| found.forbidden == 0)
        };
        let [increments, forwards, backwards, buffering] = PROBES.map(holds);
        match (increments, forwards && backwards && buffering) {
            (true, true) => Sharing::Words,
            (_, true) => Sharing::UnderLock,
            (_, false) => Sharing::Apart,
        }
    }
}

impl Probe {
    /// Probes two threads of a test bed for `rounds` rounds at the least.
    ///
    /// # Errors
    /// The machine has not two threads, or no such node, or refuses the memory.
    pub fn run<G: TestBed>(
        self,
        test_bed: &G,
        node: &str,
        form: LitmusForm,
        rounds: u64,
    ) -> io::Result<LitmusOutcome> {
        let bench = test_bed.bench(2)?;
        let memory = bench.memory(node, BYTES, Domain::None)?;
        let mut found = LitmusOutcome { probe: self, rounds: 0, forbidden: 0 };
        while found.rounds < rounds {
            // SAFETY: aligned words of the memory; nobody else has it yet.
            unsafe {
                memory.store(A, 0);
                memory.store(B, 0);
            }
            found.forbidden += match self {
                Probe::Increments => increments(&bench, &memory, form),
                Probe::Passing { backwards } => passing(&bench, &memory, form, backwards),
                Probe::Buffering => buffering(&bench, &memory, form),
            };
            found.rounds += RUN;
        }
        Ok(found)
    }
}

fn load(memory: &impl Memory, at: u64) -> u64 {
    // SAFETY: an aligned word of the memory; words are atomic.
    unsafe { memory.load(at) }
}

fn store(memory: &impl Memory, at: u64, value: u64) {
    // SAFETY: as above.
    unsafe { memory.store(at, value) }
}

/// Two threads, each doing `round` with the numbers 1 to [`RUN`]. The barrier at their start is of the bench.
fn both<B: Bench>(bench: &B, rounds: [&(dyn Fn(u64) + Sync); 2]) {
    let mut steps: Vec<_> = rounds
        .into_iter()
        .map(|round| {
            let mut done = 0;
            move || {
                (done + 1..=done + STEP).for_each(round);
                done += STEP;
                done < RUN
            }
        })
        .collect();
    bench.run(&mut steps);
}

fn increments<B: Bench>(bench: &B, memory: &B::Memory, form: LitmusForm) -> u64 {
    let increment = |_| match form {
        LitmusForm::Sound => {
            let mut found = load(memory, A);
            // SAFETY: an aligned word of the memory.
            while let Err(other) = unsafe { memory.compare_exchange(A, found, found + 1) } {
                found = other;
            }
            fence(SeqCst);
        }
        LitmusForm::Broken => store(memory, A, load(memory, A) + 1),
    };
    both(bench, [&increment, &increment]);
    (2 * RUN).abs_diff(load(memory, A))
}

fn passing<B: Bench>(bench: &B, memory: &B::Memory, form: LitmusForm, backwards: bool) -> u64 {
    let [first, second] = if form == LitmusForm::Sound { [A, B] } else { [B, A] };
    let missed = AtomicU64::new(0);
    let write = |round: u64| {
        store(memory, first, round);
        fence(SeqCst);
        store(memory, second, round);
    };
    let read = |_: u64| {
        let b = load(memory, B);
        fence(SeqCst);
        let a = load(memory, A);
        if a < b {
            missed.fetch_add(1, Relaxed);
        }
    };
    both(bench, if backwards { [&read, &write] } else { [&write, &read] });
    missed.into_inner()
}

fn buffering<B: Bench>(bench: &B, memory: &B::Memory, form: LitmusForm) -> u64 {
    // What each thread found in the other's word, by round.
    let found: [Vec<AtomicU32>; 2] =
        [0, 1].map(|_| (0..=RUN).map(|_| Default::default()).collect());
    let side = |own: u64, other: u64, which: usize| {
        let found = &found[which];
        move |round: u64| {
            store(memory, own, round);
            if form == LitmusForm::Sound {
                fence(SeqCst);
            }
            let seen = load(memory, other) as u32;
            found[round as usize].store(seen, Relaxed);
        }
    };
    let (one, two) = (side(A, B, 0), side(B, A, 1));
    both(bench, [&one, &two]);
    unseen(&found.map(|side| side.into_iter().map(|seen| seen.into_inner()).collect()))
}

/// Rounds in which neither thread can have seen the other's write. In round `i` the one saw round `j - 1`
/// of the other and not `j`; so the other, in `j`, must have seen `i`.
fn unseen(found: &[Vec<u32>; 2]) -> u64 {
    let rounds = found[0].len();
    let missed = |i: &usize| {
        let j = found[0][*i] as usize + 1;
        j < rounds && (found[1][j] as usize) < *i
    };
    (1..rounds).filter(missed).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Preset;

    fn found(forbidden: [u64; 4]) -> Vec<LitmusOutcome> {
        let all = PROBES.into_iter().zip(forbidden);
        all.map(|(probe, forbidden)| LitmusOutcome { probe, rounds: 1000, forbidden }).collect()
    }

    #[test]
    fn failed_probes_decide_how_devices_may_share() {
        assert_eq!(Sharing::allowed_by(&found([0; 4])), Sharing::Words);
        assert_eq!(Sharing::allowed_by(&found([1, 0, 0, 0])), Sharing::UnderLock);
        // The M2 Ultra, processor and GPU: no atomics, order in one direction alone.
        assert_eq!(Sharing::allowed_by(&found([9, 0, 1, 0])), Sharing::Apart);
        assert_eq!(Sharing::allowed_by(&found([0, 0, 0, 1])), Sharing::Apart);
        assert_eq!(Sharing::allowed_by(&found([0; 4])[..3]), Sharing::Apart, "one was not run");
        let idle: Vec<LitmusOutcome> =
            found([0; 4]).into_iter().map(|found| LitmusOutcome { rounds: 0, ..found }).collect();
        assert_eq!(Sharing::allowed_by(&idle), Sharing::Apart);
    }

    #[test]
    fn writes_that_neither_saw_are_found() {
        // In step: both see the round before each time, so neither sees the other's write of the same.
        assert_eq!(unseen(&[vec![0, 0, 1, 2], vec![0, 0, 1, 2]]), 3);
        // One goes first: the second sees every write of it.
        assert_eq!(unseen(&[vec![0, 0, 1, 2], vec![0, 1, 2, 3]]), 0);
        // One after the other, entirely.
        assert_eq!(unseen(&[vec![0, 0, 0, 0], vec![0, 3, 3, 3]]), 0);
    }

    #[test]
    fn a_modelled_machine_loses_no_increment() {
        let preset = Preset::named("two-socket").unwrap();
        let found = Probe::Increments.run(&preset, "dram0", LitmusForm::Sound, 1).unwrap();
        assert_eq!((found.rounds, found.forbidden), (RUN, 0));
    }
}
