//! The table of commands: the single source for dispatch, arity errors and COMMAND.

use super::Handler::{Data, Exec, Script, Server, Sql};
use super::flag::*;
use super::{
    Alone, Command, Handler, KeyPositions, admin, client, config, connection, counters, expiry,
    info, introspect, keys, ledgers, lists, memory, multi, observe, ordered, ranges, scan, scripts,
    snapshots, strings, transactions,
};
use std::sync::LazyLock;

const NO_KEYS: KeyPositions = KeyPositions { first: 0, last: 0, step: 0 };
const ONE_KEY: KeyPositions = KeyPositions { first: 1, last: 1, step: 1 };
const SECOND_KEY: KeyPositions = KeyPositions { first: 2, last: 2, step: 1 };
const KEYS_FROM_SECOND: KeyPositions = KeyPositions { first: 2, last: -1, step: 1 };
const TWO_KEYS: KeyPositions = KeyPositions { first: 1, last: 2, step: 1 };
const ALL_KEYS: KeyPositions = KeyPositions { first: 1, last: -1, step: 1 };
const KEY_VALUE_PAIRS: KeyPositions = KeyPositions { first: 1, last: -1, step: 2 };

const fn command(
    name: &'static str,
    arity: i32,
    flags: u32,
    keys: KeyPositions,
    handler: Handler,
) -> Command {
    Command { name, arity, flags, keys, alone: Alone::Never, handler, index: 0 }
}

impl Command {
    const fn alone(self, alone: Alone) -> Command {
        Command { alone, ..self }
    }
}

const R: u32 = READ | FAST;
const W: u32 = WRITE | FAST;
const WM: u32 = WRITE | DENY_OOM;
const WMF: u32 = WRITE | DENY_OOM | FAST;
/// Commands about the connection or the server, which touch no key.
const S: u32 = LOADING | STALE;
/// Reach beyond the session of the selected database.
const SX: u32 = S | OUTSIDE_ATOMIC;
const ADM: u32 = SX | ADMIN | NO_SCRIPT;

/// GET and SET come first: the short way counts them by these indexes.
fn all() -> Vec<Command> {
    let mut commands: Vec<Command> = of_strings().into();
    commands.extend(of_keys());
    commands.extend(of_lists());
    commands.extend(of_ledgers());
    commands.extend(of_snapshots());
    commands.extend(of_transactions());
    commands.extend(of_scripts());
    commands.push(command("sql", -2, WRITE | DENY_OOM | NO_SCRIPT | NO_MULTI, NO_KEYS, Sql));
    commands.extend(of_connections());
    commands.extend(of_servers());
    for (index, command) in commands.iter_mut().enumerate() {
        command.index = index;
    }
    commands
}

#[rustfmt::skip]
fn of_strings() -> [Command; 21] {
    [
        command("get", 2, R, ONE_KEY, Data(strings::get)),
        command("set", -3, WM, ONE_KEY, Data(strings::set)),
        command("setnx", 3, WMF, ONE_KEY, Data(strings::setnx)),
        command("setex", 4, WM, ONE_KEY, Data(strings::setex)),
        command("psetex", 4, WM, ONE_KEY, Data(strings::psetex)),
        command("getset", 3, WMF, ONE_KEY, Data(strings::getset)),
        command("getdel", 2, W, ONE_KEY, Data(strings::getdel)),
        command("getex", -2, W, ONE_KEY, Data(strings::getex)),
        command("append", 3, WMF, ONE_KEY, Data(strings::append)),
        command("strlen", 2, R, ONE_KEY, Data(strings::strlen)),
        command("setrange", 4, WM, ONE_KEY, Data(ranges::setrange)),
        command("getrange", 4, READ, ONE_KEY, Data(ranges::getrange)),
        command("substr", 4, READ, ONE_KEY, Data(ranges::getrange)),
        command("mget", -2, R, ALL_KEYS, Data(multi::mget)),
        command("mset", -3, WM, KEY_VALUE_PAIRS, Data(multi::mset)).alone(Alone::Always),
        command("msetnx", -3, WM, KEY_VALUE_PAIRS, Data(multi::msetnx)).alone(Alone::Always),
        command("incr", 2, WMF, ONE_KEY, Data(counters::incr)),
        command("decr", 2, WMF, ONE_KEY, Data(counters::decr)),
        command("incrby", 3, WMF, ONE_KEY, Data(counters::incrby)),
        command("decrby", 3, WMF, ONE_KEY, Data(counters::decrby)),
        command("incrbyfloat", 3, WMF, ONE_KEY, Data(counters::incrbyfloat)),
    ]
}

#[rustfmt::skip]
fn of_keys() -> [Command; 23] {
    [
        command("del", -2, WRITE, ALL_KEYS, Data(keys::del)).alone(Alone::IfSeveralKeys),
        command("unlink", -2, W, ALL_KEYS, Data(keys::del)).alone(Alone::IfSeveralKeys),
        command("exists", -2, R, ALL_KEYS, Data(keys::exists)),
        command("touch", -2, R, ALL_KEYS, Data(keys::exists)),
        command("type", 2, R, ONE_KEY, Data(keys::type_of)),
        command("rename", 3, WRITE, TWO_KEYS, Data(keys::rename)).alone(Alone::Always),
        command("renamenx", 3, W, TWO_KEYS, Data(keys::renamenx)).alone(Alone::Always),
        command("copy", -3, WM, TWO_KEYS, Data(keys::copy)).alone(Alone::Always),
        command("keys", 2, READ, NO_KEYS, Data(scan::keys)).alone(Alone::Always),
        command("scan", -2, READ, NO_KEYS, Data(scan::scan)),
        command("range", -3, READ, NO_KEYS, Data(ordered::range)),
        command("randomkey", 1, READ, NO_KEYS, Data(scan::randomkey)),
        command("expire", -3, W, ONE_KEY, Data(expiry::expire)),
        command("pexpire", -3, W, ONE_KEY, Data(expiry::pexpire)),
        command("expireat", -3, W, ONE_KEY, Data(expiry::expireat)),
        command("pexpireat", -3, W, ONE_KEY, Data(expiry::pexpireat)),
        command("ttl", 2, R, ONE_KEY, Data(expiry::ttl)),
        command("pttl", 2, R, ONE_KEY, Data(expiry::pttl)),
        command("expiretime", 2, R, ONE_KEY, Data(expiry::expiretime)),
        command("pexpiretime", 2, R, ONE_KEY, Data(expiry::pexpiretime)),
        command("persist", 2, W, ONE_KEY, Data(expiry::persist)),
        command("object", -2, READ, KeyPositions { first: 2, last: 2, step: 1 }, Data(memory::object)),
        command("wait", 3, S | NO_SCRIPT, NO_KEYS, Server(admin::wait)),
    ]
}

/// Queues are apart from keys and their sessions: none of this is in a transaction.
#[rustfmt::skip]
fn of_lists() -> [Command; 9] {
    const ALL_BUT_LAST: KeyPositions = KeyPositions { first: 1, last: -2, step: 1 };
    const LW: u32 = WMF | NO_MULTI;
    const LP: u32 = W | NO_MULTI;
    const LB: u32 = WRITE | NO_SCRIPT | NO_MULTI;
    [
        command("lpush", -3, LW, ONE_KEY, Server(lists::lpush)),
        command("rpush", -3, LW, ONE_KEY, Server(lists::rpush)),
        command("lpushx", -3, LW, ONE_KEY, Server(lists::lpushx)),
        command("rpushx", -3, LW, ONE_KEY, Server(lists::rpushx)),
        command("lpop", -2, LP, ONE_KEY, Server(lists::lpop)),
        command("rpop", -2, LP, ONE_KEY, Server(lists::rpop)),
        command("blpop", -3, LB, ALL_BUT_LAST, Server(lists::blpop)),
        command("brpop", -3, LB, ALL_BUT_LAST, Server(lists::brpop)),
        command("llen", 2, R | NO_MULTI, ONE_KEY, Server(lists::llen)),
    ]
}

/// Ledgers are apart from keys, too.
#[rustfmt::skip]
fn of_ledgers() -> [Command; 5] {
    const LW: u32 = WM | NO_MULTI;
    const LR: u32 = R | NO_MULTI;
    [
        command("ledger.open", -4, LW, NO_KEYS, Server(ledgers::open)),
        command("ledger.exec", -3, LW, NO_KEYS, Server(ledgers::exec)),
        command("ledger.balance", -3, LR, NO_KEYS, Server(ledgers::balance)),
        command("ledger.account", 3, LR, NO_KEYS, Server(ledgers::account)),
        command("ledger.hash", 2, LR, NO_KEYS, Server(ledgers::hash)),
    ]
}

#[rustfmt::skip]
fn of_snapshots() -> [Command; 7] {
    const C: u32 = SX | NO_MULTI | NO_SCRIPT;
    const SR: u32 = READ | NO_MULTI | NO_SCRIPT;
    [
        // Alone: what becomes visible key by key while the others wait is not in it by half.
        command("snapshot.open", 1, C, NO_KEYS, Server(snapshots::open)).alone(Alone::Armed),
        command("snapshot.get", 3, SR, SECOND_KEY, Data(snapshots::get)),
        command("snapshot.mget", -3, SR, KEYS_FROM_SECOND, Data(snapshots::mget)),
        command("snapshot.range", -4, SR, NO_KEYS, Data(snapshots::range)),
        command("snapshot.read", -3, SR, NO_KEYS, Data(snapshots::read)),
        command("snapshot.close", -2, C, NO_KEYS, Server(snapshots::close)),
        command("snapshot.list", 1, C, NO_KEYS, Server(snapshots::list)),
    ]
}

#[rustfmt::skip]
fn of_transactions() -> [Command; 5] {
    [
        command("multi", 1, S | FAST | NO_SCRIPT | NOT_QUEUED, NO_KEYS, Server(transactions::multi)),
        command("exec", 1, S | NO_SCRIPT | NOT_QUEUED, NO_KEYS, Exec),
        command("discard", 1, S | FAST | NO_SCRIPT | NOT_QUEUED, NO_KEYS, Server(transactions::discard)),
        command("watch", -2, S | FAST | NO_SCRIPT | NOT_QUEUED, ALL_KEYS, Data(transactions::watch)),
        command("unwatch", 1, S | FAST | NO_SCRIPT, NO_KEYS, Server(transactions::unwatch)),
    ]
}

#[rustfmt::skip]
fn of_scripts() -> [Command; 5] {
    [
        command("eval", -3, WRITE | NO_SCRIPT, NO_KEYS, Script),
        command("eval_ro", -3, READ | NO_SCRIPT, NO_KEYS, Script),
        command("evalsha", -3, WRITE | NO_SCRIPT, NO_KEYS, Script),
        command("evalsha_ro", -3, READ | NO_SCRIPT, NO_KEYS, Script),
        command("script", -2, S | NO_SCRIPT, NO_KEYS, Server(scripts::script)),
    ]
}

#[rustfmt::skip]
fn of_connections() -> [Command; 8] {
    [
        command("ping", -1, S | FAST, NO_KEYS, Server(connection::ping)),
        command("echo", 2, S | FAST, NO_KEYS, Server(connection::echo)),
        command("select", 2, SX | FAST, NO_KEYS, Server(connection::select)),
        command("auth", -2, S | FAST | NO_SCRIPT | NO_AUTH | SECRET, NO_KEYS, Server(connection::auth)),
        command("hello", -1, S | FAST | NO_SCRIPT | NO_AUTH | SECRET, NO_KEYS, Server(connection::hello)),
        command("quit", -1, S | FAST | NO_SCRIPT | NO_AUTH | NOT_QUEUED, NO_KEYS, Server(connection::quit)),
        command("reset", 1, S | FAST | NO_SCRIPT | NO_AUTH | NOT_QUEUED, NO_KEYS, Server(connection::reset)),
        command("client", -2, S | NO_SCRIPT, NO_KEYS, Server(client::client)),
    ]
}

#[rustfmt::skip]
fn of_servers() -> [Command; 20] {
    [
        command("dbsize", 1, R, NO_KEYS, Data(scan::dbsize)),
        command("flushdb", -1, WRITE | OUTSIDE_ATOMIC, NO_KEYS, Server(scan::flushdb)).alone(Alone::Always),
        command("flushall", -1, WRITE | OUTSIDE_ATOMIC, NO_KEYS, Server(scan::flushall)).alone(Alone::Always),
        command("info", -1, SX, NO_KEYS, Server(info::info)),
        command("config", -2, ADM | SECRET, NO_KEYS, Server(config::config)),
        command("command", -1, S, NO_KEYS, Server(introspect::command)),
        command("slowlog", -2, ADM, NO_KEYS, Server(observe::slowlog)),
        command("latency", -2, ADM, NO_KEYS, Server(observe::latency)),
        command("memory", -2, READ | OUTSIDE_ATOMIC, NO_KEYS, Server(memory::memory)),
        command("save", 1, ADM | NO_MULTI, NO_KEYS, Server(admin::save)),
        command("bgsave", -1, ADM, NO_KEYS, Server(admin::bgsave)),
        command("backup", 2, ADM, NO_KEYS, Server(admin::backup)),
        command("lastsave", 1, S | FAST, NO_KEYS, Server(admin::lastsave)),
        command("shutdown", -1, ADM | NO_MULTI, NO_KEYS, Server(admin::shutdown)),
        command("time", 1, S | FAST, NO_KEYS, Server(admin::time)),
        command("role", 1, S | FAST, NO_KEYS, Server(admin::role)),
        command("debug", -2, ADM, NO_KEYS, Server(admin::debug)),
        command("cluster", -2, S, NO_KEYS, Server(admin::cluster)),
        command("readonly", 1, S | FAST, NO_KEYS, Server(admin::cluster)),
        command("readwrite", 1, S | FAST, NO_KEYS, Server(admin::cluster)),
    ]
}

/// All commands.
pub(crate) static COMMANDS: LazyLock<Vec<Command>> = LazyLock::new(all);

/// Longest name in the table.
const NAME_BYTES_MAX: usize = 16;
/// Places in the hash table; a power of two, more than twice the commands.
const PLACES: usize = 256;

/// The table by name: open addressing, indexes plus one, 0 for a free place.
static PLACES_BY_NAME: LazyLock<[u16; PLACES]> = LazyLock::new(|| {
    let mut places = [0; PLACES];
    for command in COMMANDS.iter() {
        let mut place = hash(command.name.as_bytes()) % PLACES;
        while places[place] != 0 {
            place = (place + 1) % PLACES;
        }
        places[place] = command.index as u16 + 1;
    }
    places
});

/// FNV-1a.
fn hash(name: &[u8]) -> usize {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    let hash = name.iter().fold(0xcbf2_9ce4_8422_2325, mix);
    (hash ^ (hash >> 32)) as usize
}

/// The command called `name`, in letters of any size.
pub(crate) fn find(name: &[u8]) -> Option<&'static Command> {
    let mut lower = [0; NAME_BYTES_MAX];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    let mut place = hash(lower) % PLACES;
    loop {
        let index = PLACES_BY_NAME[place].checked_sub(1)?;
        let command = &COMMANDS[usize::from(index)];
        if command.name.as_bytes() == lower {
            return Some(command);
        }
        place = (place + 1) % PLACES;
    }
}

/// Number of commands.
pub(crate) fn count() -> usize {
    COMMANDS.len()
}
/// Where GET's counters are.
pub(crate) const fn get_index() -> usize {
    0
}
/// Where SET's counters are.
pub(crate) const fn set_index() -> usize {
    1
}
/// The name of the command with this index; `NULL` when there was none yet.
pub(crate) fn name_of(index: u32) -> &'static str {
    COMMANDS.get(index as usize).map_or("NULL", |command| command.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_by_its_name() {
        for command in COMMANDS.iter() {
            assert_eq!(
                find(command.name.as_bytes()).map(|found| found.index),
                Some(command.index),
                "{}",
                command.name
            );
            let upper = command.name.to_ascii_uppercase();
            assert_eq!(
                find(upper.as_bytes()).map(|found| found.index),
                Some(command.index),
                "{upper}"
            );
        }
        assert_eq!(COMMANDS[get_index()].name, "get");
        assert_eq!(COMMANDS[set_index()].name, "set");
        assert!(count() * 2 < PLACES);
        for unknown in ["", "foo", "getget", "averyverylongcommandname"] {
            assert!(find(unknown.as_bytes()).is_none());
        }
    }
}
