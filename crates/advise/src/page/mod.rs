//! Pages that need nothing beside them: HTML with drawings, for a light background and for a dark one. Chart.js draws
//! (MIT, `chart/LICENSE.txt`); it stands in every page as it was published, so that a page works without a network.

mod figure;

pub use figure::{Figure, FigureKind, Mark, Series};

use std::fmt::Write;

/// Chart.js 4.6.1, the file `dist/chart.umd.min.js` of its npm package.
const LIBRARY: &str = include_str!("chart/chart.umd.min.js");
/// What draws the figures of a page with it.
const DRAW: &str = include_str!("chart/draw.js");
/// Colours that series take in turn.
const COLOURS: usize = 6;

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

/// What it ends with: the library, and what draws its figures.
pub fn end() -> String {
    // The comment behind names a file that is not there.
    let library = LIBRARY.split("//# sourceMappingURL").next().unwrap_or(LIBRARY);
    format!("</main>\n<script>{library}</script>\n<script>{DRAW}</script>\n</body></html>\n")
}

/// A figure with its title; the page's end draws it.
///
/// # Panics
/// Never: a figure is text and numbers.
pub fn draw(page: &mut String, figure: &Figure) {
    let json = serde_json::to_string(figure).expect("text and numbers");
    // In a page `</script>` would end it, wherever it stood.
    let json = json.replace('<', "\\u003c");
    // Writing to a string does not fail.
    let _ = write!(
        page,
        "<figure><figcaption>{}</figcaption>\n<div class=\"plot\"><canvas role=\"img\" aria-label=\"{}\"></canvas>\n\
         <script type=\"application/json\" data-figure>{json}</script></div></figure>\n",
        escaped(&figure.title),
        escaped(&figure.title)
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

/// Text as HTML shows it.
pub fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn style() -> String {
    let colours = |colours: &[&str; COLOURS]| -> String {
        let one = |(n, colour)| format!("--c{n}:{colour};");
        colours.iter().enumerate().map(one).collect()
    };
    format!(
        ":root{{color-scheme:light dark;--ink:#1b1f24;--page:#fdfdfc;--quiet:#5b6570;--line:#d5d9de;{}}}\n\
         body{{background:var(--page);color:var(--ink);font:16px/1.5 system-ui,sans-serif;margin:0}}\n\
         main{{max-width:60rem;margin:auto;padding:1.5rem}}\n\
         table{{border-collapse:collapse;width:100%;font-size:.9rem}}\n\
         th,td{{text-align:left;padding:.3rem .6rem;border-bottom:1px solid var(--line);vertical-align:top}}\n\
         figure{{margin:1rem 0;max-width:46rem}}figcaption{{font-weight:600}}\n\
         .plot{{position:relative;height:24rem}}pre{{overflow-x:auto;font-size:.8rem}}\n\
         .where{{color:var(--quiet);font-size:.85rem}}\n\
         .badge{{border:1px solid var(--line);border-radius:1rem;padding:.1rem .7rem;font-size:.85rem}}\n\
         .quiet{{color:#1a7f3c}}.noisy{{color:#b3261e;font-weight:600}}\n\
         .pass{{color:#1a7f3c}}.miss{{color:#b3261e;font-weight:600}}.order{{color:#8a6100}}\n\
         .skipped{{color:var(--quiet)}}\n\
         @media(prefers-color-scheme:dark){{\n\
         :root{{--ink:#e6e9ec;--page:#14171a;--quiet:#9aa4ae;--line:#323940;{}}}\n\
         a{{color:#8ec5ff}}.pass,.quiet{{color:#5ad17e}}.miss,.noisy{{color:#ff8a80}}.order{{color:#ffcf70}}}}\n",
        colours(&LIGHT),
        colours(&DARK)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_whole_and_draws_its_figures_without_a_network() {
        let figure = Figure::new("Updates & </script>", "value, B", "ns", FigureKind::LogLines)
            .over([64, 256])
            .with("p50", [100.0, 250.0])
            .marked(0.5, "largest cache");
        let mut page = head("Title");
        draw(&mut page, &figure);
        page.push_str(&end());
        for words in [
            "Updates &amp; &lt;/script&gt;",
            "\\u003c/script>",
            "\"p50\"",
            "\"largest cache\"",
            "new Chart(",
        ] {
            assert!(page.contains(words), "{words}");
        }
        assert_eq!(page.matches("<script").count(), 3);
        assert_eq!(page.matches("</script>").count(), 3, "no text of a figure ends a script");
        assert!(!page.contains("src=") && !page.contains("sourceMappingURL"), "nothing beside it");
        assert!(page.contains("prefers-color-scheme:dark") && page.ends_with("</html>\n"));
    }

    #[test]
    fn the_library_is_as_it_was_published_with_its_licence() {
        assert!(LIBRARY.contains("Chart.js v4.6.1") && LIBRARY.contains("MIT License"));
        assert!(!LIBRARY.contains("</script"));
        assert!(include_str!("chart/LICENSE.txt").contains("Permission is hereby granted"));
    }
}
