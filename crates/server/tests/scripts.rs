//! EVAL and its like: what scripts may do, what becomes of those that fail or do not end, and who waits for them.

use crate::common::{Client, TestServer, options, request};
use std::net::TcpStream;
use std::time::{Duration, Instant};

#[test]
fn replies_and_values() {
    crate::common::script::run(
        r#"
        EVAL "return 1" 0 => :1
        EVAL "return 'a'" 0 => "a"
        EVAL "return nil" 0 => nil
        EVAL "return false" 0 => nil
        EVAL "return true" 0 => :1
        EVAL "return 3.99" 0 => :3
        EVAL "return -3.99" 0 => :-3
        EVAL "return {1, 2, {'a', 'b'}, nil, 5}" 0 => [:1, :2, ["a", "b"]]
        EVAL "return {}" 0 => []
        EVAL "return {ok = 'fine'}" 0 => fine
        EVAL "return redis.status_reply('fine')" 0 => fine
        EVAL "return {err = 'MY no'}" 0 => -MY no
        EVAL "return redis.error_reply('MY no')" 0 => -MY no
        EVAL "return {KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]}" 2 a b c d => ["a", "b", "c", "d"]
        EVAL "return #KEYS + #ARGV * 10" 1 a b c => :21
        EVAL "return redis.sha1hex('')" 0 => "da39a3ee5e6b4b0d3255bfef95601890afd80709"
        EVAL "return tostring(10 / 2)" 0 => "5"
        EVAL "return string.format('%d %s', 3, 'x')" 0 => "3 x"
        EVAL "return type(tonumber('x'))" 0 => "nil"
        EVAL "return {unpack({1, 2, 3}, 2)}" 0 => [:2, :3]
        EVAL "return {bit.band(12, 10), bit.bnot(0), bit.tobit(4294967295)}" 0 => [:8, :-1, :-1]
        EVAL "return bit.tohex(255)" 0 => "000000ff"
        EVAL "return cjson.encode({1, 'a', {b = true}})" 0 => "[1,\"a\",{\"b\":true}]"
        EVAL "return cjson.decode(ARGV[1]).a[2]" 0 "{\"a\":[1,\"two\"]}" => "two"
        EVAL "return tostring(cjson.decode('null') == cjson.null)" 0 => "true"
        EVAL "local ok, e = pcall(cjson.decode, '[') return {tostring(ok), type(e)}" 0 => ["false", "string"]
        EVAL "return string.rep('', 1e9)" 0 !> ""
        EVAL "local t = {3, 1, 2} table.sort(t) return t" 0 => [:1, :2, :3]
        EVAL "local n = 0 for w in string.gmatch('one two', '%w+') do n = n + #w end return n" 0 => :6
        "#,
    );
}

#[test]
fn commands_in_scripts() {
    crate::common::script::run(
        r#"
        EVAL "return redis.call('SET', KEYS[1], ARGV[1])" 1 k v => OK
        EVAL "return redis.call('GET', KEYS[1])" 1 k => "v"
        EVAL "return redis.call('get', 'absent')" 0 => nil
        EVAL "return redis.call('get', 'absent') == false" 0 => :1
        EVAL "return redis.call('SET', 'n', 5).ok" 0 => "OK"
        EVAL "return redis.call('INCRBY', 'n', 2) + 1" 0 => :8
        EVAL "return redis.call('MGET', 'k', 'absent', 'n')" 0 => ["v", nil, "7"]
        EVAL "redis.call('SET', 'a', 1) redis.call('INCR', 'a') return redis.call('GET', 'a')" 0 => "2"
        EVAL "redis.call('SET', 'f', 1.5) return redis.call('GET', 'f')" 0 => "1.5"
        EVAL "redis.call('SET', 'f', 2^53) return redis.call('GET', 'f')" 0 => "9007199254740992"
        EVAL "return redis.call('STRLEN', 'k') + redis.call('EXISTS', 'k', 'n')" 0 => :3
        EVAL "redis.call('PEXPIRE', 'k', 100000) return redis.call('PTTL', 'k') > 90000" 0 => :1
        # What reads all keys runs alone.
        EVAL "return redis.call('DBSIZE')" 0 => :4
        EVAL "return #redis.call('KEYS', '*')" 0 => :4
        EVAL "return #redis.call('SCAN', '0')" 0 => :2
        SET words a => OK
        # What fails is told, and can be caught.
        EVAL "return redis.call('INCR', 'words')" 0 => -ERR value is not an integer or out of range script: *
        EVAL "return redis.pcall('INCR', 'words')" 0 => -ERR value is not an integer or out of range*
        EVAL "return redis.pcall('INCR', 'words').err" 0 => "ERR value is not an integer or out of range"
        EVAL "local ok, e = pcall(redis.call, 'INCR', 'words') return {tostring(ok), e.err}" 0 !> ["false", "ERR value is not an integer or out of range"]
        EVAL "return redis.call()" 0 => -ERR Please specify at least one argument for this redis lib call*
        EVAL "return redis.call({})" 0 => -ERR Lua redis lib command arguments must be strings or integers*
        EVAL "return redis.call('GET')" 0 !> -ERR wrong number of arguments for 'get' command*
        EVAL "return redis.call('NOSUCH')" 0 !> -ERR unknown command*
        EVAL "return redis.call('SADD', 's', 'm')" 0 !> -ERR SADD is not supported by Terrace*
        EVAL "return redis.call('MULTI')" 0 => -ERR This Redis command is not allowed from script*
        EVAL "return redis.call('EVAL', 'return 1', 0)" 0 => -ERR This Redis command is not allowed from script*
        EVAL "return redis.call('SUBSCRIBE', 'c')" 0 !> -ERR SUBSCRIBE is not supported*
        EVAL "return redis.call('SELECT', 1)" 0 !> -ERR This Redis command is not allowed from script*
        EVAL "return redis.call('LPUSH', 'l', 1)" 0 !> -ERR This Redis command is not allowed from script*
        EVAL "return redis.call('FLUSHALL')" 0 !> -ERR This Redis command is not allowed from script*
        "#,
    );
}

#[test]
fn a_script_that_fails_has_done_nothing() {
    crate::common::script::run(
        r#"
        SET a 1 => OK
        # Redis keeps what was written before the error.
        EVAL "redis.call('SET', 'a', 2) error('no')" 0 => -ERR user_script:1: no script: *
        GET a !> "1"
        EVAL "redis.call('SET', 'a', 2) return redis.call('INCRBY', 'a', 'x')" 0 => -ERR value is not an integer or out of range*
        GET a !> "1"
        EVAL "redis.call('SET', 'a', 2) error({err = 'MY no'})" 0 => -MY no script: *
        GET a !> "1"
        # An error that is returned is a reply like others.
        EVAL "redis.call('SET', 'a', 3) return redis.error_reply('MY no')" 0 => -MY no
        GET a => "3"
        "#,
    );
}

#[test]
fn what_is_wrong_is_told() {
    crate::common::script::run(
        r#"
        EVAL "return 1" => -ERR wrong number of arguments for 'eval' command
        EVAL "return 1" x => -ERR value is not an integer or out of range
        EVAL "return 1" -1 => -ERR Number of keys can't be negative
        EVAL "return 1" 1 => -ERR Number of keys can't be greater than number of args
        EVAL "return" 0 => nil
        EVAL "retur 1" 0 => -ERR Error compiling script*
        EVAL "x = 1" 0 !> -ERR user_script:1: Script attempted to create global variable 'x'*
        EVAL "return x" 0 => -ERR user_script:1: Script attempted to access nonexistent global variable 'x'*
        EVAL "return nothing.at.all" 0 => -ERR user_script:1: *
        EVAL "return io.open('/etc/passwd')" 0 => -ERR user_script:1: Script attempted to access nonexistent global variable 'io'*
        EVAL "return require('os')" 0 => -ERR user_script:1: *
        EVAL "string.find = nil" 0 => -ERR *
        EVAL "string.find = nil" 0 => -ERR *
        EVAL "redis.call = nil" 0 => -ERR *
        EVAL "return string.find('abc', 'b')" 0 => :2
        EVAL "getmetatable('').__index = nil" 0 !> -ERR *
        EVAL "return ('x'):rep(3)" 0 => "xxx"
        EVAL "return {redis.pcall('GET', 'a'), table.concat({1, 2}, ',')}" 0 => [nil, "1,2"]
        "#,
    );
}

#[test]
fn scripts_by_their_hash() {
    crate::common::script::run(
        r#"
        SCRIPT LOAD "return 1" => "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"
        EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0 => :1
        EVALSHA E0E1F9FABFC9D4800C877A703B823AC0578FF8DB 0 => :1
        EVALSHA ffffffffffffffffffffffffffffffffffffffff 0 => -NOSCRIPT No matching script. Please use EVAL.
        EVALSHA short 0 => -NOSCRIPT No matching script. Please use EVAL.
        SCRIPT EXISTS e0e1f9fabfc9d4800c877a703b823ac0578ff8db ffffffffffffffffffffffffffffffffffffffff => [:1, :0]
        EVAL "return 2" 0 => :2
        EVALSHA 7f923f79fe76194c868d7e1d0820de36700eb649 0 => :2
        SCRIPT LOAD "retur 1" => -ERR Error compiling script*
        SCRIPT EXISTS 4a1b6d7a6a5a11ec8d6a6b9c5f7b0f1e4ad0d0aa => [:0]
        SCRIPT FLUSH => OK
        SCRIPT FLUSH ASYNC => OK
        SCRIPT FLUSH now => -ERR SCRIPT FLUSH only support SYNC|ASYNC option
        EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0 => -NOSCRIPT No matching script. Please use EVAL.
        SCRIPT KILL => -NOTBUSY No scripts in execution right now.
        SCRIPT NOSUCH !> -ERR unknown subcommand 'NOSUCH'. Try SCRIPT HELP.
        "#,
    );
}

#[test]
fn scripts_that_read_only() {
    crate::common::script::run(
        r##"
        SET a 1 => OK
        EVAL_RO "return redis.call('GET', 'a')" 0 => "1"
        EVAL_RO "return redis.call('SET', 'a', 2)" 0 => -ERR Write commands are not allowed from read-only scripts.*
        EVAL "#!lua flags=no-writes\nreturn redis.call('GET', 'a')" 0 => "1"
        EVAL "#!lua flags=no-writes\nreturn redis.call('SET', 'a', 2)" 0 => -ERR Write commands are not allowed from read-only scripts.*
        EVAL "#!lua\nreturn redis.call('SET', 'a', 2)" 0 => OK
        SCRIPT LOAD "return redis.call('GET', KEYS[1])" => "d3c21d0c2b9ca22f82737626a27bcaf5d288f99f"
        EVALSHA_RO d3c21d0c2b9ca22f82737626a27bcaf5d288f99f 1 a => "2"
        "##,
    );
}

#[test]
fn scripts_in_transactions() {
    crate::common::script::run(
        r#"
        MULTI => OK
        SET a 1 => QUEUED
        EVAL "return redis.call('INCR', 'a')" 0 => QUEUED
        EVAL "redis.call('SET', 'a', 9) error({err = 'MY no'})" 0 => QUEUED
        EVALSHA ffffffffffffffffffffffffffffffffffffffff 0 => QUEUED
        INCR b => QUEUED
        EXEC !> [OK, :2, -MY no script: *
        GET b => "1"
        WATCH a => OK
        @2 EVAL "return redis.call('SET', 'a', 5)" 0 => OK
        MULTI => OK
        EXEC => nil
        "#,
    );
}

/// A client that has sent a request, whose reply it has not read.
fn begun(server: &TestServer, arguments: &[&str]) -> Client<TcpStream> {
    let mut client = server.client();
    client.send(&request(arguments));
    client
}

fn ask(client: &mut Client<TcpStream>, arguments: &[&str]) -> String {
    client.call(arguments).to_string()
}

const ENDLESS: &str =
    "redis.call('SET', 'a', 2) while true do pcall(function() while true do end end) end";

#[test]
fn a_script_without_end_holds_up_nobody_and_is_ended() {
    let server = TestServer::start();
    let mut client = server.client();
    assert_eq!(ask(&mut client, &["SET", "a", "1"]), "OK");
    let mut waiting: Vec<Client<TcpStream>> =
        (0..4).map(|_| begun(&server, &["EVAL", ENDLESS, "0"])).collect();
    let started = Instant::now();
    let mut slowest = Duration::ZERO;
    let mut killed = 0;
    while killed < 4 && started.elapsed() < Duration::from_secs(30) {
        let asked = Instant::now();
        assert_eq!(
            ask(&mut client, &["GET", "a"]),
            "\"1\"",
            "what a script does is seen at its end"
        );
        assert_eq!(ask(&mut client, &["INCR", "b"]).chars().next(), Some(':'));
        slowest = slowest.max(asked.elapsed());
        if started.elapsed() > Duration::from_millis(500) {
            let reply = ask(&mut client, &["SCRIPT", "KILL"]);
            killed += usize::from(reply == "OK");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    assert!(slowest < Duration::from_secs(1), "somebody waited {slowest:?}");
    for client in &mut waiting {
        assert_eq!(
            client.reply().to_string(),
            "-ERR the script was killed; nothing of it has happened"
        );
    }
    assert_eq!(ask(&mut client, &["GET", "a"]), "\"1\"");
    assert_eq!(
        ask(&mut client, &["SCRIPT", "KILL"]),
        "-NOTBUSY No scripts in execution right now."
    );
}

#[test]
fn a_script_that_takes_too_long_or_too_much_is_stopped() {
    let server = TestServer::start();
    let mut client = server.client();
    assert_eq!(
        ask(&mut client, &["EVAL", ENDLESS, "0"]),
        "-ERR the script took more than 5000 ms, or 100 ms where others wait for it; nothing of it has happened"
    );
    let greedy = "local t = {} for i = 1, 1e9 do t[i] = string.rep('x', 1000) .. i end";
    let told = ask(&mut client, &["EVAL", greedy, "0"]);
    assert!(told.contains("memory"), "{told}");
    for hung in [
        "return string.find(string.rep('a', 300000), string.rep('.-', 20) .. 'b')",
        "return string.find(string.rep('a', 100000), string.rep('a?', 100000) .. 'b')",
        "local function f() return f() + 1 end return f()",
        "local t = {} for i = 1, 100000 do t = {t} end return t",
        "local t = {} t[1] = t return cjson.encode(t)",
        "return cjson.decode(string.rep('[', 1000000))",
        "local t = {} for i = 1, 90 do t = {t, t} end return t",
        "local s, t = string.rep('x', 3e7), {} for i = 1, 40 do t[i] = s end return t",
        "return table.move({}, 1, 2e9, 100)",
        "return string.find(string.rep('a', 2e7), string.rep('a', 1e7) .. 'b', 1, true)",
        "for i = 1, 1e9 do redis.call('GET', i) end",
    ] {
        let told = ask(&mut client, &["EVAL", hung, "0"]);
        assert!(told.starts_with("-ERR"), "{hung}: {told}");
    }
    // In MULTI others would wait for it.
    ask(&mut client, &["MULTI"]);
    ask(&mut client, &["EVAL", ENDLESS, "0"]);
    assert_eq!(
        ask(&mut client, &["EXEC"]),
        "[-ERR the script took more than 5000 ms, or 100 ms where others wait for it; nothing of it has happened]"
    );
    assert_eq!(ask(&mut client, &["GET", "a"]), "nil");
    assert_eq!(ask(&mut client, &["EVAL", "return 1", "0"]), ":1");
    // What a script calls its error is not counted as a code.
    ask(&mut client, &["EVAL", "error({err = string.rep('x', 1000)})", "0"]);
    assert!(!ask(&mut client, &["INFO", "errorstats"]).contains("xxx"));
}

#[test]
fn a_long_script_ends_with_its_client_and_with_the_server() {
    let server = TestServer::start();
    let mut client = server.client();
    drop(begun(&server, &["EVAL", ENDLESS, "0"]));
    let deadline = Instant::now() + Duration::from_secs(4);
    std::thread::sleep(Duration::from_millis(100));
    while ask(&mut client, &["SCRIPT", "KILL"]) == "OK" {
        assert!(Instant::now() < deadline, "it goes on without its client");
        std::thread::sleep(Duration::from_millis(50));
    }
    let _waiting = begun(&server, &["EVAL", ENDLESS, "0"]);
    std::thread::sleep(Duration::from_millis(100));
    let asked = Instant::now();
    drop(server);
    assert!(asked.elapsed() < Duration::from_secs(4), "the server waited for a script");
}

#[test]
fn a_long_script_writes_all_or_nothing_and_sees_what_it_wrote() {
    let server = TestServer::start();
    let mut client = server.client();
    let long = "for i = 1, ARGV[1] do redis.call('SET', 'k' .. i, i) end
        local sum = 0
        for round = 1, 20 do
            for i = 1, ARGV[1] do sum = sum + redis.call('GET', 'k' .. i) end
        end
        return sum / 20";
    assert_eq!(ask(&mut client, &["EVAL", long, "0", "2000"]), ":2001000");
    assert_eq!(ask(&mut client, &["DBSIZE"]), ":2000");
    // Beyond what one transaction takes: refused whole.
    let large = "for i = 1, 100 do redis.call('SET', 'l' .. i, string.rep('x', 100000)) end";
    let told = ask(&mut client, &["EVAL", large, "0"]);
    assert!(told.starts_with("-ERR"), "{told}");
    assert_eq!(ask(&mut client, &["DBSIZE"]), ":2000");
}

/// Transfers between accounts by scripts, short ones and some that take long, on several loops; the sum never changes.
#[test]
fn transfers_by_scripts_keep_the_sum() {
    const ACCOUNTS: usize = 8;
    let server = TestServer::with(options());
    let mut client = server.client();
    for account in 0..ACCOUNTS {
        ask(&mut client, &["SET", &format!("a{account}"), "100"]);
    }
    let transfer = "local from, to = tonumber(redis.call('GET', KEYS[1])), tonumber(redis.call('GET', KEYS[2]))
        if tonumber(ARGV[2]) > 0 then local x = 0 for i = 1, ARGV[2] do x = x + i end end
        if KEYS[1] == KEYS[2] or from < tonumber(ARGV[1]) then return 0 end
        redis.call('SET', KEYS[1], from - ARGV[1])
        redis.call('SET', KEYS[2], to + ARGV[1])
        return 1";
    std::thread::scope(|scope| {
        for worker in 0..4usize {
            let mut client = server.client();
            scope.spawn(move || {
                for i in 0..300usize {
                    let (from, to) = ((i * 7 + worker) % ACCOUNTS, (i * 3 + worker * 5) % ACCOUNTS);
                    let long = if (i + worker).is_multiple_of(50) { "2000000" } else { "0" };
                    let (from, to) = (format!("a{from}"), format!("a{to}"));
                    let told = ask(&mut client, &["EVAL", transfer, "2", &from, &to, "7", long]);
                    assert!(told == ":0" || told == ":1", "{told}");
                }
            });
        }
        let mut client = server.client();
        scope.spawn(move || {
            let sum = "local sum = 0 for i = 0, 7 do sum = sum + redis.call('GET', 'a' .. i) end return sum";
            for _ in 0..300 {
                assert_eq!(ask(&mut client, &["EVAL", sum, "0"]), ":800");
            }
        });
    });
}
