//! How single values are written: sizes, choices, and the nearest word to a misspelt one.

use super::DurabilityMode;
use terrace_memory::{Domain, TierKind};
use terrace_store::{Kind, Persist, ValueDesign, WhenFull};

const UNITS: &[(&str, u64)] = &[
    ("b", 1),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
];

/// Bytes of `"8 GiB"`, `"512MiB"`, `"1.5 GB"` or `"4096"`. `GiB` is 2^30, `GB` is 10^9.
///
/// ```
/// use terrace::config::parse_size;
/// assert_eq!(parse_size("1.5 MiB"), Ok(3 << 19));
/// assert!(parse_size("8 G").is_err());
/// ```
///
/// # Errors
/// What was expected, in words.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let expected =
        || format!("`{text}` is not a size; write one like \"8 GiB\", \"512 MiB\" or 4096");
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim().to_ascii_lowercase();
    let scale = if unit.is_empty() {
        1
    } else {
        UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(expected)?.1
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(scale).ok_or_else(|| format!("`{text}` is too large"));
    }
    let value = number.parse::<f64>().map_err(|_| expected())? * scale as f64;
    if !(0.0..9.0e18).contains(&value) {
        return Err(format!("`{text}` is too large"));
    }
    Ok(value as u64)
}

/// `bytes` in the largest binary unit that keeps it readable: `8 GiB`, `1.5 MiB`, `17 B`.
///
/// ```
/// assert_eq!(terrace::config::format_size(3 << 19), "1.5 MiB");
/// ```
#[must_use]
pub fn format_size(bytes: u64) -> String {
    for (name, scale) in [("TiB", 1u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)]
    {
        if bytes >= scale {
            let value = bytes as f64 / scale as f64;
            let text = format!("{value:.1}");
            return format!("{} {name}", text.strip_suffix(".0").unwrap_or(&text));
        }
    }
    format!("{bytes} B")
}

/// The word of `known` nearest to `word`, if one is near enough to be meant.
///
/// ```
/// let known = ["port", "listen"];
/// assert_eq!(terrace::config::nearest("prot", known), Some("port"));
/// assert_eq!(terrace::config::nearest("unheard of", known), None);
/// ```
#[must_use]
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|k| (edit_distance(word, k), k))
        .min_by_key(|(d, _)| *d)
        .filter(|(d, k)| *d <= 2.max(k.len() / 2))
        .map(|(_, k)| k)
}

/// Insertions, removals, replacements and swaps of neighbours between two words.
fn edit_distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.to_ascii_lowercase().chars().collect();
    let b: Vec<char> = b.to_ascii_lowercase().chars().collect();
    let mut rows = vec![vec![0usize; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let replace = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replace.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

/// `sync, interval or none`.
pub(super) fn list<T>(names: &[(&str, T)]) -> String {
    let quoted: Vec<String> = names.iter().map(|(n, _)| format!("\"{n}\"")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

/// The choice called `text`, or the valid names and the nearest one.
pub(super) fn choice<T: Copy>(text: &str, names: &[(&str, T)]) -> Result<T, String> {
    if let Some((_, value)) = names.iter().find(|(n, _)| *n == text) {
        return Ok(*value);
    }
    let hint = nearest(text, names.iter().map(|(n, _)| *n))
        .map(|n| format!("; did you mean \"{n}\"?"))
        .unwrap_or_default();
    Err(format!("`{text}` is not one of {}{hint}", list(names)))
}

impl DurabilityMode {
    pub(super) const NAMES: &[(&str, Self)] =
        &[("sync", Self::Sync), ("interval", Self::Interval), ("none", Self::None)];
}

pub(super) const TIER_KINDS: &[(&str, TierKind)] = &[
    ("dram", TierKind::Dram),
    ("huge", TierKind::Huge),
    ("node", TierKind::Node),
    ("file", TierKind::File),
    ("dax", TierKind::Dax),
    ("tmpfs", TierKind::Tmpfs),
];

pub(super) const DOMAINS: &[(&str, Domain)] = &[
    ("adr", Domain::Adr),
    ("eadr", Domain::Eadr),
    ("page-cache", Domain::PageCache),
    ("none", Domain::None),
];

pub(super) const BOOLEAN: &[(&str, bool)] = &[("true", true), ("false", false)];

pub(super) const KINDS: &[(&str, Kind)] = &[("hash", Kind::Hash), ("ordered", Kind::Ordered)];

pub(super) const PERSIST: &[(&str, Persist)] = &[
    ("values", Persist::Values),
    ("index", Persist::Index),
    ("full", Persist::Full),
    ("auto", Persist::Auto),
];

pub(super) const VALUE_DESIGNS: &[(&str, ValueDesign)] =
    &[("log", ValueDesign::Log), ("slab", ValueDesign::Slab), ("auto", ValueDesign::Auto)];

pub(super) const WHEN_FULL: &[(&str, WhenFull)] =
    &[("spill", WhenFull::Spill), ("refuse", WhenFull::Refuse), ("evict", WhenFull::Evict)];

/// 8 GiB, or half of the machine's memory where that is less.
pub(super) fn default_memory_budget() -> u64 {
    let half = physical_memory_bytes().map_or(u64::MAX, |b| b / 2);
    half.clamp(64 << 20, 8 << 30)
}

fn physical_memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|l| l.starts_with("MemTotal:"))?;
    let kib: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}
