//! `orangutan-skew`: what is left of OranguTAN where accounts run dry (Miller, figures 4.7 and 4.8).

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::error::Error;
use crate::reproduce::ledgers::{Held, LARGEST_SUM, Load, workers};
use crate::reproduce::measure::Samples;
use std::time::Instant;
use terrace_transact::ledger::{BankOptions, LedgerEngine, Profile, Status, Sum};

pub(super) const ROW: Row = Row {
    id: "orangutan-skew",
    source: "Miller, figures 4.7 and 4.8",
    runs_on: "native; gpu: not built",
    must_show: "the fallback begins near theta 0.4; Dag overtakes in throughput between 0.4 and 0.6; auto is never \
                more than 5 % behind sequential",
    run,
};

/// The paper's number of accounts, and a smaller one.
const ACCOUNTS: [u64; 2] = [1_000_000, 250_000];
/// Ten sums of middling size. The paper does not say what its accounts open with.
const BALANCE: i64 = 10 * LARGEST_SUM as i64 / 2;
const ORDERS: usize = 1_000;
const BLOCKS: usize = 100;
const THETAS: [f64; 7] = [0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.99];
const ENGINES: [LedgerEngine; 4] =
    [LedgerEngine::Orangutan, LedgerEngine::Dag, LedgerEngine::Sequential, LedgerEngine::Auto];
/// Their places in it.
const ORANGUTAN: usize = 0;
const DAG: usize = 1;
const SEQUENTIAL: usize = 2;
const AUTO: usize = 3;

/// What came of one skew.
struct SkewResult {
    theta: f64,
    /// Million transactions a second, by engine.
    million_s: [f64; ENGINES.len()],
    /// Part of the transactions that was not carried out whole.
    aborted: f64,
    /// Part that OranguTAN executed twice.
    again: f64,
    /// Engines that came to the hash of sequential execution.
    agree: usize,
}

fn run(run: &Run<'_>) -> Result<Outcome> {
    let rounds = run.size(20, 4);
    let accounts = run.size(ACCOUNTS[0], ACCOUNTS[1]);
    let mut all = Vec::new();
    for theta in THETAS {
        (run.tell)(&format!("theta {theta}"));
        all.push(measure(theta, accounts, rounds).map_err(Error::system("open a bank"))?);
    }
    let mut outcome = judge(&all, rounds);
    outcome.size("accounts", accounts);
    Ok(outcome)
}

/// Every engine has the same blocks for accounts of its own, which run dry as all others' do.
fn measure(theta: f64, accounts: u64, rounds: usize) -> std::io::Result<SkewResult> {
    let profile = Profile::SmallCoinPlus;
    let load = Load { profile, accounts, orders: ORDERS, blocks: BLOCKS, theta };
    let mut found = SkewResult { theta, million_s: [0.0; 4], aborted: 0.0, again: 0.0, agree: 0 };
    let mut samples: [Samples; ENGINES.len()] = Default::default();
    for round in 0..rounds {
        let blocks = load.blocks(1 + round as u64);
        let mut hashes = [Sum::default(); ENGINES.len()];
        for (at, engine) in ENGINES.into_iter().enumerate() {
            let options = BankOptions { profile, engine, workers: workers(), overdraft: 0 };
            let mut held = Held::new(accounts, BALANCE, options, |memory| memory)?;
            let copies = blocks.clone();
            let (mut aborted, mut again) = (0, 0);
            let start = Instant::now();
            for block in copies {
                let executed = held.bank.execute(block).expect("invariant: accounts that there are");
                aborted += executed.statuses.iter().filter(|s| **s != Status::Done).count();
                again += executed.rerun;
            }
            let orders = (ORDERS * BLOCKS) as f64;
            samples[at].push(orders / start.elapsed().as_secs_f64() / 1e6);
            hashes[at] = held.bank.hash();
            if at == ORANGUTAN {
                found.again += again as f64 / orders / rounds as f64;
                found.aborted += aborted as f64 / orders / rounds as f64;
            }
        }
        found.agree += hashes.iter().filter(|hash| **hash == hashes[SEQUENTIAL]).count();
    }
    found.million_s = samples.map(|samples| samples.median());
    Ok(found)
}

fn judge(all: &[SkewResult], rounds: usize) -> Outcome {
    let mut outcome = Outcome::default();
    let first = |which: &dyn Fn(&SkewResult) -> bool| {
        all.iter().find(|found| which(found)).map_or(f64::NAN, |found| found.theta)
    };
    let begins = first(&|found| found.again > 0.0);
    let what = "theta from which on transactions are executed again";
    outcome.checks.push(Check::within(what, "0.4", begins, 0.2, 0.6).order());
    let overtakes = first(&|found| found.million_s[DAG] > found.million_s[ORANGUTAN]);
    let what = "theta from which on dag is ahead of orangutan";
    outcome.checks.push(Check::within(what, "between 0.4 and 0.6", overtakes, 0.4, 0.6).order());
    let aborted = all.iter().find(|found| found.theta == 0.9).map_or(f64::NAN, |found| found.aborted);
    let what = "part of the transactions that aborts at theta 0.9";
    outcome.checks.push(Check::within(what, "0.27", aborted, 0.13, 0.4));
    let auto = all.iter().map(|found| found.million_s[AUTO] / found.million_s[SEQUENTIAL]);
    let least = auto.fold(f64::INFINITY, f64::min);
    let what = "auto over sequential, the least of all thetas";
    outcome.checks.push(Check::at_least(what, "none told", least, 0.95));
    let agree: usize = all.iter().map(|found| found.agree).sum();
    let what = "ends of engines that are sequential's, of all";
    let ends = (all.len() * rounds * ENGINES.len()) as f64;
    outcome.checks.push(Check::within(what, "1", agree as f64 / ends, 1.0, 1.0).order());
    outcome.size("balance", BALANCE);
    outcome.size("sums, from 1 to", LARGEST_SUM);
    outcome.size("blocks", format!("{BLOCKS} of {ORDERS}"));
    outcome.size("rounds", rounds);
    outcome.size("workers", workers());
    outcome.note = note(all);
    figures(all, &mut outcome);
    outcome
}

fn note(all: &[SkewResult]) -> String {
    let parts: Vec<String> = all
        .iter()
        .map(|found| format!("{} {:.2} % / {:.2} %", found.theta, 100.0 * found.aborted, 100.0 * found.again))
        .collect();
    format!(
        "SmallCoin+, senders and receivers by two Zipf distributions with other favourites, so that popular \
         senders run dry. The paper does not say what accounts open with: here each has ten sums of middling \
         size, so that one sum never empties it and a popular one is empty before 100 blocks are over; where the \
         fallback begins, and how many abort, follows from that. Theta, \
         aborted, executed again: {}. Accounts are opened anew for every measurement; wall clock, medians of the \
         rounds; a program beside it holds up all who meet at a barrier. Suspected \
         where dag does not overtake: the paper's Dag has its matrix from a GPU while processors execute, and its \
         fallback deposits first and then undoes whole clusters, deposits too; ours finds clusters in linear time \
         and undoes withdrawals alone.",
        parts.join(", ")
    )
}

fn figures(all: &[SkewResult], outcome: &mut Outcome) {
    let thetas = || all.iter().map(|found| found.theta);
    let title = "Million SmallCoin+ transactions a second by skew";
    let figure = Figure::new(title, "theta", "million a second", FigureKind::Lines).over(thetas());
    outcome.figures.push(ENGINES.iter().enumerate().fold(figure, |figure, (at, engine)| {
        figure.with(engine.name(), all.iter().map(|found| found.million_s[at]))
    }));
    let title = "Transactions that are not carried out, and executed again";
    let figure = Figure::new(title, "theta", "%", FigureKind::Lines).over(thetas());
    let figure = figure.with("aborted", all.iter().map(|found| 100.0 * found.aborted));
    outcome.figures.push(figure.with("executed again", all.iter().map(|found| 100.0 * found.again)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_dag_overtakes_is_found_and_its_absence_a_miss() {
        let judged = |dag: f64, auto: f64| {
            let at = |theta: f64| {
                let late = if theta >= 0.4 { 0.1 } else { 0.0 };
                let million_s = [10.0, if theta >= 0.6 { dag } else { 1.0 }, 4.0, auto];
                SkewResult { theta, million_s, aborted: late * 2.0, again: late, agree: ENGINES.len() }
            };
            judge(&THETAS.map(at), 1).checks.iter().map(|check| check.pass).collect::<Vec<_>>()
        };
        assert_eq!(judged(11.0, 4.0), [true; 5]);
        assert_eq!(judged(9.0, 3.7), [true, false, true, false, true]);
    }
}
