//! Whether this processor keeps the lines it cleans.
//!
//! The manuals allow a `clwb` to evict, and early processors do (Gugnani, section 7.1); then a clean of what is
//! read again costs a miss, and the rule of [`prestore`](super) changes. Nothing tells which it is but
//! a try: lines are written, one thing or another is done to them, a fence waits for that, and each is
//! read again, the address of the next in every one of them.

use super::Op;
use crate::instructions::{LINE_BYTES, WriteBack, cldemote, clwb, evict, fence, write_back_method};
use serde::Serialize;
use std::fmt;
use std::hint::black_box;
use std::time::Instant;

/// Lines of a try: 8 KiB, which any nearest cache holds.
const LINES: usize = 128;
/// Tries of each kind; the median counts.
const TRIES: usize = 101;
/// Evicted lines must take so many times as long as cached ones, or nothing can be told.
const APART: f64 = 4.0;

/// What became of cleaned lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// They stayed where they were.
    Keeps,
    /// They left the nearest cache, and stayed in a further one: whoever reads them again waits a little.
    KeepsFurther,
    /// They left the caches: a clean is as good as a flush here.
    Evicts,
    /// There is no instruction that cleans; [`clean`](super::clean) does nothing.
    Absent,
    /// Evicted lines were not told from cached ones.
    Unclear,
}

/// The time to read a line again, ns, by what was done since it was written.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Retention {
    /// What that says of cleaning.
    pub verdict: Verdict,
    /// After nothing.
    pub cached_ns: f64,
    /// After a clean.
    pub cleaned_ns: f64,
    /// After a demotion; as cached where the processor has none.
    pub demoted_ns: f64,
    /// After they were evicted.
    pub evicted_ns: f64,
}

/// Tries it out.
///
/// # Cost
/// Some milliseconds.
pub fn retention() -> Retention {
    let has_clean = write_back_method() == WriteBack::Clwb;
    let cached_ns = median(|_| ());
    let demoted_ns = median(|lines| apply(Op::Demote, lines));
    let cleaned_ns = match has_clean {
        true => median(|lines| apply(Op::Clean, lines)),
        false => cached_ns,
    };
    let evicted_ns = median(|lines| evict(bytes_of(lines)));
    let verdict =
        if !has_clean { Verdict::Absent } else { verdict(cached_ns, cleaned_ns, evicted_ns) };
    Retention { verdict, cached_ns, cleaned_ns, demoted_ns, evicted_ns }
}

/// Where a cleaned line is, by the time it takes to read it.
fn verdict(cached_ns: f64, cleaned_ns: f64, evicted_ns: f64) -> Verdict {
    if evicted_ns < APART * cached_ns {
        Verdict::Unclear
    } else if cleaned_ns < 2.0 * cached_ns {
        Verdict::Keeps
    } else if cleaned_ns < evicted_ns / 2.0 {
        Verdict::KeepsFurther
    } else {
        Verdict::Evicts
    }
}

impl fmt::Display for Retention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.verdict {
            Verdict::Keeps => "clean keeps the line",
            Verdict::KeepsFurther => "clean keeps the line, in a further cache",
            Verdict::Evicts => "clean evicts the line",
            Verdict::Absent => "no instruction cleans without evicting, so clean does nothing",
            Verdict::Unclear => "whether clean keeps the line cannot be told",
        })?;
        let Retention { cached_ns, cleaned_ns, demoted_ns, evicted_ns, .. } = self;
        write!(
            f,
            ": read again in {cleaned_ns:.1} ns, {cached_ns:.1} without, {evicted_ns:.1} after a flush; \
             demoted {demoted_ns:.1}"
        )
    }
}

#[repr(align(64))]
struct Line([u64; LINE_BYTES as usize / 8]);

fn bytes_of(lines: &[Line]) -> &[u8] {
    // SAFETY: lines are words without padding, borrowed for as long.
    unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), size_of_val(lines)) }
}

/// The instruction itself, whatever the switch says.
fn apply(op: Op, lines: &[Line]) {
    let (start, bytes) = (lines.as_ptr().cast(), size_of_val(lines));
    // SAFETY: a slice is mapped; `clwb` is asked for only where the processor has it.
    unsafe {
        match op {
            Op::Clean => clwb(start, bytes),
            Op::Demote => cldemote(start, bytes),
        }
    };
}

/// Nanoseconds to read one line again after `what` was done to all.
fn median(what: impl Fn(&[Line])) -> f64 {
    let mut lines: Vec<Line> = (0..LINES).map(|_| Line([0; 8])).collect();
    let mut tries: Vec<f64> = (0..TRIES).map(|_| read_again(&mut lines, &what)).collect();
    tries.sort_by(f64::total_cmp);
    tries[TRIES / 2]
}

fn read_again(lines: &mut [Line], what: impl Fn(&[Line])) -> f64 {
    // A cycle through all of them (an odd step and a power of two), too far apart to be foreseen.
    let next = |line: usize| (line * 5 + 37) % LINES;
    for (at, line) in lines.iter_mut().enumerate() {
        line.0 = [next(at) as u64; 8];
    }
    what(black_box(&*lines));
    fence();
    let start = Instant::now();
    let mut at = 0;
    for _ in 0..LINES {
        // Each address is the value before it.
        at = black_box(&lines[at]).0[0] as usize;
    }
    black_box(at);
    start.elapsed().as_nanos() as f64 / LINES as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_judged_by_where_they_are() {
        assert_eq!(verdict(2.0, 2.2, 90.0), Verdict::Keeps);
        assert_eq!(verdict(2.0, 33.0, 90.0), Verdict::KeepsFurther);
        assert_eq!(verdict(2.0, 80.0, 90.0), Verdict::Evicts);
        assert_eq!(verdict(2.0, 2.0, 5.0), Verdict::Unclear);
    }

    #[test]
    fn flushed_lines_are_distinguished_from_cached_ones() {
        // On a busy machine one try in a while may fail; not five of them.
        let told =
            (0..5).map(|_| retention()).find(|found| found.evicted_ns > 4.0 * found.cached_ns);
        let found = told.expect("a flushed line takes longer to read than a cached one");
        assert_eq!(found.verdict == Verdict::Absent, write_back_method() != WriteBack::Clwb);
        let text = found.to_string();
        assert!(text.contains("after a flush"), "{text}");
    }

    #[test]
    fn the_cycle_visits_every_line() {
        let mut seen = [false; LINES];
        let mut at = 0;
        for _ in 0..LINES {
            seen[at] = true;
            at = (at * 5 + 37) % LINES;
        }
        assert!(seen.iter().all(|seen| *seen));
    }
}
