//! The hash index whose every operation is a section, alone: entries, overflow lines, splits. It is taken
//! up as it stands, and repair finds nothing to do.

use super::Settings;
use super::exhaustive::Explored;
use super::index::{
    KEYS, KEYS_BEFORE, Media, Numbered, PART_BYTES, budget, check_allowed, contents, hash,
    location, reserved, script, states,
};
use super::left_out::{Leaves, LeftOut};
use terrace_durable::sections::{Both, Changes, Joint};
use terrace_index::{Change, HashIndex, Items};
use terrace_machine::{Crashable, Explorer, Noted, Report, Without};
use terrace_memory::{Memory, Part};

/// Where the log of sections is, behind the index.
const VALUES_AT: u64 = 2 * PART_BYTES;
const MEMORY_BYTES: u64 = VALUES_AT + Joint::VALUES_BYTES;

/// An index, and what commits its sections.
struct Taken {
    index: HashIndex<Media>,
    sections: Sections,
}

struct Sections {
    joint: Joint,
    values: Media,
    index: Media,
}

impl Items for Sections {
    fn has_key(&self, location: u64, key: &[u8]) -> bool {
        Numbered(hash).has_key(location, key)
    }
    fn hash(&self, location: u64) -> Option<u64> {
        Numbered(hash).hash(location)
    }
    fn prefetch(&self, _: u64) {}
    fn commit(&self, changes: &mut Changes, publish: impl FnOnce()) {
        let both = Both { values: &self.values, index: &self.index };
        self.joint.commit(both, changes, publish);
    }
}

impl Taken {
    fn up(memory: Without<Crashable>) -> Result<Taken, String> {
        let values = Part::new(memory.clone(), VALUES_AT, Joint::VALUES_BYTES);
        let of_index = Part::new(memory.clone(), 0, VALUES_AT);
        let (joint, _) = Joint::open((&values, values.len()), Some((&of_index, VALUES_AT)));
        let index = HashIndex::reopen(reserved(memory), &budget(), |_| Ok(true));
        let mut index = index.map_err(|e| e.to_string())?;
        index.use_sections();
        Ok(Taken { index, sections: Sections { joint, values, index: of_index } })
    }

    fn set(&self, key: u64, number: Option<u64>) {
        let change = |_| number.map_or(Change::Remove, |number| Change::Set(location(key, number)));
        let updated = self.index.update(hash(key), &key.to_be_bytes(), &self.sections, change);
        updated.expect("room");
    }
}

pub(super) fn explorer(settings: &Settings) -> Explorer<usize> {
    explorer_on(Without::nothing, settings)
}

fn explorer_on(without: Leaves, settings: &Settings) -> Explorer<usize> {
    let operations = script(settings.seed);
    let states = states(&operations);
    Explorer::new(settings.domain, MEMORY_BYTES)
        .setup(|memory| {
            let memory = Without::nothing(memory.clone());
            HashIndex::persistent(reserved(memory.clone()), &budget())
                .expect("an index")
                .note_allocation();
            let taken = Taken::up(memory).expect("the index");
            (0..KEYS_BEFORE).for_each(|key| taken.set(key, Some(0)));
        })
        .thread(move |memory, log| {
            let taken = Taken::up(without(memory.clone())).expect("the index");
            for (done, (key, number)) in operations.iter().enumerate() {
                taken.set(*key, *number);
                log.note(done + 1);
            }
        })
        .recover(move |memory| {
            // Something is written after each recovery: what it did must stand all the same.
            let taken = Taken::up(without(memory.clone())).expect("a crash is no damage");
            taken.set(KEYS + KEYS_BEFORE, Some(memory.crashes() as u64));
        })
        .check(move |memory, notes: &[Noted<usize>]| {
            let memory = without(memory.clone());
            let taken = Taken::up(memory.clone())?;
            let found = contents(&taken.index)?;
            let stats = taken.index.stats();
            drop(taken);
            let repaired = HashIndex::repair(reserved(memory), &budget());
            let repaired = repaired.map_err(|e| e.to_string())?.stats();
            if stats != repaired {
                return Err(format!("the allocation metadata says {stats:?}, repair {repaired:?}"));
            }
            check_allowed(&states, notes, found)
        })
        .crashes(2)
}

/// Looks for a crash where something is left out.
fn sampled(without: Leaves, settings: &Settings) -> Report {
    explorer_on(without, settings).left_out(settings)
}

pub(super) const STEPS: &[LeftOut] = &[
    LeftOut {
        test: "kept-index-sections",
        name: "SectionLogWriteBack",
        meaning: "the section's log is written back before any of its words is stored",
        run: |s| sampled(|m| Without::nothing(m).write_backs(|at, n| at >= VALUES_AT && n > 8), s),
    },
    LeftOut {
        test: "kept-index-sections",
        name: "WordWriteBack",
        meaning: "the section's words are written back before its log is written over",
        run: |s| sampled(|m| Without::nothing(m).write_backs(|at, n| at < VALUES_AT && n == 8), s),
    },
    LeftOut {
        test: "kept-index-sections",
        name: "BucketWriteBack",
        meaning: "a bucket split off is written back before the section that counts it",
        run: |s| {
            sampled(|m| Without::nothing(m).write_backs(|at, n| at < PART_BYTES && n == 64), s)
        },
    },
    LeftOut {
        test: "kept-index-sections",
        name: "LineWriteBack",
        meaning: "an overflow line is written back before the section that links it",
        run: |s| {
            sampled(
                |m| {
                    Without::nothing(m)
                        .write_backs(|at, n| (PART_BYTES..VALUES_AT).contains(&at) && n == 64)
                },
                s,
            )
        },
    },
    LeftOut {
        test: "kept-index-sections",
        name: "Fences",
        meaning: "write-backs are done before what follows them",
        run: |s| sampled(|m| Without::nothing(m).fences(), s),
    },
];
