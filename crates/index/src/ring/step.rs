//! Every ordering point of the ring by name, so that a test can leave one out.
//!
//! As for failure-atomic sections: in tests, and with the feature `faults`, a ring carries the set of steps
//! that it leaves out; in every other build the question "is this step on?" is the constant `true`.

macro_rules! steps {
    ($($name:ident, $form:literal, $meaning:literal;)*) => {
        /// An ordering point: a write-back, fence or check on which recovery or another thread relies.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "the meaning is in the table, see `Step::meaning`")]
        pub enum Step { $(#[doc = $meaning] $name,)* }

        impl Step {
            /// Every step.
            pub const ALL: &'static [Step] = &[$(Step::$name,)*];

            /// Which form it belongs to: `tx`, `tx-free` or `both`.
            pub fn form(self) -> &'static str {
                match self { $(Step::$name => $form,)* }
            }

            /// One line on what it orders.
            pub fn meaning(self) -> &'static str {
                match self { $(Step::$name => $meaning,)* }
            }
        }
    };
}

// A transaction over one word would not miss its fence: the log's own comes before the return as well.
steps! {
    SlotWriteBack, "both", "a slot and its header are written back ..";
    SlotFence, "both", ".. and durable before the element may be popped or its push returns";
    SlotChecksum, "tx-free", "recovery takes only slots that match their checksum";
    Together, "both", "recovery takes an element of several slots whole or not at all";
    SeenStays, "tx-free", "a position that a cut off push has written is not used again";
    TailWriteBack, "both", "the tail is written back ..";
    TailFence, "tx-free", ".. and durable before a pop returns and its slots are filled again";
    InOrder, "both", "a pop returns when all pops before it are durable";
    UndoWriteBack, "tx", "the old words are written back ..";
    UndoFence, "tx", ".. and durable before they are overwritten";
    RollBack, "tx", "recovery puts the words of an open transaction back";
    UndoVoid, "tx", "the log is void, durably, before the transaction returns";
}

/// The steps a ring leaves out.
#[cfg(any(test, feature = "faults"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps(u32);

#[cfg(any(test, feature = "faults"))]
impl Steps {
    /// Every step is taken.
    pub const ALL: Steps = Steps(0);

    /// These, and `step`, are left out.
    #[must_use]
    pub fn without(self, step: Step) -> Steps {
        const { assert!(Step::ALL.len() <= 32, "a bit for every step") };
        Steps(self.0 | 1 << step as u8)
    }

    /// Whether `step` is taken.
    #[inline(always)]
    pub(super) fn has(self, step: Step) -> bool {
        self.0 >> step as u8 & 1 == 0
    }
}

/// The steps a ring leaves out: none.
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
