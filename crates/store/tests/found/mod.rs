//! What the sceptic found: each test is the smallest that shows one way to lose data, to hide a
//! loss, or to acknowledge what is not done. They stay here for ever, failing until mended.

mod claimed_without_being_true;
mod damage_unnoticed;
mod hanging_and_dying;
mod power_cuts_and_kills;

use crate::adversary::{
    BLOCK, Random, SEGMENT, apply, contents, file_now, file_of, image_after, opened, options,
    planted, recording,
};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use terrace_durable::item::NewItem;
use terrace_durable::logs::Logs;
use terrace_durable::medium::Event;
use terrace_durable::values::Room;
use terrace_durable::{Medium, MediumSpec};
use terrace_memory::Budget;
use terrace_store::{Access, Change, Domain, Durability, Error, Map, MapOptions, Session};

const LONG_INTERVAL: Durability = Durability::Interval(Duration::from_secs(3600));

fn one_writer(durability: Durability) -> MapOptions {
    MapOptions { writers: 1, ..options(durability) }
}

fn is_header_of(event: &Event, zero: bool) -> bool {
    matches!(event, Event::Write { at, bytes, .. }
        if *at as usize >= SEGMENT
            && (*at as usize).is_multiple_of(SEGMENT)
            && bytes[..64].iter().all(|b| *b == 0) == zero)
}

/// The rule of the newest checkpoint in the file: whether it bounds what counts.
fn newest_checkpoint_is_bounded(dir: &Path) -> bool {
    let head = file_now(dir);
    let number = |block: usize| {
        u64::from_le_bytes(head[block * BLOCK + 8..block * BLOCK + 16].try_into().expect("eight"))
    };
    let newest = if number(2) > number(1) { 2 } else { 1 };
    head[newest * BLOCK + 4] == 1
}
