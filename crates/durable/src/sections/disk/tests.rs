//! Power cuts: a disk of which a power cut, at any write or sync, leaves what was synced and any of the sectors
//! that were not. After each, every section that had returned is there, whole; without any one of the journal's
//! steps that a first life needs, some power cut shows it.

use super::*;
use crate::journal::Steps;
use crate::medium::Disk;
use crate::plain;
use crate::sections::Root;
use parking_lot::Mutex;
use std::sync::Arc;

const SECTOR: usize = 512;
const DISK_BYTES: u64 = 128 << 10;
const HEAP_BYTES: u64 = 6 << 12;
const SECTIONS: u64 = 24;
const SEEDS: u64 = 30;
const WORDS_OF_COUNT: usize = 120;

plain! {
    struct Count {
        words: [u64; WORDS_OF_COUNT],
    }
}
const COUNT: Root<Count> = Root::new(0);

#[derive(Debug, Default)]
struct State {
    synced: Vec<u8>,
    /// Sectors, in the order in which they were written.
    unsynced: Vec<(usize, Vec<u8>)>,
    random: u64,
    acknowledged: u64,
    /// What power cuts left, and what had been acknowledged.
    cuts: Vec<(Vec<u8>, u64)>,
    is_cut: bool,
}

impl State {
    fn one_in(&mut self, of: u64) -> bool {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33).is_multiple_of(of)
    }

    /// The power may go now.
    fn cut(&mut self) {
        if !self.is_cut || !self.one_in(2) {
            return;
        }
        let mut left = self.synced.clone();
        for (at, sector) in std::mem::take(&mut self.unsynced) {
            if self.one_in(2) {
                left[at..at + SECTOR].copy_from_slice(&sector);
            }
            self.unsynced.push((at, sector));
        }
        self.cuts.push((left, self.acknowledged));
    }

    fn sync(&mut self) {
        for (at, sector) in std::mem::take(&mut self.unsynced) {
            self.synced[at..at + SECTOR].copy_from_slice(&sector);
        }
    }
}

#[derive(Clone, Debug)]
struct Device(Arc<Mutex<State>>);

impl Device {
    fn of(synced: Vec<u8>, random: u64) -> Device {
        Device(Arc::new(Mutex::new(State { synced, random, ..State::default() })))
    }

    fn medium(&self, is_new: bool) -> Medium {
        let mut medium = Medium::mirrored(Box::new(self.clone()), is_new, 1 + u32::from(!is_new))
            .expect("memory");
        if !is_new {
            medium.read_all().expect("read");
        }
        medium
    }
}

impl Disk for Device {
    fn capacity_bytes(&self) -> u64 {
        DISK_BYTES
    }

    fn write(&self, at: u64, blocks: &[u8], durable: bool) -> MediumResult<()> {
        let mut state = self.0.lock();
        state.cut();
        for (number, sector) in blocks.chunks(SECTOR).enumerate() {
            state.unsynced.push((at as usize + number * SECTOR, sector.to_vec()));
        }
        state.cut();
        if durable {
            state.sync();
        }
        Ok(())
    }

    fn sync(&self) -> MediumResult<()> {
        let mut state = self.0.lock();
        state.cut();
        state.sync();
        Ok(())
    }

    fn read(&self, at: u64, blocks: &mut [u8]) -> MediumResult<()> {
        let state = self.0.lock();
        let at = at as usize;
        blocks.copy_from_slice(&state.synced[at..at + blocks.len()]);
        for (sector_at, sector) in &state.unsynced {
            if (at..at + blocks.len()).contains(sector_at) {
                blocks[sector_at - at..sector_at - at + SECTOR].copy_from_slice(sector);
            }
        }
        Ok(())
    }
}

fn options(steps: Steps) -> Options {
    Options::new(EngineKind::Redo).log_bytes(4096).journal_steps(steps)
}

/// A section, which writes all of the object, and moves it now and then.
fn count(pool: &Pool<Native>, number: u64) -> Result<()> {
    pool.section(|tx| {
        let mut at = tx.root(COUNT)?;
        if at.is_null() || number.is_multiple_of(5) {
            if !at.is_null() {
                tx.destroy(at)?;
            }
            at = tx.create(&Count { words: [0; WORDS_OF_COUNT] })?;
            tx.set_root(COUNT, at)?;
        }
        tx.set(at, Count { words: [number; WORDS_OF_COUNT] })
    })
}

fn counted(pool: &Pool<Native>) -> std::result::Result<u64, String> {
    let found = pool.section(|tx| {
        let at = tx.root(COUNT)?;
        if at.is_null() { Ok(None) } else { tx.get(at).map(|count| Some((at, count))) }
    });
    let found = found.map_err(|error: Error| error.to_string())?;
    pool.check_reachable(found.iter().map(|(at, _)| at.at()))?;
    let Some((_, Count { words })) = found else { return Ok(0) };
    match words.iter().all(|word| *word == words[0]) {
        true => Ok(words[0]),
        false => Err(format!("a part of a section: {words:?}")),
    }
}

/// What is wrong after some power cut, if anything is; and how many of them there were.
fn cuts(steps: Steps, seed: u64) -> std::result::Result<usize, String> {
    let device = Device::of(vec![0; DISK_BYTES as usize], seed);
    let shape = options(Steps::ALL).disk_shape(HEAP_BYTES).expect("a shape");
    let made = Pool::create_on_disk(device.medium(true), shape, &options(Steps::ALL));
    drop(made.expect("a pool"));
    device.0.lock().sync();
    let pool = Pool::open_on_disk(device.medium(false), &options(steps)).expect("a pool");
    device.0.lock().is_cut = true;
    for number in 1..=SECTIONS {
        count(&pool, number).map_err(|error| error.to_string())?;
        device.0.lock().acknowledged = number;
    }
    let cuts = std::mem::take(&mut device.0.lock().cuts);
    for (number, (left, acknowledged)) in cuts.iter().enumerate() {
        let wrong = |what: String| format!("cut {number} after {acknowledged}: {what}");
        let again = Device::of(left.clone(), seed);
        let opened = Pool::open_on_disk(again.medium(false), &options(steps));
        let pool = opened.map_err(|error| wrong(error.to_string()))?;
        let there = counted(&pool).map_err(wrong)?;
        if there != *acknowledged && there != acknowledged + 1 {
            return Err(wrong(format!("{there} are there")));
        }
        // It goes on, and a second opening finds that too.
        count(&pool, there + 1).map_err(|error| wrong(error.to_string()))?;
        drop(pool);
        let opened = Pool::open_on_disk(again.medium(false), &options(steps));
        let pool = opened.map_err(|error| wrong(error.to_string()))?;
        if counted(&pool).map_err(wrong)? != there + 1 {
            return Err(wrong("what went on is not there".into()));
        }
    }
    Ok(cuts.len())
}

#[test]
fn every_section_that_returned_is_there_whole_after_any_power_cut() {
    let mut all = 0;
    for seed in 0..SEEDS {
        all += cuts(Steps::ALL, seed).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
    }
    assert!(all > 500, "{all} cuts");
}

#[test]
fn without_a_step_of_the_journal_some_power_cut_shows_it() {
    use JournalStep as Step;
    for step in [
        Step::RecordSync,
        Step::RecordChecksum,
        Step::RecordGeneration,
        Step::StateSync,
        Step::MarkSync,
    ] {
        let steps = Steps::ALL.without(&[step]);
        let caught = (0..SEEDS).any(|seed| cuts(steps, seed).is_err());
        assert!(caught, "{step:?} is not needed");
    }
}
