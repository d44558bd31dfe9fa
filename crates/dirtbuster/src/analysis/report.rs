//! What an analysis finds, as data.

use super::thresholds::Thresholds;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What to do about the writes of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Advice {
    /// Start the write-back after the writes; the data stays cached.
    Clean,
    /// Push the data one level down, so that it is visible before the fence; it stays cached.
    Demote,
    /// Write with streaming (non-temporal) stores, past the cache: the paper's *skip*.
    Stream,
    /// Prefetch what is read.
    Prefetch,
    /// Leave it as it is.
    Nothing,
}

impl Advice {
    /// What to put into the code, with Terrace's C library; none where nothing is to be done.
    ///
    /// # Examples
    /// ```
    /// use terrace_dirtbuster::Advice;
    /// assert!(Advice::Clean.patch().unwrap().contains("TERRACE_CLEAN"));
    /// assert_eq!(Advice::Nothing.patch(), None);
    /// ```
    pub fn patch(self) -> Option<&'static str> {
        match self {
            Advice::Clean => Some(
                "behind the innermost loop: terrace_prestore(location, bytes, TERRACE_CLEAN), of terrace_prestore.h; check that \
                 it covers what the loop wrote, once",
            ),
            Advice::Demote => Some(
                "between the writes and the fence: terrace_prestore(location, bytes, TERRACE_DEMOTE), of terrace_prestore.h",
            ),
            Advice::Stream => Some(
                "instead of the stores: terrace_prestore_copy() or terrace_prestore_fill(), and terrace_prestore_fence() before \
                 the data is published; where that is hard, behind the loop: terrace_prestore(location, bytes, TERRACE_CLEAN)",
            ),
            Advice::Prefetch => Some("__builtin_prefetch(address), so many executions ahead"),
            Advice::Nothing => None,
        }
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Advice::Clean => "clean",
            Advice::Demote => "demote",
            Advice::Stream => "stream",
            Advice::Prefetch => "prefetch",
            Advice::Nothing => "nothing",
        })
    }
}

/// A judgement with its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// What to do.
    pub advice: Advice,
    /// Why, with the measured distances.
    pub reason: String,
    /// What would hurt.
    pub warning: Option<String>,
}

/// What was measured of the writes of a function.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// How many.
    pub writes: u64,
    /// Bytes that they wrote.
    pub bytes: u64,
    /// Their share of all writes of the program.
    pub share: f64,
    /// How many of them are in sequential runs.
    pub sequential_share: f64,
    /// How many are followed by a fence soon.
    pub fenced_share: f64,
    /// The fewest instructions from one of them to the next fence.
    pub fence_distance: Option<u64>,
    /// The mean number of instructions from a write to a read of the same data; none is never, or beyond the horizon.
    pub reread_distance: Option<f64>,
    /// The share of written lines that are re-read within the horizon.
    pub reread_share: f64,
    /// The mean number of instructions from a write to the next write of the same line that continues no run.
    pub rewrite_distance: Option<f64>,
    /// The share of writes in runs that began over such a line.
    pub rewritten_share: f64,
    /// The share of written lines that another thread reads or writes afterwards.
    pub shared_share: f64,
}

/// Writes of a function by the size of the region that they go to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SizeClass {
    /// The mean size of the regions.
    pub bytes: u64,
    /// How many regions.
    pub regions: u64,
    /// The mean length of the sequential runs in them.
    pub run_bytes: u64,
    /// Their share of the function's writes.
    pub share: f64,
    /// As in [`Measured`].
    pub reread_distance: Option<f64>,
    /// As in [`Measured`].
    pub reread_share: f64,
    /// As in [`Measured`].
    pub rewrite_distance: Option<f64>,
}

/// A line of source, or an instruction where there are no lines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourceLine {
    /// `file:line`, or the instruction's address.
    pub location: String,
    /// Writes from there.
    pub writes: u64,
    /// Their share of the function's.
    pub share: f64,
    /// As in [`Measured`], of these writes.
    pub reread_distance: Option<f64>,
    /// As in [`Measured`], of these writes.
    pub rewrite_distance: Option<f64>,
}

/// A path of calls that leads into a function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallPath {
    /// Functions, the innermost caller first.
    pub callers: Vec<String>,
    /// Writes that came this way.
    pub writes: u64,
}

/// A function that writes, and what to do about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FunctionReport {
    /// Its name, or the place of the code where there is no name.
    pub function: String,
    /// The program or library that it is in.
    pub image: String,
    /// What was measured.
    pub measured: Measured,
    /// Where in it the writes are, the most first: stores that write the same runs are one place.
    pub places: Vec<PlaceReport>,
    /// Where it is called from, the most writes first.
    pub callers: Vec<CallPath>,
    /// What to do: of the place with the most writes that gets advice, or of the one with the most.
    pub verdict: Verdict,
}

/// Stores of a function that write the same runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlaceReport {
    /// Its lines, the most writes first.
    pub lines: Vec<SourceLine>,
    /// What was measured; the share is of the function's writes.
    pub measured: Measured,
    /// By size of the regions written, the largest share first.
    pub classes: Vec<SizeClass>,
    /// What to do.
    pub verdict: Verdict,
}

/// Reads that miss, which a prefetch could hide.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PrefetchReport {
    /// The function.
    pub function: String,
    /// `file:line`, or the instruction's address.
    pub location: String,
    /// Reads from there.
    pub reads: u64,
    /// The share of them that goes to a line not touched lately, at no regular stride.
    pub irregular_share: f64,
    /// How many executions ahead to prefetch.
    pub ahead: u64,
    /// What to check before.
    pub warning: String,
}

/// A stack of calls, with what happened at its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    /// Functions, the outermost first.
    pub functions: Vec<String>,
    /// Writes, about: one in 61 is counted.
    pub writes: u64,
    /// Instructions with the meaning of a fence.
    pub fences: u64,
}

/// How many events there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Events of all kinds.
    pub events: u64,
    /// Instructions, of all threads.
    pub instructions: u64,
    /// Reads.
    pub reads: u64,
    /// Writes, those through the stack pointer included.
    pub writes: u64,
    /// Of them, those through the stack pointer.
    pub spills: u64,
    /// Instructions with the meaning of a fence.
    pub fences: u64,
    /// Threads that accessed memory.
    pub threads: u32,
}

/// What an analysis finds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    /// Counts of the whole trace.
    pub totals: Totals,
    /// Functions by their share of writes, the largest first.
    pub functions: Vec<FunctionReport>,
    /// Reads worth a prefetch.
    pub prefetches: Vec<PrefetchReport>,
    /// Stacks of calls, the most writes first; broken where a program leaves functions by other ways than returns.
    pub stacks: Vec<Stack>,
    /// What the rules compared with.
    pub thresholds: Thresholds,
}

impl Totals {
    /// Writes per instruction.
    ///
    /// # Examples
    /// ```
    /// let totals = terrace_dirtbuster::Totals { instructions: 100, writes: 9, ..Default::default() };
    /// assert_eq!(totals.write_share(), 0.09);
    /// ```
    pub fn write_share(&self) -> f64 {
        if self.instructions == 0 { 0.0 } else { self.writes as f64 / self.instructions as f64 }
    }
}

/// A size in the unit that keeps it short: `240 B`, `16.2 MB`.
pub(crate) fn bytes(count: u64) -> String {
    match count as f64 {
        c if c >= 1e9 => format!("{:.1} GB", c / 1e9),
        c if c >= 1e6 => format!("{:.1} MB", c / 1e6),
        c if c >= 1e3 => format!("{:.1} kB", c / 1e3),
        c => format!("{c} B"),
    }
}

/// A distance as the paper prints it: `2`, `23.8K`, `inf`.
pub(crate) fn distance(instructions: Option<f64>) -> String {
    match instructions {
        None => "inf".into(),
        Some(d) if d >= 1e6 => format!("{:.1}M", d / 1e6),
        Some(d) if d >= 1e3 => format!("{:.1}K", d / 1e3),
        Some(d) => format!("{d:.0}"),
    }
}
