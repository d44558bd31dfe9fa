//! What a processor refuses, and that it is as it was afterwards.

use std::panic::{AssertUnwindSafe, catch_unwind};
use terrace_machine::ssp::{Consolidation, Design, Parameters, Processor, Refused, SectionTape};

/// A processor whose first core has begun its commit of a word.
fn committing(design: Design) -> Processor {
    let mut processor = Processor::new(&Parameters::ssp_sim(2), design, 4);
    processor.begin(0).expect("idle");
    processor.store(0, 0, &[7]).expect("a small section");
    assert_eq!(processor.commit(0), Ok(false), "{design:?}: a commit is more than one step");
    processor
}

#[test]
fn a_core_that_commits_does_nothing_else_until_it_is_acknowledged() {
    let busy = Refused::Busy { core: 0 };
    for design in Design::ALL {
        let mut processor = committing(design);
        assert_eq!(processor.store(0, 64, &[8]), Err(busy), "{design:?}");
        assert_eq!(processor.load(0, 0, &mut [0]), Err(busy), "{design:?}");
        assert_eq!(processor.abort(0), Err(busy), "{design:?}");
        assert_eq!(processor.begin(0), Err(busy), "{design:?}");
        assert_eq!(processor.fall_back(0, &[(0, 1)]), Err(busy), "{design:?}");
        assert_eq!(processor.begin(1), Ok(()), "{design:?}: another core may");
        while !processor.commit(0).expect("it goes on") {}
        processor.crash(1);
        while !processor.recover() {}
        assert_eq!([0, 64].map(|at| processor.recovered(at)), [Some(7), Some(0)], "{design:?}");
    }
}

#[test]
fn a_fall_back_goes_on_with_the_stores_that_it_began_with() {
    let mut processor = Processor::new(&Parameters::ssp_sim(1), Design::Ssp, 4);
    let stores = [(0, 7), (4096, 8)];
    let busy = Err(Refused::Busy { core: 0 });
    assert_eq!(processor.fall_back(0, &stores), Ok(false));
    assert_eq!(processor.fall_back(0, &[(64, 9)]), busy);
    assert_eq!(processor.begin(0), busy.map(|_: bool| ()));
    while !processor.fall_back(0, &stores).expect("it goes on") {}
    processor.crash(1);
    while !processor.recover() {}
    assert_eq!([0, 64, 4096].map(|at| processor.recovered(at)), [Some(7), Some(0), Some(8)]);
}

#[test]
fn a_core_does_nothing_before_recovery_is_over_and_recovery_nothing_without_a_crash() {
    for design in Design::ALL {
        let mut processor = committing(design);
        while !processor.commit(0).expect("it goes on") {}
        assert!(processor.recover(), "{design:?}: nothing to recover from");
        processor.begin(0).expect("idle");
        let mut word = [0];
        processor.load(0, 0, &mut word).expect("in a section");
        assert_eq!(word, [7], "{design:?}");
        processor.crash(1);
        assert_eq!(processor.begin(0), Err(Refused::NotRecovered), "{design:?}");
        assert_eq!(processor.fall_back(0, &[(0, 1)]), Err(Refused::NotRecovered), "{design:?}");
        assert!(!processor.background(), "{design:?}: the background waits too");
        let tape = SectionTape::default();
        assert_eq!(processor.play(&[&tape], 0..0), Err(Refused::NotRecovered), "{design:?}");
        while !processor.recover() {}
        assert_eq!(processor.begin(0), Ok(()), "{design:?}");
    }
}

#[test]
fn a_play_that_meets_too_large_a_section_leaves_none_open() {
    let mut large = SectionTape::default();
    (0..65).for_each(|page| large.store(4096 * page, 1));
    large.end_section();
    let mut open = SectionTape::default();
    open.store(4096 * 70, 1);
    (0..10_000).for_each(|_| open.load(4096 * 70, 1));
    open.end_section();
    let mut processor = Processor::new(&Parameters::ssp_sim(2), Design::Ssp, 80);
    let played = processor.play(&[&large, &open], 0..1);
    assert_eq!(played, Err(Refused::TooManyPages { pages: 64 }));
    processor.begin(1).expect("it is not in a section");
    processor.store(1, 4096 * 71, &[7]).expect("a small section");
    assert_eq!(processor.play(&[&large, &open], 0..1), Err(Refused::NoSection { core: 1 }));
    while !processor.commit(1).expect("in a section") {}
    processor.crash(1);
    while !processor.recover() {}
    let found = [70, 71].map(|page| processor.recovered(4096 * page));
    assert_eq!(found, [Some(0), Some(7)], "the half of a section that was played is not there");
}

#[test]
fn the_longest_unused_page_is_consolidated_first_however_often_it_was_left() {
    let mut parameters = Parameters::ssp_sim(1);
    (parameters.tlb_entries, parameters.write_set_entries, parameters.spare_slots) = (1, 1, 4);
    parameters.consolidated_together = 1;
    parameters.consolidation = Consolidation::Lazy(2);
    let mut processor = Processor::new(&parameters, Design::Ssp, 8);
    let mut change = |page: u64, lines: u64| {
        processor.begin(0).expect("idle");
        for line in 0..lines {
            processor.store(0, 4096 * page + 64 * line, &[1]).expect("one page");
        }
        processor.load(0, 4096 * page, &mut [0]).expect("in a section");
        while !processor.commit(0).expect("in a section") {}
    };
    // Page 0 is left, wanted again, and left again after page 1.
    change(0, 5);
    change(1, 1);
    change(0, 0);
    for page in 2..5 {
        change(page, 1);
    }
    while processor.background() && processor.events().consolidations == 0 {}
    assert_eq!(processor.events().consolidations, 1);
    assert_eq!(processor.written().consolidation, 2, "a line of page 1, and one of the journal");
}

#[test]
fn parameters_that_contradict_each_other_are_named() {
    type Vary = fn(&mut Parameters);
    let wrong: [(Vary, &str); 10] = [
        (|p| p.cores = 0, "1 to 8 cores"),
        (|p| p.sub_page_lines = 3, "do not divide a page"),
        (|p| p.journal_lines = 8, "the journal needs"),
        (|p| p.journal_stride = 2, "must reach all"),
        (|p| p.tlb_entries = 1 << 16, "slots"),
        (|p| p.pmem.banks = 0, "banks"),
        (|p| p.dram.row_bytes = 32, "rows"),
        (|p| p.pmem.run_lines = 0, "lines in one bank"),
        (|p| p.log_lines = 1, "log"),
        (|p| p.l2.ways = 0, "ways"),
    ];
    for (vary, names) in wrong {
        let mut parameters = Parameters::ssp_sim(1);
        vary(&mut parameters);
        let made = catch_unwind(AssertUnwindSafe(|| Processor::new(&parameters, Design::Ssp, 4)));
        let what = made.expect_err(names);
        let what = what.downcast_ref::<String>().map_or("", String::as_str);
        assert!(what.contains(names), "{what:?} does not name {names:?}");
    }
    let many = catch_unwind(|| Processor::new(&Parameters::ssp_sim(1), Design::Ssp, 1 << 24));
    assert!(many.is_err(), "the journal has 24 bits for a place");
}
