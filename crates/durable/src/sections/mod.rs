//! Failure-atomic sections: changes to a memory that are there after a crash as a whole or not at
//! all (Ni, chapter 3; Wu, section 2.4).
//!
//! ```
//! use terrace_durable::plain;
//! use terrace_durable::sections::{EngineKind, Error, Offset, Options, Pool, Root};
//! # use std::ptr::NonNull;
//! # use terrace_memory::{Domain, Native};
//! # let mut bytes = vec![0u64; 1 << 17];
//! # let base = NonNull::new(bytes.as_mut_ptr().cast()).expect("not null");
//! # // SAFETY: the vector outlives every use below and is used through this alone.
//! # let memory = unsafe { Native::new(base, 8 * bytes.len() as u64, Domain::Adr) };
//! plain! {
//!     struct Link {
//!         value: u64,
//!         next: Offset<Link>,
//!     }
//! }
//! const HEAD: Root<Link> = Root::new(0);
//!
//! let pool = Pool::create(memory, &Options::new(EngineKind::Shadow))?;
//! pool.section(|tx| {
//!     let next = tx.root(HEAD)?;
//!     let link = tx.create(&Link { value: 7, next })?;
//!     tx.set_root(HEAD, link)
//! })?;
//! let memory = pool.close();
//! let pool = Pool::open(memory, &Options::any())?;
//! let value = pool.section(|tx| {
//!     let head = tx.root(HEAD)?;
//!     tx.get(Link::value(head))
//! })?;
//! assert_eq!(value, 7);
//! # Ok::<(), Error>(())
//! ```
//!
//! # What is promised
//!
//! * **Atomicity.** A section's writes, allocations and frees are all there after a crash, or none. An
//!   error or a panic inside takes them back. A section within a section is part of the outer one; if
//!   it fails, the outer one is taken back as a whole, even if the error was swallowed.
//! * **Durability.** They are there once [`Pool::section`] has returned `Ok`. Not before: a crash
//!   during the commit may keep them or not.
//! * **Isolation.** Sections of one pool run one at a time, under one lock, reads included; a section
//!   never sees another's unfinished writes. In the paper isolation is the programmer's, by locks held
//!   across the section; here one lock is that lock. Pools are independent of each other.
//! * **Place.** A pool holds offsets only and may lie at another address each time.
//!
//! # Three engines
//!
//! | engine | fences of a section | written to the medium |
//! |---|---|---|
//! | [`EngineKind::Undo`] | one per logged write, two more | old words, data, a mark |
//! | [`EngineKind::Redo`] | two | new words, data |
//! | [`EngineKind::Shadow`] | two | data, 16 bytes per page and mark; consolidation later |
//!
//! A section that wrote nothing costs no fence. All are one code over [`Memory`], without clocks,
//! randomness or threads: background work is [`Pool::maintain`], run by whose thread calls it.
//! Each step that recovery relies on has a name, [`Step`]; with the feature `faults` a pool can be
//! opened without it, to show that a crash test notices.

mod at_once;
mod buffer;
mod disk;
mod engine;
mod error;
mod header;
mod heap;
mod joint;
mod logged;
mod media;
mod options;
mod plain;
mod pool;
mod record;
mod redo;
mod shadow;
mod step;
mod tx;
mod undo;
mod undo_log;
mod words;

pub use engine::{EngineKind, Grain, Maintenance, Recovery, Written};
pub use error::{Error, Result};
pub use header::VERSION;
pub use heap::{HeapCensus, ROOTS};
pub use joint::{Address, Both, Changes, Joint, Replayed};
pub use options::Options;
pub use plain::{Offset, Plain, Root};
pub use pool::Pool;
pub use step::{Step, Steps};
pub use tx::Tx;

#[cfg(doc)]
use terrace_memory::Memory;
