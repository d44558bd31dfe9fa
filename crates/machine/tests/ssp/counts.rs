//! Counts and times.
