//! What each design writes and waits for, of sections whose cost can be told by hand.

use super::world::Random;
use terrace_machine::ssp::{
    Charged, Consolidation, Design, Durable, Parameters, Processor, Refused, SectionTape,
};

/// Sections that store to so many lines in each of so many pages, drawn from all `pages`.
fn scattered(sections: u64, pages: u64, in_pages: u64, lines: u64) -> SectionTape {
    let mut random = Random(7);
    let mut tape = SectionTape::default();
    for _ in 0..sections {
        let first = random.below(pages);
        for page in 0..in_pages {
            // As many pages as asked for: 7 divides none of the numbers of pages here.
            let page = (first + page * 7) % pages;
            for line in 0..lines {
                let at = 4096 * page + 64 * line;
                tape.load(at, 1);
                tape.store(at, 1);
            }
        }
        tape.end_section();
    }
    tape
}

fn play(parameters: &Parameters, design: Design, pages: u32, tape: &SectionTape) -> Processor {
    let mut processor = Processor::new(parameters, design, pages);
    processor.play(&[tape], 0..tape.sections()).expect("no section is too large");
    processor
}

#[test]
fn a_section_costs_each_design_what_its_log_says() {
    // Few pages, which stay active: no consolidation.
    for (in_pages, lines) in [(1, 1), (1, 8), (3, 2), (4, 5), (12, 3)] {
        let tape = scattered(50, 40, in_pages, lines);
        let changed = in_pages * lines;
        let written = |design| play(&Parameters::ssp_sim(1), design, 40, &tape).written();
        for design in Design::ALL {
            assert_eq!(written(design).data, 50 * changed, "{design:?} writes each line once");
        }
        assert_eq!(written(Design::None).all(), 50 * changed);
        assert_eq!(
            written(Design::Undo).log,
            50 * (2 * changed + 1),
            "two lines an entry, and a mark"
        );
        assert_eq!(
            written(Design::Redo).log,
            50 * (4 + 9 * changed).div_ceil(8),
            "72 bytes an entry"
        );
        let journal = written(Design::Ssp);
        assert_eq!(
            journal.log,
            50 * (1 + in_pages).div_ceil(4),
            "16 bytes a page, however many lines"
        );
        assert_eq!((journal.consolidation, journal.checkpoint), (0, 0));
    }
}

#[test]
fn a_commit_waits_for_the_writes_that_its_design_needs_one_after_the_other() {
    let tape = scattered(1, 1, 1, 1);
    let time = |design, write_ns| {
        let mut parameters = Parameters::ssp_sim(1);
        parameters.pmem.write_ns = write_ns;
        play(&parameters, design, 1, &tape).elapsed_ps()
    };
    // What slower writes add are the writes that are waited for one after the other.
    let waits = Design::ALL.map(|design| (time(design, 2000) - time(design, 1000)) as f64 / 1e6);
    // None: the line. Undo: two lines of a bank, the line, the mark. Redo: two lines of a bank. SSP: the line, the
    // journal.
    assert_eq!(waits, [1.0, 4.0, 2.0, 2.0]);
}

#[test]
fn pages_that_the_tlb_does_not_reach_are_consolidated_and_cost_at_most_their_lines_again() {
    let tape = scattered(3000, 400, 2, 3);
    let run = |vary: fn(&mut Parameters)| {
        let mut parameters = Parameters::ssp_sim(1);
        vary(&mut parameters);
        let processor = play(&parameters, Design::Ssp, 400, &tape);
        (processor.written(), processor.events())
    };
    let (small, events) = run(|_| {});
    assert!(events.consolidations > 1000, "{events:?}");
    // A line again, the journal's and the page table's for each page.
    assert!(small.consolidation <= small.data + 2 * events.consolidations, "{small:?}");
    assert_eq!(events.slot_waits, 0, "there are enough slots");
    let (large, none) = run(|p| p.tlb_entries = 1024);
    assert_eq!((large.consolidation, none.consolidations), (0, 0), "every page stays in the TLB");
    let (lazy, _) = run(|p| p.consolidation = Consolidation::Lazy(16));
    assert!(lazy.consolidation < small.consolidation, "{lazy:?} {small:?}");
    let (wide, _) = run(|p| p.sub_page_lines = 4);
    assert_eq!(wide.data, 4 * 2 * 3000, "three lines of a page are one sub-page of four");
}

#[test]
fn records_of_consolidated_pages_share_the_lines_of_a_sections_unless_they_do_not_wait() {
    // A line of the journal has room for the mark, the section's page, and two more.
    let tape = scattered(3000, 400, 1, 1);
    let run = |records_wait| {
        let mut parameters = Parameters::ssp_sim(1);
        parameters.records_wait = records_wait;
        let processor = play(&parameters, Design::Ssp, 400, &tape);
        let (written, events) = (processor.written(), processor.events());
        assert!(events.consolidations > 1000, "{events:?}");
        (written.consolidation.saturating_sub(written.data), written.log, events.consolidations)
    };
    let ((shared, log, _), (own, own_log, pages)) = (run(true), run(false));
    assert_eq!((log, own_log), (3000, 3000));
    assert_eq!(shared, 0, "lines are copied, and nothing else is written");
    assert!(own > pages / 2, "{own} lines more than data, for {pages} pages");
}

#[test]
fn a_play_is_the_same_every_time_and_cores_with_memory_of_their_own_overlap() {
    let own = |core: u64| {
        let mut random = Random(core);
        let mut tape = SectionTape::default();
        for _ in 0..500 {
            let at = 4096 * (50 * core + random.below(50)) + 64 * random.below(64);
            tape.load(at, 8);
            tape.store(at, 2);
            tape.end_section();
        }
        tape
    };
    let tapes: Vec<SectionTape> = (0..4).map(own).collect();
    let time = |cores: usize, design| {
        let mut processor = Processor::new(&Parameters::ssp_sim(4), design, 200);
        let tapes: Vec<&SectionTape> = tapes.iter().take(cores).collect();
        processor.play(&tapes, 0..500).expect("small sections");
        processor.elapsed_ps()
    };
    for design in Design::ALL {
        assert_eq!(time(4, design), time(4, design));
        assert!(time(4, design) < 3 * time(1, design), "{design:?}: four cores do more than one");
    }
}

#[test]
fn time_follows_the_parameters() {
    let tape = scattered(2000, 300, 2, 2);
    let time = |vary: fn(&mut Parameters), design| {
        let mut parameters = Parameters::ssp_sim(1);
        vary(&mut parameters);
        play(&parameters, design, 300, &tape).elapsed_ps() as f64
    };
    for design in Design::ALL {
        let base = time(|_| {}, design);
        assert!(time(|p| p.pmem.write_ns = 800, design) > 1.5 * base, "{design:?}: slower cells");
        assert!(time(|p| p.pmem.link_ns = 42, design) > base, "{design:?}: behind a link");
        assert!(
            time(|p| p.durable = Durable::InQueue(64), design) < base,
            "{design:?}: a queue is nearer"
        );
    }
    let base = time(|_| {}, Design::Ssp);
    assert!(time(|p| p.ssp_cache_cycles = 370, Design::Ssp) > base);
    assert_eq!(time(|p| p.ssp_cache_cycles = 370, Design::Redo), time(|_| {}, Design::Redo));
    let counted = time(|p| p.charged = Charged::ByCounts, Design::Ssp);
    assert!((0.8..1.2).contains(&(counted / base)), "both ways agree about: {}", counted / base);
}

#[test]
fn what_a_processor_refuses_says_why() {
    let mut processor = Processor::new(&Parameters::ssp_sim(2), Design::Ssp, 80);
    assert_eq!(processor.store(0, 0, &[1]), Err(Refused::NoSection { core: 0 }));
    assert_eq!(processor.begin(2), Err(Refused::NoSection { core: 2 }));
    processor.begin(0).expect("idle");
    let bytes = 80 * 4096;
    for at in [bytes, bytes - 8, 4, u64::MAX] {
        assert_eq!(processor.store(0, at, &[1, 2]), Err(Refused::OutOfRange { at, bytes }));
    }
    let refused = (0..65).find_map(|page| processor.store(0, 4096 * page, &[1]).err());
    assert_eq!(refused, Some(Refused::TooManyPages { pages: 64 }));
    assert_eq!(processor.commit(0), Err(Refused::NoSection { core: 0 }), "it was aborted");
    let stores: Vec<(u64, u64)> = (0..65).map(|page| (4096 * page, 7)).collect();
    while !processor.fall_back(0, &stores).expect("the log has room") {}
    processor.crash(3);
    while !processor.recover() {}
    assert!((0..65).all(|page| processor.recovered(4096 * page) == Some(7)));
    assert_eq!(processor.recovered(bytes), None);
}
