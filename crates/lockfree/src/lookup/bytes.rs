//! Byte strings as keys.
//!
//! The first sixteen bytes lie in the key itself, so that most comparisons read nothing else. A level
//! interpolates over the eight bytes behind the prefix that its keys share, however long that is: shorter
//! strings count as if zeros followed, which keeps their order, though not every difference.

use super::error::{Error, Result};
use super::key::Key;
use super::key::sealed::Ranked;

/// Bytes that lie in the key.
const INLINE: usize = 16;
/// Bytes that a rank has.
const RANK: usize = 8;

/// A byte string as a key, in lexicographic order.
///
/// ```
/// use terrace_lockfree::lookup::{Bytes, LookupTable, Options};
///
/// let table = LookupTable::new(Options::default())?;
/// for (number, name) in ["user/1", "user/10", "user/2"].into_iter().enumerate() {
///     table.insert(Bytes::new(name)?, number as u64);
/// }
/// let found = table.range(Bytes::new("user/1")?..=Bytes::new("user/19")?)?;
/// assert_eq!(found.len(), 2);
/// assert_eq!(found[1].0.to_vec(), b"user/10");
/// # Ok::<(), terrace_lockfree::lookup::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Bytes {
    /// The first bytes as one number, with zeros behind.
    first: [u64; 2],
    rest: Box<[u8]>,
    inline: u8,
}

impl Bytes {
    /// The most bytes of a key.
    pub const MAX: usize = 1024;

    /// The key of a byte string.
    ///
    /// # Errors
    /// [`Error::KeyTooLong`] above [`Bytes::MAX`].
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Bytes> {
        let bytes = bytes.as_ref();
        if bytes.len() > Bytes::MAX {
            return Err(Error::KeyTooLong { bytes: bytes.len(), most: Bytes::MAX });
        }
        Ok(Bytes::any(bytes))
    }

    /// A marker's key may be longer than others, by a rank.
    fn any(bytes: &[u8]) -> Bytes {
        let (inline, rest) = bytes.split_at(bytes.len().min(INLINE));
        let mut first = [0; INLINE];
        first[..inline.len()].copy_from_slice(inline);
        let first = u128::from_be_bytes(first);
        Bytes {
            first: [(first >> 64) as u64, first as u64],
            rest: rest.into(),
            inline: inline.len() as u8,
        }
    }

    /// The byte string.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = self.start().to_be_bytes()[..usize::from(self.inline)].to_vec();
        bytes.extend_from_slice(&self.rest);
        bytes
    }

    fn len(&self) -> usize {
        usize::from(self.inline) + self.rest.len()
    }

    #[inline(always)]
    fn start(&self) -> u128 {
        u128::from(self.first[0]) << 64 | u128::from(self.first[1])
    }

    /// Eight bytes from a place on, as if zeros followed.
    #[inline(always)]
    fn window(&self, at: usize) -> u64 {
        if at <= INLINE - RANK {
            return (self.start() << (8 * at) >> 64) as u64;
        }
        let mut window = [0; RANK];
        let from_inline = INLINE.saturating_sub(at);
        window[..from_inline].copy_from_slice(&self.first[1].to_be_bytes()[RANK - from_inline..]);
        let rest = self.rest.get(at.saturating_sub(INLINE)..).unwrap_or_default();
        let from_rest = rest.len().min(RANK - from_inline);
        window[from_inline..][..from_rest].copy_from_slice(&rest[..from_rest]);
        u64::from_be_bytes(window)
    }

    /// Against the first bytes of a prefix, as if zeros followed.
    #[inline(always)]
    fn cmp_to_prefix(&self, prefix: &Bytes) -> std::cmp::Ordering {
        let length = u32::from(prefix.inline);
        let mask = u128::MAX.checked_shl(8 * (INLINE as u32 - length)).unwrap_or(0);
        let start = (self.start() & mask).cmp(&prefix.start());
        if prefix.rest.is_empty() {
            return start;
        }
        let shared = self.rest.len().min(prefix.rest.len());
        // A shorter one is before the prefix, or its rank is that of zeros: the same.
        start
            .then_with(|| self.rest[..shared].cmp(&prefix.rest[..shared]))
            .then(shared.cmp(&prefix.rest.len()))
    }
}

impl Ord for Bytes {
    #[inline(always)]
    fn cmp(&self, other: &Bytes) -> std::cmp::Ordering {
        // Where the first sixteen are the same with zeros behind, the shorter one is a prefix of the other.
        let start = self.start().cmp(&other.start());
        let is_inline = self.rest.is_empty() && other.rest.is_empty();
        let rest =
            || if is_inline { std::cmp::Ordering::Equal } else { self.rest.cmp(&other.rest) };
        start.then_with(rest).then(self.inline.cmp(&other.inline))
    }
}

impl PartialOrd for Bytes {
    #[inline(always)]
    fn partial_cmp(&self, other: &Bytes) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{}\"", self.to_vec().escape_ascii())
    }
}

impl Key for Bytes {}

impl Ranked for Bytes {
    type Shared = Bytes;

    fn least() -> Bytes {
        Bytes::any(b"")
    }

    fn far() -> Bytes {
        Bytes::any(&[u8::MAX; RANK])
    }

    fn shared(first: &Bytes, last: &Bytes) -> Bytes {
        let (first, last) = (first.to_vec(), last.to_vec());
        let length = first.iter().zip(&last).take_while(|(a, b)| a == b).count();
        Bytes::any(&first[..length])
    }

    #[inline(always)]
    fn rank(&self, shared: &Bytes) -> u64 {
        match self.cmp_to_prefix(shared) {
            std::cmp::Ordering::Less => 0,
            std::cmp::Ordering::Equal => self.window(shared.len()),
            std::cmp::Ordering::Greater => u64::MAX,
        }
    }

    fn at(shared: &Bytes, rank: u64) -> Bytes {
        let rank = rank.to_be_bytes();
        // Zeros at the end would make it larger than the smallest string of its rank.
        let used = rank.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let mut bytes = shared.to_vec();
        bytes.extend_from_slice(&rank[..used]);
        Bytes::any(&bytes)
    }

    fn bytes_elsewhere(&self) -> usize {
        self.rest.len()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use proptest::prelude::*;

    /// Strings with long common prefixes, zeros and large bytes.
    fn string() -> impl Strategy<Value = Vec<u8>> {
        let byte = || prop_oneof![Just(0u8), Just(1), Just(255), any::<u8>()];
        let tail = prop::collection::vec(byte(), 0..24);
        (prop_oneof![Just(0usize), Just(7), Just(15), Just(16), Just(20)], tail).prop_map(
            |(same, tail)| {
                let mut string = vec![b'p'; same];
                string.extend(tail);
                string
            },
        )
    }

    proptest! {
        #[test]
        fn keys_are_in_the_order_of_their_strings(a in string(), b in string()) {
            let (left, right) = (Bytes::new(&a).unwrap(), Bytes::new(&b).unwrap());
            prop_assert_eq!(left.cmp(&right), a.cmp(&b));
            prop_assert_eq!(left.to_vec(), a);
        }

        #[test]
        fn ranks_never_fall(mut keys in prop::collection::vec(string(), 4)) {
            keys.sort();
            let keys: Vec<Bytes> = keys.into_iter().map(|key| Bytes::new(key).unwrap()).collect();
            for (from, to) in [(1, 2), (0, 3), (0, 1), (2, 3)] {
                let shared = Bytes::shared(&keys[from], &keys[to]);
                let ranks: Vec<u64> = keys.iter().map(|key| key.rank(&shared)).collect();
                prop_assert!(ranks.is_sorted(), "{:?} {:?} {:?}", keys, shared, ranks);
            }
        }

        #[test]
        fn a_marker_is_the_smallest_key_of_its_rank(shared in string(), rank in 1u64.., near in string()) {
            let shared = Bytes::new(shared).unwrap();
            let marker = Bytes::at(&shared, rank);
            prop_assert_eq!(marker.rank(&shared), rank);
            let near = Bytes::new(near).unwrap();
            prop_assert_eq!(near >= marker, near.rank(&shared) >= rank, "{:?} {:?} {:?}", near, marker, shared);
        }
    }

    #[test]
    fn a_long_string_is_refused() {
        assert!(Bytes::new(vec![1; Bytes::MAX]).is_ok());
        assert_eq!(
            Bytes::new(vec![1; 1025]).unwrap_err(),
            Error::KeyTooLong { bytes: 1025, most: 1024 }
        );
    }
}
