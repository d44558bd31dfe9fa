//! Every ordering point of the logs by name, so that a test can leave one out.
//!
//! A protocol that survives a crash test proves little unless the test fails when the protocol is broken. In
//! tests, and with the feature `faults`, an index carries the set of steps it leaves out; in every other
//! build the question "is this step on?" is the constant `true`.

macro_rules! steps {
    ($($name:ident, $meaning:literal;)*) => {
        /// An ordering point: a store, write-back, fence or check on which recovery relies.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "the meaning is in the table, see `Step::meaning`")]
        pub enum Step { $(#[doc = $meaning] $name,)* }

        impl Step {
            /// Every step.
            pub const ALL: &'static [Step] = &[$(Step::$name,)*];

            /// One line on what it orders.
            pub fn meaning(self) -> &'static str {
                match self { $(Step::$name => $meaning,)* }
            }
        }
    };
}

steps! {
    RecordWriteBack, "a record is written back ..";
    RecordFence, ".. and durable before the mapping table leads to it and anyone is told";
    RecordChecksum, "replay takes only records that match their checksum";
    RecordStamp, "replay takes only records of the segment's present use";
    HeadWriteBack, "the head of a segment is written back before the fence of the first record in it";
    SplitWhole, "both halves of a split leaf are one record";
    CopyFirst, "what the collector keeps of a segment is durable elsewhere before the segment is freed";
    FreeWriteBack, "the end of a segment's use is written back ..";
    FreeFence, ".. and durable before the segment is used again, and before a later one is freed";
    LoadMark, "what is being loaded does not count before all of it is there";
    DeadMark, "that a leaf is no more stays in its log as long as its entries are in another";
}

/// The steps an index leaves out.
#[cfg(any(test, feature = "faults"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps(u64);

#[cfg(any(test, feature = "faults"))]
impl Steps {
    /// Every step is taken.
    pub const ALL: Steps = Steps(0);

    /// These, and `step`, are left out.
    #[must_use]
    pub fn without(self, step: Step) -> Steps {
        const { assert!(Step::ALL.len() <= 64, "a bit for every step") };
        Steps(self.0 | 1 << step as u8)
    }

    /// Whether `step` is taken.
    #[inline(always)]
    pub(super) fn has(self, step: Step) -> bool {
        self.0 >> step as u8 & 1 == 0
    }
}

/// The steps an index leaves out: none.
#[cfg(not(any(test, feature = "faults")))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps;

#[cfg(not(any(test, feature = "faults")))]
impl Steps {
    /// Every step is taken.
    pub const ALL: Steps = Steps;

    /// Whether `step` is taken: yes.
    #[inline(always)]
    pub(super) fn has(self, _step: Step) -> bool {
        true
    }
}
