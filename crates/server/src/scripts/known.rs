//! Scripts that are known by their hash.

use parking_lot::RwLock;
use sha1::{Digest, Sha1};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Scripts of EVAL that are kept: the youngest. What SCRIPT LOAD was given stays.
const EVALUATED: usize = 500;
/// Bytes that a script may have,
const SCRIPT_BYTES: usize = 1 << 20;
/// and those that were loaded together, or the others.
const BYTES: usize = 64 << 20;

/// A script.
pub(crate) struct Script {
    /// SHA-1 of its text, in hexadecimal.
    pub(crate) sha: Box<str>,
    pub(crate) text: Box<[u8]>,
    /// Its first line says that it does not write.
    pub(crate) reads_only: bool,
    /// It took long when it ran last: an event loop does not wait for it again.
    is_long: AtomicBool,
}

impl Script {
    fn new(sha: Box<str>, text: &[u8]) -> Result<Script, String> {
        if text.len() > SCRIPT_BYTES {
            return Err(format!("ERR a script takes at most {SCRIPT_BYTES} bytes"));
        }
        let end = text.iter().position(|byte| *byte == b'\n').unwrap_or(text.len());
        let (first, rest) = text.split_at(end);
        let (reads_only, text) = match first.strip_prefix(b"#!") {
            Some(first) => (reads_only(first)?, rest),
            None => (false, text),
        };
        Ok(Script { sha, text: text.into(), reads_only, is_long: AtomicBool::new(false) })
    }

    pub(crate) fn is_long(&self) -> bool {
        self.is_long.load(Ordering::Relaxed)
    }

    pub(crate) fn set_long(&self, is_long: bool) {
        self.is_long.store(is_long, Ordering::Relaxed);
    }
}

/// What a script's first line says, behind `#!`.
fn reads_only(line: &[u8]) -> Result<bool, String> {
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_whitespace();
    if words.next() != Some("lua") {
        return Err("ERR Unexpected engine in script shebang: only lua is known".into());
    }
    let mut reads_only = false;
    for word in words {
        let flags = word.strip_prefix("flags=").ok_or("ERR Unknown lua shebang option")?;
        for flag in flags.split(',') {
            match flag {
                "no-writes" => reads_only = true,
                "allow-oom" | "allow-stale" | "no-cluster" | "allow-cross-slot-keys" => {}
                _ => return Err(format!("ERR Unexpected flag in script shebang: {flag}")),
            }
        }
    }
    Ok(reads_only)
}

/// The SHA-1 of `text`, in hexadecimal.
pub(crate) fn sha1_hex(text: &[u8]) -> Box<str> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |half: u8| char::from(DIGITS[usize::from(half)]);
    let digits = |byte: &u8| [digit(byte >> 4), digit(byte & 15)];
    Sha1::digest(text).iter().flat_map(digits).collect::<String>().into()
}

/// All scripts of a server.
#[derive(Default)]
pub(crate) struct Known {
    scripts: RwLock<Scripts>,
    /// How often all were forgotten.
    flushes: AtomicU64,
}

#[derive(Default)]
struct Scripts {
    by_sha: HashMap<Box<str>, Arc<Script>>,
    /// Those that no SCRIPT LOAD named, the oldest first.
    evaluated: VecDeque<Box<str>>,
    evaluated_bytes: usize,
    loaded_bytes: usize,
}

impl Known {
    /// The script of this hash, in letters of any size.
    pub(crate) fn get(&self, sha: &[u8]) -> Option<Arc<Script>> {
        let sha = std::str::from_utf8(sha).ok()?.to_ascii_lowercase();
        self.scripts.read().by_sha.get(&*sha).map(Arc::clone)
    }

    /// The script with this text, for EVAL.
    pub(crate) fn evaluated(&self, text: &[u8]) -> Result<Arc<Script>, String> {
        let sha = sha1_hex(text);
        if let Some(script) = self.scripts.read().by_sha.get(&sha) {
            return Ok(Arc::clone(script));
        }
        let script = Arc::new(Script::new(sha.clone(), text)?);
        let mut scripts = self.scripts.write();
        if scripts.by_sha.contains_key(&sha) {
            return Ok(script);
        }
        scripts.by_sha.insert(sha.clone(), Arc::clone(&script));
        scripts.evaluated.push_back(sha);
        scripts.evaluated_bytes += script.text.len();
        while scripts.evaluated.len() > EVALUATED || scripts.evaluated_bytes > BYTES {
            let oldest = scripts.evaluated.pop_front();
            let Some(oldest) = oldest.and_then(|oldest| scripts.by_sha.remove(&oldest)) else {
                break;
            };
            scripts.evaluated_bytes -= oldest.text.len();
        }
        Ok(script)
    }

    /// The script with this text; if it is not known, it is not by this.
    pub(crate) fn made(&self, text: &[u8]) -> Result<Arc<Script>, String> {
        let sha = sha1_hex(text);
        match self.get(sha.as_bytes()) {
            Some(script) => Ok(script),
            None => Script::new(sha, text).map(Arc::new),
        }
    }

    /// Keeps a script until [`Known::flush`].
    pub(crate) fn load(&self, script: &Arc<Script>) -> Result<(), String> {
        let mut scripts = self.scripts.write();
        let place = scripts.evaluated.iter().position(|sha| *sha == script.sha);
        if place.is_none() && scripts.by_sha.contains_key(&script.sha) {
            return Ok(());
        }
        if scripts.loaded_bytes + script.text.len() > BYTES {
            return Err(format!(
                "ERR the scripts that were loaded take {BYTES} bytes, which is the limit: forget them with SCRIPT FLUSH"
            ));
        }
        scripts.loaded_bytes += script.text.len();
        if let Some(place) = place {
            scripts.evaluated.remove(place);
            scripts.evaluated_bytes -= script.text.len();
        }
        scripts.by_sha.insert(script.sha.clone(), Arc::clone(script));
        Ok(())
    }

    /// Forgets all.
    pub(crate) fn flush(&self) {
        *self.scripts.write() = Scripts::default();
        self.flushes.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Relaxed)
    }

    /// How many there are, and their bytes.
    pub(crate) fn totals(&self) -> (usize, usize) {
        let scripts = self.scripts.read();
        (scripts.by_sha.len(), scripts.by_sha.values().map(|script| script.text.len()).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_found_by_their_hash_and_the_oldest_that_were_not_loaded_are_forgotten() {
        let known = Known::default();
        let loaded = known.made(b"return 1").expect("made");
        assert!(known.get(loaded.sha.as_bytes()).is_none(), "it is not known yet");
        known.load(&loaded).expect("loaded");
        assert_eq!(&*loaded.sha, "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
        let first = known.evaluated(b"return 'first'").expect("evaluated");
        for i in 0..EVALUATED {
            known.evaluated(format!("return {i} ").as_bytes()).expect("evaluated");
        }
        assert!(known.get(loaded.sha.to_ascii_uppercase().as_bytes()).is_some());
        assert!(known.get(first.sha.as_bytes()).is_none());
        assert_eq!(known.totals().0, EVALUATED + 1);
        known.flush();
        assert!(known.get(loaded.sha.as_bytes()).is_none());
    }

    #[test]
    fn the_first_line_may_say_that_a_script_reads_only() {
        let script = |text: &[u8]| Script::new("".into(), text);
        assert!(script(b"#!lua flags=no-writes\nreturn 1").expect("flags").reads_only);
        assert!(!script(b"#!lua\nreturn 1").expect("none").reads_only);
        assert!(script(b"#!lua flags=unheard-of\nreturn 1").is_err());
        assert!(script(b"#!python\nreturn 1").is_err());
        assert!(script(&vec![b' '; SCRIPT_BYTES + 1]).is_err());
    }
}
