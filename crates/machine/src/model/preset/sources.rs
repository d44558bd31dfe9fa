//! Every figure of a preset has a source: a rule for the files, kept by a test.

use super::{BUILT_IN, Preset};

/// What a source begins with where it is a publication or a vendor's document, and what must follow.
const PUBLISHED: &[&str] = &[
    // The five papers of docs/papers.md, by author, and where in it.
    "Wu, ",
    "Gugnani, ",
    "Miller, ",
    "Fuerst, ",
    "Ni, ",
    "Intel data sheet",
    "Intel optimization manual",
    "Agner Fog's tables",
    "AnandTech ",
    "Wikipedia, ",
    "arXiv ",
    "FAST 20",
    "MICRO 20",
    "ASPLOS 20",
    "ISC 20",
    "MLC, ",
    "core-to-core-latency, ",
    "CacheLib wiki, ",
];
/// What a figure is marked with where nobody has published it as it stands, and the reason after it.
const MARKS: &[&str] = &["MEASURED: ", "DERIVED: ", "ASSUMED: ", "CALIBRATED: "];
/// Fewest letters of a reason.
const REASON: usize = 10;

fn is_source(comment: &str) -> bool {
    let reason = |mark: &str| {
        let (_, reason) = comment.split_once(mark)?;
        Some(reason.trim().len() >= REASON)
    };
    if let Some(marked) = MARKS.iter().find_map(|mark| reason(mark)) {
        return marked;
    }
    PUBLISHED.iter().any(|known| comment.contains(known))
}

/// Lines of a preset that give something without a source, on the line or in the comment above it.
fn unsourced(text: &str) -> Vec<&str> {
    let mut above = String::new();
    let mut found = Vec::new();
    for line in text.lines() {
        let (code, comment) = line.split_once('#').unwrap_or((line, ""));
        let is_name = code.starts_with("name = ") || code.starts_with("about = ");
        if code.contains(" = ") && !is_name && !is_source(comment) && !is_source(&above) {
            found.push(line);
        }
        match code.trim().is_empty() && !comment.is_empty() {
            true => above = above + " " + comment.trim(),
            false => above.clear(),
        }
    }
    found
}

#[test]
fn every_figure_of_every_preset_has_a_source() {
    let ssp_sim = [("ssp-sim", crate::ssp::PresetFile::TEXT)];
    let bare: Vec<(&str, &str)> = BUILT_IN
        .iter()
        .chain(&ssp_sim)
        .flat_map(|(name, text)| unsourced(text).into_iter().map(move |line| (*name, line)))
        .collect();
    bare.iter().for_each(|(name, line)| println!("{name}: {line}"));
    assert!(bare.is_empty(), "{} lines without a source", bare.len());
    assert!(Preset::names().count() >= 10);
}

#[test]
fn a_source_is_a_place_in_a_publication_or_a_mark_with_a_reason() {
    for good in [
        "ways = 8  # Intel optimization manual",
        "ways = 8  # 14 cycles, Wu, 3.4.1",
        "ways = 8  # ASSUMED: as in its sibling",
        "# DERIVED: the product of both,\n# of the line above\nways = 8",
        "name = \"dram0\"",
        "[[cache]]  # L1D",
    ] {
        assert!(unsourced(good).is_empty(), "{good}");
    }
    for bad in [
        "ways = 8",
        "ways = 8  # ASSUMED",
        "ways = 8  # ASSUMED: so",
        "ways = 8  # as above",
        "ways = 8  # Wu",
        "ways = 8  # a paper, table 2.1",
        "# MEASURED: by somebody with care\nways = 8\nbytes = 64",
    ] {
        assert_eq!(unsourced(bad).len(), 1, "{bad}");
    }
}
