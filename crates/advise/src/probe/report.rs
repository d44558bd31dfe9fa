//! A profile as one HTML page with drawings.

use super::conclusion;
use super::print::{causes, impact, name, shown, table};
use crate::page::{self, Figure, FigureKind, escaped};
use std::cmp::Reverse;
use std::fmt::Write;
use terrace_memory::ByteSize;
use terrace_memory::profile::{
    Bandwidth, Effect, FileCost, FileOp, Flavour, Loaded, NodeProfile, Profile, Recommendation,
};

/// The page. It needs nothing beside it.
pub fn html(profile: &Profile) -> String {
    let title = format!("Terrace: the memories of {}", profile.machine.name);
    let mut page = page::head(&title);
    let _ = writeln!(page, "<h1>{}</h1>", escaped(&title));
    let (noise, class) = conclusion::noise(profile);
    let _ = writeln!(
        page,
        "<p class=\"where\">{}; {} <span class=\"badge {class}\">{}</span></p>",
        escaped(&profile.machine.to_string()),
        escaped(&conclusion::when(profile)),
        escaped(&noise)
    );
    let _ = writeln!(page, "<p>{}</p>", escaped(&conclusion::sentences(profile).join(" ")));
    if profile.machine.is_modelled {
        page.push_str("<p>This is a modelled machine: times are virtual.</p>\n");
    }
    let left_out = profile.left_out();
    if !left_out.is_empty() {
        page.push_str("<p>Not measured, or incomplete:</p>\n<ul class=\"skipped\">\n");
        for (part, why) in left_out {
            let _ = writeln!(page, "<li>{}: {}</li>", escaped(&part), escaped(why));
        }
        page.push_str("</ul>\n");
    }
    for node in &profile.nodes {
        let _ = writeln!(page, "<section id=\"{0}\"><h2>{0}</h2>", escaped(&node.name));
        let _ = writeln!(page, "<p>{}</p>", escaped(&node.medium));
        figures(node, profile.machine.cache_bytes)
            .iter()
            .for_each(|figure| page::draw(&mut page, figure));
        causes_table(&mut page, node);
        recommendations_table(&mut page, node);
        page.push_str("</section>\n");
    }
    let between = [copies(profile), remote(profile), pages(profile)];
    between.iter().flatten().for_each(|figure| page::draw(&mut page, figure));
    let _ = writeln!(page, "<h2>All figures</h2>\n<pre>{}</pre>", escaped(&table(profile)));
    page.push_str(&page::end());
    page
}

fn figures(node: &NodeProfile, cache_bytes: u64) -> Vec<Figure> {
    let memory =
        [latency(node, cache_bytes), bandwidth(node), by_threads(node), loaded(node), stores(node)];
    let others = [dirty_cache(node), files(node), effects(node)];
    memory.into_iter().chain(others).flatten().collect()
}

fn latency(node: &NodeProfile, cache_bytes: u64) -> Option<Figure> {
    let mut points = node.latency.points().to_vec();
    points.sort_by_key(|point| point.bytes);
    let title = "A dependent load by working set";
    let figure = Figure::new(title, "working set", "ns", FigureKind::LogLines)
        .over(points.iter().map(|point| short(point.bytes)))
        .with("p50", points.iter().map(|point| point.load.p50_ns.median()))
        .with("p99", points.iter().map(|point| point.load.p99_ns.median()));
    let sizes: Vec<u64> = points.iter().map(|point| point.bytes).collect();
    let label = format!("largest cache, {}", ByteSize(cache_bytes));
    let figure = match place_of(cache_bytes, &sizes) {
        Some(at) => figure.marked(at, label),
        None => figure,
    };
    (!points.is_empty()).then_some(figure)
}

/// Where a size stands among these, which increase: between two of them by its power of two.
fn place_of(bytes: u64, sizes: &[u64]) -> Option<f64> {
    let power = |bytes: u64| (bytes.max(1) as f64).log2();
    let next = sizes.iter().position(|size| *size >= bytes)?;
    let Some(before) = next.checked_sub(1) else { return (sizes[next] == bytes).then_some(0.0) };
    let step = power(sizes[next]) - power(sizes[before]);
    Some(before as f64 + (power(bytes) - power(sizes[before])) / step)
}

/// The series that a bandwidth figure has: what is done, and in what order.
fn kinds() -> impl Iterator<Item = (Flavour, bool, String)> {
    let flavours = [Flavour::Read, Flavour::StoreFlush, Flavour::Stream];
    flavours.into_iter().flat_map(|flavour| {
        [false, true].map(|is_random| {
            let order = if is_random { "random" } else { "sequential" };
            (flavour, is_random, format!("{} {order}", name(flavour)))
        })
    })
}

/// One more series if it has a value at every place: no line is drawn through what was left out.
fn with_whole(figure: Figure, name: &str, values: impl Iterator<Item = Option<f64>>) -> Figure {
    match values.collect::<Option<Vec<f64>>>() {
        Some(values) => figure.with(name, values),
        None => figure,
    }
}

/// A figure of bandwidth with one series of each kind over the distinct values of `across`.
fn of_bandwidth<T: Ord + Copy>(
    mut figure: Figure,
    points: &[&Bandwidth],
    across: impl Fn(&Bandwidth) -> T,
    shown: impl Fn(T) -> String,
) -> Option<Figure> {
    let mut places: Vec<T> = points.iter().map(|point| across(point)).collect();
    places.sort_unstable();
    places.dedup();
    figure = figure.over(places.iter().map(|place| shown(*place)));
    for (flavour, is_random, words) in kinds() {
        let value = |place: &T| {
            let of = points.iter().find(|point| {
                (point.flavour, point.is_random) == (flavour, is_random) && across(point) == *place
            });
            of.map(|point| point.gb_s.median())
        };
        figure = with_whole(figure, &words, places.iter().map(value));
    }
    (!points.is_empty()).then_some(figure)
}

/// By access size, at the most threads.
fn bandwidth(node: &NodeProfile) -> Option<Figure> {
    let points = node.bandwidth.points();
    let most = points.iter().map(|point| point.threads).max()?;
    let points: Vec<&Bandwidth> = points.iter().filter(|point| point.threads == most).collect();
    let title = format!("Bandwidth by access size, {most} threads");
    let figure = Figure::new(&title, "access size", "GB/s", FigureKind::Lines);
    of_bandwidth(figure, &points, |point| point.piece_bytes, short)
}

/// By threads, in accesses of a page.
fn by_threads(node: &NodeProfile) -> Option<Figure> {
    let points: Vec<&Bandwidth> =
        node.bandwidth.points().iter().filter(|point| point.piece_bytes == 4096).collect();
    let figure = Figure::new(
        "Bandwidth by threads, access size 4 KiB",
        "threads",
        "GB/s",
        FigureKind::Lines,
    );
    of_bandwidth(figure, &points, |point| point.threads, |threads| threads.to_string())
}

/// Latency over what the others move, from the longest pauses to none: one curve for each share of reads, as
/// in the Mess benchmark (Esmaili-Dokht et al., MICRO 2024).
fn loaded(node: &NodeProfile) -> Option<Figure> {
    let points = node.loaded.points();
    let most = points.iter().map(|point| point.threads).max()?;
    let mut points: Vec<&Loaded> = points.iter().filter(|point| point.threads == most).collect();
    // A profile has its settings in the order in which runs came to them.
    points.sort_by_key(|point| (point.writes_percent, Reverse(point.pause_ns)));
    let title = format!("Loaded latency: a dependent load while {most} threads move bytes");
    let figure = Figure::new(&title, "GB/s moved", "ns", FigureKind::Curves);
    let curves = points.chunk_by(|a, b| a.writes_percent == b.writes_percent);
    Some(curves.fold(figure, |figure, curve| {
        let name = format!("{} % reads", 100 - curve[0].writes_percent.min(100));
        let at = |point: &&Loaded| [point.gb_s.median(), point.load.p50_ns.median()];
        figure.through(&name, curve.iter().map(at))
    }))
}

fn stores(node: &NodeProfile) -> Option<Figure> {
    let points = node.stores.points();
    let mut pieces: Vec<u64> = points.iter().map(|point| point.piece_bytes).collect();
    pieces.sort_unstable();
    pieces.dedup();
    let title = "A block written at a random place";
    let mut figure = Figure::new(title, "access size", "ns", FigureKind::LogLines)
        .over(pieces.iter().map(|bytes| short(*bytes)));
    for flavour in [Flavour::Store, Flavour::StoreFlush, Flavour::Stream] {
        let at = |bytes: &u64| {
            let mut of = points.iter().filter(|point| point.flavour == flavour);
            let found = of.find(|point| point.piece_bytes == *bytes);
            found.map(|point| point.piece.p50_ns.median())
        };
        figure = with_whole(figure, name(flavour), pieces.iter().map(at));
    }
    (!points.is_empty()).then_some(figure)
}

/// Bytes in few letters: a place on an axis is narrow.
fn short(bytes: u64) -> String {
    ByteSize(bytes).to_string().replace(" B", "").replace(" ", "").replace("iB", "")
}

fn dirty_cache(node: &NodeProfile) -> Option<Figure> {
    let points = node.dirty_cache.points();
    let title = "A load that misses clean or dirty caches (test I8)";
    let figure = Figure::new(title, "dirty bytes", "ns", FigureKind::Bars)
        .over(points.iter().map(|point| short(point.dirty_bytes)))
        .with("clean lines", points.iter().map(|point| point.clean_ns.median()))
        .with("dirty lines", points.iter().map(|point| point.dirty_ns.median()));
    (!points.is_empty()).then_some(figure)
}

/// By one thread: what a reader or a writer waits for.
fn files(node: &NodeProfile) -> Option<Figure> {
    let mut points: Vec<&FileCost> =
        node.files.points().iter().filter(|point| point.threads == 1).collect();
    points.sort_by_key(|point| point.piece_bytes);
    let mut pieces: Vec<u64> = points.iter().map(|point| point.piece_bytes).collect();
    pieces.dedup();
    let title = "A block of a file at a random place, one thread";
    let mut figure = Figure::new(title, "access size", "us", FigureKind::LogLines)
        .over(pieces.iter().map(|bytes| short(*bytes)));
    for (op, words) in [(FileOp::Read, "read"), (FileOp::WriteSync, "write and sync")] {
        let at = |bytes: &u64| {
            let found = points.iter().find(|p| (p.op, p.piece_bytes) == (op, *bytes));
            found.map(|point| point.piece.p50_ns.median() / 1000.0)
        };
        figure = with_whole(figure, words, pieces.iter().map(at));
    }
    (!points.is_empty()).then_some(figure)
}

fn effects(node: &NodeProfile) -> Option<Figure> {
    let points = node.effects.points();
    let title = "The eight tests of PMIdioBench: factor of each effect (1: no effect)";
    let figure = Figure::new(title, "test", "factor", FigureKind::LogLines)
        .over(points.iter().map(|point| &point.test))
        .with("this memory", points.iter().map(|point| point.factor.median()));
    (!points.is_empty()).then_some(figure)
}

/// What the tests' effects are due to.
fn causes_table(page: &mut String, node: &NodeProfile) {
    let heads = ["test", "here", "on DRAM", "classes", "because of"];
    let row = |effect: &Effect| {
        let on_dram = effect.on_dram.as_ref().map_or("-".into(), shown);
        let classes = effect.classes.join(", ");
        [effect.test.clone(), shown(&effect.factor), on_dram, classes, causes(effect)]
    };
    let title = "Causes of the effects, and the classes of memory concerned";
    page::tabulate(page, title, heads, node.effects.points().iter().map(row));
}

/// What follows from them.
fn recommendations_table(page: &mut String, node: &NodeProfile) {
    let heads = ["", "what follows", "applies here", "impact", "because"];
    let row = |found: &Recommendation| {
        let applies = match found.applies {
            Some(true) => "yes",
            Some(false) => "no",
            None => "not known",
        };
        let (name, words) = (found.name.clone(), found.words.clone());
        [name, words, applies.into(), impact(found), found.because.clone()]
    };
    let title = "Recommendations, with the measured impact of what each avoids";
    page::tabulate(page, title, heads, node.recommendations.points().iter().map(row));
}

/// From where to where, with the most threads.
fn copies(profile: &Profile) -> Option<Figure> {
    let points = profile.copies.points();
    let most = points.iter().map(|point| point.threads).max()?;
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for point in points.iter().filter(|point| point.threads == most) {
        let pair = (point.from.as_str(), point.to.as_str());
        if !pairs.contains(&pair) {
            pairs.push(pair);
        }
    }
    let title = format!("Copies between memories, {most} threads");
    let mut figure = Figure::new(&title, "from and to", "GB/s", FigureKind::Bars)
        .over(pairs.iter().map(|(from, to)| format!("{from} to {to}")));
    let engines = [
        ("store", "through the caches"),
        ("stream", "past them"),
        ("library", "the C library"),
        ("string", "rep movsb"),
    ];
    let measured = |engine: &str| points.iter().any(|point| point.engine == engine);
    for (engine, words) in engines.into_iter().filter(|(engine, _)| measured(engine)) {
        let of = |(from, to): &(&str, &str)| {
            let setting = (engine, *from, *to, most);
            let mut of = points.iter();
            let found = of.find(|p| (&*p.engine, &*p.from, &*p.to, p.threads) == setting);
            found.map_or(0.0, |point| point.gb_s.median())
        };
        figure = figure.with(words, pairs.iter().map(of));
    }
    Some(figure)
}

fn remote(profile: &Profile) -> Option<Figure> {
    let points = profile.remote.points();
    let title = "A dependent load by the node of its processor and the memory";
    let figure = Figure::new(title, "processor on memory", "ns", FigureKind::Bars)
        .over(points.iter().map(|point| format!("{} on {}", point.from, point.to)))
        .with("a load", points.iter().map(|point| point.load_ns.median()));
    (!points.is_empty()).then_some(figure)
}

fn pages(profile: &Profile) -> Option<Figure> {
    let points = profile.pages.points();
    let figure = Figure::new("Pages", "bytes of a page", "ns", FigureKind::LogLines)
        .over(points.iter().map(|point| short(point.page_bytes)))
        .with("first touch", points.iter().map(|point| point.fault_ns.median()))
        .with("a random load", points.iter().map(|point| point.random_load_ns.median()));
    (!points.is_empty()).then_some(figure)
}
