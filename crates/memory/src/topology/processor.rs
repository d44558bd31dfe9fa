//! The processor as `/proc/cpuinfo` describes it.

use std::path::Path;

use serde::Serialize;

use super::source::{Source, TopologyError, malformed};
use crate::cpu::Features;

/// The processor, taken from the first one listed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Processor {
    /// The model's name as the kernel prints it; `None` where not told.
    pub model: Option<String>,
    /// Processors listed.
    pub count: usize,
    /// Instructions that matter to memory, from the kernel's words; `None` where not told.
    pub features: Option<Features>,
}

/// Reads `/proc/cpuinfo`; everything in it is optional.
pub(super) fn read_processor(source: &Source, proc: &Path) -> Result<Processor, TopologyError> {
    let path = proc.join("cpuinfo");
    let Some(text) = source.text(&path)? else {
        return Ok(Processor::default());
    };
    let field = |name: &str| -> Option<&str> {
        text.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then_some(value.trim())
        })
    };
    let line_bytes = match field("clflush size") {
        Some(size) => {
            size.parse().map_err(|_| malformed(&path, size, "a clflush size in bytes"))?
        }
        None => 0,
    };
    let count = text
        .lines()
        .filter(|line| line.split(':').next().map(str::trim) == Some("processor"))
        .count();
    // On other architectures the words come under another name.
    let words = field("flags").or_else(|| field("Features"));
    if words.is_none() {
        source.note(&path, "no line of processor flags");
    }
    Ok(Processor {
        model: field("model name").map(str::to_owned),
        count,
        features: words.map(|words| Features::from_words(words.split_whitespace(), line_bytes)),
    })
}
