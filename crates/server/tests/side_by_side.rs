//! Random commands to this server and to the real redis-server at once: every reply is the same, or
//! the difference is in [`WANTED`]. Options are mixed as they come, sensible or not; some requests have an
//! argument too many or too few.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use crate::common::{Client, RealRedis, Reply, TestServer};
use std::net::TcpStream;

const ROUNDS: usize = 20_000;

/// A difference that is wanted: of this command, when ours begins so and theirs so.
struct Wanted {
    command: &'static str,
    ours: &'static str,
    theirs: &'static str,
    why: &'static str,
}

const fn wanted(
    command: &'static str,
    ours: &'static str,
    theirs: &'static str,
    why: &'static str,
) -> Wanted {
    Wanted { command, ours, theirs, why }
}

const WANTED: &[Wanted] = &[
    wanted("lpush", "-ERR Command not allowed inside a transaction", "QUEUED", NO_QUEUES_IN_MULTI),
    wanted("rpush", "-ERR Command not allowed inside a transaction", "QUEUED", NO_QUEUES_IN_MULTI),
    wanted("lpop", "-ERR Command not allowed inside a transaction", "QUEUED", NO_QUEUES_IN_MULTI),
    wanted("rpop", "-ERR Command not allowed inside a transaction", "QUEUED", NO_QUEUES_IN_MULTI),
    wanted("llen", "-ERR Command not allowed inside a transaction", "QUEUED", NO_QUEUES_IN_MULTI),
    wanted("exec", "-EXECABORT", "[", NO_QUEUES_IN_MULTI),
    wanted("exec", "-EXECABORT", "nil", NO_QUEUES_IN_MULTI),
    wanted("exec", "[", "[", QUEUES_ARE_NO_KEYS),
    wanted("dbsize", ":", ":", QUEUES_ARE_NO_KEYS),
    wanted("keys", "[", "[", QUEUES_ARE_NO_KEYS),
    wanted("scan", "\"0\"", "\"0\"", QUEUES_ARE_NO_KEYS),
    wanted("lpush", "-ERR queues are in database 0 alone", ":", QUEUES_ARE_NO_KEYS),
    wanted("rpush", "-ERR queues are in database 0 alone", ":", QUEUES_ARE_NO_KEYS),
    wanted("lpop", "-ERR queues are in database 0 alone", "", QUEUES_ARE_NO_KEYS),
    wanted("rpop", "-ERR queues are in database 0 alone", "", QUEUES_ARE_NO_KEYS),
    wanted("llen", "-ERR queues are in database 0 alone", ":", QUEUES_ARE_NO_KEYS),
    wanted("exec", "[", "nil", NOT_OF_QUEUES),
    wanted("object", ":1", ":2147483647", "no value is shared between keys"),
    wanted(
        "object",
        "\"embstr\"",
        "\"raw\"",
        "an encoding is told by the value, not by how it came about",
    ),
    wanted("incrbyfloat", "\"9223372036854", "\"9223372036854", EXACT),
    wanted("incrbyfloat", "\"-9223372036854", "\"-9223372036854", EXACT),
];

const EXACT: &str = "decimals are added exactly; Redis adds floats of 80 bits";

const NO_QUEUES_IN_MULTI: &str = "queues are apart from maps, and in no transaction";
/// Rows with this reason count only where queues are used at all.
const QUEUES_ARE_NO_KEYS: &str =
    "queues have names of their own, in database 0, beside those of keys";
const NOT_OF_QUEUES: &str = "a queue keeps its name, and does not expire";

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }
    fn below(&mut self, n: usize) -> usize {
        self.next() as usize % n
    }
    fn of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len())]
    }
}

const VALUES: &[&str] = &[
    "",
    "abc",
    "10",
    "-5",
    "0",
    "3.5",
    "007",
    " 1",
    "9223372036854775807",
    "-9223372036854775808",
    "1e3",
    "a value of more than forty-four bytes, which Redis keeps in another way",
];
const NUMBERS: &[&str] =
    &["0", "1", "-1", "5", "100", "-100", "x", "", "1.5", "9223372036854775807"];
const TIMES: &[&str] = &["1000", "5000", "100000", "0", "-1", "x", "9223372036854775807"];
const MOMENTS: &[&str] = &["4102444800", "4102444800000", "1", "0", "-1", "x"];
const FLOATS: &[&str] = &["1", "0.5", "-2.25", "100", "x", "inf", "nan"];
const PATTERNS: &[&str] = &["*", "k?", "k[0-2]", "K*", "k\\*", "nothing", "[^k]*"];

/// What an argument is chosen from.
#[derive(Clone, Copy)]
enum Of {
    Key,
    Value,
    Number,
    Time,
    Moment,
    Float,
    Pattern,
    /// One of these, or none.
    Maybe(&'static [&'static str]),
    One(&'static [&'static str]),
    /// So many pairs at most.
    Pairs,
    Keys,
    ListIn,
    ListOut,
    /// An option with a time.
    Expiry,
}
use Of::*;

const COMMANDS: &[(&str, &[Of])] = &[
    ("get", &[Key]),
    ("set", &[Key, Value]),
    ("set", &[Key, Value]),
    (
        "set",
        &[Key, Value, Maybe(&["nx", "XX", "GET", "bad"]), Maybe(&["keepttl", "get", "nx"]), Expiry],
    ),
    ("setnx", &[Key, Value]),
    ("setex", &[Key, Time, Value]),
    ("psetex", &[Key, Time, Value]),
    ("getset", &[Key, Value]),
    ("getdel", &[Key]),
    ("getex", &[Key, Expiry]),
    ("getex", &[Key, Maybe(&["PERSIST", "nonsense"])]),
    ("append", &[Key, Value]),
    ("strlen", &[Key]),
    ("setrange", &[Key, Number, Value]),
    ("getrange", &[Key, Number, Number]),
    ("substr", &[Key, Number, Number]),
    ("incr", &[Key]),
    ("decr", &[Key]),
    ("incrby", &[Key, Number]),
    ("decrby", &[Key, Number]),
    ("incrbyfloat", &[Key, Float]),
    ("mget", &[Keys]),
    ("mset", &[Pairs]),
    ("msetnx", &[Pairs]),
    ("del", &[Keys]),
    ("unlink", &[Keys]),
    ("exists", &[Keys]),
    ("touch", &[Keys]),
    ("type", &[Key]),
    ("rename", &[Key, Key]),
    ("renamenx", &[Key, Key]),
    ("copy", &[Key, Key, Maybe(&["REPLACE", "bad"])]),
    ("copy", &[Key, Key, One(&["DB"]), One(&["0", "1", "99", "x"]), Maybe(&["replace"])]),
    ("keys", &[Pattern]),
    (
        "scan",
        &[
            One(&["0"]),
            One(&["COUNT"]),
            One(&["1000", "0", "x"]),
            Maybe(&["match"]),
            Maybe(&["k*"]),
        ],
    ),
    ("expire", &[Key, Time, Maybe(&["NX", "XX", "GT", "LT", "bad"]), Maybe(&["gt", "nx"])]),
    ("pexpire", &[Key, Time]),
    ("expireat", &[Key, Moment, Maybe(&["NX", "XX", "GT", "LT"])]),
    ("pexpireat", &[Key, Moment]),
    ("ttl", &[Key]),
    ("pttl", &[Key]),
    ("expiretime", &[Key]),
    ("pexpiretime", &[Key]),
    ("persist", &[Key]),
    ("object", &[One(&["ENCODING", "refcount", "bad"]), Key]),
    ("dbsize", &[]),
    ("select", &[One(&["0", "0", "0", "1", "16", "x"])]),
    ("flushdb", &[Maybe(&["sync", "async", "bad"])]),
    ("multi", &[]),
    ("exec", &[]),
    ("exec", &[]),
    ("discard", &[]),
    ("watch", &[Keys]),
    ("unwatch", &[]),
    ("ping", &[Maybe(&["hello"])]),
    ("echo", &[Value]),
    ("client", &[One(&["GETNAME", "nonsense", "getname", "NO-EVICT"])]),
    ("config", &[One(&["nonsense", "resetstat"])]),
    ("lpush", &[ListIn, Value]),
    ("rpop", &[ListIn, Maybe(&["1", "2", "-1", "x"])]),
    ("rpush", &[ListOut, Value]),
    ("lpop", &[ListOut, Maybe(&["1", "2", "0"])]),
    ("llen", &[ListOut]),
    ("nonsense", &[Key]),
];

fn push(random: &mut Random, of: Of, request: &mut Vec<String>) {
    let key = |random: &mut Random| format!("k{}", random.below(6));
    match of {
        Key => request.push(key(random)),
        Keys => (0..=random.below(3)).for_each(|_| request.push(key(random))),
        Pairs => (0..=random.below(3)).for_each(|_| {
            request.push(key(random));
            request.push(random.of(VALUES).into());
        }),
        Value => request.push(random.of(VALUES).into()),
        Number => request.push(random.of(NUMBERS).into()),
        Time => request.push(random.of(TIMES).into()),
        Moment => request.push(random.of(MOMENTS).into()),
        Float => request.push(random.of(FLOATS).into()),
        Pattern => request.push(random.of(PATTERNS).into()),
        One(words) => request.push(random.of(words).into()),
        Maybe(words) => {
            if random.below(2) == 0 {
                request.push(random.of(words).into());
            }
        }
        ListIn => request.push(random.of(&["in0", "in1"]).into()),
        ListOut => request.push(random.of(&["out0", "out1"]).into()),
        Expiry => match random.below(4) {
            0 => {}
            1 => request.extend(["EX".into(), random.of(TIMES).into()]),
            2 => request.extend(["px".into(), random.of(TIMES).into()]),
            _ => request.extend(["EXAT".into(), random.of(MOMENTS).into()]),
        },
    }
}

fn request(random: &mut Random, with_queues: bool) -> Vec<String> {
    let (name, arguments) = COMMANDS[random.below(COMMANDS.len())];
    let is_of_queues = arguments.iter().any(|of| matches!(of, ListIn | ListOut));
    // All at once goes rarely, or there would be nothing.
    if name == "flushdb" && random.below(10) > 0 || is_of_queues && !with_queues {
        return self::request(random, with_queues);
    }
    let mut request = vec![name.to_string()];
    arguments.iter().for_each(|of| push(random, *of, &mut request));
    match random.below(40) {
        0 if request.len() > 1 => drop(request.pop()),
        1 => request.push("more".into()),
        _ => {}
    }
    request
}

/// Without what is by chance: orders, and times that pass.
fn comparable(command: &str, reply: &Reply, in_transaction: bool) -> String {
    let sorted = |items: &[Reply]| {
        let mut texts: Vec<String> = items.iter().map(Reply::to_string).collect();
        texts.sort();
        format!("{texts:?}")
    };
    match (command, reply) {
        ("keys", Reply::Array(items)) => sorted(items),
        ("scan", Reply::Array(pair)) => match &pair[..] {
            [cursor, Reply::Array(items)] => format!("{cursor} {}", sorted(items)),
            _ => reply.to_string(),
        },
        ("dbsize", Reply::Integer(_)) if in_transaction => "a number".into(),
        // A thousand seconds and more, all of them: to the next hundred.
        ("ttl" | "pttl" | "expiretime" | "pexpiretime", Reply::Integer(time)) if *time > 100 => {
            let step = if command.starts_with('p') { 100_000 } else { 100 };
            format!("about {}", (time + step / 2) / step)
        }
        _ => reply.to_string(),
    }
}

/// One server, spoken to by two clients.
struct Side {
    clients: [Client<TcpStream>; 2],
    /// Of each client's transaction, the commands queued.
    queued: [Vec<String>; 2],
}

impl Side {
    fn new(address: std::net::SocketAddr) -> Side {
        let clients = [Client::connect(address), Client::connect(address)];
        Side { clients, queued: Default::default() }
    }

    fn ask(&mut self, who: usize, request: &[String]) -> String {
        let reply = self.clients[who].call(request);
        let name = request[0].as_str();
        let queued = &mut self.queued[who];
        let text = match (name, &reply) {
            ("exec", Reply::Array(replies)) if replies.len() == queued.len() => {
                let replies = queued.iter().zip(replies);
                let texts: Vec<String> =
                    replies.map(|(command, reply)| comparable(command, reply, true)).collect();
                format!("[{}", texts.join(", "))
            }
            _ => comparable(name, &reply, false),
        };
        match &reply {
            Reply::Simple(word) if word == "QUEUED" => queued.push(name.into()),
            Reply::Error(_) if name == "multi" => {}
            _ if matches!(name, "exec" | "discard" | "multi") => queued.clear(),
            _ => {}
        }
        text
    }
}

#[test]
fn random_commands_on_keys_are_answered_as_by_redis() {
    compare(false);
}

#[test]
fn random_commands_are_answered_as_by_redis() {
    compare(true);
}

fn compare(with_queues: bool) {
    let Some(redis) = RealRedis::start() else { return };
    let seed =
        std::env::var("TERRACE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(4711);
    eprintln!("TERRACE_SEED={seed}");
    let server = TestServer::start();
    let mut random = Random(seed);
    let (mut ours, mut theirs) = (Side::new(server.address()), Side::new(redis.address));
    let mut wrong: Vec<String> = Vec::new();
    for round in 0..ROUNDS {
        let who = usize::from(random.below(5) == 0);
        let request = request(&mut random, with_queues);
        let (mut a, mut b) = (ours.ask(who, &request), theirs.ask(who, &request));
        if a != b && request[0] == "dbsize" {
            // What has expired counts until somebody sweeps it, here as there, but not at the same moments.
            std::thread::sleep(std::time::Duration::from_millis(400));
            (a, b) = (ours.ask(who, &request), theirs.ask(who, &request));
        }
        let is_wanted = |wanted: &Wanted| {
            wanted.command == request[0]
                && a.starts_with(wanted.ours)
                && b.starts_with(wanted.theirs)
                && (with_queues || wanted.why != QUEUES_ARE_NO_KEYS)
        };
        if a != b && !WANTED.iter().any(is_wanted) {
            wrong.push(format!("round {round} @{who} {request:?}\n   ours   {a}\n   theirs {b}"));
        }
        if a != b {
            // From the same state again.
            for side in [&mut ours, &mut theirs] {
                for client in &mut side.clients {
                    client.line("DISCARD");
                    client.line("UNWATCH");
                    client.line("SELECT 0");
                }
                side.clients[0].line("FLUSHALL");
                side.queued = Default::default();
            }
        }
        if wrong.len() > 40 {
            break;
        }
    }
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
}
