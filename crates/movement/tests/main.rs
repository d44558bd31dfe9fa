//! The tests of the room `movement`.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

mod bench;
mod cache;
mod emulated;
mod engines;
