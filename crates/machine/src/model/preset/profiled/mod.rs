//! A machine from its own profile: what `terrace probe --out` measured of it, as a preset.
//!
//! What comes of a profile is the text of a preset, as that of any other machine: a file in which each
//! figure stands beside its source. Here a source is MEASURED, with the points that it was taken from, or
//! ASSUMED, with the reason. The text can be kept, changed where somebody asks what if, and read again.
//!
//! Latencies, bandwidths, caches, threads and memories are the profile's. What one cannot see from outside is assumed
//! as for [`Preset::of_machine`]: replacement, queues, channels, the prefetcher. So is what a profile does not tell:
//! sockets (the distance to a memory is within its own figures), the clock, and whether a memory works in lines larger
//! than the processor's. How far the model is from the profile's own figures is for
//! [`calibrate::against`](crate::model::calibrate::against) to say.

mod caches;
mod memories;

use super::check::{CORES_MAX, THREADS_MAX};
use super::{Preset, PresetError};
use std::fmt::{Display, Write};
use terrace_memory::Profile;
use terrace_memory::instructions::LINE_BYTES as LINE;
use terrace_memory::profile::{Measured, NOT_ASKED_FOR, NodeProfile};

/// The name of every preset that is made here.
const NAME: &str = "this-machine";
/// Where no profile shows them.
const FILL_BUFFERS: usize = 12;

/// A preset and the text that it was read from, with the source of every figure.
#[derive(Clone, Debug)]
pub struct Profiled {
    /// The machine.
    pub preset: Preset,
    /// Its file.
    pub text: String,
}

/// The text of a preset, line by line.
#[derive(Default)]
struct Text(String);

impl Text {
    fn line(&mut self, line: impl Display) {
        // A string takes whatever it is given.
        let _ = writeln!(self.0, "{line}");
    }

    fn figure(&mut self, field: &str, value: impl Display, source: impl Display) {
        let figure = format!("{field} = {value}");
        self.line(format_args!("{figure:27} # {source}"));
    }

    fn measured(&mut self, field: &str, value: f64, source: impl Display) {
        self.figure(field, number(value), format_args!("MEASURED: {source}"));
    }

    fn assumed(&mut self, field: &str, value: impl Display, source: impl Display) {
        self.figure(field, value, format_args!("ASSUMED: {source}"));
    }
}

/// A figure of a profile, which has four digits.
fn number(value: f64) -> String {
    format!("{:?}", terrace_memory::profile::four_digits(value))
}

fn refuse<T>(
    field: impl Display,
    found: impl Display,
    next: impl Display,
) -> Result<T, PresetError> {
    Err(PresetError(format!("{field}: {found}; {next}")))
}

impl Preset {
    /// The machine of a profile, as far as the profile tells it; the rest is said to be assumed in the text.
    ///
    /// Memories that the profile has no figures of, because the system refused them, are left out, and the text says
    /// so.
    ///
    /// # Errors
    /// The profile is of a modelled machine, or a part that is needed was not measured: one line with the field and
    /// the command that measures it.
    pub fn of_profile(profile: &Profile) -> Result<Profiled, PresetError> {
        let machine = &profile.machine;
        if machine.is_modelled {
            return refuse(
                "machine.is_modelled",
                format_args!("true, the profile is of the model `{}`", machine.name),
                format_args!(
                    "a machine is modelled from what was measured on it, `terrace probe --out FILE` without --model; \
                     there are the presets {}",
                    Preset::names().collect::<Vec<_>>().join(", ")
                ),
            );
        }
        let (known, left_out) = memories_of(profile)?;
        // The quickest memory is the threads' own: anything quicker is a cache.
        let own = known
            .iter()
            .copied()
            .min_by(|a, b| memories::idle_ns(a).total_cmp(&memories::idle_ns(b)));
        let Some(own) = own else {
            return refuse(
                "nodes",
                nothing(&left_out),
                "`terrace probe --out FILE` measures all of them",
            );
        };
        let seen = memories::lines_at_once(own);
        let caches = caches::of(own, machine.cache_bytes)?;
        let mut text = Text::default();
        heading(&mut text, profile, &left_out);
        processor(&mut text, profile, (own, seen), &caches)?;
        caches.write(&mut text);
        let lines = seen.map_or(FILL_BUFFERS, |(lines, _)| lines);
        for node in known {
            memories::write(&mut text, node, lines)?;
        }
        let Text(text) = text;
        Ok(Profiled { preset: Preset::parse(&text)?, text })
    }
}

fn nothing(left_out: &[(String, String)]) -> String {
    match left_out.first() {
        Some((node, reason)) => format!("no memory was measured whole ({node}: {reason})"),
        None => "none".into(),
    }
}

/// Memories with figures, and those without: name and reason.
type Memories<'a> = (Vec<&'a NodeProfile>, Vec<(String, String)>);

fn memories_of(profile: &Profile) -> Result<Memories<'_>, PresetError> {
    let (mut known, mut left_out) = (Vec::new(), Vec::new());
    // Tiers that are files are memories where loads reach them.
    let tiers = profile.nodes.iter().filter(|node| !node.latency.points().is_empty());
    let tiers = tiers.map(|node| &node.name).filter(|tier| !profile.machine.nodes.contains(tier));
    for name in profile.machine.nodes.iter().chain(tiers) {
        let Some(node) = profile.node(name) else {
            left_out.push((name.clone(), NOT_ASKED_FOR.into()));
            continue;
        };
        let parts = [
            ("latency", why_not(&node.latency)),
            ("bandwidth", why_not(&node.bandwidth)),
            ("stores", why_not(&node.stores)),
        ];
        let missing = parts.into_iter().filter_map(|(part, why)| Some((part, why?)));
        match missing.max_by_key(|(_, why)| why != NOT_ASKED_FOR) {
            None => {
                let most = node.idle_latency().map_or(0, |idle| idle.bytes);
                if most <= profile.machine.cache_bytes {
                    return refuse(
                        format_args!("nodes.{name}.latency"),
                        format_args!("{most} B at most, which the largest cache holds"),
                        format_args!(
                            "`terrace probe --node {name} --part latency --out FILE` measures the memory"
                        ),
                    );
                }
                known.push(node);
            }
            Some((part, why)) if why == NOT_ASKED_FOR || why == EMPTY => {
                return refuse(
                    format_args!("nodes.{name}.{part}"),
                    format_args!("not measured ({why})"),
                    format_args!(
                        "`terrace probe --node {name} --part {part} --out FILE` measures it"
                    ),
                );
            }
            Some((_, why)) => left_out.push((name.clone(), why)),
        }
    }
    Ok((known, left_out))
}

const EMPTY: &str = "it has no points";

/// Why a part has no figures, or not all of them; `None` if it has.
fn why_not<P>(part: &Measured<P>) -> Option<String> {
    match part {
        Measured::Not { not_measured: why } | Measured::Partial { left_out: why, .. } => {
            Some(why.clone())
        }
        Measured::Points(points) => points.is_empty().then(|| EMPTY.into()),
    }
}

fn heading(text: &mut Text, profile: &Profile, left_out: &[(String, String)]) {
    let runs = profile.taken_at.len();
    text.line(format_args!("# The machine of a profile: {}.", one_line(&profile.machine.name)));
    text.line(format_args!(
        "# MEASURED is what {runs} runs of `terrace probe` found, the median of each figure; ASSUMED what no profile tells."
    ));
    for (node, reason) in left_out {
        text.line(format_args!("# Left out: {}: {}.", one_line(node), one_line(reason)));
    }
    text.line(format_args!("name = {NAME:?}"));
    text.line("about = \"a machine as its profile has it: threads of one socket, every memory at its measured distance\"");
}

/// Names and reasons come from a file: none ends a comment.
fn one_line(text: &str) -> String {
    text.replace(|c: char| c.is_control(), " ")
}

fn processor(
    text: &mut Text,
    profile: &Profile,
    (own, seen): (&NodeProfile, Option<(usize, &str)>),
    caches: &caches::Caches,
) -> Result<(), PresetError> {
    let threads = profile.machine.threads;
    let shares =
        |per_core: &usize| threads.is_multiple_of(*per_core) && threads / per_core <= CORES_MAX;
    let Some(per_core) = (1..=THREADS_MAX).find(shares).filter(|_| threads > 0) else {
        return refuse(
            "machine.threads",
            threads,
            format_args!(
                "a model has 1 to {CORES_MAX} cores of at most {THREADS_MAX} threads each"
            ),
        );
    };
    text.line("\n[processor]");
    text.assumed(
        "sockets",
        1,
        "a profile does not tell them; what is far has its distance in its figures",
    );
    text.measured_count(
        "cores_per_socket",
        threads / per_core,
        "processors that the probe could use",
    );
    text.assumed("threads_per_core", per_core, "a profile does not tell which share a core");
    text.assumed(
        "clock_mhz",
        2000,
        "nothing that was measured depends on it but fences and exchanges",
    );
    text.assumed("line_bytes", LINE, "x86 and most others");
    match seen {
        Some((lines, how)) => text.measured_count(
            "line_fill_buffers",
            lines,
            format_args!(
                "{}: {how} of one thread by the time of one line (Little's law)",
                own.name
            ),
        ),
        None => {
            let reason = "neither random reads nor streams of one thread were measured; Skylake's";
            text.assumed("line_fill_buffers", FILL_BUFFERS, reason);
        }
    }
    text.assumed("store_buffer", 56, "as the presets of x86");
    text.assumed("store_bytes", 32, "as the presets of x86: one store of 32 bytes a cycle");
    text.assumed("stores", "\"eager\"", "x86: total store order");
    text.assumed("write_back", "\"keeps\"", "clwb as it is documented; `terrace doctor` tries it");
    text.assumed("write_back_queue", 64, "as the presets of x86");
    text.assumed("fence_cycles", 6, "as the presets of x86");
    text.assumed("exchange_cycles", 18, "as the presets of x86");
    text.assumed("prefetch_lines", 0, "what prefetchers bring is within read_ns");
    text.assumed(
        "core_to_core_ns",
        number(2.0 * caches.shared_ns()),
        "twice the shared cache's latency",
    );
    Ok(())
}

impl Text {
    fn measured_count(&mut self, field: &str, value: usize, source: impl Display) {
        self.figure(field, value, format_args!("MEASURED: {source}"));
    }
}
