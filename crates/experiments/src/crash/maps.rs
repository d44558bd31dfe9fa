//! A whole map under the explorer: index, values and recovery as they are, on a memory that crashes.

use super::{Control, Settings};
use crate::structures::Random;
use std::collections::BTreeMap;
use terrace_machine::{Crashable, Explorer, Noted, Without};
use terrace_memory::Domain;
use terrace_store::{Durability, Map, MapOptions, ValueDesign};

/// How values are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Design {
    Logs,
    Slabs,
    /// Slabs whose two writers free superseded slots later.
    DeferredSlabs,
}

impl Design {
    /// The test of this design.
    fn test(self) -> &'static str {
        match self {
            Design::Logs => "map-logs",
            Design::Slabs => "map-slabs",
            Design::DeferredSlabs => "map-slabs-deferred",
        }
    }
}

/// Head, two logs or superblocks, and the two that a collector may need.
const MEMORY_BYTES: u64 = 5 * (4 << 20);
/// Keys of the script; the next one counts recoveries.
const KEYS: u64 = 6;
const OPERATIONS: usize = 60;

type Contents = BTreeMap<u64, Vec<u8>>;

#[derive(Clone, Debug)]
enum Operation {
    Put(u64, Vec<u8>),
    Delete(u64),
    /// All or nothing.
    Batch(Vec<(u64, Vec<u8>)>),
}

/// Of every length up to a few lines, so that items end anywhere in one; in slabs of two, since each
/// size of slots takes a superblock.
fn value(design: Design, number: usize, random: &mut Random) -> Vec<u8> {
    let bytes = match design {
        Design::Logs => 1 + random.below(150),
        Design::Slabs | Design::DeferredSlabs => 20 + 80 * random.below(2),
    };
    vec![number as u8; bytes as usize]
}

fn script(design: Design, seed: u64) -> Vec<Operation> {
    let mut random = Random(seed);
    (0..OPERATIONS)
        .map(|number| match random.below(8) {
            0 | 1 => Operation::Delete(random.below(KEYS)),
            2 if design == Design::Logs => {
                let pair =
                    |random: &mut Random| (random.below(KEYS), value(design, number, random));
                Operation::Batch((0..3).map(|_| pair(&mut random)).collect())
            }
            _ => Operation::Put(random.below(KEYS), value(design, number, &mut random)),
        })
        .collect()
}

fn apply(contents: &mut Contents, operation: &Operation) {
    match operation {
        Operation::Put(key, value) => drop(contents.insert(*key, value.clone())),
        Operation::Delete(key) => drop(contents.remove(key)),
        Operation::Batch(pairs) => contents.extend(pairs.iter().cloned()),
    }
}

/// Contents after nothing and after each operation.
fn states(operations: &[Operation]) -> Vec<Contents> {
    let mut states = vec![Contents::new()];
    for operation in operations {
        let mut next = states.last().expect("a state").clone();
        apply(&mut next, operation);
        states.push(next);
    }
    states
}

fn options(design: Design, settings: &Settings) -> MapOptions {
    MapOptions {
        durability: Durability::Sync,
        domain: settings.domain,
        values: if design == Design::Logs { ValueDesign::Log } else { ValueDesign::Slab },
        memory_budget_bytes: 1 << 30,
        writers: if design == Design::DeferredSlabs { 2 } else { 1 },
        deferred_frees: if design == Design::DeferredSlabs { 3 } else { 0 },
        ..MapOptions::default()
    }
}

fn perform(map: &Map<Without<Crashable>>, operation: &Operation) {
    // Sessions take the map's writers in turn.
    let mut session = map.session();
    match operation {
        Operation::Put(key, value) => session.put(&key.to_be_bytes(), value, None).expect("put"),
        Operation::Delete(key) => drop(session.delete(&key.to_be_bytes()).expect("delete")),
        Operation::Batch(pairs) => {
            let keys: Vec<[u8; 8]> = pairs.iter().map(|(key, _)| key.to_be_bytes()).collect();
            let pairs: Vec<(&[u8], &[u8])> =
                keys.iter().zip(pairs).map(|(key, (_, value))| (&key[..], &value[..])).collect();
            map.multi_put(&pairs).expect("multi_put");
        }
    }
    session.commit().expect("commit");
}

fn contents(map: &Map<Without<Crashable>>) -> Result<Contents, String> {
    let mut found = Contents::new();
    let mut cursor = 0;
    loop {
        cursor = map
            .scan(cursor, 100, |key, value| {
                let key = u64::from_be_bytes(key.try_into().expect("keys are eight bytes"));
                found.insert(key, value.bytes.to_vec());
            })
            .map_err(|e| e.to_string())?;
        if cursor == 0 {
            return Ok(found);
        }
    }
}

pub(super) fn explorer(design: Design, settings: &Settings) -> Explorer<usize> {
    explorer_on(Without::nothing, design, settings)
}

fn explorer_on(
    without: fn(Crashable) -> Without<Crashable>,
    design: Design,
    settings: &Settings,
) -> Explorer<usize> {
    let options = options(design, settings);
    let operations = script(design, settings.seed);
    let states = states(&operations);
    // Each opening differs from those before it: made, written to, recovered, looked at.
    let open = move |memory: &Crashable, lifetime: usize| {
        Map::over(without(memory.clone()), lifetime == 0, lifetime as u32, options.clone())
    };
    let made = *settings;
    let (to_write, to_recover) = (open.clone(), open.clone());
    Explorer::new(settings.domain, MEMORY_BYTES)
        .setup(move |memory| {
            // Made with every step: creation is not what is explored here.
            let memory = Without::nothing(memory.clone());
            drop(Map::over(memory, true, 0, self::options(design, &made)).expect("a map"));
        })
        .thread(move |memory, log| {
            let map = to_write(memory, 1).expect("the map");
            for (number, operation) in operations.iter().enumerate() {
                perform(&map, operation);
                log.note(number + 1);
            }
        })
        .recover(move |memory| {
            // Something is written after each recovery: what it did must stand all the same.
            let map = to_recover(memory, 1 + memory.crashes()).expect("a crash is no damage");
            map.put(&KEYS.to_be_bytes(), &[memory.crashes() as u8]).expect("put");
        })
        .check(move |memory, notes: &[Noted<usize>]| {
            let done = notes.last().map_or(0, |note| note.event);
            let map = open(memory, 2 + memory.crashes()).map_err(|e| e.to_string())?;
            let mut found = contents(&map)?;
            found.remove(&KEYS);
            let allowed = &states[done..states.len().min(done + 2)];
            if allowed.contains(&found) {
                return Ok(());
            }
            Err(format!("after {done} operations: found {found:?}, allowed {allowed:?}"))
        })
        .crashes(2)
}

const SEGMENT: u64 = 4 << 20;
const HEADER: u64 = 64;

struct Step {
    name: &'static str,
    meaning: &'static str,
    design: Design,
    without: fn(Crashable) -> Without<Crashable>,
}

const STEPS: &[Step] = &[
    Step {
        name: "ItemWriteBack",
        meaning: "items of a log are written back before they are acknowledged",
        design: Design::Logs,
        without: |m| {
            Without::nothing(m).write_backs(|at, _| at >= SEGMENT && at % SEGMENT >= HEADER)
        },
    },
    Step {
        name: "LogHeaderWriteBack",
        meaning: "a log's header is written back before items are acknowledged in it",
        design: Design::Logs,
        without: |m| {
            Without::nothing(m).write_backs(|at, _| at >= SEGMENT && at % SEGMENT < HEADER)
        },
    },
    Step {
        name: "Fences",
        meaning: "write-backs are done before anything is acknowledged",
        design: Design::Logs,
        without: |m| Without::nothing(m).fences(),
    },
    Step {
        name: "SlotWriteBack",
        meaning: "a slot's item is written back before it is acknowledged",
        design: Design::Slabs,
        without: |m| Without::nothing(m).write_backs(|at, n| at >= SEGMENT && n != 8),
    },
    Step {
        name: "ClearWriteBack",
        meaning: "a slot's cleared checksum is written back before the deletion is acknowledged",
        design: Design::Slabs,
        without: |m| {
            Without::nothing(m)
                .write_backs(|at, n| at >= SEGMENT && at % SEGMENT >= HEADER && n == 8)
        },
    },
    Step {
        name: "Fences",
        meaning: "write-backs are done before anything is acknowledged",
        design: Design::Slabs,
        without: |m| Without::nothing(m).fences(),
    },
    Step {
        name: "DeferredClearWriteBack",
        meaning: "superseded versions are cleared durably before a deletion is acknowledged",
        design: Design::DeferredSlabs,
        // Deferred clears alone write back the four bytes of a checksum.
        without: |m| Without::nothing(m).write_backs(|_, n| n == 4),
    },
];

/// Every step of both designs left out in turn.
pub(super) fn controls(states: u64, seed: u64) -> impl Iterator<Item = Control> {
    STEPS.iter().map(move |step| {
        let settings = Settings { states, seed, domain: Domain::Adr };
        let report = explorer_on(step.without, step.design, &settings).sampled(states, seed);
        let failure = report.failure;
        let map = step.design.test();
        Control {
            step: step.name.into(),
            meaning: step.meaning,
            engine: if step.design == Design::Logs { "logs" } else { "slabs" }.into(),
            caught_by: failure.as_ref().map(|_| format!("{map}, seed {seed}")),
            states: report.states,
            message: failure
                .map(|f| f.message.lines().next().unwrap_or("").to_string())
                .unwrap_or_default(),
        }
    })
}
