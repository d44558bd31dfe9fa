//! The walk that proves the allocation metadata: every byte of the heap has one owner.

use super::classes::{CLASSES, slot_bytes, slots};
use super::{BITS, HEAD, HEADS_AT, Heap, LARGE_MAGIC, NEXT, PREVIOUS, Tag, Use, Words, meta_pages};
use crate::sections::media::PAGE;
use std::collections::{BTreeMap, BTreeSet};

/// The heap by what its bytes are. `objects_bytes`, `free_bytes` and `metadata_bytes` are the whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapCensus {
    /// Allocated objects.
    pub objects: u64,
    /// Bytes of their slots and pages.
    pub objects_bytes: u64,
    /// Bytes of free slots and pages.
    pub free_bytes: u64,
    /// Bytes of the allocation metadata: heads of pages, the map, what slots leave of a page.
    pub metadata_bytes: u64,
}

impl Heap {
    /// Walks the allocation metadata. Every page is free, or of slots, or of one large object; every slot is free
    /// or taken; every page with free slots is on its class's list once. O(heap).
    ///
    /// Returns the census and the objects, offset to bytes.
    ///
    /// # Errors
    /// The first inconsistency.
    pub(in crate::sections) fn check(
        &self,
        words: &impl Words,
    ) -> Result<(HeapCensus, BTreeMap<u64, u64>), String> {
        let mut census =
            HeapCensus { metadata_bytes: meta_pages(self.pages) * PAGE, ..HeapCensus::default() };
        let mut objects = BTreeMap::new();
        let mut unfilled = vec![BTreeSet::new(); CLASSES];
        if words.load(0) != self.pages {
            return Err(format!("the heap says {} pages of {}", words.load(0), self.pages));
        }
        let mut page = meta_pages(self.pages);
        while page < self.pages {
            page += match self.get(words, page) {
                Use::Free => {
                    census.free_bytes += PAGE;
                    1
                }
                Use::Slots => {
                    self.check_slots(words, page, &mut census, &mut objects, &mut unfilled)?;
                    1
                }
                Use::Large => self.check_large(words, page, &mut census, &mut objects)?,
                Use::Further => {
                    return Err(format!("page {page} is part of a large object that is not there"));
                }
            };
        }
        for (class, unfilled) in unfilled.into_iter().enumerate() {
            check_list(words, class, unfilled)?;
        }
        let sum = census.objects_bytes + census.free_bytes + census.metadata_bytes;
        if sum != self.end() {
            return Err(format!("{sum} of {} bytes are accounted for: {census:?}", self.end()));
        }
        Ok((census, objects))
    }

    fn check_slots(
        &self,
        words: &impl Words,
        page: u64,
        census: &mut HeapCensus,
        objects: &mut BTreeMap<u64, u64>,
        unfilled: &mut [BTreeSet<u64>],
    ) -> Result<(), String> {
        let page_at = page * PAGE;
        let tag = Tag::decode(words.load(page_at))
            .ok_or_else(|| format!("page {page} has no head: {:#x}", words.load(page_at)))?;
        let bytes = slot_bytes(tag.class);
        let mut used = 0;
        for slot in 0..256 {
            let taken = words.load(page_at + BITS + 8 * (slot / 64)) >> (slot % 64) & 1 == 1;
            if taken && slot >= slots(tag.class) {
                return Err(format!("page {page}: slot {slot} of {} taken", slots(tag.class)));
            }
            if taken {
                objects.insert(page_at + HEAD + slot * bytes, bytes);
                used += 1;
            }
        }
        if used != tag.used {
            return Err(format!("page {page}: {used} slots taken, the head says {}", tag.used));
        }
        if used < slots(tag.class) {
            unfilled[tag.class].insert(page_at);
        }
        census.objects += used;
        census.objects_bytes += used * bytes;
        census.free_bytes += (slots(tag.class) - used) * bytes;
        census.metadata_bytes += PAGE - slots(tag.class) * bytes;
        Ok(())
    }

    fn check_large(
        &self,
        words: &impl Words,
        page: u64,
        census: &mut HeapCensus,
        objects: &mut BTreeMap<u64, u64>,
    ) -> Result<u64, String> {
        let page_at = page * PAGE;
        let (magic, count) = (words.load(page_at), words.load(page_at + NEXT));
        if magic != LARGE_MAGIC << 32 || count == 0 || page + count > self.pages {
            return Err(format!("page {page}: no head of a large object: {magic:#x}, {count}"));
        }
        if words.load(page_at + PREVIOUS) > count * PAGE - HEAD {
            return Err(format!("page {page}: a large object longer than its {count} pages"));
        }
        for further in page + 1..page + count {
            if self.get(words, further) != Use::Further {
                return Err(format!("page {further} is not of the large object at page {page}"));
            }
        }
        objects.insert(page_at + HEAD, count * PAGE - HEAD);
        census.objects += 1;
        census.objects_bytes += count * PAGE - HEAD;
        census.metadata_bytes += HEAD;
        Ok(count)
    }
}

fn check_list(words: &impl Words, class: usize, mut unfilled: BTreeSet<u64>) -> Result<(), String> {
    let (mut at, mut previous) = (words.load(HEADS_AT + 8 * class as u64), 0);
    while at != 0 {
        if !unfilled.remove(&at) {
            return Err(format!("page at {at} is twice, or wrongly, on the list of class {class}"));
        }
        if words.load(at + PREVIOUS) != previous {
            return Err(format!("page at {at} has another page before it than the list has"));
        }
        (previous, at) = (at, words.load(at + NEXT));
    }
    match unfilled.first() {
        None => Ok(()),
        Some(at) => Err(format!("page at {at} has free slots but is not on the list")),
    }
}
