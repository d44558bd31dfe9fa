//! `lit-ranges`: points and ranges of the lookup table while it splits and resizes (Miller, sections 6.2.2 and 6.3).
//!
//! The oracle has a version of each key for each change. A writer has keys of its own, so its changes have one order,
//! and no two of its states are alike. A range of all keys therefore tells, of each writer, after which change it was.
//! It is explained if that change was under way or the last one before, for every writer, and if all ranges
//! together have an order: none may be later than another by one writer and earlier by the next, or in real time.

use super::{Check, Outcome, Result, Row, Run};
use crate::reproduce::error::Error;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use terrace_lockfree::lookup::{Fault, LookupTable, Options, Stats};
use terrace_workload::history::{Call, Recorder, Response, joined};
use terrace_workload::linearizability::{DEFAULT_BUDGET, check};
use terrace_workload::random::Rng;

pub(super) const ROW: Row = Row {
    id: "lit-ranges",
    source: "Miller, sections 6.2.2, 6.3",
    runs_on: "native",
    must_show: "points linearizable, ranges equal a multi-version oracle under storms of splits and resizes; a \
                pruned version and a missing marker are caught",
    run,
};

const WRITERS: u64 = 3;
const READERS: usize = 2;
/// Keys of a writer that come and go, beside one that stays.
const KEYS: u64 = 24;

/// The most storms of a control.
const STORMS: usize = 40;
/// Ranges that a storm waits for: a machine may give its readers no time until the writers are through.
const RANGES: usize = 8;

/// A change of a writer: when it was called and when it had returned, in ticks of one clock.
#[derive(Clone, Debug)]
struct Change {
    key: u64,
    value: Option<u64>,
    called: u64,
    returned: u64,
}

/// What a range told, and when.
#[derive(Clone, Debug)]
struct Told {
    pairs: Vec<(u64, u64)>,
    called: u64,
    returned: u64,
}

/// What came of a run.
#[derive(Debug, Default)]
struct Found {
    ranges: usize,
    changes: usize,
    /// Ranges that no change of some writer explains.
    unexplained: usize,
    /// Neighbours in the order of ranges that contradict one another or real time.
    disordered: usize,
    stats: Stats,
}

fn run(run: &Run<'_>) -> Result<Outcome> {
    let rounds = run.size(1_000_000, 60_000);
    let mut outcome = Outcome::default();
    (run.tell)("points");
    let (points, wrong) = (0..run.size(40, 4)).try_fold((0, 0), |(all, wrong), seed| {
        let (operations, is_linearizable) = history(seed)?;
        Ok::<_, Error>((all + operations, wrong + u64::from(!is_linearizable)))
    })?;
    outcome.checks.push(Check::at_most("histories of points without an order", "0", wrong as f64, 0.0).order());
    (run.tell)("ranges");
    let sound = storm(None, rounds)?;
    let none = |what: &str, measured: usize| Check::at_most(what, "0", measured as f64, 0.0).order();
    outcome.checks.push(none("ranges that equal no state of the oracle", sound.unexplained));
    outcome.checks.push(none("ranges that have no order", sound.disordered));
    let storms = sound.stats.splits.min(sound.stats.resizes);
    let what = "splits, and resizes, meanwhile: the fewer";
    outcome.checks.push(Check::at_least(what, "many", storms as f64, 10.0).order());
    (run.tell)("controls");
    for (fault, name) in [
        (Fault::PruningIgnoresSnapshots, "control: pruning ignores snapshots; wrong ranges"),
        (Fault::SplitWithoutMarkers, "control: splits without markers; wrong ranges"),
    ] {
        let wrong = wrong_ranges(fault)?;
        outcome.checks.push(Check::at_least(name, "caught", wrong as f64, 1.0).order());
    }
    outcome.size("operations on points", points);
    outcome.size("changes, ranges", format!("{}, {}", sound.changes, sound.ranges));
    outcome.size("splits, resizes", format!("{}, {}", sound.stats.splits, sound.stats.resizes));
    outcome.note = format!(
        "{WRITERS} writers of {} keys each and {READERS} readers of all keys on a table that splits after two nodes \
         and resizes after two levels, while keys of a fourth writer come and go over the whole range. Not in the runs \
         of the paper: pruning and freeing of memory, which are on here. A reader that does not stamp is the third \
         control; it needs a writer that stops between two instructions, so the scheduled interleavings of the tests \
         catch it (`lookup::tests::interleaved`).",
        KEYS + 1
    );
    Ok(outcome)
}

/// Wrong ranges of a table that leaves out a step: of the first of some storms that has any, since the threads of
/// one may happen not to meet where it matters.
fn wrong_ranges(fault: Fault) -> Result<usize> {
    for _ in 0..STORMS {
        let found = storm(Some(fault), 6_000)?;
        if found.unexplained + found.disordered > 0 {
            return Ok(found.unexplained + found.disordered);
        }
    }
    Ok(0)
}

fn restless() -> Options<u64> {
    Options::default().with_buckets(1).with_split_after(2).with_resize_after(2)
}

fn made(fault: Option<Fault>) -> Result<LookupTable<u64>> {
    let table = match fault {
        Some(fault) => LookupTable::with_fault(restless(), fault),
        None => LookupTable::new(restless()),
    };
    table.map_err(|error| Error::system("have a lookup table")(io::Error::other(error)))
}

/// Operations on few keys while others cause splits: how many, and whether they have an order.
fn history(seed: u64) -> Result<(u64, bool)> {
    const OPERATIONS: u64 = 4_000;
    let (table, recorder) = (made(None)?, Recorder::new());
    let logs = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|thread| {
                let (table, recorder) = (&table, &recorder);
                scope.spawn(move || {
                    let (mut client, mut random) = (recorder.client(), Rng::new(seed << 8 | thread));
                    for number in 0..OPERATIONS {
                        let (key, value) = (random.below(8), thread << 32 | number);
                        let (call, kind) = match random.below(3) {
                            0 => (Call::CompareAndSet { expected: None, new: Some(value as i64) }, 0),
                            1 => (Call::Delete, 1),
                            _ => (Call::Get, 2),
                        };
                        let pending = client.call(key, call);
                        let response = match kind {
                            0 => Response::Flag(table.insert(key, value)),
                            1 => Response::Flag(table.remove(&key).is_some()),
                            _ => Response::Value(table.get(&key).map(|value| value as i64)),
                        };
                        client.returned(pending, response);
                        if number % 16 == 0 {
                            let bits = random.below(60);
                            table.insert(16 + random.below(1 << bits), 0);
                        }
                    }
                    client.into_operations()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a client does not panic")).collect::<Vec<_>>()
    });
    Ok((3 * OPERATIONS, check(&joined(logs), DEFAULT_BUDGET).is_linearizable()))
}

/// Key `number` of a writer: others' keys lie between.
fn key(writer: u64, number: u64) -> u64 {
    (number * WRITERS + writer) << 20
}

/// Writers, readers, and a fourth writer whose keys are odd, so that the index changes all the time.
fn storm(fault: Option<Fault>, rounds: u64) -> Result<Found> {
    let table = made(fault)?;
    let (clock, writing) = (AtomicU64::new(0), AtomicUsize::new(WRITERS as usize));
    let ranges = AtomicUsize::new(0);
    let tick = || clock.fetch_add(1, Ordering::SeqCst);
    let (changes, told) = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (table, writing, ranges) = (&table, &writing, &ranges);
                scope.spawn(move || {
                    let is_over = |number| number >= rounds && ranges.load(Ordering::Relaxed) >= RANGES;
                    let changes = write(table, writer, is_over, tick);
                    writing.fetch_sub(1, Ordering::SeqCst);
                    changes
                })
            })
            .collect();
        let readers: Vec<_> = (0..READERS)
            .map(|_| {
                let (table, writing, ranges) = (&table, &writing, &ranges);
                scope.spawn(move || {
                    let mut told = Vec::new();
                    while writing.load(Ordering::SeqCst) > 0 {
                        told.push(read(table, tick));
                        ranges.fetch_add(1, Ordering::Relaxed);
                    }
                    told
                })
            })
            .collect();
        let mut random = Rng::new(9);
        while writing.load(Ordering::SeqCst) > 0 {
            let bits = 8 + random.below(50);
            let other = random.below(1 << bits) | 1;
            if !table.insert(other, 0) || random.one_in(2) {
                table.remove(&other);
            }
        }
        let changes: Vec<Vec<Change>> =
            writers.into_iter().map(|writer| writer.join().expect("a writer does not panic")).collect();
        let told: Vec<Told> =
            readers.into_iter().flat_map(|reader| reader.join().expect("a reader does not panic")).collect();
        (changes, told)
    });
    Ok(Found { stats: table.stats(), ..judge(&changes, &told) })
}

/// Every third change is of the key that stays, so its value tells the last three; of those, the second and the third
/// are of different keys. So no two states of the writer are alike.
fn write(
    table: &LookupTable<u64>,
    writer: u64,
    is_over: impl Fn(u64) -> bool,
    tick: impl Fn() -> u64,
) -> Vec<Change> {
    let (mut random, mut changes) = (Rng::new(writer), Vec::new());
    let mut is_there = [false; KEYS as usize + 1];
    let mut last = 0;
    for number in (0..).take_while(|number| !is_over(*number)) {
        let of = match number % 3 {
            0 => 0,
            1 => 1 + random.below(KEYS),
            // Another than the last.
            _ => 1 + (last + random.below(KEYS - 1)) % KEYS,
        };
        last = of;
        let key = key(writer, of);
        let goes = of > 0 && is_there[of as usize] && random.one_in(2);
        let called = tick();
        let value = (!goes).then_some(number + 1);
        match value {
            Some(value) => drop(table.put(key, value)),
            None => drop(table.remove(&key)),
        }
        is_there[of as usize] = !goes;
        changes.push(Change { key, value, called, returned: tick() });
    }
    changes
}

/// A range of all keys, read in two parts of one snapshot.
fn read(table: &LookupTable<u64>, tick: impl Fn() -> u64) -> Told {
    let called = tick();
    let (mut pairs, middle) = (Vec::new(), key(1, KEYS / 2));
    if let Ok(snapshot) = table.snapshot() {
        for range in [0..=middle, middle + 1..=u64::MAX] {
            let found = snapshot.range(range).into_iter().flatten();
            pairs.extend(found.filter(|(key, _)| key & 1 == 0));
            // So that writers are at work between the parts, however many processors there are.
            std::thread::yield_now();
        }
    }
    Told { pairs, called, returned: tick() }
}

/// Compares what ranges told with the versions that there were.
fn judge(changes: &[Vec<Change>], told: &[Told]) -> Found {
    let mut found = Found { ranges: told.len(), ..Found::default() };
    found.changes = changes.iter().map(Vec::len).sum();
    let mut placed = Vec::new();
    let oracles: Vec<Oracle<'_>> = (0..).zip(changes).map(|(writer, changes)| Oracle::new(writer, changes)).collect();
    for one in told {
        let places: Option<Vec<usize>> = oracles.iter().map(|oracle| oracle.place(one)).collect();
        match places {
            Some(places) => placed.push((places, one)),
            None => found.unexplained += 1,
        }
    }
    placed.sort_by(|a, b| a.0.cmp(&b.0));
    let mut latest_call = 0;
    for pair in placed.windows(2) {
        let is_later = pair[0].0.iter().zip(&pair[1].0).all(|(a, b)| a <= b);
        latest_call = latest_call.max(pair[0].1.called);
        let is_alike = pair[0].0 == pair[1].0;
        // A range that returned before an earlier one was called contradicts real time.
        let is_in_time = is_alike || pair[1].1.returned > latest_call;
        found.disordered += usize::from(!is_later || !is_in_time);
    }
    found
}

/// A writer's changes, and where each value of the key that stays was written.
struct Oracle<'c> {
    writer: u64,
    changes: &'c [Change],
}

impl<'c> Oracle<'c> {
    fn new(writer: u64, changes: &'c [Change]) -> Oracle<'c> {
        Oracle { writer, changes }
    }

    /// After how many changes the range was, if there is an answer that its time allows.
    fn place(&self, told: &Told) -> Option<usize> {
        let least = self.changes.partition_point(|change| change.returned < told.called);
        let most = self.changes.partition_point(|change| change.called < told.returned);
        let mine = told.pairs.iter().filter(|(key, _)| (key >> 20) % WRITERS == self.writer);
        let mine: BTreeMap<u64, u64> = mine.copied().collect();
        // The newest value that it told is near the end of the changes that it saw: two may follow, which told none.
        let newest = mine.values().copied().max().unwrap_or(0) as usize;
        (newest.max(least)..=most.min(newest + 2)).find(|place| self.state(*place, &mine))
    }

    /// Whether the writer's keys were so after so many changes.
    fn state(&self, place: usize, mine: &BTreeMap<u64, u64>) -> bool {
        let mut left = KEYS as usize + 1;
        let mut seen = BTreeMap::new();
        for change in self.changes[..place].iter().rev() {
            if left == 0 {
                break;
            }
            if let std::collections::btree_map::Entry::Vacant(entry) = seen.entry(change.key) {
                entry.insert(change.value);
                left -= 1;
            }
        }
        let there: BTreeMap<u64, u64> = seen.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
        there == *mine
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes() -> Vec<Vec<Change>> {
        let of = |writer| {
            let change = |number: u64| {
                let (called, returned) = (10 * number, 10 * number + 5);
                Change { key: key(writer, number % 2), value: Some(number + 1), called, returned }
            };
            (0..4).map(change).collect()
        };
        (0..WRITERS).map(of).collect()
    }

    fn told(numbers: [u64; 3], called: u64, returned: u64) -> Told {
        let pairs = (0..).zip(numbers).flat_map(|(writer, number)| {
            let newest = (key(writer, (number + 1) % 2), number);
            let before = (number > 1).then(|| (key(writer, number % 2), number - 1));
            [Some(newest), before].into_iter().flatten()
        });
        let mut pairs: Vec<_> = pairs.collect();
        pairs.sort_unstable();
        Told { pairs, called, returned }
    }

    #[test]
    fn the_oracle_tells_right_from_wrong() {
        let judged = |told: &[Told]| {
            let found = judge(&changes(), told);
            (found.unexplained, found.disordered)
        };
        assert_eq!(judged(&[told([2, 2, 2], 11, 14), told([3, 3, 3], 23, 29)]), (0, 0));
        assert_eq!(judged(&[told([1, 2, 2], 16, 19)]), (1, 0), "a change that had returned is missing");
        assert_eq!(judged(&[told([3, 2, 2], 16, 19)]), (1, 0), "a change that was not yet called");
        assert_eq!(judged(&[told([2, 1, 2], 11, 14), told([1, 2, 2], 11, 14)]), (0, 1), "no order");
        assert_eq!(judged(&[told([2, 2, 2], 11, 12), told([1, 1, 2], 13, 14)]), (0, 1), "back in time");
        let mut torn = told([2, 2, 2], 11, 14);
        torn.pairs.remove(0);
        assert_eq!(judged(&[torn]), (1, 0));
    }

    #[test]
    fn a_missing_marker_is_caught() {
        assert!(wrong_ranges(Fault::SplitWithoutMarkers).expect("a table") > 0);
    }
}
