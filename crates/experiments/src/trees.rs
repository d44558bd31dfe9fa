//! The B+-trees of Ni, chapter 5, measured: on its Optane server, modelled, and counted.
//!
//! The whole tree runs on the modelled memory, in virtual time. Its keys and values have 16 bytes and
//! come without order, as the paper's. Fewer of them than its 160 million: the caches beyond what a core
//! works on are smaller by as much, so that the same share of the tree is in them.
//!
//! Instructions take no time on the model but for the words that they load and store.

use std::io;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;
use terrace_index::Reserved;
use terrace_index::tree::{Change, Direction, Sixteen, Tree, TreeOptions};
use terrace_machine::model::NodeCounts;
use terrace_machine::{Counted, Counts, Machine, Modelled, Preset};
use terrace_memory::{Backing, Budget, Domain, Memory, Region};

/// The paper's machine, and its entries.
const PRESET: &str = "optane-004";
const PAPER_ENTRIES: u64 = 160_000_000;
/// Seed of the modelled caches.
const SEED: u64 = 1;
/// Lines of a core's own caches, at the least: what one operation works on.
const OWN_BYTES: [u64; 2] = [4096, 8192];
/// Address space for an entry: leaves that are half full, and the nodes above.
const BYTES_AN_ENTRY: u64 = 128;

/// The persistent memory and the DRAM of the threads' socket.
pub const PMEM: &str = "pmem0";
/// See [`PMEM`].
pub const DRAM: &str = "dram0";

/// The key of this number: all differ, and come without order.
pub fn key(number: u64) -> [u8; 16] {
    // SplitMix64's mixing, a bijection.
    let mut z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (u128::from(z ^ z >> 31) << 64).to_be_bytes()
}

/// Adds the entry of this number.
///
/// # Errors
/// Those of the tree.
pub fn insert<L: Memory, N: Memory>(tree: &Tree<L, N>, number: u64) -> io::Result<()> {
    tree.update(&key(number), &Sixteen, |_| Change::Set([number + 1, number])).map(drop)
}

fn budget() -> Arc<Budget> {
    Arc::new(Budget::new(u64::MAX >> 1))
}

/// The paper's server with caches for so many entries.
fn server(entries: u64) -> Preset {
    let mut preset = Preset::named(PRESET).expect("a preset that is compiled in");
    let divisor = (PAPER_ENTRIES / entries).max(1);
    let whole = preset.clone();
    preset = preset.with_caches_divided(divisor);
    for ((cache, before), least) in preset.cache.iter_mut().zip(&whole.cache).zip(OWN_BYTES) {
        cache.bytes = cache.bytes.max(least.min(before.bytes));
    }
    preset
}

/// A tree on the modelled server, filled in no time.
#[derive(Debug)]
pub struct OnModel {
    machine: Machine,
    tree: Tree<Modelled, Modelled>,
    entries: u64,
    /// Whether the tree groups flushes, since the last inserts.
    pub is_grouping: bool,
}

/// What a run came to.
#[derive(Clone, Copy, Debug)]
pub struct Ran {
    /// Operations of all threads.
    pub operations: u64,
    /// Threads.
    pub threads: usize,
    /// Virtual time.
    pub time: Duration,
    /// What went in and out of the persistent memory.
    pub pmem: NodeCounts,
}

impl Ran {
    /// Nanoseconds of a thread for an operation.
    pub fn ns(&self) -> f64 {
        self.time.as_nanos() as f64 * self.threads as f64 / self.operations as f64
    }

    /// Million operations a second.
    pub fn million_s(&self) -> f64 {
        self.operations as f64 / 1e6 / self.time.as_secs_f64()
    }
}

/// What threads do: called with a number that no other call has.
type Operation<'a> = &'a dyn Fn(&Tree<Modelled, Modelled>, u64) -> io::Result<()>;

impl OnModel {
    /// A tree of so many entries, its leaves and its inner nodes on these memories, for as many threads
    /// of one socket.
    ///
    /// # Errors
    /// The system has no memory for it.
    pub fn new(
        options: &TreeOptions,
        [leaves, inner]: [&str; 2],
        entries: u64,
        threads: usize,
    ) -> io::Result<OnModel> {
        let preset = server(entries);
        let cores = preset.processor.cores_per_socket;
        let pins: Vec<usize> = (0..threads).map(|thread| thread % cores).collect();
        let machine = Machine::pinned(&preset, &pins, SEED);
        let reserve = |node| -> io::Result<Reserved<Modelled>> {
            let memory = machine.memory(node, entries * 2 * BYTES_AN_ENTRY, Domain::Adr)?;
            Ok(Reserved { memory, commit: Box::new(|_, _| Ok(())), start: 0 })
        };
        let reserved = (reserve(leaves)?, reserve(inner)?);
        let tree = machine.free_of_charge(|| {
            let tree = Tree::over(options, reserved.0, reserved.1, &budget())?;
            (0..entries).try_for_each(|number| insert(&tree, number))?;
            Ok::<_, io::Error>(tree)
        })?;
        Ok(OnModel { machine, tree, entries, is_grouping: false })
    }

    fn run(&self, threads: usize, each: u64, operation: Operation<'_>) -> io::Result<Ran> {
        let before = self.machine.node_counts(PMEM).map_err(io::Error::other)?;
        let failed = std::cell::RefCell::new(None);
        let time = {
            let failed = &failed;
            let mut steps: Vec<_> = (0..threads as u64)
                .map(|thread| {
                    let mut numbers = 0..each;
                    move || {
                        let Some(number) = numbers.next() else { return false };
                        match operation(&self.tree, number * threads as u64 + thread) {
                            Ok(()) => true,
                            Err(error) => {
                                failed.borrow_mut().get_or_insert(error);
                                false
                            }
                        }
                    }
                })
                .collect();
            self.machine.run_steps(&mut steps)
        };
        failed.into_inner().map_or(Ok(()), Err)?;
        let after = self.machine.node_counts(PMEM).map_err(io::Error::other)?;
        let operations = each * threads as u64;
        Ok(Ran { operations, threads, time, pmem: after - before })
    }

    /// Each thread inserts so many new entries. Half as many before are not measured: caches fill.
    ///
    /// # Errors
    /// Those of the tree.
    pub fn inserts(&mut self, threads: usize, each: u64) -> io::Result<Ran> {
        let mut ran = None;
        for each in [each / 2, each] {
            let from = self.entries;
            let done = self.run(threads, each, &|tree, number| insert(tree, from + number))?;
            self.entries += done.operations;
            self.is_grouping = self.tree.went_by(done.time);
            ran = Some(done);
        }
        Ok(ran.expect("two runs"))
    }

    /// Each thread looks up so many entries, `batch` at once.
    ///
    /// # Errors
    /// Those of the tree.
    pub fn gets(&self, threads: usize, each: u64, batch: usize) -> io::Result<Ran> {
        let entries = self.entries;
        let get = move |tree: &Tree<Modelled, Modelled>, number: u64| {
            let wanted: Vec<_> = (0..batch as u64)
                .map(|at| key(drawn(number * batch as u64 + at, entries)))
                .collect();
            if let [wanted] = &wanted[..] {
                assert!(tree.get(wanted, &Sixteen).is_some(), "every key is there");
            } else {
                let mut values = vec![None; batch];
                tree.multi_get(&wanted, &Sixteen, &mut values);
                assert!(values.iter().all(Option::is_some), "every key is there");
            }
            Ok(())
        };
        self.run(threads, each / 4, &get)?;
        let ran = self.run(threads, each, &get)?;
        Ok(Ran { operations: ran.operations * batch as u64, ..ran })
    }

    /// Each thread visits so many times `count` entries.
    ///
    /// # Errors
    /// Those of the tree.
    pub fn ranges(&self, threads: usize, each: u64, count: usize) -> io::Result<Ran> {
        let entries = self.entries;
        self.run(threads, each, &|tree, number| {
            let from = key(drawn(number, entries));
            tree.range(Bound::Included(&from), Direction::Up, count, &Sixteen, |_| ());
            Ok(())
        })
    }
}

/// Numbers below `entries` in another order than that of the inserts.
pub fn drawn(number: u64, entries: u64) -> u64 {
    number.wrapping_mul(0xda94_2042_e4dd_58b5) % entries
}

/// Write-backs and fences of an insert into the leaves of a tree of so many entries, on average of as
/// many more.
///
/// # Errors
/// The system has no memory for it.
pub fn counted_insert(options: &TreeOptions, entries: u64) -> io::Result<(f64, f64)> {
    let reserve = || -> io::Result<Reserved<Counted>> {
        let region = Region::reserve(entries * 2 * BYTES_AN_ENTRY, Backing::Anonymous)?;
        let region = region.declared(Domain::Adr);
        let memory = Counted::new(region.native());
        Ok(Reserved { memory, commit: Box::new(move |at, n| region.commit(at, n)), start: 0 })
    };
    let leaves = reserve()?;
    let counted = leaves.memory.clone();
    let tree = Tree::over(options, leaves, reserve()?, &budget())?;
    (0..entries).try_for_each(|number| insert(&tree, number))?;
    let (done, counts) =
        counted.measured(|| (entries..2 * entries).try_for_each(|number| insert(&tree, number)));
    done?;
    let Counts { write_backs, fences, .. } = counts;
    Ok((write_backs as f64 / entries as f64, fences as f64 / entries as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_index::tree::Form;

    #[test]
    fn a_run_in_virtual_time_is_the_same_each_time_and_more_threads_do_more() {
        let ran = |threads| {
            let options = TreeOptions::of(Form::FastFair, 256);
            let mut tree = OnModel::new(&options, [PMEM, DRAM], 4_000, 4).expect("a tree");
            assert_eq!(tree.machine.elapsed(), Duration::ZERO, "filled in no time");
            tree.inserts(threads, 200).expect("room")
        };
        let [once, again, alone] = [4, 4, 1].map(ran);
        assert_eq!((once.time, once.pmem), (again.time, again.pmem));
        assert!(once.million_s() > 1.5 * alone.million_s(), "{} {}", once.ns(), alone.ns());
    }
}
