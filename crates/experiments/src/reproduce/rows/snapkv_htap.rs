//! `snapkv-htap`: transactions and an analyst's questions on the same rows (Miller, figures 3.5 and 3.6).
//!
//! One thread does ch-benCHmark's transactions, another asks question 1 or 3 in between, each question in a transaction
//! of its own. *Fresh* is a question that sees each order that was told to be committed before it began: how many it
//! does not see is counted, by the districts' own counters, as the question has them. The control asks of a moment that
//! was taken some time before. What transactions lose to a thread beside them that reads as many bytes and asks nothing
//! is measured too: that much is the machine's.

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::error::Error;
use crate::reproduce::htap::{Ends, Shop, Within};
use crate::reproduce::measure::{Samples, process_ns};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use terrace_workload::Failure;
use terrace_workload::chbench::{Scale, groups_of_lines, orders_seen, revenues};

pub(super) const ROW: Row = Row {
    id: "snapkv-htap",
    source: "Miller, figures 3.5 and 3.6",
    runs_on: "native",
    must_show: "transactions and questions together: every question is fresh, transactions keep 70 % of their rate",
    run,
};

/// States of 676 whose customers question 3 asks of: 1.7 %, as in the paper.
const STATES: u32 = 12;
/// How old the control's moment is.
const OLD: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    Nothing,
    /// A thread that reads memory of its own.
    Reader,
    Question1,
    Question3,
}

const BESIDE: [Beside; 4] = [Beside::Nothing, Beside::Reader, Beside::Question1, Beside::Question3];
/// What that reader goes through: more than caches have, as the tables are.
const READ_BYTES: usize = 96 << 20;

/// Of one kind of questions beside transactions, in each round.
#[derive(Clone, Debug, Default)]
struct Counted {
    thousand_s: Samples,
    /// Processors that were busy: of transactions, too, more than one, where rows are collected.
    busy: Samples,
    questions_s: Samples,
    refused: u64,
    /// Orders that a question did not see, of those told before it began: the most.
    missing: u64,
}

fn run(run: &Run<'_>) -> Result<Outcome> {
    let scale = Scale::of(run.size(10, 1) as u32);
    let (time, rounds) = (Duration::from_millis(run.size(5_000, 700)), run.size(5, 3));
    (run.tell)("load the tables");
    let shop = Shop::open(scale)?;
    let before_us = shop.oldest_us()?;
    let mut counted = BESIDE.map(|_| Counted::default());
    let memory = vec![1u64; READ_BYTES / 8];
    for round in 0..rounds {
        // In turn: what disturbs one disturbs all.
        for (beside, counted) in BESIDE.into_iter().zip(&mut counted) {
            (run.tell)(&format!("round {}, beside {beside:?}", round + 1));
            together((&shop, &memory), beside, time, round, counted)?;
        }
    }
    (run.tell)("questions alone");
    let mut alone = Samples::default();
    for _ in 0..rounds {
        let until = Instant::now() + time;
        alone.push(shop.ask(until, |within| groups_of_lines(within).map(drop))?);
    }
    (run.tell)("the control");
    let (mut old, ended) = (0, AtomicBool::new(false));
    std::thread::scope(|scope| -> Result<()> {
        let client = scope.spawn(|| shop.serve(9_999, &ended));
        let ends = Ends(&ended);
        for _ in 0..10 {
            let mut within = shop.begin();
            // What it reads first is of its moment already.
            std::thread::sleep(OLD);
            old = old.max(missing(&shop, &mut within, shop.ordered.load(Ordering::SeqCst))?);
        }
        drop(ends);
        client.join().expect("invariant: clients return what is wrong").map(drop)
    })?;
    let mut outcome = judge(&counted, &alone, old, shop.wrong()?);
    outcome.note += &format!(
        " To find the oldest new order of a district took {before_us:.1} us at the beginning and {:.1} us at the end: \
         those that were delivered are skipped until their logs are collected, and so the rate falls from round to \
         round.",
        shop.oldest_us()?
    );
    outcome.size("warehouses", scale.warehouses);
    outcome.size("orders at the end", u64::from(scale.warehouses * 10 * scale.customers) + shop.ordered.load(Ordering::SeqCst));
    outcome.size("threads", "1 of transactions, 1 of questions");
    outcome.size("run", format!("{} ms", time.as_millis()));
    outcome.size("repetitions", rounds);
    Ok(outcome)
}

/// Orders told to be committed that a question does not see.
fn missing(shop: &Shop, within: &mut Within<'_>, told: u64) -> Result<u64> {
    let seen = orders_seen(within, shop.scale).map_err(Error::Workload)?;
    Ok(told.saturating_sub(seen))
}

fn together(
    (shop, memory): (&Shop, &[u64]),
    beside: Beside,
    time: Duration,
    round: u64,
    counted: &mut Counted,
) -> Result<()> {
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (start, processor) = (Instant::now(), process_ns());
        let client = scope.spawn(|| shop.serve(round, &ended));
        let ends = Ends(&ended);
        let asked = match beside {
            Beside::Nothing => {
                std::thread::sleep(time);
                Ok(0.0)
            }
            Beside::Reader => {
                let mut sum = 0;
                while start.elapsed() < time {
                    sum += std::hint::black_box(memory).iter().sum::<u64>();
                }
                std::hint::black_box(sum);
                Ok(0.0)
            }
            _ => questions(shop, beside, start + time, &mut counted.missing),
        };
        let seconds = start.elapsed().as_secs_f64();
        drop(ends);
        let (done, refused) = client.join().expect("invariant: clients return what is wrong")?;
        counted.thousand_s.push(done as f64 / seconds / 1e3);
        counted.busy.push((process_ns() - processor) as f64 / 1e9 / seconds);
        counted.questions_s.push(asked?);
        counted.refused += refused;
        Ok(())
    })
}

fn questions(shop: &Shop, beside: Beside, until: Instant, most: &mut u64) -> Result<f64> {
    let (start, mut asked) = (Instant::now(), 0u32);
    while Instant::now() < until {
        let told = shop.ordered.load(Ordering::SeqCst);
        let mut within = shop.begin();
        let answered: std::result::Result<usize, Failure> = match beside {
            Beside::Question3 => revenues(&mut within, shop.scale, STATES).map(|found| found.len()),
            _ => groups_of_lines(&mut within).map(|groups| groups.len()),
        };
        answered.map_err(Error::Workload)?;
        *most = (*most).max(missing(shop, &mut within, told)?);
        asked += 1;
    }
    Ok(f64::from(asked) / start.elapsed().as_secs_f64())
}

fn judge(counted: &[Counted; 4], alone: &Samples, old: u64, wrong: u64) -> Outcome {
    let [nothing, reader, first, third] = counted;
    let kept = |beside: &Counted| beside.thousand_s.median() / nothing.thousand_s.median();
    let missing = first.missing.max(third.missing);
    let mut outcome = Outcome::default();
    outcome.checks.extend([
        Check::at_most("orders told before a question began that it did not see", "0 ms", missing as f64, 0.0).order(),
        Check::at_least("control: the same of a moment 20 ms before, orders", "none told", old as f64, 1.0).order(),
        Check::at_least("transactions beside question 1 over those alone", "none told", kept(first), 0.7),
        Check::at_least("transactions beside question 3 over those alone", "none told", kept(third), 0.7),
        Check::at_most("rows that do not agree with each other", "0", wrong as f64, 0.0).order(),
    ]);
    outcome.note = format!(
        "Transactions alone: {:.1} thousand a second (spread {:.0} %) on {:.2} processors; beside question 1 {:.1} with {:.1} questions a \
         second ({:.1} alone), beside question 3 {:.1} with {:.1}; beside a thread that only reads memory of its own \
         {:.1}. The paper's machine does 292 thousand transactions \
         and 26.9 questions a second, on more cores than are told; figures of two machines are not judged. There is \
         no epoch: a question's moment is the counter that commits advance, so it is fresh by construction, and the \
         count shows that it is. {} transactions were refused and done again.",
        nothing.thousand_s.median(),
        100.0 * nothing.thousand_s.spread(),
        nothing.busy.median(),
        first.thousand_s.median(),
        first.questions_s.median(),
        alone.median(),
        third.thousand_s.median(),
        third.questions_s.median(),
        reader.thousand_s.median(),
        counted.iter().map(|counted| counted.refused).sum::<u64>(),
    );
    let figure = Figure::new("Transactions beside questions", "", "thousand a second", FigureKind::Bars);
    let figure = figure.over(["nothing", "a reader of memory", "question 1", "question 3"]);
    let rates = counted.iter().map(|counted| counted.thousand_s.median());
    outcome.figures.push(figure.with("transactions", rates));
    outcome
}
