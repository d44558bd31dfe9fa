//! DirtBuster (Wu, chapter 3): where an unmodified program should clean, demote, stream or prefetch.
//!
//! 1. [`sample`] finds the functions that store, with samples of the processor's clock.
//! 2. A tracer ([`trace`]) delivers every access to memory as one stream of [`Event`]s.
//! 3. [`Analysis`] finds sequential writes, fences and re-use in it, and [`judge`] says what to do.
//!
//! The analysis knows nothing of tracers, programs or machines: it is tested with streams written by hand.
//! This room reads binary formats; no other does.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod analysis;
mod binary;
pub mod corpus;
mod event;
mod sample;
mod session;
mod source;
mod wire;

pub use analysis::{
    Advice, Analysis, CallPath, Findings, FunctionReport, LINE_BYTES, MEMORY_BYTES, Measured,
    PlaceReport, Places, PrefetchReport, SettingError, SizeClass, SourceLine, Stack, Thresholds,
    Totals, Verdict, judge,
};
pub use binary::{Instruction, InstructionSets, Program, ProgramError, Symbols, decode};
pub use event::{Event, Image, Kind, Sink};
pub use sample::{SampleError, Sampled, SampledFunction, sample};
pub use session::{Error, Gate, Judged, Report, Request, analyze, bust, record};
pub use source::{
    Ended, Format, Limits, Recorder, TraceError, TraceFile, Traced, Tracer, TracerChoice, import,
    trace,
};
