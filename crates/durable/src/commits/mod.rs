//! The commit journal: what a commit does to several maps, noted before any of it is done.
//!
//! The logs of two maps become durable at different moments, so a crash may come between. The journal is the one place
//! where a commit happens: it is in force when its record is there, and whoever opens a map that the crash kept from
//! it does its part then. Two things need that: a transaction that writes to several maps, and the checkpoint of maps
//! that such transactions have tied together (`logs/together.rs`).
//!
//! # What is durable when
//! * [`Commits::begin`] returns when the record survives what it is to survive: a lost machine (synced), or the death
//!   of the process (the kernel has it). Only then is anything done of it. A crash before leaves no record, or one that
//!   does not match its checksum; a crash after leaves all of it.
//! * What is done again at the next opening overwrites what others wrote later. So its keys are kept from others until
//!   [`Commits::end`], which says that it is over; and what they write then is written out behind
//!   [`Commits::sync_ends`], which makes that durable.
//! * A record that need only survive the process names the boot of the kernel. After another boot it counts for
//!   nothing, as the redo logs beside it do, and the maps are as of their last checkpoints.
//! * When the log is full a state takes its place that has the commits under way, and what was left to maps that have
//!   not been opened since.

mod record;

pub use record::{Does, Part, Writes, writes};

use crate::error::{Error, Result, io_error};
use crate::journal::{Journal, JournalPiece, JournalShape, StatePen, Step, Steps, Syncer, WORDS};
use crate::medium::{Medium, MediumSpec};
use crate::redo_log::boot;
use crate::sync::lock;
use parking_lot::{Mutex, MutexGuard};
use record::{Boot, Commit, NO_BOOT, Read};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use terrace_memory::{Memory, Native};

const KIND: [u8; 8] = *b"commits\0";
const STATE_BYTES: u64 = 8 << 20;
const LOG_BYTES: u64 = 8 << 20;

/// Most bytes of what one commit writes, keys, values and what stands around them in logs, which is more than stands
/// around them here.
pub const MOST_COMMIT_BYTES: usize = 4 << 20;
/// Most bytes that are put down of one beside that: names of maps, above all.
const MOST_AROUND: u64 = 64 << 10;

/// What a record is to survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survives {
    /// A lost machine.
    Power,
    /// The death of the process.
    Process,
}

/// Where commits of several maps are noted, whatever memory it lies in.
pub trait Commits: fmt::Debug + Send + Sync {
    /// Notes a commit, of which nothing is done yet; its number. On return it is in force, whatever of that which it
    /// is to survive comes.
    ///
    /// # Errors
    /// [`Error::NoRoom`]: others under way take all the room, or it is longer than [`MOST_COMMIT_BYTES`]; it is not in
    /// force. After those of the medium it may be: its maps must take no more writes until they are opened again.
    fn begin(&self, survives: Survives, parts: Vec<Part>) -> Result<u64>;

    /// A commit was done, and its maps hold it as safely as the record did: it is not done again, but for a crash that
    /// comes before [`Commits::sync_ends`].
    ///
    /// # Errors
    /// Those of the medium: it may be done again at the next opening, before which none of its keys may be written.
    fn end(&self, number: u64) -> Result<()>;

    /// No commit that has ended is done again, whatever comes: before anything becomes durable that was written since.
    ///
    /// # Errors
    /// Those of the medium: nothing may be written out.
    fn sync_ends(&self) -> Result<()>;

    /// What is left to be done to `map` of commits that a process before this one began, in their order.
    fn left(&self, map: &str) -> Vec<Does>;

    /// Nothing is to be done to `map` any more by any commit so far: what was left is done, or it was cleared; durably.
    ///
    /// # Errors
    /// Those of the medium.
    fn forget(&self, map: &str) -> Result<()>;
}

/// Its name in a database.
pub const NAME: &str = "commits";
/// Address space for it.
pub const CAPACITY_BYTES: u64 = 64 << 20;

/// Makes the medium of a journal that is not there yet.
type Make<M> = Box<dyn Fn() -> Result<Medium<M>> + Send + Sync>;

/// What changes.
struct Kept<M: Memory> {
    journal: Option<Journal<M>>,
    last: u64,
    /// Begun by this process, and not ended.
    under_way: BTreeMap<u64, Commit>,
    /// Begun by one before it.
    left: BTreeMap<u64, Commit>,
}

/// The commit journal of a database.
pub struct CommitJournal<M: Memory = Native> {
    make: Make<M>,
    kept: Mutex<Kept<M>>,
    syncer: OnceLock<Arc<Syncer<M>>>,
    /// So many records there were when a commit ended that survives a lost machine.
    ends: AtomicU64,
    /// Held by who syncs: those who come meanwhile share the next sync.
    syncing: Mutex<()>,
    steps: Steps,
    /// That of the kernel; one that no kernel has where it does not say.
    boot: Boot,
}

impl<M: Memory> fmt::Debug for CommitJournal<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommitJournal").finish_non_exhaustive()
    }
}

impl CommitJournal {
    /// The one in the file of `spec`, opened, or made by the first commit.
    ///
    /// # Errors
    /// It is damaged, or no commit journal; those of the medium.
    pub fn open(spec: MediumSpec) -> Result<CommitJournal> {
        // What need only survive the process does not wait for the disk.
        let medium = |spec: &MediumSpec| {
            Medium::open_through(spec, |file| Ok(Box::new(file.in_page_cache()?)))
        };
        let is_there = spec.path.try_exists().map_err(io_error(&spec.path, "look for"))?;
        if !is_there {
            return Ok(CommitJournal::unmade(move || medium(&spec)));
        }
        let mut medium = medium(&spec)?;
        medium.read_all()?;
        CommitJournal::open_in(medium, Steps::ALL)
    }
}

impl<M: Memory> CommitJournal<M> {
    /// One that is made by the first commit, in the medium that `make` gives.
    pub fn unmade(make: impl Fn() -> Result<Medium<M>> + Send + Sync + 'static) -> Self {
        CommitJournal {
            make: Box::new(make),
            kept: Mutex::new(Kept {
                journal: None,
                last: 0,
                under_way: BTreeMap::new(),
                left: BTreeMap::new(),
            }),
            syncer: OnceLock::new(),
            ends: AtomicU64::new(0),
            syncing: Mutex::new(()),
            steps: Steps::ALL,
            boot: boot().unwrap_or(NO_BOOT),
        }
    }

    /// Makes an empty one that is small: for a memory that is a model.
    ///
    /// # Errors
    /// Those of the medium.
    #[cfg(any(test, feature = "faults"))]
    pub fn make_small(medium: Medium<M>) -> Result<()> {
        create(medium, 64 << 10, 64 << 10).map(drop)
    }

    /// Opens one in memory all of which has been read.
    ///
    /// # Errors
    /// It is damaged, or of another kind; those of the medium.
    pub fn open_in(medium: Medium<M>, steps: Steps) -> Result<Self> {
        let mut read = Read::default();
        let (mut journal, found) = Journal::open_in(medium, KIND, steps, |piece| match piece {
            JournalPiece::State(_, state, _) => read.state(state),
            JournalPiece::Record(_, payload) => read.record(payload),
        })?;
        let Read { mut left, last } = read;
        let of_boot = boot();
        left.retain(|_, commit| commit.counts_in(of_boot));
        if journal.medium().access().writes() && found.records > 0 {
            set_state(&mut journal, &[&left])?;
        }
        let syncer = OnceLock::from(journal.syncer());
        let kept = Kept { journal: Some(journal), last, under_way: BTreeMap::new(), left };
        Ok(CommitJournal {
            make: Box::new(|| unreachable!("it is there")),
            kept: Mutex::new(kept),
            syncer,
            ends: AtomicU64::new(0),
            syncing: Mutex::new(()),
            steps,
            boot: of_boot.unwrap_or(NO_BOOT),
        })
    }

    /// Whether something is left for a map.
    pub fn has_left(&self) -> bool {
        !self.lock().left.is_empty()
    }

    fn made(&self, kept: &mut Kept<M>) -> Result<()> {
        if kept.journal.is_none() {
            let journal = create((self.make)()?, STATE_BYTES, LOG_BYTES)?;
            let _first = self.syncer.set(journal.syncer());
            kept.journal = Some(journal);
        }
        Ok(())
    }

    /// Appends a record; how many there are then. Where the log is full, the state has what is under way, durably.
    fn append(&self, kept: &mut Kept<M>, record: &[u8], is_in_state: bool) -> Result<u64> {
        let Kept { journal, under_way, left, .. } = kept;
        let journal = journal.as_mut().expect("made before");
        match journal.append(&[record]) {
            Err(Error::NoRoom { .. }) => {
                set_state(journal, &[left, under_way])?;
                if !is_in_state {
                    journal.append(&[record])?;
                }
            }
            appended => appended?,
        }
        Ok(journal.syncer().appended())
    }

    /// The first `records` records are durable on return. Those who ask at the same time share a sync.
    fn sync(&self, records: u64) -> Result<()> {
        let syncer = self.syncer.get().expect("something was appended");
        if syncer.synced() >= records || !self.steps.has(Step::RecordSync) {
            return Ok(());
        }
        let _leads = lock(syncer.medium().memory(), &self.syncing);
        if syncer.synced() >= records { Ok(()) } else { syncer.sync() }
    }

    fn lock(&self) -> MutexGuard<'_, Kept<M>> {
        match self.syncer.get() {
            Some(syncer) => lock(syncer.medium().memory(), &self.kept),
            None => self.kept.lock(),
        }
    }
}

fn create<M: Memory>(medium: Medium<M>, state_bytes: u64, log_bytes: u64) -> Result<Journal<M>> {
    let words = [0; WORDS];
    let shape = JournalShape { kind: KIND, state_bytes, log_bytes, words };
    Journal::create(medium, shape, words, |_| ())
}

fn set_state<M: Memory>(
    journal: &mut Journal<M>,
    commits: &[&BTreeMap<u64, Commit>],
) -> Result<()> {
    let fill = |pen: &mut StatePen<'_, M>| {
        for (number, commit) in commits.iter().copied().flatten() {
            let record = commit.encode(*number);
            pen.put(&(record.len() as u32).to_le_bytes());
            pen.put(&record);
        }
    };
    journal.set_state([0; WORDS], fill)
}

impl<M: Memory> Commits for CommitJournal<M> {
    fn begin(&self, survives: Survives, parts: Vec<Part>) -> Result<u64> {
        let commit = Commit::new((survives == Survives::Process).then_some(self.boot), parts);
        let (used, limit) = (commit.bytes() as u64, MOST_COMMIT_BYTES as u64);
        if used > limit + MOST_AROUND {
            return Err(Error::NoRoom { used, limit });
        }
        let mut kept = self.lock();
        self.made(&mut kept)?;
        let bytes_of = |commits: &BTreeMap<u64, Commit>| {
            commits.values().map(Commit::bytes).sum::<usize>() as u64
        };
        let (under_way, left) = (bytes_of(&kept.under_way), bytes_of(&kept.left));
        // A checkpoint is short, and ends what others wait for.
        if commit.writes_keys() && used + under_way + left > STATE_BYTES - limit / 4 {
            if under_way == 0 {
                let why = "the commit journal is full of what maps lack that were not opened since a crash: open them";
                return Err(Error::Stopped(why.into()));
            }
            return Err(Error::NoRoom { used: used + under_way + left, limit: STATE_BYTES });
        }
        kept.last += 1;
        let number = kept.last;
        let record = commit.encode(number);
        let records = self.append(&mut kept, &record, false)?;
        kept.under_way.insert(number, commit);
        drop(kept);
        if survives == Survives::Power {
            self.sync(records)?;
        }
        Ok(number)
    }

    fn end(&self, number: u64) -> Result<()> {
        let mut kept = self.lock();
        let Some(ended) = kept.under_way.remove(&number) else { return Ok(()) };
        let records = self.append(&mut kept, &record::end(number), true)?;
        // A checkpoint that is stored again is the same.
        if ended.survives() == Survives::Power && ended.writes_keys() {
            self.ends.fetch_max(records, Ordering::AcqRel);
        }
        Ok(())
    }

    fn sync_ends(&self) -> Result<()> {
        match self.ends.load(Ordering::Acquire) {
            0 => Ok(()),
            records => self.sync(records),
        }
    }

    fn left(&self, map: &str) -> Vec<Does> {
        let kept = self.lock();
        kept.left.values().flat_map(|commit| commit.of(map)).cloned().collect()
    }

    fn forget(&self, map: &str) -> Result<()> {
        let mut kept = self.lock();
        let Kept { journal, under_way, left, .. } = &mut *kept;
        let mut had = false;
        for commit in left.values_mut().chain(under_way.values_mut()) {
            had |= commit.of(map).next().is_some();
            commit.forget(map);
        }
        left.retain(|_, commit| !commit.is_done());
        match journal {
            Some(journal) if had => set_state(journal, &[left, under_way]),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
