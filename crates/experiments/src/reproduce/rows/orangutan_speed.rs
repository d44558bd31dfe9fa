//! `orangutan-speed`: blocks of transfers by every engine, in one run (Miller, figures 4.3 to 4.6).

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::error::Error;
use crate::reproduce::ledgers::{Held, Load, workers};
use crate::reproduce::measure::Samples;
use terrace_machine::Counted;
use terrace_transact::ledger::{BankOptions, LedgerEngine, Profile};

pub(super) const ROW: Row = Row {
    id: "orangutan-speed",
    source: "Miller, figures 4.3 to 4.6",
    runs_on: "native",
    must_show: "OranguTAN >= 8 M SmallCoin transactions a second with two workers, ahead of sequential, Dag, \
                reservations, Block-STM and Strife by about as much as there; 2 atomic operations a transfer against 3",
    run,
};

const ACCOUNTS: u64 = 1_000_000;
/// More than any account can lose here.
const BALANCE: i64 = 1 << 32;
const ORDERS: [usize; 2] = [1_000, 10_000];
/// Orders of a measurement: the paper's 100 blocks of 1,000.
const MEASURED: usize = 100_000;
/// Cores of the paper's server; ours that it compares with run on all of them.
const PAPER_CORES: f64 = 30.0;
/// Orders whose atomic operations are counted.
const COUNTED: usize = 1_000;
/// An engine that has taken so long for a setting has had its rounds.
const SECONDS: f64 = 1.5;

/// The measured settings, by columns of a figure.
const SETTINGS: [(Profile, usize); 3] = [
    (Profile::SmallCoin, ORDERS[0]),
    (Profile::SmallCoinPlus, ORDERS[0]),
    (Profile::SmallCoin, ORDERS[1]),
];

/// Million transactions a second of an engine, by setting.
type EngineSpeed = (LedgerEngine, [f64; SETTINGS.len()]);

/// A factor of the paper: in its words, and as a number if it tells one.
type Told = (&'static str, Option<f64>);

/// Rivals that the paper says how much faster OranguTAN is than, on SmallCoin and on SmallCoin+.
const RIVALS: [(LedgerEngine, [Told; 2]); 5] = [
    (LedgerEngine::Sequential, [("3.9", Some(3.9)), ("none told", None)]),
    (LedgerEngine::Dag, [("2.6 (Dag with a GPU)", Some(2.6)), ("2.2 with a GPU, 12.4 without", Some(2.2))]),
    (LedgerEngine::Reserve, [("2.4", Some(2.4)), ("2.0", Some(2.0))]),
    (LedgerEngine::BlockStm, [("86.4", Some(86.4)), ("17", Some(17.0))]),
    (LedgerEngine::Strife, [("33.9", Some(33.9)), ("26.5", Some(26.5))]),
];

/// Million transactions a second that the paper tells, on SmallCoin.
const PUBLISHED: [(LedgerEngine, f64); 4] = [
    (LedgerEngine::Orangutan, 39.9),
    (LedgerEngine::DagByPairs, 2.5),
    (LedgerEngine::BlockStm, 0.462),
    (LedgerEngine::Strife, 1.178),
];

fn run(run: &Run<'_>) -> Result<Outcome> {
    let rounds = run.size(400, 80);
    let engines = LedgerEngine::ALL.into_iter().filter(|engine| *engine != LedgerEngine::Auto);
    let mut found: Vec<EngineSpeed> = engines.map(|engine| (engine, [f64::NAN; SETTINGS.len()])).collect();
    for (setting, (profile, orders)) in SETTINGS.into_iter().enumerate() {
        (run.tell)(&format!("{profile}, blocks of {orders}"));
        measure(&mut found, setting, rounds).map_err(Error::system("open a bank"))?;
    }
    let counted = [LedgerEngine::Orangutan, LedgerEngine::Reserve].map(operations);
    let [two, three] = counted.map(|counted| counted.map_err(Error::system("open a bank")));
    Ok(judge(&found, [two?, three?], rounds))
}

/// Engines take turns, so that what else the machine does meets all of them; of each the median round counts.
fn measure(found: &mut [EngineSpeed], setting: usize, rounds: usize) -> std::io::Result<()> {
    let (profile, orders) = SETTINGS[setting];
    let options = BankOptions { profile, workers: workers(), ..BankOptions::default() };
    let mut held = Held::new(ACCOUNTS, BALANCE, options, |memory| memory)?;
    let blocks = MEASURED / orders;
    let blocks = Load { profile, accounts: ACCOUNTS, orders, blocks, theta: 0.0 }.blocks(1);
    let mut spent = vec![0.0; found.len()];
    let mut samples = vec![Samples::default(); found.len()];
    for _ in 0..rounds {
        for (at, (engine, _)) in found.iter().enumerate() {
            if spent[at] < SECONDS {
                let million_s = held.throughput(*engine, &blocks) / 1e6;
                spent[at] += MEASURED as f64 / million_s / 1e6;
                samples[at].push(million_s);
            }
        }
    }
    for ((_, by_setting), samples) in found.iter_mut().zip(samples) {
        by_setting[setting] = samples.median();
    }
    Ok(())
}

/// Atomic operations a transfer of a block in which everyone has enough. One worker, so that none is tried twice.
fn operations(engine: LedgerEngine) -> std::io::Result<f64> {
    let options = BankOptions { engine, workers: 1, ..BankOptions::default() };
    let mut memory = None;
    let accounts = 4 * COUNTED as u64;
    let mut held = Held::new(accounts, BALANCE, options, |native| {
        memory.insert(Counted::new(native)).clone()
    })?;
    let counted = memory.expect("it was wrapped");
    let load = Load { profile: options.profile, accounts, orders: COUNTED, blocks: 1, theta: 0.0 };
    let atomic = || {
        let counts = counted.totals();
        counts.compare_exchanges + counts.additions
    };
    let before = atomic();
    held.execute(&load.blocks(2)[0]);
    Ok((atomic() - before) as f64 / COUNTED as f64)
}

fn judge(found: &[EngineSpeed], counted: [f64; 2], rounds: usize) -> Outcome {
    let mut outcome = Outcome::default();
    let of = |engine: LedgerEngine, setting: usize| {
        let found = found.iter().find(|(known, _)| *known == engine);
        found.map_or(f64::NAN, |(_, by_setting)| by_setting[setting])
    };
    let ours = |setting| of(LedgerEngine::Orangutan, setting);
    let what = "orangutan, SmallCoin, million transactions a second";
    outcome.checks.push(Check::at_least(what, "39.9 on 30 cores", ours(0), 8.0));
    for (rival, said) in RIVALS {
        for (setting, (said, factor)) in said.into_iter().enumerate() {
            let what = format!("orangutan over {rival}, {}", SETTINGS[setting].0);
            let ratio = ours(setting) / of(rival, setting);
            match factor {
                Some(factor) => {
                    let check = Check::about_all(what, said, [factor; 2], ratio);
                    outcome.checks.extend(check.and_order());
                }
                None => outcome.checks.push(Check::at_least(what, said, ratio, 1.0).order()),
            }
        }
    }
    let what = "a second in blocks of 10,000, of that in blocks of 1,000";
    outcome.checks.push(Check::at_least(what, "none told", ours(2) / ours(0), 1.0).order());
    for ((engine, said), counted) in [("orangutan", 2.0), ("reserve", 3.0)].into_iter().zip(counted) {
        let what = format!("atomic operations a transfer, {engine}");
        outcome.checks.push(Check::within(what, &said.to_string(), counted, said, said).order());
    }
    outcome.size("accounts", ACCOUNTS);
    outcome.size("orders of a measurement", MEASURED);
    outcome.size("rounds, at most", rounds);
    outcome.size("workers", workers());
    outcome.note = note(&of);
    let columns = SETTINGS.map(|(profile, orders)| format!("{profile}, {orders}"));
    let title = "Million transactions a second, uniform, 1 M accounts";
    let figure = Figure::new(title, "profile, orders of a block", "million a second", FigureKind::Bars);
    outcome.figures.push(found.iter().fold(figure.over(columns), |figure, (engine, values)| {
        figure.with(engine.name(), values.iter().copied())
    }));
    outcome
}

fn note(of: &dyn Fn(LedgerEngine, usize) -> f64) -> String {
    let by_core = |(engine, said): (LedgerEngine, f64)| {
        let here = of(engine, 0) / workers() as f64;
        format!("{engine} {here:.2} (published {:.3})", said / PAPER_CORES)
    };
    let all: Vec<String> = PUBLISHED.into_iter().map(by_core).collect();
    format!(
        "Wall clock from the call for the first block to the end of the last, blocks one after another, made and \
         copied before; engines take turns, medians of their rounds: on a machine shared with \
         others a program that takes one processor holds up all who meet at a barrier. Every engine finds accounts \
         in the same table and keeps the same hash of the state, which the paper's do not. dag is ours, by the \
         accounts; dag-pairs compares all pairs as published. Million SmallCoin transactions a second and core: {}. \
         Where a rival does more on a core than the published one did, a ratio to it says less of OranguTAN than \
         of the rival.",
        all.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::CheckKind;

    #[test]
    fn a_rival_that_is_nearly_as_fast_is_out_of_band_and_one_that_is_faster_a_miss() {
        let failed = |lead: fn(f64) -> f64| {
            let of = |engine| {
                let told = RIVALS.iter().find(|(rival, _)| *rival == engine).map(|(_, told)| told);
                let rate = |at: usize| told.map_or(20.0, |told| 20.0 / lead(told[at].1.unwrap_or(2.0)));
                [rate(0), rate(1), 20.0]
            };
            let found = LedgerEngine::ALL.map(|engine| (engine, of(engine)));
            let checks = judge(&found, [2.0, 3.0], 1).checks;
            let failed = |kind| checks.iter().filter(|check| check.kind == kind && !check.pass).count();
            [CheckKind::Order, CheckKind::Size].map(failed)
        };
        assert_eq!(failed(|told| told), [0, 0]);
        assert_eq!(failed(|_| 1.1), [0, 9]);
        assert_eq!(failed(|_| 0.9), [10, 9]);
        let unknown = judge(&[], [3.0, 2.0], 1).checks;
        assert!(unknown.iter().all(|check| !check.pass));
    }

    #[test]
    fn atomic_operations_are_counted() {
        assert_eq!(operations(LedgerEngine::Orangutan).expect("a bank"), 2.0);
        assert_eq!(operations(LedgerEngine::Reserve).expect("a bank"), 3.0);
        assert_eq!(operations(LedgerEngine::Sequential).expect("a bank"), 0.0);
    }
}
