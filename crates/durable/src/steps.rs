//! The ordering points of a protocol by name, so that a test can leave one out.
//!
//! A protocol that survives a crash test proves little unless the test fails when the protocol is
//! broken. In tests, and with the feature `faults` of the crate that declares the points, a structure
//! carries the set of steps it leaves out; in every other build that set has no bytes and the question
//! "is this step on?" is the constant `true`.

/// Declares a `Step` for each ordering point of a protocol, and the set `Steps` of those left out.
///
/// A step that belongs to a part of the protocol says so between its name and its meaning; the function
/// that tells the part is declared first. A crate that uses this has a feature `faults`.
#[doc(hidden)]
#[macro_export]
macro_rules! steps {
    (
        $(#[$meta:meta])* pub fn $part:ident;
        $($name:ident, $of:literal, $meaning:literal;)*
    ) => {
        $crate::steps! { $($name, $meaning;)* }

        impl Step {
            $(#[$meta])*
            pub fn $part(self) -> &'static str {
                match self { $(Step::$name => $of,)* }
            }
        }
    };
    ($($name:ident, $meaning:literal;)*) => {
        /// An ordering point: a store, write-back, fence or check on which recovery or another thread relies.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Step { $(#[doc = $meaning] $name,)* }

        impl Step {
            /// Every step.
            pub const ALL: &'static [Step] = &[$(Step::$name,)*];

            /// One line on what it orders.
            pub fn meaning(self) -> &'static str {
                match self { $(Step::$name => $meaning,)* }
            }
        }

        /// The steps that are left out: none, except in tests.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Steps(
            #[cfg(any(test, feature = "faults"))]
            u64,
        );

        impl Steps {
            /// Every step is taken.
            #[cfg(any(test, feature = "faults"))]
            pub const ALL: Steps = Steps(0);

            /// Every step is taken.
            #[cfg(not(any(test, feature = "faults")))]
            pub const ALL: Steps = Steps();

            /// These, and `left_out`, are left out.
            #[cfg(any(test, feature = "faults"))]
            #[must_use]
            pub fn without(self, left_out: &[Step]) -> Steps {
                const { assert!(Step::ALL.len() <= 64, "a bit for every step") };
                Steps(left_out.iter().fold(self.0, |bits, step| bits | 1 << *step as u8))
            }

            /// Whether `step` is taken.
            #[cfg(any(test, feature = "faults"))]
            #[inline(always)]
            pub(crate) fn has(self, step: Step) -> bool {
                self.0 >> step as u8 & 1 == 0
            }

            /// Whether `step` is taken: yes.
            #[cfg(not(any(test, feature = "faults")))]
            #[inline(always)]
            pub(crate) fn has(self, _step: Step) -> bool {
                true
            }
        }
    };
}
