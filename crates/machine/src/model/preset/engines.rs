//! `[engines]`: the copy engines of a machine, and what joins its tiles. For [`crate::fluid`] alone.

use super::{Preset, PresetError};
use serde::Deserialize;

/// Copy engines, one beside the first memory of each socket, which is a *tile* where several make up a package. Times
/// are in nanoseconds, bandwidths in 10^9 bytes a second.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineSpec {
    /// Tiles of a package.
    pub tiles: usize,
    /// Added to an access of another tile of the package.
    pub tile_ns: f64,
    /// Added to an access of another package.
    pub package_ns: f64,
    /// What one tile can read of a tile of another package.
    pub package_read_gb_s: f64,
    /// What an engine copies.
    pub gb_s: f64,
    /// Time of a memory that a written byte takes, in that of a read one.
    pub write_cost: f64,
    /// Descriptors that a work queue holds.
    pub queue: usize,
    /// Descriptors that an engine works on at a time.
    pub in_flight: usize,
    /// Time between the beginnings of two descriptors of one engine.
    pub dispatch_ns: f64,
    /// From taking a descriptor to its first bytes.
    pub start_ns: f64,
    /// From its last bytes until whoever polls has seen its end.
    pub finish_ns: f64,
    /// Reading the list of a batch.
    pub fetch_ns: f64,
    /// The thread's work for a submission, up to the answer of the queue.
    pub submit_ns: f64,
    /// The thread's work for each descriptor of a batch.
    pub add_ns: f64,
    /// From a refusal by a full queue to the next try.
    pub retry_ns: f64,
    /// The thread's work for an access to the offloading cache, besides a submission.
    pub access_ns: f64,
}

/// Descriptors that a queue, and an engine, may have.
const QUEUE_MAX: usize = 1 << 16;
const RATE: &str = "more than 0";
const TIME: &str = "0 to 1e9, in nanoseconds";

pub(super) fn check(preset: &Preset) -> Result<(), PresetError> {
    let Some(spec) = &preset.engines else { return Ok(()) };
    let refuse = |field: &str, found: String, valid: &str| {
        let name = &preset.name;
        Err(PresetError(format!("{name}: engines.{field} = {found}; it must be {valid}")))
    };
    let sockets = preset.processor.sockets;
    if spec.tiles == 0 || !sockets.is_multiple_of(spec.tiles) {
        return refuse("tiles", spec.tiles.to_string(), "a divisor of processor.sockets");
    }
    if let Some(bare) =
        (0..sockets).find(|tile| preset.node.iter().all(|node| node.socket != *tile))
    {
        let found = format!("one of socket {bare}");
        return refuse("(each)", found, "beside a memory, and that socket has none");
    }
    for (field, rate) in [
        ("package_read_gb_s", spec.package_read_gb_s),
        ("gb_s", spec.gb_s),
        ("write_cost", spec.write_cost),
    ] {
        if !(rate > 0.0 && rate.is_finite()) {
            return refuse(field, rate.to_string(), RATE);
        }
    }
    for (field, ns) in [
        ("tile_ns", spec.tile_ns),
        ("package_ns", spec.package_ns),
        ("dispatch_ns", spec.dispatch_ns),
        ("start_ns", spec.start_ns),
        ("finish_ns", spec.finish_ns),
        ("fetch_ns", spec.fetch_ns),
        ("submit_ns", spec.submit_ns),
        ("add_ns", spec.add_ns),
        ("access_ns", spec.access_ns),
    ] {
        if !(0.0..=1e9).contains(&ns) {
            return refuse(field, ns.to_string(), TIME);
        }
    }
    // Nothing would pass between two tries.
    if !(1.0..=1e9).contains(&spec.retry_ns) {
        return refuse("retry_ns", spec.retry_ns.to_string(), "1 to 1e9, in nanoseconds");
    }
    if spec.package_ns < spec.tile_ns {
        return refuse(
            "package_ns",
            spec.package_ns.to_string(),
            "at least tile_ns, which is nearer",
        );
    }
    for (field, found) in [("queue", spec.queue), ("in_flight", spec.in_flight)] {
        if found == 0 || found > QUEUE_MAX {
            return refuse(field, found.to_string(), "1 to 65536");
        }
    }
    Ok(())
}
