//! Every ordering point of the four lists by name, so that a test can leave one out.
//!
//! Without three of them (`LogNamesNode`, `IncomingLink`, `HelpedMark`) the logged list is the published
//! one.

terrace_durable::steps! {
    /// Which list it belongs to, by [`Protocol::NAME`](super::Protocol::NAME).
    pub fn list;

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
