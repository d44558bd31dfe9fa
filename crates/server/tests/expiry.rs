//! Keys that are due together.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use crate::common::{TestServer, eventually, info, request};
use std::time::{Duration, Instant};

/// 100,000 keys due at one moment took 5 to 6 seconds to leave.
#[test]
fn keys_due_together_leave_together() {
    const KEYS: usize = 100_000;
    let server = TestServer::start();
    let mut client = server.client();
    let due = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let due = (due + Duration::from_secs(4)).as_millis().to_string();
    for part in 0..KEYS / 1000 {
        let sets = (0..1000)
            .flat_map(|i| request(&["SET", &format!("key{}", part * 1000 + i), "v", "PXAT", &due]));
        client.send(&sets.collect::<Vec<u8>>());
        (0..1000).for_each(|_| assert_eq!(client.reply().to_string(), "OK"));
    }
    assert_eq!(client.line("SET stays 1"), "OK");
    assert_eq!(
        client.line("DBSIZE"),
        format!(":{}", KEYS + 1),
        "filled too late to see them leave"
    );
    eventually("the first leaves", || client.line("DBSIZE") != format!(":{}", KEYS + 1));
    let start = Instant::now();
    eventually("all leave", || client.line("DBSIZE") == ":1");
    let took = start.elapsed();
    assert!(took < Duration::from_millis(2500), "{took:?}");
    assert_eq!(info(&mut client, "expired_keys"), KEYS.to_string());
    assert_eq!(client.line("GET stays"), "\"1\"");
}

/// Where a tenth of the keys was due, too few were found at a time for the sweeps to go on at once: they went through
/// 20,000 items a second.
#[test]
fn a_tenth_of_the_keys_that_is_due_together_leaves_together() {
    const KEYS: usize = 400_000;
    let server = TestServer::start();
    let mut client = server.client();
    let due = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let due = (due + Duration::from_secs(6)).as_millis().to_string();
    for part in 0..KEYS / 1000 {
        let sets = (0..1000).flat_map(|i| {
            let key = format!("key{}", part * 1000 + i);
            match i % 11 {
                0 => request(&["SET", &key, "v", "PXAT", &due]),
                _ => request(&["SET", &key, "v"]),
            }
        });
        client.send(&sets.collect::<Vec<u8>>());
        (0..1000).for_each(|_| assert_eq!(client.reply().to_string(), "OK"));
    }
    assert_eq!(client.line("DBSIZE"), format!(":{KEYS}"), "filled too late to see them leave");
    eventually("the first leaves", || client.line("DBSIZE") != format!(":{KEYS}"));
    let start = Instant::now();
    let due = 91 * KEYS / 1000;
    eventually("all leave", || client.line("DBSIZE") == format!(":{}", KEYS - due));
    let took = start.elapsed();
    assert!(took < Duration::from_secs(4), "{took:?}");
}
