//! A profile as one HTML page with drawings.

use super::print::{name, table};
use crate::page::{self, Figure, Form, escaped};
use std::cmp::Reverse;
use std::fmt::Write;
use terrace_memory::ByteSize;
use terrace_memory::profile::{Bandwidth, Flavour, Loaded, NodeProfile, Profile};

/// The page. It needs nothing beside it.
pub fn html(profile: &Profile) -> String {
    let title = format!("Terrace: the memories of {}", profile.machine.name);
    let mut page = page::head(&title);
    let _ = writeln!(page, "<h1>{}</h1>", escaped(&title));
    if profile.machine.is_modelled {
        page.push_str("<p>A modelled machine: times are virtual.</p>\n");
    }
    for node in &profile.nodes {
        let _ = writeln!(page, "<section id=\"{0}\"><h2>{0}</h2>", escaped(&node.name));
        figures(node).iter().for_each(|figure| page::draw(&mut page, figure));
        page.push_str("</section>\n");
    }
    let _ = writeln!(page, "<h2>All figures</h2>\n<pre>{}</pre>", escaped(&table(profile)));
    page.push_str(page::END);
    page
}

fn figures(node: &NodeProfile) -> Vec<Figure> {
    [latency(node), bandwidth(node), by_threads(node), loaded(node), stores(node)]
        .into_iter()
        .flatten()
        .collect()
}

fn latency(node: &NodeProfile) -> Option<Figure> {
    let mut points = node.latency.points().to_vec();
    points.sort_by_key(|point| point.bytes);
    let title = "A dependent load by working set";
    let figure = Figure::new(title, "working set", "ns", Form::LogLines)
        .over(points.iter().map(|point| short(point.bytes)))
        .with("half", points.iter().map(|point| point.load.p50_ns.median()))
        .with("99 of 100", points.iter().map(|point| point.load.p99_ns.median()));
    (!points.is_empty()).then_some(figure)
}

/// The series that a bandwidth figure has: what is done, and in what order.
fn kinds() -> impl Iterator<Item = (Flavour, bool, String)> {
    let flavours = [Flavour::Read, Flavour::StoreFlush, Flavour::Stream];
    flavours.into_iter().flat_map(|flavour| {
        [false, true].map(|is_random| {
            let order = if is_random { "random" } else { "in order" };
            (flavour, is_random, format!("{} {order}", name(flavour)))
        })
    })
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
            of.map_or(0.0, |point| point.gb_s.median())
        };
        figure = figure.with(&words, places.iter().map(value));
    }
    (!points.is_empty()).then_some(figure)
}

/// By piece, at the most threads.
fn bandwidth(node: &NodeProfile) -> Option<Figure> {
    let points = node.bandwidth.points();
    let most = points.iter().map(|point| point.threads).max()?;
    let points: Vec<&Bandwidth> = points.iter().filter(|point| point.threads == most).collect();
    let title = format!("Bandwidth by piece, {most} threads");
    let figure = Figure::new(&title, "bytes of a piece", "GB/s", Form::Lines);
    of_bandwidth(figure, &points, |point| point.piece_bytes, short)
}

/// By threads, in pieces of a page.
fn by_threads(node: &NodeProfile) -> Option<Figure> {
    let points: Vec<&Bandwidth> =
        node.bandwidth.points().iter().filter(|point| point.piece_bytes == 4096).collect();
    let figure =
        Figure::new("Bandwidth by threads, pieces of 4 KiB", "threads", "GB/s", Form::Lines);
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
    let title = format!("Latency over bandwidth: a dependent load while {most} threads move bytes");
    let figure = Figure::new(&title, "GB/s that they move", "ns", Form::Curves);
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
    let title = "A piece written at a random place";
    let mut figure = Figure::new(title, "bytes of a piece", "ns", Form::LogLines)
        .over(pieces.iter().map(|bytes| short(*bytes)));
    for flavour in [Flavour::Store, Flavour::StoreFlush, Flavour::Stream] {
        let at = |bytes: &u64| {
            let mut of = points.iter().filter(|point| point.flavour == flavour);
            let found = of.find(|point| point.piece_bytes == *bytes);
            found.map_or(0.0, |point| point.piece.p50_ns.median())
        };
        figure = figure.with(name(flavour), pieces.iter().map(at));
    }
    (!points.is_empty()).then_some(figure)
}

/// Bytes in few letters: a place on an axis is narrow.
fn short(bytes: u64) -> String {
    ByteSize(bytes).to_string().replace(" B", "").replace(" ", "").replace("iB", "")
}
