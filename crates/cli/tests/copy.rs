//! `terrace copy` as a process: by flags and by a file, what it refuses, and an engine that is not here.

use crate::common::run;
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

#[test]
fn flags_describe_one_workload_for_each_engine_and_size() {
    let (code, text, told) = run(&[
        "copy",
        "--engine",
        "cpu",
        "--engine",
        "dsa-emulated",
        "--size",
        "4 KiB",
        "--size",
        "100000",
        "--batch",
        "3",
        "--threads",
        "2",
        "--iterations",
        "2",
        "--repetitions",
        "4",
        "--json",
    ]);
    assert_eq!(code, 0, "{told}");
    let found = json(&text);
    let measured = found["measured"].as_array().expect("a list");
    assert_eq!((measured.len(), &found["skipped"]), (4, &Value::Array(Vec::new())));
    for of in measured {
        assert_eq!(of["workload"]["tasks"].as_array().expect("a list").len(), 2);
        assert_eq!(of["iterations"].as_array().expect("a list").len(), 2);
        assert!(of["gib_s"].as_f64().expect("a number") > 0.0);
    }
    assert_eq!(measured[3]["engines"][1], "dsa-emulated");
    assert_eq!(measured[3]["workload"]["tasks"][0]["bytes"], 100_000);

    let (code, table, _) =
        run(&["copy", "--engine", "streaming", "--size", "1 MiB", "--iterations", "2"]);
    assert_eq!(code, 0);
    assert!(table.starts_with("workload") && table.contains("streaming"), "{table}");
    assert!(table.contains("GiB/s") && table.contains("Page faults while measuring: "), "{table}");
}

#[test]
fn a_file_is_measured_and_the_schema_is_the_published_one() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("copies.json");
    std::fs::write(&path, include_str!("../../../examples/copies.json")).expect("written");
    let path = path.to_str().expect("text");
    let (code, table, told) = run(&["copy", path]);
    assert_eq!(code, 0, "{told}");
    assert!(
        table.contains("two threads, one queue") && table.contains("says nothing of the device"),
        "{table}"
    );
    let (code, schema, _) = run(&["copy", "--schema"]);
    assert_eq!((code, schema.as_str()), (0, include_str!("../../../docs/copies.schema.json")));
}

#[test]
fn a_modelled_machine_takes_flags_and_the_papers_file() {
    let (code, text, told) = run(&[
        "copy", "--model", "xeon-max", "--engine", "dsa", "--size", "1 GiB", "--to", "8", "--json",
    ]);
    assert_eq!(code, 0, "{told}");
    let found = json(&text);
    let gib_s = found["modelled"][0]["gib_s"].as_f64().expect("a number");
    assert!(found["model"] == "xeon-max" && (29.0..30.0).contains(&gib_s), "{found}");

    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("copies.json");
    std::fs::write(&path, include_str!("../../../examples/copies-xeon-max.json")).expect("written");
    let path = path.to_str().expect("text");
    let (code, table, told) = run(&["copy", "--model", "xeon-max", path]);
    assert_eq!(code, 0, "{told}");
    assert!(
        table.contains("3.6 to node 15, push-pull") && table.contains("nothing was measured"),
        "{table}"
    );

    let refused: [(&[&str], &str); 4] = [
        (&["copy", "--model", "cxl"], "cxl: it has no [engines]; xeon-max has"),
        (&["copy", "--model", "nothing"], "no preset 'nothing'"),
        (&["copy", "--model", "xeon-max", "--engine", "pool"], "`pool` is not modelled"),
        (
            &["copy", "--model", "xeon-max", "--to", "16"],
            "tasks[0].target_node is 16; xeon-max has 0 to 15",
        ),
    ];
    for (arguments, what) in refused {
        let (code, printed, told) = run(arguments);
        assert_eq!((code, printed.as_str()), (2, ""), "{arguments:?}: {told}");
        assert!(told.contains(what), "{arguments:?}: {told}");
    }
}

#[test]
fn bad_input_is_one_line_and_code_2() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("bad.json");
    std::fs::write(&path, "{\"workloads\": [{\"tasks\": [{\"engine\": \"cpu\", \"byte\": 1}]}]}")
        .expect("written");
    let path = path.to_str().expect("text");
    let refused: [(&[&str], &str); 9] = [
        (&["copy", path], "bad.json: line 1: unknown field `byte`"),
        (&["copy", "/nowhere.json"], "/nowhere.json: No such file"),
        (&["copy", "--size", "0"], "--size is 0; from 1 to 1099511627776"),
        (&["copy", "--batch", "5000"], "--batch is 5000; from 1 to 4096"),
        (&["copy", "--repetitions", "0"], "--repetitions is 0; from 1 to 1000000"),
        (&["copy", "--threads", "0"], "--threads is 0; from 1 to 256"),
        (&["copy", "--iterations", "1001"], "--iterations is 1001; from 1 to 1000"),
        (
            &["copy", "--engine", "cpu", "--to", "999"],
            "cpu: tasks[0]: no memory on node 999; nodes with memory: ",
        ),
        (
            &["copy", "--engine", "cpu", "--size", "1 TiB", "--batch", "4096"],
            "lower `bytes` or `batch`",
        ),
    ];
    for (arguments, what) in refused {
        let (code, printed, told) = run(arguments);
        assert_eq!((code, printed.as_str()), (2, ""), "{arguments:?}: {told}");
        let problem = told.lines().find(|line| line.contains(what));
        assert!(problem.is_some(), "{arguments:?}: {told}");
    }
    let (code, _, told) = run(&["copy", "--engine", "gpu"]);
    assert!(code == 2 && told.contains("known: cpu, streaming, pool, dsa, dsa-emulated"), "{told}");
    let (code, _, told) = run(&["copy", path, "--size", "1"]);
    assert!(code == 2 && told.contains("cannot be used with"), "{told}");
}

#[test]
fn an_engine_that_is_not_here_is_skipped_unless_it_is_required() {
    if std::path::Path::new("/sys/bus/dsa/devices").exists() {
        return;
    }
    let reason = "no engine `dsa` here: /sys/bus/dsa/devices: ";
    let (code, printed, told) = run(&["copy", "--require-engine", "dsa", "--iterations", "1"]);
    assert_eq!((code, printed.as_str()), (1, ""), "{told}");
    assert!(told.contains(reason) && told.contains("leave out --require-engine"), "{told}");
    assert!(
        told.contains("load the kernel module `idxd`") && told.contains("terrace doctor"),
        "{told}"
    );
    let (code, _, told) = run(&["copy", "--engine", "dsa", "--size", "1"]);
    assert!(code == 1 && told.contains(reason), "{told}");
    let flags = ["--engine", "cpu", "--engine", "dsa", "--size", "4096", "--iterations", "1"];
    let (code, table, told) = run(&[&["copy"], &flags[..]].concat());
    assert!(code == 0 && table.contains("cpu"), "{told}");
    assert_eq!(told.matches(&format!("skipped: {reason}")).count(), 1, "{told}");
    let (_, text, _) = run(&[&["copy", "--json"], &flags[..]].concat());
    assert!(json(&text)["skipped"][0]["why"].as_str().expect("text").starts_with(reason));
}
