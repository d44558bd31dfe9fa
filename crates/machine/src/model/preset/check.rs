//! What a preset must keep to beyond its types.

use super::{Policy, Preset, PresetError};
use std::collections::HashSet;

/// Cores whose holdings the directory can note.
pub(super) const CORES_MAX: usize = 128;
/// Line fill buffers and stores that a thread has room for.
const BUFFERS_MAX: usize = 64;
/// Logical threads of a core.
pub(super) const THREADS_MAX: usize = 8;
/// A second: no latency of a memory, and no cycle, is longer.
const NS_MAX: f64 = 1e9;

pub(super) fn check(preset: &Preset) -> Result<(), PresetError> {
    let name = &preset.name;
    let refuse = |field: &str, found: String, valid: &str| {
        Err(PresetError(format!("{name}: {field} = {found}; it must be {valid}")))
    };
    let processor = &preset.processor;
    let cores = processor.sockets * processor.cores_per_socket;
    if cores == 0 || cores > CORES_MAX {
        return refuse("processor.cores_per_socket", cores.to_string(), "1 to 128 in all sockets");
    }
    if !processor.line_bytes.is_power_of_two() || processor.line_bytes < 64 {
        return refuse(
            "processor.line_bytes",
            processor.line_bytes.to_string(),
            "a power of two from 64 on",
        );
    }
    if processor.threads_per_core == 0 || processor.threads_per_core > THREADS_MAX {
        return refuse(
            "processor.threads_per_core",
            processor.threads_per_core.to_string(),
            "1 to 8",
        );
    }
    if processor.clock_mhz == 0 {
        return refuse("processor.clock_mhz", "0".into(), "at least 1");
    }
    if processor.write_back_queue == 0 {
        return refuse("processor.write_back_queue", "0".into(), "at least 1");
    }
    if !is_latency(processor.core_to_core_ns) {
        return refuse("processor.core_to_core_ns", processor.core_to_core_ns.to_string(), LATENCY);
    }
    for (field, found) in [
        ("processor.line_fill_buffers", processor.line_fill_buffers),
        ("processor.store_buffer", processor.store_buffer),
    ] {
        if found == 0 || found > BUFFERS_MAX {
            return refuse(field, found.to_string(), "1 to 64");
        }
    }
    if processor.store_bytes == 0 || processor.store_bytes > processor.line_bytes {
        return refuse("processor.store_bytes", processor.store_bytes.to_string(), "1 to a line");
    }
    match &preset.link {
        None if processor.sockets > 1 => {
            return refuse("link", "nothing".into(), "given where there are several sockets");
        }
        Some(link) if !is_latency(link.latency_ns) => {
            return refuse("link.latency_ns", link.latency_ns.to_string(), LATENCY);
        }
        Some(link) if !is_rate(link.gb_s) => {
            return refuse("link.gb_s", link.gb_s.to_string(), RATE);
        }
        _ => {}
    }
    caches(preset)?;
    nodes(preset)?;
    let Some(generator) = &preset.generator else { return Ok(()) };
    for (field, found) in [
        ("generator.write_64_mib_s", generator.write_64_mib_s),
        ("generator.write_4096_mib_s", generator.write_4096_mib_s),
        ("generator.read_64_mib_s", generator.read_64_mib_s),
    ] {
        if !is_rate(found) {
            return refuse(field, found.to_string(), RATE);
        }
    }
    if !is_latency(generator.item_ns) {
        return refuse("generator.item_ns", generator.item_ns.to_string(), LATENCY);
    }
    Ok(())
}

const LATENCY: &str = "0 to 1e9, in nanoseconds";
const RATE: &str = "more than 0";

fn is_latency(ns: f64) -> bool {
    (0.0..=NS_MAX).contains(&ns)
}

fn is_rate(gb_s: f64) -> bool {
    gb_s > 0.0 && gb_s.is_finite()
}

fn caches(preset: &Preset) -> Result<(), PresetError> {
    let refuse = |field: &str, found: String, valid: &str| {
        Err(PresetError(format!("{}: {field} = {found}; it must be {valid}", preset.name)))
    };
    if !(2..=3).contains(&preset.cache.len()) {
        return refuse(
            "cache",
            format!("{} levels", preset.cache.len()),
            "one or two private levels and a shared one",
        );
    }
    for (level, cache) in preset.cache.iter().enumerate() {
        let field = format!("cache[{level}]");
        if cache.ways == 0 || cache.ways > 32 {
            return refuse(&format!("{field}.ways"), cache.ways.to_string(), "1 to 32");
        }
        let set = preset.processor.line_bytes * cache.ways as u64;
        if cache.bytes == 0 || !cache.bytes.is_multiple_of(set) {
            return refuse(&format!("{field}.bytes"), cache.bytes.to_string(), "whole sets");
        }
        if !is_latency(cache.latency_ns) {
            return refuse(&format!("{field}.latency_ns"), cache.latency_ns.to_string(), LATENCY);
        }
        let percents = [cache.random_percent, cache.random_percent_shared];
        let mixed = cache.replacement == Policy::Mixed;
        if percents.iter().any(|percent| *percent > 100 || (*percent > 0) != mixed) {
            return refuse(
                &format!("{field}.random_percent and random_percent_shared"),
                format!("{} and {}", percents[0], percents[1]),
                "1 to 100 with replacement = \"mixed\", absent otherwise",
            );
        }
    }
    Ok(())
}

fn nodes(preset: &Preset) -> Result<(), PresetError> {
    let mut names = HashSet::new();
    for node in &preset.node {
        let refuse = |field: &str, found: String, valid: &str| {
            let (preset, node) = (&preset.name, &node.name);
            Err(PresetError(format!(
                "{preset}: node {node}: {field} = {found}; it must be {valid}"
            )))
        };
        if node.socket >= preset.processor.sockets {
            return refuse("socket", node.socket.to_string(), "one of the processor's");
        }
        if node.channels == 0 || node.interleave_bytes < preset.processor.line_bytes {
            return refuse(
                "interleave_bytes",
                node.interleave_bytes.to_string(),
                "at least a line, of at least one channel",
            );
        }
        if node.both_ways && node.media.is_some() {
            return refuse("both_ways", "true".into(), "absent where there is media");
        }
        if !names.insert(&node.name) {
            return refuse("name", node.name.clone(), "of this node alone");
        }
        for (field, rate) in [
            ("read_gb_s", Some(node.read_gb_s)),
            ("write_gb_s", Some(node.write_gb_s)),
            ("random_read_gb_s", node.random_read_gb_s),
            ("random_write_gb_s", node.random_write_gb_s),
        ] {
            if let Some(rate) = rate.filter(|rate| !is_rate(*rate)) {
                return refuse(field, rate.to_string(), RATE);
            }
        }
        for (field, ns) in [
            ("read_ns", node.read_ns),
            ("random_read_ns", node.random_read_ns),
            ("write_back_ns", node.write_back_ns),
            ("stream_ns", node.stream_ns),
            ("directory_ns", node.directory_ns),
        ] {
            if !is_latency(ns) {
                return refuse(field, ns.to_string(), LATENCY);
            }
        }
        if node.write_queue == 0 {
            return refuse("write_queue", "0".into(), "at least 1");
        }
        let Some(media) = &node.media else {
            continue;
        };
        let lines = media.line_bytes / preset.processor.line_bytes;
        if !lines.is_power_of_two() || lines > 8 || !media.line_bytes.is_power_of_two() {
            return refuse(
                "media.line_bytes",
                media.line_bytes.to_string(),
                "1, 2, 4 or 8 of the processor's lines",
            );
        }
        if media.buffer_lines == 0 || media.buffer_lines > 256 {
            return refuse("media.buffer_lines", media.buffer_lines.to_string(), "1 to 256");
        }
    }
    super::engines::check(preset)
}
