//! Virtual time: whole picoseconds, so that every run adds up to the same number.

/// Picoseconds since the machine was switched on: 2^64 of them are 213 days.
pub(super) type Ps = u64;

/// Nanoseconds of a preset, as picoseconds.
pub(super) fn from_ns(ns: f64) -> Ps {
    (ns * 1000.0).round() as Ps
}

/// How long `bytes` take at `gb_per_s` (10^9 bytes a second).
pub(super) fn of_bytes(bytes: u64, gb_per_s: f64) -> Ps {
    (bytes as f64 / gb_per_s * 1000.0).round() as Ps
}
