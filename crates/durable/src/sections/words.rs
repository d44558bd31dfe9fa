//! Small arithmetic shared by the engines.

/// Joins ascending numbers into runs: first and count.
pub(super) fn runs(numbers: impl Iterator<Item = u64>) -> impl Iterator<Item = (u64, u64)> {
    let mut numbers = numbers.peekable();
    std::iter::from_fn(move || {
        let first = numbers.next()?;
        let mut count = 1;
        while numbers.next_if_eq(&(first + count)).is_some() {
            count += 1;
        }
        Some((first, count))
    })
}

/// The positions of a word's set bits, ascending.
pub(super) fn bits(word: u64) -> impl Iterator<Item = u32> {
    let mut left = word;
    std::iter::from_fn(move || {
        let first = left.trailing_zeros();
        left &= left.wrapping_sub(1);
        (first < 64).then_some(first)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_come_in_order() {
        assert_eq!(bits(1 | 1 << 5 | 1 << 63).collect::<Vec<_>>(), [0, 5, 63]);
        assert_eq!(bits(0).count(), 0);
        assert!(bits(u64::MAX).eq(0..64));
    }

    #[test]
    fn neighbours_join() {
        let joined: Vec<_> = runs([1, 2, 3, 7, 9, 10].into_iter()).collect();
        assert_eq!(joined, [(1, 3), (7, 1), (9, 2)]);
        assert_eq!(runs(std::iter::empty()).count(), 0);
    }
}
