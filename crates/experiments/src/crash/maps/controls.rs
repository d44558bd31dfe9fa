//! What the maps' protocols need, left out step by step.

use super::super::Settings;
use super::super::exhaustive::Explored;
use super::super::left_out::LeftOut;
use super::growth::without_entries;
use super::kept::VALUES_BYTES as WITH_INDEX;
use super::mirrored::without_version;
use super::several::unsynced_records;
use super::{
    Design, Leaves, SEGMENT_BYTES, Wrong, batches, blind, blind_by_index, checkpointer, collector,
    collector_on_disk, disk, disk_marked, full, full_threads, mirrored, mirrored_checkpoint,
    mirrored_collector, mirrored_growth, mirrored_in_sync, mirrored_look, mirrored_queue,
    mirrored_tick, ordered, redo_batches, redo_killed, redo_power_cut, saved, saved_threads,
    script, several_bounded, several_in_sync, several_killed, several_threads, spill, spill_look,
    spill_recovery, superblock, threads,
};
use terrace_durable::item::BATCH_END_BYTES;
use terrace_durable::journal::Steps as JournalSteps;
use terrace_durable::logs::Fault;
use terrace_machine::{Crashable, Report, Without};
use terrace_memory::Domain;
use terrace_store::laboratory::{LeafForm, TreeForm};

const HEADER: u64 = 64;
/// The log that the collector of its scenario moves to first: segments are taken from the last one on,
/// and setup has taken two.
const MOVED_TO: u64 = 6 * SEGMENT_BYTES;

/// A memory that does not write back items of logs, or slots.
fn items(memory: Crashable) -> Without<Crashable> {
    Without::nothing(memory)
        .write_backs(|at, _| at >= SEGMENT_BYTES && at % SEGMENT_BYTES >= HEADER)
}

/// A memory that does not write back the log of sections.
fn section_log(memory: Crashable) -> Without<Crashable> {
    Without::nothing(memory).write_backs(|at, _| (64 << 10..128 << 10).contains(&at))
}

/// A memory that does not write back the words that sections change, nor other single words.
fn words(memory: Crashable) -> Without<Crashable> {
    Without::nothing(memory).write_backs(|at, n| at >= SEGMENT_BYTES && n == 8)
}

/// The scripted map of one thread, by sections, with something left out.
fn by_sections(without: Leaves, design: Design, settings: &Settings) -> Report {
    full(without, design, settings).left_out(settings)
}

fn in_pages(settings: &Settings) -> Settings {
    Settings { domain: Domain::PageCache, ..*settings }
}

/// The scripted map of one thread, with something left out.
fn sampled(without: Leaves, design: Design, settings: &Settings) -> Report {
    script(without, design, settings).left_out(settings)
}

/// A disk whose syncs do nothing.
const UNSYNCED: Wrong = Wrong { syncs: false, ..Wrong::NOTHING };

/// Logs that make a mistake.
fn faulty(fault: Fault) -> Wrong {
    Wrong { fault: Some(fault), ..Wrong::NOTHING }
}

/// An index in DRAM that stores something else.
fn storing(stored: fn(u64, u64) -> u64) -> Wrong {
    Wrong { index_stores: Some(stored), ..Wrong::NOTHING }
}

/// The head of a persistent index, whose words are written back.
const INDEX_HEAD: u64 = 4096;

pub(in super::super) const STEPS: &[LeftOut] = &[
    LeftOut {
        test: "map-logs-ordered",
        name: "EntryWriteBack",
        meaning: "an entry, or the word of it that changed, is written back before its leaf is let go",
        run: |s| {
            let entries: Leaves = |m| {
                Without::nothing(m)
                    .write_backs(|at, n| at >= WITH_INDEX + INDEX_HEAD && (n == 32 || n == 8))
            };
            ordered(entries, LeafForm::FastFair.into(), Design::Logs, s).left_out(s)
        },
    },
    LeftOut {
        test: "map-logs-ls",
        name: "RecordWriteBack",
        meaning: "a delta is written back before the mapping table leads to it",
        run: |s| {
            // Records alone are whole lines.
            let records: Leaves = |m| {
                Without::nothing(m)
                    .write_backs(|at, n| at >= WITH_INDEX + INDEX_HEAD && n % 64 == 0)
            };
            ordered(records, TreeForm::Logs, Design::Logs, s).left_out(s)
        },
    },
    LeftOut {
        test: "map-slabs-ls",
        name: "HeadWriteBack",
        meaning: "the head of a segment of delta logs is written back before a record is stored in it",
        run: |s| {
            let heads: Leaves = |m| {
                Without::nothing(m).write_backs(|at, n| at >= WITH_INDEX + INDEX_HEAD && n == 24)
            };
            ordered(heads, TreeForm::Logs, Design::Slabs, s).left_out(s)
        },
    },
    LeftOut {
        test: "map-logs",
        name: "ItemWriteBack",
        meaning: "items of a log are written back before they are acknowledged",
        run: |s| sampled(items, Design::Logs, s),
    },
    LeftOut {
        test: "map-logs",
        name: "LogHeaderWriteBack",
        meaning: "a log's header is written back before items are acknowledged in it",
        run: |s| {
            let headers: Leaves = |m| {
                Without::nothing(m)
                    .write_backs(|at, _| at >= SEGMENT_BYTES && at % SEGMENT_BYTES < HEADER)
            };
            sampled(headers, Design::Logs, s)
        },
    },
    LeftOut {
        test: "map-logs",
        name: "Fences",
        meaning: "write-backs are done before anything is acknowledged",
        run: |s| sampled(|m| Without::nothing(m).fences(), Design::Logs, s),
    },
    LeftOut {
        test: "map-slabs",
        name: "SlotWriteBack",
        meaning: "a slot's item is written back before it is acknowledged",
        run: |s| {
            let slots: Leaves =
                |m| Without::nothing(m).write_backs(|at, n| at >= SEGMENT_BYTES && n != 8);
            sampled(slots, Design::Slabs, s)
        },
    },
    LeftOut {
        test: "map-slabs",
        name: "ClearWriteBack",
        meaning: "a slot's cleared checksum is written back before the deletion is acknowledged",
        run: |s| {
            let clears: Leaves = |m| {
                Without::nothing(m).write_backs(|at, n| {
                    at >= SEGMENT_BYTES && at % SEGMENT_BYTES >= HEADER && n == 8
                })
            };
            sampled(clears, Design::Slabs, s)
        },
    },
    LeftOut {
        test: "map-slabs",
        name: "Fences",
        meaning: "write-backs are done before anything is acknowledged",
        run: |s| sampled(|m| Without::nothing(m).fences(), Design::Slabs, s),
    },
    LeftOut {
        test: "map-slabs-deferred",
        name: "DeferredClearWriteBack",
        meaning: "superseded versions are cleared durably before a deletion is acknowledged",
        // Deferred clears alone write back the four bytes of a checksum.
        run: |s| {
            let clears: Leaves = |m| Without::nothing(m).write_backs(|_, n| n == 4);
            sampled(clears, Design::DeferredSlabs, s)
        },
    },
    LeftOut {
        test: "map-logs-threads",
        name: "ItemWriteBack",
        meaning: "an item is written back before another thread may read it",
        run: |s| threads(items, Design::Logs, s).left_out(s),
    },
    LeftOut {
        test: "map-slabs-threads",
        name: "ItemWriteBack",
        meaning: "an item is written back before another thread may read it",
        run: |s| threads(items, Design::Slabs, s).left_out(s),
    },
    LeftOut {
        test: "map-logs-batches",
        name: "EndAwaited",
        meaning: "what was read of a batch is acknowledged once the batch has ended",
        run: |s| batches(Without::nothing, Some(Fault::BatchesToldEarly), s).left_out(s),
    },
    LeftOut {
        test: "map-logs-batches",
        name: "EndWriteBack",
        meaning: "a batch's end is written back before the batch is acknowledged",
        run: |s| {
            let ends: Leaves = |m| {
                Without::nothing(m)
                    .write_backs(|at, n| at >= SEGMENT_BYTES && n == BATCH_END_BYTES as u64)
            };
            batches(ends, None, s).left_out(s)
        },
    },
    LeftOut {
        test: "map-collector",
        name: "MovedItemWriteBack",
        meaning: "moved items are written back before the log they came from is freed",
        run: |s| {
            // By the append, and again by the flush before the log is freed.
            let moved: Leaves = |m| {
                Without::nothing(m).write_backs(|at, n| {
                    (MOVED_TO..MOVED_TO + SEGMENT_BYTES).contains(&at)
                        && at % SEGMENT_BYTES + n > HEADER
                })
            };
            collector(moved, None, s).left_out(s)
        },
    },
    LeftOut {
        test: "map-collector",
        name: "TombstoneKept",
        meaning: "a tombstone moves while an older log may hold what it shadows",
        run: |s| {
            let fault = Some(Fault::TombstonesEarly);
            collector(Without::nothing, fault, s).left_out(s)
        },
    },
    LeftOut {
        test: "map-collector-disk",
        name: "FlushBeforeFree",
        meaning: "moved items are flushed before the log they came from is freed",
        run: |s| collector_on_disk(Some(Fault::FreeUnflushed), s).left_out(s),
    },
    LeftOut {
        test: "map-collector-disk",
        name: "TombstoneKept",
        meaning: "a tombstone moves while an older log may hold what it shadows",
        run: |s| collector_on_disk(Some(Fault::TombstonesEarly), s).left_out(s),
    },
    LeftOut {
        test: "map-disk",
        name: "Sync",
        meaning: "what was written is synced before a checkpoint, or a log's end, says that it is there",
        run: |s| disk(false, s).left_out(s),
    },
    LeftOut {
        test: "map-disk-marks",
        name: "CommitBeforeMark",
        meaning: "a commit has returned before a mark says that it is durable",
        run: |s| disk_marked(Some(Fault::MarksEarly), s).left_out(s),
    },
    LeftOut {
        test: "map-logs-full",
        name: "SectionLogWriteBack",
        meaning: "the section's log is written back before any of its words is stored",
        run: |s| by_sections(section_log, Design::Logs, s),
    },
    LeftOut {
        test: "map-logs-full",
        name: "WordWriteBack",
        meaning: "the section's words are written back before its log is written over",
        run: |s| by_sections(words, Design::Logs, s),
    },
    LeftOut {
        test: "map-logs-full",
        name: "ItemWriteBack",
        meaning: "an item is written back before the section that makes it count",
        run: |s| by_sections(items, Design::Logs, s),
    },
    LeftOut {
        test: "map-logs-full",
        name: "Fences",
        meaning: "write-backs are done before what follows them",
        run: |s| by_sections(|m| Without::nothing(m).fences(), Design::Logs, s),
    },
    LeftOut {
        test: "map-slabs-full",
        name: "SectionLogWriteBack",
        meaning: "the section's log is written back before any of its words is stored",
        run: |s| by_sections(section_log, Design::Slabs, s),
    },
    LeftOut {
        test: "map-slabs-full",
        name: "WordWriteBack",
        meaning: "the section's words are written back before its log is written over",
        run: |s| by_sections(words, Design::Slabs, s),
    },
    LeftOut {
        test: "map-slabs-full",
        name: "SlotWriteBack",
        meaning: "a slot's item is written back before the section that makes it count",
        run: |s| {
            let slots: Leaves = |m| {
                Without::nothing(m)
                    .write_backs(|at, n| (SEGMENT_BYTES..WITH_INDEX).contains(&at) && n != 8)
            };
            by_sections(slots, Design::Slabs, s)
        },
    },
    LeftOut {
        test: "map-slabs-full",
        name: "Fences",
        meaning: "write-backs are done before what follows them",
        run: |s| by_sections(|m| Without::nothing(m).fences(), Design::Slabs, s),
    },
    LeftOut {
        test: "map-logs-full-threads",
        name: "SectionLogWriteBack",
        meaning: "the section's log is written back before another thread may read its words",
        run: |s| full_threads(section_log, Design::Logs, s).left_out(s),
    },
    LeftOut {
        test: "map-slabs-full-threads",
        name: "SectionLogWriteBack",
        meaning: "the section's log is written back before another thread may read its words",
        run: |s| full_threads(section_log, Design::Slabs, s).left_out(s),
    },
    LeftOut {
        test: "map-disk",
        name: "SyncOfPages",
        meaning: "the same, where pages persist and not sectors",
        run: |s| disk(false, &in_pages(s)).left_out(s),
    },
    LeftOut {
        test: "map-checkpointer",
        name: "Sync",
        meaning: "what the checkpointer wrote out is synced before its checkpoint counts it",
        run: |s| checkpointer(false, s).left_out(s),
    },
    LeftOut {
        test: "map-slabs-superblock",
        name: "HeaderWriteBack",
        meaning: "a superblock's header is written back before its slots are handed out",
        run: |s| {
            let headers: Leaves = |m| {
                Without::nothing(m)
                    .write_backs(|at, _| at >= SEGMENT_BYTES && at % SEGMENT_BYTES < HEADER)
            };
            superblock(headers, s).left_out(s)
        },
    },
    LeftOut {
        test: "map-mirrored-threads",
        name: "Frozen",
        meaning: "what a checkpoint has taken is overwritten no more",
        run: |s| mirrored(faulty(Fault::OverwriteFrozen), s).left_out(s),
    },
    LeftOut {
        test: "map-mirrored-threads",
        name: "Sync",
        meaning: "what was written is synced before a checkpoint counts it",
        run: |s| mirrored(UNSYNCED, s).left_out(s),
    },
    LeftOut {
        test: "map-mirrored-threads",
        name: "SyncOfPages",
        meaning: "the same, where pages persist and not sectors",
        run: |s| mirrored(UNSYNCED, &in_pages(s)).left_out(s),
    },
    LeftOut {
        test: "map-mirrored-sync",
        name: "Sync",
        meaning: "what was written is synced before it is acknowledged",
        run: |s| mirrored_in_sync(UNSYNCED, s).left_out(s),
    },
    LeftOut {
        test: "map-mirrored-queue",
        name: "WriteBeforeReached",
        meaning: "the leader has written before those who wait for it learn that it has",
        run: |s| mirrored_queue(faulty(Fault::ReachedEarly), s).explored(s),
    },
    LeftOut {
        test: "map-mirrored-checkpoint",
        name: "RangesBeforeRecord",
        meaning: "what every commit queue handed over is written before the checkpoint record is stored",
        run: |s| mirrored_checkpoint(faulty(Fault::RecordEarly), s).explored(s),
    },
    LeftOut {
        test: "map-mirrored-checkpoint",
        name: "Frozen",
        meaning: "what a checkpoint has taken is overwritten no more",
        run: |s| mirrored_checkpoint(faulty(Fault::OverwriteFrozen), s).explored(s),
    },
    LeftOut {
        test: "map-mirrored-look",
        name: "VersionRaised",
        meaning: "a bucket tells readers that an item was overwritten while they copied it",
        run: |s| mirrored_look(storing(without_version), s).explored(s),
    },
    LeftOut {
        test: "map-mirrored-collector",
        name: "FlushBeforeFree",
        meaning: "moved items are flushed before the log they came from is freed",
        run: |s| mirrored_collector(faulty(Fault::FreeUnflushed), s).left_out(s),
    },
    LeftOut {
        test: "map-mirrored-collector",
        name: "TombstoneKept",
        meaning: "a tombstone moves while an older log may hold what it shadows",
        run: |s| mirrored_collector(faulty(Fault::TombstonesEarly), s).left_out(s),
    },
    LeftOut {
        test: "map-mirrored-tick",
        name: "SealedFrozen",
        meaning: "a sealed log is overwritten no more once it is written out",
        run: |s| mirrored_tick(faulty(Fault::OverwriteFrozen), s).explored(s),
    },
    LeftOut {
        test: "map-mirrored-growth",
        name: "BucketFilled",
        meaning: "entries are moved to the new bucket when the table grows",
        run: |s| mirrored_growth(storing(without_entries), s).explored(s),
    },
    LeftOut {
        test: "map-spill",
        name: "WrittenBeforeLeaving",
        meaning: "a log is written and synced before it leaves memory",
        run: |s| spill(faulty(Fault::LeaveUnwritten), s).left_out(s),
    },
    LeftOut {
        test: "map-spill-look",
        name: "ReadersHaveLeft",
        meaning: "the memory of a log that leaves stays until its readers have left",
        run: |s| spill_look(faulty(Fault::ReleaseEarly), s).left_out(s),
    },
    LeftOut {
        test: "map-spill-recovery",
        name: "Sync",
        meaning: "what was written is synced before it is acknowledged, and before recovery relies on it",
        run: |s| spill_recovery(UNSYNCED, s).explored(s),
    },
    LeftOut {
        test: "map-saved",
        name: "FlushBeforePublishing",
        meaning: "what a saved index leaves to the logs is durable before the checkpoint record names it",
        run: |s| saved(faulty(Fault::SavedUnflushed), s).left_out(s),
    },
    LeftOut {
        test: "map-saved-threads",
        name: "LogsOfTheMoment",
        meaning: "a saved index knows the logs that were closed before its entries were passed on, and no others",
        run: |s| saved_threads(faulty(Fault::SavedLate), s).left_out(s),
    },
    LeftOut {
        test: "map-blind",
        name: "VersionAbove",
        meaning: "what is written without having been read has a version above all that were given",
        run: |s| blind(faulty(Fault::BlindVersion), s).left_out(s),
    },
    LeftOut {
        test: "map-blind",
        name: "TakenInBeforeCollecting",
        meaning: "the index knows what was written without having been read before its log is collected",
        run: |s| blind(faulty(Fault::BlindForgotten), s).left_out(s),
    },
    LeftOut {
        test: "map-blind-saved",
        name: "TakenInBeforeSaving",
        meaning: "the index knows what was written without having been read before it is saved",
        run: |s| blind_by_index(faulty(Fault::BlindForgotten), s).left_out(s),
    },
    LeftOut {
        test: "map-redo-killed",
        name: "RecordBeforeWord",
        meaning: "a record of the redo log is stored before the word that says that it is whole",
        run: |s| redo_killed(faulty(Fault::WordEarly), s).left_out(s),
    },
    LeftOut {
        test: "map-redo-killed",
        name: "CheckpointBeforeReuse",
        meaning: "a record of the redo log is overwritten once the checkpoint that has it is there",
        run: |s| redo_killed(faulty(Fault::RedoFreedEarly), s).left_out(s),
    },
    LeftOut {
        test: "map-redo-power-cut",
        name: "NumberAndCheck",
        meaning: "a redo log is replayed only with the checkpoint whose number and checksum it names",
        run: |s| redo_power_cut(true, s).left_out(s),
    },
    LeftOut {
        test: "map-several-sync",
        name: "RecordFirst",
        meaning: "the commit journal's record is durable before anything is written to a map",
        run: |s| several_in_sync(Wrong::NOTHING, unsynced_records(), s).crashes(1).explored(s),
    },
    LeftOut {
        test: "map-several-sync",
        name: "MapsBeforeEnd",
        meaning: "a transaction is over when all maps hold it",
        run: |s| {
            several_in_sync(faulty(Fault::EndedEarly), JournalSteps::ALL, s).crashes(1).explored(s)
        },
    },
    LeftOut {
        test: "map-several-killed",
        name: "MapsBeforeEnd",
        meaning: "a transaction is over when all maps hold it",
        run: |s| several_killed(faulty(Fault::EndedEarly), s).crashes(1).explored(s),
    },
    LeftOut {
        test: "map-several",
        name: "CheckpointTogether",
        meaning: "a map takes no checkpoint alone that has a transaction which another map lacks",
        run: |s| several_bounded(faulty(Fault::CheckpointAlone), s).crashes(1).explored(s),
    },
    LeftOut {
        test: "map-several-threads",
        name: "CheckpointTogether",
        meaning: "a map takes no checkpoint alone that has a transaction which another map lacks",
        run: |s| several_threads(faulty(Fault::CheckpointAlone), s).left_out(s),
    },
    LeftOut {
        test: "map-redo-batches",
        name: "NoCheckpointInside",
        meaning: "no checkpoint is taken between the items of a batch",
        run: |s| redo_batches(faulty(Fault::CheckpointInBatch), s).explored(s),
    },
];
