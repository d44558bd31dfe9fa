//! Persistent lock-free sets: sorted linked lists, alone or as the buckets of a hash table.
//!
//! Four persistence protocols over one algorithm (Harris' list, `session`) and one allocator (a slab of
//! 64-byte nodes, free slots as bits in DRAM, epochs; Gugnani, section 6.2):
//!
//! | list | survives | recovery | an insertion, a removal write back / wait |
//! |---|---|---|---|
//! | [`TLog`] | nodes, links, a record a session | walks, redoes records | 5 / 3 (published: 4 / 3), 4 / 4 |
//! | [`LogFree`] | nodes, links; needs eADR | walks | 0 / 2, 0 / 1 |
//! | [`LinkFree`] | nodes | looks at every slot | 1 / 1, 1 / 1 |
//! | [`Soft`] | nodes, apart from what is walked | looks at every slot | 1 / 1, 1 / 1 |
//!
//! A reader writes back nothing, but for one of Link-free that finds a node before its insertion or
//! removal is durable. Where caches survive (eADR) write-backs are left out and fences stay.
//!
//! The published TLog and Link-free lose data. The modules of the four say what, and what is durable when;
//! [`Step`] names every ordering point, and the crash tests leave each out and must notice.
//!
//! A slab is of fixed size, and so is the number of buckets ([`Size`]). Slots of removed keys are used again
//! once no operation is under way that began before ([`Error::Full`] otherwise).
//!
//! ```
//! use terrace_lockfree::list::{LinkFree, ListTable, Media, Size};
//! use terrace_memory::{Backing, Domain, Region};
//!
//! let size = Size::list(1000);
//! let bytes = size.bytes::<LinkFree>()?;
//! let region = Region::reserve(bytes, Backing::Anonymous)?.declared(Domain::Adr);
//! region.commit(0, bytes)?;
//! let list = ListTable::<_, LinkFree>::create(Media::one(region.native()), size)?;
//! let mut session = list.session()?;
//! assert!(session.insert(7, 70)? && !session.insert(7, 71)?);
//! assert_eq!((session.get(7), session.remove(7), session.get(7)), (Some(70), Some(70), None));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod epochs;
mod error;
mod link_free;
mod logged;
mod made;
mod node;
mod protocol;
mod scan;
mod session;
mod slots;
mod soft;
mod step;
mod table;
mod walk;

pub use epochs::SESSIONS;
pub use error::{Error, Result};
pub use link_free::LinkFree;
pub use logged::{LogFree, TLog};
pub use made::Made;
pub use protocol::Protocol;
pub use session::Session;
pub use soft::Soft;
#[cfg(any(test, feature = "faults"))]
pub use step::NOT_PUBLISHED;
pub use step::Step;
pub use table::{ListTable, Media, Size};

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests;
