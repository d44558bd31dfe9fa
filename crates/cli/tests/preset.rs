//! `terrace preset` as a process: names, files, and what is no machine.

use crate::common::run;

#[test]
fn presets_are_listed_printed_and_held_against_what_was_published() {
    let (code, listed, _) = run(&["preset"]);
    assert!(code == 0 && listed.contains("optane-004"), "{listed}");
    let (_, text, _) = run(&["preset", "cxl"]);
    assert!(text.contains("[[node]]"), "{text}");
    // As a file it is the same machine, of which the file alone does not say what was published.
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("mine.toml");
    std::fs::write(&path, format!("{text}\n# changed\n")).expect("written");
    let path = path.to_str().expect("text");
    assert_eq!(run(&["preset", path]).0, 0);
    let (code, _, error) = run(&["preset", path, "--calibrate"]);
    assert!(code == 2 && error.contains("--profile FILE"), "{error}");
    let (code, found, _) = run(&["preset", "m2-ultra", "--calibrate", "--json"]);
    for verdict in ["\"verdict\": \"given\"", "\"verdict\": \"predicted\""] {
        assert!(code == 0 && found.contains(verdict), "{found}");
    }
}

#[test]
fn the_processor_for_sections_is_listed_and_printed_with_its_sources_and_models_nothing_else() {
    let (code, listed, _) = run(&["preset"]);
    assert!(code == 0 && listed.contains("ssp-sim"), "{listed}");
    let (code, listed, _) = run(&["preset", "--json"]);
    assert!(code == 0 && listed.contains("\"ssp-sim\""), "{listed}");
    let (code, text, _) = run(&["preset", "ssp-sim"]);
    assert!(
        code == 0 && text.contains("write_ns = 200") && text.contains("Ni, table 3.1"),
        "{text}"
    );
    let (code, text, _) = run(&["preset", "ssp-sim", "--json"]);
    assert!(code == 0 && text.contains("\"name\": \"ssp-sim\""), "{text}");
    for command in [&["preset", "ssp-sim", "--calibrate"][..], &["probe", "--model", "ssp-sim"]] {
        let (code, _, error) = run(command);
        assert!(code == 2 && error.contains("reproduce run ssp-speed"), "{command:?}: {error}");
    }
}

#[test]
fn an_invalid_machine_is_refused_with_the_valid_choices() {
    let dir = tempfile::tempdir().expect("directory");
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.to_str().expect("text").to_string()
    };
    let machine = |is_modelled: bool, nodes: &str| {
        format!(
            r#"{{"format":"terrace-profile","version":1,"machine":{{"name":"m","is_modelled":{is_modelled},"threads":2,
            "cache_bytes":1048576,"nodes":["node0"]}},"taken_at":[],"nodes":[{nodes}],"pages":[],"copies":[]}}"#
        )
    };
    let node =
        r#"{"name":"node0","latency":[],"bandwidth":[],"loaded":[],"stores":[],"dirty_cache":[]}"#;
    let modelled = file("a.json", &machine(true, node));
    let (empty, bare) =
        (file("d.json", &machine(false, node)), file("b.json", &machine(false, "")));
    let half = file("c.json", "{\"format\":\"terrace-profile\"}");
    for (model, words) in [
        ("optane", "there are optane-000"),
        (&modelled, "machine.is_modelled: true"),
        (&empty, "nodes.node0.stores: not measured (it has no points)"),
        (&bare, "`nodes`: no memory was measured"),
        (&half, "missing field `version`"),
        ("no/such.json", "no/such.json: No such file"),
    ] {
        for command in [&["preset", model][..], &["probe", "--model", model]] {
            let (code, _, error) = run(command);
            let first =
                error.lines().find(|line| line.starts_with("terrace: ")).unwrap_or_default();
            assert!(code == 2 && first.contains(words), "{command:?}: {error}");
        }
    }
}
