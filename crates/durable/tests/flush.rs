//! When items are written back, counted: write-backs and cleans of whole runs of updates.

use std::sync::Arc;
use terrace_durable::item::NewItem;
use terrace_durable::logs::Logs;
use terrace_durable::sections::Changes;
use terrace_durable::slabs::Slabs;
use terrace_durable::values::Room;
use terrace_durable::{Flush, Medium, Values, Writing};
use terrace_machine::Counted;
use terrace_memory::profile::Keeping;
use terrace_memory::{Backing, Budget, Domain, Native, Region};

const BYTES: u64 = 64 << 20;
/// Each twice: in logs, which nobody collects here, and in slabs.
const IN_LOGS: u64 = 5_000;
const IN_SLABS: u64 = 24_000;

type Media = Counted<Native>;

fn memory(domain: Domain) -> (Region, Media) {
    let region = Region::reserve(BYTES, Backing::Anonymous).expect("memory").declared(domain);
    region.commit(0, BYTES).expect("memory");
    let memory = Counted::new(region.native());
    (region, memory)
}

/// Lines written back or cleaned by each of the later half of the updates, of items of `value_bytes`; `keys` of them
/// in turn.
fn each(values: &impl Values, memory: &Media, updates: u64, keys: u64, value_bytes: usize) -> f64 {
    each_of(values, memory, updates, [keys, 0], value_bytes)
}

/// The same where each second update is of one of `hot` other keys in turn, if there are any.
fn each_of(
    values: &impl Values,
    memory: &Media,
    updates: u64,
    [keys, hot]: [u64; 2],
    value_bytes: usize,
) -> f64 {
    let write_backs = || memory.totals().write_backs + memory.totals().cleans;
    let value = vec![7; value_bytes];
    let mut locations = vec![None; (keys + hot) as usize];
    let mut update = |number: u64| {
        let key = match (number / 2, number % 2) {
            (half, 1) if hot > 0 => keys + half % hot,
            (half, 0) if hot > 0 => half % keys,
            _ => number % keys,
        } as usize;
        let name = (key as u64).to_be_bytes();
        let new = NewItem {
            key: &name,
            value: &value,
            version: number + 1,
            expires_at_ms: None,
            tombstone: false,
        };
        let mut room = values.room(1, new.item_bytes(), Room::Ordinary).expect("room");
        if !room.fits(new.item_bytes()) {
            drop(room);
            room = values.room(1, new.item_bytes(), Room::Ordinary).expect("room");
            assert!(room.fits(new.item_bytes()));
        }
        if let Some(old) = locations[key] {
            room.supersedes(old, new.item_bytes());
        }
        let location = room.write(&new, &mut Changes::new());
        if let Some(old) = locations[key].replace(location)
            && let Some(released) = room.supersede(old, new.item_bytes(), &mut Changes::new())
        {
            values.release(released);
        }
    };
    (0..updates).for_each(&mut update);
    let before = write_backs();
    (updates..2 * updates).for_each(&mut update);
    (write_backs() - before) as f64 / updates as f64
}

fn in_logs(flush: Flush, domain: Domain, keys: u64, value_bytes: usize) -> f64 {
    in_logs_by(None, flush, domain, keys, value_bytes)
}

fn in_slabs(flush: Flush, domain: Domain, keys: u64, value_bytes: usize) -> f64 {
    in_slabs_by(None, flush, domain, keys, value_bytes)
}

/// What was measured of the memory.
type Measured = Option<Arc<Keeping>>;

fn in_logs_by(by: Measured, flush: Flush, domain: Domain, keys: u64, value_bytes: usize) -> f64 {
    let (_region, memory) = memory(domain);
    let budget = Arc::new(Budget::new(1 << 30));
    let logs = Logs::open(Medium::over(memory, true, 1), 1, &budget).expect("logs");
    logs.recover(1, &|_, _, _| ()).expect("recovered");
    let logs = logs.flushing(flush).by_measured(by.as_ref());
    each(&logs, logs.medium().memory(), IN_LOGS, keys, value_bytes)
}

fn in_slabs_by(by: Measured, flush: Flush, domain: Domain, keys: u64, value_bytes: usize) -> f64 {
    let (_region, memory) = memory(domain);
    let budget = Arc::new(Budget::new(1 << 30));
    let slabs = Slabs::open(Medium::over(memory, true, 1), 1, &budget).expect("slabs");
    slabs.recover(1, &|_, _, _| ()).expect("recovered");
    let slabs = slabs.flushing(flush).by_measured(by.as_ref());
    each(&slabs, slabs.medium().memory(), IN_SLABS.max(keys), keys, value_bytes)
}

const FEW: u64 = 20;
const MANY: u64 = 16_000;
/// Small items, more than are remembered.
const MANY_SMALL: u64 = 100_000;
const SMALL: usize = 64;
const LARGE: usize = 1_000;

#[test]
fn under_adr_every_item_is_written_back_whatever_is_asked() {
    for flush in [Flush::Auto, Flush::Eager, Flush::Keep] {
        assert!(in_logs(flush, Domain::Adr, FEW, SMALL) >= 1.0);
        // The item, and the checksum of the one before.
        assert!(in_slabs(flush, Domain::Adr, FEW, SMALL) >= 2.0);
    }
}

#[test]
fn under_eadr_eager_writes_back_and_keep_does_not() {
    for run in [in_logs, in_slabs] {
        assert!(run(Flush::Eager, Domain::Eadr, FEW, SMALL) >= 1.0);
        assert!(run(Flush::Keep, Domain::Eadr, MANY, LARGE) < 0.01);
    }
}

#[test]
fn auto_keeps_items_of_slabs_that_end_soon_after_they_were_written_and_no_others() {
    let auto = |keys, value_bytes| in_slabs(Flush::Auto, Domain::Eadr, keys, value_bytes);
    assert!(auto(FEW, SMALL) < 0.01, "few and small");
    assert!(auto(FEW, LARGE) < 0.2, "few and large: all but those whose places share a number");
    // Two lines each, and sixteen; a twentieth is remembered all the same.
    assert!(auto(MANY_SMALL, SMALL) > 1.5, "many and small");
    assert!(auto(2 * MANY, LARGE) > 15.0, "many and large");
}

#[test]
fn auto_decides_item_by_item() {
    let (_region, memory) = memory(Domain::Eadr);
    let budget = Arc::new(Budget::new(1 << 30));
    let slabs = Slabs::open(Medium::over(memory, true, 1), 1, &budget).expect("slabs");
    slabs.recover(1, &|_, _, _| ()).expect("recovered");
    let slabs = slabs.flushing(Flush::Auto);
    let lines = each_of(&slabs, slabs.medium().memory(), 4 * MANY, [2 * MANY, FEW], LARGE);
    // An item is 16 lines; every second one is hot, and stays. Of the others few are remembered so long.
    assert!((7.5..8.2).contains(&lines), "{lines} lines an update");
}

#[test]
fn auto_writes_back_whatever_is_in_logs_since_no_place_is_written_again_soon() {
    for (keys, value_bytes) in [(FEW, SMALL), (FEW, LARGE), (MANY, SMALL)] {
        assert!(in_logs(Flush::Auto, Domain::Eadr, keys, value_bytes) > 0.99);
    }
}

/// A memory like DRAM, which small pieces do not hurt, and one of large lines.
#[test]
fn auto_goes_by_what_was_measured_of_the_memory() {
    let gains = |small, large| {
        Some(Arc::new(Keeping::new("node0", 2, [(SMALL as u64, small), (LARGE as u64, large)])))
    };
    for run in [in_logs_by, in_slabs_by] {
        let auto = |by, keys, bytes| run(by, Flush::Auto, Domain::Eadr, keys, bytes);
        assert!(auto(gains(0.1, 0.7), MANY, SMALL) < 0.01, "as DRAM");
        assert!(auto(gains(0.1, 0.7), MANY, LARGE) < 0.01, "as DRAM");
        assert!(auto(gains(2.0, 2.3), MANY, LARGE) > 0.99, "lines of its own");
        // What is asked for, or must be, goes before.
        assert!(run(gains(0.1, 0.7), Flush::Eager, Domain::Eadr, FEW, SMALL) >= 1.0);
        assert!(run(gains(0.1, 0.7), Flush::Auto, Domain::Adr, FEW, SMALL) >= 1.0);
    }
    // What ends soon stays, whatever it would gain.
    assert!(in_slabs_by(gains(2.0, 2.3), Flush::Auto, Domain::Eadr, FEW, LARGE) < 0.2);
}

#[test]
fn skip_streams_large_values_and_writes_back_what_is_around_them() {
    let streamed = |value_bytes: usize| {
        let (_region, memory) = memory(Domain::Adr);
        let budget = Arc::new(Budget::new(1 << 30));
        let logs = Logs::open(Medium::over(memory, true, 1), 1, &budget).expect("logs");
        logs.recover(1, &|_, _, _| ()).expect("recovered");
        let logs = logs.flushing(Flush::Skip);
        let lines = each(&logs, logs.medium().memory(), IN_LOGS, MANY, value_bytes);
        (logs.medium().memory().totals().bytes_streamed, lines)
    };
    let (bytes, lines) = streamed(LARGE);
    assert_eq!(bytes, 2 * IN_LOGS * LARGE as u64);
    assert!((1.0..3.0).contains(&lines), "the head alone: {lines} lines");
    let counted = || {
        let sites = terrace_memory::prestore::sites().into_iter();
        sites.filter(|site| site.name.contains("past the caches")).map(|s| s.calls).sum::<u64>()
    };
    assert_eq!(counted(), 2 * IN_LOGS, "each at its site");
    assert_eq!((streamed(SMALL).0, counted()), (0, 2 * IN_LOGS));
}
