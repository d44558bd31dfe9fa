//! The kill -9 oracle: what may be found after a crash, and what was.
//!
//! A client notes every write in a [`Ledger`] before it asks for it and again when it is
//! acknowledged. Then the store's process is killed at some instant, recovers, and [`verify`]
//! compares: every acknowledged write is there, or a later one that was in flight; no key whose
//! deletion was acknowledged is back; every value is one that was written to that key, whole;
//! batches are there entirely or not at all.
//!
//! The client must outlive the kill. Where it talks to a server, the ledger in its memory does
//! ([`SharedLedger`]); where it embeds the store and dies with it, a [`Journal`] writes each note
//! to a file first: what a process wrote survives its kill, though not the machine's.
//!
//! | note | means |
//! |---|---|
//! | begun, not acknowledged | in flight at the kill: may be found, or not |
//! | acknowledged | to be found, under [`Promise::OnAcknowledge`] |
//! | acknowledged, then synced | to be found, under either promise |
//! | refused | the store said it will not: never to be found |
//!
//! An error is no refusal unless the store's protocol makes it one: a connection that broke leaves
//! its writes in flight for ever, until a verification settles what became of them.

mod drive;
mod journal;
mod ledger;
mod value;
mod verify;

pub use drive::{Driven, Script, Writer, drive};
pub use journal::Journal;
pub use ledger::{CrashRecord, Ledger, Promise, SharedLedger, SyncMark, Ticket, Write};
pub use value::{Damage, MIN_VALUE_BYTES, Stamp, key_named, name_of, read_value, value_of};
pub use verify::{Recovered, Report, Violation, verify};
