//! The images that a crash may leave, after each event.
//!
//! A line holds what was last guaranteed (written back, then fenced), or any later version of it,
//! evicted whenever the cache liked; and since only 8-byte words are stored in one piece, any mixture
//! of versions by words. After each event only images that could not be left before it are built:
//! a store's own line is new, a fence forbids old lines.

use crate::memory::Event;
use crate::structures::Random;
use std::collections::BTreeMap;
use terrace_memory::Domain;

type Line = [u64; 8];

#[derive(Default)]
struct Pending {
    /// After the guaranteed one, in the order of the stores.
    versions: Vec<Line>,
    /// So many of them will be guaranteed by the next fence.
    written_back: usize,
}

/// Walks a trace. `visit` gets each image and how many sections had been acknowledged; it returns
/// whether to go on. Returns the number of images.
pub fn each_image(
    mut durable: Vec<u64>,
    domain: Domain,
    events: &[Event],
    per_event: usize,
    random: &mut Random,
    visit: &mut dyn FnMut(Vec<u64>, usize) -> bool,
) -> u64 {
    let mut pending: BTreeMap<u64, Pending> = BTreeMap::new();
    let mut acknowledged = 0;
    let mut images = 0;
    for event in events {
        let mut newest = None;
        match event {
            Event::Store { at, bytes } => {
                newest = store(&durable, &mut pending, *at, bytes);
                if domain == Domain::Eadr {
                    settle(&mut durable, &mut pending, |pending| pending.versions.len());
                }
            }
            Event::WriteBack { line } => {
                if let Some(pending) = pending.get_mut(line) {
                    pending.written_back = pending.versions.len();
                }
                continue;
            }
            Event::Fence => settle(&mut durable, &mut pending, |pending| pending.written_back),
            Event::Acknowledged(count) => acknowledged = *count,
        }
        let kinds = if pending.is_empty() { 1 } else { per_event + 2 };
        for kind in 0..kinds {
            // A store brings no image without itself.
            if kind == 0 && newest.is_some() && !pending.is_empty() {
                continue;
            }
            let image = build(&durable, &pending, kind, newest, random);
            images += 1;
            if !visit(image, acknowledged) {
                return images;
            }
        }
    }
    images
}

/// Returns a line that the store touched.
fn store(
    durable: &[u64],
    pending: &mut BTreeMap<u64, Pending>,
    at: u64,
    bytes: &[u8],
) -> Option<u64> {
    for line in at / 64..(at + bytes.len() as u64).div_ceil(64) {
        let old: Line = std::array::from_fn(|word| durable[8 * line as usize + word]);
        let lines = pending.entry(line).or_default();
        let mut image: Vec<u8> =
            lines.versions.last().unwrap_or(&old).iter().flat_map(|w| w.to_le_bytes()).collect();
        let from = (64 * line).max(at);
        let to = (64 * line + 64).min(at + bytes.len() as u64);
        image[(from - 64 * line) as usize..(to - 64 * line) as usize]
            .copy_from_slice(&bytes[(from - at) as usize..(to - at) as usize]);
        let words = image.as_chunks::<8>().0;
        lines.versions.push(std::array::from_fn(|word| u64::from_le_bytes(words[word])));
    }
    Some(at / 64)
}

fn settle(
    durable: &mut [u64],
    pending: &mut BTreeMap<u64, Pending>,
    guaranteed: impl Fn(&Pending) -> usize,
) {
    pending.retain(|line, pending| {
        let count = guaranteed(pending);
        if count > 0 {
            let at = 8 * *line as usize;
            durable[at..at + 8].copy_from_slice(&pending.versions[count - 1]);
            pending.versions.drain(..count);
            pending.written_back = 0;
        }
        !pending.versions.is_empty()
    });
}

/// Kind 0: only what is guaranteed. 1: everything. Others: random, of lines, words, one line alone,
/// and all but one, in turns.
fn build(
    durable: &[u64],
    pending: &BTreeMap<u64, Pending>,
    kind: usize,
    newest: Option<u64>,
    random: &mut Random,
) -> Vec<u64> {
    let mut image = durable.to_vec();
    if kind == 0 {
        return image;
    }
    let one = pending.keys().nth(random.below(pending.len().max(1) as u64) as usize).copied();
    for (line, Pending { versions, .. }) in pending {
        let count = versions.len() as u64;
        let all = [count; 8];
        let picks: [u64; 8] = match kind % 4 {
            _ if kind == 1 => all,
            2 => [random.below(count + 1); 8],
            3 => std::array::from_fn(|_| random.below(count + 1)),
            0 if newest.is_none() => [if one == Some(*line) { count } else { 0 }; 8],
            0 => [if newest == Some(*line) { count } else { 0 }; 8],
            _ => [if one == Some(*line) { 0 } else { count }; 8],
        };
        for (word, pick) in picks.into_iter().enumerate() {
            if pick > 0 {
                image[8 * *line as usize + word] = versions[pick as usize - 1][word];
            }
        }
    }
    image
}
