//! `list-throughput`: which list is ahead, by range, share of updates and domain (Gugnani, figure 11).

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::test_beds::{DRAM, PMEM, here, optane};
use crate::reproduce::lists::{List, Load, Nodes};
use crate::reproduce::measure::Samples;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use terrace_machine::test_bed::TestBed;
use terrace_machine::model::{Machine, Preset};
use terrace_memory::Domain;

pub(super) const ROW: Row = Row {
    id: "list-throughput",
    source: "Gugnani, figure 11",
    runs_on: "native + model optane-001",
    must_show: "orderings at ranges 256/1024/4096 and 0-50 % updates in ADR and eADR",
    run,
};

/// Threads of the paper: the cores of a socket (Gugnani, testbed: Xeon 8280L).
const THREADS: usize = 28;
/// What is beside it, at one range and share of updates: the paper has none of it.
const SWEEP: [usize; 7] = [1, 2, 4, 8, 14, THREADS, 48];
const SWEPT: (u64, u64) = (1024, 20);
const RANGES: [u64; 3] = [256, 1024, 4096];
const UPDATES: [u64; 7] = [0, 5, 10, 20, 30, 40, 50];
const DOMAINS: [Domain; 2] = [Domain::Adr, Domain::Eadr];
/// Nodes that a thread of a model walks over in a measurement, about.
const WALKED: u64 = 20_000;
/// Native: shares of updates, and times each is measured.
const NATIVE_UPDATES: [u64; 2] = [0, 50];
const NATIVE_TIMES: usize = 5;

/// Million operations a second, by domain, range, share of updates and list.
type Throughput = BTreeMap<(usize, u64, u64, List), f64>;
/// The same with [`SWEPT`], by domain, threads and list.
type Swept = BTreeMap<(usize, usize, List), f64>;
const ADR: usize = 0;
const EADR: usize = 1;

fn run(run: &Run<'_>) -> Result<Outcome> {
    let (preset, _) = optane(1)?;
    let (mut modelled, mut swept) = (Throughput::new(), Swept::new());
    for domain in [ADR, EADR] {
        for range in RANGES {
            (run.tell)(&format!("model, {}, range {range}", DOMAINS[domain]));
            let settings: Vec<(u64, List)> =
                lists(domain).flat_map(|list| UPDATES.map(|updates| (updates, list))).collect();
            let loads = settings.iter().map(|(u, list)| load(run, domain, *list, (range, *u), THREADS));
            let rates = on_model(&preset, &loads.collect::<Vec<_>>())?;
            let found = settings.iter().zip(rates);
            modelled.extend(found.map(|((u, list), rate)| ((domain, range, *u, *list), rate)));
        }
        (run.tell)(&format!("model, {}, 1 to 48 threads", DOMAINS[domain]));
        let settings: Vec<(usize, List)> =
            lists(domain).flat_map(|list| SWEEP.map(|threads| (threads, list))).collect();
        let loads = settings.iter().map(|(threads, list)| load(run, domain, *list, SWEPT, *threads));
        let rates = on_model(&preset, &loads.collect::<Vec<_>>())?;
        let found = settings.iter().zip(rates);
        swept.extend(found.map(|((threads, list), rate)| ((domain, *threads, *list), rate)));
    }
    (run.tell)("this machine");
    let mut outcome = judge(&modelled, &on_this_machine(run)?);
    judge_by_threads(&swept, &mut outcome);
    Ok(outcome)
}

fn lists(domain: usize) -> impl Iterator<Item = List> {
    List::ALL.into_iter().filter(move |list| list.exists_in(DOMAINS[domain]))
}

fn load(run: &Run<'_>, domain: usize, list: List, (range, updates): (u64, u64), threads: usize) -> Load {
    // A quarter of the range is walked by an operation.
    let operations = (run.size(10, 1) * WALKED / (range / 4)).max(16);
    Load { list, domain: DOMAINS[domain], range, updates, threads, operations: [operations / 4 + 2, operations] }
}

/// Million operations a second of each load, two at a time: a model runs on one processor.
fn on_model(preset: &Preset, loads: &[Load]) -> Result<Vec<f64>> {
    let next = AtomicUsize::new(0);
    let measure = || -> Result<Vec<(usize, f64)>> {
        let mut found = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(load) = loads.get(number) else { return Ok(found) };
            let nodes = Nodes { kept: PMEM, links: DRAM };
            let quietly = |machine: &Machine, f: &mut dyn FnMut()| machine.free_of_charge(f);
            found.push((number, load.run(preset, nodes, quietly)?));
        }
    };
    let (one, other) = std::thread::scope(|scope| {
        let one = scope.spawn(measure);
        (measure(), one.join().expect("invariant: a measurement does not panic"))
    });
    let mut found = one?;
    found.extend(other?);
    found.sort_by_key(|(number, _)| *number);
    Ok(found.into_iter().map(|(_, rate)| rate).collect())
}

/// ns of a thread for an operation here, range 1024, under ADR: by share of updates and list.
fn on_this_machine(run: &Run<'_>) -> Result<BTreeMap<(u64, List), f64>> {
    let (here, node) = here()?;
    let threads = here.most_threads().min(2);
    let operations = run.size(400_000, 40_000);
    let mut samples: BTreeMap<(u64, List), Samples> = BTreeMap::new();
    for _ in 0..NATIVE_TIMES {
        let lists = List::ALL.into_iter().filter(|list| list.exists_in(Domain::Adr));
        for (list, updates) in lists.flat_map(|list| NATIVE_UPDATES.map(|u| (list, u))) {
            let load = Load {
                list,
                domain: Domain::Adr,
                range: 1024,
                updates,
                threads,
                operations: [operations / 4, operations],
            };
            let nodes = Nodes { kept: &node, links: &node };
            let million_s = load.run(&here, nodes, |_, fill| fill())?;
            samples.entry((updates, list)).or_default().push(1e3 * threads as f64 / million_s);
        }
    }
    Ok(samples.into_iter().map(|(setting, samples)| (setting, samples.median())).collect())
}

/// An ordering that figure 11 shows: in so many of its shares of updates from `from` % on, or more.
struct Ordering11 {
    domain: usize,
    range: u64,
    ahead: List,
    behind: List,
    from: u64,
    shares: u64,
}

const fn order(domain: usize, range: u64, lists: [List; 2], from: u64, shares: u64) -> Ordering11 {
    Ordering11 { domain, range, ahead: lists[0], behind: lists[1], from, shares }
}

/// Read off the figure and its data. TLog is the published one there.
const ORDERINGS: [Ordering11; 15] = [
    order(ADR, 1024, [List::Published, List::LinkFree], 0, 7),
    order(ADR, 4096, [List::Published, List::LinkFree], 0, 7),
    order(ADR, 1024, [List::Published, List::Soft], 0, 5),
    order(ADR, 1024, [List::Soft, List::Published], 40, 2),
    order(ADR, 4096, [List::Published, List::Soft], 0, 7),
    order(ADR, 256, [List::Soft, List::Published], 5, 6),
    order(ADR, 256, [List::Soft, List::LinkFree], 5, 6),
    order(EADR, 1024, [List::Published, List::LinkFree], 0, 7),
    order(EADR, 4096, [List::Published, List::LinkFree], 0, 7),
    order(EADR, 1024, [List::Published, List::Soft], 0, 7),
    order(EADR, 4096, [List::Published, List::Soft], 0, 7),
    order(EADR, 1024, [List::LogFree, List::Published], 5, 6),
    order(EADR, 4096, [List::LogFree, List::Published], 5, 6),
    order(EADR, 256, [List::LogFree, List::Published], 5, 6),
    order(EADR, 256, [List::LinkFree, List::Published], 5, 6),
];

fn judge(found: &Throughput, native: &BTreeMap<(u64, List), f64>) -> Outcome {
    let mut outcome = Outcome::default();
    let at = |domain, range, updates, list| {
        found.get(&(domain, range, updates, list)).copied().unwrap_or(f64::NAN)
    };
    for Ordering11 { domain, range, ahead, behind, from, shares } in ORDERINGS {
        let is_ahead =
            |updates: &u64| at(domain, range, *updates, ahead) > at(domain, range, *updates, behind);
        let all: Vec<u64> = UPDATES.into_iter().filter(|updates| *updates >= from).collect();
        let held = all.iter().filter(|updates| is_ahead(updates)).count();
        let (ahead, behind, domain) = (ahead.name(), behind.name(), short(domain));
        let what = format!("shares of updates of {} with {ahead} before {behind}", all.len());
        let what = format!("{what}, {domain}, range {range}, from {from} %, model");
        outcome.checks.push(Check::at_least(what, &shares.to_string(), held as f64, shares as f64).order());
    }
    let gain = at(EADR, 256, 20, List::LogFree) / at(EADR, 256, 20, List::Published);
    let what = "Log-free over TLog as published, eADR, range 256, 20 % updates, model";
    outcome.checks.extend(Check::about(what, 1.31, gain).and_order());
    let walked = at(ADR, 4096, 0, List::Published);
    let what = "million lookups a second, TLog as published, range 4096, model";
    outcome.checks.push(Check::within(what, "5.29", walked, 3.5, 7.9));
    let corrected = found.iter().filter(|((.., list), _)| *list == List::TLog).map(
        |((domain, range, updates, _), value)| value / at(*domain, *range, *updates, List::Published),
    );
    let least = corrected.fold(f64::INFINITY, f64::min);
    let what = "TLog corrected over as published, the least of all settings, model";
    outcome.checks.push(Check::at_least(what, "none told", least, 0.75));
    let ns = |updates, list| native.get(&(updates, list)).copied().unwrap_or(f64::NAN);
    let what = "ns a lookup of TLog over one of SOFT, range 1024, this machine";
    let lookups = ns(0, List::TLog) / ns(0, List::Soft);
    outcome.checks.extend(Check::about(what, 0.6, lookups).and_order());
    outcome.size("threads of the model", format!("{THREADS}, as the paper; and {SWEEP:?}"));
    outcome.size("threads here", "1 or 2");
    outcome.note = note(found, native);
    figures(found, &mut outcome);
    outcome
}

fn note(found: &Throughput, native: &BTreeMap<(u64, List), f64>) -> String {
    let here: Vec<String> = native
        .iter()
        .map(|((updates, list), ns)| format!("{} {updates} % {ns:.0}", list.name()))
        .collect();
    format!(
        "Model: preset optane-001 in virtual time, {THREADS} threads whose operations do not overlap: lines \
         move between caches as they would, no compare-exchange fails. Nodes on PMEM, SOFT's links in DRAM; \
         instructions, free slots and epochs take no time, and a node's key and link are loaded one after \
         the other, which a processor overlaps: so long walks take longer than they should. The same keys for \
         all lists. Suspected of the orderings missed: in the paper Link-free and SOFT are behind TLog without \
         any update, Link-free at half of what it does with 5 %, where no list writes anything back; that is \
         of their code, not of their protocols, and ours walk as TLog does. With updates they write back one \
         line to TLog's four, and what is written back is missed by the next reader; under eADR all do nearly \
         the same (at most {:.1} % apart). This machine, DRAM declared ADR, range 1024, ns an operation: {}.",
        100.0 * apart(found, EADR),
        here.join(", ")
    )
}

/// How far the lists are apart in any setting of a domain: the fastest over the slowest, less 1.
fn apart(found: &Throughput, domain: usize) -> f64 {
    let of = |range: u64, updates: u64| {
        let values = found.iter().filter(|((d, r, u, _), _)| (*d, *r, *u) == (domain, range, updates));
        let values: Vec<f64> = values.map(|(_, value)| *value).collect();
        let most = values.iter().copied().fold(f64::NAN, f64::max);
        most / values.iter().copied().fold(f64::NAN, f64::min) - 1.0
    };
    let settings = RANGES.into_iter().flat_map(|range| UPDATES.map(|updates| of(range, updates)));
    settings.fold(f64::NAN, f64::max)
}

fn short(domain: usize) -> &'static str {
    ["ADR", "eADR"][domain]
}

fn figures(found: &Throughput, outcome: &mut Outcome) {
    for domain in [ADR, EADR] {
        for range in RANGES {
            let title = format!("Million operations a second, {}, range {range}", short(domain));
            let figure = Figure::new(&title, "updates, %", "million a second", FigureKind::Lines);
            outcome.figures.push(lists(domain).fold(figure.over(UPDATES), |figure, list| {
                let values = UPDATES.map(|updates| found.get(&(domain, range, updates, list)).copied());
                figure.with(list.name(), values.into_iter().flatten())
            }));
        }
    }
}

/// Lists share no line that all threads write: each gains by every core of the socket, and half of them is the least.
fn judge_by_threads(swept: &Swept, outcome: &mut Outcome) {
    let (range, updates) = SWEPT;
    let at = |domain, threads, list| swept.get(&(domain, threads, list)).copied().unwrap_or(f64::NAN);
    let [alone, all] = [SWEEP[0], SWEEP[SWEEP.len() - 1]];
    let gain = |domain| lists(domain).map(move |list| at(domain, all, list) / at(domain, alone, list));
    let least = gain(ADR).chain(gain(EADR)).fold(f64::INFINITY, f64::min);
    let what = format!(
        "{all} threads over {alone}, range {range}, {updates} % updates, the list that gains least, model"
    );
    outcome.checks.push(Check::at_least(what, "none told", least, THREADS as f64 / 2.0));
    for domain in [ADR, EADR] {
        let title = format!(
            "Million operations a second by threads, {}, range {range}, {updates} % updates",
            short(domain)
        );
        let figure = Figure::new(&title, "threads", "million a second", FigureKind::Lines).over(SWEEP);
        outcome.figures.push(lists(domain).fold(figure, |figure, list| {
            let values = SWEEP.map(|threads| swept.get(&(domain, threads, list)).copied());
            figure.with(list.name(), values.into_iter().flatten())
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordering_the_other_way_is_a_miss() {
        let judged = |log_free: f64| {
            let mut found = Throughput::new();
            for (domain, range) in [ADR, EADR].into_iter().flat_map(|d| RANGES.map(|r| (d, r))) {
                for (updates, list) in UPDATES.into_iter().flat_map(|u| List::ALL.map(|l| (u, l))) {
                    let value = if list == List::LogFree { log_free } else { 5.0 };
                    found.insert((domain, range, updates, list), value);
                }
            }
            let native = BTreeMap::from([((0, List::TLog), 1.0), ((0, List::Soft), 1.0)]);
            let checks = judge(&found, &native).checks;
            let of = |check: &&Check| check.what.contains("Log-free before TLog");
            checks.iter().filter(of).map(|check| check.pass).collect::<Vec<_>>()
        };
        assert_eq!(judged(6.0), [true; 3]);
        assert_eq!(judged(4.0), [false; 3]);
    }

    #[test]
    fn a_list_that_does_not_gain_by_threads_is_a_miss() {
        let judged = |gain: f64| {
            let mut swept = Swept::new();
            for (domain, list) in [ADR, EADR].into_iter().flat_map(|d| lists(d).map(move |l| (d, l))) {
                for threads in SWEEP {
                    let gain = if list == List::Soft { gain } else { 1.0 };
                    swept.insert((domain, threads, list), threads as f64 * gain.powf(threads as f64 / 48.0));
                }
            }
            let mut outcome = Outcome::default();
            judge_by_threads(&swept, &mut outcome);
            assert_eq!(outcome.figures.len(), 2);
            outcome.checks[0].pass
        };
        assert!(judged(1.0));
        assert!(!judged(0.2));
    }
}
