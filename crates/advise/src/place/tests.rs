//! The rule against every placement, on the paper's numbers and on random ones; bad questions.

use super::*;
use proptest::prelude::*;
use terrace_memory::ByteSize;

const GIB: u64 = 1 << 30;

fn structure(name: &str, bytes: u64, ebr: f64, accesses_per_s: f64) -> Structure {
    Structure {
        name: name.into(),
        bytes: ByteSize(bytes),
        ebr,
        ewr: None,
        accesses_per_s,
        read_share: 0.5,
        access_bytes: 64,
        sequential: false,
    }
}

fn node(name: &str, capacity: u64, local: bool) -> Node {
    let further = if local { 0.0 } else { 60.0 };
    Node {
        name: name.into(),
        capacity: ByteSize(capacity),
        local,
        read_ns: 305.0 + further,
        write_ns: 62.0 + further,
        read_gb_s: 31.4,
        write_gb_s: 8.5,
        unit_bytes: 64,
    }
}

/// The two structures of Gugnani with the ratios of its figure 9(a) and room for one nearby. Accesses
/// are stores of figure 9(b): for each insert ten to the index and nineteen to the record store (their
/// 4 to 8 KB stores, one each, are 10 and 5.2 % of all), 77 000 inserts a second in workload A.
fn of_the_paper() -> Question {
    let index = structure("index", 10 * GIB, 0.169, 77_000.0 * 10.0);
    let records = structure("record store", 10 * GIB, 0.10, 77_000.0 * 19.2);
    let of = |s: Structure, bytes, ewr| Structure { access_bytes: bytes, ewr: Some(ewr), ..s };
    let structures = vec![of(index, 462, 0.50), of(records, 274, 0.292)];
    let nodes = vec![node("pmem0", 10 * GIB, true), node("pmem1", 20 * GIB, false)];
    Question::new(structures, nodes).expect("it makes sense")
}

#[test]
fn the_rule_keeps_the_papers_record_store_nearby_and_every_measure_agrees() {
    let question = of_the_paper();
    assert_eq!(rule::by_ebr(&question), Ok(vec![1, 0]), "the index is spilled");
    let advice = advise(&question).expect("advice");
    assert_eq!(advice.agrees(), Some(true), "{advice}");
    assert_eq!(advice.node_of("record store"), Some("pmem0"));
    // And by what the paper measured: figure 8, operations a second.
    for (workload, records, index, none) in [
        ("A", 151_860.0, 127_210.0, 122_167.0),
        ("B", 207_727.0, 202_347.0, 187_758.0),
        ("C", 231_965.0, 218_388.0, 207_082.0),
    ] {
        let seconds = |placement: &[usize]| match placement {
            [1, 0] => 1.0 / records,
            [0, 1] => 1.0 / index,
            _ => 1.0 / none,
        };
        let best = exhaustive::best(&question, seconds).expect("fits").expect("four placements");
        assert_eq!(
            (best.placement, best.placements, best.fitting),
            (vec![1, 0], 4, 3),
            "{workload}"
        );
    }
}

#[test]
fn where_the_better_ratio_is_used_far_more_often_the_disagreement_is_printed() {
    let structures = vec![
        structure("log", GIB, 0.05, 1_000.0), // scattered, and hardly ever
        structure("index", GIB, 0.5, 1_000_000.0),
    ];
    let nodes = vec![node("near", GIB, true), node("far", 2 * GIB, false)];
    let advice = advise(&Question::new(structures, nodes).expect("fits")).expect("advice");
    assert_eq!(advice.agrees(), Some(false));
    assert_eq!(advice.node_of("index"), Some("near"), "the best placement is advised");
    let text = advice.to_string();
    assert!(text.contains("DISAGREEMENT: the rule") && text.contains("log on near"), "{text}");
}

#[test]
fn equal_ratios_are_decided_by_use_and_then_by_order() {
    let nodes = vec![node("near", GIB, true), node("far", 4 * GIB, false)];
    let placed =
        |structures| rule::by_ebr(&Question::new(structures, nodes.clone()).expect("fits"));
    let [rare, often] = [1.0, 2.0].map(|rate| structure("x", GIB, 0.1, rate));
    let called = |s: &Structure, name: &str| Structure { name: name.into(), ..s.clone() };
    assert_eq!(placed(vec![called(&rare, "a"), called(&often, "b")]), Ok(vec![1, 0]));
    assert_eq!(placed(vec![called(&rare, "a"), called(&rare, "b")]), Ok(vec![0, 1]));
}

#[test]
fn a_rule_that_paints_itself_into_a_corner_is_reported_and_the_best_placement_taken() {
    // The small one chooses first and takes the only place that the large one fits in.
    let structures = vec![structure("small", GIB, 0.1, 1.0), structure("large", 4 * GIB, 0.2, 1.0)];
    let nodes = vec![node("near", 4 * GIB, true), node("far", GIB, false)];
    let question = Question::new(structures.clone(), nodes).expect("each fits");
    assert_eq!(rule::by_ebr(&question), Err(1));
    let advice = advise(&question).expect("advice");
    assert_eq!(advice.without_room.as_deref(), Some("large"));
    assert_eq!((advice.node_of("large"), advice.agrees()), (Some("near"), Some(false)));
    assert!(advice.to_string().contains("leaves no space for large"), "{advice}");
    let narrow = vec![node("near", 4 * GIB, true)];
    let error =
        advise(&Question::new(structures, narrow).expect("each fits")).expect_err("not both");
    assert!(error.to_string().contains("(5 GiB) on the nodes (4 GiB)"), "{error}");
}

#[test]
fn a_preset_fills_in_what_a_file_leaves_out() {
    let question = Question::parse_toml(EXAMPLE).expect("good");
    let [near, far] = question.nodes() else { panic!("two nodes") };
    assert!(near.local && !far.local);
    assert_eq!((near.read_ns, far.read_ns), (305.0, 365.0));
    assert_eq!((near.read_gb_s, far.read_gb_s), (31.4, 17.8), "the link's");
    let from_socket_1 = Question::parse_toml(&format!("socket = 1\n{EXAMPLE}")).expect("good");
    assert!(from_socket_1.nodes()[1].local);
    let json = r#"{"structure": [{"name": "a", "bytes": 64, "ebr": 0.1, "accesses_per_s": 1,
        "read_share": 1}], "node": [{"name": "n", "capacity": "1 KiB", "local": true, "read_ns": 80,
        "write_ns": 60, "read_gb_s": 80, "write_gb_s": 40}]}"#;
    assert_eq!(Question::parse_json(json).expect("good").nodes().len(), 1);
}

#[test]
fn bad_questions_are_refused_in_one_line_that_names_the_field_and_what_it_may_be() {
    let changed = |from: &str, to: &str| {
        assert!(EXAMPLE.contains(from), "{from}");
        EXAMPLE.replace(from, to)
    };
    let cases = [
        (
            changed("ebr = 0.169", ""),
            "structure `index`: `ebr` is missing; it must be a ratio above 0",
        ),
        (
            changed("ebr = 0.169", "ebr = 0"),
            "structure `index`: `ebr` is 0; it must be a ratio above 0",
        ),
        (changed("ebr = 0.169", "ebr = nan"), "structure `index`: `ebr` is NaN"),
        (
            changed("ebr = 0.169", "ebbr = 1"),
            "line 8: unknown field `ebbr`, expected one of `name`",
        ),
        (changed("\"1 GiB\"", "\"1 bit\""), "line 7: \"1 bit\" is not an amount of bytes"),
        (changed("1e6", "\"many\""), "(field `structure[0].accesses_per_s`)"),
        (
            changed("\"1 GiB\"", "0"),
            "structure `index`: `bytes` is 0 B; it must be a size of at least",
        ),
        (
            changed("\"1 GiB\"", "\"1 TiB\""),
            "more than the capacity of any node; the largest is `pmem1` with 16 GiB",
        ),
        (
            changed("1e6", "-1.0"),
            "structure `index`: `accesses_per_s` is -1; it must be a number above",
        ),
        (
            changed("read_share = 0.5", "read_share = 50"),
            "`read_share` is 50; it must be from 0 (only",
        ),
        (
            changed("capacity = \"6 GiB\"", "capacity = 0"),
            "node `pmem0`: `capacity` is 0 B; it must be a size of at least",
        ),
        (changed("name = \"pmem0\"", ""), "[[node]] number 1: `name` is missing; it must be text"),
        (changed("pmem0", "pmem7"), "no memory 'pmem7'; there are dram0, pmem0, dram1, pmem1"),
        (changed("pmem0", "pmem1"), "two [[node]] have the name `pmem1`"),
        (changed("optane-001", "optane"), "no preset 'optane'; there are optane-000"),
        (
            changed("preset = \"optane-001\"", ""),
            "node `pmem0`: `local` is missing; it must be true or false",
        ),
        (
            changed("preset = \"optane-001\"", "socket = 2\npreset = \"optane-001\""),
            "`socket` is 2; it must be the number of one of its",
        ),
        ("preset = \"cxl\"".into(), "no [[structure]]; at least one is needed"),
    ];
    for (text, expected) in cases {
        let error = Question::parse_toml(&text).expect_err(expected).to_string();
        assert!(error.contains(expected) && !error.contains('\n'), "{error}\nnot: {expected}");
    }
}

#[test]
fn too_many_placements_are_left_to_the_rule() {
    let structures = (0..21).map(|i| structure(&format!("s{i}"), 1, 0.1, 1.0)).collect();
    let nodes = vec![node("near", GIB, true), node("far", GIB, false)];
    let advice = advise(&Question::new(structures, nodes).expect("fits")).expect("advice");
    assert!(advice.best.is_none() && advice.placements == Some(1 << 21));
    assert_eq!(advice.agrees(), None, "nothing was compared");
    let why = "there are 2097152 placements, more than the limit of 1048576";
    assert_eq!(advice.not_compared().as_deref(), Some(why));
    let told = format!(
        "placed by the rule (lowest EBR nearest), not compared with other placements: {why}"
    );
    assert!(advice.to_string().ends_with(&told), "{advice}");
}

fn questions() -> impl Strategy<Value = Question> {
    let structure = (1..100u64, 0.01..1.0f64, 1.0..1e7f64, 0.0..=1.0f64, any::<bool>());
    let node = (100..400u64, any::<bool>());
    let many = (prop::collection::vec(structure, 1..6), prop::collection::vec(node, 1..4));
    many.prop_map(|(structures, nodes)| {
        let structures = structures.into_iter().enumerate().map(|(i, of)| Structure {
            read_share: of.3,
            sequential: of.4,
            ..structure_of(i, of.0, of.1, of.2)
        });
        let nodes = nodes.into_iter().enumerate();
        let nodes = nodes.map(|(i, (capacity, local))| node_of(i, capacity, local));
        Question::new(structures.collect(), nodes.collect()).expect("it makes sense")
    })
}

fn structure_of(number: usize, bytes: u64, ebr: f64, rate: f64) -> Structure {
    structure(&format!("s{number}"), bytes, ebr, rate)
}

fn node_of(number: usize, capacity: u64, local: bool) -> Node {
    node(&format!("n{number}"), capacity, local)
}

#[test]
fn an_access_smaller_than_a_unit_of_the_medium_costs_a_whole_unit() {
    let coarse = Node { unit_bytes: 256, ..node("pmem", 10 * GIB, true) };
    let cost = |access_bytes, ewr, sequential, node: &Node| {
        let s = structure("s", GIB, 0.1, 1e6);
        let s = Structure { access_bytes, ewr, sequential, read_share: 0.0, ..s };
        let question = Question::new(vec![s], vec![node.clone()]).expect("it makes sense");
        cost::predicted(&question, &[0])
    };
    assert_eq!(cost(64, None, false, &coarse), cost(256, None, false, &coarse));
    assert!(cost(64, None, false, &node("dram", GIB, true)) < cost(64, None, false, &coarse));
    // What follows on one another is combined; what was counted is known.
    assert!(cost(64, None, true, &coarse) < cost(256, None, true, &coarse));
    assert!(cost(64, Some(1.0), false, &coarse) < cost(64, None, false, &coarse));
}

proptest! {
    #[test]
    fn the_rule_never_places_more_than_a_capacity(question in questions()) {
        if let Ok(placement) = rule::by_ebr(&question) {
            prop_assert!(question.room_left(&placement).is_some());
        }
    }

    #[test]
    fn nothing_that_fits_is_cheaper_than_the_best(question in questions(), draw in any::<u64>()) {
        let cost = |placement: &[usize]| cost::predicted(&question, placement);
        let Ok(Some(best)) = exhaustive::best(&question, cost) else { return Ok(()) };
        prop_assert!(question.room_left(&best.placement).is_some());
        let nodes = question.nodes().len() as u64;
        let any: Vec<usize> = (0..question.structures().len() as u64)
            .map(|i| (draw.rotate_left(7 * i as u32) % nodes) as usize)
            .collect();
        if question.room_left(&any).is_some() {
            prop_assert!(cost(&any) >= best.cost);
        }
        if let Ok(placement) = rule::by_ebr(&question) {
            prop_assert!(cost(&placement) >= best.cost);
        }
    }

    /// Of structures alike in all but their ratio and their use, with the use falling as the ratio
    /// rises, the rule is right.
    #[test]
    fn the_rule_is_the_best_where_the_worst_patterns_are_used_most(
        mut rates in prop::collection::vec(1.0..1e5f64, 2..6), room in 1..5u64,
    ) {
        rates.sort_by(|a, b| b.total_cmp(a));
        let structures = rates.iter().enumerate();
        let structures = structures.map(|(i, rate)| structure_of(i, 10, 0.1 + 0.1 * i as f64, *rate));
        let nodes = vec![node_of(0, 10 * room, true), node_of(1, 1000, false)];
        let question = Question::new(structures.collect(), nodes).expect("it makes sense");
        let advice = advise(&question).expect("it fits");
        prop_assert_eq!(advice.agrees(), Some(true), "{}", advice);
    }
}

#[test]
fn measured_properties_of_a_node_need_not_be_declared() {
    use crate::probe::{Part, ProbePlan, probe};
    use terrace_machine::Preset;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profile.json");
    let server = Preset::named("optane-004").unwrap().with_caches_divided(64);
    let plan = ProbePlan {
        only: vec!["dram0".into(), "pmem0".into()],
        parts: vec![Part::Latency, Part::Stores],
        threads: Some(1),
        is_quick: true,
        limit: None,
    };
    probe(&server, &plan, &|_, _, _| {}).unwrap().write(&path).unwrap();
    let question_of = |node: &str, more: &str| {
        Question::parse_toml(&format!(
            "profile = {path:?}\n[[structure]]\nname = \"index\"\nbytes = \"1 GiB\"\nebr = 0.1\n\
             accesses_per_s = 1e6\nread_share = 0.5\n[[node]]\nname = {node:?}\ncapacity = \"2 GiB\"\n{more}"
        ))
    };
    let question = |more: &str| question_of("pmem0", more);
    let rates = "read_gb_s = 10.0\nwrite_gb_s = 3.0\n";
    let found = question(rates).unwrap();
    let node = &found.nodes()[0];
    assert!(!node.local, "DRAM is nearer");
    assert!((node.read_ns / 305.0 - 1.0).abs() < 0.15 && node.write_ns > 60.0, "{node:?}");
    let figures = found.figures().unwrap().to_string();
    assert!(figures.contains("profile.json: modelled optane-004, 56 threads"), "{figures}");
    // Bandwidth was not measured, so it must be written; and what is no profile is told.
    let missing = question("read_gb_s = 10.0\n").unwrap_err().to_string();
    for words in [
        "node `pmem0`: `write_gb_s` is missing: bandwidth of pmem0 was not measured",
        "`terrace probe --model optane-004 --node pmem0 --part bandwidth --out ",
    ] {
        assert!(missing.contains(words), "{missing}");
    }
    // A node that the profile does not have needs all of its figures.
    let unknown = question_of("far", rates).unwrap_err().to_string();
    assert!(
        unknown.contains("node `far`: ")
            && unknown.contains("has no memory of that name; it has dram0, pmem0; "),
        "{unknown}"
    );
    assert!(!unknown.contains('\n') && !missing.contains('\n'));
    let written = format!("local = false\nread_ns = 900\nwrite_ns = 700\n{rates}");
    assert_eq!(question_of("far", &written).unwrap().nodes()[0].name, "far");
    let nowhere = Question::parse_toml("profile = \"nowhere.json\"").unwrap_err().to_string();
    assert!(nowhere.contains("nowhere.json"), "{nowhere}");
    std::fs::write(&path, "{}").unwrap();
    let broken = question(rates).unwrap_err().to_string();
    assert!(broken.contains("missing field"), "{broken}");
}

#[test]
fn a_numa_node_of_a_profile_is_known_by_its_number_and_is_one_memory() {
    use terrace_memory::Profile;
    use terrace_memory::profile::{NodeProfile, ProfiledMachine};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profile.json");
    let mut profile = Profile::new(ProfiledMachine {
        name: "this machine".into(),
        is_modelled: false,
        processor: None,
        threads: 2,
        cache_bytes: 1 << 20,
        nodes: vec!["node0".into()],
    });
    profile.nodes.push(NodeProfile::new("node0"));
    profile.write(&path).unwrap();
    let node = |name: &str| {
        format!(
            "[[node]]\nname = {name:?}\ncapacity = 1024\nlocal = true\nread_ns = 80\nwrite_ns = 60\n\
             read_gb_s = 80\nwrite_gb_s = 40\n"
        )
    };
    let question = |nodes: &str| {
        Question::parse_toml(&format!(
            "profile = {path:?}\n[[structure]]\nname = \"a\"\nbytes = 64\nebr = 0.1\naccesses_per_s = 1\n\
             read_share = 1\n{nodes}"
        ))
    };
    assert_eq!(question(&node("0")).unwrap().nodes()[0].name, "node0");
    let twice = question(&(node("0") + &node("node0"))).unwrap_err().to_string();
    assert!(twice.contains("two [[node]] have the name `node0`"), "{twice}");
    let missing = question(&node("0").replace("write_ns = 60\n", "")).unwrap_err().to_string();
    assert!(missing.contains("`terrace probe --node node0 --part stores --out "), "{missing}");
}

#[test]
fn a_preset_may_be_a_file() {
    use terrace_machine::Preset;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    let mine = Preset::text("optane-001").unwrap();
    std::fs::write(&path, mine.replace("name = \"optane-001\"", "name = \"mine\"")).unwrap();
    let question = |preset: &str| Question::parse_toml(&EXAMPLE.replace("\"optane-001\"", preset));
    let by_file = question(&format!("{path:?}")).unwrap();
    let by_name = question("\"optane-001\"").unwrap();
    assert_eq!(by_file.nodes(), by_name.nodes());
    assert_eq!(by_file.figures(), Some(&Figures::Preset("mine".into())));
    let nowhere = question("\"nowhere.toml\"").unwrap_err().to_string();
    assert!(nowhere.contains("nowhere.toml: No such file"), "{nowhere}");
}
