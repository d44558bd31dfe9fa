//! A machine is modelled from what `terrace probe` measured of it: a machine that is known stands in for the one that
//! is not, its profile passed off as measured.

use std::sync::OnceLock;
use terrace_advise::machine::Preset;
use terrace_advise::machine::model::calibrate::{self, Calibration};
use terrace_advise::probe::{Part, ProbePlan, probe};
use terrace_memory::Profile;
use terrace_memory::profile::Measured;

/// Caches of 512 B, 16 KiB and 631 KB: the first is smaller than all that a probe measures.
const DIVIDED: u64 = 64;

/// Two threads of a server: the profile of its DRAM and its persistent memory.
fn profile() -> Profile {
    static PROFILE: OnceLock<Profile> = OnceLock::new();
    let make = || {
        let server = Preset::named("optane-004").expect("built in").with_caches_divided(DIVIDED);
        let plan = ProbePlan {
            only: vec!["dram0".into(), "pmem0".into()],
            parts: vec![Part::Latency, Part::Bandwidth, Part::Stores, Part::Loaded],
            threads: Some(2),
            is_quick: true,
            limit: None,
        };
        let mut profile = probe(&server, &plan, &|_, _, _| {}).expect("a profile");
        profile.machine.is_modelled = false;
        profile.machine.name = "emulated".into();
        profile.machine.threads = 2;
        profile.machine.nodes = plan.only;
        profile
    };
    PROFILE.get_or_init(make).clone()
}

fn error_of(found: &Calibration, what: &str) -> f64 {
    let mut of = found.checks.iter().filter(|check| check.what.starts_with(what));
    of.next().unwrap_or_else(|| panic!("{what}: none of {found}")).error().abs()
}

#[test]
fn its_latencies_and_bandwidths_come_back() {
    let profile = profile();
    let made = Preset::of_profile(&profile).expect("all was measured");
    let found = calibrate::against(&made.preset, &profile).expect("its own memories");
    println!("{}\n{found}", made.text);
    for node in ["dram0", "pmem0"] {
        let idle = profile.node(node).and_then(|node| node.idle_latency()).expect("measured").bytes;
        for (what, most) in [
            (format!("load over {idle} B"), 0.10),
            ("store and flush at random, 64 B, ns".into(), 0.15),
            ("stream at random, 64 B, ns".into(), 0.10),
            ("read in order".into(), 0.20),
            // Its medium's lines are not in a profile: what combines writes and what waits for it is missing.
            ("stream in order".into(), if node == "pmem0" { 0.25 } else { 0.20 }),
        ] {
            let error = error_of(&found, &format!("{node} {what}"));
            assert!(error <= most, "{node} {what}: off by {error:.2}\n{found}");
        }
    }
    assert_eq!((made.preset.threads(), made.preset.node.len()), (2, 2));
    let private = &made.preset.cache[0];
    assert_eq!((private.bytes, private.latency_ns), (16 << 10, 5.2), "the second cache");
}

#[test]
fn a_model_that_is_not_of_the_profile_misses_it() {
    let profile = profile();
    let mut other = Preset::of_profile(&profile).expect("all was measured").preset;
    for node in &mut other.node {
        (node.random_read_ns, node.read_gb_s) = (2.0 * node.random_read_ns, 0.4 * node.read_gb_s);
    }
    let found = calibrate::against(&other, &profile).expect("the same memories");
    let idle = profile.node("dram0").and_then(|node| node.idle_latency()).expect("measured").bytes;
    assert!(error_of(&found, &format!("dram0 load over {idle} B")) > 0.5, "{found}");
    assert!(error_of(&found, "dram0 read in order") > 0.3, "{found}");
    let text = found.to_string();
    assert!(text.contains("MISS") && text.contains("profile"), "{text}");
}

#[test]
fn every_figure_has_its_source_and_the_text_can_be_read_again() {
    let made = Preset::of_profile(&profile()).expect("all was measured");
    let figures = made.text.lines().filter(|line| line.contains(" = "));
    let unnamed = |line: &&str| !line.starts_with("name") && !line.starts_with("about");
    for line in figures.filter(unnamed) {
        assert!(line.contains("# MEASURED: ") ^ line.contains("# ASSUMED: "), "{line}");
    }
    let again = Preset::parse(&made.text).expect("it is a preset");
    assert_eq!(format!("{again:?}"), format!("{:?}", made.preset));
}

#[test]
fn a_missing_measurement_is_named_with_the_command_that_takes_it() {
    let refused = |change: &dyn Fn(&mut Profile)| {
        let mut profile = profile();
        change(&mut profile);
        let error = Preset::of_profile(&profile).expect_err("something is missing").to_string();
        assert!(!error.contains('\n'), "{error}");
        error
    };
    for (change, words) in [
        (
            &(|p: &mut Profile| p.machine.is_modelled = true) as &dyn Fn(&mut Profile),
            ["machine.is_modelled: true", "without --model"],
        ),
        (
            &|p| p.nodes[1].latency = Measured::not_asked_for(),
            ["nodes.pmem0.latency: not measured", "probe --node pmem0 --part latency --out FILE"],
        ),
        (
            &|p| p.nodes[0].stores = Measured::Points(Vec::new()),
            ["nodes.dram0.stores: not measured", "--part stores"],
        ),
        (&|p| p.nodes.clear(), ["nodes: no memory was measured", "terrace probe --out FILE"]),
        (
            &|p| p.machine.cache_bytes = 4096,
            ["nodes.dram0.latency: no working set", "--part latency"],
        ),
        (&|p| p.machine.threads = 0, ["machine.threads: 0", "1 to 128 cores"]),
        (&|p| p.machine.threads = 2000, ["machine.threads: 2000", "at most 8 threads"]),
    ] {
        let error = refused(change);
        assert!(words.iter().all(|words| error.contains(words)), "{error}");
    }
}

#[test]
fn a_memory_that_the_system_refused_is_left_out_in_words() {
    let mut profile = profile();
    profile.nodes[1].stores = Measured::not("pmem0 has 1 MiB free,\nand 64 MiB are needed");
    let made = Preset::of_profile(&profile).expect("the other was measured");
    assert_eq!(made.preset.node.len(), 1);
    let line = "# Left out: pmem0: pmem0 has 1 MiB free, and 64 MiB are needed.";
    assert!(made.text.contains(line), "{}", made.text);
}

#[test]
fn a_tier_of_files_is_a_memory_where_loads_reach_it() {
    let mut profile = profile();
    profile.machine.nodes = vec!["dram0".into()];
    let mut disk = profile.nodes[1].clone();
    disk.name = "disk".into();
    disk.latency = Measured::not("page cache");
    profile.nodes.push(disk);
    let made = Preset::of_profile(&profile).expect("all was measured");
    let names: Vec<&str> = made.preset.node.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["dram0", "pmem0"]);
}

#[test]
fn a_cache_is_not_taken_for_the_memory() {
    let mut profile = profile();
    let Measured::Points(points) = &mut profile.nodes[0].latency else { panic!("measured") };
    let cache = profile.machine.cache_bytes;
    points.retain(|point| point.bytes <= cache);
    let refused = Preset::of_profile(&profile).expect_err("no figure of the memory").to_string();
    assert!(
        refused.contains("nodes.dram0.latency") && refused.contains("--part latency"),
        "{refused}"
    );
}
