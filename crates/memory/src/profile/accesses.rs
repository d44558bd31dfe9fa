//! What single accesses to a memory cost, for a structure that may be laid out in more ways than one.

use super::curve::Curve;
use super::{Flavour, NodeProfile};
use crate::instructions::LINE_BYTES as LINE;

/// Pieces up to here are asked for by the lines of a core's own misses: larger ones by prefetchers too.
const OWN_MISSES_BYTES: u64 = 1024;

/// What a profile says of pieces of a memory, by their bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Accesses {
    latency_ns: f64,
    /// Nanoseconds of a piece: read by one thread, and by all.
    read: Curve,
    crowded: Curve,
    kept: Curve,
    appended: Curve,
    /// All threads.
    threads: usize,
    memory: String,
}

impl Accesses {
    /// What a profile says; `None` where latency, random reads or persisted pieces were not measured, or settings of
    /// bandwidth were left out. Figures are of the most threads that persisted pieces, since bandwidth is what a
    /// memory is short of then.
    pub fn of(node: &NodeProfile) -> Option<Accesses> {
        let latency_ns = node.idle_latency()?.load.p50_ns.median();
        let points = node.bandwidth.whole();
        let persisted = points.iter().filter(|point| point.flavour == Flavour::StoreFlush);
        let threads = persisted.map(|point| point.threads).max()?;
        let curve = |flavour, is_random, threads| {
            let of = points.iter().filter(move |point| {
                (point.flavour, point.is_random, point.threads) == (flavour, is_random, threads)
            });
            let gb_s = of.map(|point| (point.piece_bytes, point.gb_s.median()));
            let each = gb_s.filter(|(_, gb_s)| *gb_s > 0.0);
            Curve::of(each.map(|(bytes, gb_s)| (bytes, bytes as f64 * threads as f64 / gb_s)))
        };
        Some(Accesses {
            latency_ns,
            read: curve(Flavour::Read, true, 1)?,
            crowded: curve(Flavour::Read, true, threads)?,
            kept: curve(Flavour::StoreFlush, true, threads)?,
            appended: curve(Flavour::StoreFlush, false, threads)?,
            threads,
            memory: node.name.clone(),
        })
    }

    /// The memory they are of.
    pub fn memory(&self) -> &str {
        &self.memory
    }

    /// Pieces at random places that are prefetched as a batch and waited for, while all threads do the same, ns: the
    /// latency and what more lines than one take, or, if that is longer, their share of the bandwidth.
    pub fn look_ns(&self, pieces: &[u64]) -> f64 {
        let sum = |curve: &Curve| pieces.iter().map(|bytes| of_lines(curve, *bytes)).sum::<f64>();
        let alone = self.latency_ns + (sum(&self.read) - of_lines(&self.read, LINE)).max(0.0);
        alone.max(sum(&self.crowded))
    }

    /// A piece stored, written back and fenced at a random place while all threads do the same, ns.
    pub fn keep_ns(&self, bytes: u64) -> f64 {
        of_lines(&self.kept, bytes)
    }

    /// The same where each piece lies behind the one before, ns.
    pub fn append_ns(&self, bytes: u64) -> f64 {
        of_lines(&self.appended, bytes)
    }

    /// Pieces a second that all threads together keep as by [`Accesses::keep_ns`], at the most.
    pub fn most_kept(&self, bytes: u64) -> f64 {
        self.threads as f64 * 1e9 / self.keep_ns(bytes)
    }

    /// Lines a second above which the memory is busy, if they are written one by one as caches give them up: half of
    /// what it takes of these. From there on it may pay to write together those that a change dirtied (Ni,
    /// section 5.4.2).
    pub fn busy_above(&self) -> u64 {
        (self.most_kept(LINE) / 2.0) as u64
    }

    /// All threads.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Lines that one thread has on their way at once, 1 at least: what it reads at random in the time of a load
    /// (Little's law).
    pub fn lines_at_once(&self) -> f64 {
        let small = self.read.points().iter().filter(|(bytes, _)| *bytes <= OWN_MISSES_BYTES);
        let lines = small.map(|(bytes, ns)| (bytes / LINE).max(1) as f64 * self.latency_ns / ns);
        lines.fold(1.0, f64::max)
    }
}

/// Of whole lines; beyond what was measured in proportion.
fn of_lines(curve: &Curve, bytes: u64) -> f64 {
    let bytes = bytes.max(1).next_multiple_of(LINE);
    let (largest, ns) = *curve.points().last().expect("a curve has a point");
    if bytes > largest { ns * bytes as f64 / largest as f64 } else { curve.at(bytes) }
}

#[cfg(test)]
mod tests {
    use super::super::{Bandwidth, Estimate, Latency, Measured, Quantiles};
    use super::*;

    fn estimate(value: f64) -> Estimate {
        Estimate::of(value).expect("a figure")
    }

    fn node(points: &[(Flavour, bool, u64, usize, f64)]) -> NodeProfile {
        let of = |&(flavour, is_random, piece_bytes, threads, gb_s): &(_, _, _, _, f64)| {
            Bandwidth { flavour, is_random, piece_bytes, threads, gb_s: estimate(gb_s) }
        };
        let load = Quantiles {
            mean_ns: estimate(110.0),
            p50_ns: estimate(100.0),
            p99_ns: estimate(300.0),
        };
        NodeProfile {
            latency: Measured::Points(vec![Latency { bytes: 1 << 30, load }]),
            bandwidth: Measured::Points(points.iter().map(of).collect()),
            ..NodeProfile::new("pmem0")
        }
    }

    #[test]
    fn pieces_cost_what_was_measured() {
        use Flavour::{Read, Store, StoreFlush};
        // 64 B in 16 ns: 6.25 lines in 100 ns. 1 KiB in 128 ns: 12.5 lines. 4 KiB, with the prefetchers' help,
        // would be more.
        let points = [
            (Read, true, 64, 1, 4.0),
            (Read, true, 1024, 1, 8.0),
            (Read, true, 4096, 1, 40.0),
            (Read, true, 64, 4, 2.0),
            (Read, true, 1024, 4, 16.0),
            (Read, false, 64, 1, 99.0),
            (Store, true, 64, 4, 99.0),
            (StoreFlush, true, 64, 1, 9.0),
            (StoreFlush, true, 64, 4, 1.0),
            (StoreFlush, true, 256, 4, 4.0),
            (StoreFlush, false, 64, 4, 4.0),
        ];
        let found = Accesses::of(&node(&points)).expect("all of it");
        assert_eq!(found.lines_at_once(), 12.5);
        assert_eq!(found.look_ns(&[8]), 128.0, "64 B by four threads at 2 GB/s");
        assert_eq!(found.look_ns(&[1024]), 256.0);
        assert_eq!(found.look_ns(&[64, 64]), 256.0);
        let alone = Accesses { crowded: found.read.clone(), ..found.clone() };
        assert_eq!(alone.look_ns(&[8]), 100.0);
        assert_eq!(alone.look_ns(&[1024]), 100.0 + 112.0);
        assert_eq!([1, 64, 128, 256].map(|bytes| found.keep_ns(bytes)), [256.0; 4]);
        assert_eq!(found.keep_ns(512), 512.0, "beyond what was measured");
        assert_eq!(found.most_kept(64), 4e9 / 256.0);
        assert_eq!(found.busy_above(), 7_812_500);
        assert_eq!(found.append_ns(64), 64.0);
        assert_eq!(found.threads(), 4);
        for missing in [1, 7] {
            let mut fewer = points.to_vec();
            fewer.retain(|point| point.0 != if missing == 1 { Read } else { StoreFlush });
            assert_eq!(Accesses::of(&node(&fewer)), None);
        }
        assert_eq!(
            Accesses::of(&NodeProfile { latency: Measured::not_asked_for(), ..node(&points) }),
            None
        );
    }
}
