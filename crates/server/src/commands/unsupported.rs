//! Commands that are not here: known ones of Redis get a clear answer, others Redis's own.

use super::Failure;
use crate::resp::Args;

/// Commands of Redis 7 that this server does not offer.
const KNOWN: &[&str] = &[
    "acl",
    "asking",
    "bgrewriteaof",
    "bitcount",
    "bitfield",
    "bitfield_ro",
    "bitop",
    "bitpos",
    "blmove",
    "blmpop",
    "brpoplpush",
    "bzmpop",
    "bzpopmax",
    "bzpopmin",
    "dump",
    "failover",
    "fcall",
    "fcall_ro",
    "function",
    "geoadd",
    "geodist",
    "geohash",
    "geopos",
    "georadius",
    "georadius_ro",
    "georadiusbymember",
    "georadiusbymember_ro",
    "geosearch",
    "geosearchstore",
    "getbit",
    "hdel",
    "hexists",
    "hget",
    "hgetall",
    "hincrby",
    "hincrbyfloat",
    "hkeys",
    "hlen",
    "hmget",
    "hmset",
    "hrandfield",
    "hscan",
    "hset",
    "hsetnx",
    "hstrlen",
    "hvals",
    "lcs",
    "lindex",
    "linsert",
    "lmove",
    "lmpop",
    "lolwut",
    "lpos",
    "lrange",
    "lrem",
    "lset",
    "ltrim",
    "migrate",
    "module",
    "monitor",
    "move",
    "pfadd",
    "pfcount",
    "pfdebug",
    "pfmerge",
    "pfselftest",
    "psubscribe",
    "psync",
    "publish",
    "pubsub",
    "punsubscribe",
    "replconf",
    "replicaof",
    "restore",
    "restore-asking",
    "rpoplpush",
    "sadd",
    "scard",
    "sdiff",
    "sdiffstore",
    "setbit",
    "sinter",
    "sintercard",
    "sinterstore",
    "sismember",
    "slaveof",
    "smembers",
    "smismember",
    "smove",
    "sort",
    "sort_ro",
    "spop",
    "spublish",
    "srandmember",
    "srem",
    "sscan",
    "ssubscribe",
    "subscribe",
    "sunion",
    "sunionstore",
    "sunsubscribe",
    "swapdb",
    "sync",
    "unsubscribe",
    "xack",
    "xadd",
    "xautoclaim",
    "xclaim",
    "xdel",
    "xgroup",
    "xinfo",
    "xlen",
    "xpending",
    "xrange",
    "xread",
    "xreadgroup",
    "xrevrange",
    "xsetid",
    "xtrim",
    "zadd",
    "zcard",
    "zcount",
    "zdiff",
    "zdiffstore",
    "zincrby",
    "zinter",
    "zintercard",
    "zinterstore",
    "zlexcount",
    "zmpop",
    "zmscore",
    "zpopmax",
    "zpopmin",
    "zrandmember",
    "zrange",
    "zrangebylex",
    "zrangebyscore",
    "zrangestore",
    "zrank",
    "zrem",
    "zremrangebylex",
    "zremrangebyrank",
    "zremrangebyscore",
    "zrevrange",
    "zrevrangebylex",
    "zrevrangebyscore",
    "zrevrank",
    "zscan",
    "zscore",
    "zunion",
    "zunionstore",
];

/// What there is instead of a known command, by what it is about.
fn instead(name: &str) -> &'static str {
    const BITS: &[&str] =
        &["bitcount", "bitfield", "bitfield_ro", "bitop", "bitpos", "getbit", "setbit"];
    const LISTS: &[&str] = &[
        "blmove",
        "blmpop",
        "brpoplpush",
        "lindex",
        "linsert",
        "lmove",
        "lmpop",
        "lpos",
        "lrange",
        "lrem",
        "lset",
        "ltrim",
        "rpoplpush",
    ];
    const TRANSFERS: &[&str] = &["dump", "migrate", "restore", "restore-asking"];
    const KEYS: &[&str] = &["move", "swapdb"];
    const SERVER: &[&str] = &[
        "acl",
        "asking",
        "bgrewriteaof",
        "failover",
        "lolwut",
        "module",
        "monitor",
        "psync",
        "replconf",
        "replicaof",
        "slaveof",
        "sync",
    ];
    const FUNCTIONS: &[&str] = &["fcall", "fcall_ro", "function"];
    match name {
        _ if BITS.contains(&name) => {
            ": strings are read and written by the byte (GETRANGE, SETRANGE), not by the bit"
        }
        _ if LISTS.contains(&name) => {
            ": lists are queues here, pushed to at one end and popped at the other (LPUSH, RPOP, BRPOP, RPUSH, LPOP, \
             BLPOP, LLEN)"
        }
        _ if FUNCTIONS.contains(&name) => ": there are no functions; EVAL and EVALSHA run scripts",
        _ if TRANSFERS.contains(&name) => {
            ": values have no serialized form here; `terrace export` and `terrace import` move whole maps"
        }
        "lcs" => ": values are not compared here; GET both",
        "sort" | "sort_ro" => {
            ": lists are queues here and keep their order; ordered maps answer RANGE by the order of keys"
        }
        _ if KEYS.contains(&name) || SERVER.contains(&name) => "",
        _ => ": this server keeps strings and queues",
    }
}

/// Whether a request is a piece of HTTP: a browser was tricked into talking to this port.
pub(super) fn is_web_request(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

/// Bytes shown of an unknown command's name, and of its arguments together.
const SHOWN_BYTES: usize = 128;

/// The error for a name that is not in the table.
pub(super) fn error(args: Args<'_>) -> Failure {
    let name = args.at(0);
    let lower = String::from_utf8_lossy(name).to_ascii_lowercase();
    if KNOWN.binary_search(&lower.as_str()).is_ok() {
        let upper = lower.to_ascii_uppercase();
        return format!("ERR {upper} is not supported by Terrace{}", instead(&lower)).into();
    }
    let shown = |bytes: &[u8], most: usize| {
        String::from_utf8_lossy(&bytes[..bytes.len().min(most)]).into_owned()
    };
    let mut beginning = String::new();
    for argument in args.from(1) {
        if beginning.len() >= SHOWN_BYTES {
            break;
        }
        beginning += &format!("'{}' ", shown(argument, SHOWN_BYTES - beginning.len()));
    }
    format!(
        "ERR unknown command '{}', with args beginning with: {beginning}",
        shown(name, SHOWN_BYTES)
    )
    .into()
}

#[cfg(test)]
mod tests {
    use super::KNOWN;
    use crate::commands::table;

    #[test]
    fn known_commands_are_sorted_and_not_in_the_table() {
        assert!(KNOWN.is_sorted());
        for name in KNOWN {
            assert!(table::find(name.as_bytes()).is_none(), "{name}");
        }
    }
}
