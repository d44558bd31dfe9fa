//! The first line of a table: what it was made as. It is reopened as that, or refused.
//!
//! | bytes | what |
//! |---|---|
//! | 0-7 | magic `TERRLIST`; written last |
//! | 8-15 | form: 1 tlog, 2 log-free, 3 link-free, 4 soft |
//! | 16-23 | capacity: nodes |
//! | 24-31 | buckets, a power of two |
//! | 32-39 | version of the format: 1 |
//! | 40-47 | persistence domain: 1 ADR, 2 eADR, 3 page cache, 4 none |
//! | 48-55 | CRC-32C of bytes 8 to 47, seeded with 2 |
//!
//! Behind it lie, 64 bytes each: for tlog, a line of log for each of 64 sessions; the heads of the buckets; nodes.

use super::error::{Error, Result};
use super::node::{LINE, Nodes};
use super::protocol::Protocol;
use super::table::Size;
use terrace_durable::checksum::Crc;
use terrace_memory::{Domain, Memory};

/// "TERRLIST", little-endian: written last when a table is made.
const MAGIC: u64 = u64::from_le_bytes(*b"TERRLIST");
const MAGIC_AT: u64 = 0;
const VERSION: u64 = 1;
/// No format will have a higher number.
const MOST_VERSION: u64 = u16::MAX as u64;
/// Form, capacity, buckets, version and domain: five words.
const MADE_AT: u64 = 8;
const CHECK_AT: u64 = 48;
/// The slot of this line.
pub(super) const FILE: u64 = 0;

const FORMS: [&str; 4] = ["tlog", "log-free", "link-free", "soft"];
const DOMAINS: [Domain; 4] = [Domain::Adr, Domain::Eadr, Domain::PageCache, Domain::None];

/// What a table was made as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    /// The list, by [`Protocol::NAME`](super::Protocol::NAME).
    pub form: &'static str,
    /// Its size.
    pub size: Size,
    /// The domain it was made in.
    pub domain: Domain,
}

impl Made {
    /// What the first line of `memory` says.
    ///
    /// # Errors
    /// [`Error::NotThere`], [`Error::Newer`], [`Error::Damaged`].
    pub fn read<M: Memory>(memory: &M) -> Result<Made> {
        let not_there = |found: String| Err(Error::NotThere { found });
        if memory.len() < LINE {
            return not_there("not even the head of one".into());
        }
        // SAFETY: words of the first line, which is there.
        let word = |at| unsafe { memory.load(at) };
        if word(MAGIC_AT) != MAGIC {
            return not_there(format!("it begins with {:#018x}", word(MAGIC_AT)));
        }
        let made: [u64; 5] = std::array::from_fn(|n| word(MADE_AT + 8 * n as u64));
        let [form, capacity, buckets, version, domain] = made;
        // Before the checksum, unless that says that the number is what is damaged.
        let as_ours = [form, capacity, buckets, VERSION, domain];
        if (VERSION + 1..=MOST_VERSION).contains(&version) && word(CHECK_AT) != check_of(&as_ours) {
            return Err(Error::Newer { found: version, known: VERSION });
        }
        if word(CHECK_AT) != check_of(&made) {
            return Err(Error::damaged(FILE, "its head does not match its checksum".into()));
        }
        if version != VERSION {
            return Err(other("version", version, VERSION));
        }
        let size = Size { capacity, buckets };
        match (named(&FORMS, form), named(&DOMAINS, domain)) {
            (Some(form), Some(domain)) => Ok(Made { form, size, domain }),
            _ => Err(Error::damaged(FILE, format!("form {form} in domain {domain}"))),
        }
    }

    /// Whether it is reopened as what it is.
    pub(super) fn check<P: Protocol>(&self, domain: Domain) -> Result<()> {
        if self.form != P::NAME {
            return Err(other("form", self.form, P::NAME));
        }
        if self.domain != domain {
            return Err(other("domain", self.domain, domain));
        }
        Ok(())
    }
}

/// A table that is being made is none.
pub(super) fn begin<M: Memory>(nodes: &Nodes<M>) {
    nodes.set(FILE, MAGIC_AT, 0);
    nodes.settle(FILE);
}

/// Everything else of it is durable: it is one.
pub(super) fn finish<P: Protocol, M: Memory>(nodes: &Nodes<M>, domain: Domain) {
    let in_file = DOMAINS.iter().position(|known| *known == domain);
    let domain = in_file.map_or(0, |n| n as u64 + 1);
    let made = [P::NUMBER, nodes.shape.capacity, nodes.shape.buckets, VERSION, domain];
    for (at, word) in (MADE_AT..).step_by(8).zip(made) {
        nodes.set(FILE, at, word);
    }
    nodes.set(FILE, CHECK_AT, check_of(&made));
    nodes.settle(FILE);
    nodes.set(FILE, MAGIC_AT, MAGIC);
    nodes.settle(FILE);
}

fn check_of(made: &[u64; 5]) -> u64 {
    made.iter().fold(Crc::new(2), |crc, word| crc.update(&word.to_le_bytes())).finish().into()
}

/// The one that a number in a file, from 1 on, stands for.
fn named<T: Copy>(all: &[T], number: u64) -> Option<T> {
    all.get(usize::try_from(number.checked_sub(1)?).ok()?).copied()
}

fn other(what: &'static str, made: impl ToString, asked: impl ToString) -> Error {
    Error::Other { what, made: made.to_string(), asked: asked.to_string() }
}
