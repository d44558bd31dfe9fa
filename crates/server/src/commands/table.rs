//! The table of commands: the single source for dispatch, arity errors and COMMAND.

use super::Handler::{Data, Exec, Server};
use super::flag::*;
use super::{
    Alone, Command, Handler, KeyPositions, admin, client, config, connection, counters, expiry, info, introspect, keys,
    memory, multi, observe, ranges, scan, strings, transactions,
};
use std::sync::LazyLock;

const NO_KEYS: KeyPositions = KeyPositions { first: 0, last: 0, step: 0 };
const ONE_KEY: KeyPositions = KeyPositions { first: 1, last: 1, step: 1 };
const TWO_KEYS: KeyPositions = KeyPositions { first: 1, last: 2, step: 1 };
const ALL_KEYS: KeyPositions = KeyPositions { first: 1, last: -1, step: 1 };
const KEY_VALUE_PAIRS: KeyPositions = KeyPositions { first: 1, last: -1, step: 2 };

const fn command(name: &'static str, arity: i32, flags: u32, keys: KeyPositions, handler: Handler) -> Command {
    Command { name, arity, flags, keys, alone: Alone::Never, group: "", since: "", summary: "", handler, index: 0 }
}

impl Command {
    const fn alone(self, alone: Alone) -> Command {
        Command { alone, ..self }
    }
    const fn docs(self, group: &'static str, since: &'static str, summary: &'static str) -> Command {
        Command { group, since, summary, ..self }
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
#[rustfmt::skip]
fn all() -> Vec<Command> {
    let strings = || [
        command("get", 2, R, ONE_KEY, Data(strings::get)).docs("string", "1.0.0", "Returns the string value of a key."),
        command("set", -3, WM, ONE_KEY, Data(strings::set)).docs("string", "1.0.0", "Sets the string value of a key, ignoring its type. The key is created if it doesn't exist."),
        command("setnx", 3, WMF, ONE_KEY, Data(strings::setnx)).docs("string", "1.0.0", "Set the string value of a key only when the key doesn't exist."),
        command("setex", 4, WM, ONE_KEY, Data(strings::setex)).docs("string", "2.0.0", "Sets the string value and expiration time of a key. Creates the key if it doesn't exist."),
        command("psetex", 4, WM, ONE_KEY, Data(strings::psetex)).docs("string", "2.6.0", "Sets both string value and expiration time in milliseconds of a key. The key is created if it doesn't exist."),
        command("getset", 3, WMF, ONE_KEY, Data(strings::getset)).docs("string", "1.0.0", "Returns the previous string value of a key after setting it to a new value."),
        command("getdel", 2, W, ONE_KEY, Data(strings::getdel)).docs("string", "6.2.0", "Returns the string value of a key after deleting the key."),
        command("getex", -2, W, ONE_KEY, Data(strings::getex)).docs("string", "6.2.0", "Returns the string value of a key after setting its expiration time."),
        command("append", 3, WMF, ONE_KEY, Data(strings::append)).docs("string", "2.0.0", "Appends a string to the value of a key. Creates the key if it doesn't exist."),
        command("strlen", 2, R, ONE_KEY, Data(strings::strlen)).docs("string", "2.2.0", "Returns the length of a string value."),
        command("setrange", 4, WM, ONE_KEY, Data(ranges::setrange)).docs("string", "2.2.0", "Overwrites a part of a string value with another by an offset. Creates the key if it doesn't exist."),
        command("getrange", 4, READ, ONE_KEY, Data(ranges::getrange)).docs("string", "2.4.0", "Returns a substring of the string stored at a key."),
        command("substr", 4, READ, ONE_KEY, Data(ranges::getrange)).docs("string", "1.0.0", "Returns a substring from a string value."),
        command("mget", -2, R, ALL_KEYS, Data(multi::mget)).docs("string", "1.0.0", "Returns the string values of one or more keys."),
        command("mset", -3, WM, KEY_VALUE_PAIRS, Data(multi::mset)).alone(Alone::Always).docs("string", "1.0.1", "Atomically creates or modifies the string values of one or more keys."),
        command("msetnx", -3, WM, KEY_VALUE_PAIRS, Data(multi::msetnx)).alone(Alone::Always).docs("string", "1.0.1", "Atomically modifies the string values of one or more keys only when all keys don't exist."),
        command("incr", 2, WMF, ONE_KEY, Data(counters::incr)).docs("string", "1.0.0", "Increments the integer value of a key by one. Uses 0 as initial value if the key doesn't exist."),
        command("decr", 2, WMF, ONE_KEY, Data(counters::decr)).docs("string", "1.0.0", "Decrements the integer value of a key by one. Uses 0 as initial value if the key doesn't exist."),
        command("incrby", 3, WMF, ONE_KEY, Data(counters::incrby)).docs("string", "1.0.0", "Increments the integer value of a key by a number. Uses 0 as initial value if the key doesn't exist."),
        command("decrby", 3, WMF, ONE_KEY, Data(counters::decrby)).docs("string", "1.0.0", "Decrements a number from the integer value of a key. Uses 0 as initial value if the key doesn't exist."),
        command("incrbyfloat", 3, WMF, ONE_KEY, Data(counters::incrbyfloat)).docs("string", "2.6.0", "Increment the floating point value of a key by a number. Uses 0 as initial value if the key doesn't exist."),
    ];
    let generic = || [
        command("del", -2, WRITE, ALL_KEYS, Data(keys::del)).alone(Alone::IfSeveralKeys).docs("generic", "1.0.0", "Deletes one or more keys."),
        command("unlink", -2, W, ALL_KEYS, Data(keys::del)).alone(Alone::IfSeveralKeys).docs("generic", "4.0.0", "Asynchronously deletes one or more keys."),
        command("exists", -2, R, ALL_KEYS, Data(keys::exists)).docs("generic", "1.0.0", "Determines whether one or more keys exist."),
        command("touch", -2, R, ALL_KEYS, Data(keys::exists)).docs("generic", "3.2.1", "Returns the number of existing keys out of those specified."),
        command("type", 2, R, ONE_KEY, Data(keys::type_of)).docs("generic", "1.0.0", "Determines the type of value stored at a key."),
        command("rename", 3, WRITE, TWO_KEYS, Data(keys::rename)).alone(Alone::Always).docs("generic", "1.0.0", "Renames a key and overwrites the destination."),
        command("renamenx", 3, W, TWO_KEYS, Data(keys::renamenx)).alone(Alone::Always).docs("generic", "1.0.0", "Renames a key only when the target key name doesn't exist."),
        command("copy", -3, WM, TWO_KEYS, Data(keys::copy)).alone(Alone::Always).docs("generic", "6.2.0", "Copies the value of a key to a new key."),
        command("keys", 2, READ, NO_KEYS, Data(scan::keys)).alone(Alone::Always).docs("generic", "1.0.0", "Returns all key names that match a pattern."),
        command("scan", -2, READ, NO_KEYS, Data(scan::scan)).docs("generic", "2.8.0", "Iterates over the key names in the database."),
        command("randomkey", 1, READ, NO_KEYS, Data(scan::randomkey)).docs("generic", "1.0.0", "Returns a random key name from the database."),
        command("expire", -3, W, ONE_KEY, Data(expiry::expire)).docs("generic", "1.0.0", "Sets the expiration time of a key in seconds."),
        command("pexpire", -3, W, ONE_KEY, Data(expiry::pexpire)).docs("generic", "2.6.0", "Sets the expiration time of a key in milliseconds."),
        command("expireat", -3, W, ONE_KEY, Data(expiry::expireat)).docs("generic", "1.2.0", "Sets the expiration time of a key to a Unix timestamp."),
        command("pexpireat", -3, W, ONE_KEY, Data(expiry::pexpireat)).docs("generic", "2.6.0", "Sets the expiration time of a key to a Unix milliseconds timestamp."),
        command("ttl", 2, R, ONE_KEY, Data(expiry::ttl)).docs("generic", "1.0.0", "Returns the expiration time in seconds of a key."),
        command("pttl", 2, R, ONE_KEY, Data(expiry::pttl)).docs("generic", "2.6.0", "Returns the expiration time in milliseconds of a key."),
        command("expiretime", 2, R, ONE_KEY, Data(expiry::expiretime)).docs("generic", "7.0.0", "Returns the expiration time of a key as a Unix timestamp."),
        command("pexpiretime", 2, R, ONE_KEY, Data(expiry::pexpiretime)).docs("generic", "7.0.0", "Returns the expiration time of a key as a Unix milliseconds timestamp."),
        command("persist", 2, W, ONE_KEY, Data(expiry::persist)).docs("generic", "2.2.0", "Removes the expiration time of a key."),
        command("object", -2, READ, KeyPositions { first: 2, last: 2, step: 1 }, Data(memory::object)).docs("generic", "2.2.3", "Inspects how the value of a key is kept."),
        command("wait", 3, S | NO_SCRIPT, NO_KEYS, Server(admin::wait)).docs("generic", "3.0.0", "Returns 0: there are no replicas to wait for."),
    ];
    let transactions = || [
        command("multi", 1, S | FAST | NO_SCRIPT | NOT_QUEUED, NO_KEYS, Server(transactions::multi)).docs("transactions", "1.2.0", "Starts a transaction."),
        command("exec", 1, S | NO_SCRIPT | NOT_QUEUED, NO_KEYS, Exec).alone(Alone::Always).docs("transactions", "1.2.0", "Executes all commands in a transaction."),
        command("discard", 1, S | FAST | NO_SCRIPT | NOT_QUEUED, NO_KEYS, Server(transactions::discard)).docs("transactions", "2.0.0", "Discards a transaction."),
        command("watch", -2, S | FAST | NO_SCRIPT | NOT_QUEUED, ALL_KEYS, Data(transactions::watch)).docs("transactions", "2.2.0", "Monitors changes to keys to determine the execution of a transaction."),
        command("unwatch", 1, S | FAST | NO_SCRIPT, NO_KEYS, Server(transactions::unwatch)).docs("transactions", "2.2.0", "Forgets about watched keys of a transaction."),
    ];
    let connection = || [
        command("ping", -1, S | FAST, NO_KEYS, Server(connection::ping)).docs("connection", "1.0.0", "Returns the server's liveliness response."),
        command("echo", 2, S | FAST, NO_KEYS, Server(connection::echo)).docs("connection", "1.0.0", "Returns the given string."),
        command("select", 2, SX | FAST, NO_KEYS, Server(connection::select)).docs("connection", "1.0.0", "Changes the selected database."),
        command("auth", -2, S | FAST | NO_SCRIPT | NO_AUTH | SECRET, NO_KEYS, Server(connection::auth)).docs("connection", "1.0.0", "Authenticates the connection."),
        command("hello", -1, S | FAST | NO_SCRIPT | NO_AUTH | SECRET, NO_KEYS, Server(connection::hello)).docs("connection", "6.0.0", "Handshakes with the server."),
        command("quit", -1, S | FAST | NO_SCRIPT | NO_AUTH | NOT_QUEUED, NO_KEYS, Server(connection::quit)).docs("connection", "1.0.0", "Closes the connection."),
        command("reset", 1, S | FAST | NO_SCRIPT | NO_AUTH | NOT_QUEUED, NO_KEYS, Server(connection::reset)).docs("connection", "6.2.0", "Resets the connection."),
        command("client", -2, S | NO_SCRIPT, NO_KEYS, Server(client::client)).docs("connection", "2.4.0", "Lists, names, pauses and closes connections."),
    ];
    let server = || [
        command("dbsize", 1, R, NO_KEYS, Server(scan::dbsize)).docs("server", "1.0.0", "Returns the number of keys in the database."),
        command("flushdb", -1, WRITE | OUTSIDE_ATOMIC, NO_KEYS, Server(scan::flushdb)).alone(Alone::Always).docs("server", "1.0.0", "Removes all keys from the current database."),
        command("flushall", -1, WRITE | OUTSIDE_ATOMIC, NO_KEYS, Server(scan::flushall)).alone(Alone::Always).docs("server", "1.0.0", "Removes all keys from all databases."),
        command("info", -1, SX, NO_KEYS, Server(info::info)).docs("server", "1.0.0", "Returns information and statistics about the server."),
        command("config", -2, ADM | SECRET, NO_KEYS, Server(config::config)).docs("server", "2.0.0", "Reads and changes the settings of the server."),
        command("command", -1, S, NO_KEYS, Server(introspect::command)).docs("server", "2.8.13", "Returns detailed information about all commands."),
        command("slowlog", -2, ADM, NO_KEYS, Server(observe::slowlog)).docs("server", "2.2.12", "Returns and resets the slow log."),
        command("latency", -2, ADM, NO_KEYS, Server(observe::latency)).docs("server", "2.8.13", "Returns and resets latency data."),
        command("memory", -2, READ | OUTSIDE_ATOMIC, NO_KEYS, Server(memory::memory)).docs("server", "4.0.0", "Returns what keys and buffers cost."),
        command("save", 1, ADM | NO_MULTI, NO_KEYS, Server(admin::save)).docs("server", "1.0.0", "Makes everything acknowledged so far durable."),
        command("bgsave", -1, ADM, NO_KEYS, Server(admin::bgsave)).docs("server", "1.0.0", "Makes everything acknowledged so far durable, in the background."),
        command("lastsave", 1, S | FAST, NO_KEYS, Server(admin::lastsave)).docs("server", "1.0.0", "Returns the Unix timestamp of the last successful save."),
        command("shutdown", -1, ADM | NO_MULTI, NO_KEYS, Server(admin::shutdown)).docs("server", "1.0.0", "Drains the connections and shuts the server down."),
        command("time", 1, S | FAST, NO_KEYS, Server(admin::time)).docs("server", "2.6.0", "Returns the server time."),
        command("role", 1, S | FAST, NO_KEYS, Server(admin::role)).docs("server", "2.8.12", "Returns the replication role."),
        command("debug", -2, ADM, NO_KEYS, Server(admin::debug)).docs("server", "1.0.0", "Refused."),
        command("cluster", -2, S, NO_KEYS, Server(admin::cluster)).docs("cluster", "3.0.0", "Refused: there is no cluster."),
        command("readonly", 1, S | FAST, NO_KEYS, Server(admin::cluster)).docs("cluster", "3.0.0", "Refused: there is no cluster."),
        command("readwrite", 1, S | FAST, NO_KEYS, Server(admin::cluster)).docs("cluster", "3.0.0", "Refused: there is no cluster."),
        command("post", -1, S | NO_AUTH, NO_KEYS, Server(admin::web_request)).docs("server", "3.2.0", "Closes the connection: not a request of this protocol."),
        command("host:", -1, S | NO_AUTH, NO_KEYS, Server(admin::web_request)).docs("server", "3.2.0", "Closes the connection: not a request of this protocol."),
    ];
    let mut commands: Vec<Command> = strings().into_iter().chain(generic()).chain(transactions()).chain(connection()).chain(server()).collect();
    for (index, command) in commands.iter_mut().enumerate() {
        command.index = index;
    }
    commands
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
            assert_eq!(find(command.name.as_bytes()).map(|found| found.index), Some(command.index), "{}", command.name);
            let upper = command.name.to_ascii_uppercase();
            assert_eq!(find(upper.as_bytes()).map(|found| found.index), Some(command.index), "{upper}");
            assert!(!command.summary.is_empty() && !command.group.is_empty() && !command.since.is_empty());
        }
        assert_eq!(COMMANDS[get_index()].name, "get");
        assert_eq!(COMMANDS[set_index()].name, "set");
        assert!(count() * 2 < PLACES);
        for unknown in ["", "foo", "getget", "averyverylongcommandname"] {
            assert!(find(unknown.as_bytes()).is_none());
        }
    }
}
