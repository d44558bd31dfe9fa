//! Maps whose index is persistent: recovery walks it and does not read closed logs, so that the script begins
//! near the end of a long one; or with it all free space and counts, and then there is nothing to find.

use super::super::Settings;
use super::super::exhaustive::Exhaustive;
use super::{
    Design, Leaves, MapSetup, Opening, SEGMENT_BYTES, collector as collecting, contents, script,
    threads,
};
use terrace_durable::{IndexFile, Medium, State};
use terrace_machine::{Crashable, Explorer, Noted, Without};
use terrace_memory::Part;
use terrace_store::laboratory::{Laboratory, TreeForm};
use terrace_store::{Access, Kind, Map, MapOptions, Persist, RecoveryProcedure};
use terrace_workload::history::Call;

/// The collector's scenario takes the most.
pub(super) const VALUES_BYTES: u64 = 9 * SEGMENT_BYTES;
/// A head, allocation metadata, and one table.
const INDEX_BYTES: u64 = (8 << 10) + (VALUES_BYTES / SEGMENT_BYTES) * (16 << 10) + 2 * (64 << 10);

/// Three slots, of which two are used.
const NODE_BYTES: u64 = 128;

type Media = Part<Without<Crashable>>;

/// Values, and the index behind them.
#[derive(Clone, Copy)]
struct WithIndex {
    opening: Opening,
    /// Whether the first log is to be nearly full.
    is_filled: bool,
    persist: Persist,
    /// The form of an ordered map's tree.
    tree: Option<TreeForm>,
}

impl WithIndex {
    fn at(self, persist: Persist) -> WithIndex {
        WithIndex { persist, ..self }
    }

    /// A walk finds that each entry names an item of its own, where a lookup finds it.
    fn walks(&self, memory: &Crashable) -> Result<(), String> {
        let index = Part::new(Without::nothing(memory.clone()), VALUES_BYTES, INDEX_BYTES);
        let file = IndexFile::open(Medium::over(index, false, 0)).map_err(|e| e.to_string())?;
        // As if words were changed one by one.
        file.set_state(State::default());
        let map = MapSetup::open(&self.at(Persist::Index), memory, 1 << 21);
        match &map.recovery().unfit {
            Some(why) => Err(format!("the index is not as it should be: {why}")),
            None => Ok(()),
        }
    }

    fn open(&self, memory: Without<Crashable>, is_new: bool, lifetime: u32) -> Map<Media, Media> {
        let index = Part::new(memory.clone(), VALUES_BYTES, INDEX_BYTES);
        let values = Part::new(memory, 0, VALUES_BYTES);
        let kind = if self.tree.is_some() { Kind::Ordered } else { Kind::Hash };
        // Small leaves: a few keys split them.
        let node_bytes = self.tree.map(|_| NODE_BYTES);
        let WithIndex { persist, tree, .. } = *self;
        let options = self.opening.options();
        let laboratory = Laboratory { tree, node_bytes, ..options.laboratory };
        let options = MapOptions { persist, kind, laboratory, ..options };
        let map = Map::over_with_index(values, index, is_new, lifetime, options);
        map.expect("a crash is no damage")
    }
}

impl MapSetup for WithIndex {
    type Memory = Media;
    type Index = Media;

    fn make(&self, memory: &Crashable) {
        let map = WithIndex::open(self, Without::nothing(memory.clone()), true, 0);
        if self.is_filled {
            fill(&map);
        }
    }

    fn open(&self, memory: &Crashable, lifetime: usize) -> Map<Media, Media> {
        WithIndex::open(self, (self.opening.without)(memory.clone()), false, lifetime as u32)
    }

    /// A crash leaves an index that is walked. With sections nothing has to be found, unless a batch was under way,
    /// nothing leaks, and the values say the same (looked at where the script does not begin in a long log).
    fn audit(&self, map: Map<Media, Media>, memory: &Crashable) -> Result<(), String> {
        if self.persist != Persist::Full {
            // In logs a batch that was not finished is a reason.
            let unfit = map.recovery().unfit.as_ref().filter(|_| map.logs_in_use().is_none());
            return unfit.map_or(Ok(()), |why| Err(format!("a crash is no damage: {why}")));
        }
        let recovery = map.recovery();
        let has_batches = map.logs_in_use().is_some();
        if recovery.procedure != RecoveryProcedure::Replay && !has_batches {
            return Err(format!("not as it should be: {recovery:?}"));
        }
        if let Some(census) = map.check_slots() {
            let census = census?;
            if census.live != map.len() {
                return Err(format!("{} slots hold items of {} keys", census.live, map.len()));
            }
        }
        let found = contents(&map)?;
        if found.len() as u64 != map.len() {
            return Err(format!("{} keys are counted, {} are there", map.len(), found.len()));
        }
        drop(map);
        self.walks(memory)?;
        if self.is_filled {
            // Reading a whole log takes longer than all else.
            return Ok(());
        }
        let values = Part::new(Without::nothing(memory.clone()), 0, VALUES_BYTES);
        let read = Map::over(values, false, 1 << 20, self.opening.options());
        let read = contents(&read.map_err(|e| e.to_string())?)?;
        if read == found {
            return Ok(());
        }
        Err(format!("the values say {read:?}, the index {found:?}"))
    }
}

/// Leaves little room in the current log, so that the script goes on in the next.
fn fill(map: &Map<Media, Media>) {
    const ROOM: usize = 3000;
    let key = u64::MAX.to_be_bytes();
    let fourth = vec![1; 1 << 20];
    (0..3).for_each(|_| map.put(&key, &fourth).expect("put"));
    map.put(&key, &fourth[ROOM..]).expect("put");
    map.delete(&key).expect("delete");
}

pub(in super::super) fn explorer(design: Design, settings: &Settings) -> Explorer<usize> {
    let opening = Opening::new(design, settings);
    let place = WithIndex {
        opening,
        is_filled: design == Design::Logs,
        persist: Persist::Index,
        tree: None,
    };
    script::explorer_on(place, design, VALUES_BYTES + INDEX_BYTES, settings)
}

/// An ordered map, with a tree of this form.
pub(in super::super) fn ordered(
    without: Leaves,
    tree: TreeForm,
    design: Design,
    settings: &Settings,
) -> Explorer<usize> {
    let opening = Opening { without, ..Opening::new(design, settings) };
    let is_filled = design == Design::Logs;
    let place = WithIndex { opening, is_filled, persist: Persist::Index, tree: Some(tree) };
    script::explorer_on(place, design, VALUES_BYTES + INDEX_BYTES, settings)
}

/// The same, of two threads on the same keys.
pub(in super::super) fn ordered_threads(
    tree: TreeForm,
    design: Design,
    settings: &Settings,
) -> Explorer<threads::Note> {
    let opening = Opening { writers: threads::THREADS, ..Opening::new(design, settings) };
    let place = WithIndex { opening, is_filled: false, persist: Persist::Index, tree: Some(tree) };
    threads::explorer_on(place, design, VALUES_BYTES + INDEX_BYTES, settings)
}

/// Every operation a section.
pub(in super::super) fn full(
    without: Leaves,
    design: Design,
    settings: &Settings,
) -> Explorer<usize> {
    let opening = Opening { without, ..Opening::new(design, settings) };
    let place = WithIndex {
        opening,
        is_filled: design == Design::Logs,
        persist: Persist::Full,
        tree: None,
    };
    script::explorer_on(place, design, VALUES_BYTES + INDEX_BYTES, settings)
}

/// The same, of two threads.
pub(in super::super) fn full_shared(
    without: Leaves,
    design: Design,
    settings: &Settings,
) -> Explorer<threads::Note> {
    let opening = Opening::new(design, settings);
    let opening = Opening { without, writers: threads::THREADS, ..opening };
    let place = WithIndex { opening, is_filled: false, persist: Persist::Full, tree: None };
    threads::explorer_on(place, design, VALUES_BYTES + INDEX_BYTES, settings)
}

/// Two threads on the same keys: what one reads of the other's entries survives.
pub(in super::super) fn shared(design: Design, settings: &Settings) -> Explorer<threads::Note> {
    let opening = Opening { writers: threads::THREADS, ..Opening::new(design, settings) };
    let place = WithIndex { opening, is_filled: false, persist: Persist::Index, tree: None };
    threads::explorer_on(place, design, VALUES_BYTES + INDEX_BYTES, settings)
}

/// One thread puts a key, the other looks: few enough steps for every schedule within the bound on preemptions.
pub(in super::super) fn look(design: Design, settings: &Settings) -> Exhaustive<threads::Note> {
    let opening = Opening { writers: threads::THREADS, ..Opening::new(design, settings) };
    let place = WithIndex { opening, is_filled: false, persist: Persist::Index, tree: None };
    // An item of few words: any subset of them may survive.
    let scripts = [vec![(0, Call::Put(2))], vec![(0, Call::Get)]];
    let bytes = VALUES_BYTES + INDEX_BYTES;
    Exhaustive(threads::scripted(place, design == Design::Slabs, bytes, settings, scripts))
}

/// The collector at work on a map whose every operation is a section.
pub(in super::super) fn full_collector(settings: &Settings) -> Explorer<usize> {
    let opening = Opening::new(Design::Logs, settings);
    let place = WithIndex { opening, is_filled: false, persist: Persist::Full, tree: None };
    let bytes = VALUES_BYTES + INDEX_BYTES;
    collecting::explorer_on(place, place, settings.domain, bytes)
}

/// The collector of values at work on an ordered map whose index is in logs, where each item that it moves, and each
/// tombstone that it forgets, is a delta.
pub(in super::super) fn collector_in_logs(settings: &Settings) -> Explorer<usize> {
    let opening = Opening::new(Design::Logs, settings);
    let tree = Some(TreeForm::Logs);
    let place = WithIndex { opening, is_filled: false, persist: Persist::Index, tree };
    let bytes = VALUES_BYTES + INDEX_BYTES;
    collecting::explorer_on(place, place, settings.domain, bytes)
}

/// Keys of [`levels`].
const KEYS: u64 = 8;

/// What is kept changes between crashes: sections, then words, then sections again, with the values read
/// alone before. No bucket stays locked, and index and values agree at each turn.
pub(in super::super) fn levels(design: Design, settings: &Settings) -> Explorer<u64> {
    let opening = Opening::new(design, settings);
    let full = WithIndex { opening, is_filled: false, persist: Persist::Full, tree: None };
    let write = move |map: Map<Media, Media>, value: u8| {
        let keys = (0..KEYS).map(u64::to_be_bytes);
        keys.for_each(|key| map.put(&key, &[value; 20]).expect("put"));
    };
    Explorer::new(settings.domain, VALUES_BYTES + INDEX_BYTES)
        .setup(move |memory| {
            full.make(memory);
            drop(MapSetup::open(&full, memory, 1));
        })
        .thread(move |memory, log| {
            let map = MapSetup::open(&full, memory, 2);
            for number in 0..KEYS {
                map.put(&number.to_be_bytes(), &[1; 20]).expect("put");
                log.note(number + 1);
            }
        })
        .recover(move |memory| {
            // A reading that is cut off before the values name no index any more.
            let values = Part::new(Without::nothing(memory.clone()), 0, VALUES_BYTES);
            let lifetime = 10 * (1 + memory.crashes() as u32);
            drop(Map::over(values, false, lifetime, opening.options()).expect("no damage"));
            for (more, persist) in [(1, Persist::Full), (2, Persist::Index), (3, Persist::Full)] {
                let map = MapSetup::open(&full.at(persist), memory, (lifetime + more) as usize);
                map.put(&KEYS.to_be_bytes(), &[more as u8; 20]).expect("put");
            }
        })
        .check(move |memory, notes: &[Noted<u64>]| {
            let done = notes.last().map_or(0, |note| note.event);
            let lifetime = 100 + memory.crashes();
            let map = MapSetup::open(&full, memory, lifetime);
            let mut found = contents(&map)?;
            found.remove(&KEYS);
            let count = found.len() as u64;
            if !(done..=done + 1).contains(&count) || !found.keys().copied().eq(0..count) {
                return Err(format!("after {done} keys: {found:?}"));
            }
            full.audit(map, memory)?;
            let map = MapSetup::open(&full, memory, lifetime + 1);
            write(map, 2);
            Ok(())
        })
        .crashes(2)
}

/// A map whose every operation is a section is cut off between updates of three keys, and what its values
/// hold is read with salvage: the last section counts too, or an item could be gone before its successor
/// is there.
pub(in super::super) fn salvage(design: Design, settings: &Settings) -> Explorer<u64> {
    const SOME: u64 = 3;
    let opening = Opening::new(design, settings);
    let full = WithIndex { opening, is_filled: false, persist: Persist::Full, tree: None };
    let value = |write: u64| [write as u8; 20];
    Explorer::new(settings.domain, VALUES_BYTES + INDEX_BYTES)
        .setup(move |memory| full.make(memory))
        .thread(move |memory, log| {
            let map = MapSetup::open(&full, memory, 2);
            for write in 0..4 * SOME {
                map.put(&(write % SOME).to_be_bytes(), &value(write)).expect("put");
                log.note(write + 1);
            }
        })
        .check(move |memory, notes: &[Noted<u64>]| {
            let done = notes.last().map_or(0, |note| note.event);
            let values = Part::new(Without::nothing(memory.clone()), 0, VALUES_BYTES);
            let options = MapOptions { access: Access::Salvage, ..opening.options() };
            let map = Map::over(values, false, 3, options).map_err(|e| e.to_string())?;
            let found = contents(&map)?;
            let is_right = (0..SOME).all(|key| {
                let last = (0..done).rev().find(|write| write % SOME == key);
                let under_way = Some(done).filter(|write| write % SOME == key);
                let found = found.get(&key).map(Vec::as_slice);
                [last, under_way]
                    .iter()
                    .any(|write| found == write.map(value).as_ref().map(|v| &v[..]))
            });
            if is_right {
                return Ok(());
            }
            Err(format!("after {done} updates salvage finds {found:?}"))
        })
}
