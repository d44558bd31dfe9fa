//! Where a location is.
//!
//! The files of logs and of slabs are divided into segments of one length, and a location is an offset in the file: a
//! segment's number and an offset in that. Whoever computes one from the other does it by the functions here.
//!
//! A segment has a *home*, the tier that it belongs to, and its bytes are in memory or they are not: it is *resident*
//! or *away*. What lies in one that is away is read from the disk, if it holds items; else nothing is. From a location
//! to memory there is one way, [`Residents::resolve`]. It asks no segment where all that lie below a bound are
//! resident; so a map all of whose values are in memory pays the comparison that keeps an odd location from being
//! read, and nothing else (`docs/decisions/0034-a-segment-knows-where-it-is.md`).

use super::{Found, NoItem};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Bytes of a segment, which is a log or a superblock of slots.
pub const SEGMENT_BYTES: u32 = 4 << 20;
const BYTES: u64 = SEGMENT_BYTES as u64;

/// The segment of a location.
#[inline(always)]
pub(crate) fn segment_of(location: u64) -> usize {
    (location / BYTES) as usize
}

/// How far behind the beginning of its segment a location is.
#[inline(always)]
pub(crate) fn offset_of(location: u64) -> u32 {
    (location % BYTES) as u32
}

/// Where a segment begins.
#[inline(always)]
pub(crate) fn start_of(segment: u32) -> u64 {
    u64::from(segment) * BYTES
}

/// Where the segment of a location ends.
#[inline(always)]
pub(crate) fn end_of(location: u64) -> u64 {
    (location | (BYTES - 1)).saturating_add(1)
}

/// The memory that a segment lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// That which new values are written to.
    Near,
    /// That which values are moved to that were not written for long.
    Far,
}

/// Where a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Residence {
    /// Where its memory is, or was: near, or far.
    pub home: Home,
    /// Whether its bytes are in memory, at its offset.
    pub is_resident: bool,
}

/// The [`Residence`] of a segment. All zero, it is resident, and near.
#[derive(Debug, Default)]
pub(crate) struct Place(AtomicU8);

impl Place {
    const AWAY: u8 = 1 << 7;
    /// Away, and what it holds is on the disk.
    const ON_DISK: u8 = 1 << 6;
    const FAR: u8 = 1;

    pub fn residence(&self) -> Residence {
        let word = self.0.load(Ordering::Acquire);
        let home = if word & Place::FAR == 0 { Home::Near } else { Home::Far };
        Residence { home, is_resident: word & Place::AWAY == 0 }
    }

    pub fn is_on_disk(&self) -> bool {
        self.0.load(Ordering::Acquire) & Place::ON_DISK != 0
    }

    /// Notes that its memory was moved there, or that what is there was given back.
    pub fn set_home(&self, home: Home) {
        match home {
            Home::Near => self.0.fetch_and(!Place::FAR, Ordering::AcqRel),
            Home::Far => self.0.fetch_or(Place::FAR, Ordering::AcqRel),
        };
    }

    fn set_resident(&self) {
        self.0.fetch_and(!(Place::AWAY | Place::ON_DISK), Ordering::AcqRel);
    }
}

/// Where to read what lies at a location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resolved {
    /// Its segment.
    pub segment: usize,
    /// What lies there ends here at the latest.
    pub end: u64,
}

/// Which segments are resident. Changed under the lock of the pool that gives them out.
#[derive(Debug, Default)]
pub(crate) struct Residents {
    /// All segments below this location are.
    all_below: AtomicU64,
}

impl Residents {
    /// Where in memory, of which `usable` bytes can be read, what lies at `location` is.
    ///
    /// # Errors
    /// [`NoItem::Away`] if its segment is, and holds items; [`NoItem::Invalid`] if it holds none, or there is none.
    #[inline(always)]
    pub fn resolve<'a>(
        &self,
        location: u64,
        usable: impl FnOnce() -> u64,
        place: impl FnOnce(usize) -> Option<&'a Place>,
    ) -> Found<Resolved> {
        let (segment, end) = (segment_of(location), end_of(location));
        // With the bytes of a segment that was brought back.
        if end <= self.all_below.load(Ordering::Acquire) {
            return Ok(Resolved { segment, end });
        }
        Residents::resolve_by_segment(location, usable(), place(segment))
    }

    /// The way behind the first segment that is away; there are such as soon as a log was given back to the system.
    #[inline(always)]
    fn resolve_by_segment(location: u64, usable: u64, place: Option<&Place>) -> Found<Resolved> {
        let (segment, end) = (segment_of(location), end_of(location).min(usable));
        match place {
            Some(place) if place.residence().is_resident && location < end => {
                Ok(Resolved { segment, end })
            }
            Some(place) if place.is_on_disk() => Err(NoItem::Away(location)),
            _ => Err(NoItem::Invalid(location)),
        }
    }

    /// A segment's bytes are in memory, as are those of all before it that are not away. `places` are those from a
    /// segment on, to the last one that was ever used.
    pub fn add<'a, P: Iterator<Item = &'a Place>>(
        &self,
        place: &Place,
        places: impl FnOnce(usize) -> P,
    ) {
        place.set_resident();
        self.count_on(segment_of(self.all_below.load(Ordering::Relaxed)), places);
    }

    /// A segment that holds nothing is about to leave memory.
    pub fn remove(&self, segment: u32, place: &Place) {
        self.take_away(segment, place, Place::AWAY);
    }

    /// A segment is about to leave memory, and its items are on the disk.
    pub fn send_away(&self, segment: u32, place: &Place) {
        self.take_away(segment, place, Place::AWAY | Place::ON_DISK);
    }

    fn take_away(&self, segment: u32, place: &Place, how: u8) {
        place.0.fetch_or(how, Ordering::AcqRel);
        self.all_below.fetch_min(start_of(segment), Ordering::AcqRel);
    }

    /// Looks at each of `places`, which are as for [`Residents::add`].
    pub fn recount<'a, P: Iterator<Item = &'a Place>>(&self, places: impl FnOnce(usize) -> P) {
        self.count_on(1, places);
    }

    /// All segments before `first` are resident. Of number 0, the head, nothing is asked.
    fn count_on<'a, P: Iterator<Item = &'a Place>>(
        &self,
        first: usize,
        places: impl FnOnce(usize) -> P,
    ) {
        let first = first.max(1);
        let more = places(first).take_while(|place| place.residence().is_resident).count();
        self.all_below.store(start_of((first + more) as u32), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_its_segment_and_an_offset() {
        for (location, segment, offset) in
            [(0, 0, 0), (BYTES - 1, 0, SEGMENT_BYTES - 1), (5 * BYTES + 64, 5, 64)]
        {
            assert_eq!((segment_of(location), offset_of(location)), (segment, offset));
            assert_eq!(start_of(segment as u32) + u64::from(offset), location);
            assert_eq!(end_of(location), start_of(segment as u32 + 1));
        }
        assert_eq!(end_of(u64::MAX), u64::MAX, "of no segment that there is");
    }

    /// Whether the bound is above a segment makes no difference to what is resolved.
    #[test]
    fn a_segment_that_is_away_is_not_read_and_those_around_it_are() {
        let places: Vec<Place> = (0..5).map(|_| Place::default()).collect();
        let (residents, usable) = (Residents::default(), 5 * BYTES - 100);
        let resolve = |location| residents.resolve(location, || usable, |n| places.get(n));
        let ends =
            || (1..5).map(|n| resolve(n * BYTES + 64).map(|found| found.end)).collect::<Vec<_>>();
        let whole = |n: u64| Ok((n + 1) * BYTES);
        let all = [whole(1), whole(2), whole(3), Ok(usable)];
        assert_eq!(ends(), all, "before anything was counted");
        residents.recount(|first| places[first..4].iter());
        assert_eq!(residents.all_below.load(Ordering::Relaxed), 4 * BYTES);
        assert_eq!(ends(), all);
        residents.remove(2, &places[2]);
        let away = Err(NoItem::Invalid(2 * BYTES + 64));
        assert_eq!(ends(), [whole(1), away, whole(3), Ok(usable)]);
        assert_eq!(places[2].residence(), Residence { home: Home::Near, is_resident: false });
        residents.add(&places[2], |first| {
            assert_eq!(first, 2, "those before it are known to be resident");
            places[first..4].iter()
        });
        assert_eq!(ends(), all);
        assert_eq!(residents.all_below.load(Ordering::Relaxed), 4 * BYTES);
        for odd in [usable, 5 * BYTES, u64::MAX] {
            assert_eq!(resolve(odd), Err(NoItem::Invalid(odd)));
        }
    }
}
