//! What readers ask for, as sequences of items. A write gives its key a new item, as it has a new location in a map.

use crate::structures::Random;

/// A sequence of items, numbered from 0.
pub(super) struct Trace {
    pub name: &'static str,
    pub asked: Vec<u32>,
    /// How many different ones there are at the most.
    pub items: usize,
}

/// All traces, over so many keys and of so many requests.
pub(super) fn all(keys: usize, requests: usize) -> Vec<Trace> {
    let zipf = |theta: f64, seed| {
        let (ranks, mut random) = (Zipf::new(keys, theta), Random(seed));
        (0..requests).map(|_| scattered(ranks.next(&mut random), keys)).collect::<Vec<u32>>()
    };
    let trace = |name, asked| Trace { name, asked, items: keys };
    vec![
        trace("Zipf 0.6", zipf(0.6, 1)),
        trace("Zipf 0.99", zipf(0.99, 2)),
        trace("Zipf 1.2", zipf(1.2, 3)),
        trace("a hot set that shifts", shifting(keys, requests)),
        trace("scans through everything", scans(keys, requests)),
        written(keys, requests),
    ]
}

/// Each time as many requests have passed as there are keys, the hottest fiftieth of them is another one.
fn shifting(keys: usize, requests: usize) -> Vec<u32> {
    let (ranks, mut random) = (Zipf::new(keys, 0.99), Random(4));
    let shift = |request: usize| request / keys * (keys / 50);
    (0..requests).map(|request| scattered((ranks.next(&mut random) + shift(request)) % keys, keys)).collect()
}

/// One request in four is of a scan, which asks for all keys in their order.
fn scans(keys: usize, requests: usize) -> Vec<u32> {
    let (ranks, mut random) = (Zipf::new(keys, 0.99), Random(5));
    let one = |request: usize| match request / keys % 4 {
        3 => (request % keys) as u32,
        _ => scattered(ranks.next(&mut random), keys),
    };
    (0..requests).map(one).collect()
}

/// Three operations in ten are writes, of which the hottest are to the keys that readers ask for least.
fn written(keys: usize, requests: usize) -> Trace {
    let (ranks, mut random) = (Zipf::new(keys, 0.99), Random(6));
    let mut newest: Vec<u32> = (0..keys as u32).collect();
    let (mut asked, mut items) = (Vec::with_capacity(requests), keys);
    while asked.len() < requests {
        if random.below(10) < 3 {
            newest[scattered(keys - 1 - ranks.next(&mut random), keys) as usize] = items as u32;
            items += 1;
        } else {
            asked.push(newest[scattered(ranks.next(&mut random), keys) as usize]);
        }
    }
    Trace { name: "read-hot apart from write-hot", asked, items }
}

/// Another number for each rank, so that neighbours in rank are none in number.
fn scattered(rank: usize, keys: usize) -> u32 {
    // A prime, which divides no number of keys in use.
    (rank as u64 * 1_000_003 % keys as u64) as u32
}

/// Ranks from 0, the most frequent first, by the sums of their shares.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(ranks: usize, theta: f64) -> Zipf {
        let mut sum = 0.0;
        let add = |rank: usize| {
            sum += (rank as f64).powf(-theta);
            sum
        };
        Zipf((1..=ranks).map(add).collect())
    }

    fn next(&self, random: &mut Random) -> usize {
        let all = self.0.last().expect("there are keys");
        let at = (random.next_word() >> 11) as f64 / (1u64 << 53) as f64 * all;
        self.0.partition_point(|sum| *sum <= at).min(self.0.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hottest_keys_are_asked_for_as_often_as_their_share() {
        let all = all(1000, 200_000);
        for (trace, share) in all.iter().zip([0.0251, 0.1303, 0.2225]) {
            let first = trace.asked.iter().filter(|item| **item == 0).count() as f64 / 200_000.0;
            assert!((first / share - 1.0).abs() < 0.06, "{}: {first} of {share}", trace.name);
        }
        assert!(all.iter().all(|trace| trace.asked.iter().all(|item| (*item as usize) < trace.items)));
        assert!((0..1000).collect::<std::collections::HashSet<_>>()
            == (0..1000).map(|rank| scattered(rank, 1000)).collect());
    }
}
