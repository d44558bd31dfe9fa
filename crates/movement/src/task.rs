//! Tasks: what an engine is asked to do, checked before any engine sees it.

use crate::error::{Error, Result};
use crate::range::{Buffer, Source, within};
use std::ptr::NonNull;

/// One operation on ranges of memory, with whatever keeps them alive.
///
/// ```
/// use terrace_movement::{Buffer, Engine, Source, Task};
///
/// let source = Source::from(vec![5; 100]);
/// let task = Task::copy(&source, Buffer::new(vec![0; 128]), 28).unwrap();
/// let finished = Engine::cached().submit(task).unwrap().wait();
/// assert_eq!(finished.result.unwrap().bytes, 100);
/// let target = finished.target.unwrap();
/// assert_eq!((target.bytes()[27], target.bytes()[28]), (0, 5));
/// ```
#[derive(Debug)]
pub struct Task {
    pub(crate) steps: Steps,
    pub(crate) held: Held,
}

/// What a task keeps alive until it is done.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub target: Option<Buffer>,
    pub _sources: Sources,
}

/// Sources of a task; one, mostly, which takes no allocation.
#[derive(Debug, Default)]
pub(crate) enum Sources {
    #[default]
    None,
    One(#[expect(dead_code, reason = "held for as long as the task")] Source),
    Many(#[expect(dead_code, reason = "held for as long as the task")] Vec<Source>),
}

/// Steps of a task, in order.
#[derive(Debug)]
pub(crate) enum Steps {
    One(Step),
    /// With a fence: each step begins after the one before it has ended, and only if that ended well.
    Many {
        steps: Vec<Step>,
        is_ordered: bool,
    },
}

impl Steps {
    pub fn as_slice(&self) -> &[Step] {
        match self {
            Steps::One(step) => std::slice::from_ref(step),
            Steps::Many { steps, .. } => steps,
        }
    }

    pub fn is_ordered(&self) -> bool {
        matches!(self, Steps::Many { is_ordered: true, .. })
    }
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// `source` to `target`, which do not overlap.
    Copy,
    /// The same, where they may.
    Move,
    /// The eight bytes of `value` over and over.
    Fill,
    /// `source` with `target`, which is only read.
    Compare,
    /// CRC-32C of `source`, continuing `value`.
    Crc,
}

impl Verb {
    pub fn name(self) -> &'static str {
        match self {
            Verb::Copy | Verb::Move => "copy",
            Verb::Fill => "fill",
            Verb::Compare => "compare",
            Verb::Crc => "crc",
        }
    }
}

/// One operation on addresses. They are valid for as long as the task's `Held` exists and no longer, and nobody but the
/// engine uses those that the step writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub verb: Verb,
    pub source: NonNull<u8>,
    pub target: NonNull<u8>,
    pub bytes: usize,
    pub value: u64,
}

// SAFETY: addresses; whoever executes a step keeps what they point to alive (`Part`).
unsafe impl Send for Step {}
// SAFETY: as above.
unsafe impl Sync for Step {}

impl Step {
    /// `bytes` bytes of it from `at` on.
    ///
    /// # Panics
    /// If it has fewer.
    pub fn part(self, at: usize, bytes: usize) -> Step {
        assert!(
            at.checked_add(bytes).is_some_and(|end| end <= self.bytes),
            "a part of a step lies in it"
        );
        let value = match self.verb {
            Verb::Fill => self.value.rotate_right(8 * (at as u32 % 8)),
            _ => self.value,
        };
        // SAFETY: inside the ranges of the step (asserted). A fill has no source and a checksum no target: theirs is
        // the other one.
        let (source, target) = unsafe { (self.source.add(at), self.target.add(at)) };
        Step { source, target, bytes, value, ..self }
    }
}

impl Task {
    /// Copies all of `source` to `target`, from byte `at` on.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] and [`Error::Empty`].
    pub fn copy(source: &Source, target: Buffer, at: usize) -> Result<Task> {
        let step = copy_step(source, &target, at)?;
        let held = Held { target: Some(target), _sources: Sources::One(source.clone()) };
        Ok(Task { steps: Steps::One(step), held })
    }

    /// Copies several sources, each to its place in `target`; engines execute them as a batch, in any order.
    ///
    /// # Errors
    /// [`Error::Overlap`] if two of them would write one byte; as [`Task::copy`].
    pub fn gather(pieces: &[(Source, usize)], target: Buffer) -> Result<Task> {
        let steps: Vec<Step> = pieces
            .iter()
            .map(|(source, at)| copy_step(source, &target, *at))
            .collect::<Result<_>>()?;
        let mut ranges: Vec<(usize, usize)> =
            pieces.iter().map(|(s, at)| (*at, at + s.bytes().len())).collect();
        ranges.sort_unstable();
        if let Some(pair) = ranges.windows(2).find(|pair| pair[0].1 > pair[1].0) {
            return Err(Error::Overlap { at: pair[1].0 });
        }
        if steps.is_empty() {
            return Err(Error::Empty("batch"));
        }
        let sources = Sources::Many(pieces.iter().map(|(source, _)| source.clone()).collect());
        let held = Held { target: Some(target), _sources: sources };
        Ok(Task { steps: Steps::Many { steps, is_ordered: false }, held })
    }

    /// As [`Task::copy`], and then the CRC-32C of what arrived, in the report.
    ///
    /// # Errors
    /// As [`Task::copy`].
    pub fn copy_and_check(source: &Source, target: Buffer, at: usize) -> Result<Task> {
        let copy = copy_step(source, &target, at)?;
        let check = Step { verb: Verb::Crc, source: copy.target, ..copy };
        let held = Held { target: Some(target), _sources: Sources::One(source.clone()) };
        Ok(Task { steps: Steps::Many { steps: vec![copy, check], is_ordered: true }, held })
    }

    /// Moves `bytes` bytes inside of a buffer; the ranges may overlap.
    ///
    /// # Errors
    /// As [`Task::copy`].
    pub fn shift(buffer: Buffer, from: usize, to: usize, bytes: usize) -> Result<Task> {
        let (source, target) = (at(&buffer, from, bytes)?, at(&buffer, to, bytes)?);
        let step = Step { verb: Verb::Move, source, target, bytes, value: 0 };
        Ok(Task {
            steps: Steps::One(step),
            held: Held { target: Some(buffer), _sources: Sources::None },
        })
    }

    /// Fills `bytes` bytes from `from` on with the eight bytes of `pattern` (little end first), over and over.
    ///
    /// # Errors
    /// As [`Task::copy`].
    pub fn fill(target: Buffer, from: usize, bytes: usize, pattern: u64) -> Result<Task> {
        let start = at(&target, from, bytes)?;
        let step = Step { verb: Verb::Fill, source: start, target: start, bytes, value: pattern };
        Ok(Task {
            steps: Steps::One(step),
            held: Held { target: Some(target), _sources: Sources::None },
        })
    }

    /// Compares two ranges; the report has the first byte that differs.
    ///
    /// # Errors
    /// [`Error::Lengths`] and [`Error::Empty`].
    pub fn compare(left: &Source, right: &Source) -> Result<Task> {
        let (l, r) = (left.bytes(), right.bytes());
        if l.len() != r.len() {
            return Err(Error::Lengths { left: l.len(), right: r.len() });
        }
        if l.is_empty() {
            return Err(Error::Empty("comparison"));
        }
        let (source, target) = (NonNull::from(l).cast(), NonNull::from(r).cast());
        let step = Step { verb: Verb::Compare, source, target, bytes: l.len(), value: 0 };
        let held =
            Held { target: None, _sources: Sources::Many(vec![left.clone(), right.clone()]) };
        Ok(Task { steps: Steps::One(step), held })
    }

    /// The CRC-32C of a range, in the report.
    ///
    /// # Errors
    /// [`Error::Empty`].
    pub fn crc(source: &Source) -> Result<Task> {
        let bytes = source.bytes();
        if bytes.is_empty() {
            return Err(Error::Empty("checksum"));
        }
        let start = NonNull::from(bytes).cast();
        let step =
            Step { verb: Verb::Crc, source: start, target: start, bytes: bytes.len(), value: 0 };
        let held = Held { target: None, _sources: Sources::One(source.clone()) };
        Ok(Task { steps: Steps::One(step), held })
    }

    /// Bytes that it works on.
    pub fn bytes(&self) -> usize {
        self.steps.as_slice().iter().map(|step| step.bytes).sum()
    }
}

fn copy_step(source: &Source, target: &Buffer, to: usize) -> Result<Step> {
    let bytes = source.bytes();
    let target = at(target, to, bytes.len())?;
    // A source is shared and a buffer is not: they do not overlap.
    Ok(Step {
        verb: Verb::Copy,
        source: NonNull::from(bytes).cast(),
        target,
        bytes: bytes.len(),
        value: 0,
    })
}

/// Where the bytes of a buffer begin that a step uses.
fn at(buffer: &Buffer, at: usize, bytes: usize) -> Result<NonNull<u8>> {
    within("target", at, bytes, buffer.len())?;
    if bytes == 0 {
        return Err(Error::Empty("copy"));
    }
    // SAFETY: inside the buffer (checked).
    Ok(unsafe { buffer.start().add(at) })
}
