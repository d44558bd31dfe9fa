//! Medians, and a table of them.

use crate::Figure;
use std::fmt::Write;

/// Figures that differ in nothing but their value become one, in the order of the first of each.
pub fn medians(all: &[Figure]) -> Vec<Figure> {
    let mut found: Vec<(Figure, Vec<f64>)> = Vec::new();
    for figure in all {
        match found.iter_mut().find(|(other, _)| is_alike(other, figure)) {
            Some((_, values)) => values.push(figure.value),
            None => found.push((figure.clone(), vec![figure.value])),
        }
    }
    let median = |(figure, mut values): (Figure, Vec<f64>)| {
        values.sort_by(f64::total_cmp);
        Figure { value: values[values.len() / 2], ..figure }
    };
    found.into_iter().map(median).collect()
}

fn is_alike(a: &Figure, b: &Figure) -> bool {
    let what = |figure: &Figure| (figure.key_bytes, figure.keys, figure.threads);
    a.map == b.map && a.what == b.what && what(a) == what(b)
}

/// A table for each number and width of keys; the best of a line is bold.
pub fn markdown(figures: &[Figure], maps: &[String]) -> String {
    let mut text = String::new();
    let mut sizes: Vec<(usize, usize)> = figures.iter().map(|figure| (figure.key_bytes, figure.keys)).collect();
    sizes.sort_unstable();
    sizes.dedup();
    for (key_bytes, keys) in sizes {
        let _ = writeln!(text, "\n{keys} keys of {key_bytes} bytes: millions of operations a second; bytes a key\n");
        let _ = writeln!(text, "| operation | threads | {} |", maps.join(" | "));
        let _ = writeln!(text, "|---|---:|{}", "---:|".repeat(maps.len()));
        let here: Vec<&Figure> =
            figures.iter().filter(|figure| (figure.key_bytes, figure.keys) == (key_bytes, keys)).collect();
        let mut lines: Vec<(&str, usize)> = Vec::new();
        for figure in &here {
            if !lines.contains(&(&figure.what, figure.threads)) {
                lines.push((&figure.what, figure.threads));
            }
        }
        for (what, threads) in lines {
            let value = |map: &String| {
                let is_it = |figure: &&&Figure| {
                    figure.map == *map && figure.what == what && figure.threads == threads
                };
                here.iter().find(is_it).map(|figure| figure.value)
            };
            let _ = writeln!(text, "| {what} | {threads} | {} |", cells(what, maps.iter().map(value).collect()));
        }
    }
    text
}

fn cells(what: &str, values: Vec<Option<f64>>) -> String {
    let is_size = what == "bytes";
    let best = |a: f64, b: f64| if is_size { a.min(b) } else { a.max(b) };
    let best = values.iter().flatten().copied().reduce(best);
    let cell = |value: &Option<f64>| match value {
        None => "-".into(),
        Some(value) => {
            let number = if is_size { format!("{value:.0}") } else { format!("{:.3}", value / 1e6) };
            if Some(*value) == best { format!("**{number}**") } else { number }
        }
    };
    values.iter().map(cell).collect::<Vec<_>>().join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(map: &str, what: &str, value: f64) -> Figure {
        Figure { map: map.into(), key_bytes: 8, keys: 1000, what: what.into(), threads: 1, value }
    }

    #[test]
    fn medians_and_the_best_of_a_line() {
        let all = [3e6, 1e6, 2e6].map(|value| figure("a", "read", value));
        let mut medians = medians(&all);
        assert_eq!((medians.len(), medians[0].value), (1, 2e6));
        medians.push(figure("b", "read", 5e6));
        medians.extend([figure("a", "bytes", 40.0), figure("b", "bytes", 50.0)]);
        let table = markdown(&medians, &["a".into(), "b".into(), "c".into()]);
        assert!(table.contains("| read | 1 | 2.000 | **5.000** | - |"), "{table}");
        assert!(table.contains("| bytes | 1 | **40** | 50 | - |"), "{table}");
    }
}
