//! Figures as SVG, drawn here: small, legible, and without a word that is not in the figure.
//!
//! Colours are classes (`s0`, `s1`, ..., `axis`, `grid`), so that the page around decides them, for a
//! light background and for a dark one.

use super::figure::{Figure, Form};
use std::fmt::Write;

/// Size of a drawing and of its margins, in units of the drawing.
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 74.0;
/// Colours the page knows.
pub(super) const COLOURS: usize = 6;

/// An axis of numbers: from `low` to `high`, by values or by powers of ten.
struct Scale {
    low: f64,
    high: f64,
    powers: bool,
}

impl Scale {
    fn of(figure: &Figure) -> Scale {
        let most = figure.largest();
        if figure.form == Form::LogLines {
            let least = figure.smallest().unwrap_or(1.0);
            let high = 10f64.powf(most.max(least).log10().ceil());
            let low = 10f64.powf(least.log10().floor()).min(high / 10.0);
            return Scale { low, high, powers: true };
        }
        Scale::from_zero(most)
    }

    fn from_zero(most: f64) -> Scale {
        let step = step(most);
        Scale { low: 0.0, high: (most / step).ceil().max(1.0) * step, powers: false }
    }

    fn ticks(&self) -> Vec<f64> {
        if self.powers {
            let decades = (self.high / self.low).log10().round() as i32;
            return (0..=decades).map(|power| self.low * 10f64.powi(power)).collect();
        }
        let step = step(self.high);
        (0..=(self.high / step).round() as u32).map(|n| f64::from(n) * step).collect()
    }

    /// How far along the axis `value` is, from 0 to 1.
    fn share(&self, value: f64) -> f64 {
        let share = match self.powers {
            true => (value.max(self.low) / self.low).log10() / (self.high / self.low).log10(),
            false => value / self.high,
        };
        share.clamp(0.0, 1.0)
    }

    /// Distance of `value` from the top of the drawing.
    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - self.share(value) * (HEIGHT - BOTTOM - TOP)
    }

    /// The same from its left.
    fn x(&self, value: f64) -> f64 {
        LEFT + self.share(value) * (WIDTH - RIGHT - LEFT)
    }
}

/// A round number that divides `most` into two to six parts.
fn step(most: f64) -> f64 {
    let most = if most > 0.0 { most } else { 1.0 };
    let power = 10f64.powf(most.log10().floor());
    [0.2, 0.5, 1.0, 2.0]
        .map(|part| part * power)
        .into_iter()
        .find(|step| most / step <= 6.0)
        .unwrap_or(power)
}

/// The figure as an `svg` element.
pub fn svg(figure: &Figure) -> String {
    let scale = Scale::of(figure);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n",
        escaped(&figure.title)
    );
    axes(&mut svg, figure, &scale);
    match figure.form {
        Form::Bars => bars(&mut svg, figure, &scale),
        Form::Stacked => stacks(&mut svg, figure, &scale),
        Form::Lines | Form::LogLines | Form::Curves => lines(&mut svg, figure, &scale),
    }
    legend(&mut svg, figure);
    svg.push_str("</svg>\n");
    svg
}

/// The width a place on the horizontal axis has.
fn place_width(figure: &Figure) -> f64 {
    (WIDTH - LEFT - RIGHT) / figure.places.len().max(1) as f64
}

/// The middle of a place.
fn place_x(figure: &Figure, place: usize) -> f64 {
    LEFT + (place as f64 + 0.5) * place_width(figure)
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
        escaped(words)
    );
}

fn axes(svg: &mut String, figure: &Figure, scale: &Scale) {
    for tick in scale.ticks() {
        let y = scale.y(tick);
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{}\" y2=\"{y:.1}\"/>",
            WIDTH - RIGHT
        );
        text(svg, LEFT - 6.0, y + 4.0, "end", &number(tick));
    }
    let floor = HEIGHT - BOTTOM;
    let _ = writeln!(svg, "<path class=\"axis\" d=\"M{LEFT} {TOP}V{floor}H{}\"/>", WIDTH - RIGHT);
    for (place, name) in figure.places.iter().enumerate() {
        text(svg, place_x(figure, place), floor + 16.0, "middle", name);
    }
    if figure.form == Form::Curves {
        let across = Scale::from_zero(figure.furthest());
        for tick in across.ticks() {
            text(svg, across.x(tick), floor + 16.0, "middle", &number(tick));
        }
    }
    text(svg, (LEFT + WIDTH - RIGHT) / 2.0, floor + 34.0, "middle", &figure.across);
    let middle = (TOP + floor) / 2.0;
    let _ = writeln!(
        svg,
        "<text transform=\"translate(14 {middle}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
        escaped(&figure.up)
    );
}

fn bar(svg: &mut String, series: usize, [x, width]: [f64; 2], [from, to]: [f64; 2], words: &str) {
    let (top, height) = (from.min(to), (from - to).abs());
    let _ = writeln!(
        svg,
        "<rect class=\"f{}\" x=\"{x:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\">\
         <title>{}</title></rect>",
        series % COLOURS,
        escaped(words)
    );
}

fn bars(svg: &mut String, figure: &Figure, scale: &Scale) {
    let width = place_width(figure) * 0.8 / figure.series.len().max(1) as f64;
    for (number, series) in figure.series.iter().enumerate() {
        for (place, value) in series.values.iter().enumerate() {
            let left = place_x(figure, place) - place_width(figure) * 0.4 + number as f64 * width;
            let words = format!("{}: {value}", series.name);
            bar(svg, number, [left, width * 0.92], [scale.y(0.0), scale.y(*value)], &words);
        }
    }
}

fn stacks(svg: &mut String, figure: &Figure, scale: &Scale) {
    let width = (place_width(figure) * 0.6).min(60.0);
    for place in 0..figure.places.len() {
        let mut below = 0.0;
        for (number, series) in figure.series.iter().enumerate() {
            let Some(value) = series.values.get(place) else { continue };
            let from_to = [scale.y(below), scale.y(below + value)];
            let words = format!("{}: {value}", series.name);
            bar(svg, number, [place_x(figure, place) - width / 2.0, width], from_to, &words);
            below += value;
        }
    }
}

fn lines(svg: &mut String, figure: &Figure, scale: &Scale) {
    let across = Scale::from_zero(figure.furthest());
    for (number, series) in figure.series.iter().enumerate() {
        let colour = number % COLOURS;
        let x = |place: usize| match series.across.get(place) {
            Some(value) => across.x(*value),
            None => place_x(figure, place),
        };
        let at = |(place, value): (usize, &f64)| (x(place), scale.y(*value));
        let path: Vec<String> = series
            .values
            .iter()
            .enumerate()
            .map(&at)
            .map(|(x, y)| format!("{x:.1} {y:.1}"))
            .collect();
        let _ = writeln!(svg, "<path class=\"s{colour}\" d=\"M{}\"/>", path.join("L"));
        for (place, value) in series.values.iter().enumerate() {
            let (x, y) = at((place, value));
            let _ = writeln!(
                svg,
                "<circle class=\"f{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\">\
                 <title>{}: {value}</title></circle>",
                escaped(&series.name)
            );
        }
    }
}

fn legend(svg: &mut String, figure: &Figure) {
    let mut x = LEFT;
    for (number, series) in figure.series.iter().enumerate() {
        let y = HEIGHT - 14.0;
        let _ = writeln!(
            svg,
            "<rect class=\"f{}\" x=\"{x:.1}\" y=\"{:.1}\" width=\"10\" height=\"10\"/>",
            number % COLOURS,
            y - 9.0
        );
        text(svg, x + 14.0, y, "start", &series.name);
        // Widths of letters are not known here; this is enough for any of them at this size.
        x += 30.0 + 6.6 * series.name.len() as f64;
    }
}

/// A tick in few letters: `0`, `250`, `1.5k`, `20M`.
fn number(value: f64) -> String {
    let short = |value: f64| {
        let text = format!("{value:.2}");
        text.trim_end_matches('0').trim_end_matches('.').to_string()
    };
    match value {
        v if v >= 1e6 => short(v / 1e6) + "M",
        v if v >= 1e4 => short(v / 1e3) + "k",
        v if v == 0.0 || v >= 0.01 => short(v),
        v => format!("{v:.0e}"),
    }
}

/// Text as HTML shows it.
pub fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(form: Form) -> Figure {
        Figure::new("Updates & deletes", "value, B", "ns", form)
            .over([64, 256])
            .with("slabs", [100.0, 250.0])
            .with("logs", [90.0, 400.0])
    }

    #[test]
    fn every_form_shows_its_axes_its_places_and_its_series() {
        for form in [Form::Bars, Form::Stacked, Form::Lines, Form::LogLines] {
            let svg = svg(&figure(form));
            for words in ["value, B", ">ns<", ">64<", ">256<", ">slabs<", "slabs: 250", "logs: 400"]
            {
                assert!(svg.contains(words), "{form:?} shows {words}: {svg}");
            }
            assert!(svg.contains("Updates &amp; deletes"));
            assert!(!svg.contains("NaN") && !svg.contains("inf"));
            assert_eq!(svg.matches('<').count(), svg.matches('>').count());
        }
    }

    #[test]
    fn larger_values_are_higher_up_and_none_leaves_the_drawing() {
        for form in [Form::Bars, Form::Stacked, Form::LogLines] {
            let scale = Scale::of(&figure(form));
            let ys = [90.0, 100.0, 250.0, 400.0].map(|value| scale.y(value));
            assert!(ys.is_sorted_by(|a, b| a > b), "{ys:?}");
            assert!(ys.iter().all(|y| (TOP..=HEIGHT - BOTTOM).contains(y)));
            let ticks = scale.ticks();
            assert!((2..=8).contains(&ticks.len()), "{ticks:?}");
            assert!(ticks.last().is_some_and(|last| *last >= 400.0), "{ticks:?}");
        }
        assert!(Scale::of(&figure(Form::Stacked)).high >= 650.0, "a stack is as high as its sum");
    }

    #[test]
    fn a_curve_goes_through_its_points_in_their_order() {
        let curves = Figure::new("Loads", "GB/s", "ns", Form::Curves)
            .through("100 % reads", [[1.0, 100.0], [4.0, 110.0], [5.0, 400.0], [4.5, 600.0]])
            .through("50 % reads", [[2.5, 90.0]]);
        let svg = svg(&curves);
        // 0 to 5 across, 0 to 600 up: the first point is at a fifth, the last at nine tenths and at the top.
        assert!(svg.contains("d=\"M165.6 190.7L452.4 "), "{svg}");
        assert!(svg.contains(&format!("L500.2 {TOP:.1}\"")), "{svg}");
        for words in [">GB/s<", ">5<", ">600<", "50 % reads: 90"] {
            assert!(svg.contains(words), "{words}: {svg}");
        }
    }

    #[test]
    fn a_figure_of_nothing_is_drawn_too() {
        for form in [Form::Bars, Form::Stacked, Form::Lines, Form::LogLines, Form::Curves] {
            let empty = Figure::new("nothing", "across", "up", form);
            assert!(svg(&empty).ends_with("</svg>\n"));
            let zero = empty.over(["here"]).with("series", [0.0]);
            assert!(!svg(&zero).contains("NaN"));
        }
    }

    #[test]
    fn ticks_are_short() {
        let texts = [0.0, 0.05, 1.5, 250.0, 12_500.0, 2e7, 1e-5].map(number);
        assert_eq!(texts, ["0", "0.05", "1.5", "250", "12.5k", "20M", "1e-5"]);
    }
}
