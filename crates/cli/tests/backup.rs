//! `terrace backup` and `restore`: of a closed directory, and of one that a server has open.

use crate::common::{Served, run};
use std::path::Path;

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn fine(arguments: &[&str]) -> (String, String) {
    let (code, stdout, stderr) = run(arguments);
    assert_eq!(code, 0, "{arguments:?}: {stdout}{stderr}");
    (stdout, stderr)
}

fn refused(arguments: &[&str], code: i32) -> String {
    let (found, stdout, stderr) = run(arguments);
    assert_eq!((found, &*stdout), (code, ""), "{arguments:?}: {stderr}");
    stderr
}

#[test]
fn a_directory_is_backed_up_and_restored() {
    let folder = tempfile::tempdir().expect("folder");
    let at = |name: &str| text(&folder.path().join(name));
    let (data, monday, copy) = (at("data"), at("monday"), at("copy"));
    std::fs::create_dir(&data).expect("made");
    std::fs::write(at("data/terrace.toml"), "[maps.events]\nkind = \"ordered\"\n")
        .expect("written");
    for (map, key) in [("users", "ada"), ("events", "b"), ("events", "a")] {
        fine(&["put", &data, map, key, "value"]);
    }
    let (told, _) = fine(&["backup", &data, &monday]);
    assert!(told.starts_with("backed up 2 maps, 3 records"), "{told}");
    let (told, _) = fine(&["restore", &monday, "--verify"]);
    assert!(told.starts_with("verified 2 maps, 3 records"), "{told}");
    let (told, _) = fine(&["restore", &monday, &copy, "--json"]);
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(told["manifest"]["maps"][0]["kind"], "ordered", "{told}");
    assert_eq!(fine(&["get", &copy, "users", "ada"]).0, "value");
    // The settings came with it: the map is ordered.
    let (keys, _) = fine(&["scan", &copy, "events", "--from", "a"]);
    assert!(keys.find('a') < keys.find('b'), "{keys}");
    fine(&["verify", &copy]);
    // What is refused leaves the directory's settings as they are.
    std::fs::create_dir(at("bare")).expect("made");
    fine(&["put", &at("bare"), "users", "ada", "value"]);
    assert!(refused(&["restore", &monday, &at("bare")], 1).contains("has data already"));
    assert!(!folder.path().join("bare/terrace.toml").exists());

    assert!(refused(&["backup", &data, &monday], 1).contains("monday exists already"));
    assert!(refused(&["restore", &monday, &copy], 1).contains("has data already"));
    assert!(refused(&["restore", &data, &copy], 1).contains("is no backup"));
    assert!(refused(&["backup", &at("nowhere"), &at("x")], 1).contains("nowhere"));
    assert!(refused(&["restore", &monday], 2).contains("DIR"));
    let file = at("monday/maps/users.terrace");
    let mut bytes = std::fs::read(&file).expect("read");
    let last = bytes.len() - 30;
    bytes[last] ^= 1;
    std::fs::write(&file, bytes).expect("written");
    let said = refused(&["restore", &monday, "--verify"], 1);
    assert!(said.contains("users.terrace: damaged at offset"), "{said}");
    let said = refused(&["restore", &monday, &at("other")], 1);
    assert!(said.contains("users.terrace: damaged at offset"), "{said}");
}

#[test]
fn a_server_backs_up_what_it_serves() {
    let folder = tempfile::tempdir().expect("folder");
    let data = folder.path().join("data");
    let served = Served::start(&data, &[]);
    let mut connection = served.connect();
    for key in 0..3000 {
        redis::cmd("SET").arg(key).arg("value").exec(&mut connection).expect("set");
    }
    redis::cmd("RPUSH").arg("jobs").arg("one").exec(&mut connection).expect("pushed");
    let (server, dir) = (format!("127.0.0.1:{}", served.port), text(&data));
    let (told, said) = fine(&["backup", "--server", &server, &dir, "monday"]);
    let made = data.join("backups/monday");
    assert_eq!(told, format!("backed up to {}\n", text(&made)));
    assert!(said.contains("not in the backup: the queues jobs"), "{said}");
    let again = refused(&["backup", "--server", &server, &dir, "monday"], 1);
    assert!(again.contains("monday exists already"), "{again}");
    let wrong = refused(&["backup", "--server", &server, "-", "../monday"], 1);
    assert!(wrong.contains("the name of a backup"), "{wrong}");
    served.kill();

    let copy = text(&folder.path().join("copy"));
    let (told, _) = fine(&["restore", &text(&made), &copy]);
    assert!(told.starts_with("restored 1 maps, 3000 records"), "{told}");
    let served = Served::start(Path::new(&copy), &[]);
    let mut connection = served.connect();
    let keys: usize = redis::cmd("DBSIZE").query(&mut connection).expect("counted");
    assert_eq!(keys, 3000);
    served.terminate();
}
