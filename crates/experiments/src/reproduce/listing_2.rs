//! Listing 2 of Wu on its machine A, modelled: the sweep that two rows read.

use super::error::{Error, Result};
use super::{Outcome, Run};
use terrace_machine::Preset;
use terrace_machine::kernels::{Cost, Listing2, Prestore, listing_2};

/// The paper's machine.
pub(super) const PRESET: &str = "optane-000";
/// What notes say of it.
pub(super) const LABEL: &str = "modelled server optane-000, virtual time: no instruction costs anything \
                                but its accesses";
const NODE: &str = "pmem0";

/// The preset of Wu's machine A.
pub(super) fn preset() -> Preset {
    Preset::named(PRESET).expect("a preset that is compiled in")
}

/// Elements of every size, written by some threads, with and without a clean.
pub(super) struct Sweep {
    /// How many wrote.
    pub threads: usize,
    pub plain: Vec<Cost>,
    pub cleaned: Vec<Cost>,
}

/// The sizes of elements, bytes; all of the paper's at its sizes.
pub(super) fn elements(run: &Run<'_>) -> Vec<u64> {
    run.size(vec![64, 128, 256, 512, 1024, 2048, 4096], vec![128, 256, 1024, 4096])
}

/// How much one run writes while it counts.
pub(super) fn bytes(run: &Run<'_>) -> u64 {
    run.size(256 << 20, 16 << 20)
}

/// Runs it for each of these numbers of threads.
pub(super) fn sweeps(run: &Run<'_>, threads: &[usize]) -> Result<Vec<Sweep>> {
    let (preset, elements) = (preset(), elements(run));
    let bytes = bytes(run);
    let of = |threads: usize| -> Result<Sweep> {
        let costs = |prestore: Prestore| -> Result<Vec<Cost>> {
            let one = |element: &u64| one(&preset, threads, *element, prestore, true, bytes);
            elements.iter().map(one).collect()
        };
        (run.tell)(&format!("{threads} threads, elements of {elements:?} B"));
        // At once: every run has a machine of its own.
        let (plain, cleaned) = std::thread::scope(|scope| {
            let plain = scope.spawn(|| costs(Prestore::Nothing));
            let cleaned = costs(Prestore::Clean);
            (plain.join().expect("the listing does not panic"), cleaned)
        });
        Ok(Sweep { threads, plain: plain?, cleaned: cleaned? })
    };
    threads.iter().map(|threads| of(*threads)).collect()
}

/// One run of it.
pub(super) fn one(
    preset: &Preset,
    threads: usize,
    element: u64,
    prestore: Prestore,
    reads: bool,
    bytes: u64,
) -> Result<Cost> {
    let listing = Listing2 { node: NODE, threads, element, prestore, reads, bytes };
    listing_2(preset, listing).map_err(Error::system("run Listing 2 on the modelled machine"))
}

/// Notes the sizes.
pub(super) fn sizes(outcome: &mut Outcome, run: &Run<'_>) {
    outcome.size("element bytes", format!("{:?}", elements(run)));
    outcome.size("bytes written while it counts", bytes(run));
    outcome.size("array bytes", 192_u64 << 20);
}
