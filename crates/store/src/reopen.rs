//! Opening a map with a persistent index: reopening it, or rebuilding it from the values.
//!
//! In this order: the last section is replayed, if there was one, whatever the map is opened as, since
//! its words may have been told. Then the index is reopened with its allocation metadata, if that may be relied on;
//! or it is repaired and walked; or, if it does not fit the values (a crash while it was made or
//! cleared, a batch that was never finished, damage), it is rebuilt from them: they alone say what
//! the map holds.
//!
//! # What is durable when
//! The values name the index that goes with them by its mark. It is made under no mark, and named when
//! it is whole; a crash before that finds values without an index. What its [`State`] says to be exact
//! is exact before it says so, and it stops saying so before the first change that would not be a
//! section's. Each opening gives the index another mark, so that the index of a backup does not pass
//! for the present one.

use crate::engine::{Engine, Stored};
use crate::error::{Error, Result};
use crate::index::{Claimed, Found, Index, KeyIndex, Position, Site};
use crate::kept::{IndexPlace, Kept, index_error};
use crate::open::Opening;
use crate::recover::{Opened, RecoveryProcedure, RecoveryReport, read_by, report, walked_by};
use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use terrace_durable::sections::Joint;
use terrace_durable::superblock::MAX_OPEN;
use terrace_durable::values::Entries;
use terrace_durable::values::Recovered;
use terrace_durable::{Allocation, Error as Below, IndexFile, State, Values};
use terrace_index::hash_key;
use terrace_memory::{Divide, Memory};

/// An index that was found to fit, and what was found.
struct Fit<M: Memory, I: Memory> {
    engine: Engine<M, I>,
    file: IndexFile<I>,
    found: Recovered,
    procedure: RecoveryProcedure,
    /// Why it could not be reopened with its allocation metadata, though it said so.
    unfit: Option<String>,
}

/// Entries looked at together.
const PAGE: usize = 1000;

/// An index that does not fit, and why.
type Unfit<M> = (Stored<M>, String);

type Tried<M, I> = Result<std::result::Result<Fit<M, I>, Unfit<M>>>;

impl Opening<'_> {
    /// Reopens the persistent index, or makes it from the values if none goes with them.
    ///
    /// # Errors
    /// Those of the two media.
    pub fn reopen_index<M: Memory, I: Divide>(
        &self,
        values: Stored<M>,
        place: &impl IndexPlace<I>,
    ) -> Result<Opened<M, I>> {
        let begin = Instant::now();
        // What is found out later may have changed the index.
        values.check_known()?;
        let (found, was_full) = self.find(&values, place)?;
        let is_full = self.plan.is_full(was_full)?;
        let joint = self.replay(&values, found.as_ref().ok())?;
        let to_rebuild = match &found {
            Ok(file) if self.plan.is_ordered() => self.check_form(file, &place.path())?,
            _ => None,
        };
        let tried = match (found, to_rebuild) {
            (Ok(file), None) => self.try_file(values, file, place)?,
            (Ok(_), Some(why)) | (Err(why), _) => Err((values, why)),
        };
        let mut fit = match tried {
            Ok(fit) => fit,
            Err((values, why)) => {
                // Where none was kept there is nothing to say.
                let was_kept = values.index_mark() != 0;
                Fit { unfit: was_kept.then_some(why), ..self.make(values, place)? }
            }
        };
        self.name(&mut fit, is_full)?;
        let Fit { mut engine, file, found, procedure, unfit } = fit;
        let allocation = file.allocation();
        if is_full {
            engine.values.keep_allocation(allocation.pages());
            engine.index.use_sections();
        }
        engine.kept = Some(Kept { file, allocation, sections: is_full.then_some(joint) });
        let kept = Some(engine.index.to_string());
        let mut report = RecoveryReport { unfit, kept, ..report(&engine, found, procedure) };
        let steps: Duration = report.steps.iter().map(|(_, took)| *took).sum();
        report.elapsed = begin.elapsed();
        report.steps.push(("open, check and name the index", report.elapsed.saturating_sub(steps)));
        Ok((engine, report))
    }

    /// The index that the values name, and whether each operation on what lies there was a section.
    fn find<M: Memory, I: Divide>(
        &self,
        values: &Stored<M>,
        place: &impl IndexPlace<I>,
    ) -> Result<(std::result::Result<IndexFile<I>, String>, bool)> {
        let mark = values.index_mark();
        if mark == 0 {
            return Ok((Err("no index goes with the values".into()), false));
        }
        let existing = place.existing();
        let was_full = matches!(&existing, Ok(Some(file)) if file.state().is_full);
        let found = match existing {
            Ok(Some(file)) if !file.marks.contains(&mark) => {
                Err("the index belongs to other values".into())
            }
            Ok(Some(file)) if (file.tables == 0) != self.plan.is_ordered() => {
                Err("the index is of another kind".into())
            }
            Ok(Some(file)) if !file.is_present_format() => {
                Err(named(place, "it was made by an earlier version; it is rebuilt"))
            }
            Ok(Some(file)) if !file.has_pages(values.allocation_pages()) => {
                Err("the index was made for less memory".into())
            }
            Ok(Some(file)) => Ok(file),
            Ok(None) => Err("the index is missing".into()),
            Err(error @ (Below::Damaged { .. } | Below::Mismatch { .. })) => Err(error.to_string()),
            Err(error) => return Err(error.into()),
        };
        Ok((found, was_full))
    }

    /// Replays the last section, as far as what it changed is there, and makes the log void.
    ///
    /// # Errors
    /// Those of the media.
    pub fn replay<M: Memory, I: Memory>(
        &self,
        values: &Stored<M>,
        file: Option<&IndexFile<I>>,
    ) -> Result<Joint> {
        let medium = values.medium();
        let values_bytes = if medium.is_byte_addressable() { medium.file_bytes()? } else { 0 };
        if values_bytes > 0 {
            // Before anything is changed: a file that is refused keeps its section.
            values.check_known()?;
        }
        medium.commit(0, Joint::VALUES_BYTES.min(values_bytes))?;
        // Where no section was ever logged there is nothing to be replayed.
        let values_bytes = if medium.is_hole(Joint::VALUES_FROM) { 0 } else { values_bytes };
        // A part of a segment may lie beyond the mapping.
        let values_bytes = values_bytes.min(medium.capacity_bytes());
        let index = match file {
            Some(file) => Some((file.memory(), file.file_bytes()?)),
            None => None,
        };
        let (joint, _words) = Joint::open((medium.memory(), values_bytes), index);
        Ok(joint)
    }

    /// Refuses a form or a size of nodes that was asked for where the file has another, and says why the tree is to be
    /// rebuilt if the product does not make such ones.
    ///
    /// # Errors
    /// [`Error::Option`]; those of the medium.
    fn check_form<I: Divide>(&self, file: &IndexFile<I>, path: &Path) -> Result<Option<String>> {
        let found = Index::found(file).map_err(|source| Error::Io {
            path: path.into(),
            doing: "read the leaves of",
            source,
        })?;
        // An illegible one is damage, and rebuilt as was asked for.
        let Some(Found { form, node_bytes, .. }) = found else { return Ok(None) };
        let refused = |field, asked: String, has: String| {
            let why = format!(
                "{asked} was asked for, and the tree in {} has {has}; ask for that or for auto, or open the map \
                 once with persist = \"values\", and the tree is rebuilt",
                path.display()
            );
            Err(Error::Option { field, why })
        };
        match self.plan.mapped().tree.asked {
            (Some(asked), _) if asked != form => {
                refused("index", format!("\"{asked}\""), format!("\"{form}\""))
            }
            (_, Some(asked)) if asked != node_bytes => {
                refused("node_bytes", asked.to_string(), node_bytes.to_string())
            }
            (None, _) if !form.is_product() => {
                let now = self.plan.mapped().tree.form;
                Ok(Some(format!(
                    "{form} is of the laboratory alone; rebuilt as {now} from the values"
                )))
            }
            _ => Ok(None),
        }
    }

    fn try_file<M: Memory, I: Divide>(
        &self,
        values: Stored<M>,
        file: IndexFile<I>,
        place: &impl IndexPlace<I>,
    ) -> Tried<M, I> {
        let state = file.state();
        if !state.is_exact {
            return self.walk(values, file, place, None);
        }
        let (allocation, end) = (file.allocation(), values.segments_in_file()?);
        allocation.grow(end)?;
        let is_intact = |used: &[(u64, u64)]| {
            Ok(!state.is_closed || file.is_as_closed(used).map_err(io::Error::other)?)
        };
        let inner = |bytes| place.inner(bytes);
        let site = Site { opening: self, file: &file, inner: &inner };
        let index = match Index::reopen(&site, &Claimed::of(&values), is_intact) {
            Ok(index) => index,
            // No crash explains it, of one at rest or whose changes were sections: what was lost no walk would miss.
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                return Ok(Err((values, named(place, error))));
            }
            Err(error) => return Err(index_error(place)(error)),
        };
        let engine = self.engine(values, index, file.seed);
        match reopen_allocation(&engine, &allocation) {
            Ok(found) => {
                let procedure = if state.is_closed {
                    RecoveryProcedure::AsClosed
                } else {
                    RecoveryProcedure::Replay
                };
                // Nobody has read them.
                engine.values.verify_on_read();
                Ok(Ok(Fit { engine, file, found, procedure, unfit: None }))
            }
            Err(Error::Medium(Below::Unfit(why))) => {
                let Engine { values, index, .. } = engine;
                drop(index);
                // The index itself was found whole.
                self.walk(values, file, place, Some(why))
            }
            Err(error) => Err(error),
        }
    }

    /// Repairs the index, verifies what it names, and finds the rest.
    fn walk<M: Memory, I: Divide>(
        &self,
        values: Stored<M>,
        file: IndexFile<I>,
        place: &impl IndexPlace<I>,
        unfit: Option<String>,
    ) -> Tried<M, I> {
        let inner = |bytes| place.inner(bytes);
        let site = Site { opening: self, file: &file, inner: &inner };
        let index = match Index::repair(&site, &Claimed::of(&values)) {
            Ok(index) => index,
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                return Ok(Err((values, named(place, error))));
            }
            Err(error) => return Err(index_error(place)(error)),
        };
        // What the walk finds to be changed is no section's.
        file.set_state(State { is_exact: false, is_closed: false, ..file.state() });
        let engine = self.engine(values, index, file.seed);
        match self.reach(&engine, file.areas_at()) {
            Ok(found) => {
                let procedure = walked_by(&engine);
                Ok(Ok(Fit { engine, file, found, procedure, unfit }))
            }
            Err(Error::Medium(Below::Unfit(why))) => Ok(Err((engine.values, named(place, why)))),
            Err(error) => Err(error),
        }
    }

    /// Makes an index of the values.
    fn make<M: Memory, I: Divide>(
        &self,
        values: Stored<M>,
        place: &impl IndexPlace<I>,
    ) -> Result<Fit<M, I>> {
        values.set_index_mark(0)?;
        // Follows from the lifetime: where that is given, a run can be repeated.
        let seed = hash_key(u64::from(values.medium().lifetime()), b"seed");
        let tables = if self.plan.is_ordered() { 0 } else { self.tables() as u32 };
        let mark = new_mark(&values);
        let file = place.make(tables, seed, mark, values.allocation_pages())?;
        let inner = |bytes| place.inner(bytes);
        let index = Index::create(&Site { opening: self, file: &file, inner: &inner });
        let engine = self.engine(values, index.map_err(index_error(place))?, file.seed);
        let found = self.read_into(&engine)?;
        let procedure = read_by(&engine);
        Ok(Fit { engine, file, found, procedure, unfit: None })
    }

    /// Makes allocation metadata where sections are to keep it exact, and has the values name the index.
    fn name<M: Memory, I: Memory>(&self, fit: &mut Fit<M, I>, is_full: bool) -> Result<()> {
        let Fit { engine, file, .. } = fit;
        let values = &engine.values;
        if is_full {
            values.medium().grow(0, Joint::VALUES_BYTES)?;
            if !matches!(fit.procedure, RecoveryProcedure::Replay | RecoveryProcedure::AsClosed) {
                engine.write_allocation(&file.allocation())?;
            }
        }
        file.set_state(State { is_full, is_exact: is_full, is_closed: false });
        if values.index_mark() == 0 {
            // It was made.
            file.publish()?;
            values.set_index_mark(file.marks[0])?;
        } else {
            let mark = new_mark(values);
            file.add_mark(mark);
            values.set_index_mark(mark)?;
            file.forget_mark();
        }
        Ok(())
    }
}

/// Takes counts and free space from the allocation metadata.
fn reopen_allocation<M: Memory, I: Memory>(
    engine: &Engine<M, I>,
    allocation: &Allocation<I>,
) -> Result<Recovered> {
    let is_checked = !engine.index.is_ordered();
    let entries = |f: &mut dyn FnMut(u64)| {
        // An ordered index is exact only as it was closed, and has a checksum then, with its allocation metadata.
        let mut reached = if is_checked { Position::Start } else { Position::End };
        let guard = crossbeam_epoch::pin();
        while reached != Position::End {
            reached = engine.index.scan(&reached, PAGE, &engine.located(&guard), &mut *f);
        }
    };
    let get = |at, words: &mut [u64]| allocation.read(at, words);
    let keys = (0..MAX_OPEN).map(|writer| allocation.load(allocation.keys(writer)));
    let keys = keys.fold(0, u64::wrapping_add);
    if keys > engine.index.len() {
        let what =
            format!("{keys} keys were counted, and there are {} entries", engine.index.len());
        return Err(Error::Medium(Below::Unfit(what)));
    }
    let entries: Option<Entries<'_>> = if is_checked { Some(&entries) } else { None };
    let found = engine.values.recover_allocation(&allocation.pages(), &get, entries)?;
    engine.written[0].keys.store(keys as i64, Ordering::Relaxed);
    engine.counters.expiries.store(allocation.load(allocation.expiries()) != 0, Ordering::Relaxed);
    Ok(found)
}

/// What is wrong, and with which file.
fn named<I: Divide>(place: &impl IndexPlace<I>, what: impl Display) -> String {
    format!("{}: {what}", place.path().display())
}

/// Not zero, and another at each opening.
fn new_mark<M: Memory>(values: &Stored<M>) -> u64 {
    hash_key(u64::from(values.medium().lifetime()), b"mark") | 1
}
