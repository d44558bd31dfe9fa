//! `tier-policy`: which items of logs that have left memory have a copy there.
//!
//! The product's own copies ([`ItemCache`]) beside what others keep by, on the same traces, with room for as many
//! items. Each rival is tuned: every setting of a printed grid runs, and the best of a trace counts there. The static
//! set is what was asked for most in the first quarter of a trace, as whoever places by a profile has it; so everything
//! is counted over the other three quarters. The clairvoyant bound is printed and not judged.

mod rivals;
mod traces;

use self::rivals::{Clairvoyant, Clock, Lru, Moves, Policy, Ranked, S3Fifo, Sieve, Static, TinyLfu};
use self::traces::Trace;
use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use std::sync::Arc;
use terrace_durable::logs::ItemCache;
use terrace_memory::Budget;

pub(super) const ROW: Row = Row {
    id: "tier-policy",
    source: "S3-FIFO, SOSP 2023; ARMS, 2025",
    runs_on: "native",
    must_show: "hits on each of six traces >= 95 % of the best tuned rival's; their mean ahead of each rival's best \
                setting; the clairvoyant bound and the moves in vain printed",
    run,
};

/// Of a hundred items so many have room.
const ROOM: usize = 17;
const ITEM_BYTES: usize = 4000;

/// One policy on one trace.
struct Found {
    hits: f64,
    moves: Moves,
    asked: usize,
}

fn run(run: &Run<'_>) -> Result<Outcome> {
    let keys = run.size(200_000, 50_000);
    let room = keys * ROOM / 100;
    let traces = traces::all(keys, 20 * keys);
    let mut outcome = Outcome::default();
    outcome.size("items", format!("{keys} of {ITEM_BYTES} B, room for {room} of them"));
    outcome.size("requests of a trace", format!("{}, of which the last three quarters count", 20 * keys));

    let found: Vec<Vec<(&str, String, Found)>> = traces
        .iter()
        .map(|trace| {
            (run.tell)(trace.name);
            let play = |(who, setting, policy)| (who, setting, play(trace, policy));
            policies(trace, room).into_iter().map(play).collect()
        })
        .collect();
    judge(&traces, &found, &mut outcome);
    Ok(outcome)
}

const OURS: &str = "ours";
const BOUND: &str = "clairvoyant";

/// All policies, with what each is set to.
fn policies(trace: &Trace, room: usize) -> Vec<(&'static str, String, Box<dyn Policy>)> {
    let items = trace.items;
    let mut all: Vec<(&str, String, Box<dyn Policy>)> = vec![
        (OURS, String::new(), Box::new(Ours::new(room))),
        ("LRU", String::new(), Box::new(Lru::new(items, room))),
        ("SIEVE", String::new(), Box::new(Sieve::new(items, room))),
        ("static set", String::new(), Box::new(Static::new(trace, room, trace.asked.len() / 4))),
        (BOUND, String::new(), Box::new(Clairvoyant::new(trace, room))),
    ];
    for most in [1, 3, 7] {
        all.push(("CLOCK", format!("counts up to {most}"), Box::new(Clock::new(items, room, most))));
    }
    for share in [5, 10, 20] {
        all.push(("S3-FIFO", format!("short queue {share} %"), Box::new(S3Fifo::new(items, room, share))));
    }
    for share in [1, 10, 20, 40] {
        all.push(("W-TinyLFU", format!("window {share} %"), Box::new(TinyLfu::new(items, room, share))));
    }
    for turns in [1, 5, 20] {
        let period = trace.asked.len() / 20 / turns;
        all.push(("ranked by averages", format!("each {period} requests"), Box::new(Ranked::new(items, room, period))));
    }
    all
}

/// The copies of the product.
struct Ours {
    cache: ItemCache,
    item: [u8; ITEM_BYTES],
    made: u64,
}

impl Ours {
    fn new(room: usize) -> Ours {
        let budget = Arc::new(Budget::new(u64::MAX / 2));
        let most = room as u64 * ItemCache::copy_bytes(ITEM_BYTES);
        Ours { cache: ItemCache::new(&budget, most, ITEM_BYTES as u64), item: [7; ITEM_BYTES], made: 0 }
    }
}

impl Policy for Ours {
    fn ask(&mut self, item: u32) -> bool {
        let was_there = self.cache.ask((u64::from(item) + 1) * 4096, 1, &self.item);
        self.made += u64::from(!was_there);
        was_there
    }

    fn moves(&self) -> Moves {
        Moves { made: self.made, in_vain: self.cache.unused() }
    }
}

fn play(trace: &Trace, mut policy: Box<dyn Policy>) -> Found {
    let (first, counted) = trace.asked.split_at(trace.asked.len() / 4);
    first.iter().for_each(|item| _ = policy.ask(*item));
    let before = policy.moves();
    let hits = counted.iter().filter(|item| policy.ask(**item)).count();
    let after = policy.moves();
    Found {
        hits: hits as f64 / counted.len() as f64,
        moves: Moves { made: after.made - before.made, in_vain: after.in_vain - before.in_vain },
        asked: counted.len(),
    }
}

fn judge(traces: &[Trace], found: &[Vec<(&str, String, Found)>], outcome: &mut Outcome) {
    let mut rivals: Vec<&str> = Vec::new();
    for (who, ..) in &found[0] {
        if *who != OURS && *who != BOUND && !rivals.contains(who) {
            rivals.push(who);
        }
    }
    let best_on = |trace: usize, rival: &str| {
        let of = found[trace].iter().filter(|(who, ..)| *who == rival);
        of.map(|(.., found)| found.hits).fold(0.0, f64::max)
    };
    for (number, trace) in traces.iter().enumerate() {
        let best = rivals.iter().map(|rival| best_on(number, rival)).fold(0.0, f64::max);
        let what = format!("hits over the best tuned rival's: {}", trace.name);
        outcome.checks.push(Check::at_least(what, "within 5 %", best_on(number, OURS) / best, 0.95));
    }
    // The mean over all traces of one setting.
    let mean = |setting: usize| found.iter().map(|of| of[setting].2.hits).sum::<f64>() / found.len() as f64;
    let best_mean = |rival: &str| {
        let settings = (0..found[0].len()).filter(|setting| found[0][*setting].0 == rival);
        settings.map(mean).fold(0.0, f64::max)
    };
    let ours = best_mean(OURS);
    for rival in &rivals {
        let what = format!("mean of hits over all traces, over {rival} in its best setting");
        outcome.checks.push(Check::at_least(what, "ahead", ours / best_mean(rival), 1.0).order());
    }
    let figure = Figure::new("Hits, each rival in its best setting for the trace", "trace", "hits", FigureKind::Bars)
        .over(traces.iter().map(|trace| trace.name.to_string()));
    let with = |figure: Figure, who: &str| figure.with(who, (0..traces.len()).map(|n| best_on(n, who)));
    let shown = [&[OURS], &rivals[..], &[BOUND]].concat();
    outcome.figures.push(shown.iter().fold(figure, |figure, who| with(figure, who)));
    outcome.note = told(traces, found);
}

/// Every setting: its hits on each trace, and the copies it made and those in vain, of a hundred requests.
fn told(traces: &[Trace], found: &[Vec<(&str, String, Found)>]) -> String {
    let names: Vec<&str> = traces.iter().map(|trace| trace.name).collect();
    let mut lines = vec![format!(
        "Hits in % of requests on {}; in brackets the copies made and those in vain, per 100 requests of all traces.",
        names.join(", ")
    )];
    for (number, (who, setting, _)) in found[0].iter().enumerate() {
        let of = || found.iter().map(|of| &of[number].2);
        let hits: Vec<String> = of().map(|found| format!("{:.1}", 100.0 * found.hits)).collect();
        let asked = of().map(|found| found.asked).sum::<usize>() as f64 / 100.0;
        let (made, in_vain) = of().fold((0, 0), |(a, b), found| (a + found.moves.made, b + found.moves.in_vain));
        let setting = if setting.is_empty() { String::new() } else { format!(", {setting}") };
        let moves = match *who == BOUND {
            true => String::new(),
            false => format!(" ({:.1}, {:.1})", made as f64 / asked, in_vain as f64 / asked),
        };
        lines.push(format!("{who}{setting}: {}{moves}.", hits.join(" ")));
    }
    lines.join(" ")
}
