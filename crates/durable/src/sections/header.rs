//! The first page of a pool: what it is, and whether it was closed.
//!
//! ```text
//!    0  identity: magic, version, engine, domain, size, layout, options, CRC-32C; written once,
//!       after everything else of a new pool is durable
//! 1024  state, in turns with 1088: number, whether closed, the engine's progress, CRC-32C
//! 2048  the identity again
//! ```
//! A crash in creation leaves no magic number, so no pool. State cells are written in turns: a torn
//! one leaves the other. Geometry, where everything else lies, follows from the identity.

use super::EngineKind;
use super::engine::Recovery;
use super::error::{Error, Result};
use super::media::{LINE, Media, PAGE};
use super::options::{LOG_BYTES_MAX, Options, SLOTS_MAX};
use crate::checksum::Crc;
use terrace_memory::{Domain, Memory};

/// "TERRACEs", little-endian.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"TERRACEs");
/// Version of the format.
pub const VERSION: u32 = 1;
const SEED: u32 = 0x504f_4f4c;
const IDENTITY_AT: [u64; 2] = [0, 2048];
const STATE_AT: [u64; 2] = [1024, 1024 + LINE];
const IDENTITY_WORDS: usize = 8;
const STATE_WORDS: usize = 4;
/// More pages than this have no number in a journal record.
pub(super) const PAGES_MAX: u64 = (1 << 24) - (1 << 12);
/// Bytes of a slot in a checkpoint.
pub(super) const SLOT_BYTES: u64 = 24;

/// What a pool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) engine: EngineKind,
    pub(super) domain: Domain,
    pub(super) bytes: u64,
    pub(super) layout: u64,
    pub(super) log_bytes: u64,
    pub(super) journal_bytes: u64,
    pub(super) slots: u32,
}

/// Whether the pool was closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    pub(super) number: u64,
    pub(super) clean: bool,
    pub(super) progress: u64,
}

/// Where everything lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    /// The undo engine's commit mark.
    pub(super) cell_at: u64,
    /// The log of undo and redo; of shadow, the fall-back's.
    pub(super) log_at: u64,
    pub(super) log_bytes: u64,
    /// Shadow: two tables of slots.
    pub(super) slots_at: [u64; 2],
    pub(super) slots_bytes: u64,
    pub(super) slots: u32,
    /// Shadow: the page table.
    pub(super) table_at: u64,
    pub(super) journal_at: u64,
    pub(super) journal_bytes: u64,
    /// The heap's pages; shadow: the extra pages follow.
    pub(super) data_at: u64,
    pub(super) pages: u64,
}

impl Geometry {
    /// # Errors
    /// [`Error::MemoryTooSmall`].
    pub(super) fn of(identity: &Identity) -> Result<Geometry> {
        let shadow = identity.engine == EngineKind::Shadow;
        let cell_at = PAGE;
        let log_at = cell_at + LINE;
        let slots = if shadow { identity.slots } else { 0 };
        let slots_bytes =
            if shadow { LINE + (u64::from(slots) * SLOT_BYTES).next_multiple_of(LINE) } else { 0 };
        let first = log_at + identity.log_bytes;
        let journal_at = first + 2 * slots_bytes;
        let table_at = journal_at + if shadow { identity.journal_bytes } else { 0 };
        let entry = if shadow { 8 } else { 0 };
        let left = identity.bytes.saturating_sub(table_at + u64::from(slots) * PAGE);
        // One page less, for what aligning the data takes.
        let pages = (left / (PAGE + entry)).saturating_sub(1);
        let needs_pages = 2 + super::heap::meta_pages(pages);
        if pages < needs_pages {
            let needs_bytes =
                table_at + u64::from(slots) * PAGE + (needs_pages + 1) * (PAGE + entry);
            return Err(Error::MemoryTooSmall { has_bytes: identity.bytes, needs_bytes });
        }
        if pages > PAGES_MAX {
            let wanted = format!("at most {PAGES_MAX} pages of {PAGE} bytes");
            return Err(Error::BadOption { option: "the size", found: identity.bytes, wanted });
        }
        let data_at = (table_at + pages * entry).next_multiple_of(PAGE);
        debug_assert!(data_at + (pages + u64::from(slots)) * PAGE <= identity.bytes);
        Ok(Geometry {
            cell_at,
            log_at,
            log_bytes: identity.log_bytes,
            slots_at: [first, first + slots_bytes],
            slots_bytes,
            slots,
            table_at,
            journal_at,
            journal_bytes: identity.journal_bytes,
            data_at,
            pages,
        })
    }
}

fn domain_number(domain: Domain) -> u64 {
    match domain {
        Domain::Adr => 1,
        Domain::Eadr => 2,
        Domain::PageCache => 3,
        Domain::None => 4,
    }
}

fn domain_of(number: u64) -> Option<Domain> {
    [Domain::Adr, Domain::Eadr, Domain::PageCache, Domain::None]
        .into_iter()
        .find(|domain| domain_number(*domain) == number)
}

fn seal(words: &mut [u64]) -> Vec<u8> {
    let last = words.len() - 1;
    let crc = Crc::new(SEED).update(&bytes_of(&words[..last])).finish();
    words[last] = u64::from(crc);
    bytes_of(words)
}

fn is_sealed(words: &[u64]) -> bool {
    let (crc, words) = words.split_last().expect("never empty");
    *crc == u64::from(Crc::new(SEED).update(&bytes_of(words)).finish())
}

fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn load<M: Memory, const N: usize>(media: &Media<M>, at: u64) -> [u64; N] {
    std::array::from_fn(|word| media.load(at + 8 * word as u64))
}

impl Identity {
    fn words(&self) -> [u64; IDENTITY_WORDS] {
        let version = u64::from(VERSION) | (self.engine as u64) << 32;
        let domain = domain_number(self.domain) | u64::from(self.slots) << 32;
        let (log, journal) = (self.log_bytes, self.journal_bytes);
        [MAGIC, version, domain, self.bytes, self.layout, log, journal, 0]
    }

    /// Makes the memory a pool: everything else of it must be durable. Durable on return. The first
    /// magic number comes last, alone: until then there is no pool.
    pub(super) fn write<M: Memory>(&self, media: &Media<M>) {
        let bytes = seal(&mut self.words());
        media.persist(IDENTITY_AT[1], &bytes);
        media.persist(IDENTITY_AT[0] + 8, &bytes[8..]);
        media.persist(IDENTITY_AT[0], &bytes[..8]);
    }

    /// Makes the memory no pool. Durable on return. The first magic number goes first, in one store:
    /// from then on there is no pool.
    pub(super) fn erase<M: Memory>(media: &Media<M>) {
        IDENTITY_AT.iter().for_each(|at| media.persist(*at, &[0; 8]));
    }

    /// Reads and verifies; read-only, the second copy serves if the first is damaged.
    ///
    /// # Errors
    /// [`Error::NoPool`], [`Error::Damaged`], [`Error::Mismatch`] of version, size and domain.
    pub(super) fn read<M: Memory>(media: &Media<M>, damage: &mut Vec<String>) -> Result<Identity> {
        if media.len() < PAGE {
            return Err(Error::MemoryTooSmall { has_bytes: media.len(), needs_bytes: PAGE });
        }
        let copies = IDENTITY_AT.map(|at| load::<M, IDENTITY_WORDS>(media, at));
        let intact = copies.map(|words| words[0] == MAGIC && is_sealed(&words));
        let words = match intact {
            [true, _] => copies[0],
            // A crash in creation: nobody was told that there is a pool, whatever the copy says.
            _ if copies[0][0] == 0 => return Err(Error::NoPool { found: 0, expected: MAGIC }),
            [false, true] if media.is_read_only() => {
                damage.push("offset 0: the head does not match its checksum; its copy does".into());
                copies[1]
            }
            _ if copies.iter().all(|words| words[0] != MAGIC) => {
                return Err(Error::NoPool { found: copies[0][0], expected: MAGIC });
            }
            _ => {
                let what = "the head does not match its checksum".into();
                return Err(Error::Damaged { at: 0, what });
            }
        };
        Identity::decode(media, &words)
    }

    fn decode<M: Memory>(media: &Media<M>, words: &[u64; IDENTITY_WORDS]) -> Result<Identity> {
        let mismatch =
            |field, found: String, wanted: String| Err(Error::Mismatch { field, found, wanted });
        let version = words[1] as u32;
        if version != VERSION {
            return mismatch("format version", version.to_string(), VERSION.to_string());
        }
        let unknown = |what: &str| Error::Damaged { at: 0, what: format!("unknown {what}") };
        let engine =
            EngineKind::from_number((words[1] >> 32) as u32).ok_or_else(|| unknown("engine"))?;
        let domain = domain_of(words[2] & 0xffff_ffff).ok_or_else(|| unknown("domain"))?;
        if words[3] != media.len() {
            return mismatch("size in bytes", words[3].to_string(), media.len().to_string());
        }
        if domain != media.domain() {
            return mismatch("domain", domain.to_string(), media.domain().to_string());
        }
        let slots = words[2] >> 32;
        if words[5].max(words[6]) > LOG_BYTES_MAX || slots > u64::from(SLOTS_MAX) {
            return Err(unknown("size of a log, or number of slots"));
        }
        Ok(Identity {
            engine,
            domain,
            bytes: words[3],
            layout: words[4],
            log_bytes: words[5],
            journal_bytes: words[6],
            slots: (words[2] >> 32) as u32,
        })
    }

    /// # Errors
    /// [`Error::Mismatch`] of engine or layout.
    pub(super) fn check(&self, options: &Options) -> Result<()> {
        if let Some(wanted) = options.engine.filter(|wanted| *wanted != self.engine) {
            let (found, wanted) = (self.engine.to_string(), wanted.to_string());
            return Err(Error::Mismatch { field: "engine", found, wanted });
        }
        if let Some(wanted) = options.layout.filter(|wanted| *wanted != self.layout) {
            let (found, wanted) = (self.layout.to_string(), wanted.to_string());
            return Err(Error::Mismatch { field: "layout", found, wanted });
        }
        Ok(())
    }
}

impl State {
    /// Writes the cell whose turn it is. Durable on return.
    pub(super) fn write<M: Memory>(&self, media: &Media<M>) {
        let mut words: [u64; STATE_WORDS] = [self.number, u64::from(self.clean), self.progress, 0];
        media.persist(STATE_AT[(self.number % 2) as usize], &seal(&mut words));
    }

    /// The newer intact cell.
    pub(super) fn read<M: Memory>(media: &Media<M>, report: &mut Recovery) -> Result<State> {
        let cells = STATE_AT.map(|at| load::<M, STATE_WORDS>(media, at));
        report.bytes_read += 2 * 8 * STATE_WORDS as u64;
        let newest = cells.iter().filter(|cell| is_sealed(&cell[..])).max_by_key(|cell| cell[0]);
        match newest {
            Some([number, clean, progress, _]) => {
                Ok(State { number: *number, clean: *clean == 1, progress: *progress })
            }
            None => {
                let what = "neither state cell matches its checksum".into();
                report.damaged(media.is_read_only(), STATE_AT[0], what)?;
                Ok(State::default())
            }
        }
    }
}
