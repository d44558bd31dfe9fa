//! Connection and server commands, against ourselves and the real redis-server.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

mod common;
use common::{Reply, TestServer, info};

#[test]
fn the_connection_itself() {
    common::script::run(
        r#"
        PING => PONG
        ping hello => "hello"
        PING a b => -ERR wrong number of arguments for 'ping' command
        ECHO "a b" => "a b"
        ECHO => -ERR wrong number of arguments for 'echo' command
        SELECT 3 => OK
        RESET => RESET
        CLIENT GETNAME => nil
        CLIENT SETNAME me => OK
        CLIENT GETNAME => "me"
        CLIENT SETNAME "" => OK
        CLIENT SETNAME "a b" => -ERR Client names cannot contain spaces, newlines or special characters.
        CLIENT ID => :1..100
        CLIENT nonsense => -ERR unknown subcommand 'nonsense'. Try CLIENT HELP.
        CLIENT SETNAME => -ERR wrong number of arguments for 'client|setname' command
        CLIENT => -ERR wrong number of arguments for 'client' command
        CLIENT GETREDIR => :-1
        CLIENT NO-EVICT on => OK
        CLIENT NO-EVICT off => OK
        CLIENT NO-EVICT maybe => -ERR syntax error
        CLIENT NO-TOUCH on !> OK
        CLIENT SETINFO lib-name mine !> OK
        CLIENT SETINFO lib-ver 1.2 !> OK
        CLIENT SETINFO lib-ver "1 2" !> -ERR lib-ver cannot contain spaces, newlines or special characters.
        CLIENT SETINFO nonsense 1 !> -ERR Unrecognized option 'nonsense'
        CLIENT KILL 1.2.3.4:5 => -ERR No such client
        CLIENT KILL ID 4711 => :0
        CLIENT KILL ID x => -ERR client-id should be greater than 0
        CLIENT KILL nonsense 1 => -ERR syntax error
        CLIENT KILL TYPE pubsub => :0
        CLIENT KILL TYPE nonsense => -ERR Unknown client type 'nonsense'
        CLIENT KILL USER nobody => -ERR No such user 'nobody'
        CLIENT LIST TYPE nonsense => -ERR Unknown client type 'nonsense'
        CLIENT LIST ID x => -ERR Invalid client ID
        CLIENT LIST nonsense => -ERR syntax error
        CLIENT LIST TYPE pubsub => ""
        CLIENT INFO => "id=*
        CLIENT REPLY ON => OK
        CLIENT REPLY maybe => -ERR syntax error
        CLIENT PAUSE x => -ERR timeout is not an integer or out of range
        CLIENT PAUSE -1 => -ERR timeout is negative
        CLIENT PAUSE 1 nonsense => -ERR*
        CLIENT UNPAUSE => OK
        CLIENT TRACKINGINFO => ["flags", ["off"], "redirect", :-1, "prefixes", []]
        CLIENT HELP => [CLIENT <subcommand>*
        HELLO 4 => -NOPROTO unsupported protocol version
        HELLO x => -ERR Protocol version is not an integer or out of range
        HELLO 2 nonsense => -ERR Syntax error in HELLO option 'nonsense'
        HELLO 2 SETNAME "a b" => -ERR Client names cannot contain spaces, newlines or special characters.
        HELLO 2 => ["server", "redis", "version", "7.0.15", "proto", :2, "id", *
        HELLO => ["server", "redis", "version", "7.0.15", "proto", :2, "id", *
        HELLO 3 SETNAME you => {"server": "redis", "version": "7.0.15", "proto": :3, "id": *
        CLIENT GETNAME => "you"
        GET nothing => nil
        RESET => RESET
        CLIENT GETNAME => nil
        AUTH secret => -ERR AUTH <password> called without any password configured*
        AUTH default anything => OK
        AUTH nobody anything => -WRONGPASS invalid username-password pair or user is disabled.
        AUTH a b c => -ERR syntax error
    "#,
    );
}

#[test]
fn the_server() {
    common::script::run(
        r#"
        CONFIG SET slowlog-log-slower-than -1 => OK
        TIME => ["1*
        LASTSAVE => :1600000000..9600000000
        SAVE => OK
        WAIT 0 0 => :0
        WAIT x 0 => -ERR value is not an integer or out of range
        WAIT 0 -1 => -ERR timeout is negative
        WAIT 0 x => -ERR timeout is not an integer or out of range
        BGSAVE nonsense => -ERR syntax error
        BGSAVE => Background saving started
        ROLE => ["master", :0, []]
        SHUTDOWN nonsense => -ERR syntax error
        SHUTDOWN SAVE NOSAVE => -ERR syntax error
        SHUTDOWN ABORT => -ERR No shutdown in progress.
        CONFIG GET databases => ["databases", "16"]
        CONFIG GET nothing => []
        CONFIG GET SAVE => ["SAVE", ""]
        CONFIG SET maxmemory 100mb => OK
        CONFIG GET MAXMEMORY => ["MAXMEMORY", "104857600"]
        CONFIG GET MAXMEMOR? => ["maxmemory", "104857600"]
        CONFIG SET maxmemory x => -ERR CONFIG SET failed (possibly related to argument 'maxmemory')*
        CONFIG SET nonsense 1 => -ERR Unknown option or number of arguments for CONFIG SET - 'nonsense'
        CONFIG SET databases 5 => -ERR CONFIG SET failed (possibly related to argument 'databases')*
        CONFIG SET maxmemory 1gb timeout 100 => OK
        CONFIG SET timeout 0 timeout 1 => -ERR CONFIG SET failed (possibly related to argument 'timeout')*
        CONFIG GET timeout => ["timeout", "100"]
        CONFIG SET timeout => -ERR wrong number of arguments for 'config|set' command
        CONFIG GET => -ERR wrong number of arguments for 'config|get' command
        CONFIG REWRITE => -ERR The server is running without a config file
        CONFIG RESETSTAT => OK
        CONFIG nonsense => -ERR unknown subcommand 'nonsense'. Try CONFIG HELP.
        CONFIG SET maxmemory-policy allkeys-lru => OK
        CONFIG GET maxmemory-policy => ["maxmemory-policy", "allkeys-lru"]
        CONFIG SET maxmemory-policy noeviction => OK
        CONFIG SET appendfsync always => OK
        CONFIG GET appendfsync => ["appendfsync", "always"]
        SET a 1 => OK
        CONFIG SET appendfsync no => OK
        SLOWLOG GET 10 => []
        SLOWLOG LEN => :0
        SLOWLOG RESET => OK
        SLOWLOG GET x => -ERR count should be greater than or equal to -1
        SLOWLOG GET -2 => -ERR count should be greater than or equal to -1
        SLOWLOG nonsense => -ERR unknown subcommand 'nonsense'. Try SLOWLOG HELP.
        SLOWLOG HELP => [SLOWLOG <subcommand>*
        LATENCY LATEST => []
        LATENCY HISTORY command => []
        LATENCY RESET => :0
        LATENCY DOCTOR => "*
        LATENCY nonsense => -ERR unknown subcommand 'nonsense'. Try LATENCY HELP.
        LATENCY HELP => [LATENCY <subcommand>*
        MEMORY USAGE nothing => nil
        MEMORY USAGE a => :20..500
        MEMORY USAGE a SAMPLES 5 => :20..500
        MEMORY USAGE a SAMPLES -1 => -ERR syntax error
        MEMORY USAGE a nonsense 1 => -ERR syntax error
        MEMORY DOCTOR => "*
        MEMORY PURGE => OK
        MEMORY STATS => [*
        MEMORY nonsense => -ERR unknown subcommand 'nonsense'. Try MEMORY HELP.
        COMMAND COUNT => :60..400
        COMMAND INFO get !> [["get", :2, [readonly, fast], :1, :1, :1, [@read, @string, @fast], [], [], []]]
        COMMAND INFO nonsense => [nil]
        COMMAND GETKEYS MSET a 1 b 2 => ["a", "b"]
        COMMAND GETKEYS GET a => ["a"]
        COMMAND GETKEYS DEL a b c => ["a", "b", "c"]
        COMMAND GETKEYS PING x => -ERR The command has no key arguments
        COMMAND GETKEYS nonsense x => -ERR Invalid command specified
        COMMAND GETKEYS GET a b => -ERR Invalid number of arguments specified for command
        COMMAND GETKEYS GET => -ERR wrong number of arguments for 'command|getkeys' command
        COMMAND LIST FILTERBY PATTERN mset* !> ["mset", "msetnx"]
        COMMAND LIST FILTERBY nonsense x => -ERR syntax error
        COMMAND DOCS get => ["get", ["summary", "*
        COMMAND DOCS nonsense => []
        COMMAND nonsense => -ERR unknown subcommand 'nonsense'. Try COMMAND HELP.
        DEBUG SLEEP 1 !> -ERR DEBUG command not allowed. Terrace has no way to enable it.
        CLUSTER INFO => -ERR This instance has cluster support disabled
        READONLY => -ERR This instance has cluster support disabled
    "#,
    );
}

#[test]
fn what_is_not_here_says_so() {
    common::script::run(
        r#"
        SADD l 1 !> -ERR SADD is not supported by Terrace: this server keeps strings and queues
        hset h f v !> -ERR HSET is not supported by Terrace: this server keeps strings and queues
        @2 SUBSCRIBE c !> -ERR SUBSCRIBE is not supported by Terrace: this server keeps strings and queues
        EVAL x 0 !> -ERR EVAL is not supported by Terrace: this server keeps strings and queues
        LOLWUT !> -ERR LOLWUT is not supported by Terrace: this server keeps strings and queues
        GEORADIUSBYMEMBER_RO a b !> -ERR GEORADIUSBYMEMBER_RO is not supported by Terrace: this server keeps strings*
        NONSENSE => -ERR unknown command 'NONSENSE', with args beginning with: 
        nonsense a "b c" => -ERR unknown command 'nonsense', with args beginning with: 'a' 'b c' 
        "" a => -ERR unknown command '', with args beginning with: 'a' 
        PING => PONG
    "#,
    );
}

#[test]
fn info_has_its_sections() {
    let server = TestServer::start();
    let mut client = server.client();
    client.line("SET a 1");
    client.line("GET a");
    client.line("GET nothing");
    client.line("LPUSH jobs 1");
    client.line("LEDGER.OPEN bank 1 100");
    let Reply::Bulk(text) = client.call(&["INFO"]) else { panic!("INFO") };
    let text = String::from_utf8(text).unwrap();
    for section in [
        "Server",
        "Clients",
        "Memory",
        "Persistence",
        "Stats",
        "Replication",
        "CPU",
        "Modules",
        "Cluster",
        "Keyspace",
        "Tiers",
        "Queues",
        "Ledgers",
        "Prestores",
    ] {
        assert!(text.contains(&format!("# {section}\r\n")), "{section} in {text}");
    }
    assert!(!text.contains("# Commandstats"));
    let Reply::Bulk(text) = client.call(&["INFO", "commandstats", "keyspace"]) else {
        panic!("INFO")
    };
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("cmdstat_get:calls=2,") && text.contains("db0:keys=1,"), "{text}");
    assert!(!text.contains("# Server"));
    assert_eq!(info(&mut client, "keyspace_hits"), "1");
    assert_eq!(info(&mut client, "keyspace_misses"), "1");
    assert_eq!(info(&mut client, "connected_clients"), "1");
    assert!(info(&mut client, "db0_memory").starts_with("tier=memory,keys=1,"));
    let jobs = info(&mut client, "queue_jobs");
    assert!(jobs.starts_with("elements=1,") && jobs.ends_with(",form=tx-free"), "{jobs}");
    assert!(
        info(&mut client, "ledger_bank").starts_with("profile=smallcoin,accounts=1,entries=1,")
    );
    assert!(info(&mut client, "latency_percentiles_usec_get").starts_with("p50="));
    assert_eq!(client.line("CONFIG RESETSTAT"), "OK");
    assert_eq!(info(&mut client, "keyspace_hits"), "0");
}

#[test]
fn clients_are_listed_and_killed() {
    let server = TestServer::start();
    let (mut first, mut second, mut third) = (server.client(), server.client(), server.client());
    for (client, name) in [(&mut first, "first"), (&mut second, "second"), (&mut third, "third")] {
        assert_eq!(client.line(&format!("CLIENT SETNAME {name}")), "OK");
    }
    let Reply::Bulk(list) = first.call(&["CLIENT", "LIST"]) else { panic!("CLIENT LIST") };
    let list = String::from_utf8(list).unwrap();
    assert_eq!(list.lines().count(), 3);
    for field in [
        "name=first",
        "name=second",
        "name=third",
        " db=0 ",
        " multi=-1 ",
        " cmd=client ",
        " laddr=127.0.0.1:",
        " resp=2 ",
    ] {
        assert!(list.contains(field), "{field} in {list}");
    }
    // Two loops: somebody else's client is killed across them, whichever it is on.
    let owner = |name: &str| {
        list.lines()
            .find(|line| line.contains(name))
            .unwrap()
            .rsplit_once("loop=")
            .unwrap()
            .1
            .to_string()
    };
    assert!(
        owner("name=first") != owner("name=second") || owner("name=first") != owner("name=third")
    );
    let id = second.line("CLIENT ID");
    assert_eq!(first.line(&format!("CLIENT KILL ID {}", &id[1..])), ":1");
    second.assert_closed();
    let address = third.stream.local_addr().unwrap();
    assert_eq!(first.line(&format!("CLIENT KILL {address}")), "OK");
    third.assert_closed();
    assert_eq!(first.line("CLIENT KILL TYPE normal SKIPME yes"), ":0");
    assert_eq!(first.line("CLIENT KILL TYPE normal SKIPME no"), ":1");
    first.assert_closed();
}

#[test]
fn replies_can_be_turned_off() {
    let server = TestServer::start();
    let mut client = server.client();
    for request in [
        &["CLIENT", "REPLY", "OFF"][..],
        &["SET", "a", "1"],
        &["GET", "a"],
        &["CLIENT", "REPLY", "ON"],
    ] {
        client.send(&common::request(request));
    }
    assert_eq!(client.reply(), Reply::Simple("OK".into()));
    assert_eq!(client.line("GET a"), "\"1\"");
    for request in [&["CLIENT", "REPLY", "SKIP"][..], &["SET", "a", "2"], &["GET", "a"]] {
        client.send(&common::request(request));
    }
    assert_eq!(client.reply(), Reply::Bulk(b"2".to_vec()));
}

#[test]
fn clients_can_be_paused() {
    let server = TestServer::start();
    let (mut boss, mut reader, mut writer) = (server.client(), server.client(), server.client());
    assert_eq!(boss.line("SET a 1"), "OK");
    assert_eq!(boss.line("CLIENT PAUSE 60000 WRITE"), "OK");
    assert_eq!(reader.line("GET a"), "\"1\"");
    writer.send(&common::request(&["SET", "a", "2"]));
    writer.send(&common::request(&["GET", "a"]));
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(reader.line("GET a"), "\"1\"");
    assert_eq!(boss.line("CLIENT UNPAUSE"), "OK");
    assert_eq!(writer.reply(), Reply::Simple("OK".into()));
    assert_eq!(writer.reply(), Reply::Bulk(b"2".to_vec()));
    // A pause ends by itself, and holds back reads too if told to.
    let start = std::time::Instant::now();
    assert_eq!(boss.line("CLIENT PAUSE 80"), "OK");
    assert_eq!(reader.line("GET a"), "\"2\"");
    assert!(start.elapsed() >= std::time::Duration::from_millis(70), "{:?}", start.elapsed());
}

#[test]
fn slow_commands_are_kept() {
    let server = TestServer::start();
    let mut client = server.client();
    assert_eq!(client.line("CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 3"), "OK");
    assert_eq!(client.line("CLIENT SETNAME me"), "OK");
    for i in 0..5 {
        assert_eq!(client.line(&format!("APPEND slow{i} x")), ":1");
    }
    assert_eq!(client.line("AUTH default geheim"), "OK");
    assert_eq!(client.line("SLOWLOG LEN"), ":3");
    let Reply::Array(entries) = client.call(&["SLOWLOG", "GET"]) else { panic!("SLOWLOG GET") };
    assert_eq!(entries.len(), 3);
    let texts: Vec<String> = entries.iter().map(Reply::to_string).collect();
    assert!(
        texts.iter().all(|text| text.contains("\"me\"") && text.contains("127.0.0.1:")),
        "{texts:?}"
    );
    assert!(texts.iter().any(|text| text.contains("[\"APPEND\", \"slow4\", \"x\"]")), "{texts:?}");
    assert!(texts.iter().all(|text| !text.contains("geheim")), "{texts:?}");
    assert_eq!(client.line("CONFIG SET slowlog-log-slower-than -1"), "OK");
    assert_eq!(client.line("SLOWLOG RESET"), "OK");
    assert_eq!(client.line("SLOWLOG LEN"), ":0");
    assert!(
        client
            .line("LATENCY HISTOGRAM append")
            .starts_with("[\"append\", [\"calls\", :5, \"histogram_usec\", ")
    );
}
