//! What COMMAND DOCS says: group, first version of Redis that had the command, and one line.

/// A command's documentation.
pub(super) struct Doc {
    name: &'static str,
    pub(super) group: &'static str,
    pub(super) since: &'static str,
    pub(super) summary: &'static str,
}

const fn doc(
    name: &'static str,
    group: &'static str,
    since: &'static str,
    summary: &'static str,
) -> Doc {
    Doc { name, group, since, summary }
}

/// The documentation of the command called `name`, in small letters.
pub(super) fn of(name: &str) -> &'static Doc {
    static NONE: Doc = doc("", "generic", "1.0.0", "");
    DOCS.iter().find(|doc| doc.name == name).unwrap_or(&NONE)
}

#[rustfmt::skip]
static DOCS: &[Doc] = &[
    doc("get", "string", "1.0.0", "Returns the string value of a key."),
    doc("set", "string", "1.0.0", "Sets the string value of a key, ignoring its type. The key is created if it doesn't exist."),
    doc("setnx", "string", "1.0.0", "Set the string value of a key only when the key doesn't exist."),
    doc("setex", "string", "2.0.0", "Sets the string value and expiration time of a key. Creates the key if it doesn't exist."),
    doc("psetex", "string", "2.6.0", "Sets both string value and expiration time in milliseconds of a key. The key is created if it doesn't exist."),
    doc("getset", "string", "1.0.0", "Returns the previous string value of a key after setting it to a new value."),
    doc("getdel", "string", "6.2.0", "Returns the string value of a key after deleting the key."),
    doc("getex", "string", "6.2.0", "Returns the string value of a key after setting its expiration time."),
    doc("append", "string", "2.0.0", "Appends a string to the value of a key. Creates the key if it doesn't exist."),
    doc("strlen", "string", "2.2.0", "Returns the length of a string value."),
    doc("setrange", "string", "2.2.0", "Overwrites a part of a string value with another by an offset. Creates the key if it doesn't exist."),
    doc("getrange", "string", "2.4.0", "Returns a substring of the string stored at a key."),
    doc("substr", "string", "1.0.0", "Returns a substring from a string value."),
    doc("mget", "string", "1.0.0", "Returns the string values of one or more keys."),
    doc("mset", "string", "1.0.1", "Atomically creates or modifies the string values of one or more keys."),
    doc("msetnx", "string", "1.0.1", "Atomically modifies the string values of one or more keys only when all keys don't exist."),
    doc("incr", "string", "1.0.0", "Increments the integer value of a key by one. Uses 0 as initial value if the key doesn't exist."),
    doc("decr", "string", "1.0.0", "Decrements the integer value of a key by one. Uses 0 as initial value if the key doesn't exist."),
    doc("incrby", "string", "1.0.0", "Increments the integer value of a key by a number. Uses 0 as initial value if the key doesn't exist."),
    doc("decrby", "string", "1.0.0", "Decrements a number from the integer value of a key. Uses 0 as initial value if the key doesn't exist."),
    doc("incrbyfloat", "string", "2.6.0", "Increment the floating point value of a key by a number. Uses 0 as initial value if the key doesn't exist."),
    doc("del", "generic", "1.0.0", "Deletes one or more keys."),
    doc("unlink", "generic", "4.0.0", "Asynchronously deletes one or more keys."),
    doc("exists", "generic", "1.0.0", "Determines whether one or more keys exist."),
    doc("touch", "generic", "3.2.1", "Returns the number of existing keys out of those specified."),
    doc("type", "generic", "1.0.0", "Determines the type of value stored at a key."),
    doc("rename", "generic", "1.0.0", "Renames a key and overwrites the destination."),
    doc("renamenx", "generic", "1.0.0", "Renames a key only when the target key name doesn't exist."),
    doc("copy", "generic", "6.2.0", "Copies the value of a key to a new key."),
    doc("keys", "generic", "1.0.0", "Returns all key names that match a pattern."),
    doc("scan", "generic", "2.8.0", "Iterates over the key names in the database."),
    doc("range", "generic", "0.1.0", "Returns keys and values of an ordered map, in the order of keys."),
    doc("randomkey", "generic", "1.0.0", "Returns a random key name from the database."),
    doc("expire", "generic", "1.0.0", "Sets the expiration time of a key in seconds."),
    doc("pexpire", "generic", "2.6.0", "Sets the expiration time of a key in milliseconds."),
    doc("expireat", "generic", "1.2.0", "Sets the expiration time of a key to a Unix timestamp."),
    doc("pexpireat", "generic", "2.6.0", "Sets the expiration time of a key to a Unix milliseconds timestamp."),
    doc("ttl", "generic", "1.0.0", "Returns the expiration time in seconds of a key."),
    doc("pttl", "generic", "2.6.0", "Returns the expiration time in milliseconds of a key."),
    doc("expiretime", "generic", "7.0.0", "Returns the expiration time of a key as a Unix timestamp."),
    doc("pexpiretime", "generic", "7.0.0", "Returns the expiration time of a key as a Unix milliseconds timestamp."),
    doc("persist", "generic", "2.2.0", "Removes the expiration time of a key."),
    doc("object", "generic", "2.2.3", "Inspects how the value of a key is kept."),
    doc("wait", "generic", "3.0.0", "Returns 0: there are no replicas to wait for."),
    doc("lpush", "list", "1.0.0", "Prepends one or more elements to a list, a bounded queue. Creates the queue if it doesn't exist."),
    doc("rpush", "list", "1.0.0", "Appends one or more elements to a list, a bounded queue. Creates the queue if it doesn't exist."),
    doc("lpushx", "list", "2.2.0", "Prepends one or more elements to a list only when the list exists."),
    doc("rpushx", "list", "2.2.0", "Appends one or more elements to a list only when the list exists."),
    doc("lpop", "list", "1.0.0", "Returns and removes the first elements of a list that is pushed to at its other end."),
    doc("rpop", "list", "1.0.0", "Returns and removes the last elements of a list that is pushed to at its other end."),
    doc("blpop", "list", "2.0.0", "Removes and returns the first element in a list. Blocks until an element is available otherwise."),
    doc("brpop", "list", "2.0.0", "Removes and returns the last element in a list. Blocks until an element is available otherwise."),
    doc("snapshot.open", "generic", "0.1.0", "Opens a snapshot of all databases as they are now. It ends with its connection or its time."),
    doc("snapshot.get", "generic", "0.1.0", "Returns the string value of a key as it was when the snapshot was opened."),
    doc("snapshot.mget", "generic", "0.1.0", "Returns the string values of one or more keys as they were when the snapshot was opened."),
    doc("snapshot.range", "generic", "0.1.0", "Returns keys and values of an ordered map as they were when the snapshot was opened."),
    doc("snapshot.read", "generic", "0.1.0", "Returns the records of several keys and ranges, as they were when the snapshot was opened, as three arrays."),
    doc("snapshot.close", "generic", "0.1.0", "Closes snapshots of this connection."),
    doc("snapshot.list", "generic", "0.1.0", "Returns the snapshots of this connection and the time that they have left."),
    doc("ledger.open", "generic", "0.1.0", "Opens accounts in a ledger, each with a balance."),
    doc("ledger.exec", "generic", "0.1.0", "Executes a block of transfers as if one after another, all of it or nothing."),
    doc("ledger.balance", "generic", "0.1.0", "Returns the balances of accounts."),
    doc("ledger.account", "generic", "0.1.0", "Returns what an account holds and has done."),
    doc("ledger.hash", "generic", "0.1.0", "Returns the hash of all accounts, and after how many entries."),
    doc("llen", "list", "1.0.0", "Returns the length of a list."),
    doc("multi", "transactions", "1.2.0", "Starts a transaction."),
    doc("exec", "transactions", "1.2.0", "Executes all commands in a transaction."),
    doc("discard", "transactions", "2.0.0", "Discards a transaction."),
    doc("watch", "transactions", "2.2.0", "Monitors changes to keys to determine the execution of a transaction."),
    doc("unwatch", "transactions", "2.2.0", "Forgets about watched keys of a transaction."),
    doc("eval", "scripting", "2.6.0", "Executes a server-side Lua script, as one transaction."),
    doc("eval_ro", "scripting", "7.0.0", "Executes a read-only server-side Lua script."),
    doc("evalsha", "scripting", "2.6.0", "Executes a server-side Lua script, named by the SHA1 of its text."),
    doc("evalsha_ro", "scripting", "7.0.0", "Executes a read-only server-side Lua script, named by the SHA1 of its text."),
    doc("script", "scripting", "2.6.0", "Loads, finds, forgets and ends scripts."),
    doc("sql", "generic", "0.1.0", "Runs a statement of SQL on the tables and maps of the server."),
    doc("ping", "connection", "1.0.0", "Returns the server's liveliness response."),
    doc("echo", "connection", "1.0.0", "Returns the given string."),
    doc("select", "connection", "1.0.0", "Changes the selected database."),
    doc("auth", "connection", "1.0.0", "Authenticates the connection."),
    doc("hello", "connection", "6.0.0", "Handshakes with the server."),
    doc("quit", "connection", "1.0.0", "Closes the connection."),
    doc("reset", "connection", "6.2.0", "Resets the connection."),
    doc("client", "connection", "2.4.0", "Lists, names, pauses and closes connections."),
    doc("dbsize", "server", "1.0.0", "Returns the number of keys in the database."),
    doc("flushdb", "server", "1.0.0", "Removes all keys from the current database."),
    doc("flushall", "server", "1.0.0", "Removes all keys from all databases."),
    doc("info", "server", "1.0.0", "Returns information and statistics about the server."),
    doc("config", "server", "2.0.0", "Reads and changes the settings of the server."),
    doc("command", "server", "2.8.13", "Returns detailed information about all commands."),
    doc("slowlog", "server", "2.2.12", "Returns and resets the slow log."),
    doc("latency", "server", "2.8.13", "Returns and resets latency data."),
    doc("memory", "server", "4.0.0", "Returns what keys and buffers cost."),
    doc("save", "server", "1.0.0", "Makes everything acknowledged so far durable."),
    doc("bgsave", "server", "1.0.0", "Makes everything acknowledged so far durable, in the background."),
    doc("backup", "server", "1.0.0", "Writes all databases as they are at one moment to a folder, in the background."),
    doc("lastsave", "server", "1.0.0", "Returns the Unix timestamp of the last successful save."),
    doc("shutdown", "server", "1.0.0", "Drains the connections and shuts the server down."),
    doc("time", "server", "2.6.0", "Returns the server time."),
    doc("role", "server", "2.8.12", "Returns the replication role."),
    doc("debug", "server", "1.0.0", "Refused."),
    doc("cluster", "cluster", "3.0.0", "Refused: there is no cluster."),
    doc("readonly", "cluster", "3.0.0", "Refused: there is no cluster."),
    doc("readwrite", "cluster", "3.0.0", "Refused: there is no cluster."),
];

#[cfg(test)]
mod tests {
    use super::{DOCS, of};
    use crate::commands::table::COMMANDS;

    #[test]
    fn every_command_is_documented_once() {
        assert_eq!(DOCS.len(), COMMANDS.len());
        for command in COMMANDS.iter() {
            assert!(!of(command.name).summary.is_empty(), "{}", command.name);
        }
    }
}
