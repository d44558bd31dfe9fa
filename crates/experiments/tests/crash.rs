//! Every crash test passes, and says the same twice. That they object where a protocol is broken is
//! what `terrace crash-test --controls` shows, in an optimised build (`cargo xtask test`, step
//! `crashes`).

use terrace_experiments::Domain;
use terrace_experiments::crash::{ALL, Settings, WHOLE_FROM, named};

#[test]
fn every_structure_recovers_from_every_state_drawn() {
    for domain in [Domain::Adr, Domain::Eadr, Domain::PageCache] {
        for test in ALL.iter().filter(|test| test.exists_in(domain)) {
            let settings = Settings { states: 100, seed: 1, domain };
            let report = test.run(&settings).assert_sound();
            assert!(report.states >= 100, "{}: {report}", test.name);
        }
    }
}

#[test]
fn equal_seeds_draw_equal_states() {
    for test in ALL {
        let run = || test.run(&Settings { states: 40, seed: 5, domain: Domain::Adr }).hash;
        assert_eq!(run(), run(), "{}", test.name);
    }
}

/// In a page cache there are the tests on a disk, and no others.
#[test]
fn a_page_cache_has_no_lines() {
    let there = ALL.iter().filter(|test| test.exists_in(Domain::PageCache)).count();
    assert_eq!(there, 10);
    let in_lines = named("map-slabs").expect("a test");
    let settings = Settings { states: 1, seed: 1, domain: Domain::PageCache };
    let refused = std::panic::catch_unwind(|| in_lines.run(&settings)).expect_err("refused");
    let words = refused.downcast::<String>().expect("words");
    assert!(words.contains("map-slabs needs a byte-addressable memory"), "{words}");
}

/// Pages and sectors are different units: states and what they are made of differ.
#[test]
fn pages_are_not_sectors() {
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
