//! Whether written lines are left to the caches or written back at once, by what a memory was measured to
//! do with either.
//!
//! Where the caches survive a power cut, a write-back is a matter of speed (Wu, section 2.5): caches give
//! lines up one by one and in their own order, which a memory of large lines pays for, while DRAM does
//! not. Both ways are in a profile, as the bandwidth of random pieces.

use super::curve::Curve;
use super::{Flavour, NodeProfile};
use std::fmt;

/// How much faster random pieces reach a memory when they are written back at once.
#[derive(Clone, Debug, PartialEq)]
pub struct Keeping {
    memory: String,
    threads: usize,
    /// By bytes of a piece: bandwidth when written back at once, by that when the caches decide.
    gains: Curve,
}

impl Keeping {
    /// What a profile says, at the most threads that it has both ways of; `None` where it has not, or where
    /// settings were left out.
    pub fn of(node: &NodeProfile) -> Option<Keeping> {
        let points = node.bandwidth.whole().iter().filter(|point| point.is_random);
        let of = |flavour| points.clone().filter(move |point| point.flavour == flavour);
        let mut pairs: Vec<(usize, u64, f64)> = of(Flavour::Store)
            .filter_map(|kept| {
                let setting = (kept.threads, kept.piece_bytes);
                let mut flushed = of(Flavour::StoreFlush);
                let flushed = flushed.find(|p| (p.threads, p.piece_bytes) == setting)?;
                let gain = flushed.gb_s.median() / kept.gb_s.median();
                gain.is_finite().then_some((kept.threads, kept.piece_bytes, gain))
            })
            .collect();
        let threads = pairs.iter().map(|pair| pair.0).max()?;
        pairs.retain(|pair| pair.0 == threads);
        Some(Keeping::new(&node.name, threads, pairs.into_iter().map(|pair| (pair.1, pair.2))))
    }

    /// These gains, by bytes of a piece.
    ///
    /// # Panics
    /// If there is none.
    pub fn new(
        memory: &str,
        threads: usize,
        gains: impl IntoIterator<Item = (u64, f64)>,
    ) -> Keeping {
        let gains = Curve::of(gains).expect("a gain at some size");
        Keeping { memory: memory.into(), threads, gains }
    }

    /// The gain of a piece of `bytes`: between two sizes that were measured by its place on a scale of
    /// powers, beyond them that of the nearest.
    pub fn gain(&self, bytes: u64) -> f64 {
        self.gains.at(bytes)
    }
}

impl fmt::Display for Keeping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "measured on {} with {} threads: written back at once,",
            self.memory, self.threads
        )?;
        for (i, (bytes, gain)) in self.gains.points().iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma} {bytes} B move {gain:.2} times as fast")?;
        }
        f.write_str(" as kept ones")
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Bandwidth, Estimate, Measured};
    use super::*;

    fn node(points: &[(Flavour, bool, u64, usize, f64)]) -> NodeProfile {
        let of = |&(flavour, is_random, piece_bytes, threads, gb_s): &(_, _, _, _, f64)| {
            let gb_s = Estimate::of(gb_s).expect("a figure");
            Bandwidth { flavour, is_random, piece_bytes, threads, gb_s }
        };
        NodeProfile {
            bandwidth: Measured::Points(points.iter().map(of).collect()),
            ..NodeProfile::new("pmem0")
        }
    }

    #[test]
    fn gains_are_of_random_pieces_at_the_most_threads() {
        use Flavour::{Read, Store, StoreFlush, Stream};
        let found = Keeping::of(&node(&[
            (Store, true, 64, 1, 1.0),
            (StoreFlush, true, 64, 1, 9.0),
            (Store, true, 256, 4, 2.0),
            (StoreFlush, true, 256, 4, 4.0),
            (Store, true, 64, 4, 2.0),
            (StoreFlush, true, 64, 4, 1.0),
            (StoreFlush, false, 64, 4, 8.0),
            (Stream, true, 64, 4, 8.0),
            (Store, true, 64, 8, 2.0),
        ]));
        let found = found.expect("both ways");
        assert_eq!(found, Keeping::new("pmem0", 4, [(64, 0.5), (256, 2.0)]));
        let gains = [8, 64, 128, 256, 4096].map(|bytes| found.gain(bytes));
        assert_eq!(gains, [0.5, 0.5, 1.25, 2.0, 2.0]);
        let text = found.to_string();
        assert!(
            text.contains("pmem0 with 4 threads") && text.contains("256 B move 2.00"),
            "{text}"
        );
        let one_way = [(Store, true, 64, 1, 1.0), (Read, true, 64, 1, 1.0)];
        assert_eq!(Keeping::of(&node(&one_way)), None);
    }
}
