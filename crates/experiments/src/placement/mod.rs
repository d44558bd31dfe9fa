//! Two structures of a small database on the memories of two sockets (Gugnani, case study 1).
//!
//! In place of MongoDB's persistent memory engine: an index, a B+-tree of order 6 whose
//! nodes are padded to 256 bytes, and a record store, numbered records of about 4 KB in lists. Each is
//! a pool of its own, changed by sections under an undo log. It runs once, alone, on memories that
//! [record](terrace_machine::Recorded) what they are asked; the recording is [`play`]ed to a modelled
//! machine with as many threads as it has cores, each structure on whatever node it is put.
//!
//! What that leaves out: threads never wait for each other's locks; instructions other than accesses to
//! the two structures cost nothing but what the server in front of them is said to take; a thread's log is
//! its own, as with libpmemobj's lanes, though a pool has one.

mod engine;
mod play;

pub use engine::{Kind, Operation, Recording, Structure, TwoPoolStore};
pub use play::{Layout, Played, play};

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_machine::{Preset, What};

    const NEAR: &str = "pmem0";
    const FAR: &str = "pmem1";

    fn recording(insert_percent: u64) -> Recording {
        let engine = TwoPoolStore::filled(1000, 400).expect("an engine");
        engine.record(insert_percent, 400, 7).expect("operations")
    }

    fn preset() -> Preset {
        Preset::named("optane-001").expect("built in").with_caches_divided(512)
    }

    #[test]
    fn reads_touch_both_structures_and_write_neither() {
        let recording = recording(50);
        let of = |kind| recording.operations.iter().filter(move |operation| operation.kind == kind);
        assert!(of(Kind::Read).count() > 150 && of(Kind::Insert).count() > 150);
        for read in of(Kind::Read) {
            let touched = |place| read.accesses.iter().any(|access| access.place == place);
            assert!(touched(0) && touched(1));
            let is_read = |what| matches!(what, What::Read | What::Load);
            assert!(read.accesses.iter().all(|access| is_read(access.what)));
        }
        assert!(recording.stored_in_pieces(Structure::Records, 2048) > 0.9);
        assert_eq!(recording.stored_in_pieces(Structure::Index, 2048), 0.0);
    }

    #[test]
    fn far_memory_is_slower_only_by_its_link() {
        let recording = recording(10);
        let per_second = |preset: &Preset, layout| {
            play(preset, &recording, layout, 4, 0.0).expect("played").per_second()
        };
        let with = preset();
        let (near, far) = (per_second(&with, [NEAR; 2]), per_second(&with, [FAR; 2]));
        assert!(far < 0.95 * near, "{far} of {near}");
        let without = Preset { link: None, ..preset() };
        let (near, far) = (per_second(&without, [NEAR; 2]), per_second(&without, [FAR; 2]));
        assert!(
            (far / near - 1.0).abs() < 0.02,
            "{far} and {near}: without the link nothing is far"
        );
    }

    #[test]
    fn a_servers_time_is_part_of_each_operation() {
        let recording = recording(0);
        let played = play(&preset(), &recording, [NEAR; 2], 2, 1e6).expect("played");
        assert_eq!(played.reads_ns.len(), 300, "a quarter warms up");
        assert!(played.reads_ns[0] > 1e6 && played.inserts_ns.is_empty());
        assert!((1900.0..2000.0).contains(&played.per_second()), "{}", played.per_second());
    }
}
