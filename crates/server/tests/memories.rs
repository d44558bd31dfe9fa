//! What is told of memories: each with its budget and use, each database with its own; and of what the
//! engine writes back early.
#![allow(clippy::unwrap_used)]

use crate::common::{Client, Reply, TestServer, options};
use std::net::TcpStream;
use std::sync::Arc;
use terrace::laboratory::{Flush, Laboratory};
use terrace::memory::prestore;
use terrace::memory::tier::SystemPaths;
use terrace::memory::{ByteSize, Tier, TierKind, TierSpec, Topology};
use terrace::{Database, Domain, Durability, MapOptions, MapTiers};
use terrace_server::Server;

/// What EXEC answers to these commands, or its error.
fn together(client: &mut Client<TcpStream>, commands: &[&str]) -> String {
    assert_eq!(client.line("MULTI"), "OK");
    commands.iter().for_each(|command| assert_eq!(client.line(command), "QUEUED"));
    client.line("EXEC")
}

fn section(client: &mut Client<TcpStream>, name: &str) -> String {
    let Reply::Bulk(text) = client.call(&["INFO", name]) else { panic!("INFO") };
    String::from_utf8(text).unwrap()
}

/// The number of a field of a line of INFO.
fn field(text: &str, line: &str, field: &str) -> u64 {
    let rest = text.lines().find_map(|found| found.strip_prefix(&format!("{line}:")));
    let rest = rest.unwrap_or_else(|| panic!("no {line} in {text}"));
    let value = rest.split(',').find_map(|part| part.strip_prefix(&format!("{field}=")));
    value.unwrap_or_else(|| panic!("no {field} in {rest}")).parse().unwrap()
}

#[test]
fn each_memory_has_a_budget_and_each_database_its_memory() {
    let dir = tempfile::tempdir().unwrap();
    let maps = MapOptions {
        durability: Durability::None,
        memory_budget_bytes: 256 << 20,
        ..MapOptions::default()
    };
    let database = Arc::new(Database::open(dir.path(), maps).unwrap());
    let spec =
        TierSpec { bytes: Some(ByteSize(64 << 20)), ..TierSpec::new("apart", TierKind::Dram) };
    let tier = spec.resolve(&Topology::read().unwrap(), &SystemPaths).unwrap();
    let small = Tier { name: "small".into(), bytes: Some(1 << 20), ..tier.clone() };
    let tiers = MapTiers { values: Some(tier), index: Some(small), ..MapTiers::default() };
    database.map_builder("1").tiers(tiers).open().unwrap();
    let server = Server::start(Arc::clone(&database), options()).unwrap();
    let mut client = Client::connect(server.addresses().tcp[0]);
    let value = "x".repeat(1 << 20);
    for key in 0..20 {
        assert_eq!(client.call(&["SET", &key.to_string(), &value]), Reply::Simple("OK".into()));
    }
    assert_eq!(client.line("SELECT 1"), "OK");
    assert_eq!(client.call(&["SET", "key", &value]), Reply::Simple("OK".into()));

    let text = section(&mut client, "tiers");
    assert_eq!(field(&text, "tier_memory", "budget_bytes"), 256 << 20);
    assert_eq!(field(&text, "tier_apart", "budget_bytes"), 64 << 20);
    assert_eq!(field(&text, "tier_apart", "maps"), 1);
    assert!(
        text.contains("db0_memory:tier=memory,") && text.contains("db1_memory:tier=apart,"),
        "{text}"
    );
    assert!(text.contains("index_tier=memory,") && text.contains("index_tier=small,"), "{text}");
    assert_eq!((field(&text, "tier_small", "maps"), field(&text, "tier_small", "indexes")), (0, 1));
    assert_eq!(field(&text, "tier_small", "used_bytes"), field(&text, "db1_memory", "index_bytes"));
    assert!(field(&text, "db0_memory", "item_bytes_written") >= 20 << 20, "{text}");
    let (shared, apart) =
        (field(&text, "tier_memory", "used_bytes"), field(&text, "tier_apart", "used_bytes"));
    assert!(shared >= 20 << 20 && (1 << 20..32 << 20).contains(&apart), "{shared} {apart}");
    // An index that has no room says so in the word that clients know, and keys that are there are written.
    let refused =
        (0..1_000_000).find_map(|key| match client.call(&["SET", &format!("k{key}"), "x"]) {
            Reply::Error(refused) => Some(refused),
            _ => None,
        });
    let refused = refused.expect("a mebibyte holds no million of keys");
    assert!(refused.starts_with("OOM the index has no space for another key: "), "{refused}");
    assert!(refused.contains("of tier `small` used"), "{refused}");
    assert_eq!(client.call(&["SET", "key", "again"]), Reply::Simple("OK".into()));
    assert!(matches!(client.call(&["MSET", "key", "x", "new", "x"]), Reply::Error(_)));
    assert_eq!(client.call(&["GET", "key"]), Reply::Bulk("again".into()));
    // So are batches of such keys, and those that only delete; one new key, and nothing is done.
    assert_eq!(client.call(&["MSET", "key", "once more", "k1", "x"]), Reply::Simple("OK".into()));
    let refused = together(&mut client, &["DEL k2", "UNLINK k3 k4", "INCR none"]);
    assert!(
        refused
            .starts_with("-EXECABORT Transaction discarded because of: OOM the index has no space"),
        "{refused}"
    );
    assert_eq!(client.line("EXISTS k2 k3 k4"), ":3");
    assert_eq!(together(&mut client, &["DEL k2", "DEL absent", "SET key last"]), "[:1, :0, OK]");
    assert_eq!(
        (client.line("EXISTS k2"), client.line("GET key")),
        (":0".into(), "\"last\"".into())
    );
    // A deleted key of the batch that comes again is none that is new; one that was never there is.
    assert_eq!(together(&mut client, &["DEL k5", "SET k5 back"]), "[:1, OK]");
    assert_eq!(client.line("GET k5"), "\"back\"");
    assert_eq!(client.line("SET k2 back"), "OK");
    let refused = together(&mut client, &["DEL never", "SET never there"]);
    assert!(
        refused.starts_with("-EXECABORT Transaction discarded because of: OOM the index has"),
        "{refused}"
    );
    assert_eq!(client.line("EXISTS never"), ":0");
    // What all use is the sum, and the limit that CONFIG sets is of the one that is shared.
    let memory = section(&mut client, "memory");
    let used = memory.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
    assert!(used.parse::<u64>().unwrap() >= shared + apart, "{used} {shared} {apart}");
    assert_eq!(client.line("CONFIG SET maxmemory 100mb"), "OK");
    let text = section(&mut client, "tiers");
    assert_eq!(field(&text, "tier_memory", "budget_bytes"), 100 << 20);
    assert_eq!(field(&text, "tier_apart", "budget_bytes"), 64 << 20);
    drop(client);
    server.shutdown();
}

/// The switch and the counters belong to the process: nothing else here may pre-store.
#[test]
fn places_that_write_back_early_are_told_and_switched_off() {
    let maps = MapOptions {
        durability: Durability::Sync,
        domain: Domain::Eadr,
        laboratory: Laboratory { flush: Flush::Eager, ..Laboratory::default() },
        memory_budget_bytes: 256 << 20,
        ..MapOptions::default()
    };
    let server = TestServer::with_maps(options(), maps);
    let mut client = server.client();
    assert!(section(&mut client, "prestores").contains("prestores_enabled:1\r\n"));
    let value = "x".repeat(1000);
    let set = |client: &mut Client<TcpStream>| {
        (0..50).for_each(|key| drop(client.call(&["SET", &key.to_string(), &value])));
        field(&section(client, "prestores"), "prestore_site0", "calls")
    };
    let first = set(&mut client);
    assert!(first >= 50, "{first}");
    assert_eq!(client.line("CONFIG SET pre-stores no"), "OK");
    assert_eq!(
        (set(&mut client), client.line("CONFIG GET pre-stores")),
        (first, r#"["pre-stores", "no"]"#.into())
    );
    assert!(section(&mut client, "prestores").contains("prestores_enabled:0\r\n"));
    assert_eq!(client.line("CONFIG SET pre-stores yes"), "OK");
    assert!(set(&mut client) >= first + 50);
    let site = prestore::sites().into_iter().next().unwrap();
    let text = section(&mut client, "prestores");
    assert_eq!(field(&text, "prestore_site0", "line"), u64::from(site.line));
    assert!(site.bytes >= 100 * 1000 && site.lines >= site.bytes / 64, "{site:?}");
}
