#![allow(clippy::unwrap_used)]

use super::*;

fn estimate(runs: &[f64]) -> Estimate {
    Estimate::try_from(runs.to_vec()).unwrap()
}

fn quantiles(ns: f64) -> Quantiles {
    let [mean_ns, p50_ns, p99_ns] = [ns, ns, 2.0 * ns].map(|ns| Estimate::of(ns).unwrap());
    Quantiles { mean_ns, p50_ns, p99_ns }
}

fn profile(threads: usize, bytes: u64, ns: f64) -> Profile {
    let machine = ProfiledMachine {
        name: "a machine".into(),
        is_modelled: false,
        processor: None,
        threads,
        cache_bytes: 1 << 20,
        nodes: vec!["node0".into()],
    };
    let mut profile = Profile::new(machine);
    profile.taken_at.push(1);
    profile.nodes.push(NodeProfile {
        latency: Measured::Points(vec![Latency { bytes, load: quantiles(ns) }]),
        loaded: Measured::not("one processor"),
        ..NodeProfile::new("node0")
    });
    profile
}

#[test]
fn another_run_refines_and_takes_nothing_away() {
    let mut known = profile(2, 4096, 100.0);
    known.refine(profile(2, 4096, 110.0)).unwrap();
    known.refine(profile(2, 8192, 120.0)).unwrap();
    let mut nothing = profile(2, 4096, 1.0);
    nothing.nodes[0].latency = Measured::not("not asked for");
    known.refine(nothing).unwrap();
    // A reason stays where nobody asked again.
    let mut others = profile(2, 4096, 1.0);
    others.nodes[0].loaded = Measured::not_asked_for();
    known.refine(others).unwrap();
    assert_eq!(known.node("node0").unwrap().loaded, Measured::not("one processor"));
    let points = known.node("node0").unwrap().latency.points();
    assert_eq!(points.len(), 2);
    assert_eq!(points[0].load.mean_ns, estimate(&[100.0, 110.0, 1.0]));
    assert_eq!(points[0].load.mean_ns.median(), 100.0);
    assert_eq!(points[0].load.p99_ns.range(), [2.0, 220.0]);
    assert_eq!(known.node("node0").unwrap().idle_latency().unwrap().bytes, 8192);
    assert_eq!(known.taken_at.len(), 5);
}

#[test]
fn a_run_elsewhere_is_refused_by_the_field_that_differs() {
    let mut known = profile(2, 4096, 100.0);
    let before = known.clone();
    let error = known.refine(profile(4, 4096, 1.0)).unwrap_err().to_string();
    assert!(error.contains("threads is `2`, here it is `4`"), "{error}");
    assert_eq!(known, before, "nothing was changed");
}

#[test]
fn a_machine_is_distinguished_from_another_by_what_both_know_of_it() {
    let known = profile(2, 4096, 100.0);
    let with = |processor: Option<&str>, threads| {
        let machine = profile(threads, 4096, 100.0).machine;
        ProfiledMachine { processor: processor.map(String::from), ..machine }
    };
    let (here, other) = (with(Some("Fast 7"), 2), with(Some("Slow 1"), 2));
    assert_eq!(known.machine.differs_from(&here), None, "its processor was not told then");
    let told = other.differs_from(&here).unwrap();
    for words in
        ["by its processor: Slow 1, 2 threads, largest cache 1 MiB, node0", "this one is Fast 7, 2"]
    {
        assert!(told.contains(words), "{told}");
    }
    let told = known.machine.differs_from(&with(Some("Fast 7"), 4)).unwrap();
    assert!(told.contains("by its threads: processor not told, 2 threads"), "{told}");
    let model = ProfiledMachine { is_modelled: true, name: "cxl".into(), ..with(None, 2) };
    assert!(model.differs_from(&here).unwrap().contains("modelled cxl, 2 threads"));
    // A run tells the processor of a profile that was taken before it was asked.
    let mut refined = known.clone();
    let mut run = known;
    run.machine = here.clone();
    refined.refine(run).unwrap();
    assert_eq!(refined.machine, here);
    let mut run = profile(2, 4096, 1.0);
    run.machine = other;
    assert!(refined.refine(run).unwrap_err().to_string().contains("its processor is `Fast 7`"));
}

#[test]
fn a_numa_node_is_known_by_its_number_too() {
    let known = profile(2, 4096, 100.0);
    assert_eq!(known.node("0"), known.node("node0"));
    assert!(
        known.node("node0").is_some() && known.node("1").is_none() && known.node("dram").is_none()
    );
}

#[test]
fn a_part_that_is_missing_is_reported_with_the_command_that_measures_it() {
    let mut known = profile(2, 4096, 100.0);
    let told = known.not_measured("node0", "loaded", Path::new("p.json"));
    let expected = "loaded of node0 was not measured, or not all of it (one processor); \
                    `terrace probe --node node0 --part loaded --out p.json` does";
    assert_eq!(told, expected);
    known.machine = ProfiledMachine { name: "cxl".into(), is_modelled: true, ..known.machine };
    let told = known.not_measured("node0", "stores", Path::new("p.json"));
    assert!(
        told.contains("not all of it; `terrace probe --model cxl --node node0 --part stores"),
        "{told}"
    );
}

#[test]
fn a_file_is_read_as_it_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profile.json");
    let written = profile(2, 4096, 101.239);
    written.write(&path).unwrap();
    written.write(&path).unwrap();
    assert_eq!(Profile::read(&path).unwrap(), written);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    let nowhere = folder.path().join("no/profile.json");
    assert!(written.write(&nowhere).unwrap_err().to_string().contains("no/profile.json"));
}

#[test]
fn errors_name_the_field() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profile.json");
    let good = serde_json::to_string(&profile(2, 4096, 100.0)).unwrap();
    let cases = [
        (good.replace("terrace-profile", "other"), "`format`", "`terrace-profile`"),
        (good.replace("\"version\":1", "\"version\":9"), "`version`", "known here is 1"),
        (good.replace("\"threads\":2", "\"threads\":\"two\""), "`machine.threads`", "usize"),
        (good.replace("\"threads\"", "\"treads\""), "treads", "`threads`"),
        (good[..good.len() / 2].to_string(), "profile.json: not JSON: ", "EOF"),
        (good.clone() + "x", "profile.json: not JSON: ", "trailing"),
        ("hello".into(), "profile.json: not JSON: ", "expected value"),
        ("{}".into(), "`profile`", "missing field"),
        (String::new(), "profile.json: not JSON: ", "EOF"),
    ];
    for (text, field, reason) in cases {
        std::fs::write(&path, &text).unwrap();
        let error = Profile::read(&path).unwrap_err().to_string();
        assert!(error.contains(field) && error.contains(reason), "{error}");
        assert!(!error.contains('\n'));
    }
}

#[test]
fn an_estimate_is_of_finite_values_and_keeps_the_latest() {
    for bad in [vec![], vec![-1.0], vec![f64::NAN], vec![1.0; 33]] {
        assert!(Estimate::try_from(bad).is_err());
    }
    assert!([f64::INFINITY, f64::NAN, -1.0].into_iter().all(|value| Estimate::of(value).is_none()));
    assert_eq!(Estimate::of(123.456), Some(estimate(&[123.5])));
    assert_eq!(four_digits(123_456.0), 123_500.0);
    assert_eq!(four_digits(-0.001_234_56), -0.001_235);
    let mut many = estimate(&[1.0]);
    (0..40).for_each(|run| many.refine(estimate(&[f64::from(run)])));
    assert_eq!((many.runs(), many.range()), (32, [8.0, 39.0]));
}

/// What is said of a profile that was changed.
fn refused(change: impl FnOnce(&mut serde_json::Value)) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profile.json");
    let mut json = serde_json::to_value(profile(2, 1 << 30, 100.0)).unwrap();
    change(&mut json);
    std::fs::write(&path, json.to_string()).unwrap();
    let error = Profile::read(&path).unwrap_err().to_string();
    assert!(!error.contains('\n'));
    error
}

#[test]
fn errors_within_a_part_name_the_field() {
    use serde_json::json;
    let point =
        |bytes| json!({"bytes": bytes, "load": {"mean_ns": [1.0], "p50_ns": [1.0], "p99_ns": "x"}});
    let bandwidth = json!({
        "flavour": "reed", "is_random": false, "piece_bytes": 64, "threads": 1, "gb_s": [1.0]
    });
    for (part, value, field, reason) in [
        ("latency", json!([point(64)]), "latency[0].load.p99_ns`", "string \"x\", expected"),
        (
            "latency",
            json!({"points": [point(64)], "left_out": "no time"}),
            "latency.points[0].load.p99_ns`",
            "string \"x\", expected",
        ),
        ("latency", json!([{"byte": 64}]), "latency[0].byte`", "unknown field `byte`"),
        ("bandwidth", json!([bandwidth]), "bandwidth[0].flavour`", "expected one of `read`"),
        ("latency", json!({"not_measured": 7}), "latency.not_measured`", "expected a string"),
        (
            "latency",
            json!({"not_measured": "", "why": ""}),
            "latency.why`",
            "expected one of `not_measured`",
        ),
        (
            "latency",
            json!({"not_measured": "", "points": []}),
            "latency`",
            "`points` beside `not_measured`",
        ),
        ("latency", json!({"points": []}), "latency`", "missing field `left_out`"),
        ("latency", json!({"left_out": ""}), "latency`", "missing field `points`"),
        ("latency", json!({}), "latency`", "missing field `not_measured`"),
        ("latency", json!(7), "latency`", "expected an array of points, or an object with"),
    ] {
        let error = refused(|json| json["nodes"][0][part] = value);
        assert!(
            error.contains(&format!(": `nodes[0].{field}")) && error.contains(reason),
            "{error}"
        );
    }
}

#[test]
fn a_profile_without_a_memory_says_so_and_what_measures_one() {
    let error = refused(|json| json["nodes"] = serde_json::json!([]));
    assert!(
        error.contains("`nodes`: no memory was measured; `terrace probe --out FILE`"),
        "{error}"
    );
}

/// Refinement and `profile_node` go by names: which of the two was meant nobody could know.
#[test]
fn two_nodes_of_one_name_are_refused() {
    let error = refused(|json| {
        let twin = json["nodes"][0].clone();
        json["nodes"].as_array_mut().expect("nodes").push(twin);
    });
    assert!(error.contains("`nodes[") && error.contains("].name`: `"), "{error}");
    assert!(error.contains("is the name of a node before it"), "{error}");
}

#[test]
fn settings_at_which_nothing_can_be_measured_are_refused_by_their_field() {
    let short = refused(|json| json["nodes"][0]["latency"][0]["bytes"] = 64.into());
    assert!(
        short.contains("nodes[0].latency[0].bytes") && short.contains("at least 128"),
        "{short}"
    );
    let bandwidth = |threads: u64, bytes: u64| {
        refused(|json| {
            json["nodes"][0]["bandwidth"] = serde_json::json!([{
                "flavour": "read", "is_random": false, "piece_bytes": bytes, "threads": threads, "gb_s": [1.0]
            }]);
        })
    };
    assert!(bandwidth(3, 64).contains("nodes[0].bandwidth[0].threads"));
    assert!(bandwidth(0, 64).contains("nodes[0].bandwidth[0].threads"));
    assert!(bandwidth(1, 0).contains("nodes[0].bandwidth[0].piece_bytes"));
}

fn latencies(bytes: &[u64], left_out: Option<&str>) -> Measured<Latency> {
    let points = bytes.iter().map(|bytes| Latency { bytes: *bytes, load: quantiles(1.0) });
    Measured::of(points.collect(), left_out.map(String::from))
}

#[test]
fn a_part_is_whole_where_one_of_its_runs_is_and_has_the_settings_of_that() {
    let whole = |bytes: &[u64]| latencies(bytes, None);
    let (before, now) = (Some("before"), Some("now"));
    for (known, run, left_out, points) in [
        (whole(&[1, 2]), whole(&[2, 3]), None, 3),
        (whole(&[1, 2]), latencies(&[2], now), None, 2),
        (whole(&[1, 2]), latencies(&[2, 3], now), None, 2),
        (latencies(&[2], before), whole(&[1, 2]), None, 2),
        (latencies(&[2, 3], before), whole(&[1, 2]), None, 2),
        (latencies(&[1], before), latencies(&[2], now), now, 2),
        (latencies(&[1], before), latencies(&[], now), before, 1),
    ] {
        let mut measured = known.clone();
        measured.refine(run.clone());
        assert_eq!(measured.left_out(), left_out, "{known:?}, then {run:?}");
        assert_eq!(measured.whole().is_empty(), left_out.is_some());
        assert_eq!(measured.points().len(), points, "{known:?}, then {run:?}");
    }
    let mut joined = Measured::not_asked_for();
    joined.join(latencies(&[1], None));
    assert_eq!(joined, latencies(&[1], None));
    joined.join(latencies(&[], Some("one")));
    joined.join(latencies(&[2], Some("other")));
    assert_eq!(joined, latencies(&[1, 2], Some("one; other")));
    assert_eq!(latencies(&[], Some("one")), Measured::not("one"));
}

#[test]
fn a_choice_among_settings_is_not_made_where_some_were_left_out() {
    let point = |flavour, threads| Bandwidth {
        flavour,
        is_random: true,
        piece_bytes: 64,
        threads,
        gb_s: estimate(&[1.0]),
    };
    let points: Vec<_> = [Flavour::Read, Flavour::Store, Flavour::StoreFlush]
        .into_iter()
        .map(|flavour| point(flavour, 1))
        .collect();
    let node = |left_out: Option<&str>| NodeProfile {
        bandwidth: Measured::of(points.clone(), left_out.map(String::from)),
        ..NodeProfile::new("node0")
    };
    assert!(MemoryCosts::of(&node(None)).is_some());
    assert_eq!(node(None).peak_gb_s(Flavour::Read, true), Some(1.0));
    let cut = node(Some("no time"));
    assert!(MemoryCosts::of(&cut).is_none() && cut.peak_gb_s(Flavour::Read, true).is_none());
    assert_eq!(cut.bandwidth.points().len(), 3, "the figures are there");
}

#[test]
fn recommendations_are_graded_by_the_median_of_their_runs() {
    let of = |factor: Option<f64>| {
        let because = if factor.is_some() { "measured" } else { "no remote memory" };
        let factor = factor.and_then(Estimate::of);
        Measured::Points(vec![Recommendation::new("R4", "keep it near", factor, because)])
    };
    let mut known = of(None);
    assert_eq!((known.points()[0].impact, known.points()[0].applies), (None, None));
    for (factor, impact, because) in [
        (Some(1.0), Some(Impact::None), "measured"),
        (None, Some(Impact::None), "measured"),
        (Some(9.0), Some(Impact::High), "measured"),
        (Some(1.4), Some(Impact::Low), "measured"),
    ] {
        known.refine(of(factor));
        let [found] = known.points() else { panic!("one") };
        assert_eq!((found.impact, found.because.as_str()), (impact, because), "{factor:?}");
        assert_eq!(found.applies, impact.map(|impact| impact > Impact::None));
    }
    assert_eq!(known.points()[0].factor, Some(estimate(&[1.0, 9.0, 1.4])));
}

#[test]
fn a_profile_of_before_reads_and_one_that_was_cut_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profile.json");
    let mut written = profile(2, 4096, 100.0);
    let effect = Effect {
        test: "I1".into(),
        factor: estimate(&[2.0]),
        because: vec!["the processor's caches".into()],
        on_dram: None,
        classes: Vec::new(),
        unexplained: None,
    };
    written.nodes[0].effects = Measured::Points(vec![effect]);
    let mut json = serde_json::to_value(&written).unwrap();
    let node = json["nodes"][0].as_object_mut().unwrap();
    node.remove("recommendations").unwrap();
    let effect = node["effects"][0].as_object_mut().unwrap();
    for field in ["on_dram", "classes", "unexplained"] {
        effect.remove(field).unwrap();
    }
    std::fs::write(&path, json.to_string()).unwrap();
    assert_eq!(Profile::read(&path).unwrap(), written);
    written.nodes[0].latency = latencies(&[4096], Some("2 of 3 settings: no time"));
    written.write(&path).unwrap();
    assert_eq!(Profile::read(&path).unwrap(), written);
}

#[test]
fn the_published_schema_is_that_of_the_format() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/profile.schema.json");
    let schema = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    if std::env::var_os("TERRACE_WRITE_SCHEMA").is_some() {
        std::fs::write(path, &schema).unwrap();
    }
    let published = std::fs::read_to_string(path).unwrap_or_default();
    assert!(published == schema, "TERRACE_WRITE_SCHEMA=1 cargo test -p terrace-memory profile");
}
