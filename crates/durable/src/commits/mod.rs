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
//! * [`Commits::end`] returns when nothing of it will be done again. Until then nobody else may write what it writes:
//!   it would be overwritten by the old value at the next opening.
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

/// Why a commit was not begun.
#[derive(Debug)]
pub enum NotBegun {
    /// Others under way take all the room: try again.
    Yet,
    /// It is not in force.
    Refused(Error),
    /// It may be in force: its maps must take no more writes until they are opened again.
    Unknown(Error),
}

impl NotBegun {
    /// The error, for who does not try again.
    pub fn into_error(self) -> Error {
        match self {
            NotBegun::Yet => Error::NoRoom { used: STATE_BYTES, limit: STATE_BYTES },
            NotBegun::Refused(error) | NotBegun::Unknown(error) => error,
        }
    }
}

/// Where commits of several maps are noted, whatever memory it lies in.
pub trait Commits: fmt::Debug + Send + Sync {
    /// Makes the journal if it is not there yet, so that [`Commits::begin`] does not.
    ///
    /// # Errors
    /// Those of the medium: nothing was noted.
    fn prepare(&self) -> Result<()>;

    /// Notes a commit, of which nothing is done yet; its number. On return it is in force, whatever of that which it
    /// is to survive comes.
    ///
    /// # Errors
    /// [`NotBegun`].
    fn begin(&self, survives: Survives, parts: Vec<Part>) -> std::result::Result<u64, NotBegun>;

    /// A commit was done, and its maps hold it as safely as the record did: it is not done again.
    ///
    /// # Errors
    /// Those of the medium: it may be done again at the next opening, before which none of its keys may be written.
    fn end(&self, number: u64) -> Result<()>;

    /// A commit could not be done here: it is left to whoever opens its maps anew.
    fn abandon(&self, number: u64);

    /// What was found damaged under [`Access::Salvage`](crate::Access): commits may be missing.
    fn damage(&self) -> Option<&str>;

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

impl<M: Memory> Kept<M> {
    /// Whether one more commit may be noted.
    fn check_room(&self, commit: &Commit) -> std::result::Result<(), NotBegun> {
        let journal = self.journal.as_ref().and_then(Journal::failure);
        if let Some(failed) = journal {
            return Err(NotBegun::Refused(Error::Stopped(failed.into())));
        }
        // A checkpoint is short, and ends what others wait for.
        if !commit.writes_keys() {
            return Ok(());
        }
        let (used, limit) = (commit.bytes() as u64, MOST_COMMIT_BYTES as u64);
        if used > limit + MOST_AROUND {
            return Err(NotBegun::Refused(Error::NoRoom { used, limit }));
        }
        let bytes_of = |commits: &BTreeMap<u64, Commit>| {
            commits.values().map(Commit::bytes).sum::<usize>() as u64
        };
        let (under_way, left) = (bytes_of(&self.under_way), bytes_of(&self.left));
        if used + under_way + left <= STATE_BYTES - limit / 4 {
            return Ok(());
        }
        if under_way > 0 {
            return Err(NotBegun::Yet);
        }
        let why = "the commit journal is full of what maps lack that were not opened since a crash: open them";
        Err(NotBegun::Refused(Error::Stopped(why.into())))
    }
}

/// The commit journal of a database.
pub struct CommitJournal<M: Memory = Native> {
    make: Make<M>,
    kept: Mutex<Kept<M>>,
    syncer: OnceLock<Arc<Syncer<M>>>,
    /// Held by who syncs: those who come meanwhile share the next sync.
    syncing: Mutex<()>,
    steps: Steps,
    /// That of the kernel; one that no kernel has where it does not say.
    boot: Boot,
    /// What was damaged when it was opened, where that is passed.
    damage: Option<String>,
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
            Medium::open_through(spec, |file| Ok(Box::new(file.locked()?.in_page_cache()?)))
        };
        let is_there = spec.path.try_exists().map_err(io_error(&spec.path, "look for"))?;
        if !is_there {
            return Ok(CommitJournal::unmade(move || medium(&spec)));
        }
        let opened = medium(&spec).and_then(|mut medium| {
            medium.read_all()?;
            CommitJournal::open_in(medium, Steps::ALL)
        });
        match opened {
            // No commit is begun in what is only read.
            Err(error @ (Error::Damaged { .. } | Error::Io { .. }))
                if spec.access.passes_damage() =>
            {
                let damage = Some(error.to_string());
                let reading = || Err(Error::Stopped("opened to be read".into()));
                Ok(CommitJournal { damage, ..CommitJournal::unmade(reading) })
            }
            Err(Error::Damaged { path, offset, what }) => {
                let what = format!(
                    "{what}; it may hold transactions that maps lack: read what is intact with salvage (--salvage), \
                     export it, and import that into a new directory"
                );
                Err(Error::Damaged { path, offset, what })
            }
            opened => opened,
        }
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
            syncing: Mutex::new(()),
            steps: Steps::ALL,
            boot: boot().unwrap_or(NO_BOOT),
            damage: None,
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
            syncing: Mutex::new(()),
            steps,
            boot: of_boot.unwrap_or(NO_BOOT),
            damage: found.damage,
        })
    }

    /// Whether something is left for a map.
    #[cfg(test)]
    fn has_left(&self) -> bool {
        !self.lock().left.is_empty()
    }

    fn made(&self, kept: &mut Kept<M>) -> Result<()> {
        if kept.journal.is_none() {
            let medium = (self.make)()?;
            if !medium.is_new() {
                let why = "another handle on the database has made the commit journal: close all, and open it anew";
                return Err(Error::Stopped(why.into()));
            }
            let journal = create(medium, STATE_BYTES, LOG_BYTES)?;
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
    fn prepare(&self) -> Result<()> {
        if self.syncer.get().is_some() {
            return Ok(());
        }
        let mut kept = self.lock();
        self.made(&mut kept)
    }

    fn begin(&self, survives: Survives, parts: Vec<Part>) -> std::result::Result<u64, NotBegun> {
        let boot = (survives == Survives::Process).then_some(self.boot);
        let commit = Commit::new(boot, parts);
        let mut kept = self.lock();
        self.made(&mut kept).map_err(NotBegun::Refused)?;
        kept.check_room(&commit)?;
        kept.last += 1;
        let number = kept.last;
        let appended = self.append(&mut kept, &commit.encode(number), false);
        let records = appended.map_err(NotBegun::Unknown)?;
        kept.under_way.insert(number, commit);
        drop(kept);
        if survives == Survives::Power {
            self.sync(records).map_err(|error| {
                self.abandon(number);
                NotBegun::Unknown(error)
            })?;
        }
        Ok(number)
    }

    fn end(&self, number: u64) -> Result<()> {
        let mut kept = self.lock();
        let Some(ended) = kept.under_way.remove(&number) else { return Ok(()) };
        let appended = self.append(&mut kept, &record::end(number), true);
        // A checkpoint that is stored again is the same.
        let must_last = ended.survives() == Survives::Power && ended.writes_keys();
        let ended_durably = match appended {
            Ok(records) if must_last => {
                drop(kept);
                self.sync(records)
            }
            appended => {
                drop(kept);
                appended.map(drop)
            }
        };
        // It may be done again, also by who opens its maps anew here.
        ended_durably.inspect_err(|_| drop(self.lock().left.insert(number, ended)))
    }

    fn abandon(&self, number: u64) {
        let mut kept = self.lock();
        if let Some(commit) = kept.under_way.remove(&number) {
            kept.left.insert(number, commit);
        }
    }

    fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
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
