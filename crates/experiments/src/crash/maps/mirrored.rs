//! The default path: maps mirrored to a disk, several threads on image, index, logs and commit queues.
//!
//! Under `sync` what was told is there; the scripts are those of [`threads`]. Under a promise that takes checkpoints a
//! crash leaves what there was at some instant since the last completed one, all commit queues at the same: buffered
//! durable linearizability, of single keys and of batches.

use super::super::Settings;
use super::super::exhaustive::Exhaustive;
use super::super::histories::history;
use super::disk::{MEMORY_BYTES, OnDisk, OnImage, in_lines};
use super::threads::{self, number, value};
use super::{Contents, Design, MapSetup, contents, recover};
use crate::structures::Random;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use terrace_durable::logs::Fault;
use terrace_machine::{Crashable, Explorer, Log, Noted, Volatile};
use terrace_memory::instructions::LINE_BYTES;
use terrace_memory::{Domain, lab};
use terrace_store::{Durability, Error, Map, Session, Value};
use terrace_workload::history::{Call, Response};
use terrace_workload::linearizability::durable::{
    Buffered, BufferedCall, Moment, Specification, Verdict, check,
};

/// Keys that threads share; the next one counts recoveries.
const KEYS: u64 = 3;
/// Steps for the order of one history.
const BUDGET: u64 = 1_000_000;

/// An operation on a map.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in super::super) enum Asked {
    One(u64, Call),
    /// All or nothing.
    Batch(Vec<(u64, i64)>),
}

/// A map of numbers, batches included: all of it is one part.
#[derive(Clone, Debug, Default)]
pub(super) struct Pairs {
    /// What setup leaves.
    pub start: BTreeMap<u64, i64>,
}

impl Specification for Pairs {
    type Call = Asked;
    type Response = Response;
    type State = BTreeMap<u64, i64>;

    fn start(&self) -> Self::State {
        self.start.clone()
    }

    fn apply(&self, state: &Self::State, asked: &Asked) -> (Self::State, Response) {
        let mut next = state.clone();
        let told = match asked {
            Asked::Batch(pairs) => {
                next.extend(pairs.iter().copied());
                Response::Done
            }
            Asked::One(key, call) => {
                let (after, told) = call.apply(next.remove(key));
                next.extend(after.map(|number| (*key, number)));
                told
            }
        };
        (next, told)
    }
}

/// What one thread does next.
#[derive(Clone, Debug)]
pub(super) enum ThreadStep {
    Ask(Asked),
    /// A checkpoint.
    Sync,
    /// The checkpointer's tick between two of them: sealed logs are written out, unsynced.
    Tick,
    /// Open logs are closed.
    Seal,
    /// Rounds of the collector until nothing is due.
    Collect,
    /// The index is saved.
    Save,
    /// A read that looks at the value for long.
    Linger(u64),
    /// Nobody reads any more what was freed, or left memory. In a scenario of one thread.
    Readers,
    /// The map is as the scenario needs it.
    See(fn(&Map<Volatile, Volatile>)),
}

pub(super) type Script = Vec<ThreadStep>;
pub(in super::super) type Note = Moment<BufferedCall<Asked>, Option<Response>>;

/// What the threads share.
struct Shared {
    sessions: Vec<Option<Session<Volatile, Volatile>>>,
    _map: OnImage,
}

/// What stands in the way of a right map, for negative controls.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Wrong {
    pub syncs: bool,
    pub fault: Option<Fault>,
    /// What a store to the index stores instead, by offset and word.
    pub index_stores: Option<fn(u64, u64) -> u64>,
}

impl Wrong {
    pub const NOTHING: Wrong = Wrong { syncs: true, fault: None, index_stores: None };

    pub(super) fn place(
        self,
        durability: Durability,
        writers: usize,
        settings: &Settings,
    ) -> OnDisk {
        let mut place = OnDisk::new(durability, self.syncs, settings);
        place.writers = writers;
        place.fault = self.fault;
        place.index_stores = self.index_stores;
        place
    }

    /// Without threads of its own a map takes no checkpoint by the clock: all intervals are alike.
    pub(super) fn bounded(self, writers: usize, settings: &Settings) -> OnDisk {
        self.place(self.promise(settings), writers, settings)
    }

    /// One that takes checkpoints.
    pub(super) fn promise(self, settings: &Settings) -> Durability {
        match settings.seed % 2 {
            0 => Durability::None,
            _ => Durability::Interval(Duration::from_millis(10)),
        }
    }
}

fn ask(session: &mut Session<Volatile, Volatile>, asked: &Asked) -> Response {
    match asked {
        Asked::One(key, call) => threads::tell(session, *key, *call),
        Asked::Batch(pairs) => {
            let put = |session: &mut Session<_, _>| {
                let mut each = pairs.iter();
                each.try_for_each(|(key, number)| {
                    session.put(&key.to_be_bytes(), &value(*number), None)
                })?;
                Ok::<_, Error>(())
            };
            session.atomic(put).expect("there is room");
            Response::Done
        }
    }
}

fn perform(session: &mut Session<Volatile, Volatile>, log: &Log<Note>, step: &ThreadStep) {
    match step {
        ThreadStep::Ask(asked) => {
            log.note(Moment::Called(BufferedCall::Do(asked.clone())));
            let told = ask(session, asked);
            session.commit().expect("commit");
            log.note(Moment::Returned(Some(told)));
        }
        ThreadStep::Sync => {
            log.note(Moment::Called(BufferedCall::Sync));
            session.map().sync().expect("a sync");
            log.note(Moment::Returned(None));
        }
        ThreadStep::Tick => session.map().keep(0, false).expect("a tick"),
        ThreadStep::Seal => session.map().seal_open_logs(),
        ThreadStep::Linger(key) => {
            log.note(Moment::Called(BufferedCall::Do(Asked::One(*key, Call::Get))));
            let map = session.map().clone();
            let linger = |value: Value<'_>| {
                lab::step(map.medium().memory());
                number(value.bytes).expect("a whole value")
            };
            let found = session.get(&key.to_be_bytes(), linger).expect("get");
            log.note(Moment::Returned(Some(Response::Value(found))));
        }
        ThreadStep::Readers => session.map().await_readers().expect("memory is given back"),
        ThreadStep::See(looks) => looks(session.map()),
        ThreadStep::Save => {
            assert!(session.map().save_index().expect("saved"), "it is a hash map's")
        }
        ThreadStep::Collect => while session.map().collect().expect("a round") > 0 {},
    }
}

/// Whether the operations noted before the crash and the state after it are linearizable.
pub(super) fn judge(pairs: &Pairs, notes: &[Noted<Note>], found: &Contents) -> Result<(), String> {
    let reader = usize::MAX;
    let mut history = history(notes);
    history.crash();
    for key in 0..KEYS {
        let value = found.get(&key).map(|value| number(value)).transpose()?;
        history.call(reader, BufferedCall::Do(Asked::One(key, Call::Get)));
        history.returned(reader, Some(Response::Value(value)));
    }
    match check(&Buffered(pairs.clone()), &history, BUDGET) {
        Verdict::Linearizable => Ok(()),
        Verdict::Violation(witness) => Err(witness.to_string()),
        Verdict::Undecided { .. } => Err(format!("not decided in {BUDGET} steps")),
    }
}

/// Threads with a script each. `prepare` leaves what they begin with, and returns the map that they share; `judged`
/// says whether what is found after a crash may be.
pub(super) fn scripted(
    place: OnDisk,
    domain: Domain,
    prepare: impl Fn(&OnDisk, &Crashable) -> OnImage + Send + Sync + 'static,
    scripts: Vec<Script>,
    judged: impl Fn(&[Noted<Note>], &Contents) -> Result<(), String> + Send + Sync + 'static,
) -> Explorer<Note> {
    let shared: Arc<Mutex<Option<Shared>>> = Arc::default();
    let (made, ended) = (Arc::clone(&shared), Arc::clone(&shared));
    let (to_recover, threads) = (place.clone(), scripts.len());
    let to_make = place.clone();
    let explorer = Explorer::new(domain, place.memory_bytes)
        .setup(move |memory| {
            to_make.make(memory);
            let map = prepare(&to_make, memory);
            let sessions = (0..threads).map(|_| Some(map.session())).collect();
            *made.lock().unwrap_or_else(PoisonError::into_inner) =
                Some(Shared { sessions, _map: map });
        })
        .recover(move |memory| {
            to_recover.hand_over(memory);
            recover(&to_recover, memory, 10 + memory.crashes(), KEYS);
        })
        .end(move |_| drop(ended.lock().unwrap_or_else(PoisonError::into_inner).take()))
        .check(move |memory, notes: &[Noted<Note>]| {
            judged(notes, &contents(&place.open(memory, 11 + memory.crashes()))?)
        });
    scripts.into_iter().enumerate().fold(explorer, |explorer, (thread, script)| {
        let shared = Arc::clone(&shared);
        explorer.thread(move |_, log| {
            let mut all = shared.lock().unwrap_or_else(PoisonError::into_inner);
            let sessions = &mut all.as_mut().expect("what setup shared").sessions;
            let mut session = sessions[thread].take().expect("a session of each thread");
            drop(all);
            script.iter().for_each(|step| perform(&mut session, log, step));
        })
    })
}

/// The same on a disk whose power fails, under a promise that takes checkpoints.
fn buffered(
    place: OnDisk,
    prepare: impl Fn(&OnDisk, &Crashable) -> OnImage + Send + Sync + 'static,
    scripts: Vec<Script>,
    pairs: Pairs,
) -> Explorer<Note> {
    let judged = move |notes: &[Noted<Note>], found: &Contents| judge(&pairs, notes, found);
    scripted(place, Domain::Adr, prepare, scripts, judged)
}

/// An empty map; each session's writer has a log.
pub(super) fn warm(place: &OnDisk, memory: &Crashable) -> OnImage {
    let map = place.open(memory, 1);
    // What is opened from here on is overwritten.
    map.sync().expect("a sync");
    let key = (KEYS + 1).to_be_bytes();
    for _ in 0..place.writers {
        let mut session = map.session();
        session.put(&key, &value(0), None).expect("put");
        session.delete(&key).expect("delete");
    }
    map.sync().expect("a sync");
    map
}

/// The operations of a thread, drawn from a seed. Most values are of one length, and overwritten where they lie.
pub(super) fn drawn(seed: u64, thread: usize, reads: bool, count: u64) -> Script {
    let mut random = Random(seed ^ (thread as u64 + 1) << 32);
    let mut draw = |step: u64| {
        let key = random.below(KEYS);
        let id = 2 * (1 + step + count * thread as u64) as i64;
        let call = match random.below(if reads { 1 } else { 8 }) {
            0 => Call::Get,
            1 => Call::Delete,
            2 => return ThreadStep::Sync,
            3 => Call::Put(id + 1),
            _ => Call::Put(id),
        };
        ThreadStep::Ask(Asked::One(key, call))
    };
    (0..count).map(&mut draw).collect()
}

pub(super) fn put(key: u64, number: i64) -> ThreadStep {
    ThreadStep::Ask(Asked::One(key, Call::Put(number)))
}

pub(super) fn get(key: u64) -> ThreadStep {
    ThreadStep::Ask(Asked::One(key, Call::Get))
}

/// Under `sync`: two threads, a commit queue each, on the same keys.
pub(in super::super) fn in_sync(wrong: Wrong, settings: &Settings) -> Explorer<threads::Note> {
    let place = wrong.place(Durability::Sync, threads::THREADS, settings);
    threads::explorer_on(place, Design::Logs, MEMORY_BYTES, &in_lines(settings))
}

/// Under `sync`: two threads in one commit queue; one waits for the other, which leads.
pub(in super::super) fn queue(wrong: Wrong, settings: &Settings) -> Explorer<threads::Note> {
    let place = wrong.place(Durability::Sync, 1, settings);
    let scripts = [vec![(0, Call::Put(2))], vec![(1, Call::Put(4))]];
    threads::scripted(place, true, MEMORY_BYTES, &in_lines(settings), scripts).crashes(1)
}

/// Two writers and a reader on the same keys, which are overwritten until a checkpoint takes them.
pub(in super::super) fn overwriters(wrong: Wrong, settings: &Settings) -> Explorer<Note> {
    let scripts = (0..3).map(|thread| drawn(settings.seed, thread, thread == 2, 6)).collect();
    buffered(wrong.bounded(2, settings), warm, scripts, Pairs::default()).crashes(2)
}

/// A checkpoint of two commit queues against a writer that overwrites what it takes, every schedule within the bound on
/// preemptions.
pub(in super::super) fn checkpoint(wrong: Wrong, settings: &Settings) -> Exhaustive<Note> {
    // The second item is overwritten, not the first. A checkpoint that took it must not hold what came after key 1.
    let writes = vec![put(0, 2), put(0, 4), put(1, 6), put(0, 8)];
    let scripts = vec![writes, vec![put(2, 10), ThreadStep::Sync]];
    Exhaustive(buffered(wrong.bounded(2, settings), warm, scripts, Pairs::default()))
}

/// The header of a bucket, its line's first word, as if its version were never raised.
pub(super) fn without_version(at: u64, word: u64) -> u64 {
    if at.is_multiple_of(LINE_BYTES) { word & u64::from(u32::MAX) } else { word }
}

/// A reader against a writer that overwrites, every schedule within the bound on preemptions.
pub(in super::super) fn look(wrong: Wrong, settings: &Settings) -> Exhaustive<Note> {
    let scripts = vec![vec![put(0, 2), put(0, 4), put(0, 6)], vec![get(0)]];
    Exhaustive(buffered(wrong.bounded(1, settings), warm, scripts, Pairs::default()))
}

/// A live log, and one that is mostly dead and holds the tombstone of a key whose value is in the first; both are
/// durable.
fn littered(place: &OnDisk, memory: &Crashable) -> OnImage {
    const PADDING: u64 = KEYS + 1;
    let perform = |lifetime: usize, steps: &[(u64, Option<i64>)]| {
        let map = place.open(memory, lifetime);
        for (key, number) in steps {
            let name = key.to_be_bytes();
            match number {
                Some(number) => map.put(&name, &value(*number)).expect("put"),
                None => drop(map.delete(&name).expect("delete")),
            }
        }
        map.sync().expect("a sync");
    };
    let living = |key| (key, Some(3));
    perform(1, &[(0, Some(2)), (1, Some(4)), (2, Some(6)), living(PADDING), living(PADDING + 1)]);
    // One length after the other, so that none is overwritten where it lies.
    let dead = |number: i64| (PADDING + 2, Some(number));
    let dying: Vec<_> = [(1, None), (2, Some(8))].into_iter().chain((0..10).map(dead)).collect();
    perform(2, &dying);
    let map = place.open(memory, 3);
    let mut session = map.session();
    session.put(&(PADDING + 2).to_be_bytes(), &value(20), None).expect("put");
    map.sync().expect("a sync");
    map
}

/// The collector, whose checkpoint frees logs, against a writer of batches and single keys.
pub(in super::super) fn collector(wrong: Wrong, settings: &Settings) -> Explorer<Note> {
    let mut random = Random(settings.seed);
    let mut write = |number: i64| match random.below(4) {
        0 => ThreadStep::Ask(Asked::Batch(vec![(0, number), (2, number)])),
        1 => ThreadStep::Ask(Asked::One(random.below(KEYS), Call::Delete)),
        _ => put(random.below(KEYS), number),
    };
    let writes = (1..=4).map(|number| write(100 + 2 * number)).collect();
    let start = BTreeMap::from([(0, 2), (2, 8)]);
    let scripts = vec![vec![ThreadStep::Collect, get(1), ThreadStep::Sync], writes];
    buffered(wrong.bounded(1, settings), littered, scripts, Pairs { start }).crashes(2)
}

/// The checkpointer between two checkpoints, which writes a sealed log out, against a writer that overwrites in it:
/// every schedule within the bound on preemptions.
pub(in super::super) fn tick(wrong: Wrong, settings: &Settings) -> Exhaustive<Note> {
    let scripts = vec![
        vec![put(0, 2), put(0, 4), ThreadStep::Seal, put(0, 6)],
        vec![ThreadStep::Tick, ThreadStep::Sync],
    ];
    Exhaustive(buffered(wrong.bounded(1, settings), warm, scripts, Pairs::default()))
}
