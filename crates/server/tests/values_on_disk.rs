//! A server whose data is several times its memory: what is on the disk alone is answered like everything else, in
//! order, and whoever asks for it holds up nobody.

use crate::common::{Client, Reply, TestServer, options, request};
use std::collections::HashMap;
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use terrace::{Durability, MapOptions, WhenFull};

const VALUE_BYTES: usize = 4000;
const KEYS: u64 = 20_000;

/// 80 MB of data in 32 MiB.
fn server() -> TestServer {
    let maps = MapOptions {
        durability: Durability::Interval(Duration::from_secs(1)),
        memory_budget_bytes: 32 << 20,
        when_full: WhenFull::Spill,
        ..MapOptions::default()
    };
    TestServer::with_maps(options(), maps)
}

fn key(n: u64) -> Vec<u8> {
    format!("key:{n}").into_bytes()
}

fn value(n: u64, round: u64) -> Vec<u8> {
    let mut value = format!("{n}:{round}:").into_bytes();
    value.resize(VALUE_BYTES, b'a' + (n % 26) as u8);
    value
}

fn fill(client: &mut Client<TcpStream>) {
    for first in (0..KEYS).step_by(50) {
        let sets = (first..first + 50).flat_map(|n| request(&[b"SET", &key(n)[..], &value(n, 0)]));
        client.send(&sets.collect::<Vec<u8>>());
        (0..50).for_each(|_| assert_eq!(client.reply(), Reply::Simple("OK".into())));
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

/// What a client's keys hold: every so many from the first on are its own.
struct Model {
    values: HashMap<u64, Vec<u8>>,
    random: Random,
    first: u64,
}

impl Model {
    fn new(first: u64) -> Model {
        let mine = (first..KEYS).step_by(2);
        let values = mine.map(|n| (n, value(n, 0))).collect();
        Model { values, random: Random(first + 88_172_645_463_325_252), first }
    }

    fn bulk(&self, n: u64) -> Reply {
        self.values.get(&n).map_or(Reply::Null, |value| Reply::Bulk(value.clone()))
    }

    fn some_key(&mut self) -> u64 {
        // One in four is one of a few.
        let range = if self.random.below(4) == 0 { 20 } else { KEYS / 2 };
        self.first + 2 * self.random.below(range)
    }

    /// A request, and what it is to be answered.
    fn next(&mut self) -> (Vec<u8>, Reply) {
        let n = self.some_key();
        let name = key(n);
        match self.random.below(20) {
            0..10 => (request(&[b"GET", &name[..]]), self.bulk(n)),
            10 | 11 => {
                let value = value(n, self.random.below(1000));
                self.values.insert(n, value.clone());
                (request(&[b"SET", &name[..], &value]), Reply::Simple("OK".into()))
            }
            12 => {
                let value = self.values.entry(n).or_default();
                value.extend(b"more");
                let length = Reply::Integer(value.len() as i64);
                (request(&[b"APPEND", &name[..], b"more"]), length)
            }
            13 => {
                let had = self.values.remove(&n).is_some();
                (request(&[b"DEL", &name[..]]), Reply::Integer(had.into()))
            }
            14 | 15 => {
                let names: Vec<u64> = (0..30).map(|_| self.some_key()).collect();
                let mut arguments = vec![b"MGET".to_vec()];
                arguments.extend(names.iter().map(|n| key(*n)));
                let found = names.iter().map(|n| self.bulk(*n)).collect();
                (request(&arguments), Reply::Array(found))
            }
            16 => {
                let (other, old) = (self.some_key(), self.values.remove(&n));
                let reply = match &old {
                    Some(_) => Reply::Simple("OK".into()),
                    None => Reply::Error("ERR no such key".into()),
                };
                old.into_iter().for_each(|old| _ = self.values.insert(other, old));
                (request(&[b"RENAME", &name[..], &key(other)]), reply)
            }
            17 => {
                let length = self.values.get(&n).map_or(0, Vec::len);
                (request(&[b"STRLEN", &name[..]]), Reply::Integer(length as i64))
            }
            _ => self.transaction(n),
        }
    }

    /// GETs and a SET as one, of keys that are likely on the disk: one reply for each request, as one.
    fn transaction(&mut self, n: u64) -> (Vec<u8>, Reply) {
        let queued = || Reply::Simple("QUEUED".into());
        let mut requests = request(&[b"MULTI"]);
        let (mut replies, mut found) = (vec![Reply::Simple("OK".into())], Vec::new());
        for _ in 0..5 {
            let n = self.some_key();
            requests.extend(request(&[b"GET", &key(n)[..]]));
            replies.push(queued());
            found.push(self.bulk(n));
        }
        let value = value(n, self.random.below(1000));
        requests.extend(request(&[b"SET", &key(n)[..], &value]));
        requests.extend(request(&[b"EXEC"]));
        self.values.insert(n, value);
        found.push(Reply::Simple("OK".into()));
        replies.extend([queued(), Reply::Array(found)]);
        (requests, Reply::Array(replies))
    }
}

/// Pipelines of any length, each reply compared.
fn follow(mut client: Client<TcpStream>, first: u64, requests: usize) -> HashMap<u64, Vec<u8>> {
    let mut model = Model::new(first);
    let mut done = 0;
    while done < requests {
        let depth = 1 + model.random.below(60) as usize;
        let (asked, expected): (Vec<Vec<u8>>, Vec<Reply>) =
            (0..depth).map(|_| model.next()).unzip();
        client.send(&asked.concat());
        for (request, expected) in asked.iter().zip(expected) {
            let name = String::from_utf8_lossy(&request[..request.len().min(60)]).into_owned();
            match expected {
                Reply::Array(parts) if request.starts_with(b"*1\r\n$5\r\nMULTI") => {
                    for part in parts {
                        let reply = client.reply();
                        assert!(reply == part, "{name:?}: {reply:?} instead of {part:?}");
                    }
                }
                expected => {
                    let reply = client.reply();
                    assert!(reply == expected, "{name:?}: {reply:?} instead of {expected:?}");
                }
            }
        }
        done += depth;
    }
    model.values
}

#[test]
fn replies_come_in_order_and_are_right_wherever_the_values_are() {
    let server = server();
    fill(&mut server.client());
    let left: usize = std::thread::scope(|scope| {
        let threads = [0, 1].map(|first| {
            let client = server.client();
            scope.spawn(move || follow(client, first, 6_000))
        });
        threads.into_iter().map(|thread| thread.join().expect("as the model says").len()).sum()
    });
    let mut client = server.client();
    assert_eq!(client.line("DBSIZE"), format!(":{left}"));
    let Reply::Array(keys) = client.call(&["KEYS", "*"]) else { panic!("no list of keys") };
    assert_eq!(keys.len(), left);
    let (mut seen, mut cursor) = (0, "0".to_string());
    loop {
        let Reply::Array(page) = client.call(&["SCAN", &cursor, "COUNT", "500"]) else {
            panic!("no page")
        };
        let [Reply::Bulk(next), Reply::Array(keys)] = &page[..] else { panic!("{page:?}") };
        seen += keys.len();
        cursor = String::from_utf8_lossy(next).into_owned();
        if cursor == "0" {
            break;
        }
    }
    assert!(seen >= left, "SCAN saw {seen} of {left} keys");
    assert!(matches!(client.call(&["RANDOMKEY"]), Reply::Bulk(_)));
}

#[test]
fn what_is_wrong_behind_a_get_is_told_behind_its_reply() {
    let server = server();
    fill(&mut server.client());
    for n in (0..KEYS).step_by(500) {
        let mut client = server.client();
        let mut bytes = request(&[b"GET", &key(n)[..]]);
        bytes.extend(b"*1\r\nnonsense\r\n");
        client.send(&bytes);
        assert_eq!(client.reply(), Reply::Bulk(value(n, 0)));
        assert!(matches!(client.reply(), Reply::Error(_)), "the nonsense");
        client.assert_closed();
        // And the last replies of a client that has closed its side.
        let mut client = server.client();
        client.send(&[request(&[b"GET", &key(n + 1)[..]]), request(&[b"QUIT"])].concat());
        client.stream.shutdown(std::net::Shutdown::Write).expect("half closed");
        assert_eq!(client.reply(), Reply::Bulk(value(n + 1, 0)));
        assert_eq!(client.reply(), Reply::Simple("OK".into()));
    }
}

/// The disk takes 20 ms for each read that it is asked for. Whoever asks for what is in memory does not notice.
#[test]
fn nobody_waits_for_another_ones_read() {
    let server = server();
    fill(&mut server.client());
    let map = server.database.map("0").expect("open");
    let mut hot = server.client();
    hot.line("SET hot 1");
    map.medium().slow_down_reads(20);
    let is_over = AtomicBool::new(false);
    let (reads, worst) = std::thread::scope(|scope| {
        for n in 0..4 {
            let (mut cold, is_over) = (server.client(), &is_over);
            scope.spawn(move || {
                let mut random = Random(n + 1);
                while !is_over.load(Ordering::Relaxed) {
                    let n = random.below(KEYS);
                    assert_eq!(cold.call(&[b"GET", &key(n)[..]]), Reply::Bulk(value(n, 0)));
                }
            });
        }
        let started = Instant::now();
        let mut took: Vec<Duration> = Vec::new();
        while started.elapsed() < Duration::from_secs(1) {
            let before = Instant::now();
            assert_eq!(hot.line("GET hot"), "\"1\"");
            took.push(before.elapsed());
            std::thread::sleep(Duration::from_millis(1));
        }
        is_over.store(true, Ordering::Relaxed);
        took.sort();
        (took.len(), took[took.len() * 9 / 10])
    });
    assert!(reads > 100, "{reads} reads of what is in memory");
    assert!(worst < Duration::from_millis(10), "one in ten took {worst:?} or longer");
    map.medium().slow_down_reads(0);
}

/// Whoever asks for what cannot be read is told so, with file and offset; neither the others nor the map stop.
#[test]
fn a_disk_that_does_not_give_a_value_back_costs_that_reply_alone() {
    let server = server();
    let mut client = server.client();
    fill(&mut client);
    client.line("SET hot 1");
    let map = server.database.map("0").expect("open");
    map.medium().inject_read_fault(0);
    let is_told = |reply: Reply| {
        let Reply::Error(told) = reply else {
            panic!("{reply:?} from a disk that gives nothing back")
        };
        let is_whole =
            told.starts_with("ERR /") && told.contains(" at offset ") && !told.contains('\n');
        assert!(is_whole, "{told}");
    };
    for n in (0..KEYS / 2).step_by(1000) {
        let cold = key(n);
        is_told(client.call(&[b"GET", &cold[..]]));
        is_told(client.call(&[b"SET", &cold[..], b"new", b"GET"]));
        // A write that does not ask what there was needs nothing of the disk.
        let written = key(n + 501);
        let set = client.call(&[b"SET", &written[..], b"new"]);
        assert_eq!(set, Reply::Simple("OK".into()));
        assert_eq!(client.call(&[b"GET", &written[..]]), Reply::Bulk(b"new".to_vec()));
        is_told(client.call(&[&b"MGET"[..], b"hot", &cold]));
        is_told(client.call(&[b"STRLEN", &cold[..]]));
        // In a pipeline each has its own reply.
        let (get, hot) = (request(&[b"GET", &cold[..]]), request(&[b"GET", b"hot"]));
        client.send(&[&hot[..], &get, &get, &hot].concat());
        assert_eq!(client.reply(), Reply::Bulk(b"1".to_vec()));
        is_told(client.reply());
        is_told(client.reply());
        assert_eq!(client.reply(), Reply::Bulk(b"1".to_vec()));
        let watched =
            [request(&[b"WATCH", &cold[..]]), request(&[b"MULTI"]), get, request(&[b"EXEC"])];
        client.send(&watched.concat());
        // It is there, whatever its value.
        assert_eq!(client.reply(), Reply::Simple("OK".into()));
        assert_eq!(client.reply(), Reply::Simple("OK".into()));
        assert_eq!(client.reply(), Reply::Simple("QUEUED".into()));
        match client.reply() {
            Reply::Array(mut replies) => is_told(replies.pop().expect("one")),
            other => is_told(other),
        }
        let new = client.call(&[&b"SET"[..], format!("new:{n}").as_bytes(), b"1"]);
        assert_eq!(new, Reply::Simple("OK".into()));
    }
    map.medium().inject_read_fault(-1);
    for n in (0..KEYS).step_by(100) {
        assert_eq!(client.call(&[b"GET", &key(n)[..]]), Reply::Bulk(value(n, 0)));
    }
}

/// A value that was damaged on the disk is named to whoever asks for it, and again; it keeps nobody waiting.
#[test]
fn a_value_damaged_on_the_disk_is_named_and_keeps_nobody_waiting() {
    let server = server();
    let mut client = server.client();
    fill(&mut client);
    let map = server.database.map("0").expect("open");
    let path = map.medium().path();
    let bytes = std::fs::read(path).expect("the file");
    let damaged = 7;
    let wanted = value(damaged, 0);
    let at =
        bytes.windows(100).position(|window| window == &wanted[..100]).expect("it left memory");
    let file = std::fs::OpenOptions::new().write(true).open(path).expect("open");
    file.write_all_at(b"b", at as u64 + 50).expect("written");
    file.sync_all().expect("synced");
    for _ in 0..2 {
        let gets = (0..20).flat_map(|n| request(&[b"GET", &key(n)[..]])).collect::<Vec<u8>>();
        client.send(&gets);
        for n in 0..20 {
            match client.reply() {
                Reply::Error(told) if n == damaged => {
                    assert!(told.starts_with("ERR damaged: ") && told.contains("offset"), "{told}");
                }
                reply => assert_eq!(reply, Reply::Bulk(value(n, 0)), "{n}"),
            }
        }
        let told = client.call(&[&b"MGET"[..], &key(3), &key(damaged)]);
        assert!(
            matches!(&told, Reply::Error(told) if told.starts_with("ERR damaged: ")),
            "{told:?}"
        );
    }
}
