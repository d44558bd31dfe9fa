//! Logs whose writes outlive the process before a checkpoint has them: [`redo_log`](crate::redo_log).

use super::appender::Writer;
use super::commit::Taken;
use super::{COLLECTOR, Logs};
use crate::error::{Error, Result};
use crate::medium::Medium;
use crate::redo_log::{Left, NAME, Pen, RedoLog};
use crate::superblock::Checkpoint;
use std::cell::RefMut;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_memory::{Budget, Memory};

/// What a checkpoint covers of the redo log once it is durable.
#[derive(Default)]
pub(super) struct Redone {
    log: Option<Arc<RedoLog>>,
    full: Vec<u32>,
    left_out: u64,
    /// Whether anything was written since the checkpoint before.
    pub(super) has_noted: bool,
}

/// What a process that died left beside `medium`, whose checkpoint is `checkpoint`, and under
/// [`Access::Salvage`](crate::Access) why it cannot be read, if so; what belongs to no such process goes.
pub(super) fn left<M: Memory>(
    medium: &Medium<M>,
    checkpoint: &Checkpoint,
    budget: &Arc<Budget>,
) -> Result<(Option<Left>, Option<String>)> {
    let Some(path) = medium.companion(NAME) else { return Ok((None, None)) };
    match Left::find(&path, medium.path(), checkpoint, medium.access(), budget) {
        Ok(None) if medium.access().writes() => {
            let _absent = std::fs::remove_file(&path);
            Ok((None, None))
        }
        Ok(found) => Ok((found, None)),
        Err(error @ Error::Damaged { .. }) if medium.access().passes_damage() => {
            Ok((None, Some(error.to_string())))
        }
        Err(error) => Err(error),
    }
}

impl<M: Memory> Logs<M> {
    /// What a process that died wrote since the last checkpoint: to be written again before anything else is, and made
    /// durable, by [`Logs::finish_left`].
    pub fn take_left(&self) -> Option<Left> {
        self.left.lock().take()
    }

    /// What was left has been written again: durable on return. Where the medium is only read it is in memory alone,
    /// and no more is taken from here on.
    ///
    /// # Errors
    /// As [`Logs::flush_all`].
    pub fn finish_left(&self, left: Left) -> Result<()> {
        match self.medium.access().refusal() {
            Some(_) if self.expects_more.load(Ordering::Relaxed) => {}
            Some(reason) => self.all_is_read(reason),
            None => {
                self.flush_all()?;
                // The next checkpoint names no redo log and this one does not belong to it: then it may go.
                *self.redo.lock() = None;
                self.flush_all()?;
                left.log.remove();
            }
        }
        *self.redo.lock() = None;
        Ok(())
    }

    /// From here on every write outlives the process before it is visible; nothing on a medium where it does anyway,
    /// or where there is a redo log already: that one holds what no checkpoint has. Whether there is a new one, which
    /// counts from the next checkpoint on, which the caller takes. Where the disk has no room for a redo log,
    /// [`Logs::owes_checkpoint`] says so of every write.
    ///
    /// # Errors
    /// As [`Medium::write_out`], but for a full disk.
    pub fn begin_redo(&self) -> Result<bool> {
        let Some(path) = self.medium.companion(NAME) else { return Ok(false) };
        // Of a checkpoint that is under way it would be neither part nor not.
        let _checkpoint = self.lock_checkpoint();
        if self.redo.lock().is_some() {
            return Ok(false);
        }
        let made = match RedoLog::make(&path, self.medium.path(), &self.budget, &self.owed) {
            Ok(log) => log,
            Err(Error::DiskFull { .. }) => {
                let _absent = std::fs::remove_file(path.with_extension("new"));
                self.owed.is_always(true);
                return Ok(true);
            }
            Err(error) => return Err(error),
        };
        #[cfg(any(test, feature = "faults"))]
        let made = made.with_faults(&self.faults);
        let made = Arc::new(made);
        let writers = self.lock_writers();
        for (id, writer) in writers.iter().enumerate() {
            // What the collector moves is there already.
            let pen = (id != COLLECTOR).then(|| Pen::new(&made, id));
            writer.borrow_mut().redo = pen;
        }
        *self.redo.lock() = Some(made);
        if self.owed.is_any() {
            // There was no room for one before.
            self.owed.is_once();
        }
        Ok(true)
    }

    /// No more is put into the redo log, and it goes, once a checkpoint that does not name it is durable with every
    /// write so far. Nothing where there is none.
    ///
    /// # Errors
    /// As [`Logs::flush_all`]; then the redo log stays, and goes on.
    pub fn end_redo(&self) -> Result<()> {
        // To the end: what a checkpoint under way covers of this redo log it must not count for the next one, nor may
        // it name this one again.
        let _alone = self.alone();
        let _checkpoint = loop {
            let mut checkpoint = self.lock_checkpoint();
            let ending = self.redo.lock().clone();
            if ending.is_none() && !self.owed.is_any() {
                break checkpoint;
            }
            ending.iter().for_each(|log| log.retire(true));
            let taken = self.check_writable();
            let taken = taken.and_then(|()| {
                self.stop_on_error(self.take_checkpoint_under(&mut checkpoint, None))
            });
            if matches!(taken, Ok(Taken::Alone)) {
                break checkpoint;
            }
            ending.iter().for_each(|log| log.retire(false));
            let Taken::Tied = taken? else { unreachable!("asked above") };
            drop(checkpoint);
            self.flush_together()?;
        };
        let writers = self.lock_writers();
        // Before the first write that it lacks: what it holds of that key is older, and must not come back.
        if let Some(log) = self.redo.lock().take() {
            log.remove();
        }
        writers.iter().for_each(|writer| writer.borrow_mut().redo = None);
        self.owed.is_always(false);
        Ok(())
    }

    /// The file of the redo log, and the bytes that it takes on the disk, if there is one.
    pub fn redo_log(&self) -> Option<(PathBuf, u64)> {
        let path = self.medium.companion(NAME)?;
        let found = std::fs::metadata(&path).ok()?;
        Some((path, 512 * found.blocks()))
    }

    /// Whether there is a redo log.
    pub fn has_redo(&self) -> bool {
        self.redo.lock().is_some()
    }

    /// Whether something was written that only a checkpoint keeps from the death of the process.
    #[inline(always)]
    pub fn owes_checkpoint(&self) -> bool {
        self.owed.is_any()
    }

    /// Whether a checkpoint is due for the room it gives back.
    pub fn redo_presses(&self) -> bool {
        self.redo.lock().as_ref().is_some_and(|log| log.is_half_full())
    }

    /// Gives some of the redo log back that is in use no more.
    pub fn release_redo(&self) {
        self.redo.lock().iter().for_each(|log| log.release_unused());
    }

    /// Writes a checkpoint record, and before it to which one the redo log belongs.
    pub(super) fn store_checkpoint(&self, next: &Checkpoint) -> Result<()> {
        self.belongs_to(next);
        next.store(&self.medium)
    }

    pub(super) fn belongs_to(&self, checkpoint: &Checkpoint) {
        // Not under the lock, in which no thread of the laboratory may wait for its turn.
        let log = self.redo.lock().clone();
        log.iter().for_each(|log| log.expect(self.medium.memory(), checkpoint));
    }

    /// Notes checkpoint `number` in the redo log. Under all writers' locks.
    pub(super) fn note_checkpoint(
        &self,
        writers: &mut [RefMut<'_, Writer>],
        number: u64,
    ) -> Redone {
        let Some(log) = self.redo.lock().clone() else { return Redone::default() };
        let mut redone = Redone { left_out: log.left_out(), ..Redone::default() };
        for pen in writers.iter_mut().filter_map(|writer| writer.redo.as_mut()) {
            redone.has_noted |= pen.note(self.medium.memory(), number, &mut redone.full);
        }
        Redone { log: Some(log), ..redone }
    }

    pub(super) fn checkpoint_is_durable(&self, redone: Redone) {
        if let Some(log) = redone.log {
            log.covered(self.medium.memory(), redone.left_out, redone.full);
        }
    }

    /// Gives chunks of the redo log back that a checkpoint under way is to cover, by mistake.
    #[cfg(any(test, feature = "faults"))]
    pub(super) fn frees_redo_early(&self, redone: Redone) -> Redone {
        if !self.faults.has(super::Fault::RedoFreedEarly) {
            return redone;
        }
        let has_noted = redone.has_noted;
        self.checkpoint_is_durable(redone);
        Redone { has_noted, ..Redone::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::NewItem;
    use crate::medium::Disk;
    use crate::medium::Medium;
    use crate::sections::Changes;
    use crate::superblock::Rule;
    use crate::values::Room;
    use std::path::Path;
    use std::sync::atomic::AtomicBool;

    /// What holds durable writes up.
    #[derive(Debug, Default)]
    struct Gate {
        held: parking_lot::Mutex<()>,
        is_reached: AtomicBool,
    }

    /// Keeps nothing, in a directory where a redo log can lie.
    #[derive(Debug)]
    struct Nothing(PathBuf, Arc<Gate>);

    impl Disk for Nothing {
        fn path(&self) -> Option<&Path> {
            Some(&self.0)
        }
        fn capacity_bytes(&self) -> u64 {
            64 << 20
        }
        fn write(&self, _: u64, _: &[u8], durable: bool) -> Result<()> {
            if durable {
                self.1.is_reached.store(true, Ordering::SeqCst);
                drop(self.1.held.lock());
            }
            Ok(())
        }
        fn sync(&self) -> Result<()> {
            Ok(())
        }
        fn read(&self, _: u64, _: &mut [u8]) -> Result<()> {
            Ok(())
        }
    }

    fn logs(dir: &Path) -> (Arc<Gate>, Logs) {
        let gate = Arc::<Gate>::default();
        let disk = Nothing(dir.join("values.log"), Arc::clone(&gate));
        let medium = Medium::mirrored(Box::new(disk), true, 1).expect("a medium");
        let logs = Logs::open(medium, 1, &Arc::new(Budget::new(64 << 20))).expect("head");
        logs.recover(1, &|_, _, _| {}).expect("a new disk");
        logs.set_rule(Rule::Bounded).expect("rule");
        (gate, logs)
    }

    /// Longer than a chunk of the redo log: it is left out.
    fn put_long(logs: &Logs) {
        let (key, value, expires_at_ms) = (&b"key"[..], &vec![7; 300 << 10], None);
        let new = NewItem { key, value, version: 1, expires_at_ms, tombstone: false };
        let mut appender = logs.appender(1, new.item_bytes(), Room::Anyway).expect("room");
        appender.append(&new, &mut Changes::new());
    }

    /// A checkpoint that began behind the last one of a redo log, and was under way when that ended, used to count what
    /// it had covered where nothing was counted any more: every later write waited for a checkpoint.
    #[test]
    fn no_checkpoint_is_under_way_when_a_redo_log_ends() {
        let dir = tempfile::tempdir().expect("directory");
        let (gate, logs) = logs(dir.path());
        logs.begin_redo().expect("a redo log");
        put_long(&logs);
        let until = |done: &dyn Fn() -> bool| {
            while !done() {
                std::thread::yield_now();
            }
        };
        std::thread::scope(|scope| {
            let held = gate.held.lock();
            gate.is_reached.store(false, Ordering::SeqCst);
            let end = scope.spawn(|| logs.end_redo());
            // Its checkpoint has let go of the writers.
            until(&|| gate.is_reached.load(Ordering::SeqCst) || end.is_finished());
            assert!(!end.is_finished(), "its checkpoint is held up");
            let writer = logs.lock_writer(1);
            drop(held);
            until(&|| logs.writers[0].try_lock().is_none() || end.is_finished());
            assert!(!end.is_finished(), "it waits for the writer");
            assert!(logs.checkpoint.try_lock().is_none(), "a checkpoint can begin");
            drop(writer);
            end.join().expect("no panic").expect("its end");
        });
        assert!(!logs.owes_checkpoint() && logs.redo_log().is_none());
    }

    /// Where the disk had no room for a redo log, a close has what was written before anybody hears that nothing is
    /// owed.
    #[test]
    fn the_end_of_a_redo_log_that_had_no_room_is_a_checkpoint() {
        let dir = tempfile::tempdir().expect("directory");
        let (_, logs) = logs(dir.path());
        logs.owed.is_always(true);
        put_long(&logs);
        let before = logs.lock_checkpoint().number;
        logs.end_redo().expect("its end");
        assert!(!logs.owes_checkpoint() && logs.lock_checkpoint().number > before);
    }
}
