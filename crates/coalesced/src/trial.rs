//! Trials of structures: clients whose histories are checked, running freely or under every schedule.

use crate::backend::Backend;
#[cfg(test)]
use crate::backend::{Method, Regime};
use crate::blink::{BlinkSession, BlinkTree};
use crate::hash::{HashSession, HashSet};
use crate::list::printed::{PrintedList, PrintedSession};
use crate::list::{List, ListSession};
#[cfg(test)]
use crate::object::Access;
use crate::remote::{Remote, Schedule, each_schedule};
use std::sync::Arc;
use terrace_workload::history::{Call, Client, Operation, Recorder, Response, joined};
use terrace_workload::linearizability::{DEFAULT_BUDGET, Verdict, check};
use terrace_workload::random::Rng;

/// Regimes and methods that go together.
#[cfg(test)]
pub(crate) fn accesses() -> impl Iterator<Item = (Regime, Method)> {
    let all = [Regime::Full, Regime::ElementWise].into_iter();
    let all = all.flat_map(|regime| Method::ALL.map(|method| (regime, method)));
    all.filter(|(regime, method)| Access::new(*regime, *method).is_ok())
}

/// What is asked of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Whether a key is there.
    Contains(u64),
    /// To put it there.
    Insert(u64),
    /// To take it out.
    Remove(u64),
}

/// One thread's access to a set under trial.
pub trait SetSession: Send {
    /// Does what is asked, and tells what came of it.
    fn ask(&mut self, asked: Asked) -> bool;
}

/// A set under trial.
pub trait Set: Sync {
    /// One thread's access.
    type Session<'a>: SetSession
    where
        Self: 'a;
    /// Access for one more thread.
    fn enter(&self) -> Self::Session<'_>;
}

/// Sets by a session that has the three operations, each told as a flag.
macro_rules! set {
    ($set:ident, $session:ident, $enter:expr, $asked:expr) => {
        impl<B: Backend> Set for $set<B>
        where
            for<'a> B::Context<'a>: Send,
        {
            type Session<'a>
                = $session<'a, B>
            where
                Self: 'a;

            fn enter(&self) -> Self::Session<'_> {
                $enter(self.session())
            }
        }

        impl<'s, B: Backend> SetSession for $session<'s, B>
        where
            B::Context<'s>: Send,
        {
            fn ask(&mut self, asked: Asked) -> bool {
                $asked(self, asked).expect("the trial has room")
            }
        }
    };
    ($set:ident, $session:ident, $enter:expr) => {
        set!($set, $session, $enter, |session: &mut $session<'_, B>, asked| match asked {
            Asked::Contains(key) => Ok(session.contains(key)),
            Asked::Insert(key) => session.insert(key),
            Asked::Remove(key) => session.remove(key),
        });
    };
}

fn few<S>(session: crate::Result<S>) -> S {
    session.expect("a trial has few sessions")
}

/// The value of a key: a pair of two versions is noticed.
fn value(key: u64) -> u64 {
    key + 1
}

set!(List, ListSession, few);
set!(HashSet, HashSession, few);
set!(PrintedList, PrintedSession, std::convert::identity);
set!(BlinkTree, BlinkSession, few, |session: &mut BlinkSession<'_, B>, asked| match asked {
    Asked::Contains(key) => Ok(session.get(key) == Some(value(key))),
    Asked::Insert(key) => session.put(key, value(key)).map(|before| before.is_none()),
    Asked::Remove(key) => Ok(session.remove(key).is_some()),
});

/// Asks, and notes it.
fn noted(client: &mut Client<'_>, session: &mut impl SetSession, asked: Asked) {
    const THERE: i64 = 0;
    let absent_to_there = Call::CompareAndSet { expected: None, new: Some(THERE) };
    let (key, call) = match asked {
        Asked::Contains(key) => (key, Call::Get),
        Asked::Insert(key) => (key, absent_to_there),
        Asked::Remove(key) => (key, Call::Delete),
    };
    let pending = client.call(key, call);
    let answer = session.ask(asked);
    let response = match call {
        Call::Get => Response::Value(answer.then_some(THERE)),
        _ => Response::Flag(answer),
    };
    client.returned(pending, response);
}

/// Runs a program for each client, in threads, and then looks at every key below `keys`.
fn history<S: Set>(
    set: &S,
    before: &[Asked],
    programs: Vec<Vec<Asked>>,
    keys: u64,
    begin: impl FnOnce(),
) -> Vec<Operation> {
    let recorder = Recorder::new();
    let alone = |asked: &mut dyn Iterator<Item = Asked>| {
        let (mut client, mut session) = (recorder.client(), set.enter());
        asked.for_each(|asked| noted(&mut client, &mut session, asked));
        client.into_operations()
    };
    let first = alone(&mut before.iter().copied());
    begin();
    let sessions: Vec<_> = programs.iter().map(|_| (recorder.client(), set.enter())).collect();
    let mut logs: Vec<_> = std::thread::scope(|scope| {
        let run =
            |((mut client, mut session), program): ((Client<'_>, S::Session<'_>), Vec<Asked>)| {
                program.into_iter().for_each(|asked| noted(&mut client, &mut session, asked));
                drop(session);
                client.into_operations()
            };
        let threads: Vec<_> =
            sessions.into_iter().zip(programs).map(|of| scope.spawn(move || run(of))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a client does not panic")).collect()
    });
    logs.push(first);
    logs.push(alone(&mut (0..keys).map(Asked::Contains)));
    joined(logs)
}

/// Random programs over few keys: in ten operations `reads` ask whether a key is there.
pub fn programs(
    clients: usize,
    operations: usize,
    keys: u64,
    reads: u64,
    seed: u64,
) -> Vec<Vec<Asked>> {
    let mut random = Rng::new(seed);
    let mut draw = |_| {
        let key = random.below(keys);
        match random.below(10) {
            kind if kind < reads => Asked::Contains(key),
            kind if kind % 2 == 0 => Asked::Insert(key),
            _ => Asked::Remove(key),
        }
    };
    (0..clients).map(|_| (0..operations).map(&mut draw).collect()).collect()
}

/// Whether what clients were told has an order that explains it, when they run freely.
pub fn stressed<S: Set>(set: &S, programs: Vec<Vec<Asked>>, keys: u64) -> Verdict {
    check(&history(set, &[], programs, keys, || ()), DEFAULT_BUDGET)
}

/// The same for clients of a remote memory that take turns.
pub fn in_turns<S: Set>(
    memory: &Arc<Remote>,
    set: &S,
    before: &[Asked],
    programs: Vec<Vec<Asked>>,
    keys: u64,
    schedule: Schedule,
) -> Verdict {
    let clients = programs.len();
    check(
        &history(set, before, programs, keys, || memory.take_turns(clients, schedule)),
        DEFAULT_BUDGET,
    )
}

/// Runs a small program under every schedule of few preemptions, on a new set each. `Ok` is the number of schedules.
///
/// # Errors
/// The first schedule whose history has no explanation, with what the checker says.
pub fn explored<S: Set>(
    new: impl Fn() -> (Arc<Remote>, S),
    small: &Small,
    preemptions: usize,
) -> Result<u64, Box<(Schedule, Verdict)>> {
    let Small { before, programs, keys } = small;
    let run = |schedule| {
        let (memory, set) = new();
        let verdict = in_turns(&memory, &set, before, programs.clone(), *keys, schedule);
        (memory.steps(), if verdict.is_linearizable() { Ok(()) } else { Err(verdict) })
    };
    each_schedule(programs.len(), preemptions, run).map_err(Box::new)
}

/// Small programs of two clients, and what is there before, such that everything that can be wrong is near.
#[derive(Clone, Debug)]
pub struct Small {
    /// Asked before the clients begin.
    pub before: Vec<Asked>,
    /// What each client asks.
    pub programs: Vec<Vec<Asked>>,
    /// Keys are below this.
    pub keys: u64,
}

fn small(before: impl IntoIterator<Item = u64>, programs: &[[&[Asked]; 2]]) -> Vec<Small> {
    let before: Vec<Asked> = before.into_iter().map(Asked::Insert).collect();
    let small = |programs: &[&[Asked]; 2]| Small {
        before: before.clone(),
        programs: programs.map(<[Asked]>::to_vec).to_vec(),
        keys: 20,
    };
    programs.iter().map(small).collect()
}

/// Updates of neighbouring nodes, of one node, and at the end, for lists whose nodes have one or two keys.
pub fn small_for_lists() -> Vec<Small> {
    use Asked::{Contains, Insert, Remove};
    small(
        [2, 4, 6],
        &[
            [&[Insert(1)], &[Remove(4)]],
            [&[Insert(3), Remove(2)], &[Insert(5)]],
            [&[Remove(2)], &[Remove(4), Contains(2)]],
            [&[Remove(6), Insert(7)], &[Insert(8)]],
            [&[Insert(5)], &[Insert(5)]],
        ],
    )
}

/// Splits of leaves and of the root, reads beside a change, and merges of leaves and above beside all of these, for
/// trees whose nodes have two keys.
pub fn small_for_trees() -> Vec<Small> {
    use Asked::{Contains, Insert, Remove};
    small(
        (0..6).map(|i| 2 * i),
        &[
            [&[Insert(3)], &[Contains(2)]],
            [&[Insert(1)], &[Insert(3)]],
            [&[Remove(2)], &[Insert(3)]],
            [&[Remove(2), Insert(2)], &[Contains(0)]],
            [&[Insert(11), Insert(12)], &[Insert(13)]],
            [&[Remove(0), Remove(2)], &[Insert(5)]],
            [&[Remove(4), Remove(6)], &[Remove(0), Remove(2)]],
            [&[Remove(10), Remove(8)], &[Contains(8), Insert(7)]],
            [&[Remove(4), Remove(6), Insert(6)], &[Insert(1), Insert(3)]],
        ],
    )
}
