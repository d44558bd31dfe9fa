//! Checkpoints: the tables take over what the journal says, so that it can go on in its ring
//! (Ni, section 3.2).
//!
//! ```text
//! page table:    a word for each virtual page: its home
//! slots, twice:  | epoch | journal tail | next number | CRC-32C | .. |
//!                | page, 32; PPN0, 32 | PPN1 | committed bitmap |  for each slot
//! ```
//! 1. Homes that changed go to the page table, durably. Replay sets them again, so a crash here, with
//!    any part of them written, changes nothing.
//! 2. The final state of each slot goes to the *older* of the two tables, with the journal's head as
//!    its tail; only lines that differ are written. When it is durable it is the newer one.
//! 3. The journal's tail moves; only now may its records be overwritten.
//!
//! The paper updates one table in place and calls that idempotent. It is not, once slots are given to
//! other pages between two checkpoints: replay over a half-written table can pair a slot with the
//! wrong extra page. Two tables make each replay start where the journal's tail says.

use super::Shadow;
use super::slots::{NONE, Slot, Slots};
use crate::checksum::Crc;
use crate::sections::engine::Recovery;
use crate::sections::error::Result;
use crate::sections::header::{Geometry, SLOT_BYTES};
use crate::sections::media::{LINE, Media};
use crate::sections::step::Step;
use terrace_memory::Memory;

const SEED: u32 = 0x5348_4143;

/// Where checkpoints go, and what the last ones wrote.
#[derive(Clone, Debug)]
pub(super) struct Checkpoint {
    slots_at: [u64; 2],
    table_at: u64,
    epoch: u64,
    /// The bytes of both tables.
    images: [Vec<u8>; 2],
}

/// What a table of slots says.
#[derive(Clone, Debug)]
pub(super) struct Saved {
    pub(super) slots: Vec<Slot>,
    pub(super) tail: u64,
    pub(super) next: u64,
}

fn word(bytes: &[u8], index: usize) -> u64 {
    u64::from_le_bytes(bytes[8 * index..8 * index + 8].try_into().expect("a word"))
}

fn checksum(image: &[u8]) -> u64 {
    u64::from(Crc::new(SEED).update(&image[..24]).update(&image[LINE as usize..]).finish())
}

fn encode(bytes: u64, epoch: u64, tail: u64, next: u64, slots: &[Slot]) -> Vec<u8> {
    let mut image = Vec::with_capacity(bytes as usize);
    [epoch, tail, next].iter().for_each(|word| image.extend_from_slice(&word.to_le_bytes()));
    image.resize(LINE as usize, 0);
    for slot in slots {
        // Uncommitted lines and free slots are nobody's business after a crash.
        let page = if slot.committed == 0 { NONE } else { slot.page };
        let place = u64::from(page) | u64::from(slot.pages[0]) << 32;
        for word in [place, u64::from(slot.pages[1]), slot.committed] {
            image.extend_from_slice(&word.to_le_bytes());
        }
    }
    image.resize(bytes as usize, 0);
    let crc = checksum(&image);
    image[24..32].copy_from_slice(&crc.to_le_bytes());
    image
}

fn decode(image: &[u8], slots: u32) -> Saved {
    let slots = (0..slots as usize).map(|slot| {
        let at = (LINE / 8) as usize + slot * (SLOT_BYTES / 8) as usize;
        let place = word(image, at);
        Slot {
            page: place as u32,
            pages: [(place >> 32) as u32, word(image, at + 1) as u32],
            committed: word(image, at + 2),
            current: 0,
            updated: 0,
            due: 0,
            touched: 0,
        }
    });
    Saved { slots: slots.collect(), tail: word(image, 1), next: word(image, 2) }
}

/// Writes the tables of a new pool; the caller makes them durable.
pub(in crate::sections) fn create<M: Memory>(media: &Media<M>, geometry: &Geometry) {
    media.zero(geometry.log_at, geometry.log_bytes);
    media.zero(geometry.journal_at, geometry.journal_bytes);
    let (slots, table) = Slots::fresh(geometry);
    for (page, home) in (0..).zip(table) {
        media.store(geometry.table_at + 8 * page, u64::from(home));
    }
    for (epoch, at) in (1..).zip(geometry.slots_at) {
        media.write(at, &encode(geometry.slots_bytes, epoch, 0, 1, &slots));
    }
}

impl Checkpoint {
    /// Reads the newer intact table of slots.
    pub(super) fn read<M: Memory>(
        media: &Media<M>,
        geometry: &Geometry,
        report: &mut Recovery,
    ) -> Result<(Checkpoint, Saved)> {
        let images = geometry.slots_at.map(|at| {
            let mut image = vec![0; geometry.slots_bytes as usize];
            media.read(at, &mut image);
            image
        });
        report.bytes_read += 2 * geometry.slots_bytes;
        let intact = images.each_ref().map(|image| {
            word(image, 3) == checksum(image) || !media.has(Step::ShadowSlotsChecksum)
        });
        let newer = (0..2).filter(|i| intact[*i]).max_by_key(|i| word(&images[*i], 0));
        let newer = match newer {
            Some(newer) => newer,
            None => {
                let what = "neither table of slots matches its checksum".into();
                report.damaged(media.is_read_only(), geometry.slots_at[0], what)?;
                0
            }
        };
        report.torn += intact.iter().filter(|intact| !**intact).count() as u64;
        let saved = decode(&images[newer], geometry.slots);
        let checkpoint = Checkpoint {
            slots_at: geometry.slots_at,
            table_at: geometry.table_at,
            epoch: word(&images[newer], 0),
            images,
        };
        Ok((checkpoint, saved))
    }

    fn write<M: Memory>(&mut self, media: &Media<M>, tail: u64, next: u64, slots: &[Slot]) {
        self.epoch += 1;
        // Epochs of the two tables have different parities: odd ones are in the first.
        let turn = usize::from(self.epoch.is_multiple_of(2));
        let image = encode(self.images[turn].len() as u64, self.epoch, tail, next, slots);
        let line = LINE as usize;
        for (i, (new, old)) in image.chunks(line).zip(self.images[turn].chunks(line)).enumerate() {
            if new != old {
                let at = self.slots_at[turn] + i as u64 * LINE;
                media.write(at, new);
                media.write_back(Step::ShadowSlotsWriteBack, at, LINE);
            }
        }
        media.fence(Step::ShadowSlotsFence);
        self.images[turn] = image;
    }
}

impl Shadow {
    /// Saves the committed state and empties the journal. Durable on return.
    pub(super) fn save<M: Memory>(&mut self, media: &Media<M>) {
        let mut lines = std::collections::BTreeSet::new();
        for page in std::mem::take(&mut self.moved) {
            let at = self.checkpoint.table_at + 8 * u64::from(page);
            media.store(at, u64::from(self.slots.table[page as usize]));
            lines.insert(at / LINE);
        }
        for line in &lines {
            media.write_back(Step::ShadowTableWriteBack, line * LINE, LINE);
        }
        if !lines.is_empty() {
            media.fence(Step::ShadowTableFence);
        }
        let (head, next) = (self.journal.head, self.journal.next);
        self.checkpoint.write(media, head, next, &self.slots.slots);
        self.journal.tail = head;
    }
}
