//! Keys as bytes that are in the order of what they stand for.
//!
//! # The encoding
//! * Integers: big-endian, the sign bit of signed ones turned, so that negative ones come first.
//! * Floats: the order of `total_cmp`, from -NaN to NaN.
//! * Strings and byte strings: as they are at the end of a key; before another part each 0 is followed by 255, and 0, 0
//!   ends them.
//! * Tuples and arrays: their parts, one behind the other. `Option`: a byte, 0 for none, and what is there.
//! * Times: nanoseconds since 1970, as a signed integer of 128 bits.
//!
//! These are formats on the disk: they never change.

use std::time::{Duration, SystemTime};

/// What can be the key of a [`TypedMap`](super::TypedMap).
///
/// # For types of your own
/// Encodings must be in the order of the keys; where something comes behind one (`is_last` is false), none may be the
/// beginning of another; and [`Key::decode_from`] must take exactly what [`Key::encode_to`] wrote. A key takes at most
/// 65,535 bytes. There is no `usize`: its size is the machine's. Of floats, -0.0 and 0.0 are two keys.
///
/// ```
/// use terrace::Key;
///
/// #[derive(Clone, Copy, Debug, PartialEq)]
/// struct UserId(u64);
///
/// impl Key for UserId {
///     fn encode_to(&self, bytes: &mut Vec<u8>, is_last: bool) {
///         self.0.encode_to(bytes, is_last);
///     }
///
///     fn decode_from(bytes: &mut &[u8], is_last: bool) -> Option<Self> {
///         u64::decode_from(bytes, is_last).map(UserId)
///     }
/// }
///
/// assert_eq!(UserId::decode(&UserId(7).encode()), Some(UserId(7)));
/// ```
///
/// # Keys in their order
/// ```
/// use terrace::Key;
/// let key = ("ada".to_string(), -5i64);
/// assert_eq!(<(String, i64)>::decode(&key.encode()), Some(key.clone()));
/// assert!(key.encode() < ("ada".to_string(), 0i64).encode());
/// ```
pub trait Key: Sized {
    /// Appends the encoding; `is_last`: nothing of the key comes behind it.
    fn encode_to(&self, bytes: &mut Vec<u8>, is_last: bool);

    /// Takes one off the front; none, if there is none.
    fn decode_from(bytes: &mut &[u8], is_last: bool) -> Option<Self>;

    /// The whole key as bytes.
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.encode_to(&mut bytes, true);
        bytes
    }

    /// The key that has these bytes.
    fn decode(mut bytes: &[u8]) -> Option<Self> {
        let key = Self::decode_from(&mut bytes, true)?;
        bytes.is_empty().then_some(key)
    }
}

/// A key of several parts.
///
/// ```
/// use terrace::{Key, KeyParts};
/// fn of_first<K: KeyParts>(key: &K, first: &K::First) -> bool {
///     let mut prefix = Vec::new();
///     first.encode_to(&mut prefix, false);
///     key.encode().starts_with(&prefix)
/// }
/// assert!(of_first(&("ada".to_string(), 7u8), &"ada".to_string()));
/// assert!(!of_first(&("adam".to_string(), 7u8), &"ada".to_string()));
/// ```
pub trait KeyParts: Key {
    /// The first of them.
    type First: Key;
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*taken)
}

macro_rules! integers {
    ($($unsigned:ty, $signed:ty;)*) => {$(
        impl Key for $unsigned {
            fn encode_to(&self, bytes: &mut Vec<u8>, _: bool) {
                bytes.extend_from_slice(&self.to_be_bytes());
            }

            fn decode_from(bytes: &mut &[u8], _: bool) -> Option<Self> {
                take(bytes).map(<$unsigned>::from_be_bytes)
            }
        }

        impl Key for $signed {
            fn encode_to(&self, bytes: &mut Vec<u8>, is_last: bool) {
                (self.cast_unsigned() ^ <$signed>::MIN.cast_unsigned()).encode_to(bytes, is_last);
            }

            fn decode_from(bytes: &mut &[u8], is_last: bool) -> Option<Self> {
                let turned = <$unsigned>::decode_from(bytes, is_last)?;
                Some((turned ^ <$signed>::MIN.cast_unsigned()).cast_signed())
            }
        }
    )*};
}

integers! {
    u8, i8;
    u16, i16;
    u32, i32;
    u64, i64;
    u128, i128;
}

macro_rules! floats {
    ($($float:ty, $bits:ty;)*) => {$(
        impl Key for $float {
            fn encode_to(&self, bytes: &mut Vec<u8>, is_last: bool) {
                let bits = self.to_bits();
                // Of two negative ones that with the smaller bits is the larger.
                let turned = if self.is_sign_negative() { !bits } else { bits | 1 << (<$bits>::BITS - 1) };
                turned.encode_to(bytes, is_last);
            }

            fn decode_from(bytes: &mut &[u8], is_last: bool) -> Option<Self> {
                let turned = <$bits>::decode_from(bytes, is_last)?;
                let sign = 1 << (<$bits>::BITS - 1);
                Some(<$float>::from_bits(if turned & sign == 0 { !turned } else { turned ^ sign }))
            }
        }
    )*};
}

floats! {
    f32, u32;
    f64, u64;
}

impl Key for bool {
    fn encode_to(&self, bytes: &mut Vec<u8>, _: bool) {
        bytes.push(u8::from(*self));
    }

    fn decode_from(bytes: &mut &[u8], is_last: bool) -> Option<Self> {
        match u8::decode_from(bytes, is_last)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl Key for char {
    fn encode_to(&self, bytes: &mut Vec<u8>, is_last: bool) {
        u32::from(*self).encode_to(bytes, is_last);
    }

    fn decode_from(bytes: &mut &[u8], is_last: bool) -> Option<Self> {
        u32::decode_from(bytes, is_last).and_then(char::from_u32)
    }
}

impl Key for Vec<u8> {
    fn encode_to(&self, bytes: &mut Vec<u8>, is_last: bool) {
        if is_last {
            return bytes.extend_from_slice(self);
        }
        for byte in self {
            bytes.push(*byte);
            if *byte == 0 {
                bytes.push(u8::MAX);
            }
        }
        bytes.extend_from_slice(&[0, 0]);
    }

    fn decode_from(bytes: &mut &[u8], is_last: bool) -> Option<Self> {
        if is_last {
            return Some(std::mem::take(bytes).to_vec());
        }
        let mut key = Vec::new();
        loop {
            match take(bytes)? {
                [0] => match take(bytes)? {
                    [0] => return Some(key),
                    [u8::MAX] => key.push(0),
                    _ => return None,
                },
                [byte] => key.push(byte),
            }
        }
    }
}

impl Key for String {
    fn encode_to(&self, bytes: &mut Vec<u8>, is_last: bool) {
        match is_last {
            true => bytes.extend_from_slice(self.as_bytes()),
            false => self.as_bytes().to_vec().encode_to(bytes, false),
        }
    }

    fn decode_from(bytes: &mut &[u8], is_last: bool) -> Option<Self> {
        Vec::decode_from(bytes, is_last).and_then(|bytes| String::from_utf8(bytes).ok())
    }
}

impl<K: Key, const N: usize> Key for [K; N] {
    fn encode_to(&self, bytes: &mut Vec<u8>, is_last: bool) {
        for (at, part) in self.iter().enumerate() {
            part.encode_to(bytes, is_last && at + 1 == N);
        }
    }

    fn decode_from(bytes: &mut &[u8], is_last: bool) -> Option<Self> {
        let part = |at| K::decode_from(bytes, is_last && at + 1 == N);
        let parts: Option<Vec<K>> = (0..N).map(part).collect();
        parts?.try_into().ok()
    }
}

impl<K: Key> Key for Option<K> {
    fn encode_to(&self, bytes: &mut Vec<u8>, is_last: bool) {
        bytes.push(u8::from(self.is_some()));
        if let Some(key) = self {
            key.encode_to(bytes, is_last);
        }
    }

    fn decode_from(bytes: &mut &[u8], is_last: bool) -> Option<Self> {
        match bool::decode_from(bytes, false)? {
            true => K::decode_from(bytes, is_last).map(Some),
            false => Some(None),
        }
    }
}

impl Key for SystemTime {
    fn encode_to(&self, bytes: &mut Vec<u8>, is_last: bool) {
        let nanoseconds = |since: Duration| since.as_nanos() as i128;
        let since = match self.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => nanoseconds(after),
            Err(before) => -nanoseconds(before.duration()),
        };
        since.encode_to(bytes, is_last);
    }

    fn decode_from(bytes: &mut &[u8], is_last: bool) -> Option<Self> {
        let since = i128::decode_from(bytes, is_last)?;
        let seconds = u64::try_from(since.unsigned_abs() / 1_000_000_000).ok()?;
        let length = Duration::new(seconds, (since.unsigned_abs() % 1_000_000_000) as u32);
        match since < 0 {
            true => SystemTime::UNIX_EPOCH.checked_sub(length),
            false => SystemTime::UNIX_EPOCH.checked_add(length),
        }
    }
}

macro_rules! tuples {
    ($(($($part:ident)* ; $last:ident);)*) => {$(
        impl<$($part: Key,)* $last: Key> Key for ($($part,)* $last,) {
            #[allow(non_snake_case, reason = "each part is called as its type")]
            fn encode_to(&self, bytes: &mut Vec<u8>, is_last: bool) {
                let ($($part,)* $last,) = self;
                $($part.encode_to(bytes, false);)*
                $last.encode_to(bytes, is_last);
            }

            fn decode_from(bytes: &mut &[u8], is_last: bool) -> Option<Self> {
                Some(($($part::decode_from(bytes, false)?,)* $last::decode_from(bytes, is_last)?,))
            }
        }
    )*};
}

macro_rules! parts {
    ($($first:ident $($other:ident)+;)*) => {$(
        impl<$first: Key, $($other: Key),+> KeyParts for ($first, $($other),+) {
            type First = $first;
        }
    )*};
}

parts! {
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
}

tuples! {
    (; A);
    (A; B);
    (A B; C);
    (A B C; D);
    (A B C D; E);
    (A B C D E; F);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fmt::Debug;

    /// Bytes are in the order of keys, and keys come back from them.
    fn holds<K: Key + PartialOrd + Debug>(one: K, other: K) {
        let (first, second) = (one.encode(), other.encode());
        assert_eq!(first.partial_cmp(&second), one.partial_cmp(&other), "{one:?} {other:?}");
        assert_eq!(K::decode(&first).as_ref(), Some(&one));
        assert!(K::decode(&[first, vec![0]].concat()).is_none_or(|found| found != one));
    }

    fn text() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(prop_oneof![Just(0), Just(1), Just(254), Just(255)], 0..4)
    }

    proptest! {
        #[test]
        fn integers_keep_their_order(a: (u8, i16), b: (u8, i16), c: i128, d: i128, e: u64, f: u64) {
            holds(a, b);
            holds(c, d);
            holds(e, f);
        }

        #[test]
        fn parts_keep_their_order(
            a in (text(), text(), any::<i8>()),
            b in (text(), text(), any::<i8>()),
            c in any::<(Option<u16>, bool, char)>(),
            d in any::<(Option<u16>, bool, char)>(),
            e in ("[\\x00\\x01ab]{0,4}", any::<u8>()),
            f in ("[\\x00\\x01ab]{0,4}", any::<u8>()),
        ) {
            holds(a.clone(), b.clone());
            holds((a.2, a.0.clone()), (b.2, b.0.clone()));
            holds([a.0, a.1], [b.0, b.1]);
            holds(c, d);
            holds((e.1, e.0.clone()), (f.1, f.0.clone()));
            holds(e, f);
        }

        #[test]
        fn floats_keep_their_order(a: u64, b: u64, c: u32, d: u32) {
            let [a, b] = [a, b].map(f64::from_bits);
            let [c, d] = [c, d].map(f32::from_bits);
            prop_assert_eq!(a.encode().cmp(&b.encode()), a.total_cmp(&b));
            prop_assert_eq!(c.encode().cmp(&d.encode()), c.total_cmp(&d));
            prop_assert_eq!(f64::decode(&a.encode()).map(f64::to_bits), Some(a.to_bits()));
            prop_assert_eq!(f32::decode(&c.encode()).map(f32::to_bits), Some(c.to_bits()));
        }

        #[test]
        fn times_keep_their_order(a: i64, b: i64, nanoseconds in 0u32..1_000_000_000) {
            let time = |seconds: i64| {
                let length = Duration::new(seconds.unsigned_abs() / 4, nanoseconds);
                match seconds < 0 {
                    true => SystemTime::UNIX_EPOCH - length,
                    false => SystemTime::UNIX_EPOCH + length,
                }
            };
            holds(time(a), time(b));
        }
    }

    #[test]
    fn what_is_on_disks_stays_as_it_is() {
        assert_eq!((7u16, -1i8).encode(), [0, 7, 0x7f]);
        assert_eq!(("a\0".to_string(), "b\0".to_string()).encode(), b"a\0\xff\0\0b\0");
        assert_eq!((1.5f32, false, Some('x')).encode(), [0xbf, 0xc0, 0, 0, 0, 1, 0, 0, 0, 0x78]);
        assert_eq!(SystemTime::UNIX_EPOCH.encode(), (1u128 << 127).to_be_bytes());
        assert_eq!(bool::decode(&[2]), None);
        assert_eq!(char::decode(&[0, 0, 0xd8, 0]), None);
        assert_eq!(String::decode(&[0xff]), None);
        assert_eq!(<(Vec<u8>, u8)>::decode(&[0, 1, 0, 0, 0]), None);
        assert_eq!(u32::decode(&[1, 2, 3]), None);
    }
}
