//! `kv-breakdown`: where the time of an update goes (Wu, table 2.1).
//!
//! By difference of batches of whole operations, with no clock inside any:
//!
//! * *index*: updates that find and lock their key, look at the old item to tell its key, and change
//!   nothing;
//! * *write*: updates that free nothing, less the same with values of 8 bytes and no write-backs: what
//!   copying the value, writing it back and waiting for that adds;
//! * *management*: the rest of the whole update: taking a place, checksum, counting the old item or
//!   freeing its slot, epochs.
//!
//! Logs free nothing anyway; of slabs the updates that free nothing are those with deferred frees. A
//! wait that the processor hides behind the next operation is in no part, since it is in no whole.
//!
//! No update here waits for the collector: batches end before any log is half dead, as in the table.

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::measure::{Samples, ns_per_operation};
use crate::reproduce::emulated::{DESIGNS, LABEL, Emulated, WithoutWriteBacks};
use terrace_store::laboratory::Laboratory;
use terrace_store::{MapOptions, ValueDesign};

pub(super) const ROW: Row = Row {
    id: "kv-breakdown",
    source: "Wu, table 2.1",
    runs_on: "native (emulated medium)",
    must_show: "time split index / management / write; the index share falls with value size, order as T2.1",
    run,
};

const SIZES: [usize; 5] = [64, 128, 256, 512, 1024];
/// How often each is measured, the maps in turn; the median counts.
const BATCHES: usize = 21;
/// One in so many keys is updated in a batch.
const BATCH_OF: u64 = 100;

/// Nanoseconds of one update, and of its parts.
#[derive(Clone, Copy)]
struct Split {
    whole: f64,
    index: f64,
    write: f64,
}

impl Split {
    fn management(&self) -> f64 {
        (self.whole - self.index - self.write).max(0.0)
    }

    fn shares(&self) -> [f64; 3] {
        [self.index, self.management(), self.write].map(|part| part / self.whole)
    }
}

fn run(run: &Run<'_>) -> Result<Outcome> {
    let keys = run.size(10_000_000, 400_000);
    // At the paper's sizes the maps of one design are what this kind of machine holds.
    let together = run.size(1, DESIGNS.len());
    let mut splits: [Vec<Split>; 2] = Default::default();
    for value_bytes in SIZES {
        (run.tell)(&format!("values of {value_bytes} B"));
        // Not more bytes than ten million values of 256 B, which fit this kind of machine.
        let keys = keys.min((10_000_000 * 320) / (value_bytes as u64 + 64)).max(keys / 10);
        let mut found = Vec::new();
        for designs in DESIGNS.chunks(together) {
            let pairs = designs.iter().map(|(design, _)| Pair::new(*design, keys, value_bytes));
            let mut pairs = pairs.collect::<Result<Vec<_>>>()?;
            // In turn, so that a machine that is busy for a while is so for all of them.
            for _ in 0..BATCHES {
                pairs.iter_mut().try_for_each(|pair| pair.measure(keys / BATCH_OF))?;
            }
            found.extend(pairs.iter().map(Pair::split));
        }
        splits.iter_mut().zip(found).for_each(|(splits, split)| splits.push(split));
    }
    Ok(judge(keys, &splits))
}

/// A map, and the same with frees deferred.
struct Pair {
    map: WithoutWriteBacks,
    unfreed: WithoutWriteBacks,
    whole: Samples,
    index: Samples,
    write: Samples,
}

impl Pair {
    fn new(design: ValueDesign, keys: u64, value_bytes: usize) -> Result<Pair> {
        let options = Emulated::options(design);
        let laboratory = Laboratory { deferred_frees: usize::MAX, ..options.laboratory };
        let unfreed = MapOptions { laboratory, ..options.clone() };
        let filled = |options| -> Result<WithoutWriteBacks> {
            let mut map = WithoutWriteBacks::able(keys * 8 / 5, value_bytes, options)?;
            map.fill(keys)?;
            // What the first updates bring in is brought in.
            map.update(keys / BATCH_OF)?;
            map.update_but_hardly_write(keys / BATCH_OF)?;
            Ok(map)
        };
        let [whole, index, write] = <[Samples; 3]>::default();
        Ok(Pair { map: filled(options)?, unfreed: filled(unfreed)?, whole, index, write })
    }

    /// A batch of each kind; differences are of batches that follow one another.
    fn measure(&mut self, batch: u64) -> Result<()> {
        let Pair { map, unfreed, .. } = self;
        self.whole.push(ns_per_operation(batch, || map.update(batch))?);
        self.index.push(ns_per_operation(batch, || map.find_for_update(batch))?);
        let without_free = ns_per_operation(batch, || unfreed.update(batch))?;
        let without_write = ns_per_operation(batch, || unfreed.update_but_hardly_write(batch))?;
        self.write.push(without_free - without_write);
        Ok(())
    }

    fn split(&self) -> Split {
        let [whole, index, write] = [&self.whole, &self.index, &self.write].map(Samples::median);
        Split { whole, index, write }
    }
}

fn judge(keys: u64, splits: &[Vec<Split>; 2]) -> Outcome {
    let mut outcome = Outcome::default();
    let last = SIZES.len() - 1;
    for (splits, (_, name)) in splits.iter().zip(DESIGNS) {
        let share = |size: usize, part: usize| splits[size].shares()[part];
        outcome.checks.extend([
            Check::at_least(
                format!("{name}: index share of an update at 64 B over that at 1024 B"),
                if name == "slabs" { "1.77" } else { "1.98" },
                share(0, 0) / share(last, 0),
                1.0,
            ).order(),
            Check::at_least(
                format!("{name}: write share of an update at 1024 B over that at 64 B"),
                if name == "slabs" { "2.9" } else { "3.6" },
                share(last, 2) / share(0, 2),
                1.0,
            ).order(),
            Check::at_least(
                format!("{name}: index over management at 64 B"),
                if name == "slabs" { "2.7" } else { "3.5" },
                share(0, 0) / share(0, 1),
                1.0,
            ).order(),
        ]);
    }
    let [slabs, logs] = splits;
    let ratio = |size: usize| slabs[size].whole / logs[size].whole;
    outcome.checks.push(Check::at_least(
        "an update at 64 B, time in slabs over time in logs",
        "1.12",
        ratio(0),
        1.0,
    ).order());
    outcome.checks.push(Check::at_most(
        "the same at 1024 B, over that at 64 B",
        "0.89",
        ratio(last) / ratio(0),
        1.0,
    ).order());
    outcome.size("keys", keys);
    outcome.size("batches", format!("{BATCHES} of {} updates, the maps in turn", keys / BATCH_OF));
    outcome.note = note(splits);
    for (splits, (_, name)) in splits.iter().zip(DESIGNS) {
        let part = |part: fn(&Split) -> f64| splits.iter().map(part).collect::<Vec<_>>();
        outcome.figures.push(
            Figure::new(
                &format!("Time of one update, values in {name}"),
                "value, B",
                "ns",
                FigureKind::Stacked,
            )
            .over(SIZES)
            .with("index", part(|split| split.index))
            .with("management", part(Split::management))
            .with("write", part(|split| split.write)),
        );
    }
    outcome
}

fn note(splits: &[Vec<Split>; 2]) -> String {
    let of = |splits: &[Split]| {
        let [index, management, write] = splits[0].shares().map(|share| 100.0 * share);
        format!("{index:.0}/{management:.0}/{write:.0} %")
    };
    let mut note = format!(
        "{LABEL}; by difference of batches, in processor time, medians of {BATCHES}. At 64 B \
         index/management/write: slabs {}, logs {}; the paper 60/22/18 and 67/19/14 with an index of \
         1064 ns, a tree of ten million keys, where this one is a hash table of {:.0} and {:.0} ns. A free \
         is a write-back and a fence, which such an index does not hide.",
        of(&splits[0]),
        of(&splits[1]),
        splits[0][0].index,
        splits[1][0].index,
    );
    let grows = |splits: &Vec<Split>| {
        splits.first().zip(splits.last()).is_some_and(|(first, last)| last.index > first.index)
    };
    if splits.iter().any(grows) {
        note += " The time of the index grows with the values: the key is told by a look at the old item, \
                 and items lie farther apart.";
    }
    note
}
