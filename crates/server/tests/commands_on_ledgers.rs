//! Ledgers over the wire: accounts, blocks, hashes, and what is refused.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use crate::common::{Reply, TestServer, options};
use terrace::{Durability, MapOptions};

fn server() -> TestServer {
    let maps = MapOptions {
        durability: Durability::Sync,
        memory_budget_bytes: 512 << 20,
        ..MapOptions::default()
    };
    TestServer::with_maps(options(), maps)
}

#[test]
fn blocks_are_executed_as_if_one_order_after_another() {
    let server = server();
    let mut client = server.client();
    assert_eq!(client.line("LEDGER.OPEN bank 1 100 2 0 3 7"), ":3");
    let Reply::Array(told) =
        client.call(&["LEDGER.EXEC", "bank", "1", "2", "70", "1", "2", "70", "2", "3", "5"])
    else {
        panic!()
    };
    assert_eq!(told[0].to_string(), ":2");
    assert_eq!(told[2].to_string(), "[done, refused, done]");
    assert_eq!(client.line("LEDGER.BALANCE bank 1 2 3 4"), "[:30, :65, :12, nil]");
    assert_eq!(client.line("LEDGER.ACCOUNT bank 2"), "[:65, :0, :0, :0]");
    let Reply::Array(hash) = client.call(&["LEDGER.HASH", "bank"]) else { panic!() };
    assert_eq!(hash[0].to_string(), ":2");
    assert_eq!(hash[1].to_string(), told[1].to_string());
    // Another client sees the same, in whatever database it is.
    let mut other = server.client();
    assert_eq!(other.line("SELECT 3"), "OK");
    assert_eq!(other.line("LEDGER.BALANCE bank 1"), "[:30]");
}

#[test]
fn a_refused_block_changes_nothing() {
    let server = server();
    let mut client = server.client();
    assert_eq!(client.line("LEDGER.OPEN bank 1 100 2 0"), ":2");
    for (asked, told) in [
        (
            "LEDGER.EXEC other 1 2 3",
            "ERR no ledger 'other': LEDGER.OPEN opens accounts in it, and makes it",
        ),
        ("LEDGER.EXEC bank 1 2", "ERR an order of this ledger is: from to amount"),
        ("LEDGER.EXEC bank 1 2 -5", "ERR '-5' is not a number from 0 to 18446744073709551615"),
        (
            "LEDGER.EXEC bank 1 2 5 1 9 5",
            "ERR order 1 is about the account 9, which has not been opened",
        ),
        ("LEDGER.OPEN bank 5 1 2 0", "ERR account 2: the account exists"),
        ("LEDGER.OPEN bank 5", "ERR wrong number of arguments for 'ledger.open' command"),
        ("LEDGER.OPEN bank 5 1 6", "ERR LEDGER.OPEN takes pairs of an account and its balance"),
        (
            "LEDGER.OPEN a/b 5 1",
            "ERR ledger name: \"a/b\" is no name for a ledger: 1 to 64 letters",
        ),
        ("LEDGER.BALANCE bank x", "ERR 'x' is not a number from 0 to 18446744073709551615"),
    ] {
        let reply = client.line(asked);
        assert!(reply.contains(told), "{asked}: {reply}");
    }
    assert_eq!(client.line("LEDGER.BALANCE bank 1 2 5"), "[:100, :0, nil]");
    assert_eq!(client.line("MULTI"), "OK");
    let reply = client.line("LEDGER.HASH bank");
    assert!(reply.contains("ERR"), "{reply}");
}
