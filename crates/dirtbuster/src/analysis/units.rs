//! Units: the stores of a function that write the same runs.
//!
//! The four stores of an unrolled loop, or a vector loop and its remainder, are one unit and get one verdict. The store
//! to another array in the same function is another unit: FT's `cffts1` writes a hot scratch area and a cold result.
//! Two stores become one unit when one has continued the other's runs several times; once can be an accident of two
//! objects that lie side by side.

use super::lines::ByAddress;

/// Pairs of stores that are counted; what has met once is forgotten beyond.
const PAIRS: usize = 1 << 18;
/// How often a store continues another's run before they are one unit.
const OFTEN: u8 = 8;

#[derive(Debug, Default)]
pub(super) struct Units {
    parents: Vec<u32>,
    links: ByAddress<(u32, u32), u8>,
}

impl Units {
    /// A unit of one store more; returns its number, which is the store's.
    pub(super) fn add(&mut self) -> u32 {
        let number = self.parents.len() as u32;
        self.parents.push(number);
        number
    }

    /// The unit that a store is in by now.
    pub(super) fn of(&mut self, mut site: u32) -> u32 {
        loop {
            let above = self.parents[site as usize];
            if above == site {
                return site;
            }
            self.parents[site as usize] = self.parents[above as usize];
            site = above;
        }
    }

    /// Notes that a store continued a run of a unit; returns the store's unit.
    pub(super) fn link(&mut self, site: u32, unit: u32) -> u32 {
        let (site, unit) = (self.of(site), self.of(unit));
        if site == unit {
            return unit;
        }
        let pair = (site.min(unit), site.max(unit));
        if self.links.len() >= PAIRS {
            self.links.clear();
        }
        let times = self.links.entry(pair).or_default();
        *times += 1;
        if *times < OFTEN {
            return site;
        }
        self.links.remove(&pair);
        self.parents[pair.1 as usize] = pair.0;
        pair.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_become_one_unit_when_they_meet_often() {
        let mut units = Units::default();
        let [a, b, c] = [units.add(), units.add(), units.add()];
        assert_eq!(units.link(b, a), b);
        (0..OFTEN).for_each(|_| {
            units.link(b, a);
        });
        assert_eq!((units.of(a), units.of(b), units.of(c)), (a, a, c));
    }
}
