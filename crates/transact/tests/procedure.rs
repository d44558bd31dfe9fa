//! Procedures: what their calls write is atomic with what they read and computed on a device.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_store::{Durability, Error, Kind, Map, MapOptions, Moments};
use terrace_transact::device::{Device, Kernel};
use terrace_transact::{Procedure, ProcedureError};

static SUM: Kernel = Kernel::new("sum", |launch| {
    let (numbers, sum) = (launch.read::<u64>(0), launch.write::<u64>(0));
    sum[0] = numbers.iter().sum();
});

/// Fails for what is odd.
static HALVE: Kernel = Kernel::new("halve", |launch| {
    let number = &mut launch.write::<u64>(0)[0];
    assert!(*number % 2 == 0, "{number} is odd");
    *number /= 2;
});

struct Opened {
    _dir: tempfile::TempDir,
    moments: Arc<Moments>,
    map: Map,
}

fn opened() -> Opened {
    let dir = tempfile::tempdir().expect("a directory");
    let options =
        MapOptions { kind: Kind::Ordered, durability: Durability::None, ..MapOptions::default() };
    let moments = Arc::clone(&options.moments);
    let map = Map::open(dir.path(), options).expect("a map");
    Opened { _dir: dir, moments, map }
}

fn devices() -> [Device; 2] {
    [Device::here(1 << 20), Device::workers(2, 1 << 20).expect("workers")]
}

fn number(value: Option<Vec<u8>>) -> u64 {
    value.map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
}

/// Each call adds up all records of a range on the device and appends the sum plus one: whoever misses a record of
/// another appends a sum that is there already.
#[test]
fn calls_of_many_threads_are_as_if_they_came_one_by_one() {
    for device in devices() {
        let opened = opened();
        let map = opened.map.clone();
        let append = Procedure::new("append", opened.moments, device, move |call, _: &()| {
            call.certify_reads();
            let found = call.snapshot(&map, &[], &[("row ".."row!").into()])?;
            let numbers: Vec<u64> =
                found.iter().map(|(_, _, value)| number(Some(value.to_vec()))).collect();
            let mut sum = [0u64];
            call.device(|block| {
                let (numbers, total) = (block.copy_in(&numbers)?, block.alloc::<u64>(1)?);
                block.launch(&SUM, &[numbers.into()], &[total.into()])?;
                block.copy_out(total, &mut sum)
            })?;
            let row = format!("row {:02}", numbers.len());
            call.put(&map, row.as_bytes(), &(sum[0] + 1).to_le_bytes())?;
            Ok::<_, ProcedureError>(numbers.len())
        });
        const THREADS: u64 = 3;
        const CALLS: u64 = 10;
        std::thread::scope(|scope| {
            let call = || (0..CALLS).for_each(|_| assert!(append.call(&()).is_ok()));
            (0..THREADS).for_each(|_| drop(scope.spawn(call)));
        });
        for row in 0..THREADS * CALLS {
            let value = opened.map.get(format!("row {row:02}").as_bytes()).expect("read");
            assert_eq!(
                number(value),
                1 << row,
                "row {row} is the sum of those before it, plus one"
            );
        }
        let stats = append.stats();
        assert_eq!((stats.calls, stats.failed), (THREADS * CALLS, 0));
        assert_eq!(stats.device_blocks, stats.runs, "one synchronisation each time that it ran");
        assert_eq!(stats.copies, 2 * stats.runs);
        assert!(stats.runs >= stats.calls && stats.on_device_ns > 0, "{stats:?}");
    }
}

#[test]
fn blocks_alternate_and_a_failed_one_leaves_nothing() {
    for device in devices() {
        let opened = opened();
        let map = opened.map.clone();
        // Halves a value twice, each time on the device, and writes each half.
        let quarter =
            Procedure::new("quarter", opened.moments, device, move |call, value: &u64| {
                let mut half = [*value];
                for key in [b"half", b"four"] {
                    let before = half;
                    call.device(|block| {
                        let number = block.copy_in(&before)?;
                        block.launch(&HALVE, &[], &[number.into()])?;
                        block.copy_out(number, &mut half)
                    })?;
                    call.put(&map, key, &half[0].to_le_bytes())?;
                    assert_eq!(number(call.get(&map, key)?), half[0], "its own write");
                }
                Ok::<_, ProcedureError>(half[0])
            });
        let error = quarter.call(&6).expect_err("3 is odd").to_string();
        assert!(error.contains("`halve` failed: 3 is odd"), "{error}");
        assert!(opened.map.is_empty(), "the first half was not written either");
        assert_eq!(quarter.call(&20).expect("quartered"), 5);
        let read = |key: &[u8]| number(opened.map.get(key).expect("read"));
        assert_eq!((read(b"half"), read(b"four")), (10, 5));
        assert_eq!((quarter.stats().calls, quarter.stats().failed), (2, 1));
        assert_eq!(quarter.stats().device_blocks, 3, "the one that failed is not among them");
    }
}

#[test]
fn others_that_come_first_have_the_whole_call_run_again() {
    for device in devices() {
        let opened = opened();
        let (map, runs) = (opened.map.clone(), AtomicU64::new(0));
        let other = opened.map.clone();
        let seen = Procedure::new("seen", opened.moments, device, move |call, _: &()| {
            let before = number(call.get(&map, b"count")?);
            let mut back = [0u64];
            call.device(|block| {
                let number = block.copy_in(&[2 * before])?;
                block.launch(&HALVE, &[], &[number.into()])?;
                block.copy_out(number, &mut back)
            })?;
            if runs.fetch_add(1, Ordering::Relaxed) < 2 {
                other.put(b"count", &41u64.to_le_bytes())?;
            }
            call.put(&map, b"count", &(back[0] + 1).to_le_bytes())?;
            Ok::<_, ProcedureError>(())
        });
        let once = seen.try_call(&());
        assert!(matches!(once, Err(ProcedureError::Store(Error::Conflict { .. }))), "{once:?}");
        assert_eq!(number(opened.map.get(b"count").expect("read")), 41);
        seen.call(&()).expect("the second time");
        assert_eq!(number(opened.map.get(b"count").expect("read")), 42);
        let stats = seen.stats();
        assert_eq!((stats.calls, stats.failed, stats.runs, stats.device_blocks), (2, 1, 3, 3));
    }
}
