//! The allocator, whose metadata is ordinary data of sections.
//!
//! Every word it changes goes through the section that asks, so an allocation or a free is undone
//! with its section by a crash or an abort, whatever the engine: no leak, nothing owned twice. There
//! is nothing to rebuild at opening, and an object freed in a section may be allocated again in the
//! same one, since what is written to it is undone too.
//!
//! ```text
//! page 0:    | pages | .. roots, 32 words, from 64 | heads of classes from 512 | map from 1024 .. |
//! map:       two bits for each page: free, slots, first or further page of a large object
//! slot page: | class, used, magic | next | previous | bitmap, 4 words | 0 | slots .. |
//! large:     | magic | pages | bytes | .. 64 | the object .. |
//! ```
//! As in Wu, section 2.3, a page has slots of one size and its own metadata; a class's pages with free slots are
//! on a list. An allocation or a free changes one line, the head of the page, unless the page becomes
//! full, empty, or neither any more. Objects of 64 bytes and more begin on lines of their own.

mod check;
mod classes;

pub use check::HeapCensus;

use super::error::{Error, Result};
use super::media::{LINE, PAGE};
use classes::{CLASSES, class_of, slot_bytes, slots};

/// Root slots of a pool.
pub const ROOTS: usize = 32;
const ROOTS_AT: u64 = 64;
const HEADS_AT: u64 = 512;
const MAP_AT: u64 = 1024;
const NEXT: u64 = 8;
const PREVIOUS: u64 = 16;
const BITS: u64 = 24;
const SLOTS_MAGIC: u64 = 0x5465_536c;
const LARGE_MAGIC: u64 = 0x5465_4c61;
/// Bytes of the head of a page of slots, and before a large object.
const HEAD: u64 = LINE;
const PAGES_PER_WORD: u64 = 32;

/// What a page is, in the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
enum Use {
    Free = 0,
    Slots = 1,
    Large = 2,
    Further = 3,
}

/// Words of the heap as the open section sees them.
pub(super) trait Words {
    fn load(&self, at: u64) -> u64;
}

/// Words that the open section may change.
pub(super) trait WordsMut: Words {
    fn store(&mut self, at: u64, value: u64) -> Result<()>;
}

/// Pages that the allocation metadata of a heap of `pages` takes.
pub(super) fn meta_pages(pages: u64) -> u64 {
    (MAP_AT + 8 * pages.div_ceil(PAGES_PER_WORD)).div_ceil(PAGE)
}

/// The volatile side of the allocator: its size, and a hint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heap {
    pages: u64,
    /// No page before this one is free.
    hint: u64,
}

struct Tag {
    class: usize,
    used: u64,
}

impl Tag {
    fn encode(&self) -> u64 {
        self.class as u64 | self.used << 16 | SLOTS_MAGIC << 32
    }

    fn decode(word: u64) -> Option<Tag> {
        let tag = Tag { class: (word & 0xffff) as usize, used: word >> 16 & 0xffff };
        (word >> 32 == SLOTS_MAGIC && tag.class < CLASSES).then_some(tag)
    }
}

impl Heap {
    pub(super) fn new(pages: u64) -> Heap {
        Heap { pages, hint: meta_pages(pages) }
    }

    /// The words of an empty heap that are not zero, for the maker of a pool, who zeroes the metadata's
    /// pages before.
    pub(super) fn create(pages: u64) -> impl Iterator<Item = (u64, u64)> {
        let meta = (0..meta_pages(pages)).map(|page| (page / PAGES_PER_WORD, page));
        let mut map = std::collections::BTreeMap::new();
        for (word, page) in meta {
            // The metadata itself: never free, and no object.
            *map.entry(word).or_insert(0) |= (Use::Further as u64) << (2 * (page % PAGES_PER_WORD));
        }
        let map = map.into_iter().map(|(word, bits)| (MAP_AT + 8 * word, bits));
        std::iter::once((0, pages)).chain(map)
    }

    /// First offset that objects may have.
    pub(super) fn first(&self) -> u64 {
        meta_pages(self.pages) * PAGE
    }

    /// End of the heap.
    pub(super) fn end(&self) -> u64 {
        self.pages * PAGE
    }

    /// Forgets hints of a section that was undone.
    pub(super) fn reset(&mut self) {
        self.hint = meta_pages(self.pages);
    }

    /// Pages that hold anything: the metadata's, then those that are not free, in their order.
    pub(super) fn used_pages<'w>(
        &'w self,
        words: &'w impl Words,
    ) -> impl Iterator<Item = u64> + 'w {
        let metadata = meta_pages(self.pages);
        let others = (metadata..self.pages).filter(|page| self.get(words, *page) != Use::Free);
        (0..metadata).chain(others)
    }

    /// Where the words of its metadata are: lines of the first pages, and the first line of each page in use.
    pub(super) fn metadata_lines(&self, words: &impl Words) -> Vec<u64> {
        let metadata = meta_pages(self.pages);
        let heads = self.used_pages(words).skip(metadata as usize).map(|page| page * PAGE / LINE);
        (0..metadata * PAGE / LINE).chain(heads).collect()
    }

    /// Offset of the word of a root.
    pub(super) fn root_at(slot: usize) -> u64 {
        ROOTS_AT + 8 * slot as u64
    }

    fn get(&self, words: &impl Words, page: u64) -> Use {
        let word = words.load(MAP_AT + 8 * (page / PAGES_PER_WORD));
        match word >> (2 * (page % PAGES_PER_WORD)) & 3 {
            0 => Use::Free,
            1 => Use::Slots,
            2 => Use::Large,
            _ => Use::Further,
        }
    }

    fn set(&self, words: &mut impl WordsMut, page: u64, what: Use) -> Result<()> {
        let at = MAP_AT + 8 * (page / PAGES_PER_WORD);
        let shift = 2 * (page % PAGES_PER_WORD);
        words.store(at, words.load(at) & !(3 << shift) | (what as u64) << shift)
    }

    /// The first of `count` free pages in a row: first fit.
    fn find(&mut self, words: &impl Words, count: u64) -> Option<u64> {
        let (mut page, mut run, mut first_free) = (self.hint, 0, None);
        while page < self.pages {
            let word = words.load(MAP_AT + 8 * (page / PAGES_PER_WORD));
            // Whole words without a free page are stepped over.
            if page.is_multiple_of(PAGES_PER_WORD)
                && (word | word >> 1) & 0x5555_5555_5555_5555 == 0x5555_5555_5555_5555
            {
                (page, run) = (page + PAGES_PER_WORD, 0);
                continue;
            }
            let free = word >> (2 * (page % PAGES_PER_WORD)) & 3 == 0;
            run = if free { run + 1 } else { 0 };
            if free && first_free.is_none() {
                first_free = Some(page);
                self.hint = page;
            }
            if run == count {
                return Some(page + 1 - count);
            }
            page += 1;
        }
        if first_free.is_none() {
            self.hint = self.pages;
        }
        None
    }

    /// Finds room for `bytes`; the contents are what they were.
    ///
    /// # Errors
    /// [`Error::NoRoom`], after which nothing has changed; those of the engine's writes.
    pub(super) fn allocate(&mut self, words: &mut impl WordsMut, bytes: u64) -> Result<u64> {
        let no_room = Error::NoRoom { asked_bytes: bytes, heap_bytes: self.end() };
        let Some(class) = class_of(bytes) else {
            if bytes > self.end() {
                return Err(no_room);
            }
            let count = (bytes + HEAD).div_ceil(PAGE);
            let first = self.find(words, count).ok_or(no_room)?;
            return self.large(words, first, count, bytes);
        };
        let mut page_at = words.load(HEADS_AT + 8 * class as u64);
        if page_at == 0 {
            let page = self.find(words, 1).ok_or(no_room)?;
            page_at = page * PAGE;
            self.begin_slots(words, page, class)?;
        }
        self.take_slot(words, page_at, class)
    }

    /// Makes a free page one of empty slots, the first on its class's list.
    fn begin_slots(&self, words: &mut impl WordsMut, page: u64, class: usize) -> Result<()> {
        let (page_at, head_at) = (page * PAGE, HEADS_AT + 8 * class as u64);
        let next = words.load(head_at);
        self.set(words, page, Use::Slots)?;
        (NEXT / 8..HEAD / 8).try_for_each(|word| words.store(page_at + 8 * word, 0))?;
        words.store(page_at, Tag { class, used: 0 }.encode())?;
        if next != 0 {
            words.store(page_at + NEXT, next)?;
            words.store(next + PREVIOUS, page_at)?;
        }
        words.store(head_at, page_at)
    }

    /// Takes the place at `at` for `bytes`, which another view of this heap chose: one in which at least as much is
    /// taken.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it is not free; those of the engine's writes.
    pub(super) fn take(&self, words: &mut impl WordsMut, at: u64, bytes: u64) -> Result<()> {
        let (page, page_at) = (at / PAGE, at / PAGE * PAGE);
        let Some(class) = class_of(bytes) else {
            let count = (bytes + HEAD).div_ceil(PAGE);
            (page..page + count).try_for_each(|page| self.vacate(words, page))?;
            return self.large(words, page, count, bytes).map(drop);
        };
        let tag = Tag::decode(words.load(page_at)).filter(|tag| tag.class == class);
        let used = match tag.filter(|_| self.get(words, page) == Use::Slots) {
            Some(tag) => tag.used,
            None => {
                self.vacate(words, page)?;
                self.begin_slots(words, page, class)?;
                0
            }
        };
        let slot = (at - page_at - HEAD) / slot_bytes(class);
        self.occupy(words, page_at, Tag { class, used: used + 1 }, slot)
    }

    /// Makes a page free that nothing is allocated in; in the other view it is free already.
    fn vacate(&self, words: &mut impl WordsMut, page: u64) -> Result<()> {
        let page_at = page * PAGE;
        let what = "a page is in use that another view has free";
        let in_use = Error::Damaged { at: page_at, what: what.into() };
        match self.get(words, page) {
            Use::Free => Ok(()),
            Use::Slots => {
                let tag = Tag::decode(words.load(page_at)).filter(|tag| tag.used == 0);
                self.unlink(words, page_at, tag.ok_or(in_use)?.class)?;
                self.set(words, page, Use::Free)
            }
            Use::Large | Use::Further => Err(in_use),
        }
    }

    /// Takes a slot of a page, which is `tag` from then on.
    fn occupy(&self, words: &mut impl WordsMut, page_at: u64, tag: Tag, slot: u64) -> Result<()> {
        let at = page_at + BITS + 8 * (slot / 64);
        let bits = words.load(at);
        if bits >> (slot % 64) & 1 == 1 {
            return Err(Error::Damaged { at: page_at, what: format!("slot {slot} is taken") });
        }
        words.store(at, bits | 1 << (slot % 64))?;
        words.store(page_at, tag.encode())?;
        if tag.used == slots(tag.class) {
            self.unlink(words, page_at, tag.class)?;
        }
        Ok(())
    }

    fn large(&self, words: &mut impl WordsMut, first: u64, count: u64, bytes: u64) -> Result<u64> {
        self.set(words, first, Use::Large)?;
        (first + 1..first + count).try_for_each(|page| self.set(words, page, Use::Further))?;
        let at = first * PAGE;
        words.store(at, LARGE_MAGIC << 32)?;
        words.store(at + NEXT, count)?;
        words.store(at + PREVIOUS, bytes)?;
        Ok(at + HEAD)
    }

    /// The first free slot of a page on the list of `class`.
    fn take_slot(&self, words: &mut impl WordsMut, page_at: u64, class: usize) -> Result<u64> {
        let tag = Tag::decode(words.load(page_at)).filter(|tag| tag.class == class);
        let what = "no page of its class is on the list of a class";
        let used = tag.ok_or(Error::Damaged { at: page_at, what: what.into() })?.used + 1;
        for word in 0..4 {
            let at = page_at + BITS + 8 * word;
            let bits = words.load(at);
            let slot = 64 * word + u64::from(bits.trailing_ones());
            if bits == u64::MAX || slot >= slots(class) {
                continue;
            }
            self.occupy(words, page_at, Tag { class, used }, slot)?;
            return Ok(page_at + HEAD + slot * slot_bytes(class));
        }
        Err(Error::Damaged { at: page_at, what: "a full page is on the list of its class".into() })
    }

    fn unlink(&self, words: &mut impl WordsMut, page_at: u64, class: usize) -> Result<()> {
        let (next, previous) = (words.load(page_at + NEXT), words.load(page_at + PREVIOUS));
        let from = if previous == 0 { HEADS_AT + 8 * class as u64 } else { previous + NEXT };
        words.store(from, next)?;
        if next != 0 {
            words.store(next + PREVIOUS, previous)?;
        }
        if next != 0 || previous != 0 {
            words.store(page_at + NEXT, 0)?;
            words.store(page_at + PREVIOUS, 0)?;
        }
        Ok(())
    }

    /// Gives back what [`Heap::allocate`] returned.
    ///
    /// # Errors
    /// [`Error::NotAllocated`], after which nothing has changed; those of the engine's writes.
    pub(super) fn free(&mut self, words: &mut impl WordsMut, at: u64) -> Result<()> {
        let (page, page_at) = (at / PAGE, at / PAGE * PAGE);
        let not_allocated = Err(Error::NotAllocated { at });
        if at < self.first() || at >= self.end() {
            return not_allocated;
        }
        match self.get(words, page) {
            Use::Slots => self.free_slot(words, at, page_at),
            Use::Large if at == page_at + HEAD => {
                let count = words.load(page_at + NEXT);
                self.hint = self.hint.min(page);
                (page..page + count).try_for_each(|page| self.set(words, page, Use::Free))
            }
            _ => not_allocated,
        }
    }

    fn free_slot(&mut self, words: &mut impl WordsMut, at: u64, page_at: u64) -> Result<()> {
        let not_allocated = Error::NotAllocated { at };
        let tag = Tag::decode(words.load(page_at)).ok_or(not_allocated.clone())?;
        let within = (at - page_at).checked_sub(HEAD).ok_or(not_allocated.clone())?;
        let (slot, rest) = (within / slot_bytes(tag.class), within % slot_bytes(tag.class));
        let bits_at = page_at + BITS + 8 * (slot / 64);
        if rest != 0 || slot >= slots(tag.class) || words.load(bits_at) >> (slot % 64) & 1 == 0 {
            return Err(not_allocated);
        }
        words.store(bits_at, words.load(bits_at) & !(1 << (slot % 64)))?;
        words.store(page_at, Tag { class: tag.class, used: tag.used - 1 }.encode())?;
        let head_at = HEADS_AT + 8 * tag.class as u64;
        if tag.used == slots(tag.class) {
            let head = words.load(head_at);
            words.store(page_at + NEXT, head)?;
            if head != 0 {
                words.store(head + PREVIOUS, page_at)?;
            }
            words.store(head_at, page_at)?;
        }
        // The only page of a class stays: freeing and allocating in turns costs one line each.
        let (next, previous) = (words.load(page_at + NEXT), words.load(page_at + PREVIOUS));
        if tag.used == 1 && (next != 0 || previous != 0) {
            self.unlink(words, page_at, tag.class)?;
            self.set(words, page_at / PAGE, Use::Free)?;
            self.hint = self.hint.min(page_at / PAGE);
        }
        Ok(())
    }

    /// Bytes that the object at `at` may use, if one is allocated there.
    pub(super) fn room_of(&self, words: &impl Words, at: u64) -> Option<u64> {
        let page_at = at / PAGE * PAGE;
        if at < self.first() || at >= self.end() {
            return None;
        }
        match self.get(words, at / PAGE) {
            Use::Large if at == page_at + HEAD => Some(words.load(page_at + NEXT) * PAGE - HEAD),
            Use::Slots => {
                let tag = Tag::decode(words.load(page_at))?;
                let within = (at - page_at).checked_sub(HEAD)?;
                let slot = within / slot_bytes(tag.class);
                let taken = words.load(page_at + BITS + 8 * (slot / 64).min(3)) >> (slot % 64) & 1;
                (within.is_multiple_of(slot_bytes(tag.class))
                    && slot < slots(tag.class)
                    && taken == 1)
                    .then(|| slot_bytes(tag.class))
            }
            _ => None,
        }
    }
}
