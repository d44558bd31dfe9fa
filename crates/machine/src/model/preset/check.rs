//! What a preset must keep to beyond its types.

use super::{Policy, Preset, PresetError};

/// Cores whose holdings the directory can note.
const CORES_MAX: usize = 128;
/// Line fill buffers and stores that a thread has room for.
const BUFFERS_MAX: usize = 64;

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
    if processor.sockets > 1 && preset.link.is_none() {
        return refuse("link", "nothing".into(), "given where there are several sockets");
    }
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
        if !cache.bytes.is_multiple_of(processor.line_bytes * cache.ways as u64) {
            return refuse(&format!("{field}.bytes"), cache.bytes.to_string(), "whole sets");
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
    nodes(preset)
}

fn nodes(preset: &Preset) -> Result<(), PresetError> {
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
        let rates = [Some(node.read_gb_s), Some(node.write_gb_s), node.random_read_gb_s];
        if rates.iter().chain([&node.random_write_gb_s]).flatten().any(|rate| *rate <= 0.0) {
            return refuse("read_gb_s or write_gb_s", "0".into(), "more");
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
    Ok(())
}
