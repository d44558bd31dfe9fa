//! Every ordering point of the ring by name, so that a test can leave one out.

// A transaction over one word would not miss its fence: the log's own comes before the return as well.
terrace_durable::steps! {
    /// Which form it belongs to: `tx`, `tx-free`, `both` or `version-1`.
    pub fn form;

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
    VersionLast, "version-1", "a ring of the first version is one of the second once all else of it is, durably";
}
