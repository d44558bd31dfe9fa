//! Every ordering point of the three engines by name, so that a test can leave one out.

crate::steps! {
    /// Which engine it belongs to: `undo`, `redo`, `shadow` or `undo, shadow`.
    pub fn engine;

    UndoLogWriteBack, "undo, shadow", "old values are written back ..";
    UndoLogFence, "undo, shadow", ".. and durable before the data are overwritten";
    UndoChecksum, "undo, shadow", "recovery rolls back only entries that match their checksum";
    UndoDataWriteBack, "undo", "new data are written back ..";
    UndoDataFence, "undo", ".. and durable before the log is declared void";
    UndoMark, "undo", "the commit mark: the next generation, under which no old entry counts";
    UndoMarkWriteBack, "undo", "the commit mark is written back ..";
    UndoMarkFence, "undo", ".. and durable before the section is acknowledged";
    RollBackWriteBack, "undo, shadow", "old values put back are written back ..";
    RollBackFence, "undo, shadow", ".. and durable before the log is declared void";
    RedoLogWriteBack, "redo", "new values in the log are written back ..";
    RedoLogFence, "redo", ".. and durable before the originals are overwritten";
    RedoMark, "redo", "the commit mark: length and checksum at the head of the log";
    RedoChecksum, "redo", "recovery applies only a log that matches its checksum";
    RedoApplyWriteBack, "redo", "originals are written back ..";
    RedoApplyFence, "redo", ".. and durable before the log is written again";
    RedoReplayWriteBack, "redo", "what recovery applied is written back, before the opening's fence";
    ShadowDataWriteBack, "shadow", "updated lines are written back ..";
    ShadowDataFence, "shadow", ".. and durable before the metadata that point to them";
    ShadowMark, "shadow", "one commit mark for all pages of a section, not one for each";
    ShadowJournalWriteBack, "shadow", "journal records are written back ..";
    ShadowJournalFence, "shadow", ".. and durable before the section is acknowledged";
    ShadowJournalChecksum, "shadow", "recovery replays only records that match the mark's checksum";
    ShadowMergeWriteBack, "shadow", "lines copied by consolidation are written back ..";
    ShadowMergeFence, "shadow", ".. and durable before the record that points to them";
    ShadowMergeMarkWriteBack, "shadow", "the records of a consolidation are written back ..";
    ShadowMergeMarkFence, "shadow", ".. and durable before the extra page is used for another page";
    ShadowTableWriteBack, "shadow", "a checkpoint's page table entries are written back ..";
    ShadowTableFence, "shadow", ".. and durable before the slots that replace their records";
    ShadowSlotsWriteBack, "shadow", "a checkpoint's slots are written back ..";
    ShadowSlotsFence, "shadow", ".. and durable before their records are overwritten";
    ShadowSlotsChecksum, "shadow", "recovery uses only a table of slots that matches its checksum";
    ShadowVoidMark, "shadow", "what was aborted or cut off keeps its number, so that nothing of it counts again";
}

/// What a write-back is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Data,
    Log,
    Consolidation,
    Checkpoint,
}

impl Step {
    /// What the write-back of this step is for.
    #[inline(always)]
    pub(super) fn purpose(self) -> Purpose {
        use Step as S;
        match self {
            S::UndoLogWriteBack | S::UndoMarkWriteBack | S::RedoLogWriteBack => Purpose::Log,
            S::ShadowJournalWriteBack => Purpose::Log,
            S::ShadowMergeWriteBack | S::ShadowMergeMarkWriteBack => Purpose::Consolidation,
            S::ShadowTableWriteBack | S::ShadowSlotsWriteBack => Purpose::Checkpoint,
            _ => Purpose::Data,
        }
    }
}
