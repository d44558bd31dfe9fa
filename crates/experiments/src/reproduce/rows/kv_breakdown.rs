//! `kv-breakdown`: where the time of an update goes (paper 000, table 2.1).
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

use super::{Check, Figure, Form, Outcome, Result, Row, Run};
use crate::reproduce::measure::{Samples, ns_per_operation};
use crate::reproduce::stand_in::{DESIGNS, LABEL, StandIn};
use terrace_store::{MapOptions, ValueDesign};

pub(super) const ROW: Row = Row {
    id: "kv-breakdown",
    source: "000 table 2.1",
    runs_on: "native (stand-in)",
    must_show: "time split index / management / write; the index share falls with value size, order as T2.1",
    run,
};

const SIZES: [usize; 5] = [64, 128, 256, 512, 1024];
const BATCHES: usize = 5;

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
    let mut splits: [Vec<Split>; 2] = Default::default();
    for value_bytes in SIZES {
        for (splits, (design, name)) in splits.iter_mut().zip(DESIGNS) {
            (run.tell)(&format!("{name}, values of {value_bytes} B"));
            // Not more bytes than ten million values of 256 B, which fit this kind of machine.
            let keys = keys.min((10_000_000 * 320) / (value_bytes as u64 + 64)).max(keys / 10);
            splits.push(split(design, keys, value_bytes)?);
        }
    }
    Ok(judge(keys, &splits))
}

fn split(design: ValueDesign, keys: u64, value_bytes: usize) -> Result<Split> {
    let options = StandIn::options(design);
    let [whole, index, _] = costs(keys, value_bytes, options.clone())?;
    let unfreed = MapOptions { deferred_frees: usize::MAX, ..options };
    let [without_free, _, without_write] = costs(keys, value_bytes, unfreed)?;
    Ok(Split { whole, index, write: without_free - without_write })
}

/// Nanoseconds of an update, of one that changes nothing, and of one that hardly writes.
fn costs(keys: u64, value_bytes: usize, options: MapOptions) -> Result<[f64; 3]> {
    let mut map = StandIn::new(keys * 8 / 5, value_bytes, options)?;
    map.fill(keys)?;
    let batch = keys / 30;
    let mut samples = <[Samples; 3]>::default();
    // What the first updates bring in is brought in.
    map.update(batch)?;
    map.update_but_hardly_write(batch)?;
    for _ in 0..BATCHES {
        samples[0].push(ns_per_operation(batch, || map.update(batch))?);
        samples[1].push(ns_per_operation(batch, || map.find_for_update(batch))?);
        samples[2].push(ns_per_operation(batch, || map.update_but_hardly_write(batch))?);
    }
    Ok(samples.each_ref().map(Samples::median))
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
            ),
            Check::at_least(
                format!("{name}: write share of an update at 1024 B over that at 64 B"),
                if name == "slabs" { "2.9" } else { "3.6" },
                share(last, 2) / share(0, 2),
                1.0,
            ),
            Check::at_least(
                format!("{name}: index over management at 64 B"),
                if name == "slabs" { "2.7" } else { "3.5" },
                share(0, 0) / share(0, 1),
                1.0,
            ),
        ]);
    }
    let [slabs, logs] = splits;
    let ratio = |size: usize| slabs[size].whole / logs[size].whole;
    outcome.checks.push(Check::at_least(
        "an update at 64 B, time in slabs over time in logs",
        "1.12",
        ratio(0),
        1.0,
    ));
    outcome.checks.push(Check::at_most(
        "the same at 1024 B, over that at 64 B",
        "0.89",
        ratio(last) / ratio(0),
        1.0,
    ));
    outcome.size("keys", keys);
    outcome.size("batches", format!("{BATCHES} of {} updates", keys / 30));
    outcome.note = note(splits);
    for (splits, (_, name)) in splits.iter().zip(DESIGNS) {
        let part = |part: fn(&Split) -> f64| splits.iter().map(part).collect::<Vec<_>>();
        outcome.figures.push(
            Figure::new(
                &format!("Time of one update, values in {name}"),
                "value, B",
                "ns",
                Form::Stacked,
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
    format!(
        "{LABEL}; by difference of batches, in processor time. At 64 B index/management/write: slabs \
         {}, logs {}; the paper 60/22/18 and 67/19/14 with an index of 1064 ns, a tree of ten million \
         keys, where this one is a hash table of about one cache miss: its share is \
         smaller, and it grows with the values, because the key is told by a look at the old item and \
         items lie farther apart. A free is a write-back and a fence, which such an index does not hide.",
        of(&splits[0]),
        of(&splits[1])
    )
}
