#![allow(clippy::unwrap_used)]

use super::*;
use std::cell::Cell;
use std::time::Duration;
use terrace_machine::Preset;
use terrace_machine::test_bed::Here;
use terrace_memory::profile::{Estimate, FileOp, Flavour, Loaded, Measured, Quantiles};
use terrace_memory::tier::SystemPaths;
use terrace_memory::{ByteSize, Domain, TierKind, TierSpec, Topology};

/// A server with persistent memory, with caches that are soon outgrown.
fn server() -> Preset {
    Preset::named("optane-004").unwrap().with_caches_divided(64)
}

fn plan(parts: &[Part]) -> ProbePlan {
    ProbePlan {
        only: vec!["pmem0".into()],
        parts: parts.into(),
        threads: Some(4),
        is_quick: true,
        limit: None,
    }
}

fn probed(parts: &[Part]) -> Profile {
    probe(&server(), &plan(parts), &|_, _, _| {}).unwrap()
}

#[test]
fn a_modelled_memory_is_found_to_be_what_its_preset_says() {
    let alone =
        ProbePlan { threads: Some(1), ..plan(&[Part::Latency, Part::Bandwidth, Part::Stores]) };
    let profile = probe(&server(), &alone, &|_, _, _| {}).unwrap();
    let node = profile.node("pmem0").unwrap();
    let idle = node.idle_latency().unwrap().load.mean_ns.median();
    assert!((idle / 305.0 - 1.0).abs() < 0.15, "{idle} ns by 305");
    let nearest = node.latency.points()[0].load.p50_ns.median();
    assert!(nearest < 10.0, "the smallest working set is within a cache: {nearest} ns");
    let read = node.peak_gb_s(Flavour::Read, false).unwrap();
    let written = node.peak_gb_s(Flavour::Stream, false).unwrap();
    assert!(read < 38.9 && written < 11.6, "{read} read, {written} written: by the preset at most");
    let of = |bytes| {
        let stores = node.stores.points().iter();
        let mut of = stores.filter(|point| point.flavour == Flavour::StoreFlush);
        of.find(|point| point.piece_bytes == bytes).unwrap().piece.mean_ns.median()
    };
    assert!(of(64) > 60.0 && of(4096) > 4.0 * of(64), "{} and {} ns", of(64), of(4096));
    // Nobody asked for the others, and a modelled machine has no pages.
    assert!(node.loaded.points().is_empty() && node.dirty_cache.points().is_empty());
    assert_eq!(profile.taken_at.len(), 1);
}

#[test]
fn latency_rises_with_what_others_move() {
    let profile = probed(&[Part::Loaded]);
    let points = profile.node("pmem0").unwrap().loaded.points();
    let reads: Vec<_> = points.iter().filter(|point| point.writes_percent == 0).collect();
    let (calm, busy) = (reads.first().unwrap(), reads.last().unwrap());
    assert!(busy.gb_s.median() > 4.0 * calm.gb_s.median());
    assert!(busy.load.mean_ns.median() > calm.load.mean_ns.median());
}

#[test]
fn the_page_has_a_curve_of_latency_over_bandwidth_for_each_share_of_reads() {
    let point = |threads, writes_percent, pause_ns: u64, gb_s: f64| {
        let estimate = |value| Estimate::of(value).unwrap();
        let times = || estimate(100.0 + gb_s);
        let load = Quantiles { mean_ns: times(), p50_ns: times(), p99_ns: times() };
        Loaded { writes_percent, pause_ns, threads, gb_s: estimate(gb_s), load }
    };
    let page_of = |points: Vec<Loaded>| {
        let mut profile = probed(&[]);
        profile.nodes[0].loaded = Measured::Points(points);
        let page = html(&profile);
        page[..page.find("<h2>All figures").unwrap()].to_string()
    };
    // As later runs leave them: out of order, and with fewer movers among them.
    let most = [point(4, 50, 0, 5.0), point(4, 0, 0, 20.0), point(4, 0, 1000, 2.0)];
    let page = page_of(most.to_vec());
    for words in ["Loaded latency", "GB/s moved"] {
        assert!(page.contains(words), "{words}");
    }
    // A curve for each, from the longest pause on: 2 of 20 GB/s across, then all of them.
    let all_reads = r#"{"name":"100 % reads","across":[2.0,20.0],"values":[102.0,120.0]}"#;
    let half = r#"{"name":"50 % reads","across":[5.0],"values":[105.0]}"#;
    assert!(page.contains(all_reads) && page.contains(half), "{page}");
    let fewer = [point(2, 0, 0, 12.0), point(2, 75, 0, 3.0)];
    assert_eq!(page_of([&most[..2], &fewer, &most[2..]].concat()), page);
}

/// The page began with drawings: what came of it, on which machine and when, everybody had to find out.
#[test]
fn the_page_begins_with_machine_date_noise_and_three_sentences() {
    let mut profile = probed(&[Part::Latency, Part::Bandwidth, Part::Stores]);
    profile.taken_at = vec![1_795_391_999];
    let page = html(&profile);
    let (head, _) = page.split_once("<section").expect("a memory");
    for words in [
        "modelled optane-004, 56 threads, largest cache ",
        "measured 2026-11-22 (UTC), 1 run",
        "noise unknown: run again with the same --out",
        "A dependent load takes ",
        " ns on pmem0 (p50, working set ",
        "Reads reach ",
        "Writing a block, writing it back and fencing takes ",
    ] {
        assert!(head.contains(words), "{words}: {head}");
    }
    assert!(page.contains("\"label\":\"largest cache, ") && page.contains("\"p99\""), "{head}");
    let again = probed(&[Part::Latency, Part::Bandwidth, Part::Stores]);
    profile.refine(again).expect("the same machine");
    let page = html(&profile);
    assert!(page.contains("quiet: runs differ by 0 % (median)"), "a model is the same every time");
    assert!(html(&Profile::new(machine_of(&server()))).contains("Latency was not measured."));
}

#[test]
fn a_part_that_cannot_be_measured_states_its_reason() {
    let profile = probed(&[Part::Pages]);
    let told = serde_json::to_string(&profile.pages).unwrap();
    assert!(told.contains("modelled machines have no pages"), "{told}");
    let alone = ProbePlan { threads: Some(1), ..plan(&[Part::Loaded]) };
    let profile = probe(&server(), &alone, &|_, _, _| {}).unwrap();
    assert!(table(&profile).contains("not measured: needs 2 processors"));
}

#[test]
fn an_unknown_node_and_impossible_threads_are_refused_with_the_valid_ones() {
    let refused = |plan: ProbePlan| probe(&server(), &plan, &|_, _, _| {}).unwrap_err().to_string();
    let node = refused(ProbePlan { only: vec!["hbm0".into()], ..plan(&[]) });
    assert!(node.contains("`hbm0`") && node.contains("pmem0"), "{node}");
    for threads in [0, 10_000] {
        let error = refused(ProbePlan { threads: Some(threads), ..plan(&[]) });
        assert!(error.contains("valid is 1 to 56"), "{error}");
    }
    let part = "latencies".parse::<Part>().unwrap_err();
    assert!(part.contains("`latencies`") && part.contains("latency, bandwidth"), "{part}");
}

#[test]
fn a_refined_profile_is_drawn_by_its_settings_and_not_by_the_order_of_runs() {
    let quick = probed(&[Part::Stores]);
    let mut turned = quick.clone();
    let Measured::Points(points) = &mut turned.nodes[0].stores else { panic!("measured") };
    points.reverse();
    let drawing = |profile: &Profile| {
        let page = html(profile);
        page[..page.find("<h2>All figures").unwrap()].to_string()
    };
    assert_eq!(drawing(&turned), drawing(&quick));
}

#[test]
fn the_page_is_whole_and_shows_every_figure() {
    let page = html(&probed(&[Part::Latency, Part::Stores, Part::Copies]));
    for words in ["A dependent load by working set", "A block written", "pmem0 to dram1", "<canvas"]
    {
        assert!(page.contains(words), "{words}");
    }
    assert!(page.ends_with("</html>\n") && !page.contains("src="));
    let (page, _library) = page.split_once("<script>").expect("what is before the library");
    assert!(!page.contains("NaN"));
}

#[test]
fn the_unit_of_the_medium_shows() {
    let of = |node: &str| {
        // Fewer wait for their fences more than for the medium.
        let only = vec![node.into()];
        let plan = ProbePlan { only, threads: Some(16), ..plan(&[Part::Bandwidth]) };
        let profile = probe(&server(), &plan, &|_, _, _| {}).unwrap();
        assert!(table(&profile).contains("access granularity of the medium: "));
        profile.nodes[0].granularity_bytes()
    };
    assert_eq!(of("pmem0"), Some((256, 16)), "lines of the modules (Gugnani, I3)");
    assert_eq!(of("dram0"), Some((64, 16)));
    assert_eq!(probed(&[Part::Stores]).nodes[0].granularity_bytes(), None);
}

#[test]
fn processors_of_every_node_meet_every_memory() {
    let profile = probed(&[Part::Remote]);
    let [near, far] = profile.remote.points() else { panic!("two sockets on one memory") };
    assert_eq!((&*near.from, &*far.from, &*near.to), ("socket0", "socket1", "pmem0"));
    assert!(far.load_ns.median() > 1.1 * near.load_ns.median(), "{near:?} {far:?}");
    assert!(far.read_gb_s.median() < near.read_gb_s.median(), "{near:?} {far:?}");
    assert!(html(&profile).contains("socket1 on pmem0"));
}

/// This machine with a tier of files in the folder of temporary ones.
fn with_tier(change: impl Fn(&mut TierSpec)) -> Here {
    let topology = Topology::read().unwrap();
    let mut spec = TierSpec::new("files", TierKind::File);
    spec.path = Some(std::env::temp_dir());
    change(&mut spec);
    let tier = spec.resolve(&topology, &SystemPaths).unwrap();
    Here::new(topology).unwrap().with_tiers(&[tier])
}

fn of_tier(test_bed: &Here, parts: &[Part]) -> NodeProfile {
    let plan = ProbePlan {
        only: vec!["files".into()],
        parts: parts.into(),
        threads: Some(1),
        is_quick: true,
        limit: None,
    };
    probe(test_bed, &plan, &|_, _, _| {}).unwrap().nodes.remove(0)
}

#[test]
fn a_tier_of_files_is_measured_as_the_store_uses_it() {
    // Files on a disk: through the kernel. Loads and stores would be those of the page cache.
    let disk = of_tier(&with_tier(|_| ()), &[Part::Latency, Part::Files]);
    let Measured::Not { not_measured } = &disk.latency else { panic!("a page cache was measured") };
    assert!(not_measured.contains("page cache, which is DRAM"), "{not_measured}");
    let ops: Vec<_> =
        disk.files.points().iter().map(|point| (point.op, point.piece_bytes)).collect();
    let pieces = |op| [(op, 4096), (op, 1 << 20)];
    assert_eq!(ops, [pieces(FileOp::Read), pieces(FileOp::WriteSync)].concat());
    // Emulated persistent memory: mapped.
    let emulated = with_tier(|spec| (spec.domain, spec.declared) = (Some(Domain::Adr), true));
    let mapped = of_tier(&emulated, &[Part::Latency]);
    let beyond = mapped.idle_latency().unwrap();
    assert!(beyond.bytes >= 2 * emulated.cache_bytes() && beyond.load.p50_ns.median() > 0.0);
    assert!(mapped.medium.starts_with("ADR by declaration, emulated"), "{}", mapped.medium);
    // One that is too small for its figures to be of memory.
    let small = with_tier(|spec| {
        (spec.domain, spec.declared) = (Some(Domain::Adr), true);
        spec.bytes = Some(ByteSize(1 << 20));
    });
    let Measured::Not { not_measured } = of_tier(&small, &[Part::Latency]).latency else {
        panic!("a cache was measured")
    };
    assert!(not_measured.starts_with("tier files is of 1 MiB, and "), "{not_measured}");
}

#[test]
fn tiers_come_and_go_in_one_profile() {
    let plain = Here::new(Topology::read().unwrap()).unwrap();
    let mut profile = Profile::new(machine_of(&plain));
    let with = with_tier(|_| ());
    assert_eq!(machine_of(&with), machine_of(&plain), "the machine is the same");
    let mut run = Profile::new(machine_of(&with));
    run.nodes.push(of_tier(&with, &[Part::Files]));
    profile.refine(run).unwrap();
    assert!(profile.node("files").is_some_and(|node| !node.files.points().is_empty()));
}

/// These parts of persistent memory, with a clock that is over after so many looks at it.
fn cut_after(looks: usize, parts: &[Part]) -> Profile {
    let (test_bed, plan) = (server(), plan(parts));
    let left = Cell::new(looks);
    let until = Deadline::when(move || {
        let is_over = left.get() == 0;
        left.set(left.get().saturating_sub(1));
        is_over
    });
    let run = Run { test_bed: &test_bed, plan: &plan, until };
    let mut profile = Profile::new(machine_of(&test_bed));
    let mut node = NodeProfile::new("pmem0");
    for part in parts {
        parts::measure(&run, "pmem0", *part, &mut node, &mut profile);
    }
    profile.nodes.push(node);
    profile
}

#[test]
fn a_run_has_an_end_only_if_it_has_a_limit_on_a_model_too() {
    assert!(Deadline::of(&plan(&[])).is_none());
    let limited = ProbePlan { limit: Some(Duration::ZERO), ..plan(&[Part::Latency, Part::Stores]) };
    // Once a model had no end: `--quick` took minutes, and said nothing meanwhile.
    let cut = probe(&server(), &limited, &|_, _, _| {}).unwrap();
    assert_eq!(cut.left_out().len(), 2, "{:?}", cut.left_out());
}

#[test]
fn without_an_end_nothing_is_left_out() {
    let slow = ProbePlan { is_quick: false, threads: Some(1), ..plan(&[Part::Remote]) };
    // Three flavours of three pieces; two sockets.
    for (plan, points) in [(plan(&[Part::Stores]), 9), (slow, 2)] {
        let profile = probe(&server(), &plan, &|_, _, _| {}).unwrap();
        let [stores, remote] =
            [profile.nodes[0].stores.whole().len(), profile.remote.whole().len()];
        assert_eq!(stores + remote, points);
        assert_eq!(profile.left_out(), []);
        let (told, page) = (table(&profile), html(&profile));
        assert!(!told.contains("left out") && !told.contains("ot measured"), "{told}");
        assert!(!page.contains("left out") && !page.contains("class=\"skipped\""), "{told}");
    }
}

#[test]
fn a_quick_run_begins_nothing_when_its_time_is_over_and_says_so() {
    let profile = cut_after(0, &Part::ALL);
    let nothing = "--quick had no time left";
    // All but files, which a memory has none of.
    assert_eq!(table(&profile).matches(nothing).count(), Part::ALL.len() - 1);
    assert_eq!(profile.left_out().len(), Part::ALL.len() - 1);
    let Measured::Not { not_measured } = &profile.copies else { panic!("nothing was copied") };
    assert!(not_measured.starts_with("pmem0: --quick"), "{not_measured}");
}

#[test]
fn a_part_whose_time_runs_out_keeps_what_it_has_and_names_the_rest() {
    // One look for the part, one for each setting.
    let part_of = |looks: usize, part| cut_after(1 + looks, &[part]);
    let node = |profile: &Profile| profile.nodes[0].clone();
    let latency = node(&part_of(1, Part::Latency)).latency;
    let [of_memory] = latency.points() else { panic!("one: {latency:?}") };
    assert!(of_memory.bytes >= 4 * server().cache_bytes(), "the memory's comes first");
    assert!(latency.left_out().unwrap().contains(" settings, first "), "{latency:?}");
    // 3 pieces by 4 flavours in 2 orders, by 1, 2 and 4 threads.
    let cut = part_of(28, Part::Bandwidth);
    let bandwidth = &cut.nodes[0].bandwidth;
    let why = "44 of 72 settings, first read random, 256 B, 2 threads: --quick had no time left";
    assert!(bandwidth.left_out().unwrap().starts_with(why), "{:?}", bandwidth.left_out());
    assert_eq!((bandwidth.points().len(), bandwidth.whole().len()), (28, 0));
    let stored = serde_json::to_value(&cut).unwrap();
    assert_eq!(stored["nodes"][0]["bandwidth"]["points"].as_array().unwrap().len(), 28);
    assert!(table(&cut).contains(&format!("left out: {why}")), "{}", table(&cut));
    let page = html(&cut);
    assert!(page.contains(&format!("<li>pmem0: bandwidth: {why}")), "{page}");
    // No line goes through what was not measured.
    assert!(page.contains("\"read sequential\"") && !page.contains("\"read random\""), "{page}");
    let loaded = node(&part_of(3, Part::Loaded)).loaded;
    assert!(
        loaded.left_out().unwrap().starts_with("5 of 8 settings, first 0 % writes, pause 0 ns")
    );
    let stores = node(&part_of(4, Part::Stores)).stores;
    assert!(stores.left_out().unwrap().starts_with("5 of 9 settings, first store+flush of 256 B"));
    let copies = part_of(1, Part::Copies).copies;
    assert_eq!(copies.points().len(), 1);
    assert!(copies.left_out().unwrap().contains("first pmem0 to "), "{copies:?}");
    let remote = part_of(1, Part::Remote).remote;
    assert!(remote.left_out().unwrap().starts_with("1 of 2 settings, first socket1 on pmem0"));
    // The last setting was in time.
    assert_eq!(part_of(2, Part::Remote).remote.left_out(), None);
}

#[test]
fn a_memory_that_was_left_out_shows_beside_one_that_was_not() {
    let (test_bed, plan) = (server(), plan(&[Part::Remote]));
    let mut profile = Profile::new(machine_of(&test_bed));
    for (name, is_over) in [("pmem0", false), ("dram0", true)] {
        let run = Run { test_bed: &test_bed, plan: &plan, until: Deadline::when(move || is_over) };
        let mut node = NodeProfile::new(name);
        parts::measure(&run, name, Part::Remote, &mut node, &mut profile);
    }
    assert_eq!(profile.remote.points().len(), 2);
    assert!(profile.remote.left_out().unwrap().starts_with("dram0: --quick"), "{profile:?}");
}

#[test]
fn settings_that_are_refused_are_left_out_with_the_reason() {
    let measure = |refused: &'static [u64]| {
        let of =
            |n: u64| if refused.contains(&n) { Err(std::io::Error::other("full")) } else { Ok(n) };
        Deadline::when(|| false).each([1, 2, 3], u64::to_string, of)
    };
    assert_eq!(measure(&[]), Measured::Points(vec![1, 2, 3]));
    let left_out = Some("1 of 3 settings, first 2: full".into());
    assert_eq!(measure(&[2]), Measured::of(vec![1, 3], left_out));
    assert_eq!(measure(&[1, 2, 3]), Measured::not("full"));
}
