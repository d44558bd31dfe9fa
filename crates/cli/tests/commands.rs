//! The binary as a user meets it: what it prints, what it refuses, and its exit codes.

use crate::common::run;
use std::io::{Read, Write};
use std::path::Path;

/// Runs it and expects success; returns its output.
fn fine(arguments: &[&str]) -> String {
    let (code, stdout, stderr) = run(arguments);
    assert_eq!(code, 0, "{arguments:?}: {stdout}{stderr}");
    stdout
}

fn path(dir: &Path, name: &str) -> String {
    dir.join(name).to_str().expect("text").to_string()
}

/// A persistent tree follows from `persist` and the profile; a setting that once chose its form does nothing and is
/// told.
#[test]
fn a_persistent_tree_is_reported_and_reopened_and_a_retired_setting_is_named() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let data = path(dir.path(), "data");
    fine(&["put", &data, "users", "ada", "lovelace"]);
    let settings = "kind = \"ordered\"\ndomain = \"adr\"\nindex = \"btree-ls\"\n";
    let file = dir.path().join("data/terrace.toml");
    std::fs::write(&file, settings).expect("settings");
    let (code, told, stderr) = run(&["open", &data, "--persist", "index", "--explain"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("terrace.toml: line 3: `index` is no longer a setting"), "{stderr}");
    assert!(
        told.contains("the index is fast-fair: leaves of 512 B, inner nodes in DRAM, persistent"),
        "{told}"
    );
    let told = fine(&["open", &data, "--explain"]);
    assert!(
        told.contains("reopened as closed") && told.contains("the index is fast-fair"),
        "{told}"
    );
    let stats: serde_json::Value =
        serde_json::from_str(&fine(&["stats", &data, "--json"])).expect("JSON");
    let index = stats["maps"][0]["index"].as_str().expect("words");
    assert!(index.starts_with("fast-fair: "), "{index}");
    let (code, _, stderr) = run(&["open", &data, "--index", "fast-fair"]);
    assert!(code == 2 && stderr.contains("--index"), "{stderr}");
    assert_eq!(fine(&["get", &data, "users", "ada"]), "lovelace");
}

/// Whoever only looks need not know how a directory was served, and changes nothing in it; whoever writes is told.
#[test]
fn a_persistent_index_outlives_those_who_read_without_its_settings() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let data = path(dir.path(), "data");
    let settings = path(dir.path(), "served.toml");
    let text = "kind = \"ordered\"\ndomain = \"adr\"\nvalues = \"slab\"\n[words.seats]\ncapacity = 500\n\
                [queues.jobs]\nform = \"tx\"\n[ledgers.bank]\n";
    std::fs::write(&settings, text).expect("settings");
    fine(&["put", &data, "users", "ada", "lovelace", "--config", &settings]);
    fine(&["open", &data, "--persist", "index", "--config", &settings]);
    let all = fine(&["stats", &data]);
    for told in ["fast-fair: leaves of 512 B, persistent", "slab", "seats", "jobs", "bank"] {
        assert!(all.contains(told), "{told}: {all}");
    }
    assert_eq!(fine(&["get", &data, "users", "ada"]), "lovelace");
    assert_eq!(fine(&["scan", &data, "users", "--ordered"]).trim(), "ada\tlovelace");
    let file = path(dir.path(), "users.jsonl");
    fine(&["export", &data, "users", &file]);
    let again = fine(&["open", &data, "--explain", "--config", &settings]);
    assert!(again.contains("reopened as closed") && again.contains("as it was made"), "{again}");
    assert!(
        again.contains("persistent; index = \"auto\"") && again.contains("at a time"),
        "{again}"
    );
    // The same in logs, on what is taken for a disk.
    let logs = path(dir.path(), "logs");
    std::fs::write(&settings, "domain = \"eadr\"\npersist = \"full\"\n").expect("settings");
    fine(&["put", &logs, "users", "ada", "lovelace", "--config", &settings]);
    let (code, _, stderr) = run(&["put", &logs, "users", "grace", "hopper"]);
    assert!(
        code == 0 && stderr.contains("map users: the persistent index was not reopened"),
        "{stderr}"
    );
    let told = fine(&["open", &logs, "--explain"]);
    assert!(!told.contains("kept"), "{told}");
}

#[test]
fn single_keys_survive_from_command_to_command() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let data = path(dir.path(), "data");
    fine(&["put", &data, "users", "ada", "lovelace"]);
    fine(&["put", &data, "users", "bob", "a\tb\nc"]);
    fine(&["put", &data, "users", "soon", "gone", "--expire", "1000"]);
    assert_eq!(fine(&["get", &data, "users", "ada"]), "lovelace");
    let json: serde_json::Value =
        serde_json::from_str(&fine(&["get", &data, "users", "soon", "--json"])).expect("JSON");
    assert_eq!(json["value"], "gone");
    assert!(json["expires_at_ms"].is_u64());

    let mut lines: Vec<_> = fine(&["scan", &data, "users"]).lines().map(String::from).collect();
    lines.sort();
    assert_eq!(lines, ["ada\tlovelace", "bob\ta\\tb\\nc", "soon\tgone"]);
    assert_eq!(fine(&["scan", &data, "users", "--prefix", "b", "--keys"]), "bob\n");
    assert_eq!(fine(&["scan", &data, "users", "--limit", "2"]).lines().count(), 2);
    let in_order = |more: &[&str]| fine(&[&["scan", &data, "users", "--keys"], more].concat());
    assert_eq!(in_order(&["--ordered"]), "ada\nbob\nsoon\n");
    assert_eq!(in_order(&["--reverse", "--limit", "2"]), "soon\nbob\n");
    assert_eq!(in_order(&["--from", "b", "--to", "soon"]), "bob\n");
    assert_eq!(in_order(&["--prefix", "b", "--reverse"]), "bob\n");

    assert_eq!(fine(&["del", &data, "users", "ada", "nobody"]), "1 removed\n");
    let (code, _, stderr) = run(&["get", &data, "users", "ada"]);
    assert_eq!((code, stderr.as_str()), (1, "terrace: no key `ada`\n"));

    let stats: serde_json::Value =
        serde_json::from_str(&fine(&["stats", &data, "--json"])).expect("JSON");
    assert_eq!(stats["maps"][0]["name"], "users");
    assert_eq!(stats["maps"][0]["keys"], 2);
}

#[test]
fn stats_tell_each_memory_and_what_is_written_back_early() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let data = path(dir.path(), "data");
    std::fs::create_dir(&data).expect("made");
    let tier = "[[tier]]\nname = \"apart\"\nkind = \"dram\"\nbytes = \"64 MiB\"\n";
    let text = format!(
        "memory_budget = \"128 MiB\"\npre_stores = false\n{tier}[maps.b]\ntier = \"apart\"\n"
    );
    std::fs::write(dir.path().join("data/terrace.toml"), &text).expect("written");
    fine(&["put", &data, "a", "key", "value"]);
    fine(&["put", &data, "b", "key", "value"]);
    let stats: serde_json::Value =
        serde_json::from_str(&fine(&["stats", &data, "--json"])).expect("JSON");
    let tiers = stats["tiers"].as_array().expect("tiers");
    let told = |i: usize| (tiers[i]["name"].as_str(), tiers[i]["budget_bytes"].as_u64());
    assert_eq!(
        [told(0), told(1)],
        [(Some("memory"), Some(128 << 20)), (Some("apart"), Some(64 << 20))]
    );
    for (i, map) in ["a", "b"].iter().enumerate() {
        assert_eq!(stats["maps"][i]["name"], *map);
        assert_eq!(stats["maps"][i]["tier"], tiers[i]["name"]);
        assert_eq!(tiers[i]["maps"], serde_json::json!([map]));
        assert!(tiers[i]["used_bytes"].as_u64() > Some(0), "{stats}");
    }
    assert_eq!(stats["pre_stores"]["enabled"], false);
    let table = fine(&["stats", &data]);
    assert!(
        table.contains("apart") && table.contains("Pre-stores: disabled, 0 issued."),
        "{table}"
    );
    // Two sizes that no machine has.
    let huge = tier.replace("64 MiB", "8000000 GiB");
    std::fs::write(dir.path().join("data/terrace.toml"), text.replace(tier, &huge))
        .expect("written");
    let (code, _, stderr) = run(&["stats", &data]);
    assert!(code == 2 && stderr.contains("`maps.b.tier`: tier apart: "), "{code}: {stderr}");
    // A map that is not there yet had its tier printed here, and refused by `open`.
    let absent = text.replace(tier, &huge).replace("maps.b", "maps.c");
    std::fs::write(dir.path().join("data/terrace.toml"), absent).expect("written");
    let refused = ["stats", "open"].map(|command| run(&[command, &data]));
    assert!(refused[0].2.contains("`maps.c.tier`: tier apart: "), "{refused:?}");
    let [stats, open] =
        refused.map(|(code, _, said)| (code, said.lines().next().map(String::from)));
    assert_eq!(stats, open);
}

#[test]
fn a_bench_tells_where_it_wrote_back_early_and_switched_off_that_it_did_not() {
    let shm = Path::new("/dev/shm");
    let dir = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() };
    let dir = dir.expect("temporary directory");
    let lines = |name: &str, on: &str| {
        let data = path(dir.path(), name);
        let output = fine(&[
            "bench",
            "ycsb",
            "--workload",
            "A",
            "--keys",
            "2000",
            "--seconds",
            "0.1",
            "--dir",
            &data,
            "--domain",
            "eadr",
            "--pre-stores",
            on,
            "--json",
        ]);
        let report: serde_json::Value = serde_json::from_str(&output).expect("JSON");
        assert_eq!(report["pre_stores"]["enabled"].to_string(), on);
        let sites = report["pre_stores"]["sites"].as_array().expect("sites").clone();
        sites.iter().filter_map(|site| site["lines"].as_u64()).sum::<u64>()
    };
    assert!(lines("on", "true") > 2000);
    assert_eq!(lines("off", "false"), 0);
}

#[test]
fn a_map_goes_through_every_format_and_back() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let data = path(dir.path(), "data");
    for key in 0..50 {
        fine(&["put", &data, "m", &format!("key{key}"), &"v".repeat(key)]);
    }
    let all = sorted(&fine(&["scan", &data, "m", "--json"]));
    for format in ["binary", "csv", "jsonl"] {
        let file = path(dir.path(), format);
        let out = fine(&["export", &data, "m", &file, "--format", format]);
        assert!(out.starts_with("exported 50 records"), "{out}");
        fine(&["import", &data, format, &file, "--format", format]);
        assert_eq!(sorted(&fine(&["scan", &data, format, "--json"])), all, "{format}");
    }
    // What is there is not overwritten unasked.
    let file = path(dir.path(), "csv");
    let (code, _, stderr) = run(&["export", &data, "m", &file]);
    assert!(code == 1 && stderr.contains("--force"), "{stderr}");
    let csv = fine(&["export", &data, "m", "-", "--format", "csv"]);
    assert_eq!(csv.lines().count(), 51);
}

fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<_> = text.lines().map(String::from).collect();
    lines.sort();
    lines
}

#[test]
fn a_damaged_export_imports_nothing_unless_asked() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (data, file) = (path(dir.path(), "data"), path(dir.path(), "file"));
    let csv: String = std::iter::once("key,value\n".to_string())
        .chain((0..20_000).map(|i| format!("key{i},{}\n", "x".repeat(100))))
        .collect();
    let text = path(dir.path(), "text");
    std::fs::write(&text, csv).expect("written");
    fine(&["import", &data, "a", &text, "--format", "csv"]);
    fine(&["export", &data, "a", &file]);
    let mut bytes = std::fs::read(&file).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, &bytes).expect("written");

    let (code, _, stderr) = run(&["import", &data, "b", &file]);
    assert!(code == 1 && stderr.contains("damaged at offset"), "{stderr}");
    assert!(stderr.contains("--salvage"), "{stderr}");
    assert_eq!(run(&["get", &data, "b", "key0"]).0, 1);
    let (code, out, stderr) = run(&["import", &data, "b", &file, "--salvage"]);
    assert!(code == 0 && out.starts_with("imported 1"), "{out}{stderr}");
    assert!(stderr.contains("skipped: offset"), "{stderr}");
    assert_eq!(run(&["import", &data, "b", &file, "--verify"]).0, 1);
}

#[test]
fn usage_errors_exit_with_2_and_failures_with_1() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let data = path(dir.path(), "data");
    fine(&["put", &data, "m", "k", "v"]);
    let (nowhere, file) = (path(dir.path(), "nowhere"), path(dir.path(), "file"));
    std::fs::write(&file, "a letter").expect("written");
    let below = path(dir.path(), "nowhere/export");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let nobody = "127.0.0.1:1";
    let cases: &[(&[&str], i32, &str)] = &[
        (&["gett"], 2, "unrecognized subcommand 'gett'"),
        (&["get", &data], 2, "required arguments"),
        (&["get", &nowhere, "m", "k"], 1, "no such directory; check the path"),
        (&["get", &file, "m", "k"], 1, "file is a file; a database is a directory"),
        (&["get", &data, "n", "k"], 1, "no map `n`; known maps: m"),
        (&["put", &file, "m", "k", "v"], 1, "file is a file; a database is a directory"),
        (&["serve", &data, "--durability", "fsync"], 2, "did you mean \"sync\"?"),
        (&["serve", &data, "--durability", "fsync"], 2, "try 'terrace serve --help'"),
        (&["serve", &data, "--memory-budget", "much"], 2, "is not a size"),
        (&["serve", &file], 1, "file is a file; a database is a directory"),
        (&["serve", "/proc/nowhere"], 1, "check the path and its permissions"),
        (&["serve", &data, "--port", &port], 1, "choose another port with --port"),
        (&["bench", "ycsb", "--workload", "E"], 2, "give --kind ordered"),
        (&["bench", "ycsb", "--keys", "0"], 2, "--keys must be 1 to"),
        (&["bench", "ycsb", "--keys", "0"], 2, "try 'terrace bench ycsb --help'"),
        (&["bench", "ycsb", "--value-size", "7"], 2, "--value-size must be 8 to"),
        (&["bench", "ycsb", "--seconds", "0"], 2, "more than 0"),
        (&["bench", "ycsb", "--seconds", "nan"], 2, "more than 0"),
        (&["bench", "ycsb", "--dir", &file], 1, "file is a file; a database is a directory"),
        (&["bench", "server", "--keys", "0"], 2, "--keys 0: expected 1 to"),
        (&["bench", "server", "--seconds", "0"], 2, "more than 0"),
        (&["export", &nowhere, "m", &file], 1, "exists; --force"),
        (&["export", &nowhere, "m", "-"], 1, "no such directory; check the path"),
        (&["export", &data, "m", &below], 1, "make it, or check the path"),
        (&["export", &data, "0", "-", "--server", nobody], 1, "start it with `terrace serve DIR`"),
        (&["export", &data, "0", "-", "--server", "here"], 1, "expected HOST:PORT"),
        (&["import", &data, "m", &nowhere], 1, "No such file or directory (os error 2); check"),
        (&["import", &data, "m", &data], 1, "is a directory; name a file"),
        (&["import", &file, "m", "/dev/null", "--format", "jsonl"], 1, "file is a file"),
        (&["place", &nowhere, "--server", nobody], 2, "nowhere: No such file"),
        (&["place", &file, "--server", nobody], 1, "start it with `terrace serve DIR`"),
    ];
    for (arguments, expected, words) in cases {
        let (code, _, stderr) = run(arguments);
        assert_eq!(code, *expected, "{arguments:?}: {stderr}");
        assert!(stderr.contains(words), "{arguments:?}: {stderr}");
    }
    assert!(!Path::new(&nowhere).exists(), "reading makes nothing");

    std::fs::write(path(dir.path(), "data/terrace.toml"), "port = 1\nvalue = \"log\"\n")
        .expect("written");
    let (code, _, stderr) = run(&["get", &data, "m", "k"]);
    assert_eq!(code, 2);
    assert!(
        stderr.contains("terrace.toml:2: unknown key `value`; did you mean `values`?"),
        "{stderr}"
    );
}

/// They were called damaged, with the advice to salvage them, or named by a line without a file.
#[test]
fn files_that_are_no_exports_are_refused_by_name_with_the_way_out() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let data = path(dir.path(), "data");
    fine(&["put", &data, "m", "k", "v"]);
    for format in ["binary", "csv", "jsonl"] {
        fine(&["export", &data, "m", &path(dir.path(), format), "--format", format]);
    }
    std::fs::write(path(dir.path(), "letter"), "a letter\n").expect("written");
    std::fs::write(path(dir.path(), "empty"), "").expect("written");
    for file in ["binary", "csv", "jsonl", "letter", "empty"] {
        for asked in ["binary", "csv", "jsonl"] {
            let is_empty_of_lines = (file, asked) == ("empty", "jsonl");
            if file == asked || is_empty_of_lines {
                continue;
            }
            let import = ["import", &data, "new", &path(dir.path(), file), "--format", asked];
            let (code, _, stderr) = run(&import);
            let way = match file {
                "letter" | "empty" if asked == "binary" => "`terrace export` wrote".to_string(),
                "letter" | "empty" => format!("check that it is {asked}"),
                _ => format!("it looks like {file}: give --format {file}"),
            };
            assert_eq!(code, 1, "{file} as {asked}: {stderr}");
            let named = format!("/{file}: ");
            assert!(stderr.contains(&named) && stderr.contains(&way), "{file}, {asked}: {stderr}");
            assert!(!stderr.contains("--salvage"), "{file} as {asked}: {stderr}");
        }
    }
    assert!(fine(&["stats", &data, "--json"]).matches("\"keys\"").count() == 1, "no map is made");
    let new = path(dir.path(), "new");
    let (code, _, stderr) = run(&["import", &new, "m", &path(dir.path(), "binary")]);
    assert!(code == 0 && stderr.contains("made a new database in"), "{stderr}");
}

#[test]
fn the_benchmark_runs_small_and_its_reads_are_sound() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let data = path(dir.path(), "bench");
    let out = fine(&[
        "bench",
        "ycsb",
        "--keys",
        "2000",
        "--seconds",
        "0.05",
        "--threads",
        "2",
        "--dir",
        &data,
        "--workload",
        "A",
        "--workload",
        "G",
        "--memory-budget",
        "256 MiB",
        "--json",
    ]);
    let report: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    for phase in report["workloads"].as_array().expect("workloads") {
        assert_eq!((&phase["misses"], &phase["bad"]), (&0.into(), &0.into()));
        assert!(phase["latency"]["all"]["p99_99_us"].as_f64().expect("latency") > 0.0);
    }
}

#[test]
fn the_topology_names_a_node() {
    let report: serde_json::Value =
        serde_json::from_str(&fine(&["topology", "--json"])).expect("JSON");
    assert!(!report["nodes"].as_array().expect("nodes").is_empty());
}

#[test]
fn crash_tests_tell_their_states_and_controls_as_json() {
    let asked = [
        "crash-test",
        "map-mirrored-threads",
        "shadow-swaps",
        "--all",
        "--states",
        "300",
        "--json",
    ];
    let told: serde_json::Value = serde_json::from_str(&fine(&asked)).expect("JSON");
    let tests = told["tests"].as_array().expect("tests");
    assert_eq!(tests.len(), 2);
    assert_eq!(
        (&tests[0]["name"], &tests[1]["name"]),
        (&"map-mirrored-threads".into(), &"shadow-swaps".into())
    );
    for test in tests {
        assert!(test["states"].as_u64() >= Some(300) && test["violations"] == 0, "{test}");
    }
    let controls = tests[0]["controls"].as_array().expect("controls");
    assert_eq!(controls.len(), 3);
    for control in controls {
        assert!(control["name"].is_string() && control["states"].is_u64(), "{control}");
        assert_eq!(control["caught"], true, "{control}");
    }
}

/// Pages survive where there is a file below; what needs single lines is refused by name.
#[test]
fn a_page_cache_has_tests_of_its_own() {
    // 5000 states are more than all.
    for (test, states, is_exhausted) in [("map-disk", "5000", true), ("map-disk", "300", false)] {
        let asked = ["crash-test", test, "--domain", "page-cache", "--states", states, "--json"];
        let told: serde_json::Value = serde_json::from_str(&fine(&asked)).expect("JSON");
        assert_eq!((&told["domain"], &told["missed"]), (&"PageCache".into(), &0.into()));
        assert_eq!(told["tests"][0]["exhausted"], is_exhausted, "{told}");
    }

    let (code, _, stderr) = run(&["crash-test", "map-slabs", "--domain", "page-cache"]);
    assert_eq!(code, 2);
    assert!(stderr.contains("map-slabs needs byte-addressable memory"), "{stderr}");
    assert!(stderr.contains("map-disk"), "{stderr}");
    let (code, _, stderr) = run(&["crash-test", "--domain", "pages"]);
    assert_eq!(code, 2);
    assert!(stderr.contains("adr, eadr or page-cache"), "{stderr}");
}

/// A connection that broke while records were sent ended the command quietly, as a pipe does whose reader has gone:
/// exit code 0, and a part of the records.
#[test]
fn a_server_that_ends_while_records_are_sent_is_a_failure_that_names_it() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = path(dir.path(), "all.jsonl");
    // More than a socket takes before its other end reads.
    let value = "v".repeat(16 << 20);
    std::fs::write(&file, format!("{{\"key\":\"k\",\"value\":\"{value}\"}}\n")).expect("written");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let server = listener.local_addr().expect("an address").to_string();
    let ends = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut selected = [0; 64];
        assert!(stream.read(&mut selected).expect("SELECT") > 0);
        stream.write_all(b"+OK\r\n").expect("answered");
        assert!(stream.read(&mut selected).expect("SET") > 0);
    });
    let import = ["import", "-", "0", &file, "--format", "jsonl", "--server", &server];
    let (code, stdout, stderr) = run(&import);
    ends.join().expect("no panic");
    assert_eq!(code, 1, "{stdout}{stderr}");
    assert!(stderr.contains(&server) && stderr.contains("not complete"), "{stderr}");
    assert!(!stderr.contains("all.jsonl"), "{stderr}");
}

/// An argument that is no text, beside another that is wrong, ended the process with a panic.
#[test]
fn an_argument_that_is_no_text_is_refused_like_any_other() {
    use std::os::unix::ffi::OsStrExt;
    let dir = std::ffi::OsStr::from_bytes(b"/nowhere/d\xff");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_terrace"))
        .arg("serve")
        .arg(dir)
        .args(["--durability", "fsync"])
        .output()
        .expect("it starts");
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
}
