//! Commands about the server and lists that Redis documents, beside redis-server: INFO, QUIT, READONLY, READWRITE,
//! SAVE, LASTSAVE, TIME, BLPOP, LPUSHX, RPUSHX.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use crate::common::{Client, RealRedis, Reply, TestServer};
use std::net::SocketAddr;

#[test]
fn commands_of_clusters_and_of_saving() {
    crate::common::script::run(
        r#"
        READONLY => -ERR This instance has cluster support disabled
        READONLY x => -ERR wrong number of arguments for 'readonly' command
        READWRITE => -ERR This instance has cluster support disabled
        READWRITE x => -ERR wrong number of arguments for 'readwrite' command
        LASTSAVE => :1700000000..9999999999
        LASTSAVE x => -ERR wrong number of arguments for 'lastsave' command
        SAVE => OK
        SAVE x => -ERR wrong number of arguments for 'save' command
        TIME => ["1*
        TIME x => -ERR wrong number of arguments for 'time' command
        MULTI => OK
        SAVE => -ERR Command not allowed inside a transaction
        EXEC => -EXECABORT Transaction discarded because of previous errors.
        MULTI => OK
        READONLY => QUEUED
        READWRITE => QUEUED
        LASTSAVE => QUEUED
        EXEC => [-ERR This instance has cluster support disabled, -ERR This instance has cluster support disabled, :1*
        MULTI => OK
        TIME => QUEUED
        INFO nonsense => QUEUED
        EXEC => [["1*
    "#,
    );
}

#[test]
fn pushes_to_lists_that_are_there_and_pops_that_wait() {
    crate::common::script::run(
        r#"
        LPUSHX => -ERR wrong number of arguments for 'lpushx' command
        LPUSHX jobs => -ERR wrong number of arguments for 'lpushx' command
        LPUSHX jobs a => :0
        EXISTS jobs => :0
        LPUSH jobs a => :1
        LPUSHX jobs b c => :3
        RPOP jobs 3 => ["a", "b", "c"]
        LPUSHX jobs x => :0
        RPUSHX => -ERR wrong number of arguments for 'rpushx' command
        RPUSHX jobs => -ERR wrong number of arguments for 'rpushx' command
        RPUSHX jobs a b => :0
        RPUSH jobs a => :1
        RPUSHX jobs b c => :3
        LPOP jobs 3 => ["a", "b", "c"]
        RPUSHX jobs x => :0
        BLPOP => -ERR wrong number of arguments for 'blpop' command
        BLPOP jobs => -ERR wrong number of arguments for 'blpop' command
        BLPOP jobs nan => -ERR timeout is not a float or out of range
        BLPOP jobs x => -ERR timeout is not a float or out of range
        BLPOP jobs -0.5 => -ERR timeout is negative
        BLPOP jobs 0.01 => nil
        BLPOP jobs 0.01 0.01 => nil
        RPUSH jobs a b => :2
        BLPOP none jobs other 1 => ["jobs", "a"]
        BLPOP jobs jobs 0 => ["jobs", "b"]
        # A list may have the name of a key here; there is no waiting inside of MULTI.
        SET key v => OK
        LPUSHX key x !> :0
        RPUSHX key x !> :0
        BLPOP key 0.01 !> nil
        MULTI => OK
        BLPOP jobs 0 !> -ERR Command not allowed inside a transaction
        DISCARD => OK
        # No list waits for longer than there are numbers.
        BLPOP jobs inf !> -ERR timeout is not a float or out of range
    "#,
    );
}

fn addresses(server: &TestServer, redis: Option<&RealRedis>) -> Vec<SocketAddr> {
    [server.address()].into_iter().chain(redis.map(|redis| redis.address)).collect()
}

/// QUIT answers first, whatever comes with it, and what was sent behind it is not executed.
#[test]
fn quit_answers_and_closes() {
    let (server, redis) = (TestServer::start(), RealRedis::start());
    for address in addresses(&server, redis.as_ref()) {
        for lines in [&["QUIT"][..], &["QUIT", "SET a 1"], &["QUIT x"], &["MULTI", "QUIT"]] {
            let mut client = Client::connect(address);
            lines.iter().for_each(|line| client.send(format!("{line}\r\n").as_bytes()));
            let answers = "+OK\r\n".repeat(if lines[0] == "MULTI" { 2 } else { 1 });
            assert_eq!(
                client.rest().escape_ascii().to_string(),
                answers.as_bytes().escape_ascii().to_string(),
                "{lines:?} at {address}"
            );
        }
        assert_eq!(Client::connect(address).line("EXISTS a"), ":0", "{address}");
    }
}

/// The names of all fields of some sections, without the section's own when it is absent.
fn fields(address: SocketAddr, sections: &[&str]) -> (Vec<String>, Vec<String>) {
    let mut client = Client::connect(address);
    client.line("SET a 1");
    client.line("GET a");
    client.line("NONSENSE");
    let Reply::Bulk(text) = client.call(&[&["INFO"], sections].concat()) else { panic!("INFO") };
    let text = String::from_utf8(text).unwrap();
    let heads = text.lines().filter_map(|line| line.strip_prefix("# ")).map(String::from);
    let names = text.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.into());
    (heads.collect(), names.collect())
}

/// Fields of Redis that monitoring reads, and that mean something here, are here under their names, in the sections and
/// in the order that they have there.
#[test]
fn info_has_the_sections_of_redis_and_the_fields_that_are_read() {
    let (server, redis) = (TestServer::start(), RealRedis::start());
    let known = [
        "redis_version",
        "redis_mode",
        "os",
        "arch_bits",
        "process_id",
        "run_id",
        "tcp_port",
        "uptime_in_seconds",
        "connected_clients",
        "maxclients",
        "blocked_clients",
        "used_memory",
        "used_memory_human",
        "used_memory_rss",
        "maxmemory",
        "maxmemory_policy",
        "mem_fragmentation_ratio",
        "loading",
        "rdb_changes_since_last_save",
        "rdb_bgsave_in_progress",
        "rdb_last_save_time",
        "rdb_last_bgsave_status",
        "aof_enabled",
        "aof_last_write_status",
        "total_connections_received",
        "total_commands_processed",
        "instantaneous_ops_per_sec",
        "total_net_input_bytes",
        "total_net_output_bytes",
        "rejected_connections",
        "expired_keys",
        "evicted_keys",
        "keyspace_hits",
        "keyspace_misses",
        "total_error_replies",
        "role",
        "connected_slaves",
        "used_cpu_user",
        "used_cpu_sys",
        "cluster_enabled",
        "db0",
        "errorstat_ERR",
        "cmdstat_get",
        "latency_percentiles_usec_get",
    ];
    let all = addresses(&server, redis.as_ref()).into_iter().map(|address| {
        let (_, names) = fields(address, &["everything"]);
        for name in known {
            assert!(names.iter().any(|found| found == name), "{name} of {address}: {names:?}");
        }
        let (heads, names) = fields(address, &["nonsense"]);
        assert!(heads.is_empty() && names.is_empty(), "{heads:?} {names:?}");
        let some = ["cpu", "CLIENTS", "nonsense", "server", "server"];
        [&[][..], &["all"], &["everything"], &["default"], &some].map(|sections| {
            let mut heads = fields(address, sections).0;
            // Ours alone, behind those of Redis.
            let ours = ["Tiers", "Queues", "Ledgers", "Pools", "Prestores"];
            heads.retain(|head| !ours.contains(&&head[..]));
            heads
        })
    });
    let all: Vec<_> = all.collect();
    for theirs in &all[1..] {
        assert_eq!(&all[0], theirs);
    }
}

/// LASTSAVE tells the last SAVE, and TIME and LASTSAVE the same time.
#[test]
fn saving_moves_the_time_of_the_last_save() {
    let (server, redis) = (TestServer::start(), RealRedis::start());
    for address in addresses(&server, redis.as_ref()) {
        let mut client = Client::connect(address);
        let mut number = |line: &str| -> u64 {
            let text = client.line(line);
            let digits = text.trim_start_matches(|c: char| !c.is_ascii_digit());
            digits.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
        };
        let before = number("LASTSAVE");
        std::thread::sleep(std::time::Duration::from_millis(1_100));
        assert_eq!(number("LASTSAVE"), before);
        let mut saved = Client::connect(address);
        assert_eq!(saved.line("SAVE"), "OK");
        let (after, now) = (number("LASTSAVE"), number("TIME"));
        assert!(after > before && now - after <= 2, "{before} {after} {now}");
    }
}
