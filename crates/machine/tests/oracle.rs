//! The explorer's reductions lose nothing and invent nothing: on random tiny scenarios, what its
//! recoveries observe is exactly what an enumeration observes that builds every image after every
//! event, by the rules as the documentation of `Crashable` states them and with no reduction at all.
#![allow(clippy::unwrap_used)]

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use terrace_machine::{Crashable, Explorer};
use terrace_memory::{Domain, Laboratory, Memory};

const BYTES: u64 = 8192;
/// Words of three lines, two of them on one page.
const WORDS: [u64; 7] = [0, 8, 16, 64, 72, 4096, 4104];
/// Scenarios with more images than this are left out.
const IMAGES_MAX: usize = 3000;

/// One event of a scenario or a recovery. Ranges of two words stay inside a line.
#[derive(Clone, Copy, Debug)]
enum Op {
    Store(u64, u64),
    CompareExchange(u64, u64, u64),
    /// Two words from an offset, plainly.
    Write(u64, [u64; 2]),
    /// Four bytes.
    WriteHalf(u64, u32),
    Stream(u64, [u64; 2]),
    WriteBack(u64),
    Fence,
    Sync,
    /// A note for the check; nothing to the memory.
    Note,
}

trait Synced: Memory {
    fn sync_all(&self);
}

impl Synced for Crashable {
    fn sync_all(&self) {
        self.sync();
    }
}

fn bytes_of(words: [u64; 2]) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&words[0].to_le_bytes());
    bytes[8..].copy_from_slice(&words[1].to_le_bytes());
    bytes
}

fn apply(memory: &impl Synced, op: Op) {
    // SAFETY: offsets are in WORDS or four bytes after one; one thread.
    unsafe {
        match op {
            Op::Store(at, value) => memory.store(at, value),
            Op::CompareExchange(at, current, new) => {
                let _ = memory.compare_exchange(at, current, new);
            }
            Op::Write(at, words) => memory.write(at, &bytes_of(words)),
            Op::WriteHalf(at, value) => memory.write(at, &value.to_le_bytes()),
            Op::Stream(at, words) => memory.stream(at, &bytes_of(words)),
            Op::WriteBack(at) => memory.write_back(at, 8),
            Op::Fence => memory.fence(),
            Op::Sync => memory.sync_all(),
            Op::Note => {}
        }
    }
}

/// A piece of an event, at most a word.
#[derive(Clone, Copy, Debug)]
struct Piece {
    word: usize,
    value: u64,
}

#[derive(Clone, Debug)]
enum Happened {
    Pieces { pieces: Vec<Piece>, streamed: bool },
    WriteBack(usize),
    Fence,
    Sync,
    Other,
}

/// The plain memory that records what happened to it.
struct Naive {
    domain: Domain,
    visible: RefCell<Vec<u64>>,
    events: RefCell<Vec<(usize, Happened)>>,
    /// Who makes the events.
    thread: Cell<usize>,
}

// SAFETY: used by one thread; `Memory` asks for the bound.
unsafe impl Sync for Naive {}

impl Naive {
    fn new(domain: Domain, image: &[u64]) -> Self {
        Naive {
            domain,
            visible: image.to_vec().into(),
            events: Vec::new().into(),
            thread: Cell::new(0),
        }
    }

    fn put(&self, at: u64, source: &[u8], streamed: bool) {
        let mut visible = self.visible.borrow_mut();
        let mut pieces: Vec<Piece> = Vec::new();
        for (offset, byte) in source.iter().enumerate() {
            let at = at as usize + offset;
            let (word, shift) = (at / 8, at % 8 * 8);
            visible[word] = visible[word] & !(0xff << shift) | u64::from(*byte) << shift;
            match pieces.last_mut().filter(|piece| piece.word == word) {
                Some(piece) => piece.value = visible[word],
                None => pieces.push(Piece { word, value: visible[word] }),
            }
        }
        self.record(Happened::Pieces { pieces, streamed });
    }

    fn record(&self, event: Happened) {
        self.events.borrow_mut().push((self.thread.get(), event));
    }
}

// SAFETY: of a fixed length, and nothing stands on it but these scenarios.
unsafe impl Memory for Naive {
    fn len(&self) -> u64 {
        BYTES
    }
    fn domain(&self) -> Domain {
        self.domain
    }
    unsafe fn load(&self, at: u64) -> u64 {
        self.record(Happened::Other);
        self.visible.borrow()[at as usize / 8]
    }
    unsafe fn store(&self, at: u64, value: u64) {
        self.put(at, &value.to_le_bytes(), false);
    }
    unsafe fn compare_exchange(&self, at: u64, current: u64, new: u64) -> Result<u64, u64> {
        let found = self.visible.borrow()[at as usize / 8];
        if found == current {
            self.put(at, &new.to_le_bytes(), false);
            Ok(found)
        } else {
            self.record(Happened::Other);
            Err(found)
        }
    }
    unsafe fn read(&self, _: u64, _: &mut [u8]) {
        unreachable!("not an operation of these scenarios")
    }
    unsafe fn copy_changing(&self, _: u64, _: *mut u8, _: usize) {
        unreachable!("not an operation of these scenarios")
    }
    unsafe fn load_line(&self, _: u64) -> [u64; 8] {
        unreachable!("not an operation of these scenarios")
    }
    unsafe fn fetch_add(&self, _: u64, _: u64) -> u64 {
        unreachable!("not an operation of these scenarios")
    }
    unsafe fn write(&self, at: u64, source: &[u8]) {
        self.put(at, source, false);
    }
    unsafe fn write_changing(&self, _: u64, _: &[u8]) {
        unreachable!("not an operation of these scenarios")
    }
    unsafe fn stream(&self, at: u64, source: &[u8]) {
        self.put(at, source, true);
    }
    unsafe fn bytes(&self, _: u64, _: u64) -> &[u8] {
        unreachable!("not an operation of these scenarios")
    }
    unsafe fn write_back(&self, at: u64, _: u64) {
        self.record(Happened::WriteBack(at as usize / 64));
    }
    fn fence(&self) {
        self.record(Happened::Fence);
    }
    fn prefetch(&self, _: u64) {}
    fn prefetch_of_many(&self, _: u64) {}
    fn prefetch_to_write(&self, _: u64) {}
    unsafe fn clean(&self, _: u64, _: u64) {}
    unsafe fn demote(&self, _: u64, _: u64) {}
    fn lab(&self) -> Option<&dyn Laboratory> {
        None
    }
}

impl Synced for Naive {
    fn sync_all(&self) {
        self.record(Happened::Sync);
    }
}

/// One unit's groups and what is guaranteed of them.
#[derive(Clone, Debug, Default)]
struct Unit {
    groups: Vec<Vec<usize>>,
    floor: usize,
    /// By thread.
    captured: [usize; 2],
}

/// Every image that a crash after `events` may leave of `initial`; `None` if there are too many.
fn images(
    domain: Domain,
    initial: &[u64],
    events: &[(usize, Happened)],
) -> Option<BTreeSet<Vec<u64>>> {
    if domain == Domain::None {
        return Some([vec![0; initial.len()]].into());
    }
    let words_of_unit = if domain == Domain::PageCache { 512 } else { 8 };
    // Every piece in order, and whether it is certain, possible alone, or in a unit's group.
    let mut all: Vec<Piece> = Vec::new();
    let mut streamed: Vec<(usize, usize, bool)> = Vec::new();
    let mut units = vec![Unit::default(); initial.len() / words_of_unit];
    for (at, (thread, event)) in events.iter().enumerate() {
        let last = at + 1 == events.len();
        match event {
            Happened::Pieces { pieces, streamed: true } if domain != Domain::PageCache => {
                for piece in pieces {
                    streamed.push((all.len(), *thread, false));
                    all.push(*piece);
                }
            }
            Happened::Pieces { pieces, .. } => {
                // These scenarios write inside one unit.
                let unit = &mut units[pieces[0].word / words_of_unit];
                unit.groups.push((all.len()..all.len() + pieces.len()).collect());
                all.extend(pieces);
                if domain == Domain::Eadr && !(last && pieces.len() > 1) {
                    unit.floor = unit.groups.len();
                }
            }
            Happened::WriteBack(line) if domain == Domain::Adr => {
                units[*line].captured[*thread] = units[*line].groups.len();
            }
            Happened::Fence if domain != Domain::PageCache => {
                for unit in &mut units {
                    unit.floor = unit.floor.max(unit.captured[*thread]);
                }
                for (_, by, certain) in &mut streamed {
                    *certain |= by == thread;
                }
            }
            Happened::Sync => {
                units.iter_mut().for_each(|unit| unit.floor = unit.groups.len());
                streamed.iter_mut().for_each(|(_, _, certain)| *certain = true);
            }
            _ => {}
        }
        if domain == Domain::Eadr && !last {
            units.iter_mut().for_each(|unit| unit.floor = unit.groups.len());
        }
    }
    // All sets of pieces that persist, unit by unit, then stream by stream.
    let mut sets: Vec<Vec<usize>> = vec![Vec::new()];
    for unit in &units {
        let mut choices: BTreeSet<Vec<usize>> = BTreeSet::new();
        for whole in unit.floor..=unit.groups.len() {
            let prefix = unit.groups[..whole].concat();
            let next = unit.groups.get(whole).cloned().unwrap_or_default();
            for subset in 0..1 << next.len() {
                let some = next.iter().enumerate().filter(|(i, _)| subset >> i & 1 == 1);
                choices.insert(prefix.iter().copied().chain(some.map(|(_, p)| *p)).collect());
            }
        }
        sets = sets
            .iter()
            .flat_map(|set| choices.iter().map(|choice| [&set[..], choice].concat()))
            .collect();
        if sets.len() > IMAGES_MAX {
            return None;
        }
    }
    for (piece, _, certain) in streamed {
        let with: Vec<Vec<usize>> = sets.iter().map(|set| [&set[..], &[piece]].concat()).collect();
        if certain {
            sets = with;
        } else {
            sets.extend(with);
        }
        if sets.len() > IMAGES_MAX {
            return None;
        }
    }
    let image = |mut set: Vec<usize>| {
        set.sort_unstable();
        let mut image = initial.to_vec();
        set.iter().for_each(|piece| image[all[*piece].word] = all[*piece].value);
        image
    };
    Some(sets.into_iter().map(image).collect())
}

/// What a check read: offsets depend on the values before, as in a real structure.
fn observe(memory: &impl Memory, seed: u64, reads: u64) -> Vec<(u64, u64)> {
    let mut seen = Vec::new();
    let mut at = seed;
    for read in 0..reads {
        let word = WORDS[(at % 7) as usize];
        // SAFETY: in WORDS.
        let value = unsafe { memory.load(word) };
        seen.push((word, value));
        at = at.wrapping_mul(5).wrapping_add(value * 3 + read + 1);
    }
    seen
}

/// A recovery that reads some words and, depending on them, does some of `ops`.
fn recover(memory: &impl Synced, ops: &[Op], seed: u64) {
    for (index, op) in ops.iter().enumerate() {
        if index % 2 == 0 {
            let word = WORDS[((seed + index as u64) % 7) as usize];
            // SAFETY: in WORDS.
            if unsafe { memory.load(word) } % 3 == 1 {
                continue;
            }
        }
        apply(memory, *op);
    }
}

/// splitmix64.
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % bound
    }

    fn op(&mut self) -> Op {
        // Few values, so that equal ones follow each other and come back.
        let word = WORDS[self.below(7) as usize];
        let pair = [0, 8, 64, 4096][self.below(4) as usize];
        let two = [self.below(3), self.below(3)];
        match self.below(12) {
            0..3 => Op::Store(word, self.below(3)),
            3 => Op::CompareExchange(word, self.below(2), 1 + self.below(2)),
            4 | 5 => Op::Write(pair, two),
            6 => Op::WriteHalf(word + 4 * self.below(2), self.below(3) as u32),
            7 => Op::Stream(pair, two),
            8 | 9 => Op::WriteBack(word),
            10 => Op::Fence,
            _ if self.below(3) == 0 => Op::Sync,
            _ if self.below(3) == 0 => Op::Note,
            _ => Op::Fence,
        }
    }
}

/// What a check can see: how many notes, and what it read.
type Outcomes = BTreeSet<(usize, Vec<(u64, u64)>)>;

struct Case {
    domain: Domain,
    crashes: usize,
    /// One or two threads.
    threads: Vec<Vec<Op>>,
    recovery: Vec<Op>,
    seed: u64,
}

/// Every way to put the events of `thread` among those of `order`.
fn merged(order: &[usize], thread: usize, threads: &[Vec<Op>]) -> Vec<Vec<usize>> {
    let mut all = vec![(Vec::new(), 0, 0)];
    let (ours, theirs) = (threads[thread].len(), order.len());
    for _ in 0..ours + theirs {
        let mut longer = Vec::new();
        for (merged, a, b) in all {
            if a < ours {
                longer.push(([&merged[..], &[thread]].concat(), a + 1, b));
            }
            if b < theirs {
                longer.push(([&merged[..], &[order[b]]].concat(), a, b + 1));
            }
        }
        all = longer;
    }
    all.into_iter().map(|(merged, ..)| merged).collect()
}

/// What a check can observe, with nothing left out; `None` if that is too much.
fn by_enumeration(case: &Case) -> Option<Outcomes> {
    let zero = vec![0; BYTES as usize / 8];
    let mut crashed = BTreeSet::new();
    let mut orders = vec![Vec::new()];
    for thread in 0..case.threads.len() {
        orders = orders.iter().flat_map(|order| merged(order, thread, &case.threads)).collect();
    }
    for order in orders {
        let naive = Naive::new(case.domain, &zero);
        let mut done = [0; 2];
        let mut notes = vec![0];
        for thread in order {
            naive.thread.set(thread);
            let op = case.threads[thread][done[thread]];
            apply(&naive, op);
            if matches!(op, Op::Note) {
                naive.record(Happened::Other);
            }
            notes.push(notes[notes.len() - 1] + usize::from(matches!(op, Op::Note)));
            done[thread] += 1;
        }
        let events = naive.events.into_inner();
        for after in 0..=events.len() {
            let images = images(case.domain, &zero, &events[..after])?;
            crashed.extend(images.into_iter().map(|image| (notes[after], image)));
        }
    }
    for _ in 1..case.crashes {
        let mut again = crashed.clone();
        for (notes, image) in &crashed {
            let naive = Naive::new(case.domain, image);
            recover(&naive, &case.recovery, case.seed);
            let events = naive.events.into_inner();
            for after in 0..=events.len() {
                let images = images(case.domain, image, &events[..after])?;
                again.extend(images.into_iter().map(|image| (*notes, image)));
            }
            if again.len() > 2 * IMAGES_MAX {
                return None;
            }
        }
        crashed = again;
    }
    let outcome = |(notes, image): &(usize, Vec<u64>)| {
        let naive = Naive::new(case.domain, image);
        recover(&naive, &case.recovery, case.seed);
        (*notes, observe(&naive, case.seed, 4))
    };
    Some(crashed.iter().map(outcome).collect())
}

fn by_explorer(case: &Case) -> (Outcomes, u64) {
    let outcomes = Arc::new(Mutex::new(Outcomes::new()));
    let (recovery, seed) = (case.recovery.clone(), case.seed);
    let seen = outcomes.clone();
    let mut explorer = Explorer::<()>::new(case.domain, BYTES).crashes(case.crashes).preemptions(9);
    for ops in case.threads.clone() {
        explorer = explorer.thread(move |m, log| {
            for op in &ops {
                match op {
                    Op::Note => log.note(()),
                    op => apply(m, *op),
                }
            }
        });
    }
    let report = explorer
        .recover(move |m| recover(m, &recovery, seed))
        .check(move |m, notes| {
            seen.lock().unwrap().insert((notes.len(), observe(m, seed, 4)));
            Ok(())
        })
        .exhaustive(u64::MAX)
        .assert_sound();
    assert!(report.exhausted);
    (std::mem::take(&mut outcomes.lock().unwrap()), report.states)
}

fn compare(domain: Domain, crashes: usize, cases: u64, ops: u64, recovery: u64) {
    compare_threads(domain, crashes, 1, cases, ops, recovery);
}

fn compare_threads(
    domain: Domain,
    crashes: usize,
    threads: u64,
    cases: u64,
    ops: u64,
    recovery: u64,
) {
    let base: u64 = std::env::var("TERRACE_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    println!("TERRACE_SEED={base}");
    let mut rng = Rng(base << 20 ^ (domain as u64 * 1000 + crashes as u64 * 10 + threads));
    let (mut compared, mut states, mut outcomes) = (0, 0, 0);
    for seed in 0..cases {
        let case = Case {
            domain,
            crashes,
            threads: (0..threads)
                .map(|_| (0..1 + rng.below(ops)).map(|_| rng.op()).collect())
                .collect(),
            recovery: (0..rng.below(recovery + 1)).map(|_| rng.op()).collect(),
            seed,
        };
        let Some(expected) = by_enumeration(&case) else {
            continue;
        };
        let (found, explored) = by_explorer(&case);
        assert_eq!(
            found, expected,
            "{domain}, {crashes} crashes, {:?} recovered by {:?}, seed {seed}",
            case.threads, case.recovery
        );
        compared += 1;
        states += explored;
        outcomes += expected.len();
    }
    println!(
        "{domain}, {threads} threads, {crashes} crashes: {compared} scenarios, {outcomes} outcomes, {states} states"
    );
    assert!(compared > cases / 2, "{compared} of {cases} scenarios were small enough");
}

#[test]
fn one_crash_under_adr() {
    compare(Domain::Adr, 1, 5000, 9, 0);
    compare(Domain::Adr, 1, 3000, 6, 4);
}

#[test]
fn one_crash_under_persistent_caches() {
    compare(Domain::Eadr, 1, 3000, 10, 3);
}

#[test]
fn one_crash_under_the_page_cache() {
    compare(Domain::PageCache, 1, 3000, 9, 3);
}

#[test]
fn one_crash_where_nothing_survives() {
    compare(Domain::None, 1, 50, 6, 3);
}

#[test]
fn two_crashes() {
    for domain in [Domain::Adr, Domain::Eadr, Domain::PageCache] {
        compare(domain, 2, 1500, 5, 5);
    }
}

#[test]
fn three_crashes() {
    for domain in [Domain::Adr, Domain::Eadr, Domain::PageCache] {
        compare(domain, 3, 400, 3, 3);
    }
}

#[test]
fn two_threads() {
    for domain in [Domain::Adr, Domain::Eadr, Domain::PageCache] {
        compare_threads(domain, 1, 2, 100, 4, 2);
    }
    compare_threads(Domain::Adr, 2, 2, 50, 3, 3);
}
