//! Pages that need nothing beside them: HTML with drawings, for a light background and for a dark one.

mod figure;
mod plot;

pub use figure::{Figure, Form, Series};
pub use plot::{escaped, svg};

use plot::COLOURS;
use std::fmt::Write;

/// Colours of series, on light and on dark: told apart by those who do not see red and green too.
const LIGHT: [&str; COLOURS] = ["#0b62a4", "#c8590a", "#1a7f5a", "#8f3fa0", "#8a6d00", "#5b6770"];
const DARK: [&str; COLOURS] = ["#6cb6ff", "#ff9e57", "#5ad1a4", "#d69ae6", "#e0c04c", "#a8b3bc"];

/// What a page begins with, up to where its content stands.
pub fn head(title: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{}</title>\n<style>\n{}</style></head><body><main>\n",
        escaped(title),
        style()
    )
}

/// What it ends with.
pub const END: &str = "</main></body></html>\n";

/// Draws a figure, with its title.
pub fn draw(page: &mut String, figure: &Figure) {
    // Writing to a string does not fail.
    let _ = write!(
        page,
        "<figure><figcaption>{}</figcaption>\n{}</figure>\n",
        escaped(&figure.title),
        svg(figure)
    );
}

/// A table with its title; nothing without rows.
pub fn tabulate<const COLUMNS: usize>(
    page: &mut String,
    title: &str,
    heads: [&str; COLUMNS],
    rows: impl Iterator<Item = [String; COLUMNS]>,
) {
    let line = |tag: &str, cells: &[String]| {
        let cell = |text: &String| format!("<{tag}>{}</{tag}>", escaped(text));
        format!("<tr>{}</tr>\n", cells.iter().map(cell).collect::<String>())
    };
    let rows: String = rows.map(|row| line("td", &row)).collect();
    if !rows.is_empty() {
        let heads = line("th", &heads.map(String::from));
        let _ = write!(page, "<h3>{}</h3>\n<table>\n{heads}{rows}</table>\n", escaped(title));
    }
}

fn style() -> String {
    let colours = |colours: &[&str; COLOURS]| -> String {
        let rule = |(n, colour)| format!(".f{n}{{fill:{colour}}}.s{n}{{stroke:{colour}}}\n");
        colours.iter().enumerate().map(rule).collect()
    };
    format!(
        ":root{{color-scheme:light dark;--ink:#1b1f24;--page:#fdfdfc;--quiet:#5b6570;--line:#d5d9de}}\n\
         body{{background:var(--page);color:var(--ink);font:16px/1.5 system-ui,sans-serif;margin:0}}\n\
         main{{max-width:60rem;margin:auto;padding:1.5rem}}\n\
         table{{border-collapse:collapse;width:100%;font-size:.9rem}}\n\
         th,td{{text-align:left;padding:.3rem .6rem;border-bottom:1px solid var(--line);vertical-align:top}}\n\
         figure{{margin:1rem 0;max-width:42rem}}figcaption{{font-weight:600}}svg{{width:100%;height:auto}}\n\
         svg text{{fill:var(--ink);font:12px system-ui,sans-serif}}.grid{{stroke:var(--line)}}\n\
         .axis{{stroke:var(--quiet);fill:none}}path[class^=s]{{fill:none;stroke-width:2}}\n\
         .where{{color:var(--quiet);font-size:.85rem}}\n\
         .pass{{color:#1a7f3c}}.miss{{color:#b3261e;font-weight:600}}.skipped{{color:var(--quiet)}}\n{}\
         @media(prefers-color-scheme:dark){{\n\
         :root{{--ink:#e6e9ec;--page:#14171a;--quiet:#9aa4ae;--line:#323940}}\n\
         a{{color:#8ec5ff}}.pass{{color:#5ad17e}}.miss{{color:#ff8a80}}\n{}}}\n",
        colours(&LIGHT),
        colours(&DARK)
    )
}
