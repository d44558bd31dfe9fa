//! Between replies of the protocol and values of Lua, as Redis converts them: a null is `false`, `true` is 1, a number
//! loses its fraction, a table ends at its first `nil`, and `{ok = ...}` and `{err = ...}` are what they say.

use super::interpreter::one_line;
use crate::resp::Output;
use crate::resp::number::integer;
use mlua::{Lua, Table, Value};

/// Tables in tables, in what a script returns.
const DEPTH: usize = 100;
/// Values in it, and their bytes with what the protocol adds to each.
const VALUES: usize = 1 << 20;
const BYTES: usize = 64 << 20;
const HEAD_BYTES: usize = 32;

/// The reply at the start of `bytes`, which are RESP2 and whole.
pub(super) fn to_lua(lua: &Lua, bytes: &[u8]) -> mlua::Result<Value> {
    let mut rest = bytes;
    value(lua, &mut rest)
}

fn value(lua: &Lua, rest: &mut &[u8]) -> mlua::Result<Value> {
    let Some((kind, line)) = line(rest) else { return Ok(Value::Boolean(false)) };
    let number = || integer(line).unwrap_or(-1);
    Ok(match kind {
        b'+' => {
            let table = lua.create_table()?;
            table.raw_set("ok", lua.create_string(line)?)?;
            Value::Table(table)
        }
        b'-' => return error_table(lua, line),
        b':' => Value::Number(number() as f64),
        b'$' => match usize::try_from(number()) {
            Ok(len) if len + 2 <= rest.len() => {
                let (text, after) = rest.split_at(len);
                *rest = &after[2..];
                Value::String(lua.create_string(text)?)
            }
            _ => Value::Boolean(false),
        },
        b'*' if number() >= 0 => {
            let table = lua.create_table()?;
            for _ in 0..number() {
                table.raw_push(value(lua, rest)?)?;
            }
            Value::Table(table)
        }
        _ => Value::Boolean(false),
    })
}

/// Takes a line: its kind and the text behind it.
fn line<'a>(rest: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
    let (line, after) = rest.split_at(end);
    *rest = &after[2..];
    let (kind, text) = line.split_first()?;
    Some((*kind, text))
}

/// What a script sees of an error.
pub(super) fn error_table(lua: &Lua, text: impl AsRef<[u8]>) -> mlua::Result<Value> {
    let table = lua.create_table()?;
    table.raw_set("err", lua.create_string(text)?)?;
    Ok(Value::Table(table))
}

/// Writes what a script returned.
///
/// # Errors
/// Tables lie in tables too deep, or it is too large.
pub(super) fn to_reply(out: &mut Output, value: &Value) -> Result<(), &'static str> {
    let mark = out.mark();
    let mut left = Left { values: VALUES, bytes: BYTES.min(out.room_bytes()) };
    write(out, value, 0, &mut left).inspect_err(|_| out.truncate(mark))
}

/// What a reply may still have.
struct Left {
    values: usize,
    bytes: usize,
}

impl Left {
    fn take(&mut self, bytes: usize) -> Result<(), &'static str> {
        let bytes = bytes + HEAD_BYTES;
        if self.values == 0 || self.bytes < bytes {
            return Err("ERR the reply of the script is too large");
        }
        self.values -= 1;
        self.bytes -= bytes;
        Ok(())
    }
}

fn write(
    out: &mut Output,
    value: &Value,
    depth: usize,
    left: &mut Left,
) -> Result<(), &'static str> {
    if depth > DEPTH {
        return Err("ERR reached lua stack limit");
    }
    left.take(if let Value::String(string) = value { string.as_bytes().len() } else { 0 })?;
    match value {
        Value::Boolean(true) => out.integer(1),
        Value::Integer(integer) => out.integer(*integer),
        // As a cast of C does where the number is in range.
        Value::Number(number) => out.integer(*number as i64),
        Value::String(string) => out.bulk(&string.as_bytes()),
        Value::Table(table) => return write_table(out, table, depth, left),
        _ => out.null(),
    }
    Ok(())
}

fn write_table(
    out: &mut Output,
    table: &Table,
    depth: usize,
    left: &mut Left,
) -> Result<(), &'static str> {
    if let Some(text) = field(table, "err") {
        left.take(text.len())?;
        out.error(text.strip_prefix('-').unwrap_or(&text));
        return Ok(());
    }
    if let Some(text) = field(table, "ok") {
        left.take(text.len())?;
        out.simple(&text.replace(['\r', '\n'], " "));
        return Ok(());
    }
    let at = |index| table.raw_get::<Value>(index).map_err(|_| "ERR no memory for the reply");
    // None is held: Lua would keep room for as many as there ever were at once.
    let mut length = 0;
    while !at(length + 1)?.is_nil() {
        length += 1;
    }
    out.array(length);
    (1..=length).try_for_each(|index| write(out, &at(index)?, depth + 1, left))
}

fn field(table: &Table, name: &str) -> Option<String> {
    match table.raw_get::<Value>(name) {
        Ok(Value::String(text)) => Some(String::from_utf8_lossy(&text.as_bytes()).into_owned()),
        _ => None,
    }
}

/// What is told of an error that a script did not catch.
pub(super) fn error_text(value: &Value) -> String {
    let text = match value {
        Value::Table(table) => field(table, "err").map(|text| text.trim_start_matches('-').into()),
        Value::String(text) => Some(format!("ERR {}", String::from_utf8_lossy(&text.as_bytes()))),
        Value::Error(error) => Some(format!("ERR {}", one_line(error))),
        _ => None,
    };
    text.unwrap_or_else(|| "ERR the script raised an error that is not a text".into())
}

/// A number as an argument of a command.
pub(super) fn number(number: f64) -> String {
    match number.abs() {
        0.0 | 1e-5..1e17 => format!("{number}"),
        _ => format!("{number:e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn back_and_forth(reply: &str) -> String {
        let lua = Lua::new();
        let value = to_lua(&lua, reply.as_bytes()).expect("memory");
        let mut out = Output::new(1 << 20);
        to_reply(&mut out, &value).expect("not deep");
        String::from_utf8_lossy(out.unsent()).into_owned()
    }

    #[test]
    fn replies_come_back_as_they_were() {
        let replies = [
            "+OK\r\n",
            "-ERR no\r\n",
            ":-12\r\n",
            "$3\r\na\r\n\r\n",
            "$-1\r\n",
            "*2\r\n$1\r\na\r\n*1\r\n:7\r\n",
            "*0\r\n",
        ];
        replies.iter().for_each(|reply| assert_eq!(back_and_forth(reply), *reply));
        assert_eq!(back_and_forth("*-1\r\n"), "$-1\r\n");
    }

    #[test]
    fn a_reply_is_not_nested_without_end() {
        let lua = Lua::new();
        let table: Value = lua
            .load("local t = {} for _ = 1, 1000 do t = {t} end return t")
            .eval()
            .expect("a table");
        let mut out = Output::new(1 << 20);
        assert!(to_reply(&mut out, &table).is_err());
        assert!(out.is_empty());
    }

    #[test]
    fn a_reply_that_a_small_table_stands_for_is_bounded() {
        let lua = Lua::new();
        for script in [
            "local t = {} for _ = 1, 90 do t = {t, t} end return t",
            "local e, t = {err = ('x'):rep(1e6)}, {} for i = 1, 1000 do t[i] = e end return t",
            "local s, t = ('x'):rep(1e6), {} for i = 1, 1000 do t[i] = s end return t",
        ] {
            let table: Value = lua.load(script).eval().expect("a table");
            let mut out = Output::new(1 << 30);
            assert!(to_reply(&mut out, &table).is_err(), "{script}");
            assert!(out.is_empty());
        }
    }

    #[test]
    fn numbers_are_short() {
        let cases = [(0.1, "0.1"), (3.0, "3"), (1e300, "1e300"), (-2.5e-9, "-2.5e-9"), (0.0, "0")];
        cases.iter().for_each(|(given, text)| assert_eq!(number(*given), *text));
    }
}
