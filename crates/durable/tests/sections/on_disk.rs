//! Pools on a disk that fails: an error leaves the old state, which is still read where it is durable; nothing more is
//! taken; and the file opens again with every section that was acknowledged.

use std::path::Path;
use terrace_durable::sections::{EngineKind, Error, Offset, Options, Pool, Root};
use terrace_durable::{Access, Medium, MediumSpec, plain};
use terrace_memory::{Domain, Native};

plain! {
    struct Count {
        sections: u64,
        padding: [u64; 20],
    }
}
const COUNT: Root<Count> = Root::new(0);
const HEAP_BYTES: u64 = 16 << 12;

fn options() -> Options {
    Options::new(EngineKind::Redo).log_bytes(4096)
}

fn medium(path: &Path, access: Access) -> Medium {
    let spec = MediumSpec {
        path: path.to_path_buf(),
        domain: Domain::PageCache,
        dax: false,
        capacity_bytes: 2 << 20,
        access,
    };
    Medium::open(&spec).expect("a file")
}

fn create(path: &Path) {
    let shape = options().disk_shape(HEAP_BYTES).expect("a shape");
    drop(Pool::create_on_disk(medium(path, Access::Write), shape, &options()).expect("a pool"));
}

fn open(path: &Path) -> Pool<Native> {
    let mut medium = medium(path, Access::Write);
    medium.read_all().expect("read");
    Pool::open_on_disk(medium, &options()).expect("a failure is no damage")
}

/// One section more, which writes all of the object.
fn count(pool: &Pool<Native>) -> Result<u64, Error> {
    pool.section(|tx| {
        let mut at = tx.root(COUNT)?;
        if at.is_null() {
            at = tx.create(&Count { sections: 0, padding: [0; 20] })?;
            tx.set_root(COUNT, at)?;
        }
        let sections = tx.get(at)?.sections + 1;
        tx.set(at, Count { sections, padding: [sections; 20] })?;
        Ok(sections)
    })
}

fn counted(pool: &Pool<Native>) -> Result<u64, Error> {
    pool.section(|tx| {
        let at = tx.root(COUNT)?;
        if at == Offset::NULL {
            return Ok(0);
        }
        let Count { sections, padding } = tx.get(at)?;
        assert_eq!(padding, [sections; 20], "whole");
        Ok(sections)
    })
}

/// The write or sync after each number of them fails: among them those of records and of checkpoints.
#[test]
fn a_failed_write_leaves_the_old_state_and_loses_nothing_acknowledged() {
    let mut failures_with_reads = 0;
    for writes in 0..40 {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("pool-journal");
        create(&path);
        let mut broken = medium(&path, Access::Write);
        broken.read_all().expect("read");
        // Opening it writes a mark, twice, and syncs.
        broken.inject_write_fault(8 + writes);
        let Ok(pool) = Pool::open_on_disk(broken, &options()) else { continue };
        let mut acknowledged = 0;
        let failed = loop {
            match count(&pool) {
                Ok(sections) => acknowledged = sections,
                Err(error) => break error,
            }
            assert!(acknowledged < 1000, "no write failed");
        };
        assert!(matches!(failed, Error::Disk { .. }), "{failed:?}");
        assert!(matches!(count(&pool), Err(Error::Disk { .. })), "it takes no more");
        match counted(&pool) {
            Ok(sections) => {
                failures_with_reads += 1;
                assert_eq!(sections, acknowledged, "the old state");
            }
            // It was committed, and whether it is durable nobody knows: so nobody is told.
            Err(error) => assert!(matches!(error, Error::Disk { .. }), "{error:?}"),
        }
        drop(pool);
        let there = counted(&open(&path)).expect("read");
        assert!((acknowledged..=acknowledged + 1).contains(&there), "{acknowledged}: {there}");
    }
    assert!(failures_with_reads > 5, "{failures_with_reads}");
}
