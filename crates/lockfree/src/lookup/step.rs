//! Where the scheduler of the tests may switch threads: between the steps of a protocol, not at every access.

#[cfg(test)]
thread_local! {
    /// What a thread does at a step.
    pub(super) static AT_STEP: std::cell::RefCell<Option<Box<dyn Fn()>>> = const { std::cell::RefCell::new(None) };
}

/// A step of a protocol; nothing outside tests.
#[inline(always)]
pub(super) fn step() {
    #[cfg(test)]
    AT_STEP.with_borrow(|at_step| {
        if let Some(at_step) = at_step {
            at_step();
        }
    });
}

/// A step that a table leaves out, so that tests can show that it is needed.
#[cfg(any(test, feature = "faults"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A reader does not stamp the version that it finds without a stamp.
    ReadersDoNotStamp,
    /// Versions are pruned as if nobody read a snapshot.
    PruningIgnoresSnapshots,
    /// A split leads to the elements of its buckets, without markers in front of them.
    SplitWithoutMarkers,
}
