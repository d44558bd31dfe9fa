//! The four persistent lists: two threads insert, remove and look at the same few keys, and what they were
//! told and what recovery found must be durably linearizable.
//!
//! Of each list there is a scenario of drawn calls, on a slab with hardly more nodes than keys, so that
//! slots are used again; and there are small ones that meet every state. Three of these are what the
//! published TLog loses ([`WAYS`]), and one holds operations in the middle ([`stand_still`]), since more
//! than two are needed at once for it.

use super::exhaustive::{Exhaustive, Explored};
use super::{Control, Settings};
use crate::structures::Random;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use terrace_lockfree::list::{
    Error, LinkFree, ListTable, LogFree, Media, NOT_PUBLISHED, Protocol, Session, Size, Soft, Step,
    TLog,
};
use terrace_machine::{Crashable, Explorer, Failure, Log, Noted, Report, Without};
use terrace_memory::{Domain, Part};
use terrace_workload::linearizability::durable::{History, Moment, Set, SetCall, Verdict, check};

use SetCall::{Add, Contains, Remove};

/// Of each of the two memories.
const PART_BYTES: u64 = 8 << 10;
/// Keys that are drawn.
const DRAWN_KEYS: u64 = 3;
/// Keys of all scenarios are below; this one is what recoveries write.
const EXTRA_KEY: u64 = 10;
const CAPACITY: u64 = 5;
const OPERATIONS: usize = 6;
/// Steps for the order of one key's operations.
const BUDGET: u64 = 1_000_000;
/// The thread that fills the list, and reads it after recovery.
const READER: usize = 99;

pub(super) type Note = Moment<SetCall, bool>;
type Memory = Part<Without<Crashable>>;
type Table<P> = Arc<ListTable<Memory, P>>;

/// The keys before, and the operations.
#[derive(Clone, Debug)]
struct Scene {
    domain: Domain,
    before: Vec<u64>,
    asked: Asked,
    left_out: &'static [Step],
}

#[derive(Clone, Debug)]
enum Asked {
    /// A script for each thread.
    Threads(Vec<Vec<SetCall>>),
    /// Of one thread: calls that stand still at this write-back of theirs, the first being 1, and one that
    /// does not.
    Still(Vec<(SetCall, u32)>, SetCall),
}

impl Scene {
    /// Calls of two threads drawn from a seed.
    fn drawn(settings: &Settings) -> Scene {
        let script = |thread: u64| {
            let mut random = Random(settings.seed ^ (thread + 1) << 32);
            let mut draw = |_| {
                let key = random.below(DRAWN_KEYS);
                match random.below(8) {
                    0 => Contains(key),
                    1..5 => Remove(key),
                    _ => Add(key),
                }
            };
            (0..OPERATIONS).map(&mut draw).collect()
        };
        let asked = Asked::Threads(vec![script(0), script(1)]);
        Scene { domain: settings.domain, before: vec![0, 2], asked, left_out: &[] }
    }
}

/// A small scenario: its test, the keys before, and the operations.
struct Small {
    test: &'static str,
    before: &'static [u64],
    asked: fn() -> Asked,
}

/// One call of each of two threads.
fn two(first: SetCall, second: SetCall) -> Asked {
    Asked::Threads(vec![vec![first], vec![second]])
}

/// Of a full slab a node is removed and its slot used again, elsewhere.
fn reuse() -> Asked {
    Asked::Threads(vec![vec![Remove(0), Add(9)]])
}

fn look() -> Asked {
    two(Add(1), Contains(1))
}

/// 2 is linked before 3, 5 behind it, and 3 is marked, none of it durably; then 7 is linked behind 5, and
/// told of. Whoever does that unlinks 3 from 2.
fn helped() -> Asked {
    Asked::Still(vec![(Add(2), 4), (Add(5), 4), (Remove(3), 2)], Add(7))
}

const FULL: &[u64] = &[0, 1, 2, 3, 4];

const SMALL: &[Small] = &[
    Small { test: "list-tlog-again", before: &[1], asked: || two(Remove(1), Add(1)) },
    Small { test: "list-tlog-back", before: &[], asked: || two(Add(1), Remove(1)) },
    Small { test: "list-tlog-behind", before: &[], asked: || two(Add(1), Add(2)) },
    Small { test: "list-tlog-helped", before: &[1, 3], asked: helped },
    Small { test: "list-tlog-look", before: &[], asked: look },
    Small { test: "list-link-free-look", before: &[], asked: look },
    Small { test: "list-soft-look", before: &[], asked: look },
    Small { test: "list-tlog-reuse", before: FULL, asked: reuse },
    Small { test: "list-link-free-reuse", before: FULL, asked: reuse },
    Small { test: "list-soft-reuse", before: FULL, asked: reuse },
];

/// The ways in which the published TLog loses acknowledged operations: test, name, violated rule.
const WAYS: [(&str, &str, &str); 3] = [
    (
        "list-tlog-again",
        "Published (a)",
        "a removal under way is not done again to a key inserted since",
    ),
    (
        "list-tlog-back",
        "Published (b)",
        "an insertion under way is not done again to a key removed since",
    ),
    (
        "list-tlog-behind",
        "Published (c)",
        "an acknowledged key is not behind one whose link is lost",
    ),
];

/// The test that notices a step left out, where that of drawn calls may take long.
fn noticed_by(step: Step) -> String {
    let small = match step {
        Step::IncomingLink => "-behind",
        Step::MarkWriteBack => "-back",
        Step::HelpedMark => "-helped",
        Step::LogWriteBack | Step::FoundWriteBack => "-look",
        Step::UnlinkWriteBack | Step::InvalidFirst => "-reuse",
        _ => "",
    };
    format!("list-{}{small}", step.list())
}

thread_local! {
    /// Write-backs until the operation of this thread stands still; none if it does not.
    static UNTIL_STILL: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Unwinds at the write-back that an operation is to stand still at.
fn stand_still(_: u64, _: u64) -> bool {
    if let Some(left) = UNTIL_STILL.take() {
        if left == 1 {
            resume_unwind(Box::new("stands still"));
        }
        UNTIL_STILL.set(Some(left - 1));
    }
    false
}

/// Nothing stands still for as long as it lives: a crash is explored in the middle of the operation that it
/// met, by the same thread.
struct Undisturbed(Option<u32>);

impl Undisturbed {
    fn new() -> Undisturbed {
        Undisturbed(UNTIL_STILL.take())
    }
}

impl Drop for Undisturbed {
    fn drop(&mut self) {
        UNTIL_STILL.set(self.0);
    }
}

fn media<P: Protocol>(memory: &Crashable) -> Media<Memory> {
    let memory = Without::nothing(memory.clone()).write_backs(stand_still);
    let part = |number: u64| Part::new(memory.clone(), number * PART_BYTES, PART_BYTES);
    if P::LINKS_APART { Media::two(part(0), part(1)) } else { Media::one(part(0)) }
}

/// Every value tells its key.
fn value(key: u64) -> u64 {
    key + 100
}

/// Asks for one thing, and notes the call and the return; false when there was no slot: what was asked for
/// stays open then.
fn ask<P: Protocol>(session: &mut Session<Memory, P>, log: &Log<Note>, call: SetCall) -> bool {
    log.note(Moment::Called(call));
    let told = match call {
        Add(key) => match session.insert(key, value(key)) {
            Ok(told) => told,
            Err(Error::Full { .. }) => return false,
            Err(e) => panic!("{e}"),
        },
        Remove(key) => session.remove(key).is_some(),
        Contains(key) => session.get(key).is_some(),
    };
    log.note(Moment::Returned(told));
    true
}

/// Asks for one thing that stands still in the middle. Its session stays, in the middle of it.
fn ask_in_vain<P: Protocol>(table: &Table<P>, call: SetCall, write_back: u32) {
    let mut session = table.session().expect("a session");
    UNTIL_STILL.set(Some(write_back));
    let stood = catch_unwind(AssertUnwindSafe(|| match call {
        Add(key) => _ = session.insert(key, value(key)),
        Remove(key) => _ = session.remove(key),
        Contains(key) => _ = session.get(key),
    }));
    UNTIL_STILL.set(None);
    match stood {
        Err(why) if !why.is::<&str>() => resume_unwind(why),
        Err(_) => std::mem::forget(session),
        // Where caches survive there are no write-backs, and it is done.
        Ok(()) => {}
    }
}

/// What a table holds, if it is what a table can be.
fn contents<P: Protocol>(table: &Table<P>) -> Result<Vec<u64>, String> {
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
    let size = table.size().capacity;
    if met != found.len() as u64 || met + table.free_nodes() != size {
        return Err(format!("{met} nodes are linked, {} are free of {size}", table.free_nodes()));
    }
    Ok(found.into_keys().collect())
}

/// Whether the operations noted before the crash and the state after it are linearizable; what stood still may
/// have happened or not.
fn judge(scene: &Scene, notes: &[Noted<Note>], found: &[u64]) -> Result<(), String> {
    let mut history = History::new();
    for key in &scene.before {
        history.call(READER, Add(*key));
        history.returned(READER, true);
    }
    if let Asked::Still(calls, _) = &scene.asked {
        calls.iter().zip(1..).for_each(|((call, _), thread)| history.call(thread, *call));
    }
    for Noted { thread, event } in notes {
        history.record(*thread, event.clone());
    }
    history.crash();
    for key in 0..EXTRA_KEY {
        history.call(READER, Contains(key));
        history.returned(READER, found.contains(&key));
    }
    match check(&Set, &history, BUDGET) {
        Verdict::Linearizable => Ok(()),
        Verdict::Violation(witness) => Err(witness.to_string()),
        Verdict::Undecided { part } => Err(format!("key {part}: not decided in {BUDGET} steps")),
    }
}

/// The scenario on a list.
fn explorer<P: Protocol>(scene: Scene) -> Explorer<Note> {
    let shared: Arc<Mutex<Option<Table<P>>>> = Arc::default();
    let left_out = scene.left_out;
    let open =
        move |memory: &Crashable| ListTable::<_, P>::open_without(media::<P>(memory), left_out);
    let handed = |shared: &Mutex<Option<Table<P>>>| {
        let table = shared.lock().unwrap_or_else(PoisonError::into_inner).clone();
        table.expect("made by setup")
    };
    let (made, before) = (Arc::clone(&shared), scene.before.clone());
    let capacity = if matches!(scene.asked, Asked::Still(..)) { 2 * CAPACITY } else { CAPACITY };
    let explorer = Explorer::new(scene.domain, 2 * PART_BYTES)
        .setup(move |memory| {
            let size = Size::list(capacity);
            let table = ListTable::<_, P>::create_without(media::<P>(memory), size, left_out);
            let table = table.expect("a list");
            let mut session = table.session().expect("a session");
            for key in &before {
                session.insert(*key, value(*key)).expect("room");
            }
            *made.lock().unwrap_or_else(PoisonError::into_inner) = Some(table.clone());
        })
        .recover(move |memory| {
            let _undisturbed = Undisturbed::new();
            // Something is written after each recovery: what it did must stand all the same.
            let table = open(memory).expect("a crash is no damage");
            let mut session = table.session().expect("a session");
            if let Ok(true) = session.insert(EXTRA_KEY, value(EXTRA_KEY)) {
                assert_eq!(session.remove(EXTRA_KEY), Some(value(EXTRA_KEY)));
            }
        });
    let explorer = match scene.asked.clone() {
        Asked::Threads(scripts) => scripts.into_iter().fold(explorer, |explorer, script| {
            let shared = Arc::clone(&shared);
            explorer.thread(move |_, log| {
                let mut session = handed(&shared).session().expect("a session");
                script.iter().all(|call| ask(&mut session, log, *call));
            })
        }),
        Asked::Still(calls, last) => explorer.thread(move |_, log| {
            let table = handed(&shared);
            calls.iter().for_each(|(call, write_back)| ask_in_vain(&table, *call, *write_back));
            ask(&mut table.session().expect("a session"), log, last);
        }),
    };
    explorer.check(move |memory, notes| {
        let _undisturbed = Undisturbed::new();
        let found = contents(&open(memory).map_err(|e| e.to_string())?)?;
        judge(&scene, notes, &found)
    })
}

/// The scenario on the list that a test is about.
fn on_list(test: &str, scene: Scene) -> Explorer<Note> {
    let is = |list: &str| test.strip_prefix("list-").is_some_and(|name| name.starts_with(list));
    match () {
        () if is(TLog::NAME) => explorer::<TLog>(scene),
        () if is(LogFree::NAME) => explorer::<LogFree>(scene),
        () if is(LinkFree::NAME) => explorer::<LinkFree>(scene),
        () => explorer::<Soft>(scene),
    }
}

/// A test, with steps left out of its list.
fn scenario(test: &str, settings: &Settings, left_out: &'static [Step]) -> Box<dyn Explored> {
    // Log-free exists where caches survive and nowhere else, but for the control that says so.
    let is_at_home = test != "list-log-free" || !left_out.is_empty();
    let domain = if is_at_home { settings.domain } else { Domain::Eadr };
    let settings = Settings { domain, ..*settings };
    match SMALL.iter().find(|small| small.test == test) {
        Some(Small { before, asked, .. }) => {
            let (before, asked) = (before.to_vec(), asked());
            Box::new(Exhaustive(on_list(test, Scene { domain, before, asked, left_out })))
        }
        None => {
            let scene = Scene { left_out, ..Scene::drawn(&settings) };
            Box::new(on_list(test, scene).crashes(2))
        }
    }
}

/// A test by its name.
pub(super) struct Named(&'static str, Settings);

/// The test of this name.
pub(super) fn named(test: &'static str, settings: &Settings) -> Named {
    Named(test, *settings)
}

impl Explored for Named {
    fn explored(&self, settings: &Settings) -> Report {
        scenario(self.0, settings, &[]).explored(settings)
    }

    fn left_out(self, settings: &Settings) -> Report {
        self.explored(settings)
    }

    fn replayed(&self, state: &str) -> Result<Option<Failure>, String> {
        scenario(self.0, &self.1, &[]).replayed(state)
    }
}

/// The published list, and the steps whose lack a test is to notice.
pub(super) fn controls(
    test: &str,
    settings: &Settings,
    tell: &mut dyn FnMut(&Control),
) -> Vec<Control> {
    let control = |name: &str, meaning, left_out| {
        let explore = |s: &Settings| scenario(test, s, left_out).explored(s);
        Control::of(name, meaning, test, settings, explore)
    };
    let ways = WAYS.iter().filter(|(of, ..)| *of == test);
    let ways = ways.map(|(_, name, meaning)| control(name, meaning, &NOT_PUBLISHED));
    let numbered = Step::ALL.iter().enumerate().filter(|(_, step)| noticed_by(**step) == test);
    let steps = numbered.map(|(number, step)| {
        control(&format!("{step:?}"), step.meaning(), &Step::ALL[number..=number])
    });
    ways.chain(steps).inspect(|control| tell(control)).collect()
}
