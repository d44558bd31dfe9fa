//! What every kind of index passes, and a kind that is only here: a sorted vector, to show that nothing else is needed.

use super::*;
use crate::laboratory::{Laboratory, LeafForm};
use crate::located::{first_16, location, value};
use crate::options::{Kind, MapOptions, Persist};
use parking_lot::{Mutex, RwLock};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use terrace_durable::{Medium, Pages};
use terrace_index::{HashIndex, hash_key};
use terrace_memory::{Budget, Region};

const SEED: u64 = 7;

/// Items that are keys alone; the location of each follows from its place in the list.
struct Listed(Vec<Vec<u8>>);

impl Listed {
    /// Short keys, and long ones of which many begin alike.
    fn new() -> Listed {
        let long = |n: u32| format!("a key that begins like all of its kind {n:05}").into_bytes();
        Listed(
            (0..600u32)
                .map(|n| if n % 3 == 0 { long(n) } else { n.to_be_bytes().to_vec() })
                .collect(),
        )
    }

    /// Where the `version`th item of a key is said to lie.
    fn at(&self, key: usize, version: u64) -> u64 {
        (version * self.0.len() as u64 + key as u64 + 1) * 64
    }

    fn key_at(&self, location: u64) -> &[u8] {
        &self.0[(location / 64 - 1) as usize % self.0.len()]
    }

    fn hash(&self, key: usize) -> u64 {
        hash_key(SEED, &self.0[key])
    }
}

impl Items for Listed {
    fn has_key(&self, location: u64, key: &[u8]) -> bool {
        self.key_at(location) == key
    }

    fn hash(&self, location: u64) -> Option<u64> {
        Some(hash_key(SEED, self.key_at(location)))
    }

    fn prefetch(&self, _location: u64) {}
}

impl Keys for Listed {
    fn head(&self, key: &[u8]) -> u128 {
        first_16(key)
    }

    fn is_whole(&self, _head: u128) -> bool {
        false
    }

    fn compare(&self, value: [u64; 2], key: &[u8]) -> Ordering {
        self.key_at(location(value)).cmp(key)
    }

    fn key(&self, value: [u64; 2], into: &mut Vec<u8>) {
        into.extend_from_slice(self.key_at(location(value)));
    }
}

/// What an index must hold: of each key the location, in the order of keys.
type Model<'a> = BTreeMap<&'a [u8], u64>;

/// The index holds what the model says, whichever way it is asked.
fn holds_exactly<K: KeyIndex>(index: &K, model: &Model<'_>, items: &Listed) {
    assert_eq!(index.len(), model.len() as u64);
    for (number, key) in items.0.iter().enumerate() {
        let (hash, at) = (items.hash(number), model.get(&key[..]).copied());
        assert_eq!(index.get(hash, key, items), at, "key {number}");
        assert_eq!(index.look(hash, key, items, |at| at), at, "key {number}");
        let other = items.at(number, 1000);
        assert!(!index.holds(hash, key, other, items), "key {number}");
        assert!(at.is_none_or(|at| index.holds(hash, key, at, items)), "key {number}");
    }
    let mut reached = Position::Start;
    let mut scanned = Vec::new();
    while reached != Position::End {
        reached = index.scan(&reached, 7, items, |at| scanned.push(at));
    }
    let in_order: Vec<u64> = model.values().copied().collect();
    if index.is_ordered() {
        assert_eq!(scanned, in_order, "a scan is in the order of keys");
        ranges_are_exact(index, model, items);
    } else {
        let any = index.range(Bound::Unbounded, Direction::Up, 1, items, |_| ());
        assert_eq!(any, Err(Unordered));
        let walked = index.walk(items, |_, _| panic!("an entry in no order"));
        assert_eq!(walked, Err(Unordered), "whoever relies on a walk learns that there is none");
        scanned.sort_unstable();
        let mut all = in_order;
        all.sort_unstable();
        assert_eq!(scanned, all, "a scan visits every entry once while nobody writes");
    }
}

fn ranges_are_exact<K: KeyIndex>(index: &K, model: &Model<'_>, items: &Listed) {
    for from in items.0.iter().step_by(37) {
        let (mut up, mut down) = (Vec::new(), Vec::new());
        let (bound, most) = (Bound::Included(&from[..]), items.0.len());
        let beyond = index.range(bound, Direction::Up, most, items, |at| up.push(at));
        assert_eq!(beyond, Ok(None), "the end was reached");
        assert!(up.iter().eq(model.range(&from[..]..).map(|(_, at)| at)));
        let bound = Bound::Excluded(&from[..]);
        let beyond = index.range(bound, Direction::Down, most, items, |at| down.push(at));
        assert_eq!(beyond, Ok(None));
        assert!(down.iter().eq(model.range(..&from[..]).rev().map(|(_, at)| at)));
    }
    let mut walked = Vec::new();
    let in_order = index.walk(items, |entry, _| walked.push(location(entry.value)));
    assert_eq!(in_order, Ok(()));
    assert!(walked.iter().eq(model.values()), "a walk visits every entry in order");
}

/// Changes drawn at random, each as the model says.
fn change<'a, K: KeyIndex>(index: &K, model: &mut Model<'a>, items: &'a Listed, seed: u64) {
    let mut random = seed;
    for step in 0..4_000 {
        random = hash_key(random, b"next");
        let number = (random % items.0.len() as u64) as usize;
        let (hash, key, new) = (items.hash(number), &items.0[number], items.at(number, step % 900));
        let before = model.get(&key[..]).copied();
        match random >> 32 & 7 {
            0..=4 => {
                let set =
                    |found: Option<u64>, _: &BucketLock, _: &mut Changes| (Change::Set(new), found);
                let mut told = None;
                let was = index.update_then(hash, key, items, set, |found, _| told = Some(found));
                assert_eq!(
                    (was.expect("there is memory"), told),
                    (before, Some(before)),
                    "step {step}"
                );
                model.insert(key, new);
            }
            5 => {
                let remove = |_: &BucketLock, _: &mut Changes| Change::Remove;
                let at = before.unwrap_or(new);
                let was = index.update_at(hash, key, at, items, remove).expect("there is memory");
                assert_eq!(was, model.remove(&key[..]).is_some(), "step {step}");
            }
            6 => {
                let stale = |_: &BucketLock, _: &mut Changes| unreachable!("it lies elsewhere");
                let elsewhere = items.at(number, 1000);
                assert!(
                    !index.update_at(hash, key, elsewhere, items, stale).expect("nothing changes")
                );
            }
            _ if before.is_none() => {}
            _ => {
                let over =
                    |_: Option<u64>, _: &BucketLock, _: &mut Changes| (Change::Overwritten, ());
                let watch = index.watch(hash, key, items);
                assert!(watch.saw_no_overwrite(), "nobody wrote");
                index.update_then(hash, key, items, over, |(), _| ()).expect("nothing is added");
                assert!(!watch.saw_no_overwrite(), "step {step}");
            }
        }
    }
}

/// A batch is led to every key that is there.
fn candidates_are_near<K: KeyIndex>(index: &K, model: &Model<'_>, items: &Listed) {
    for numbers in (0..items.0.len()).collect::<Vec<_>>().chunks(BATCH) {
        let hashes: Vec<u64> = numbers.iter().map(|number| items.hash(*number)).collect();
        let keys: Vec<&[u8]> = numbers.iter().map(|number| &items.0[*number][..]).collect();
        let (mut found, near) = ([None; BATCH], Mutex::new(Vec::new()));
        index.candidates(&hashes, &keys, 3, items, |at| near.lock().push(at), &mut found);
        let near = near.into_inner();
        for (key, found) in keys.iter().zip(found) {
            let is_its = found.is_some_and(|at| model.get(key) == Some(&at));
            // A hint: a hash table names at most one entry of the same tag.
            assert!(is_its || model.get(key).is_none() || !index.is_ordered());
            assert!(found.is_none_or(|at| near.contains(&at)));
        }
    }
}

/// What a kind does, of an empty index.
fn conforms<K: KeyIndex>(index: &K) {
    let items = Listed::new();
    let mut model = Model::new();
    holds_exactly(index, &model, &items);
    for seed in 1..4 {
        change(index, &mut model, &items, seed);
        holds_exactly(index, &model, &items);
        candidates_are_near(index, &model, &items);
    }
    assert!(index.bytes() > 0 && index.looked_at()[0] > 0);
    let somewhere = index.position_near(u64::MAX / 3, &items);
    assert_ne!(somewhere, Position::End, "there are entries");
    index.clear(&items).expect("there is memory");
    holds_exactly(index, &Model::new(), &items);
}

fn options(form: Option<TreeForm>) -> MapOptions {
    let kind = if form.is_some() { Kind::Ordered } else { Kind::Hash };
    let laboratory = Laboratory { tree: form, ..Laboratory::default() };
    MapOptions { kind, laboratory, persist: Persist::Auto, ..MapOptions::default() }
}

fn memory(bytes: u64) -> Region {
    let region = Region::reserve(bytes, Backing::Anonymous).expect("address space");
    region.commit(0, bytes).expect("memory");
    region
}

fn conforms_in_dram<K: KeyIndex>(form: Option<TreeForm>) {
    let budget = Arc::new(Budget::new(u64::MAX));
    let medium = Medium::over(memory(1 << 20).native(), true, 0);
    let opening = Opening::on(&medium, &options(form), &budget).expect("such maps exist");
    conforms(&K::in_dram(&opening, 1 << 16).expect("there is memory"));
}

/// What a kind does when it is persistent, and that it is found again as it was.
fn conforms_persistently<K: KeyIndex<Memory = Native>>(form: Option<TreeForm>) {
    let budget = Arc::new(Budget::new(u64::MAX));
    let region = memory(64 << 20);
    let medium = Medium::over(memory(1 << 20).native(), true, 0);
    let opening = Opening::on(&medium, &options(form), &budget).expect("such maps exist");
    let pages = Pages { count: 16, bytes: 4096 };
    let tables = u32::from(form.is_none());
    let file = IndexFile::make(Medium::over(region.native(), true, 0), tables, SEED, 1, pages);
    let file = file.expect("there is memory");
    let inner = |bytes| Reserved::reserve(bytes, Backing::Anonymous, None);
    let site = Site { opening: &opening, file: &file, inner: &inner };
    conforms(&K::create(&site).expect("there is memory"));

    // As a crash would leave it: dropped without a word. It was cleared, so it is empty.
    let items = Listed::new();
    let mut model = Model::new();
    let index = K::repair(&site, &items).expect("it is whole");
    holds_exactly(&index, &model, &items);
    change(&index, &mut model, &items, 4);
    drop(index);
    let index = K::repair(&site, &items).expect("it is whole");
    holds_exactly(&index, &model, &items);

    // As it is closed.
    index.note_allocation();
    let used = index.used(file.areas_at());
    drop(index);
    let refused = K::reopen(&site, &items, |found| {
        assert_eq!(found, used, "what is in use is what is verified");
        Ok(false)
    });
    assert_eq!(refused.err().map(|error| error.kind()), Some(ErrorKind::InvalidData));
    let index = K::reopen(&site, &items, |_| Ok(true)).expect("it is as it was closed");
    holds_exactly(&index, &model, &items);
    change(&index, &mut model, &items, 5);
    holds_exactly(&index, &model, &items);
}

#[test]
fn the_hash_table_conforms() {
    conforms_in_dram::<HashIndex>(None);
    conforms_persistently::<HashIndex>(None);
}

#[test]
fn every_form_of_tree_conforms() {
    for form in LeafForm::ALL {
        match form.is_persistent() {
            false => conforms_in_dram::<InTree<Native>>(Some(form.into())),
            true => conforms_persistently::<InTree<Native>>(Some(form.into())),
        }
    }
}

#[test]
fn delta_logs_conform() {
    conforms_persistently::<InLogs<Native>>(Some(TreeForm::Logs));
}

#[test]
fn the_enum_conforms_as_each_of_its_kinds() {
    conforms_in_dram::<Index<Native>>(None);
    conforms_in_dram::<Index<Native>>(Some(LeafForm::Rows.into()));
    let persistent = [LeafForm::FastFair.into(), TreeForm::Logs];
    for form in [None].into_iter().chain(persistent.map(Some)) {
        conforms_persistently::<Index<Native>>(form);
    }
}

#[test]
fn a_sorted_vector_conforms() {
    conforms_in_dram::<SortedVec>(None);
    conforms_persistently::<SortedVec>(None);
}

/// Keys and locations, in order of the keys.
type Entries = Arc<RwLock<Vec<(Vec<u8>, u64)>>>;

/// Keys and locations in order. A real kind would lie in the file; this one is left on a shelf.
struct SortedVec {
    entries: Entries,
    overwritten: AtomicU64,
    /// One bucket: only an index that latches entries, in the room where unsafe code is, has the lock that callers are
    /// given.
    latch: HashIndex,
}

static SHELF: Mutex<BTreeMap<u64, Entries>> = Mutex::new(BTreeMap::new());

struct NoItems;

impl Items for NoItems {
    fn has_key(&self, _location: u64, _key: &[u8]) -> bool {
        false
    }

    fn hash(&self, _location: u64) -> Option<u64> {
        None
    }

    fn prefetch(&self, _location: u64) {}
}

struct Count<'a>(&'a SortedVec, u64);

impl Watches for Count<'_> {
    fn saw_no_overwrite(&self) -> bool {
        self.0.overwritten.load(SeqCst) == self.1
    }
}

impl SortedVec {
    fn of(entries: Entries) -> io::Result<SortedVec> {
        let latch = HashIndex::new(1, 1 << 16, &Arc::new(Budget::new(u64::MAX)))?;
        Ok(SortedVec { entries, overwritten: AtomicU64::new(0), latch })
    }

    fn find(&self, key: &[u8]) -> Result<usize, usize> {
        self.entries.read().binary_search_by(|(other, _)| other[..].cmp(key))
    }

    fn found(&self, key: &[u8]) -> Option<u64> {
        Some(self.entries.read()[self.find(key).ok()?].1)
    }

    fn apply(&self, key: &[u8], change: Change) {
        match (self.find(key), change) {
            (_, Change::Keep) | (Err(_), Change::Overwritten | Change::Remove) => {}
            (Ok(place), Change::Set(at)) => self.entries.write()[place].1 = at,
            (Err(place), Change::Set(at)) => self.entries.write().insert(place, (key.to_vec(), at)),
            (Ok(_), Change::Overwritten) => _ = self.overwritten.fetch_add(1, SeqCst),
            (Ok(place), Change::Remove) => _ = self.entries.write().remove(place),
        }
    }
}

impl KeyIndex for SortedVec {
    type Memory = Native;
    type InDram = SortedVec;
    type Watch<'a> = Count<'a>;

    fn makes(_form: Option<TreeForm>) -> bool {
        false
    }

    fn in_dram(_opening: &Opening<'_>, _capacity: u64) -> io::Result<SortedVec> {
        SortedVec::of(Arc::default())
    }

    fn create(site: &Site<'_, Native>) -> io::Result<SortedVec> {
        let entries: Arc<RwLock<Vec<_>>> = Arc::default();
        SHELF.lock().insert(site.file.seed, Arc::clone(&entries));
        SortedVec::of(entries)
    }

    fn found(file: &IndexFile<Native>) -> io::Result<Option<Found>> {
        Ok(Some(Found { form: TreeForm::Logs, node_bytes: 0, used: (file.areas_at(), 0) }))
    }

    fn repair(site: &Site<'_, Native>, _claimed: &(impl Keys + Sync)) -> io::Result<SortedVec> {
        SortedVec::of(Arc::clone(&SHELF.lock()[&site.file.seed]))
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sorted vector")
    }

    fn is_ordered(&self) -> bool {
        true
    }

    fn looked_at(&self) -> [u64; 2] {
        [1, 64]
    }

    fn get(&self, _hash: u64, key: &[u8], _items: &(impl Items + Keys)) -> Option<u64> {
        self.found(key)
    }

    fn candidates(
        &self,
        _hashes: &[u64],
        keys: &[&[u8]],
        _together: usize,
        _items: &impl Keys,
        near: impl Fn(u64),
        found: &mut [Option<u64>; BATCH],
    ) {
        for (key, found) in keys.iter().zip(found) {
            *found = self.found(key);
            found.iter().for_each(|at| near(*at));
        }
    }

    fn watch(&self, _hash: u64, _key: &[u8], _items: &impl Keys) -> Count<'_> {
        Count(self, self.overwritten.load(SeqCst))
    }

    fn update_then<T>(
        &self,
        _hash: u64,
        key: &[u8],
        _items: &(impl Items + Keys),
        f: impl FnOnce(Option<u64>, &BucketLock, &mut Changes) -> (Change, T),
        then: impl FnOnce(T, &mut Changes),
    ) -> io::Result<Option<u64>> {
        let mut before = None;
        let alone = |_: Option<u64>, lock: &BucketLock, changes: &mut Changes| {
            before = self.found(key);
            let (change, rest) = f(before, lock, changes);
            self.apply(key, change);
            then(rest, changes);
            (Change::Keep, ())
        };
        self.latch.update_then(0, b"", &NoItems, alone, |(), _| ())?;
        Ok(before)
    }

    fn look<R>(
        &self,
        _hash: u64,
        key: &[u8],
        _items: &(impl Items + Keys),
        f: impl FnOnce(u64) -> R,
    ) -> Option<R> {
        self.found(key).map(f)
    }

    fn update_at(
        &self,
        hash: u64,
        key: &[u8],
        at: u64,
        items: &(impl Items + Keys),
        f: impl FnOnce(&BucketLock, &mut Changes) -> Change,
    ) -> io::Result<bool> {
        let if_at = |found: Option<u64>, lock: &BucketLock, changes: &mut Changes| {
            if found == Some(at) { (f(lock, changes), ()) } else { (Change::Keep, ()) }
        };
        Ok(self.update_then(hash, key, items, if_at, |(), _| ())? == Some(at))
    }

    fn holds(&self, _hash: u64, key: &[u8], at: u64, _items: &(impl Items + Keys)) -> bool {
        self.found(key) == Some(at)
    }

    fn scan(
        &self,
        from: &Position,
        count: usize,
        _items: &(impl Items + Keys),
        mut visit: impl FnMut(u64),
    ) -> Position {
        let entries = self.entries.read();
        let start = match from {
            Position::Start | Position::Bucket(_) => 0,
            Position::At(from) => entries.partition_point(|(key, _)| key[..] < from[..]),
            Position::Key(from) => entries.partition_point(|(key, _)| key[..] <= from[..]),
            Position::End => return Position::End,
        };
        let page = &entries[start..entries.len().min(start + count)];
        page.iter().for_each(|(_, at)| visit(*at));
        page.last().map_or(Position::End, |(key, _)| Position::Key(key[..].into()))
    }

    fn range(
        &self,
        from: Bound<&[u8]>,
        direction: Direction,
        count: usize,
        _items: &impl Keys,
        mut visit: impl FnMut(u64),
    ) -> Result<Option<u64>, Unordered> {
        let entries = self.entries.read();
        let is_in = |key: &[u8]| match (from, direction) {
            (Bound::Unbounded, _) => true,
            (Bound::Included(from), Direction::Up) => key >= from,
            (Bound::Excluded(from), Direction::Up) => key > from,
            (Bound::Included(from), Direction::Down) => key <= from,
            (Bound::Excluded(from), Direction::Down) => key < from,
        };
        let mut ahead: Vec<u64> =
            entries.iter().filter(|(key, _)| is_in(key)).map(|(_, at)| *at).collect();
        if direction == Direction::Down {
            ahead.reverse();
        }
        ahead.iter().take(count).for_each(|at| visit(*at));
        Ok(ahead.get(count).and_then(|_| ahead.get(count - 1)).copied())
    }

    fn walk(
        &self,
        _items: &impl Keys,
        mut visit: impl FnMut(&Entry, u64),
    ) -> Result<(), Unordered> {
        for (key, at) in self.entries.read().iter() {
            visit(&Entry { head: first_16(key), value: value(*at, key) }, 0);
        }
        Ok(())
    }

    fn position_near(&self, random: u64, _items: &impl Keys) -> Position {
        let entries = self.entries.read();
        let some = entries.get(random as usize % entries.len().max(1));
        some.map_or(Position::Start, |(key, _)| Position::At(key[..].into()))
    }

    fn clear(&self, _items: &impl Keys) -> io::Result<()> {
        self.entries.write().clear();
        Ok(())
    }

    fn len(&self) -> u64 {
        self.entries.read().len() as u64
    }

    fn bytes(&self) -> u64 {
        self.entries.read().capacity() as u64 * 32
    }

    fn used(&self, start: u64) -> Vec<(u64, u64)> {
        vec![(start, 0)]
    }
}
