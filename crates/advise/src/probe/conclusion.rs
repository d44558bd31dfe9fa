//! What a page says before its drawings: when it was measured, how noisy that was, and three sentences of what came
//! of it.

use super::print::shown;
use terrace_memory::ByteSize;
use terrace_memory::profile::{Estimate, Flavour, NodeProfile, Profile};

/// Spreads between runs up to which a machine was quiet, and up to which a little noisy; of the median.
const QUIET: f64 = 0.05;
const NOISY: f64 = 0.15;

/// The days that runs were made on, the first and the last.
pub(super) fn when(profile: &Profile) -> String {
    let (first, last) = (profile.taken_at.iter().min(), profile.taken_at.iter().max());
    let (Some(first), Some(last)) = (first, last) else { return "date not known".into() };
    let runs = match profile.taken_at.len() {
        1 => "1 run".to_string(),
        runs => format!("{runs} runs"),
    };
    match (date(*first), date(*last)) {
        (first, last) if first == last => format!("measured {first} (UTC), {runs}"),
        (first, last) => format!("measured {first} to {last} (UTC), {runs}"),
    }
}

/// The day of a moment, seconds since 1970, in UTC.
fn date(seconds: u64) -> String {
    // The proleptic Gregorian calendar in eras of 400 years that begin in March.
    let days = seconds / 86_400 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{day:02}", era * 400 + year + next)
}

/// How much the runs differ, and a class for its colour.
pub(super) fn noise(profile: &Profile) -> (String, &'static str) {
    let of_node = |node: &NodeProfile| {
        let loads = node.latency.points().iter().map(|point| spread(&point.load.p50_ns));
        let moved = node.bandwidth.points().iter().map(|point| spread(&point.gb_s));
        loads.chain(moved).flatten().collect::<Vec<f64>>()
    };
    let mut spreads: Vec<f64> = profile.nodes.iter().flat_map(of_node).collect();
    spreads.sort_by(f64::total_cmp);
    let Some(middle) = spreads.get(spreads.len() / 2) else {
        return ("noise unknown: run again with the same --out".into(), "");
    };
    let percent = format!("runs differ by {:.0} % (median)", 100.0 * middle);
    match *middle {
        quiet if quiet <= QUIET => (format!("quiet: {percent}"), "quiet"),
        little if little <= NOISY => (format!("some noise: {percent}"), ""),
        _ => (format!("noisy: {percent}"), "noisy"),
    }
}

/// How far the runs of a figure are apart, by its median; of one run nothing is known.
fn spread(of: &Estimate) -> Option<f64> {
    let [least, most] = of.range();
    (of.runs() > 1 && of.median() > 0.0).then(|| (most - least) / of.median())
}

/// Latency, bandwidth, and what persisting costs: a sentence each, of what was measured.
pub(super) fn sentences(profile: &Profile) -> [String; 3] {
    [latency(profile), bandwidth(profile), persisting(profile)]
}

/// A dependent load of the largest working set.
fn idle(node: &NodeProfile) -> Option<(&Estimate, u64)> {
    let largest = node.latency.points().iter().max_by_key(|point| point.bytes)?;
    Some((&largest.load.p50_ns, largest.bytes))
}

fn latency(profile: &Profile) -> String {
    let mut known: Vec<(&str, &Estimate, u64)> = profile
        .nodes
        .iter()
        .filter_map(|node| idle(node).map(|(ns, bytes)| (node.name.as_str(), ns, bytes)))
        .collect();
    known.sort_by(|a, b| a.1.median().total_cmp(&b.1.median()));
    let Some((nearest, ns, bytes)) = known.first() else {
        return "Latency was not measured.".into();
    };
    let of = format!(
        "A dependent load takes {} ns on {nearest} (p50, working set {})",
        shown(ns),
        ByteSize(*bytes)
    );
    match known.last().filter(|_| known.len() > 1) {
        Some((farthest, far, _)) => format!(
            "{of} and {} ns on {farthest}, {:.1} times as long.",
            shown(far),
            far.median() / ns.median()
        ),
        None => format!("{of}."),
    }
}

fn bandwidth(profile: &Profile) -> String {
    let most = |flavour: Flavour| {
        let points = profile.nodes.iter().flat_map(|node| {
            node.bandwidth.points().iter().map(move |point| (node.name.as_str(), point))
        });
        let of = points.filter(|(_, point)| point.flavour == flavour);
        of.max_by(|a, b| a.1.gb_s.median().total_cmp(&b.1.gb_s.median()))
    };
    let Some((node, read)) = most(Flavour::Read) else {
        return "Bandwidth was not measured.".into();
    };
    let threads =
        if read.threads == 1 { "1 thread".into() } else { format!("{} threads", read.threads) };
    let reads = format!("Reads reach {} GB/s on {node} with {threads}", shown(&read.gb_s));
    match most(Flavour::Stream) {
        Some((node, stream)) => {
            format!("{reads}, non-temporal stores {} GB/s on {node}.", shown(&stream.gb_s))
        }
        None => format!("{reads}."),
    }
}

fn persisting(profile: &Profile) -> String {
    let of_node = |node: &NodeProfile| {
        let points = node.stores.points().iter();
        let written = points.filter(|point| point.flavour == Flavour::StoreFlush);
        let least = written.min_by_key(|point| point.piece_bytes)?;
        Some(format!(
            "{} ns on {} (p50, {})",
            shown(&least.piece.p50_ns),
            node.name,
            ByteSize(least.piece_bytes)
        ))
    };
    let known: Vec<String> = profile.nodes.iter().filter_map(of_node).collect();
    match &known[..] {
        [] => "Write-back was not measured.".into(),
        known => {
            format!("Writing a block, writing it back and fencing takes {}.", known.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_have_their_days() {
        let known = [(0, "1970-01-01"), (951_782_400, "2000-02-29"), (1_795_391_999, "2026-11-22")];
        assert_eq!(known.map(|(seconds, _)| date(seconds)), known.map(|(_, day)| day.to_string()));
    }
}
