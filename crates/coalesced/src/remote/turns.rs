//! Turns: clients that access one memory one after another, in an order that can be chosen and repeated.
//!
//! Every access of a client is a *step*. With turns only one client runs at a time, and before each step it is decided
//! who runs next. Everything that clients share goes through such steps, so a schedule decides all that can happen: a
//! run is repeated by running it again, and small programs are tried in every order that few preemptions allow.

use parking_lot::{Condvar, Mutex};

/// Who takes the next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// Whose virtual time is the earliest, so that clients share the network as if they ran in parallel.
    Clock,
    /// Somebody, by this seed.
    Random(u64),
    /// The same client, until it waits for another or a preemption is due: at step `.0` client `.1` takes over.
    Preempt(Vec<(u64, usize)>),
}

/// Where a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Client {
    Coming,
    /// About to take a step, or to run; with its virtual time.
    Here(u64),
    Gone,
}

#[derive(Debug)]
struct State {
    clients: Vec<Client>,
    running: Option<usize>,
    step: u64,
    random: u64,
}

/// Turns of a number of clients.
#[derive(Debug)]
pub(super) struct Turns {
    schedule: Schedule,
    state: Mutex<State>,
    bells: Box<[Condvar]>,
}

impl Turns {
    pub fn new(clients: usize, schedule: Schedule) -> Turns {
        let random = if let Schedule::Random(seed) = schedule { seed } else { 0 };
        let state =
            State { clients: vec![Client::Coming; clients], running: None, step: 0, random };
        let bells = (0..clients).map(|_| Condvar::new()).collect();
        Turns { schedule, state: Mutex::new(state), bells }
    }

    /// Client `client` is there, and waits until all are and it is its turn.
    pub fn enter(&self, client: usize) {
        let mut state = self.state.lock();
        assert_eq!(state.clients.get(client), Some(&Client::Coming), "client {client} comes once");
        state.clients[client] = Client::Here(0);
        if !state.clients.contains(&Client::Coming) {
            let first = self.choose(&mut state, None, false);
            self.hand_over(&mut state, first);
        }
        self.wait(state, client);
    }

    /// The running client is about to take a step at its virtual time. It `waits` if it cannot go on by itself.
    pub fn step(&self, client: usize, time: u64, waits: bool) {
        let mut state = self.state.lock();
        state.clients[client] = Client::Here(time);
        state.step += 1;
        let next = self.choose(&mut state, Some(client), waits);
        if next != Some(client) {
            self.hand_over(&mut state, next);
            self.wait(state, client);
        }
    }

    /// A client has ended: the one that runs, or one that never came.
    pub fn leave(&self, client: usize) {
        let mut state = self.state.lock();
        state.clients[client] = Client::Gone;
        let is_begun = !state.clients.contains(&Client::Coming);
        if is_begun && (state.running.is_none() || state.running == Some(client)) {
            let next = self.choose(&mut state, None, false);
            self.hand_over(&mut state, next);
        }
    }

    /// How many take turns.
    pub fn clients(&self) -> usize {
        self.bells.len()
    }

    /// Steps taken so far.
    pub fn steps(&self) -> u64 {
        self.state.lock().step
    }

    fn hand_over(&self, state: &mut State, next: Option<usize>) {
        state.running = next;
        if let Some(next) = next {
            self.bells[next].notify_one();
        }
    }

    fn wait(&self, mut state: parking_lot::MutexGuard<'_, State>, client: usize) {
        while state.running != Some(client) {
            self.bells[client].wait(&mut state);
        }
    }

    /// Who is next; nobody if all have gone.
    fn choose(&self, state: &mut State, now: Option<usize>, waits: bool) -> Option<usize> {
        let count = state.clients.len();
        let here = |clients: &[Client], i: usize| matches!(clients[i], Client::Here(_));
        let after = |state: &State| {
            let from = now.map_or(0, |now| now + 1);
            (from..from + count).map(|i| i % count).find(|i| here(&state.clients, *i))
        };
        match &self.schedule {
            Schedule::Clock => {
                let times =
                    state.clients.iter().enumerate().filter_map(|(i, client)| match client {
                        Client::Here(time) => Some((*time, i)),
                        _ => None,
                    });
                times.min().map(|(_, i)| i)
            }
            Schedule::Random(_) => {
                let present: Vec<usize> = (0..count).filter(|i| here(&state.clients, *i)).collect();
                present.get(super::below(&mut state.random, present.len().max(1))).copied()
            }
            Schedule::Preempt(preemptions) => {
                let due = preemptions.iter().find(|(step, _)| *step == state.step && now.is_some());
                match (due, now) {
                    (Some((_, client)), _) if here(&state.clients, *client) => Some(*client),
                    (_, Some(now)) if !waits => Some(now),
                    _ => after(state),
                }
            }
        }
    }
}

/// Runs `run` under every schedule of `clients` clients with at most `preemptions` preemptions, until one answers
/// something; `run` returns that and the steps that it took. `Ok` is the number of schedules.
///
/// # Errors
/// The first answer, and the schedule that led to it.
pub fn each_schedule<E>(
    clients: usize,
    preemptions: usize,
    mut run: impl FnMut(Schedule) -> (u64, std::result::Result<(), E>),
) -> std::result::Result<u64, (Schedule, E)> {
    let mut open = vec![Vec::new()];
    let mut ran = 0;
    while let Some(points) = open.pop() {
        let (steps, answer) = run(Schedule::Preempt(points.clone()));
        ran += 1;
        answer.map_err(|answer| (Schedule::Preempt(points.clone()), answer))?;
        if points.len() < preemptions {
            let from = points.last().map_or(1, |(step, _)| step + 1);
            for step in from..=steps {
                open.extend((0..clients).map(|client| [&points[..], &[(step, client)]].concat()));
            }
        }
    }
    Ok(ran)
}
