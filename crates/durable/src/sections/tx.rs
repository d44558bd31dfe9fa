//! Inside a section: reads, writes, allocation, roots, and the way out.

use super::engine::Engine;
use super::error::{Error, Result};
use super::heap::{Heap, Words, WordsMut};
use super::media::Media;
use super::plain::{Offset, Plain, Root};
use super::pool::{Guarded, Pool};
use std::cell::RefCell;
use terrace_memory::Memory;

/// Plain data up to this length are copied without an allocation.
const SMALL: usize = 512;

/// The parts of the guarded state, borrowed apart.
pub(super) struct Inside<'s, M> {
    pub(super) engine: &'s mut dyn Engine<M>,
    pub(super) heap: &'s mut Heap,
    doomed: &'s mut Option<Error>,
}

impl<'s, M: Memory> Inside<'s, M> {
    pub(super) fn of(state: &'s mut Guarded<M>) -> Inside<'s, M> {
        let Guarded { engine, heap, doomed, .. } = state;
        Inside { engine: &mut **engine, heap, doomed }
    }
}

/// The heap as the open section sees it, in words, for the allocator.
pub(super) struct Space<'s, M> {
    pub(super) media: &'s Media<M>,
    pub(super) engine: &'s mut dyn Engine<M>,
}

impl<M: Memory> Words for Space<'_, M> {
    fn load(&self, at: u64) -> u64 {
        let mut word = [0; 8];
        self.engine.read(self.media, at, &mut word);
        u64::from_le_bytes(word)
    }
}

impl<M: Memory> WordsMut for Space<'_, M> {
    fn store(&mut self, at: u64, value: u64) -> Result<()> {
        self.engine.write(self.media, at, &value.to_le_bytes())
    }
}

/// Takes the section back when it is dropped without a commit: by an error or a panic.
pub(super) struct Leave<'s, M: Memory> {
    media: &'s Media<M>,
    state: &'s RefCell<Guarded<M>>,
    committed: bool,
}

impl<'s, M: Memory> Leave<'s, M> {
    /// # Errors
    /// [`Error::Closed`].
    pub(super) fn enter(media: &'s Media<M>, state: &'s RefCell<Guarded<M>>) -> Result<Self> {
        let mut guarded = state.borrow_mut();
        if guarded.ended {
            return Err(Error::Closed);
        }
        guarded.depth += 1;
        Ok(Leave { media, state, committed: false })
    }

    /// Leaves; if this is the outermost section, what was written is durable on return.
    pub(super) fn commit(mut self) -> Result<()> {
        let mut state = self.state.borrow_mut();
        if state.depth == 1 {
            if let Some(reason) = state.doomed.clone() {
                return Err(reason);
            }
            state.engine.commit(self.media)?;
        }
        state.depth -= 1;
        drop(state);
        self.committed = true;
        Ok(())
    }
}

impl<M: Memory> Drop for Leave<'_, M> {
    fn drop(&mut self) {
        if self.committed {
            return;
        }
        let mut state = self.state.borrow_mut();
        state.depth -= 1;
        if state.depth == 0 {
            state.engine.abort(self.media);
            state.heap.reset();
            state.doomed = None;
        } else {
            state.doomed.get_or_insert(Error::InnerFailed);
        }
    }
}

/// An open section. Offsets are those of the pool's heap, the same at every opening.
///
/// A read sees the section's own writes. Offsets that were not allocated are not refused, as long as
/// they lie in the heap: what owns which bytes is the caller's knowledge.
pub struct Tx<'s, M: Memory> {
    pool: &'s Pool<M>,
    state: &'s RefCell<Guarded<M>>,
}

impl<'s, M: Memory> Tx<'s, M> {
    pub(super) fn new(pool: &'s Pool<M>, state: &'s RefCell<Guarded<M>>) -> Self {
        Tx { pool, state }
    }

    /// Runs `body` as part of this section. See [`Pool::section`].
    ///
    /// # Errors
    /// As for [`Pool::section`]; this section is then taken back whatever becomes of the error.
    pub fn section<R, E: From<Error>>(
        &mut self,
        body: impl FnOnce(&mut Tx<'_, M>) -> Result<R, E>,
    ) -> Result<R, E> {
        self.pool.section(body)
    }

    /// Copies `target.len()` bytes out.
    ///
    /// # Errors
    /// [`Error::OutOfHeap`].
    #[inline]
    pub fn read(&self, at: u64, target: &mut [u8]) -> Result<()> {
        let state = self.state.borrow();
        check_range(&state.heap, at, target.len())?;
        state.engine.read(&self.pool.media, at, target);
        Ok(())
    }

    /// Copies in.
    ///
    /// # Errors
    /// [`Error::OutOfHeap`], [`Error::ReadOnly`]; [`Error::SectionTooLarge`], after which the section
    /// is taken back whatever becomes of the error.
    #[inline]
    pub fn write(&mut self, at: u64, source: &[u8]) -> Result<()> {
        let mut state = self.state.borrow_mut();
        check_range(&state.heap, at, source.len())?;
        self.change(&mut state, |engine, _| engine.write(&self.pool.media, at, source))
    }

    /// The word at `at`, which need not be aligned.
    ///
    /// # Errors
    /// As [`Tx::read`].
    #[inline]
    pub fn load(&self, at: u64) -> Result<u64> {
        let mut word = [0; 8];
        self.read(at, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    /// Sets the word at `at`.
    ///
    /// # Errors
    /// As [`Tx::write`].
    #[inline]
    pub fn store(&mut self, at: u64, value: u64) -> Result<()> {
        self.write(at, &value.to_le_bytes())
    }

    /// The `T` at `at`.
    ///
    /// # Errors
    /// As [`Tx::read`]; [`Error::OutOfHeap`] for [`Offset::NULL`].
    #[inline]
    pub fn get<T: Plain>(&self, at: Offset<T>) -> Result<T> {
        let mut small = [0; SMALL];
        if let Some(bytes) = small.get_mut(..T::BYTES) {
            self.read(at.at(), bytes)?;
            return Ok(T::get(bytes));
        }
        let mut bytes = vec![0; T::BYTES];
        self.read(at.at(), &mut bytes)?;
        Ok(T::get(&bytes))
    }

    /// Sets the `T` at `at`.
    ///
    /// # Errors
    /// As [`Tx::write`].
    #[inline]
    pub fn set<T: Plain>(&mut self, at: Offset<T>, value: T) -> Result<()> {
        let mut small = [0; SMALL];
        if let Some(bytes) = small.get_mut(..T::BYTES) {
            value.put(bytes);
            return self.write(at.at(), bytes);
        }
        let mut bytes = vec![0; T::BYTES];
        value.put(&mut bytes);
        self.write(at.at(), &bytes)
    }

    /// Room for `bytes`, at a multiple of 16, from 64 bytes on at a line. The contents are whatever
    /// was there. O(1), but for a walk of the map when a page is needed.
    ///
    /// # Errors
    /// [`Error::NoRoom`], after which the section may go on; [`Error::ReadOnly`],
    /// [`Error::SectionTooLarge`] as for [`Tx::write`].
    pub fn allocate(&mut self, bytes: u64) -> Result<u64> {
        self.change_heap(|heap, space| {
            let by_engine = space.engine.allocate(space.media, bytes);
            by_engine.unwrap_or_else(|| heap.allocate(space, bytes))
        })
    }

    /// Gives back what [`Tx::allocate`] returned.
    ///
    /// # Errors
    /// [`Error::NotAllocated`], after which the section may go on; [`Error::ReadOnly`],
    /// [`Error::SectionTooLarge`] as for [`Tx::write`].
    pub fn free(&mut self, at: u64) -> Result<()> {
        self.change_heap(|heap, space| {
            let by_engine = space.engine.free(space.media, at);
            by_engine.unwrap_or_else(|| heap.free(space, at))
        })
    }

    /// Room for a `T`, set to `value`.
    ///
    /// # Errors
    /// As [`Tx::allocate`].
    pub fn create<T: Plain>(&mut self, value: &T) -> Result<Offset<T>> {
        let at = Offset::new(self.allocate(T::BYTES as u64)?);
        self.set(at, *value)?;
        Ok(at)
    }

    /// Gives the room of a `T` back.
    ///
    /// # Errors
    /// As [`Tx::free`].
    pub fn destroy<T: Plain>(&mut self, at: Offset<T>) -> Result<()> {
        self.free(at.at())
    }

    /// Bytes that the object at `at` may use, if one is allocated there: at least as many as were
    /// asked for.
    pub fn room_of(&self, at: u64) -> Option<u64> {
        let mut state = self.state.borrow_mut();
        let media = &self.pool.media;
        let Inside { engine, heap, .. } = Inside::of(&mut state);
        let by_engine = engine.room_of(media, at);
        by_engine.unwrap_or_else(|| heap.room_of(&Space { media, engine }, at))
    }

    /// Where a root points; [`Offset::NULL`] if it was never set.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if it was set with a type of another length.
    pub fn root<T: Plain>(&self, root: Root<T>) -> Result<Offset<T>> {
        let mut word = [0; 8];
        let state = self.state.borrow();
        state.engine.read(&self.pool.media, Heap::root_at(root.slot), &mut word);
        let word = u64::from_le_bytes(word);
        let (at, bytes) = (word & ((1 << 48) - 1), word >> 48);
        if at != 0 && bytes != length_of::<T>() {
            return Err(Error::Mismatch {
                field: "a root to a type of bytes",
                found: bytes.to_string(),
                wanted: length_of::<T>().to_string(),
            });
        }
        Ok(Offset::new(at))
    }

    /// Points a root to `at`.
    ///
    /// # Errors
    /// As [`Tx::write`].
    pub fn set_root<T: Plain>(&mut self, root: Root<T>, at: Offset<T>) -> Result<()> {
        let mut state = self.state.borrow_mut();
        if !at.is_null() {
            check_range(&state.heap, at.at(), T::BYTES)?;
        }
        let word = at.at() | length_of::<T>() << 48;
        let root_at = Heap::root_at(root.slot);
        self.change(&mut state, |engine, _| {
            engine.write(&self.pool.media, root_at, &word.to_le_bytes())
        })
    }

    fn change_heap<R>(
        &mut self,
        change: impl FnOnce(&mut Heap, &mut Space<'_, M>) -> Result<R>,
    ) -> Result<R> {
        let media = &self.pool.media;
        let mut state = self.state.borrow_mut();
        self.change(&mut state, |engine, heap| change(heap, &mut Space { media, engine }))
    }

    /// Every change goes through here. One that failed half-way dooms the section.
    #[inline]
    fn change<R>(
        &self,
        state: &mut Guarded<M>,
        change: impl FnOnce(&mut dyn Engine<M>, &mut Heap) -> Result<R>,
    ) -> Result<R> {
        if self.pool.is_read_only() {
            return Err(Error::ReadOnly);
        }
        let Inside { engine, heap, doomed } = Inside::of(state);
        change(engine, heap).inspect_err(|error| {
            if !matches!(error, Error::NoRoom { .. } | Error::NotAllocated { .. }) {
                doomed.get_or_insert(error.clone());
            }
        })
    }
}

fn length_of<T: Plain>() -> u64 {
    (T::BYTES as u64).min(0xffff)
}

#[inline]
fn check_range(heap: &Heap, at: u64, bytes: usize) -> Result<()> {
    let (from, to, bytes) = (heap.first(), heap.end(), bytes as u64);
    if at < from || at > to || bytes > to - at {
        return Err(Error::OutOfHeap { at, bytes, from, to });
    }
    Ok(())
}
