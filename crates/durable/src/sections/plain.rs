//! Typed offsets and roots for plain old data.
//!
//! A pool may be mapped at another address each time, so what it holds are offsets, never pointers;
//! their types live in the program alone. [`Plain`] says how a type's bytes are laid out: by hand
//! here for words and arrays, by [`plain!`](crate::plain) for structures. No memory is reinterpreted,
//! so all of this is safe code, and the layout does not depend on the compiler.

use std::fmt;
use std::marker::PhantomData;

/// Plain old data: a fixed number of bytes, the same on every machine.
pub trait Plain: Copy {
    /// Its bytes.
    const BYTES: usize;

    /// Writes it to the first [`Plain::BYTES`] bytes of `target`.
    fn put(&self, target: &mut [u8]);

    /// Reads it from the first [`Plain::BYTES`] bytes of `source`.
    fn get(source: &[u8]) -> Self;
}

macro_rules! integers {
    ($($integer:ty)*) => {$(
        impl Plain for $integer {
            const BYTES: usize = size_of::<$integer>();

            #[inline(always)]
            fn put(&self, target: &mut [u8]) {
                target[..Self::BYTES].copy_from_slice(&self.to_le_bytes());
            }

            #[inline(always)]
            fn get(source: &[u8]) -> Self {
                let bytes = source[..Self::BYTES].try_into().expect("its own length");
                <$integer>::from_le_bytes(bytes)
            }
        }
    )*};
}
integers!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128);

impl<T: Plain, const N: usize> Plain for [T; N] {
    const BYTES: usize = N * T::BYTES;

    fn put(&self, target: &mut [u8]) {
        for (i, item) in self.iter().enumerate() {
            item.put(&mut target[i * T::BYTES..]);
        }
    }

    fn get(source: &[u8]) -> Self {
        std::array::from_fn(|i| T::get(&source[i * T::BYTES..]))
    }
}

/// Where a `T` lies in the heap of a pool; [`Offset::NULL`] is nowhere. Eight bytes, plain itself.
pub struct Offset<T> {
    at: u64,
    kind: PhantomData<fn() -> T>,
}

impl<T> Offset<T> {
    /// Nowhere.
    pub const NULL: Offset<T> = Offset::new(0);

    /// The `T` at `at`, an offset in the heap.
    pub const fn new(at: u64) -> Offset<T> {
        Offset { at, kind: PhantomData }
    }

    /// The offset in the heap.
    pub const fn at(self) -> u64 {
        self.at
    }

    /// Whether it is nowhere.
    pub const fn is_null(self) -> bool {
        self.at == 0
    }

    /// What lies `bytes` further: a field.
    pub const fn field<F>(self, bytes: usize) -> Offset<F> {
        // Behind the end of every heap, of an offset that was read from elsewhere than its pool.
        Offset::new(self.at.saturating_add(bytes as u64))
    }
}

impl<T: Plain, const N: usize> Offset<[T; N]> {
    /// An item of an array.
    ///
    /// # Panics
    /// If there is no such item.
    pub fn item(self, index: usize) -> Offset<T> {
        assert!(index < N, "item {index} of {N}");
        self.field(index * T::BYTES)
    }
}

impl<T> Clone for Offset<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Offset<T> {}

impl<T> PartialEq for Offset<T> {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl<T> Eq for Offset<T> {}

impl<T> fmt::Debug for Offset<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Offset({})", self.at)
    }
}

impl<T> Plain for Offset<T> {
    const BYTES: usize = 8;

    #[inline(always)]
    fn put(&self, target: &mut [u8]) {
        self.at.put(target);
    }

    #[inline(always)]
    fn get(source: &[u8]) -> Self {
        Offset::new(u64::get(source))
    }
}

/// One of a pool's named places that everything else is reached from: a slot number with a type.
pub struct Root<T> {
    pub(super) slot: usize,
    kind: PhantomData<fn() -> T>,
}

impl<T> Root<T> {
    /// Root number `slot`, below [`ROOTS`](super::ROOTS).
    ///
    /// # Panics
    /// If there is no such slot.
    pub const fn new(slot: usize) -> Root<T> {
        assert!(slot < super::ROOTS, "a pool has 32 roots");
        Root { slot, kind: PhantomData }
    }
}

impl<T> Clone for Root<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Root<T> {}

impl<T> fmt::Debug for Root<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Root({})", self.slot)
    }
}

/// Declares a structure of plain fields, laid out in their order without gaps, with a function of
/// each field's name that takes the structure's offset to the field's.
///
/// ```
/// use terrace_durable::plain;
/// use terrace_durable::sections::{Offset, Plain};
///
/// plain! {
///     /// A link of a list.
///     pub struct Link {
///         value: u64,
///         next: Offset<Link>,
///     }
/// }
/// assert_eq!(Link::BYTES, 16);
/// assert_eq!(Link::next(Offset::new(64)), Offset::new(72));
/// ```
#[macro_export]
macro_rules! plain {
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($field:ident: $kind:ty),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis struct $name { $($vis $field: $kind,)* }

        impl $crate::sections::Plain for $name {
            const BYTES: usize = 0 $(+ <$kind as $crate::sections::Plain>::BYTES)*;

            fn put(&self, target: &mut [u8]) {
                let mut at = 0;
                $(
                    $crate::sections::Plain::put(&self.$field, &mut target[at..]);
                    at += <$kind as $crate::sections::Plain>::BYTES;
                )*
                debug_assert_eq!(at, <Self as $crate::sections::Plain>::BYTES);
            }

            fn get(source: &[u8]) -> Self {
                let mut at = 0;
                $(
                    let $field = <$kind as $crate::sections::Plain>::get(&source[at..]);
                    at += <$kind as $crate::sections::Plain>::BYTES;
                )*
                debug_assert_eq!(at, <Self as $crate::sections::Plain>::BYTES);
                $name { $($field,)* }
            }
        }

        $crate::plain_fields!($vis $name, (0), $($field: $kind,)*);
    };
}

/// The functions of [`plain!`]'s fields.
#[doc(hidden)]
#[macro_export]
macro_rules! plain_fields {
    ($vis:vis $name:ident, ($at:expr),) => {};
    ($vis:vis $name:ident, ($at:expr), $field:ident: $kind:ty, $($rest:tt)*) => {
        #[allow(dead_code, reason = "not every field is set alone")]
        impl $name {
            #[doc = concat!("The field `", stringify!($field), "` of the one at `of`.")]
            $vis const fn $field(
                of: $crate::sections::Offset<$name>,
            ) -> $crate::sections::Offset<$kind> {
                of.field($at)
            }
        }
        $crate::plain_fields!(
            $vis $name, ($at + <$kind as $crate::sections::Plain>::BYTES), $($rest)*
        );
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::plain! {
        struct Mixed {
            byte: u8,
            words: [u32; 3],
            next: Offset<Mixed>,
        }
    }

    #[test]
    fn a_structure_comes_back_and_its_fields_are_where_they_were_put() {
        let mixed = Mixed { byte: 7, words: [1, 2, 3], next: Offset::new(99) };
        let mut bytes = [0; Mixed::BYTES];
        mixed.put(&mut bytes);
        assert_eq!(Mixed::get(&bytes), mixed);
        let at = Offset::new(1000);
        assert_eq!(Mixed::words(at).item(2), Offset::new(1009));
        assert_eq!(Mixed::next(at).at(), 1013);
        assert_eq!(u32::get(&bytes[9..]), 3);
        assert_eq!(Mixed::byte(at).at(), 1000);
    }
}
