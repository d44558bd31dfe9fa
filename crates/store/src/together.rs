//! Maps that change together: a transaction that writes to several is in all of them after a crash, or in none.
//!
//! # What is durable when
//! Before anything is written, the database's commit journal ([`Commits`]) says what will be. From then on the
//! transaction is in force; what a crash keeps from a map is written when that is opened ([`Engine::take_in_commits`]).
//! Its keys stay reserved until all maps hold it as safely as the journal did and that is noted, so nothing that others
//! wrote later is overwritten then. What the journal's record survives is what the maps promise:
//!
//! | maps | record | maps hold it when | checkpoints |
//! |---|---|---|---|
//! | every item counts (`sync`) | synced, after what was written before it is durable | their logs are synced | alone |
//! | `interval` | outlives the process | it is in their redo logs | together |
//! | `none` | none | | together |
//!
//! *Together* means at one instant and as one (`durable/src/logs/together.rs`): after a lost machine all maps are as of
//! the same moment, which is a prefix of the history of each. The ties are in memory: after the death of the process a
//! map that is opened before the others takes its checkpoint alone (`docs/decisions/0050-a-commit-journal.md`).

use crate::engine::Engine;
use crate::error::Result;
use crate::options::{Durability, MapOptions};
use crate::recover::RecoveryReport;
use parking_lot::Mutex;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Instant;
use terrace_durable::commits::{self, writes};
use terrace_durable::logs::checkpoint_together;
use terrace_durable::superblock::Rule;
use terrace_durable::values::Damage;
use terrace_durable::{
    CommitJournal, Commits, Does, Error as Below, MediumSpec, NotBegun, Survives, Values,
};
use terrace_memory::Memory;

/// Where the maps of a database note transactions that write to several of them.
#[derive(Clone, Debug)]
pub struct Together(Arc<dyn Commits>);

impl Together {
    /// The one in `dir`, whose maps have `options`; its file is made by the first such transaction.
    ///
    /// ```
    /// use terrace_store::{Map, MapOptions, Together};
    /// # let dir = tempfile::tempdir()?;
    /// let options = MapOptions::default();
    /// let together = Together::in_directory(dir.path(), &options)?;
    /// let open = |name| {
    ///     let database = Some(together.map(name));
    ///     Map::open(&dir.path().join(name), MapOptions { database, ..options.clone() })
    /// };
    /// let (stock, orders) = (open("stock")?, open("orders")?);
    /// let mut transaction = options.moments.begin();
    /// transaction.put(&stock, b"chair", b"6")?;
    /// transaction.put(&orders, b"1", b"chair")?;
    /// transaction.commit()?; // both, or none of them, whatever comes
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The file is damaged; those of the system.
    pub fn in_directory(dir: &Path, options: &MapOptions) -> Result<Together> {
        let spec = MediumSpec {
            path: dir.join(commits::NAME),
            domain: options.domain,
            dax: options.dax,
            capacity_bytes: commits::CAPACITY_BYTES,
            access: options.access,
        };
        Ok(Together(Arc::new(CommitJournal::open(spec)?)))
    }

    /// One that lies elsewhere.
    #[doc(hidden)]
    pub fn by(commits: Arc<dyn Commits>) -> Together {
        Together(commits)
    }

    /// The place of the map that is called `name` in the database, now and whenever it is opened.
    pub fn map(&self, name: &str) -> InDatabase {
        InDatabase { commits: Arc::clone(&self.0), name: name.into() }
    }
}

/// A map's place in a database: by which it takes part in transactions that write to several maps.
#[derive(Clone, Debug)]
pub struct InDatabase {
    pub(crate) commits: Arc<dyn Commits>,
    pub(crate) name: Arc<str>,
}

/// What a transaction's record is to survive, given what the maps promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// What was written survives as soon as it is committed.
    Survives(Survives),
    /// Nothing is promised but a prefix.
    Prefix,
}

/// The maps that a map's next checkpoint is taken together with. Each of them takes it before it is closed.
pub(crate) type Tied<M, I> = Mutex<Vec<Weak<Engine<M, I>>>>;

impl<M: Memory, I: Memory> Engine<M, I> {
    /// What is promised of what is written now. It does not change while a writer is held.
    pub fn promise(&self) -> Promise {
        if self.values.rule() == Rule::All {
            return Promise::Survives(Survives::Power);
        }
        let has_redo = self.values.logs().is_some_and(|logs| logs.has_redo());
        match self.durability.get() {
            Durability::Interval(_) => Promise::Survives(Survives::Process),
            _ if has_redo => Promise::Survives(Survives::Process),
            _ => Promise::Prefix,
        }
    }

    /// Ties maps: none of them takes a checkpoint alone before one was taken of all. The caller holds a writer of each.
    pub fn tie(engines: &[&Arc<Engine<M, I>>]) {
        for engine in engines {
            let mut tied = engine.tied.lock();
            for other in engines.iter().filter(|other| !Arc::ptr_eq(other, engine)) {
                let other = Arc::downgrade(other);
                if !tied.iter().any(|known| Weak::ptr_eq(known, &other)) {
                    tied.push(other);
                }
            }
            drop(tied);
            engine.values.logs().iter().for_each(|logs| logs.tie());
        }
    }

    /// This map and all that it is tied to, also by way of others, in the order in which maps are locked. None if one
    /// of them has gone without the checkpoint.
    fn tied_with(self: &Arc<Self>) -> Option<Vec<Arc<Self>>> {
        let mut all = vec![Arc::clone(self)];
        let mut looked_at = 0;
        while let Some(engine) = all.get(looked_at).cloned() {
            looked_at += 1;
            for other in engine.tied.lock().iter() {
                let other = other.upgrade()?;
                if !all.iter().any(|known| Arc::ptr_eq(known, &other)) {
                    all.push(other);
                }
            }
        }
        all.sort_unstable_by_key(|engine| engine.number);
        Some(all)
    }

    /// A checkpoint of this map and all that it is tied to.
    ///
    /// # Errors
    /// Those of the media; then none of them takes any more.
    pub fn checkpoint_together(self: &Arc<Self>) -> terrace_durable::Result<()> {
        let Some(database) = &self.database else { return Ok(()) };
        loop {
            let Some(all) = self.tied_with() else {
                let why = "a map that it shares a transaction with failed: open the maps anew";
                self.values.stop(why.into());
                return Err(Below::Stopped(why.into()));
            };
            let with_logs = all.iter().filter_map(|engine| {
                let name = &engine.database.as_ref()?.name;
                Some((engine.values.logs()?, Arc::clone(name)))
            });
            let maps: Vec<_> = with_logs.collect();
            let is_whole = || {
                let now = self.tied_with();
                let is_same = now.is_some_and(|now| {
                    now.len() == all.len() && now.iter().zip(&all).all(|(a, b)| Arc::ptr_eq(a, b))
                });
                if is_same {
                    all.iter().for_each(|engine| engine.tied.lock().clear());
                }
                is_same
            };
            if checkpoint_together(&maps, is_whole, &*database.commits)? {
                return Ok(());
            }
        }
    }

    /// Writes what transactions were to write here that a process before this one began, durably on return, or in
    /// memory alone where the map is only read.
    ///
    /// # Errors
    /// Those of the medium, and of a write.
    pub fn take_in_commits(&mut self, recovery: &mut RecoveryReport) -> Result<()> {
        let Some(InDatabase { commits, name }) = self.database.clone() else { return Ok(()) };
        let lost = |what: &str| Damage { offset: 0, bytes: 0, what: what.into() };
        recovery.damage.extend(commits.damage().map(lost));
        let left = commits.left(&name);
        if left.is_empty() {
            return Ok(());
        }
        let start = Instant::now();
        // What was left is of an earlier map of the name, where this one is new.
        if !self.values.medium().is_new() {
            for does in &left {
                if let Does::Writes(bytes) = does {
                    self.write_again(&writes(bytes))?;
                }
            }
        }
        if let Some(reason) = self.plan.access.refusal() {
            self.values.all_is_read(reason);
        } else {
            self.values.flush_all()?;
            commits.forget(&name)?;
        }
        recovery.keys = self.len();
        recovery.steps.push(("finish transactions over several maps", start.elapsed()));
        recovery.elapsed += start.elapsed();
        Ok(())
    }
}

/// A transaction that is noted, and not over; dropped before its end it stops the maps: what they lack is written when
/// they are opened anew, and nothing may be written over it before.
pub(crate) struct Noted<'a, M: Memory, I: Memory> {
    engines: Vec<&'a Arc<Engine<M, I>>>,
    commits: Arc<dyn Commits>,
    number: Option<u64>,
}

impl<'a, M: Memory, I: Memory> Noted<'a, M, I> {
    /// Notes what is to be written to each map. None if others take all the room
    /// for that now.
    ///
    /// # Errors
    /// Those of the journal's medium: if it may be in force, the maps are stopped.
    pub fn begin(
        engines: &[&'a Arc<Engine<M, I>>],
        survives: Survives,
        does: Vec<Does>,
    ) -> Result<Option<Noted<'a, M, I>>> {
        let database = |engine: &&Arc<Engine<M, I>>| engine.database.clone();
        let databases: Vec<InDatabase> = engines.iter().filter_map(database).collect();
        let commits = Arc::clone(&databases[0].commits);
        let part = |(InDatabase { name, .. }, does)| terrace_durable::Part { map: name, does };
        let parts = databases.into_iter().zip(does).map(part).collect();
        let mut noted = Noted { engines: engines.to_vec(), commits, number: None };
        let begun = noted.commits.begin(survives, parts);
        if !matches!(begun, Err(NotBegun::Unknown(_)) | Ok(_)) {
            noted.engines.clear();
        }
        match begun {
            Ok(number) => {
                noted.number = Some(number);
                Ok(Some(noted))
            }
            Err(NotBegun::Yet) => Ok(None),
            Err(NotBegun::Refused(error) | NotBegun::Unknown(error)) => Err(error.into()),
        }
    }

    /// Says that it is over before it is, by mistake.
    #[cfg(any(test, feature = "faults"))]
    pub fn end_early(&self) -> Result<()> {
        let has_fault = |logs: &terrace_durable::logs::Logs<M>| {
            logs.has_fault(terrace_durable::logs::Fault::EndedEarly)
        };
        match self.engines[0].values.logs() {
            Some(logs) if has_fault(logs) => Ok(self.commits.end(self.number.expect("begun"))?),
            _ => Ok(()),
        }
    }

    /// Nothing of it was written, and nothing will be.
    ///
    /// # Errors
    /// Those of the journal's medium.
    pub fn takes_back(&self) -> Result<()> {
        Ok(self.commits.end(self.number.expect("begun"))?)
    }

    /// It is over: all maps hold it, or nothing of it was written.
    ///
    /// # Errors
    /// Those of the journal's medium: the maps are stopped then.
    pub fn end(mut self) -> Result<()> {
        let number = self.number.expect("begun");
        self.commits.end(number)?;
        self.engines.clear();
        Ok(())
    }
}

impl<M: Memory, I: Memory> Drop for Noted<'_, M, I> {
    fn drop(&mut self) {
        if self.engines.is_empty() {
            return;
        }
        for engine in &self.engines {
            engine.values.stop("a transaction over several maps failed; open the maps anew".into());
        }
        let Some(number) = self.number else { return };
        self.commits.abandon(number);
        // Who has a writer already writes, but not what is still reserved: it would be written over.
        self.engines.iter().for_each(|engine| engine.values.await_writers());
    }
}
