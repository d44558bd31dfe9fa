//! Crashes: the file as it was at some instant, recovered and compared with what was acknowledged.
//!
//! Between the steps of writers that were all stopped the file is copied as it stands. Inside a step
//! that ends with one fence, every 8-byte word the step changed may be safe or not, in any
//! combination. The alarm is tested with writers whose order of steps is wrong.
//!
//! `TERRACE_LONG=1` takes five times as many instants.

use super::mini::{Mini, Order, Random, Told, directory, open, path, recover};
use super::{BUDGET, RIGHT};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_durable::{Access, Error};
use terrace_memory::Domain;

const KEYS: usize = 24;

fn instants(normal: usize) -> usize {
    if std::env::var_os("TERRACE_LONG").is_some() { normal * 5 } else { normal }
}

/// What recovery finds in a file with these bytes, twice, its slots all accounted for.
pub fn recovered(image: &[u8]) -> Result<BTreeMap<usize, u64>, Error> {
    let dir = directory();
    std::fs::write(path(dir.path()), image).expect("image");
    let mut first = None;
    for _ in 0..2 {
        let slabs = open(dir.path(), Domain::Adr, BUDGET, Access::Write)?;
        let (contents, _) = recover(&slabs)?;
        let census = slabs.check().expect("every slot has one owner");
        assert_eq!(census.live, contents.len() as u64, "no version beside the newest");
        let numbers: BTreeMap<usize, u64> =
            contents.iter().map(|(key, (.., number))| (*key, *number)).collect();
        let first = first.get_or_insert_with(|| numbers.clone());
        assert_eq!(first, &numbers, "a second recovery finds what the first found");
    }
    Ok(first.expect("recovered"))
}

/// The keys that do not hold what they may.
fn violations(image: &[u8], told: &[Told]) -> Vec<String> {
    let found = recovered(image).expect("a crash is no damage");
    let wrong = |(key, told): (usize, &Told)| {
        let now = found.get(&key).copied();
        (!told.allows(now)).then(|| format!("key {key} is {now:?}: {told:?}"))
    };
    told.iter().enumerate().filter_map(wrong).collect()
}

fn sizes(random: &mut Random) -> usize {
    [20, 90, 90, 700][random.below(4) as usize]
}

/// Writers at work while the world is stopped now and then; what was found wrong.
fn crash_between_steps(order: Order, domain: Domain, instants: usize) -> Vec<String> {
    let dir = directory();
    let mini = Mini::open(dir.path(), KEYS, domain, BUDGET, order);
    let done = AtomicBool::new(false);
    let mut wrong = Vec::new();
    std::thread::scope(|scope| {
        for writer in 1..=3usize {
            let (mini, done) = (&mini, &done);
            scope.spawn(move || {
                let mut random = Random(writer as u64 * 31);
                let mut number = writer as u64;
                while !done.load(Ordering::Relaxed) {
                    let key = random.below(KEYS as u64) as usize;
                    if random.below(4) == 0 {
                        mini.delete(key, &mut std::thread::yield_now);
                    } else {
                        number += 4;
                        let bytes = sizes(&mut random);
                        let put = mini.put(writer, key, number, bytes, &mut std::thread::yield_now);
                        if order == Order::NeverClear && matches!(put, Err(Error::NoRoom { .. })) {
                            return;
                        }
                        put.expect("put");
                    }
                }
            });
        }
        for n in 0..instants {
            std::thread::sleep(std::time::Duration::from_micros(n as u64 * 7_919 % 3_000));
            let (image, told) = mini.stop_the_world();
            wrong.extend(violations(&image, &told));
            if !wrong.is_empty() {
                break;
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    wrong
}

#[test]
fn every_acknowledged_write_is_in_a_file_copied_at_any_instant() {
    for domain in [Domain::Adr, Domain::Eadr] {
        let wrong = crash_between_steps(RIGHT, domain, instants(60));
        assert!(wrong.is_empty(), "{domain}: {wrong:?}");
    }
}

/// `before` with some of the words in which `after` differs.
fn torn(before: &[u8], after: &[u8], random: &mut Random) -> Vec<u8> {
    let mut image = before.to_vec();
    let most = random.below(5);
    for (at, (old, new)) in before.chunks(4096).zip(after.chunks(4096)).enumerate() {
        if old == new {
            continue;
        }
        for (word, (old, new)) in old.chunks(8).zip(new.chunks(8)).enumerate() {
            if old != new && random.below(4) < most {
                let from = at * 4096 + word * 8;
                image[from..from + 8].copy_from_slice(new);
            }
        }
    }
    image
}

/// One writer; a crash inside some of its steps, any of whose words may be missing.
fn crash_inside_steps(order: Order, crashes: usize) -> Vec<String> {
    let dir = directory();
    let mini = Mini::open(dir.path(), KEYS, Domain::Adr, BUDGET, order);
    let mut random = Random(5);
    let mut wrong = Vec::new();
    // So that no step below needs a new superblock, which takes more than one fence.
    for bytes in [20, 90, 700] {
        (0..KEYS).for_each(|key| mini.put(1, key, 1, bytes, &mut || {}).expect("put"));
    }
    let mut number = 1;
    for n in 0..crashes * 5 {
        let key = random.below(KEYS as u64) as usize;
        number += 1;
        let crash_here = n % 5 == 0;
        let mut before = crash_here.then(|| mini.stop_the_world());
        let mut found = Vec::new();
        let mut torn_random = Random(number);
        let mut between = || {
            let Some((old, told)) = &mut before else { return };
            let (new, now) = mini.stop_the_world();
            if *old != new && new.len() == old.len() {
                for _ in 0..2 {
                    found.extend(violations(&torn(old, &new, &mut torn_random), &now));
                }
            }
            (*old, *told) = (new, now);
        };
        if random.below(4) == 0 {
            mini.delete(key, &mut between);
        } else {
            mini.put(1, key, number, sizes(&mut random), &mut between).expect("put");
        }
        wrong.extend(found);
    }
    wrong
}

#[test]
fn a_step_of_which_any_word_is_missing_loses_nothing_and_brings_nothing_back() {
    let wrong = crash_inside_steps(RIGHT, instants(30));
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn clearing_the_old_version_before_the_new_one_is_written_is_caught() {
    let wrong = crash_between_steps(Order::ClearThenWrite, Domain::Adr, 40);
    assert!(wrong.iter().any(|w| w.contains("is None")), "a key is lost in between: {wrong:?}");
    let wrong = crash_inside_steps(Order::ClearThenWrite, 10);
    assert!(wrong.iter().any(|w| w.contains("is None")), "{wrong:?}");
}

#[test]
fn never_clearing_is_caught() {
    let wrong = crash_between_steps(Order::NeverClear, Domain::Adr, 40);
    assert!(wrong.iter().any(|w| w.contains("is Some")), "a deleted key is back: {wrong:?}");
}
