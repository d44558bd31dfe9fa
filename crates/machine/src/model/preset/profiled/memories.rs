//! Memories by a profile's points.

use super::{LINE, Text, refuse};
use crate::model::node::ROW_BYTES;
use crate::model::preset::PresetError;
use terrace_memory::profile::{Bandwidth, Flavour, NodeProfile};

/// No line of a memory comes sooner, whatever was fetched ahead.
const LEAST_NS: f64 = 1.0;
/// Random pieces up to here are asked for by a core's own misses; larger ones by prefetchers too.
const OWN_MISSES_BYTES: u64 = 1024;
/// A core's misses at a time, at the most and the least that is believed.
const LINES_AT_ONCE: [f64; 2] = [1.0, 64.0];
/// A rate that twice the threads, or nearly so many more, raised by less than this has come to its limit.
const LEVEL: f64 = 1.25;
const MORE_THREADS: f64 = 1.5;
/// Threads that have fewer lines on their way than this each wait for latency, and say nothing of a limit.
const WAITS: f64 = 1.75;

/// An idle load of the memory itself, the median; none measured is the slowest.
pub(super) fn idle_ns(node: &NodeProfile) -> f64 {
    node.idle_latency().map_or(f64::INFINITY, |point| point.load.p50_ns.median())
}

/// Lines that one thread has on their way at once, and how that is seen: what it reads at random in the time of a
/// load, or what it streams in that of one line. Each shows so many at least, so the most is taken.
pub(super) fn lines_at_once(node: &NodeProfile) -> Option<(usize, &'static str)> {
    let latency_ns = idle_ns(node);
    let small = points(node, Flavour::Read, true);
    let small = small.filter(|point| point.threads == 1 && point.piece_bytes <= OWN_MISSES_BYTES);
    let read = small.map(|point| point.gb_s.median() * latency_ns / LINE as f64).reduce(f64::max);
    let line_ns = piece_ns(node, Flavour::Stream, LINE);
    let pieces = node.stores.points().iter().filter(|point| point.flavour == Flavour::Stream);
    // The first line is waited for whatever comes behind it.
    let streamed =
        pieces.filter(|point| point.piece_bytes > OWN_MISSES_BYTES).filter_map(|point| {
            let line_ns = line_ns?;
            let others_ns = point.piece.p50_ns.median() - line_ns;
            (others_ns > 0.0).then(|| (point.piece_bytes / LINE - 1) as f64 * line_ns / others_ns)
        });
    let seen = [(read, "random reads"), (streamed.reduce(f64::max), "streams")];
    let seen =
        seen.into_iter().filter_map(|(lines, how)| Some((lines.filter(|l| l.is_finite())?, how)));
    let (lines, how) = seen.max_by(|a, b| a.0.total_cmp(&b.0))?;
    let [least, most] = LINES_AT_ONCE;
    Some((lines.round().clamp(least, most) as usize, how))
}

fn points(
    node: &NodeProfile,
    flavour: Flavour,
    is_random: bool,
) -> impl Iterator<Item = &Bandwidth> {
    let points = node.bandwidth.points().iter();
    points.filter(move |point| point.flavour == flavour && point.is_random == is_random)
}

fn best<'a>(points: impl Iterator<Item = &'a Bandwidth>) -> Option<&'a Bandwidth> {
    points.max_by(|a, b| a.gb_s.median().total_cmp(&b.gb_s.median()))
}

fn setting(point: &Bandwidth) -> String {
    let flavour = match point.flavour {
        Flavour::Read => "read",
        Flavour::Store => "stored",
        Flavour::StoreFlush => "stored and flushed",
        Flavour::Stream => "streamed",
    };
    let order = if point.is_random { "at random" } else { "in order" };
    format!("{} B pieces {flavour} {order}, {} threads", point.piece_bytes, point.threads)
}

/// The rate of single lines at random that more threads did not raise; `None` where they did, or were not tried.
fn random_limit(node: &NodeProfile, flavour: Flavour) -> Option<&Bandwidth> {
    let mut lines: Vec<&Bandwidth> =
        points(node, flavour, true).filter(|point| point.piece_bytes == LINE).collect();
    lines.sort_by_key(|point| point.threads);
    let most = *lines.last()?;
    let is_fewer = |point: &&&Bandwidth| most.threads as f64 >= MORE_THREADS * point.threads as f64;
    let fewer = best(lines.iter().filter(is_fewer).copied())?;
    let line_ns = match flavour {
        Flavour::Read => idle_ns(node),
        _ => piece_ns(node, flavour, LINE)?,
    };
    let on_their_way = most.gb_s.median() * line_ns / LINE as f64 / most.threads as f64;
    let is_limit = most.gb_s.median() < LEVEL * fewer.gb_s.median() && on_their_way > WAITS;
    is_limit.then(|| best(lines.into_iter()))?
}

/// What a piece costs to write, the median.
fn piece_ns(node: &NodeProfile, flavour: Flavour, bytes: u64) -> Option<f64> {
    let mut of = node.stores.points().iter();
    let of = of.find(|point| (point.flavour, point.piece_bytes) == (flavour, bytes))?;
    Some(of.piece.p50_ns.median())
}

fn needed<T>(
    found: Option<T>,
    node: &NodeProfile,
    part: &str,
    what: &str,
) -> Result<T, PresetError> {
    let name = &node.name;
    match found {
        Some(found) => Ok(found),
        None => refuse(
            format_args!("nodes.{name}.{part}"),
            format_args!("without a figure of {what}"),
            format_args!("`terrace probe --node {name} --part {part} --out FILE` measures it"),
        ),
    }
}

/// A memory's part of the text.
pub(super) fn write(
    text: &mut Text,
    node: &NodeProfile,
    lines_at_once: usize,
) -> Result<(), PresetError> {
    let idle = needed(node.idle_latency(), node, "latency", "loads")?;
    let read_ns = idle.load.p50_ns.median();
    let read =
        needed(best(points(node, Flavour::Read, false)), node, "bandwidth", "reads in order")?;
    let writes = [Flavour::Store, Flavour::StoreFlush, Flavour::Stream];
    let writes = writes.into_iter().flat_map(|flavour| points(node, flavour, false));
    let written = needed(best(writes), node, "bandwidth", "writes in order")?;
    let kept_ns = needed(
        piece_ns(node, Flavour::StoreFlush, LINE),
        node,
        "stores",
        "64 B stored and flushed",
    )?;
    let stream_ns = needed(piece_ns(node, Flavour::Stream, LINE), node, "stores", "64 B streamed")?;
    text.line("\n[[node]]");
    text.line(format_args!("name = {:?}", node.name));
    text.assumed("socket", 0, "a profile does not tell; its distance is within its figures");
    text.assumed("channels", 1, "not visible from outside: one queue of all its bandwidth");
    text.assumed("interleave_bytes", 4096, "of no effect with one channel");
    text.measured("read_gb_s", read.gb_s.median(), setting(read));
    text.measured("write_gb_s", written.gb_s.median(), setting(written));
    let limits = [
        ("random_read_gb_s", Flavour::Read, read.gb_s.median()),
        ("random_write_gb_s", Flavour::Stream, written.gb_s.median()),
    ];
    for (field, flavour, in_order) in limits {
        match random_limit(node, flavour) {
            Some(point) => {
                text.measured(field, point.gb_s.median().min(in_order), setting(point));
            }
            None => text.line(format_args!(
                "# {field}: ASSUMED as in order: the rate of single lines still grew with the threads, or one number of them was tried"
            )),
        }
    }
    let loads = format!("a dependent load over {} B", idle.bytes);
    next_line(text, node, lines_at_once, read_ns);
    text.measured("random_read_ns", read_ns, loads);
    let from_kept = format!(
        "64 B stored at random, flushed and fenced in {} ns, less the load",
        super::number(kept_ns)
    );
    text.measured("write_back_ns", (kept_ns - read_ns).max(0.0), from_kept);
    text.measured("stream_ns", stream_ns, "64 B streamed at random and fenced");
    text.assumed("write_queue", 32, "as the presets of x86");
    text.line("# media: ASSUMED none, its lines the processor's: a profile does not tell them");
    Ok(())
}

/// The idle load of a consecutive line, which no part of a probe waits for alone: by what one thread reads in order
/// with so many lines on their way, less the load that opens each row of the modelled DRAM.
fn next_line(text: &mut Text, node: &NodeProfile, lines_at_once: usize, random_ns: f64) {
    let alone = best(points(node, Flavour::Read, false).filter(|point| point.threads == 1));
    let ns = alone.map(|point| {
        let row_ns = ROW_BYTES as f64 / point.gb_s.median() - random_ns;
        row_ns * lines_at_once as f64 / (ROW_BYTES / LINE) as f64
    });
    match (alone, ns.filter(|ns| *ns < random_ns)) {
        (Some(point), Some(ns)) => {
            let rate = super::number(point.gb_s.median());
            let how = format!(
                "{} at {rate} GB/s, {lines_at_once} lines at once, one of {ROW_BYTES} B as any other",
                setting(point)
            );
            text.measured("read_ns", ns.max(LEAST_NS), how);
        }
        _ => {
            let reason = "as any other line's: no single thread's reads in order say otherwise";
            text.assumed("read_ns", super::number(random_ns), reason);
        }
    }
}
