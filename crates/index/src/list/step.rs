//! Every ordering point of the four lists by name, so that a test can leave one out.
//!
//! Without three of them (`LogNamesNode`, `IncomingLink`, `HelpedMark`) the logged list is the published
//! one. In tests, and with the feature `faults`, a list carries the set of steps it leaves out; in every
//! other build the question "is this step on?" is the constant `true`.

macro_rules! steps {
    ($($name:ident, $list:literal, $meaning:literal;)*) => {
        /// An ordering point: a store, write-back, fence or check on which recovery relies.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "the meaning is in the table, see `Step::meaning`")]
        pub enum Step { $(#[doc = $meaning] $name,)* }

        impl Step {
            /// Every step.
            pub const ALL: &'static [Step] = &[$(Step::$name,)*];

            /// Which list it belongs to, by [`Protocol::NAME`](super::Protocol::NAME).
            pub fn list(self) -> &'static str {
                match self { $(Step::$name => $list,)* }
            }

            /// One line on what it orders.
            pub fn meaning(self) -> &'static str {
                match self { $(Step::$name => $meaning,)* }
            }
        }
    };
}

steps! {
    LogWriteBack, "tlog", "what an operation is about to do is durable before anyone can see it";
    LogNamesNode, "tlog", "recovery redoes what is logged to that very node, not to whatever has its key";
    NodeWriteBack, "tlog", "a node is durable before it is linked";
    IncomingLink, "tlog", "the link to a node is durable before another node is linked behind it";
    LinkWriteBack, "tlog", "a link is durable before the record of its insertion is cleared";
    MarkWriteBack, "tlog", "a mark is durable before the record of its removal is cleared";
    HelpedMark, "tlog", "another's mark is durable before the marked node is unlinked";
    UnlinkWriteBack, "tlog", "a node is durably unlinked before its slot is used again";
    ClearWriteBack, "tlog", "a record is durably cleared before the slot it names is used again";
    TLogFences, "tlog", "write-backs are done before what relies on them";
    PersistentCaches, "log-free", "only where a store is durable once it is visible";
    InvalidFirst, "link-free", "a slot is invalid before its contents are overwritten";
    ValidLast, "link-free", "a node is valid only when its contents are written";
    InsertWriteBack, "link-free", "a node is durable before its insertion is told";
    FlagAfterFlush, "link-free", "a node is said to be durable only after it is";
    FoundWriteBack, "link-free", "a node is durable before another is told that it is there";
    DeleteWriteBack, "link-free", "a mark is durable before the removal is told";
    GoneWriteBack, "link-free", "a mark is durable before another is told, or the node is unlinked";
    LinkFreeFences, "link-free", "write-backs are done before what relies on them";
    FinishLast, "soft", "a node is valid only when its contents are written";
    CreateWriteBack, "soft", "a node is durable before its link says that it is there";
    DestroyWriteBack, "soft", "a removal is durable before the link says that the node is gone";
    SoftFences, "soft", "write-backs are done before what relies on them";
}

/// The steps of the published form of the logged list that are not in it: what it lacks is added here.
#[cfg(any(test, feature = "faults"))]
pub const NOT_PUBLISHED: [Step; 3] = [Step::LogNamesNode, Step::IncomingLink, Step::HelpedMark];

/// The steps a list leaves out.
#[cfg(any(test, feature = "faults"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps(u64);

#[cfg(any(test, feature = "faults"))]
impl Steps {
    /// Every step is taken.
    pub const ALL: Steps = Steps(0);

    /// These, and `left_out`, are left out.
    #[must_use]
    pub fn without(self, left_out: &[Step]) -> Steps {
        const { assert!(Step::ALL.len() <= 64, "a bit for every step") };
        Steps(left_out.iter().fold(self.0, |bits, step| bits | 1 << *step as u8))
    }

    /// Whether `step` is taken.
    #[inline(always)]
    pub(super) fn has(self, step: Step) -> bool {
        self.0 >> step as u8 & 1 == 0
    }
}

/// The steps a list leaves out: none.
#[cfg(not(any(test, feature = "faults")))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps;

#[cfg(not(any(test, feature = "faults")))]
impl Steps {
    /// Every step is taken.
    pub(super) const ALL: Steps = Steps;

    /// Whether `step` is taken: yes.
    #[inline(always)]
    pub(super) fn has(self, _step: Step) -> bool {
        true
    }
}
