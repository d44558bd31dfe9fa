//! The four persistent lists: two threads insert, remove and look at the same few keys, and what they were
//! told and what recovery found must have an order (durable linearizability).
//!
//! The slab has hardly more nodes than keys, so that slots are used again. The logged list has three
//! small scenarios more, which meet every state: what its published form loses (see its module), one each.

use super::exhaustive::Exhaustive;
use super::{Control, Settings};
use crate::structures::Random;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use terrace_index::list::{
    Error, LinkFree, ListTable, LogFree, Media, NOT_PUBLISHED, Protocol, Size, Soft, Step, TLog,
};
use terrace_machine::{Crashable, Explorer, Log, Noted};
use terrace_memory::{Domain, Part};
use terrace_workload::linearizability::durable::{History, Moment, Set, SetCall, Verdict, check};

/// Of each of the two memories.
const PART_BYTES: u64 = 8 << 10;
const THREADS: usize = 2;
/// Keys that the threads share; the next one is what recoveries write.
const KEYS: u64 = 3;
const CAPACITY: u64 = 5;
const OPERATIONS: usize = 6;
/// Steps for the order of one key's operations.
const BUDGET: u64 = 1_000_000;
/// Who filled the list, and reads what recovery found.
const READER: usize = THREADS;

pub(super) type Note = Moment<SetCall, bool>;
type Shared<P> = Arc<Mutex<Option<Arc<ListTable<Part<Crashable>, P>>>>>;

/// A scenario: what is there before, and what each thread asks for.
#[derive(Clone, Debug)]
struct Scene {
    domain: Domain,
    before: Vec<u64>,
    scripts: [Vec<SetCall>; THREADS],
    left_out: &'static [Step],
}

impl Scene {
    /// Calls drawn from a seed.
    fn drawn(settings: &Settings) -> Scene {
        let script = |thread: u64| {
            let mut random = Random(settings.seed ^ (thread + 1) << 32);
            let mut draw = |_| {
                let key = random.below(KEYS);
                match random.below(8) {
                    0 => SetCall::Contains(key),
                    1..5 => SetCall::Remove(key),
                    _ => SetCall::Add(key),
                }
            };
            (0..OPERATIONS).map(&mut draw).collect()
        };
        Scene {
            domain: settings.domain,
            before: vec![0, 2],
            scripts: [script(0), script(1)],
            left_out: &[],
        }
    }

    /// One call of each thread.
    fn small(settings: &Settings, before: &[u64], calls: [SetCall; THREADS]) -> Scene {
        let scripts = calls.map(|call| vec![call]);
        Scene { domain: settings.domain, before: before.to_vec(), scripts, left_out: &[] }
    }

    fn without(self, left_out: &'static [Step]) -> Scene {
        Scene { left_out, ..self }
    }
}

fn media<P: Protocol>(memory: &Crashable) -> Media<Part<Crashable>> {
    let part = |number: u64| Part::new(memory.clone(), number * PART_BYTES, PART_BYTES);
    if P::LINKS_APART { Media::two(part(0), part(1)) } else { Media::one(part(0)) }
}

/// Every value tells its key.
fn value(key: u64) -> u64 {
    key + 100
}

/// Asks for one thing, and notes the call and the return; false when there was no slot: what was asked for
/// stays open then.
fn ask<P: Protocol>(
    session: &mut terrace_index::list::Session<Part<Crashable>, P>,
    log: &Log<Note>,
    call: SetCall,
) -> bool {
    log.note(Moment::Called(call));
    let told = match call {
        SetCall::Add(key) => match session.insert(key, value(key)) {
            Ok(told) => told,
            Err(Error::Full { .. }) => return false,
            Err(e) => panic!("{e}"),
        },
        SetCall::Remove(key) => session.remove(key).is_some(),
        SetCall::Contains(key) => session.get(key).is_some(),
    };
    log.note(Moment::Returned(told));
    true
}

/// What a table holds, if it is what a table can be.
fn contents<P: Protocol>(table: &Arc<ListTable<Part<Crashable>, P>>) -> Result<Vec<u64>, String> {
    let mut session = table.session().map_err(|e| e.to_string())?;
    let mut found = BTreeMap::new();
    let mut met = 0;
    session.visit(|key, value| {
        found.insert(key, value);
        met += 1;
    });
    let wrong = found.iter().find(|(key, found)| value(**key) != **found);
    if let Some((key, value)) = wrong {
        return Err(format!("key {key} has the value {value}"));
    }
    if let Some(key) = found.keys().find(|key| session.get(**key) != Some(value(**key))) {
        return Err(format!("key {key} is there but not found"));
    }
    match met + table.free_nodes() {
        CAPACITY if met == found.len() as u64 => Ok(found.into_keys().collect()),
        _ => Err(format!("{met} nodes are linked, {} are free of {CAPACITY}", table.free_nodes())),
    }
}

/// Whether what was noted before the crash and what is there after it have an order.
fn judge(before: &[u64], notes: &[Noted<Note>], found: &[u64]) -> Result<(), String> {
    let mut history = History::new();
    for key in before {
        history.call(READER, SetCall::Add(*key));
        history.returned(READER, true);
    }
    for Noted { thread, event } in notes {
        history.record(*thread, event.clone());
    }
    history.crash();
    for key in 0..KEYS {
        history.call(READER, SetCall::Contains(key));
        history.returned(READER, found.contains(&key));
    }
    match check(&Set, &history, BUDGET) {
        Verdict::Linearizable => Ok(()),
        Verdict::Violation(witness) => Err(witness.to_string()),
        Verdict::Undecided { part } => Err(format!("key {part}: not decided in {BUDGET} steps")),
    }
}

fn explorer_on<P: Protocol>(scene: Scene) -> Explorer<Note> {
    let Scene { domain, before, scripts, left_out } = scene;
    let shared = Shared::<P>::default();
    let open = move |memory: &Crashable| ListTable::open_without(media::<P>(memory), left_out);
    let (made, there) = (Arc::clone(&shared), before.clone());
    let explorer = Explorer::new(domain, 2 * PART_BYTES)
        .setup(move |memory| {
            let table = ListTable::<_, P>::create(media::<P>(memory), Size::list(CAPACITY));
            // A list that is not right in this domain cannot be made there, but left out of it.
            drop(table.or_else(|_| open(memory)).expect("a list"));
            let table = open(memory).expect("a list");
            let mut session = table.session().expect("a session");
            for key in &there {
                session.insert(*key, value(*key)).expect("room");
            }
            *made.lock().unwrap_or_else(PoisonError::into_inner) = Some(table.clone());
        })
        .recover(move |memory| {
            // Something is written after each recovery: what it did must stand all the same.
            let table = open(memory).expect("a crash is no damage");
            let mut session = table.session().expect("a session");
            let room = session.insert(KEYS, value(KEYS));
            assert!(!matches!(room, Ok(true)) || session.remove(KEYS).is_some());
        })
        .check(move |memory, notes| {
            let found = contents(&open(memory).map_err(|e| e.to_string())?)?;
            judge(&before, notes, &found)
        });
    scripts.into_iter().fold(explorer, |explorer, script| {
        let shared = Arc::clone(&shared);
        explorer.thread(move |_, log| {
            let table = shared.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let mut session = table.expect("made by setup").session().expect("a session");
            script.iter().all(|call| ask(&mut session, log, *call));
        })
    })
}

/// Two threads on one list, crashes in recovery among them.
pub(super) fn explorer<P: Protocol>(settings: &Settings) -> Explorer<Note> {
    explorer_on::<P>(Scene::drawn(settings)).crashes(2)
}

pub(super) fn tlog(settings: &Settings) -> Explorer<Note> {
    explorer::<TLog>(settings)
}

/// Always where caches survive: it exists nowhere else.
pub(super) fn log_free(settings: &Settings) -> Explorer<Note> {
    explorer::<LogFree>(&Settings { domain: Domain::Eadr, ..*settings })
}

pub(super) fn link_free(settings: &Settings) -> Explorer<Note> {
    explorer::<LinkFree>(settings)
}

pub(super) fn soft(settings: &Settings) -> Explorer<Note> {
    explorer::<Soft>(settings)
}

/// A way in which the published TLog loses what it told: the scenario in which it does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    test: &'static str,
    name: &'static str,
    meaning: &'static str,
    before: &'static [u64],
    calls: [SetCall; THREADS],
}

/// Those of paper 001's digest, section 2.6.
pub(super) const WAYS: [Way; 3] = [
    Way {
        test: "list-tlog-again",
        name: "Published (a)",
        meaning: "a removal under way is not done again to a key that was inserted since",
        before: &[1],
        calls: [SetCall::Remove(1), SetCall::Add(1)],
    },
    Way {
        test: "list-tlog-back",
        name: "Published (b)",
        meaning: "an insertion under way is not done again to a key that was removed since",
        before: &[],
        calls: [SetCall::Add(1), SetCall::Remove(1)],
    },
    Way {
        test: "list-tlog-behind",
        name: "Published (c)",
        meaning: "a key told of is not behind one whose link is lost",
        before: &[],
        calls: [SetCall::Add(1), SetCall::Add(2)],
    },
];

impl Way {
    fn scene(&self, settings: &Settings) -> Scene {
        Scene::small(settings, self.before, self.calls)
    }

    /// The list as it is, every schedule and state.
    pub(super) fn explorer(&self, settings: &Settings) -> Exhaustive<Note> {
        Exhaustive(explorer_on::<TLog>(self.scene(settings)))
    }

    /// The published list.
    fn control(&self, states: u64, seed: u64) -> Control {
        let settings = Settings { states, seed, ..Settings::default() };
        let published = explorer_on::<TLog>(self.scene(&settings).without(&NOT_PUBLISHED));
        let report = published.exhaustive(states.max(super::WHOLE_FROM));
        Control::of(self.name, self.meaning, self.test, seed, report)
    }
}

/// The published list in the three scenarios, and every step left out of a list's own.
pub(super) fn controls(
    test: &str,
    states: u64,
    seed: u64,
    tell: &mut dyn FnMut(&Control),
) -> Vec<Control> {
    let ways = WAYS.iter().filter(|way| way.test == test).map(|way| way.control(states, seed));
    let steps = Step::ALL.iter().filter(|step| test.strip_prefix("list-") == Some(step.list()));
    let steps = steps.map(|step| control(*step, test, states, seed));
    ways.chain(steps).inspect(|control| tell(control)).collect()
}

/// A step left out of the list it belongs to.
fn control(step: Step, test: &str, states: u64, seed: u64) -> Control {
    let alone = Step::ALL.iter().position(|of| *of == step).expect("one of them");
    let left_out = &Step::ALL[alone..=alone];
    let settings = Settings { states, seed, ..Settings::default() };
    let scene = Scene::drawn(&settings).without(left_out);
    let explorer = match step.list() {
        TLog::NAME => explorer_on::<TLog>(scene),
        LogFree::NAME => explorer_on::<LogFree>(scene),
        LinkFree::NAME => explorer_on::<LinkFree>(scene),
        _ => explorer_on::<Soft>(scene),
    };
    let report = explorer.sampled(states, seed);
    Control::of(&format!("{step:?}"), step.meaning(), test, seed, report)
}
