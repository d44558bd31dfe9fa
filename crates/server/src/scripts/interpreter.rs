//! A Lua interpreter: one for each thread that runs scripts.
//!
//! It knows no command: whoever runs a script gives it the function that executes one. A script finds what
//! `sandbox.lua` lists and nothing else; it is stopped at its next loop or call when its time is over, and refused
//! memory beyond [`MEMORY_BYTES`].

use super::known::{Known, Script, sha1_hex};
use super::{Stop, convert, json};
use crate::resp::{Args, Output, Span};
use mlua::{Function, Lua, LuaOptions, LuaString, MultiValue, StdLib, Table, Value, VmState};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// What the interpreter takes at the most.
const MEMORY_BYTES: usize = 64 << 20;
/// When it takes so much after a script, what is not needed is given back at once.
const LEFT_BYTES: usize = 16 << 20;
/// Compiled scripts that are kept.
const COMPILED: usize = 1000;
/// Loops and calls between two looks at the clock.
const LOOKED_AFTER: u32 = 16;
/// The name of a script in its errors.
const NAME: &str = "=user_script";

/// When a script is to end.
#[derive(Clone)]
pub(crate) struct Limits {
    pub(crate) until: Instant,
    /// Set by somebody else: it is to end.
    pub(crate) killed: Option<Arc<AtomicBool>>,
}

/// What the script that runs is watched by.
#[derive(Default)]
struct Watched {
    limits: RefCell<Option<Limits>>,
    looks: Cell<u32>,
    /// Why it is to end, once it is.
    stop: RefCell<Option<Stop>>,
}

impl Watched {
    fn start(&self, limits: Limits) {
        *self.limits.borrow_mut() = Some(limits);
        self.stop.take();
    }

    /// Asked at each loop and call.
    fn look(&self) -> mlua::Result<VmState> {
        let looks = self.looks.get().wrapping_add(1);
        self.looks.set(looks);
        if self.is_stopped() {
            return Err(stopped());
        }
        if looks.is_multiple_of(LOOKED_AFTER)
            && let Some(stop) = self.is_over()
        {
            return Err(self.stop(stop));
        }
        Ok(VmState::Continue)
    }

    fn is_over(&self) -> Option<Stop> {
        let limits = self.limits.borrow();
        let limits = limits.as_ref()?;
        let is_killed = |killed: &Arc<AtomicBool>| killed.load(Ordering::Relaxed);
        if limits.killed.as_ref().is_some_and(is_killed) {
            return Some(Stop::Killed);
        }
        (Instant::now() > limits.until).then_some(Stop::TooLong)
    }

    fn is_stopped(&self) -> bool {
        self.stop.borrow().is_some()
    }

    fn stop(&self, stop: Stop) -> mlua::Error {
        *self.stop.borrow_mut() = Some(stop);
        stopped()
    }
}

/// The error that ends a script; why is said in [`Watched::stop`].
fn stopped() -> mlua::Error {
    mlua::Error::runtime("the script was stopped")
}

/// A Lua state with what scripts find in it.
pub(crate) struct Interpreter {
    lua: Lua,
    watched: Rc<Watched>,
    /// Where KEYS and ARGV are put.
    names: Table,
    environment: Table,
    bind: Function,
    run: Function,
    compiled: HashMap<Box<str>, Function>,
    flushes: u64,
    /// Replies to the script's commands.
    out: Output,
    /// A script left so much behind that another interpreter is to be made.
    pub(crate) is_spent: bool,
}

impl Interpreter {
    /// # Errors
    /// No memory.
    pub(crate) fn new() -> mlua::Result<Interpreter> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH | StdLib::BIT | StdLib::OS;
        let lua = Lua::new_with(libraries, LuaOptions::new())?;
        let watched = Rc::new(Watched::default());
        let parts = lua.create_table()?;
        let asked = Rc::clone(&watched);
        parts.set("is_stopped", lua.create_function(move |_, ()| Ok(asked.is_stopped()))?)?;
        let sha1hex = |lua: &Lua, text: LuaString| {
            lua.create_string(&*sha1_hex(&text.as_bytes())).map(Value::String)
        };
        let encode = |lua: &Lua, value: Value| json::encode(lua, value).map(Value::String);
        parts.set("sha1hex", lua.create_function(move |lua, text| told(sha1hex(lua, text)))?)?;
        parts.set("encode", lua.create_function(move |lua, value| told(encode(lua, value)))?)?;
        parts.set("decode", lua.create_function(|lua, text| told(json::decode(lua, text)))?)?;
        parts.set("null", Value::NULL)?;
        let made: Table = lua.load(include_str!("sandbox.lua")).set_name("=sandbox").call(parts)?;
        // From here on the libraries can be read and not written.
        lua.sandbox(true)?;
        lua.set_memory_limit(MEMORY_BYTES)?;
        let looked = Rc::clone(&watched);
        lua.set_interrupt(move |_| looked.look());
        Ok(Interpreter {
            watched,
            names: made.get("names")?,
            environment: made.get("environment")?,
            bind: made.get("bind")?,
            run: made.get("run")?,
            compiled: HashMap::new(),
            flushes: 0,
            out: Output::default(),
            is_spent: false,
            lua,
        })
    }

    /// # Errors
    /// What is wrong with it, as it is told to a client.
    pub(crate) fn compile(&mut self, known: &Known, script: &Script) -> Result<Function, String> {
        if self.flushes != known.flushes() || self.compiled.len() >= COMPILED {
            self.compiled.clear();
            self.flushes = known.flushes();
        }
        if let Some(function) = self.compiled.get(&script.sha) {
            return Ok(function.clone());
        }
        let chunk =
            self.lua.load(&*script.text).set_name(NAME).set_mode(mlua::chunk::ChunkMode::Text);
        let function = chunk.set_environment(self.environment.clone()).into_function();
        let function = function.map_err(|error| {
            format!("ERR Error compiling script (new function): {}", one_line(&error))
        })?;
        self.compiled.insert(script.sha.clone(), function.clone());
        Ok(function)
    }

    /// Runs a script; what it returned is in `out`. `execute` executes a command, whose reply it writes.
    ///
    /// # Errors
    /// Why the script did not come to its end.
    pub(crate) fn run<'a>(
        &mut self,
        function: &Function,
        (keys, arguments): (impl Iterator<Item = &'a [u8]>, impl Iterator<Item = &'a [u8]>),
        limits: Limits,
        out: &mut Output,
        mut execute: impl FnMut(Args<'_>, &mut Output) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let Interpreter { lua, watched, names, bind, run, out: replies, .. } = self;
        watched.start(limits);
        replies.set_limit_bytes(MEMORY_BYTES);
        // A script that was stopped at a command left that one's reply.
        replies.truncate(0);
        let mut request = Request::default();
        let ended = lua.scope(|scope| {
            let call = scope.create_function_mut(|lua, values: MultiValue| {
                if let Err(refusal) = request.fill(&values) {
                    return convert::error_table(lua, refusal);
                }
                let mark = replies.mark();
                execute(Args::new(&request.text, &request.spans), replies)
                    .map_err(|stop| watched.stop(stop))?;
                if let Some(stop) = watched.is_over() {
                    return Err(watched.stop(stop));
                }
                let value = convert::to_lua(lua, &replies.unsent()[mark..]);
                replies.truncate(mark);
                if replies.overflowed() {
                    *replies = Output::new(MEMORY_BYTES);
                    return convert::error_table(lua, "ERR the reply is too large for a script");
                }
                value
            })?;
            names.raw_set("KEYS", strings(lua, keys)?)?;
            names.raw_set("ARGV", strings(lua, arguments)?)?;
            bind.call::<()>(call)?;
            run.call::<(bool, Value)>(function.clone())
        });
        let stop = watched.stop.take();
        // An error of the interrupt or the memory limit can leave `run` as one of Rust's.
        let result = match (stop, ended) {
            (Some(stop), _) => Err(stop),
            (None, Ok((true, value))) => {
                convert::to_reply(out, &value).map_err(|text| Stop::Failed(text.into()))
            }
            (None, Ok((false, value))) => Err(Stop::Failed(convert::error_text(&value))),
            (None, Err(error)) => Err(Stop::Failed(format!("ERR {}", one_line(&error)))),
        };
        self.tidy();
        result
    }

    /// Lets go what the last script had.
    fn tidy(&mut self) {
        let _none = self.names.raw_set("KEYS", Value::Nil);
        let _none = self.names.raw_set("ARGV", Value::Nil);
        if self.out.memory_bytes() > LEFT_BYTES {
            self.out = Output::default();
        }
        if self.lua.used_memory() > LEFT_BYTES {
            let _kept = self.lua.gc_collect();
        }
        if self.lua.used_memory() > LEFT_BYTES {
            // Scripts take it.
            self.compiled.clear();
            let _kept = self.lua.gc_collect();
        }
        self.is_spent = self.lua.used_memory() > LEFT_BYTES;
    }
}

/// A result of a function in Rust, and what is wrong: a script sees a text.
fn told(result: mlua::Result<Value>) -> mlua::Result<(Value, Option<String>)> {
    Ok(match result {
        Ok(value) => (value, None),
        Err(error) => (Value::Nil, Some(one_line(&error))),
    })
}

/// An error in one line, without the place in this program that it came from.
pub(super) fn one_line(error: &mlua::Error) -> String {
    let text = match error {
        mlua::Error::MemoryError(_) => {
            return format!("the script needs more than {MEMORY_BYTES} bytes of memory");
        }
        mlua::Error::CallbackError { cause, .. } => return one_line(cause),
        mlua::Error::RuntimeError(text) => text.clone(),
        mlua::Error::SyntaxError { message, .. } => message.clone(),
        error => error.to_string(),
    };
    text.lines().next().unwrap_or_default().into()
}

fn strings<'a>(lua: &Lua, strings: impl Iterator<Item = &'a [u8]>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    for string in strings {
        table.raw_push(lua.create_string(string)?)?;
    }
    Ok(table)
}

/// The arguments of a command that a script has executed.
#[derive(Default)]
struct Request {
    text: Vec<u8>,
    spans: Vec<Span>,
}

impl Request {
    fn fill(&mut self, values: &MultiValue) -> Result<(), &'static str> {
        self.text.clear();
        self.spans.clear();
        for value in values {
            let start = self.text.len() as u32;
            match value {
                Value::String(string) => self.text.extend_from_slice(&string.as_bytes()),
                Value::Integer(integer) => self.text.extend(integer.to_string().as_bytes()),
                Value::Number(number) => self.text.extend(convert::number(*number).as_bytes()),
                _ => return Err("ERR Lua redis lib command arguments must be strings or integers"),
            }
            if self.text.len() > MEMORY_BYTES {
                return Err("ERR the arguments are too large for a script");
            }
            self.spans.push((start, self.text.len() as u32));
        }
        let none = "ERR Please specify at least one argument for this redis lib call";
        if self.spans.is_empty() { Err(none) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::iter::empty;

    fn limits() -> Limits {
        Limits { until: Instant::now() + std::time::Duration::from_secs(10), killed: None }
    }

    /// A script that was stopped behind a command left that one's reply, and the next scripts had less room for theirs.
    #[test]
    fn a_script_that_is_stopped_at_a_command_leaves_no_reply() {
        let (known, mut interpreter) = (Known::default(), Interpreter::new().expect("memory"));
        let script = known.evaluated(b"return redis.call('GET', 'a')").expect("a script");
        let function = interpreter.compile(&known, &script).expect("it compiles");
        let mut out = Output::new(1 << 20);
        let run = |interpreter: &mut Interpreter, out: &mut Output, is_stopped: bool| {
            interpreter.run(&function, (empty(), empty()), limits(), out, |_, replies| {
                replies.bulk(b"some");
                if is_stopped { Err(Stop::Killed) } else { Ok(()) }
            })
        };
        assert!(matches!(run(&mut interpreter, &mut out, true), Err(Stop::Killed)));
        assert!(run(&mut interpreter, &mut out, false).is_ok());
        assert_eq!(out.unsent(), b"$4\r\nsome\r\n");
        assert_eq!(interpreter.out.mark(), 0);
    }
}
