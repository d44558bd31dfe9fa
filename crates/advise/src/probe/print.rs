//! A profile as people read it in a terminal.

use std::fmt::Write;
use terrace_memory::ByteSize;
use terrace_memory::profile::{
    Effect, Estimate, FileOp, Flavour, Measured, NodeProfile, Profile, Quantiles, Recommendation,
};

/// The profile as tables.
pub fn table(profile: &Profile) -> String {
    let machine = &profile.machine;
    let mut text = format!(
        "{}{}: {} threads, largest cache {}, {} of measuring\n",
        machine.name,
        if machine.is_modelled { " (modelled, virtual time)" } else { "" },
        machine.threads,
        ByteSize(machine.cache_bytes),
        match profile.taken_at.len() {
            1 => "1 run".to_string(),
            runs => format!("{runs} runs"),
        },
    );
    profile.nodes.iter().for_each(|node| of_node(&mut text, node, machine.cache_bytes));
    section(&mut text, "processors on memories", &profile.remote, |text, remote| {
        let _ = writeln!(
            text,
            "  {:<20} load {:>7} ns   by {} threads: read {:>7} GB/s, stream {:>7} GB/s",
            format!("{} on {}", remote.from, remote.to),
            shown(&remote.load_ns),
            remote.threads,
            shown(&remote.read_gb_s),
            shown(&remote.stream_gb_s)
        );
    });
    section(&mut text, "pages", &profile.pages, |text, page| {
        let _ = writeln!(
            text,
            "  {:>9}   first touch {:>9} ns   random load {:>7} ns",
            ByteSize(page.page_bytes).to_string(),
            shown(&page.fault_ns),
            shown(&page.random_load_ns)
        );
    });
    section(&mut text, "copies, GB/s", &profile.copies, |text, copy| {
        let (from_to, threads) = (format!("{} to {}", copy.from, copy.to), copy.threads);
        let _ = writeln!(
            text,
            "  {from_to:<20} {:<7} {:>9} blocks {threads:>3} threads {:>8}",
            copy.engine,
            ByteSize(copy.piece_bytes).to_string(),
            shown(&copy.gb_s)
        );
    });
    text
}

fn of_node(text: &mut String, node: &NodeProfile, cache_bytes: u64) {
    let _ = writeln!(text, "\n{}: {}", node.name, node.medium);
    if let Some((bytes, threads)) = node.granularity_bytes() {
        let bytes = ByteSize(bytes);
        let _ = writeln!(
            text,
            "  access granularity of the medium: {bytes} ({threads} threads stream random blocks of that size as fast as \
             sequential ones; true if so many saturate it)"
        );
    }
    section(text, "a dependent load, ns            p50       p99", &node.latency, |text, point| {
        let whose = if point.bytes < 2 * cache_bytes { "within caches" } else { "" };
        let size = ByteSize(point.bytes).to_string();
        let _ = writeln!(text, "  over {size:>9}    {}   {whose}", of_load(&point.load));
    });
    bandwidths(text, node);
    section(
        text,
        "the same while others move bytes  GB/s      p50       p99",
        &node.loaded,
        |text, point| {
            let _ = writeln!(
                text,
                "  {:>3} % writes, pause {:>6} ns {:>6} {}",
                point.writes_percent,
                point.pause_ns,
                shown(&point.gb_s),
                of_load(&point.load)
            );
        },
    );
    section(text, "a block written, ns             p50       p99", &node.stores, |text, point| {
        let piece = ByteSize(point.piece_bytes).to_string();
        let flavour = name(point.flavour);
        let _ = writeln!(text, "  {flavour:<11} {piece:>8}   {}", of_load(&point.piece));
    });
    section(text, "a miss into a dirty cache, ns", &node.dirty_cache, |text, point| {
        let _ = writeln!(
            text,
            "  {} dirty: {}, clean {}",
            ByteSize(point.dirty_bytes),
            shown(&point.dirty_ns),
            shown(&point.clean_ns)
        );
    });
    section(
        text,
        "blocks of files      threads     GB/s   ns p50       p99",
        &node.files,
        |text, point| {
            let piece = ByteSize(point.piece_bytes).to_string();
            let how = match (point.op, point.is_direct) {
                (FileOp::Read, true) => "read",
                (FileOp::Read, false) => "cached read",
                (FileOp::WriteSync, _) => "write, sync",
            };
            let (gb_s, threads) = (shown(&point.gb_s), point.threads);
            let _ = writeln!(
                text,
                "  {how:<11} {piece:>8} {threads:>5} {gb_s:>8} {}",
                of_load(&point.piece)
            );
        },
    );
    eight_tests(text, node);
}

/// What each test found, what it is due to, and what follows.
fn eight_tests(text: &mut String, node: &NodeProfile) {
    let heading = "the eight tests  here  on DRAM  classes           because of";
    section(text, heading, &node.effects, |text, effect| {
        let _ = writeln!(
            text,
            "  {:<11} {:>8} {:>8}  {:<16}  {}",
            effect.test,
            shown(&effect.factor),
            effect.on_dram.as_ref().map_or("-".into(), shown),
            effect.classes.join(", "),
            causes(effect)
        );
    });
    let heading = "what follows (impact by what was measured)";
    section(text, heading, &node.recommendations, |text, found| {
        let _ = writeln!(
            text,
            "  {:<4}{:<12}{}\n{:18}{}",
            found.name,
            impact(found),
            found.words,
            "",
            found.because
        );
    });
}

/// What an effect is due to, and why that is not all or nothing.
pub(super) fn causes(effect: &Effect) -> String {
    let words: Vec<&str> =
        effect.because.iter().chain(&effect.unexplained).map(String::as_str).collect();
    words.join("; ")
}

/// What a recommendation is worth here.
pub(super) fn impact(found: &Recommendation) -> String {
    found.impact.map_or("not known".into(), |impact| impact.to_string())
}

/// A heading, what was left out, and lines of the rest; nothing for what nobody asked for.
fn section<P>(
    text: &mut String,
    heading: &str,
    measured: &Measured<P>,
    line: impl Fn(&mut String, &P),
) {
    let left_out = measured.left_out();
    if matches!(measured, Measured::Not { .. }) && left_out.is_none() {
        return;
    }
    let _ = writeln!(text, "  {heading}");
    if let Some(why) = left_out {
        let what = if measured.points().is_empty() { "not measured" } else { "left out" };
        let _ = writeln!(text, "  {what}: {why}");
    }
    measured.points().iter().for_each(|point| line(text, point));
}

/// Flavours and orders as lines, threads and pieces as columns.
fn bandwidths(text: &mut String, node: &NodeProfile) {
    let points = node.bandwidth.points();
    let mut columns: Vec<(usize, u64)> =
        points.iter().map(|point| (point.threads, point.piece_bytes)).collect();
    columns.sort_unstable();
    columns.dedup();
    section(text, "bandwidth, GB/s", &node.bandwidth, |_, _| {});
    for chunk in columns.chunk_by(|a, b| a.0 == b.0) {
        let heads: String =
            chunk.iter().map(|(_, piece)| format!("{:>9}", ByteSize(*piece).to_string())).collect();
        let _ = writeln!(text, "  {:>3} threads             {heads}", chunk[0].0);
        for flavour in [Flavour::Read, Flavour::Store, Flavour::StoreFlush, Flavour::Stream] {
            for is_random in [false, true] {
                let cells: String = chunk
                    .iter()
                    .map(|(threads, piece)| {
                        let of = points.iter().find(|point| {
                            (point.flavour, point.is_random) == (flavour, is_random)
                                && (point.threads, point.piece_bytes) == (*threads, *piece)
                        });
                        format!("{:>9}", of.map_or("-".into(), |point| shown(&point.gb_s)))
                    })
                    .collect();
                let order = if is_random { "random" } else { "sequential" };
                let _ = writeln!(text, "    {:<11} {order:<11}{cells}", name(flavour));
            }
        }
    }
}

pub(super) fn name(flavour: Flavour) -> &'static str {
    match flavour {
        Flavour::Read => "read",
        Flavour::Store => "store",
        Flavour::StoreFlush => "store+flush",
        Flavour::Stream => "stream",
    }
}

fn of_load(times: &Quantiles) -> String {
    format!("{:>9} {:>9}", shown(&times.p50_ns), shown(&times.p99_ns))
}

/// The median; three digits are what a reader compares.
pub(super) fn shown(estimate: &Estimate) -> String {
    match estimate.median() {
        large if large >= 100.0 => format!("{large:.0}"),
        middle if middle >= 10.0 => format!("{middle:.1}"),
        small => format!("{small:.2}"),
    }
}
