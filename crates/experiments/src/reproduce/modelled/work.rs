//! Work that is no access: what instructions of the engine take, which cost nothing on a model but what it is told
//! of.
//!
//! Each operation is charged the processor time that the same operation takes in a map of 200 values of 64 bytes,
//! all in the nearest caches, without write-backs: what the example `processor_work` prints, in the quickest of its
//! runs. Each design of values and each kind of map bears its own; an index that is kept, and sections, bear no
//! more, nor does what [`terrace_store::Flush::Auto`] remembers (a word for each write, in a table of 128 KiB).
//! They are figures of the engine's code: no preset has them, and no row chooses others. The modelled server's
//! processors are slower than the one they are of: there instructions weigh a little more, and the memory less.

use terrace_store::{Kind, MapOptions, ValueDesign};

/// What an operation did, beside its accesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Work {
    /// Items written, or moved.
    pub writes: u64,
    /// Items looked up.
    pub reads: u64,
    /// Items that a scan visited.
    pub scanned: u64,
}

impl Work {
    pub const WRITE: Work = Work { writes: 1, reads: 0, scanned: 0 };
    pub const READ: Work = Work { writes: 0, reads: 1, scanned: 0 };

    pub fn scan(scanned: u64) -> Work {
        Work { scanned, ..Work::default() }
    }
}

/// Processor time of a write, of a lookup, and of a record of a scan of 50, the way to the first in it, ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Costs {
    write_ns: f64,
    read_ns: f64,
    scanned_ns: f64,
}

/// Of an AMD EPYC (Zen 4).
const HASH_LOGS: Costs = Costs { write_ns: 185.0, read_ns: 47.0, scanned_ns: 0.0 };
const HASH_SLABS: Costs = Costs { write_ns: 209.0, read_ns: 47.0, scanned_ns: 0.0 };
const ORDERED_LOGS: Costs = Costs { write_ns: 193.0, read_ns: 65.0, scanned_ns: 13.0 };
const ORDERED_SLABS: Costs = Costs { write_ns: 237.0, read_ns: 65.0, scanned_ns: 13.0 };

impl Costs {
    pub fn of(options: &MapOptions) -> Costs {
        match (options.kind, options.values) {
            (Kind::Hash, ValueDesign::Slab) => HASH_SLABS,
            (Kind::Hash, ValueDesign::Log | ValueDesign::Auto) => HASH_LOGS,
            (Kind::Ordered, ValueDesign::Slab) => ORDERED_SLABS,
            (Kind::Ordered, ValueDesign::Log | ValueDesign::Auto) => ORDERED_LOGS,
        }
    }

    /// Processor time of what was done, ns.
    pub fn ns(&self, work: Work) -> f64 {
        self.write_ns * work.writes as f64
            + self.read_ns * work.reads as f64
            + self.scanned_ns * work.scanned as f64
    }
}

/// What notes say of ordered maps.
pub(in super::super) fn label_of_ordered() -> String {
    let all = |costs: Costs| {
        format!("{:.0}, {:.0} and {:.0}", costs.write_ns, costs.read_ns, costs.scanned_ns)
    };
    format!(
        "in ordered maps a write, a read and a record of a scan {} ns in slabs, {} in logs",
        all(ORDERED_SLABS),
        all(ORDERED_LOGS)
    )
}

/// What notes say of it.
pub(in super::super) fn label() -> String {
    let both = |costs: Costs| format!("{:.0} and {:.0}", costs.write_ns, costs.read_ns);
    format!(
        "modelled server {}, virtual time; beside its accesses a write and a read are charged {} ns of instructions in \
         slabs, {} in logs",
        super::PRESET,
        both(HASH_SLABS),
        both(HASH_LOGS),
    )
}
