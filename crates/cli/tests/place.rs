//! `terrace place` as a process: from a file, from a directory at rest, from a running server.

use crate::common::{Served, run};
use redis::Commands;
use serde_json::Value;
use std::path::{Path, PathBuf};
use terrace_advise::place::EXAMPLE;

/// Nodes by the names of the directory's tiers, the near one too small for the values.
const NODES: &str = r#"
    [[node]]
    name = "near"
    capacity = "900 KiB"
    local = true
    read_ns = 80
    write_ns = 60
    read_gb_s = 80
    write_gb_s = 40
    [[node]]
    name = "far"
    capacity = "1 GiB"
    local = false
    read_ns = 300
    write_ns = 200
    read_gb_s = 30
    write_gb_s = 15
"#;

fn file(dir: &Path, text: &str) -> PathBuf {
    let path = dir.join("question.toml");
    std::fs::write(&path, text).expect("written");
    path
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

#[test]
fn a_question_is_answered_as_a_table_and_as_json() {
    let dir = tempfile::tempdir().expect("directory");
    let path = file(dir.path(), EXAMPLE);
    let path = path.to_str().expect("text");
    let (code, table, _) = run(&["place", path]);
    assert_eq!(code, 0);
    assert!(table.contains("the rule (lowest EBR nearest) and the cheapest"), "{table}");
    // In units, with what to change: "0.036 threads wait for memory, 1.58 times what they would" told nobody anything.
    assert!(
        table.contains("Predicted memory stall: ") && table.contains(" ns per access"),
        "{table}"
    );
    assert!(table.contains("everything on pmem0 (give it 1 GiB more)."), "{table}");
    let (_, text, _) = run(&["place", path, "--json"]);
    let found = json(&text);
    assert_eq!((&found["agrees"], &found["placed"][1]["node"]), (&true.into(), &"pmem0".into()));
}

#[test]
fn bad_questions_end_with_2_and_one_line() {
    let dir = tempfile::tempdir().expect("directory");
    let cases = [
        (EXAMPLE.replace("ebr = 0.10", ""), "structure `record store`: `ebr` is missing"),
        (NODES.into(), "no [[structure]]; at least one is needed"),
    ];
    for (text, expected) in cases {
        let path = file(dir.path(), &text);
        let (code, _, error) = run(&["place", path.to_str().expect("text")]);
        assert!(code == 2 && error.contains(expected), "{code}: {error}");
    }
    let (code, _, error) = run(&["place", "/nowhere.toml"]);
    assert!(code == 2 && error.contains("/nowhere.toml: No such file"), "{error}");
}

/// It said that `format` is an unknown field.
#[test]
fn a_profile_is_refused_with_how_to_name_it() {
    let dir = tempfile::tempdir().expect("directory");
    let json = profile(dir.path(), "Elsewhere 9000", &["node0"]);
    let other = dir.path().join("profile").to_str().expect("text").to_string();
    std::fs::copy(&json, &other).expect("copied");
    for path in [json, other] {
        let (code, _, error) = run(&["place", &path]);
        assert!(code == 2 && error.contains(&format!("{path}: this is a profile")), "{error}");
        assert!(error.contains("(`profile = \"FILE\"`)"), "{error}");
    }
}

#[test]
fn maps_at_rest_are_placed_and_their_settings_are_ready() {
    let dir = tempfile::tempdir().expect("directory");
    let data = dir.path().join("data");
    std::fs::create_dir(&data).expect("made");
    let tiers =
        "[[tier]]\nname = \"near\"\nkind = \"dram\"\n[[tier]]\nname = \"far\"\nkind = \"dram\"\n";
    std::fs::write(data.join("terrace.toml"), tiers).expect("written");
    let data = data.to_str().expect("text");
    let value = "x".repeat(100_000);
    for key in 0..12 {
        assert_eq!(run(&["put", data, "users", &key.to_string(), &value]).0, 0);
    }
    let path = file(dir.path(), NODES);
    let question = ["place", path.to_str().expect("text"), "--map", data];
    let (code, _, error) = run(&question);
    assert!(code == 2 && error.contains("--reads-per-s"), "{error}");
    let rates = ["--reads-per-s", "1e5", "--writes-per-s", "1e4"];
    let (_, text, error) = run(&[&question[..], &rates, &["--json"]].concat());
    assert_eq!(error, "");
    let found = json(&text);
    let settings = "[maps.users]\ntier = \"far\"\nindex_tier = \"near\"\n";
    assert_eq!(found["terrace_toml"], settings, "{text}");
    let (_, table, _) = run(&[&question[..], &rates].concat());
    // Once one line of 450 characters.
    assert!(table.contains("assumed:\n  The given rates"), "{table}");
    assert!(table.lines().all(|line| line.len() <= 130), "{table}");
    // And the piece is one that the database takes.
    let with = format!("{tiers}\n{}", found["terrace_toml"].as_str().expect("text"));
    std::fs::write(Path::new(data).join("terrace.toml"), with).expect("written");
    assert_eq!(run(&["get", data, "users", "3"]).1.trim_end(), value);
}

/// A profile of a machine of `processor` with the parts that `terrace place` needs, in `dir`.
fn profile(dir: &Path, processor: &str, nodes: &[&str]) -> String {
    let of_node = |name: &&str| {
        let ns = serde_json::json!({"mean_ns": [80.0], "p50_ns": [80.0], "p99_ns": [90.0]});
        let bandwidth = ["read", "store", "store-flush"].map(|flavour| {
            serde_json::json!({
                "flavour": flavour, "is_random": true, "piece_bytes": 64, "threads": 1, "gb_s": [5.0]
            })
        });
        serde_json::json!({
            "name": name, "latency": [{"bytes": 1 << 30, "load": ns}], "bandwidth": bandwidth,
            "loaded": [], "dirty_cache": [],
            "stores": [{"flavour": "store-flush", "piece_bytes": 64, "piece": ns}],
        })
    };
    let profile = serde_json::json!({
        "format": "terrace-profile", "version": 1, "taken_at": [], "pages": [], "copies": [],
        "machine": {
            "name": "this machine", "is_modelled": false, "processor": processor, "threads": 99,
            "cache_bytes": 1 << 20, "nodes": nodes,
        },
        "nodes": nodes.iter().map(of_node).collect::<Vec<_>>(),
    });
    let path = dir.join("profile.json");
    std::fs::write(&path, profile.to_string()).expect("written");
    path.to_str().expect("text").into()
}

#[test]
fn figures_of_another_machine_are_said_to_be_and_where_they_are_taken_for_this_one_warned_of() {
    let dir = tempfile::tempdir().expect("directory");
    let profile = profile(dir.path(), "Elsewhere 9000", &["node0"]);
    let text = format!(
        "profile = {profile:?}\n[[node]]\nname = \"0\"\ncapacity = \"1 GiB\"\n[[structure]]\nname = \"a\"\n\
         bytes = 64\nebr = 0.1\naccesses_per_s = 1\nread_share = 1\n"
    );
    let path = file(dir.path(), &text);
    let path = path.to_str().expect("text");
    let (code, table, said) = run(&["place", path]);
    let of = format!(
        "figures of memories: of {profile}: Elsewhere 9000, 99 threads, largest cache 1 MiB, node0"
    );
    assert!(code == 0 && table.contains(&of), "{table}{said}");
    assert_eq!(said, "", "a question may be of any machine");
    let found = json(&run(&["place", path, "--json"]).1);
    assert_eq!(found["figures"]["profile"]["machine"]["processor"], "Elsewhere 9000");
    // Of a directory on this machine they are another's.
    let data = dir.path().join("data");
    let data = data.to_str().expect("text");
    assert_eq!(run(&["put", data, "users", "key", "value"]).0, 0);
    let warning = format!("warning: {profile} is of another machine, by its ");
    let is_told = |said: &str| {
        let way = "; `terrace probe --out FILE` measures this one\n";
        said.starts_with(&warning) && said.ends_with(way) && said.lines().count() == 1
    };
    let rates = ["--reads-per-s", "1e5", "--writes-per-s", "1e4"];
    let (code, _, said) = run(&[&["place", path, "--map", data][..], &rates].concat());
    assert!(code == 0 && is_told(&said), "{said}");
    // And where the engine follows them.
    let toml = format!("profile = {profile:?}\nprofile_node = 0\n");
    std::fs::write(Path::new(data).join("terrace.toml"), toml).expect("written");
    let (code, value, said) = run(&["get", data, "users", "key"]);
    assert!(code == 0 && value == "value" && is_told(&said), "{value}{said}");
    let (code, _, said) = run(&["open", data]);
    assert!(code == 0 && is_told(&said), "{said}");
    assert!(said.contains(": Elsewhere 9000, 99 threads"), "{said}");
}

#[test]
fn a_node_of_a_profile_is_the_tier_that_is_on_it_alone() {
    let dir = tempfile::tempdir().expect("directory");
    let profile = profile(dir.path(), "Elsewhere 9000", &["node0"]);
    let data = dir.path().join("data");
    let data = data.to_str().expect("text");
    assert_eq!(run(&["put", data, "users", "key", "value"]).0, 0);
    let nodes =
        format!("profile = {profile:?}\n[[node]]\nname = \"node0\"\ncapacity = \"1 GiB\"\n");
    let path = file(dir.path(), &nodes);
    let question = ["place", path.to_str().expect("text"), "--map", data, "--json"];
    let rates = ["--reads-per-s", "1e5", "--writes-per-s", "1e4"];
    let settings = || json(&run(&[&question[..], &rates].concat()).1)["terrace_toml"].clone();
    let found = settings();
    let found = found.as_str().expect("settings");
    assert!(found.contains("tier = \"dram"), "what this machine calls its node 0: {found}");
    // Where a second tier is on the node, which is meant is not known.
    let second = "[[tier]]\nname = \"second\"\nkind = \"dram\"\nnode = 0\n";
    std::fs::write(Path::new(data).join("terrace.toml"), second).expect("written");
    assert_eq!(settings(), Value::Null);
}

#[test]
fn a_rule_that_was_compared_with_nothing_agrees_with_nothing() {
    let dir = tempfile::tempdir().expect("directory");
    let structure = |number| {
        format!(
            "[[structure]]\nname = \"s{number}\"\nbytes = 64\nebr = 0.1\naccesses_per_s = 1\nread_share = 1\n"
        )
    };
    let path = file(dir.path(), &(0..21).map(structure).chain([NODES.into()]).collect::<String>());
    let path = path.to_str().expect("text");
    let found = json(&run(&["place", path, "--json"]).1);
    let why = "there are 2097152 placements, more than the limit of 1048576";
    assert_eq!((&found["agrees"], &found["not_compared"]), (&Value::Null, &why.into()), "{found}");
    let table = run(&["place", path]).1;
    assert!(table.contains(&format!("not compared with other placements: {why}")), "{table}");
}

/// Two databases of the same size, one read a hundred times as often. Reads were once divided by keys, which made the
/// two the same.
#[test]
fn the_database_that_is_read_more_is_placed_nearer() {
    let dir = tempfile::tempdir().expect("directory");
    let served = Served::start(&dir.path().join("data"), &[]);
    let mut connections = [0, 1].map(|_| served.connect());
    for (database, connection) in connections.iter_mut().enumerate() {
        let _: () = redis::cmd("SELECT").arg(database).query(connection).expect("selected");
        for key in 0..100 {
            let _: () = connection.set(key, vec![7u8; 10_000]).expect("set");
        }
    }
    let server = format!("127.0.0.1:{}", served.port);
    let asked = |nodes: &str, often: usize, connections: &mut [redis::Connection; 2]| {
        let path = file(dir.path(), nodes);
        std::thread::scope(|scope| {
            let path = path.to_str().expect("text");
            let question = ["place", path, "--server", &server, "--seconds", "2", "--json"];
            let asked = scope.spawn(move || run(&question));
            while !asked.is_finished() {
                for read in 0..=100 {
                    let of = if read == 100 { 1 - often } else { often };
                    let _: Vec<u8> = connections[of].get(read % 100).expect("get");
                }
                // Written alike, and so little that sizes stay: neither is idle.
                for connection in connections.iter_mut() {
                    let _: () = connection.set("small", 1).expect("set");
                }
            }
            let (code, text, error) = asked.join().expect("no panic");
            assert_eq!(code, 0, "{error}");
            json(&text)
        })
    };
    for often in [0, 1] {
        let found = asked(&NODES.replace("900 KiB", "900 MiB"), often, &mut connections);
        let rate = |of: usize| found["maps"][of]["reads_per_s"].as_f64().expect("a number");
        // Reads are told 64 at a time: a slow machine tells few of them.
        assert!(rate(often) > 0.0 && rate(often) >= 3.0 * rate(1 - often), "{found}");
        // Room near for one of the two.
        let bytes = |field: &str| found["maps"][often][field].as_u64().expect("bytes");
        let room = bytes("live_bytes") * 3 / 2 + 2 * bytes("index_bytes");
        let nodes = NODES.replace("\"900 KiB\"", &room.to_string());
        let found = asked(&nodes, often, &mut connections);
        let place = |of: usize| {
            let name = format!("db{of}: values");
            let placed = found["placed"].as_array().expect("structures").iter();
            let mut of = placed.filter(|placed| placed["structure"] == name.as_str());
            of.next().expect("it is placed")["node"].clone()
        };
        assert_eq!((place(often), place(1 - often)), ("near".into(), "far".into()), "{found}");
        let mut assumed = found["assumed"].as_array().expect("sentences").iter();
        let is_told = |text: &Value| {
            text.as_str().is_some_and(|text| text.starts_with("Queues, word tables and ledgers"))
        };
        assert!(assumed.any(is_told), "{found}");
    }
    served.kill();
}

#[test]
fn a_servers_databases_are_placed_by_what_it_counts() {
    // A byte-addressable medium is written to by stores, which are no writes of a file.
    for domain in ["page-cache", "eadr"] {
        let dir = tempfile::tempdir().expect("directory");
        let served = Served::start(&dir.path().join("data"), &["--domain", domain]);
        let mut connection = served.connect();
        let _: () = connection.set("key", vec![7u8; 10_000]).expect("set");
        let path = file(dir.path(), &NODES.replace("900 KiB", "900 MiB"));
        let server = format!("127.0.0.1:{}", served.port);
        let mut sets = 0;
        let advice = std::thread::scope(|scope| {
            let path = path.to_str().expect("text");
            let question = ["place", path, "--server", &server, "--seconds", "2", "--json"];
            let asked = scope.spawn(move || run(&question));
            while !asked.is_finished() {
                // Reads are told 64 at a time.
                for _ in 0..64 {
                    let _: Vec<u8> = connection.get("key").expect("get");
                }
                let _: () = connection.set("key", vec![8u8; 10_000]).expect("set");
                sets += 1;
            }
            asked.join().expect("no panic")
        });
        assert_eq!(advice.0, 0, "{}", advice.2);
        let found = json(&advice.1);
        let map = &found["maps"][0];
        assert!(map["reads_per_s"].as_f64() > Some(0.0), "{found}");
        let written = map["written_bytes_per_s"].as_f64().expect("a number") * 2.0;
        let most = f64::from(sets) * 11_000.0;
        assert!((10_000.0..most).contains(&written), "{domain}: {written} of {most}: {found}");
        assert_eq!(found["placed"][1]["structure"], "db0: values");
        // No key takes what its log has room for.
        assert!((10_000..20_000).contains(&map["live_bytes"].as_u64().expect("a number")), "{map}");
        let path = path.to_str().expect("text");
        let (code, _, stderr) = run(&["place", path, "--server", &server, "--seconds", "1"]);
        assert!(code == 1 && stderr.contains("no operation used db0"), "{stderr}");
        served.kill();
    }
}
