//! Histories that are linearizable because a correct register made them, for testing checkers.
//!
//! Clients call, the register does the operation at some later instant, the client learns of it
//! later still; all three instants are drawn at random, so operations overlap, and some clients
//! never learn: their operation may have been done, may be done later, or never.

use crate::history::{Call, Operation, RegisterState, Response};
use crate::random::Rng;
use std::collections::HashMap;

/// How large and how entangled a simulated history is.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Clients, each with one operation at a time.
    pub clients: u32,
    /// Keys, chosen evenly.
    pub keys: u64,
    /// Operations called in all.
    pub operations: usize,
    /// One operation in so many is never answered; 0 for none.
    pub lost_one_in: u64,
}

/// Where a client stands.
#[derive(Clone, Copy)]
enum Stage {
    Idle,
    Called(usize),
    Done(usize, Response),
}

struct Simulation {
    rng: Rng,
    shape: Shape,
    register: HashMap<u64, RegisterState>,
    history: Vec<Operation>,
    /// Operations of clients that gave up waiting; some happen later.
    abandoned: Vec<usize>,
    next_place: u64,
    next_value: i64,
}

/// Values put are multiples of this, increments are small: a value tells which write it is from.
pub const VALUE_STEP: i64 = 1 << 20;

/// A linearizable history of `shape`; the same for the same seed.
pub fn linearizable(shape: Shape, seed: u64) -> Vec<Operation> {
    let mut simulation = Simulation {
        rng: Rng::new(seed),
        shape,
        register: HashMap::new(),
        history: Vec::with_capacity(shape.operations),
        abandoned: Vec::new(),
        next_place: 0,
        next_value: 1,
    };
    let mut stages = vec![Stage::Idle; shape.clients as usize];
    while simulation.history.len() < shape.operations {
        let client = simulation.rng.below(stages.len() as u64) as usize;
        stages[client] = simulation.advance(client as u32, stages[client]);
        simulation.maybe_do_abandoned();
    }
    // Some of the last operations are answered, the others stay open.
    for (client, stage) in stages.into_iter().enumerate() {
        let stage = simulation.advance(client as u32, stage);
        if matches!(stage, Stage::Done(..)) {
            simulation.advance(client as u32, stage);
        }
    }
    simulation.history.truncate(shape.operations);
    simulation.history
}

impl Simulation {
    fn place(&mut self) -> u64 {
        self.next_place += 1;
        self.next_place - 1
    }

    /// One client's next step: call, have it done, or be told.
    fn advance(&mut self, client: u32, stage: Stage) -> Stage {
        match stage {
            Stage::Idle => {
                let key = self.rng.below(self.shape.keys);
                let call = self.draw_call(key);
                let called_at = self.place();
                self.history.push(Operation { client, key, call, called_at, returned: None });
                Stage::Called(self.history.len() - 1)
            }
            Stage::Called(number) => {
                let lost_one_in = self.shape.lost_one_in;
                if lost_one_in > 0 && self.rng.one_in(lost_one_in) {
                    self.abandoned.push(number);
                    return Stage::Idle;
                }
                Stage::Done(number, self.happen(number))
            }
            Stage::Done(number, response) => {
                let at = self.place();
                self.history[number].returned = Some((at, response));
                Stage::Idle
            }
        }
    }

    /// The instant at which an operation happens.
    fn happen(&mut self, number: usize) -> Response {
        let Operation { key, call, .. } = self.history[number];
        let state = self.register.entry(key).or_default();
        let (next, response) = call.apply(*state);
        *state = next;
        response
    }

    /// Now and then an abandoned operation happens after all, or is forgotten.
    fn maybe_do_abandoned(&mut self) {
        if self.abandoned.is_empty() || !self.rng.one_in(8) {
            return;
        }
        let i = self.rng.below(self.abandoned.len() as u64) as usize;
        let number = self.abandoned.swap_remove(i);
        if self.rng.one_in(2) {
            self.happen(number);
        }
    }

    fn draw_call(&mut self, key: u64) -> Call {
        let current = self.register.get(&key).copied().flatten();
        let fresh = self.next_value * VALUE_STEP;
        self.next_value += 1;
        match self.rng.below(20) {
            0..8 => Call::Get,
            8..13 => Call::Put(fresh),
            13..15 => Call::Delete,
            15..16 => Call::CompareAndSet { expected: current, new: Some(fresh) },
            16..17 => Call::CompareAndSet { expected: Some(fresh), new: None },
            17..19 => Call::Increment(1 + self.rng.below(3) as i64),
            _ => Call::Swap(fresh),
        }
    }
}
