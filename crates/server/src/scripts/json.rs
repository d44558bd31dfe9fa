//! `cjson`: between values of Lua and JSON. As the module of that name does it: a table whose keys are all whole
//! numbers from 1 on is an array, one without keys an object.

use mlua::{Error, Lua, LuaString, Table, Value};
use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// Tables in tables, when they are encoded. (When they are decoded, 127: the parser's limit.)
const DEPTH: usize = 200;
/// An array with more holes than values is refused when it is longer than this.
const SPARSE: usize = 10;
/// Bytes of an encoded value.
const BYTES: usize = 32 << 20;

pub(super) fn encode(lua: &Lua, value: Value) -> mlua::Result<LuaString> {
    let mut text = Vec::new();
    write(&mut text, &value, 0)?;
    lua.create_string(&text)
}

fn write(text: &mut Vec<u8>, value: &Value, depth: usize) -> mlua::Result<()> {
    if depth > DEPTH {
        return Err(Error::runtime(format!("Cannot serialise, excessive depth ({depth})")));
    }
    if text.len() > BYTES {
        return Err(Error::runtime(format!("Cannot serialise, more than {BYTES} bytes")));
    }
    match value {
        Value::Nil => text.extend(b"null"),
        Value::LightUserData(_) if value.is_null() => text.extend(b"null"),
        Value::Boolean(value) => text.extend(value.to_string().as_bytes()),
        Value::Integer(value) => text.extend(value.to_string().as_bytes()),
        Value::Number(value) if value.is_finite() => {
            text.extend(super::convert::number(*value).as_bytes());
        }
        Value::Number(_) => {
            return Err(Error::runtime("Cannot serialise number: must not be NaN or Inf"));
        }
        Value::String(value) => write_string(text, &value.as_bytes()),
        Value::Table(table) => return write_table(text, table, depth),
        other => {
            return Err(Error::runtime(format!("Cannot serialise {}", other.type_name())));
        }
    }
    Ok(())
}

fn write_table(text: &mut Vec<u8>, table: &Table, depth: usize) -> mlua::Result<()> {
    if let Some(length) = array_length(table)? {
        text.push(b'[');
        for index in 1..=length {
            if index > 1 {
                text.push(b',');
            }
            write(text, &table.raw_get(index)?, depth + 1)?;
        }
        text.push(b']');
        return Ok(());
    }
    text.push(b'{');
    let mut is_first = true;
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        if !std::mem::take(&mut is_first) {
            text.push(b',');
        }
        match key {
            Value::String(key) => write_string(text, &key.as_bytes()),
            Value::Integer(key) => text.extend(format!("\"{key}\"").as_bytes()),
            Value::Number(key) => {
                text.extend(format!("\"{}\"", super::convert::number(key)).as_bytes());
            }
            _ => {
                let what = "Cannot serialise table: table key must be a number or string";
                return Err(Error::runtime(what));
            }
        }
        text.push(b':');
        write(text, &value, depth + 1)?;
    }
    text.push(b'}');
    Ok(())
}

/// How long the table is, if it is an array.
fn array_length(table: &Table) -> mlua::Result<Option<usize>> {
    let (mut count, mut length) = (0, 0);
    for pair in table.pairs::<Value, Value>() {
        let index = match pair?.0 {
            Value::Integer(index) => usize::try_from(index).unwrap_or(0),
            _ => 0,
        };
        if index == 0 {
            return Ok(None);
        }
        count += 1;
        length = length.max(index);
    }
    if length > SPARSE && length > 2 * count {
        return Err(Error::runtime("Cannot serialise table: excessively sparse array"));
    }
    Ok((count > 0).then_some(length))
}

fn write_string(text: &mut Vec<u8>, string: &[u8]) {
    text.push(b'"');
    for byte in string {
        match byte {
            b'"' => text.extend(b"\\\""),
            b'\\' => text.extend(b"\\\\"),
            b'/' => text.extend(b"\\/"),
            8 => text.extend(b"\\b"),
            12 => text.extend(b"\\f"),
            b'\n' => text.extend(b"\\n"),
            b'\r' => text.extend(b"\\r"),
            b'\t' => text.extend(b"\\t"),
            0..32 | 127 => text.extend(format!("\\u{byte:04x}").as_bytes()),
            _ => text.push(*byte),
        }
    }
    text.push(b'"');
}

pub(super) fn decode(lua: &Lua, text: LuaString) -> mlua::Result<Value> {
    let text = text.as_bytes();
    let mut parser = serde_json::Deserializer::from_slice(&text);
    let value = Decoded(lua).deserialize(&mut parser);
    let value = value.and_then(|value| parser.end().map(|()| value));
    value.map_err(|error| Error::runtime(format!("Cannot decode JSON: {error}")))
}

/// Makes values of Lua of what a parser finds.
#[derive(Clone, Copy)]
struct Decoded<'l>(&'l Lua);

impl<'de> DeserializeSeed<'de> for Decoded<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, parser: D) -> Result<Value, D::Error> {
        parser.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Decoded<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Value, E> {
        Ok(Value::NULL)
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Boolean(value))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value as f64))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value as f64))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Number(value))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.0.create_string(value).map(Value::String).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Value, A::Error> {
        let custom = <A::Error as serde::de::Error>::custom;
        let table = self.0.create_table().map_err(custom)?;
        while let Some(value) = values.next_element_seed(self)? {
            table.raw_push(value).map_err(custom)?;
        }
        Ok(Value::Table(table))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Value, A::Error> {
        let custom = <A::Error as serde::de::Error>::custom;
        let table = self.0.create_table().map_err(custom)?;
        while let Some(key) = pairs.next_key_seed(self)? {
            let value = pairs.next_value_seed(self)?;
            table.raw_set(key, value).map_err(custom)?;
        }
        Ok(Value::Table(table))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(script: &str) -> Result<String, String> {
        let lua = Lua::new();
        let value = lua.load(script).eval().map_err(|error| error.to_string())?;
        let text = encode(&lua, value).map_err(|error| error.to_string())?;
        Ok(text.to_string_lossy())
    }

    #[test]
    fn values_are_encoded_as_the_module_does() {
        let cases = [
            ("{1, 'a', true, {}}", r#"[1,"a",true,{}]"#),
            ("{a = {b = 1.5}}", r#"{"a":{"b":1.5}}"#),
            ("{[3] = 1}", "[null,null,1]"),
            (r#""a/\"\n\1""#, r#""a\/\"\n\u0001""#),
            ("nil", "null"),
            ("2^53", "9007199254740992"),
        ];
        for (script, text) in cases {
            assert_eq!(encoded(script).as_deref(), Ok(text), "{script}");
        }
        for refused in ["1/0", "{[100] = 1}", "print", "{[true] = 1}"] {
            assert!(encoded(refused).is_err(), "{refused}");
        }
        assert!(encoded("(function() local t = {} t[1] = t return t end)()").is_err());
    }

    #[test]
    fn what_was_decoded_is_encoded_as_it_was() {
        let lua = Lua::new();
        let text = r#"{"a":[1,2.5,"x",true,null,{"b":{}}]}"#;
        let value = decode(&lua, lua.create_string(text).expect("memory")).expect("JSON");
        let again = encode(&lua, value).expect("values");
        assert_eq!(again.to_string_lossy(), text);
        let deep = "[".repeat(100_000);
        for refused in ["", "{", "[1] 2", "nope", &deep] {
            let refused = lua.create_string(refused).expect("memory");
            assert!(decode(&lua, refused).is_err());
        }
    }
}
