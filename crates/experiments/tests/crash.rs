//! What crash tests say, and what they are. That each of them passes in every domain, and objects to every step that is
//! left out, is what `terrace crash-test --all` shows in an optimised build (`cargo xtask test`, step `crashes`): no
//! state is looked at here that is looked at there.

use terrace_experiments::Domain;
use terrace_experiments::crash::{ALL, Settings, WHOLE_FROM, named};

#[test]
fn equal_seeds_draw_equal_states_and_as_many_as_were_asked_for() {
    let _alone = crate::alone();
    for test in ALL {
        let run =
            || test.run(&Settings { states: 20, seed: 5, domain: Domain::Adr }).assert_sound();
        let (first, second) = (run(), run());
        assert_eq!(first.hash, second.hash, "{}", test.name);
        assert!(first.states >= 20, "{}: {first}", test.name);
    }
}

/// One that is gone from the list would be missed by nobody.
#[test]
fn tables_of_words_leave_out_what_all_forms_rely_on() {
    let _beside = crate::beside_others();
    for (name, steps) in
        [("words-tlog", 2), ("words-log-free", 0), ("words-link-free", 2), ("words-soft", 2)]
    {
        let controls = named(name).expect("a test").controls(1, 1, &mut |_| {});
        assert_eq!(controls.len(), steps, "{name}");
    }
}

/// One that is gone from a table would be missed by nobody: what it leaves out is named here once more.
#[test]
fn scenarios_of_maps_and_of_the_hash_index_leave_out_these_steps() {
    let found: Vec<_> = ALL
        .iter()
        .filter(|test| !test.left_out().is_empty())
        .map(|test| format!("{}: {}", test.name, test.left_out().join(" ")))
        .collect();
    assert_eq!(found.join("\n"), LEFT_OUT.trim());
}

const LEFT_OUT: &str = "
map-logs: ItemWriteBack LogHeaderWriteBack Fences
map-slabs: SlotWriteBack ClearWriteBack Fences
map-slabs-deferred: DeferredClearWriteBack
map-logs-threads: ItemWriteBack
map-slabs-threads: ItemWriteBack
map-logs-batches: EndAwaited EndWriteBack
map-collector: MovedItemWriteBack TombstoneKept
map-disk: Sync SyncOfPages
map-disk-marks: CommitBeforeMark
map-collector-disk: FlushBeforeFree TombstoneKept
map-logs-ordered: EntryWriteBack
map-logs-ls: RecordWriteBack
map-slabs-ls: HeadWriteBack
map-logs-full: SectionLogWriteBack WordWriteBack ItemWriteBack Fences
map-slabs-full: SectionLogWriteBack WordWriteBack SlotWriteBack Fences
map-logs-full-threads: SectionLogWriteBack
map-slabs-full-threads: SectionLogWriteBack
kept-index: EntryWriteBack BucketWriteBack CountWriteBack LineWriteBack Fences
kept-index-sections: SectionLogWriteBack WordWriteBack BucketWriteBack LineWriteBack Fences
kept-index-look: ReaderSettles
kept-index-look-behind: ReaderSettles
map-slabs-superblock: HeaderWriteBack
map-checkpointer: Sync
map-mirrored-threads: Frozen Sync SyncOfPages
map-mirrored-sync: Sync
map-mirrored-queue: WriteBeforeReached
map-mirrored-checkpoint: RangesBeforeRecord Frozen
map-mirrored-look: VersionRaised
map-mirrored-collector: FlushBeforeFree TombstoneKept
map-mirrored-tick: SealedFrozen
map-mirrored-growth: BucketFilled
map-redo-killed: RecordBeforeWord CheckpointBeforeReuse
map-redo-power-cut: NumberAndCheck
map-redo-batches: NoCheckpointInside
map-spill: WrittenBeforeLeaving
map-spill-look: ReadersHaveLeft
map-spill-recovery: Sync
map-saved: FlushBeforePublishing
map-saved-threads: LogsOfTheMoment
map-blind: VersionAbove TakenInBeforeCollecting
map-blind-saved: TakenInBeforeSaving
map-several-sync: RecordFirst MapsBeforeEnd
map-several: CheckpointTogether
map-several-killed: MapsBeforeEnd
map-several-threads: CheckpointTogether
";

/// In a page cache there are the tests on a disk, and no others.
#[test]
fn a_page_cache_has_no_lines() {
    let _beside = crate::beside_others();
    let there = ALL.iter().filter(|test| test.exists_in(Domain::PageCache)).count();
    assert_eq!(there, 32);
    let in_lines = named("map-slabs").expect("a test");
    let settings = Settings { states: 1, seed: 1, domain: Domain::PageCache };
    let refused = std::panic::catch_unwind(|| in_lines.run(&settings)).expect_err("refused");
    let words = refused.downcast::<String>().expect("words");
    assert!(words.contains("map-slabs needs a byte-addressable memory"), "{words}");
}

/// Pages and sectors are different units: states and what they are made of differ.
#[test]
fn pages_are_not_sectors() {
    let _beside = crate::beside_others();
    let run = |domain| {
        let settings = Settings { states: 200, seed: 1, domain };
        named("map-disk").expect("a test").run(&settings).assert_sound()
    };
    let (sectors, pages) = (run(Domain::Adr), run(Domain::PageCache));
    assert!(pages.images < sectors.images, "fewer units, fewer images: {pages}, {sectors}");
}

/// These say that they meet every state.
#[test]
fn small_tests_are_explored_to_the_end() {
    let _beside = crate::beside_others();
    for name in ["kept-index-look", "kept-index-look-ahead", "map-slabs-index-look"] {
        let settings = Settings { states: WHOLE_FROM, seed: 1, domain: Domain::Adr };
        let report = named(name).expect("a test").run(&settings).assert_sound();
        assert!(report.exhausted, "{name}: {report}");
    }
}

#[test]
fn tests_are_known_by_their_names() {
    assert!(ALL.iter().all(|test| named(test.name).is_some_and(|found| found.name == test.name)));
    assert!(named("no-such-test").is_none());
}
