//! Which engine the next block is best given to, by what the last ones were like.
//!
//! The forecast keeps, for each engine, what an order took it lately, and how many orders had to be executed again.
//! It takes the cheapest, and now and then, on one block in so many, another whose figure is old; a trial costs
//! what that engine was slower by the last time, so the rarer the worse it was. What finds clusters first is not
//! tried before some order had to be executed again: without those it does the same work later.

use super::LedgerEngine;
use std::time::Duration;

/// Engines that are worth a thought; the others are rivals to compare with.
const CHOICES: [LedgerEngine; 3] =
    [LedgerEngine::Sequential, LedgerEngine::Orangutan, LedgerEngine::Dag];
/// Blocks below this are not worth a meeting of threads.
const SMALL: usize = 128;
/// Weight of a new figure.
const NEW: f64 = 0.2;
/// Trials before an engine's figure is believed; the lowest of them counts, since the first also brings accounts and
/// code near.
const FIRST: u64 = 2;
/// What trials may cost, of all time.
const TRIALS: f64 = 0.02;
/// Part of the orders executed again from which on clusters are found beside the withdrawals.
const FORESEE: f64 = 0.01;

/// What the last blocks were like.
#[derive(Clone, Debug, Default)]
pub struct Forecast {
    /// By engine, as in [`CHOICES`]: seconds an order.
    cost: [f64; CHOICES.len()],
    /// How often each was tried.
    tried: [u64; CHOICES.len()],
    /// Seconds since each was tried.
    since: [f64; CHOICES.len()],
    /// Part of the orders executed again.
    rerun: f64,
}

impl Forecast {
    /// The engine for a block of so many orders, and whether it should find clusters beforehand.
    pub(super) fn choose(&self, orders: usize, workers: usize) -> (LedgerEngine, bool) {
        if workers == 1 || orders < SMALL {
            return (LedgerEngine::Sequential, false);
        }
        let unknown = self.worth_a_thought().find(|choice| self.tried[*choice] < FIRST);
        let choice = unknown.unwrap_or_else(|| self.due(orders).unwrap_or_else(|| self.cheapest()));
        (CHOICES[choice], self.foresees())
    }

    /// Whether clusters should be found beside the withdrawals.
    pub(super) fn foresees(&self) -> bool {
        self.rerun > FORESEE
    }

    /// Places of the engines that could be the cheapest.
    fn worth_a_thought(&self) -> impl Iterator<Item = usize> {
        let foresees = self.foresees();
        (0..CHOICES.len()).filter(move |choice| foresees || CHOICES[*choice] != LedgerEngine::Dag)
    }

    fn cheapest(&self) -> usize {
        let by_cost = |a: &usize, b: &usize| self.cost[*a].total_cmp(&self.cost[*b]);
        self.worth_a_thought().min_by(by_cost).unwrap_or(0)
    }

    /// An engine whose trial costs little beside the time since its last.
    fn due(&self, orders: usize) -> Option<usize> {
        let best = self.cost[self.cheapest()];
        self.worth_a_thought().find(|choice| {
            let price = (self.cost[*choice] - best) * orders as f64;
            price > 0.0 && price < TRIALS / CHOICES.len() as f64 * self.since[*choice]
        })
    }

    /// A block was executed.
    pub(super) fn learn(
        &mut self,
        engine: LedgerEngine,
        orders: usize,
        rerun: usize,
        took: Duration,
    ) {
        if orders < SMALL {
            return;
        }
        let seconds = took.as_secs_f64();
        self.since.iter_mut().for_each(|since| *since += seconds);
        if engine == LedgerEngine::Orangutan {
            self.rerun += NEW * (rerun as f64 / orders as f64 - self.rerun);
        }
        if let Some(choice) = CHOICES.iter().position(|choice| *choice == engine) {
            let new = seconds / orders as f64;
            self.since[choice] = 0.0;
            let old = self.cost[choice];
            self.cost[choice] = match self.tried[choice] {
                0 => new,
                times if times < FIRST => old.min(new),
                _ => old + NEW * (new - old),
            };
            self.tried[choice] += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks of an engine that takes so many nanoseconds an order, by the engine.
    fn blocks(
        forecast: &mut Forecast,
        count: usize,
        ns: impl Fn(LedgerEngine) -> u64,
    ) -> Vec<LedgerEngine> {
        let block = |_| {
            let (engine, _) = forecast.choose(1000, 2);
            forecast.learn(engine, 1000, 0, Duration::from_nanos(1000 * ns(engine)));
            engine
        };
        (0..count).map(block).collect()
    }

    #[test]
    fn the_cheapest_is_taken_and_a_change_is_noticed() {
        let mut forecast = Forecast::default();
        let cost = |engine| if engine == LedgerEngine::Sequential { 60 } else { 40 };
        let first = blocks(&mut forecast, 200, cost);
        let slow = first.iter().filter(|engine| **engine == LedgerEngine::Sequential).count();
        assert!(slow < 10, "{slow} of 200");
        let cost = |engine| if engine == LedgerEngine::Sequential { 60 } else { 400 };
        let then = blocks(&mut forecast, 200, cost);
        let good = then.iter().filter(|engine| **engine == LedgerEngine::Sequential).count();
        assert!(good > 180, "{good} of 200");
    }

    #[test]
    fn a_cold_first_block_does_not_decide() {
        let mut forecast = Forecast::default();
        let cold = std::cell::Cell::new(true);
        let cost = |engine| match engine {
            LedgerEngine::Sequential if cold.replace(false) => 900,
            LedgerEngine::Sequential => 60,
            _ => 80,
        };
        let found = blocks(&mut forecast, 100, cost);
        let good = found.iter().filter(|engine| **engine == LedgerEngine::Sequential).count();
        assert!(good > 90, "{good} of 100");
    }
}
