//! Streams of keys: uniform, and the paper's Zipf, 80% of updates to 15% of the keys.

/// A seeded generator: the same numbers every time.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn next_word(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next_word() % n
    }
}

/// A stream of keys.
#[derive(Clone, Debug)]
pub struct Keys {
    random: Random,
    keys: u64,
    is_zipf: bool,
}

impl Keys {
    /// All of `0..keys` alike.
    pub fn uniform(keys: u64, seed: u64) -> Keys {
        Keys { random: Random(seed), keys, is_zipf: false }
    }

    /// Of every hundred, eighty from a set of 15% of the keys.
    pub fn zipf(keys: u64, seed: u64) -> Keys {
        Keys { random: Random(seed), keys, is_zipf: true }
    }

    /// The next key.
    pub fn next_key(&mut self) -> u64 {
        let hot = (self.keys * 15 / 100).max(1);
        let rank = match self.is_zipf && self.random.below(100) < 80 {
            true => self.random.below(hot),
            false => self.random.below(self.keys),
        };
        // Hot keys lie anywhere among the others.
        rank.wrapping_mul(0x9e37_79b1) % self.keys
    }
}
