//! A core's TLB with the extension, and its write-set buffer.

/// What an entry says of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Translation {
    /// Where the page lies, and where its other lines do.
    pub places: [u32; 2],
    /// For each sub-page, which of the two is read and written now.
    pub current: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    page: u32,
    used: u64,
    translation: Translation,
}

const NONE: u16 = u16::MAX;

/// Fully associative, the longest unused page goes.
#[derive(Clone, Debug)]
pub(super) struct Tlb {
    entries: Vec<Entry>,
    /// Each page's entry.
    at: Vec<u16>,
    capacity: usize,
    clock: u64,
}

impl Tlb {
    pub fn new(capacity: usize, pages: u32) -> Tlb {
        let capacity = capacity.clamp(1, NONE as usize - 1);
        Tlb {
            entries: Vec::with_capacity(capacity),
            at: vec![NONE; pages as usize],
            capacity,
            clock: 0,
        }
    }

    #[inline]
    pub fn look(&mut self, page: u32) -> Option<Translation> {
        let at = self.at[page as usize];
        if at == NONE {
            return None;
        }
        self.clock += 1;
        let entry = &mut self.entries[at as usize];
        entry.used = self.clock;
        Some(entry.translation)
    }

    /// Puts a page in that is not there; returns the one that had to go.
    pub fn insert(&mut self, page: u32, translation: Translation) -> Option<u32> {
        self.clock += 1;
        let entry = Entry { page, used: self.clock, translation };
        if self.entries.len() < self.capacity {
            self.at[page as usize] = self.entries.len() as u16;
            self.entries.push(entry);
            return None;
        }
        let at = (0..self.entries.len()).min_by_key(|at| self.entries[*at].used).unwrap_or(0);
        let old = std::mem::replace(&mut self.entries[at], entry).page;
        self.at[old as usize] = NONE;
        self.at[page as usize] = at as u16;
        Some(old)
    }

    /// Flips sub-pages, if the page is held; returns whether.
    #[inline]
    pub fn flip(&mut self, page: u32, bits: u64) -> bool {
        let at = self.at[page as usize];
        if at == NONE {
            return false;
        }
        self.entries[at as usize].translation.current ^= bits;
        true
    }
}

/// The pages that a core's open section has changed, with a bit for each sub-page.
#[derive(Clone, Debug, Default)]
pub(super) struct WriteSet {
    pages: Vec<(u32, u64)>,
}

impl WriteSet {
    #[inline]
    pub fn bits(&self, page: u32) -> Option<u64> {
        self.pages.iter().find(|(of, _)| *of == page).map(|(_, bits)| *bits)
    }

    /// Adds bits to a page's.
    pub fn add(&mut self, page: u32, bits: u64) {
        match self.pages.iter_mut().find(|(of, _)| *of == page) {
            Some((_, has)) => *has |= bits,
            None => self.pages.push((page, bits)),
        }
    }

    pub fn len(&self) -> usize {
        self.pages.len()
    }

    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Empties it; returns what it had.
    pub fn take(&mut self) -> Vec<(u32, u64)> {
        std::mem::take(&mut self.pages)
    }

    pub fn pages(&self) -> &[(u32, u64)] {
        &self.pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_unused_page_goes_and_flips_reach_only_pages_that_are_held() {
        let mut tlb = Tlb::new(2, 4);
        assert_eq!(tlb.insert(0, Translation::default()), None);
        assert_eq!(tlb.insert(1, Translation::default()), None);
        assert!(tlb.look(0).is_some());
        assert_eq!(tlb.insert(2, Translation::default()), Some(1));
        assert!(tlb.flip(2, 5) && !tlb.flip(1, 5));
        assert_eq!(tlb.look(2).map(|found| found.current), Some(5));
        assert!(tlb.look(0).is_some() && tlb.look(1).is_none() && tlb.look(3).is_none());
    }
}
