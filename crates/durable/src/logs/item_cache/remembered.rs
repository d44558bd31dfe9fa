//! Locations of copies that went lately: eight bytes each.

/// Locations that share a place.
const WAYS: usize = 4;

/// Forgets by itself what went before all others that find place.
pub(super) struct Remembered {
    /// Half a location each, mixed, and when it went; 0: nothing.
    went: Box<[[u64; WAYS]]>,
    /// How many have gone so far.
    now: u32,
}

impl Remembered {
    /// Of about so many locations.
    pub fn new(locations: usize) -> Remembered {
        // A quarter more, since places fill unevenly.
        let sets = (locations + locations / 4).div_ceil(WAYS).max(4);
        Remembered { went: vec![[0; WAYS]; sets].into(), now: 0 }
    }

    pub fn bytes(&self) -> u64 {
        size_of_val(&*self.went) as u64
    }

    fn place(&mut self, location: u64) -> (&mut [u64; WAYS], u64) {
        let mixed = (location ^ location >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let set = (u128::from(mixed) * self.went.len() as u128) >> 64;
        (&mut self.went[set as usize], mixed << 32)
    }

    /// A copy of the item at this location went.
    pub fn note(&mut self, location: u64) {
        self.now = self.now.wrapping_add(1).max(1);
        let now = self.now;
        let (set, tag) = self.place(location);
        let age = |entry: &u64| match *entry {
            0 => u32::MAX,
            entry => now.wrapping_sub(entry as u32),
        };
        let oldest = set.iter_mut().max_by_key(|entry| age(entry)).expect("a set has ways");
        *oldest = tag | u64::from(now);
    }

    /// Whether a copy of it was among the `last` that went; it is forgotten then.
    pub fn take(&mut self, location: u64, last: usize) -> bool {
        let now = self.now;
        let (set, tag) = self.place(location);
        let is_it = |entry: &&mut u64| **entry != 0 && **entry >> 32 == tag >> 32;
        let Some(entry) = set.iter_mut().find(is_it) else { return false };
        let age = now.wrapping_sub(*entry as u32);
        *entry = 0;
        (age as usize) < last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_are_remembered_once_and_no_others() {
        let mut went = Remembered::new(1000);
        (1..=3000).for_each(|n| went.note(n * 64));
        let known = |went: &mut Remembered, numbers: std::ops::RangeInclusive<u64>| {
            numbers.filter(|n| went.take(n * 64, 1000)).count()
        };
        assert_eq!(known(&mut went, 1..=2000), 0);
        assert_eq!(known(&mut went, 3001..=9000), 0);
        let last = known(&mut went, 2001..=3000);
        assert!(last > 900, "{last} of 1000");
        assert_eq!(known(&mut went, 2001..=3000), 0);
    }
}
