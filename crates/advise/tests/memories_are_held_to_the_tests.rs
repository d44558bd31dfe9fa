//! The tests run on any test bed, and say what they cannot tell.

#![allow(clippy::unwrap_used)]

use terrace_advise::idiosyncrasies::{
    CachedLatency, DirtyCache, Findings, Losses, Reading, Rewritten, Settings, SmallWrites, Sweep,
    Thresholds, classify, effects,
};
use terrace_machine::Preset;
use terrace_machine::model::Ablation;

fn optane() -> Preset {
    Preset::named("optane-001").unwrap().with_caches_divided(64)
}

fn few() -> Settings {
    Settings { threads: vec![2], sizes: vec![256], ..Settings::paper() }
}

#[test]
fn the_line_size_of_the_medium_shows_and_is_gone_without_the_buffer() {
    let preset = optane();
    let found = SmallWrites::measure(&Sweep::new(&preset, few()), "pmem0").unwrap();
    let random = found.random_ewr.measured().unwrap();
    assert!((0.24..0.27).contains(&random[0]) && random[2] > 0.94, "{random:?}");
    assert!(found.sequential_ewr.measured().unwrap()[0] > 0.94);
    let without = preset.without(Ablation { combining: true, ..Ablation::default() });
    let found = SmallWrites::measure(&Sweep::new(&without, few()), "pmem0").unwrap();
    assert!(found.sequential_ewr.measured().unwrap()[0] < 0.27);
}

#[test]
fn an_unmeasurable_property_has_a_reason_and_no_number() {
    let preset = optane();
    let sweep = Sweep::new(&preset, few());
    let Reading::NotMeasurable(why) = Rewritten::measure(&sweep, "dram0").unwrap() else {
        panic!("DRAM has no medium to count");
    };
    assert!(why.contains("counters"), "{why}");
    let Reading::NotMeasurable(why) = Losses::of_remote(&sweep, "pmem0", None).unwrap() else {
        panic!("no remote memory was named");
    };
    assert!(why.contains("socket"), "{why}");
    let error = SmallWrites::measure(&sweep, "pmem7").unwrap_err().to_string();
    assert!(error.contains("pmem7") && error.contains("pmem0"), "{error}");
}

#[test]
fn loads_get_quicker_by_what_caches_hold_and_p_stores_do_not() {
    let preset = optane();
    let found = CachedLatency::measure(&Sweep::new(&preset, few()), "pmem0").unwrap();
    assert!(found.load_ns.windows(2).all(|pair| pair[1] < pair[0]), "{found:?}");
    let (none, all) = (found.persist_ns[0], found.persist_ns[10]);
    assert!((0.8..1.25).contains(&(none / all)), "{found:?}");
    assert!(found.effect() > 10.0, "{}", found.effect());
    let dirty = DirtyCache::measure(&Sweep::new(&preset, few()), "pmem0").unwrap();
    assert!(dirty.effect() >= 1.0, "{dirty:?}");
}

#[test]
fn a_profile_keeps_the_factor_of_each_test_and_its_causes() {
    let preset = optane();
    let sweep = Sweep::new(&preset, few());
    let of = |node, remote| Findings::measure(&sweep, node, Some(remote), &|_| ()).unwrap();
    let (found, dram) = (of("pmem0", "pmem1"), of("dram0", "dram1"));
    let causes = classify(&found, &dram, Thresholds::default());
    let effects = effects(&found, &causes);
    let named = |test: &str| {
        let mut of = effects.points().iter();
        of.find(|effect| effect.test == test).unwrap_or_else(|| panic!("no {test}: {effects:?}"))
    };
    let names: Vec<&str> = effects.points().iter().map(|effect| effect.test.as_str()).collect();
    assert!(names.starts_with(&["I1", "I2", "I3"]) && names.ends_with(&["I8"]), "{names:?}");
    assert_eq!(named("I7").because, ["the memory's buffer"], "{effects:?}");
    assert_eq!(named("I7").classes, ["C4"]);
    let on_dram = named("I1").on_dram.as_ref().unwrap().median();
    assert!((on_dram / dram.cached_latency.effect() - 1.0).abs() < 0.001, "{effects:?}");
    assert!(named("I8").on_dram.is_none() && named("I8").classes.is_empty());
    let factor = found.cached_latency.effect();
    assert!((named("I1").factor.median() / factor - 1.0).abs() < 0.001, "{factor} and {effects:?}");
}
