//! A value that is damaged on a byte-addressable medium: whoever asks for it is told the file and the place, and every
//! other key is served as before.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use crate::common::{Reply, TestServer, options, request};
use std::os::unix::fs::FileExt;
use terrace::{Access, Database, Domain, Durability, MapOptions, Persist, ValueDesign};

fn maps(values: ValueDesign) -> MapOptions {
    MapOptions {
        durability: Durability::Sync,
        memory_budget_bytes: 128 << 20,
        domain: Domain::Adr,
        persist: Persist::Index,
        values,
        ..MapOptions::default()
    }
}

/// Flips a bit in the middle of the only place where `bytes` stands in a file.
fn damage(path: &std::path::Path, bytes: &[u8]) {
    let image = std::fs::read(path).unwrap();
    let at = image.windows(bytes.len()).position(|window| window == bytes).unwrap();
    let at = at + bytes.len() / 2;
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&[image[at] ^ 4], at as u64).unwrap();
}

#[test]
fn a_damaged_value_is_told_with_its_place_and_others_are_served() {
    for (values, file) in [(ValueDesign::Log, "values.log"), (ValueDesign::Slab, "values.slab")] {
        let dir = tempfile::tempdir().unwrap();
        let database = Database::open(dir.path(), maps(values)).unwrap();
        let map = database.map("0").unwrap();
        for key in ["a", "b", "c"] {
            map.put(key.as_bytes(), format!("the value of {key}").as_bytes()).unwrap();
        }
        database.close().unwrap();
        drop(map);
        let found = std::fs::read_dir(dir.path().join("maps")).unwrap().next().unwrap().unwrap();
        damage(&found.path().join(file), b"the value of b");
        let server = TestServer::over(dir, options(), maps(values));
        let mut client = server.client();
        for _ in 0..2 {
            assert_eq!(client.line("GET a"), "\"the value of a\"");
            for line in ["GET b", "STRLEN b", "APPEND b x", "GETRANGE b 0 3", "RENAME b d"] {
                let told = client.line(line);
                assert!(told.starts_with("-ERR damaged: "), "{line}: {told}");
                assert!(told.contains(file) && told.contains("offset"), "{line}: {told}");
            }
            // In the middle of what is executed together, too.
            client.send(&[request(&["GET", "a"]), request(&["GET", "b"])].concat());
            client.send(&request(&["GET", "c"]));
            assert_eq!(client.reply().to_string(), "\"the value of a\"");
            assert!(client.reply().to_string().starts_with("-ERR damaged: "));
            assert_eq!(client.reply().to_string(), "\"the value of c\"");
            assert!(matches!(client.call(&["MGET", "a", "b", "c"]), Reply::Error(_)));
            assert_eq!(client.line("SET other x"), "OK");
        }
    }
}

/// A map that found no room to be opened to write is served, and says in INFO why it takes no writes.
#[test]
fn a_map_that_was_opened_on_a_full_disk_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let database = Database::open(dir.path(), maps(ValueDesign::Log)).unwrap();
    database.map("0").unwrap().put(b"a", b"value").unwrap();
    database.close().unwrap();
    // As its opening falls back to where a disk is full.
    let full = MapOptions { access: Access::FullDisk, ..maps(ValueDesign::Log) };
    let server = TestServer::over(dir, options(), full);
    let mut client = server.client();
    assert_eq!(client.line("GET a"), "\"value\"");
    let refused = client.line("SET a other");
    assert!(refused.starts_with("-MISCONF") && refused.contains("the disk was full"), "{refused}");
    let Reply::Bulk(info) = client.call(&["INFO", "persistence"]) else { panic!("a text") };
    let info = String::from_utf8(info).unwrap();
    assert!(info.contains("read_only:database 0 is read-only: the disk was full"), "{info}");
}
