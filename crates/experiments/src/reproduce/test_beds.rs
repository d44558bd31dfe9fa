//! The test beds of the persistent-memory rows: Gugnani's Optane server, modelled, and this machine.

use super::error::{Error, Result};
use terrace_advise::idiosyncrasies::{Settings, Sweep};
use terrace_machine::Preset;
use terrace_machine::model::Ablation;
use terrace_machine::model::calibrate::Generator;
use terrace_machine::test_bed::{Here, TestBed};
use terrace_memory::Topology;

/// What notes say of the model.
pub(super) const MODEL: &str = "Model: preset optane-001 in virtual time, with the work of the paper's load \
                                generator taken from its figures for the smallest pieces on DRAM.";
/// Its memories.
pub(super) const PMEM: &str = "pmem0";
pub(super) const DRAM: &str = "dram0";
pub(super) const REMOTE_PMEM: &str = "pmem1";
pub(super) const REMOTE_DRAM: &str = "dram1";

/// Parts of the model to leave out: each loses the effect that it is there for.
pub(super) const NO_COMBINING: Ablation =
    Ablation { combining: true, prefetching: false, queueing: false };
pub(super) const NO_PREFETCHING: Ablation =
    Ablation { combining: false, prefetching: true, queueing: false };
pub(super) const NO_QUEUEING: Ablation =
    Ablation { combining: false, prefetching: false, queueing: true };

/// The server of Gugnani, its caches divided by `divisor`, and the work of the paper's generators on it.
pub(super) fn optane(divisor: u64) -> Result<(Preset, Generator)> {
    let preset = Preset::named("optane-001")
        .map_err(std::io::Error::other)
        .map_err(Error::system("read the preset optane-001"))?
        .with_caches_divided(divisor);
    let generator = Generator::of_gugnani(&preset).map_err(measured())?;
    Ok((preset, generator))
}

/// This machine, and the name of its first memory.
pub(super) fn here() -> Result<(Here, String)> {
    let topology = Topology::read()
        .map_err(std::io::Error::other)
        .map_err(Error::system("read this machine's topology"))?;
    let here = Here::new(topology).map_err(Error::system("ask which processors may be used"))?;
    let node = here.nodes().first().cloned().unwrap_or_default();
    Ok((here, node))
}

/// A sweep at the paper's sizes or its corners.
pub(super) fn sweep<G: TestBed>(test_bed: &G, generator: Generator, full: bool) -> Sweep<'_, G> {
    let settings = if full { Settings::paper() } else { Settings::brief() };
    Sweep::new(test_bed, Settings { generator, ..settings })
}

/// The error of a measurement that the machine refused.
pub(super) fn measured() -> impl FnOnce(std::io::Error) -> Error {
    Error::system("measure a memory")
}
