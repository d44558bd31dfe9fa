//! Progress on standard error: a bar where someone watches a terminal; elsewhere (a pipe, a log, a script) a line after
//! five seconds and then every ten, so that no command is silent for long.

use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle, WeakProgressBar};
use std::io::{self, IsTerminal};
use std::time::Duration;

/// When a command that nobody watches on a terminal first says how far it is.
const FIRST_LINE: Duration = Duration::from_secs(5);
/// And how often after that.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// What the steps of a bar are.
#[derive(Clone)]
enum Unit {
    /// So many of these.
    Counted(String),
    /// Bytes of this.
    Bytes(String),
    /// Steps whose messages say what they are.
    Steps,
    /// One step, whose message says what is being done.
    None,
}

/// A bar over `total` steps, of bytes or of what `unit` names. `total` 0 means unknown: a count without an end.
pub fn bar(total: u64, unit: &str, bytes: bool) -> ProgressBar {
    let (position, length, rate) = match bytes {
        true => ("{bytes}", "{total_bytes}", "{bytes_per_sec}"),
        false => ("{human_pos}", "{human_len}", "{per_sec}"),
    };
    let of = if bytes { Unit::Bytes(unit.into()) } else { Unit::Counted(unit.into()) };
    match total {
        0 => shown(ProgressBar::new_spinner, &format!("{{spinner}} {position} {unit}, {rate}"), of),
        n => shown(
            || ProgressBar::new(n),
            &format!("{{wide_bar}} {position} of {length} {unit}, {rate}, {{eta}} left"),
            of,
        ),
    }
}

/// A bar of steps, whose number is told with the first, beside a name and what is being done.
pub fn steps(name: &str) -> ProgressBar {
    let template = "{prefix} {bar:24} {pos} of {len}, {elapsed}: {msg}";
    shown(|| ProgressBar::new(0).with_prefix(name.to_string()), template, Unit::Steps)
}

/// A spinner beside a name and what is being done.
pub fn spinner(name: &str) -> ProgressBar {
    let template = "{spinner} {prefix} {elapsed}: {msg}";
    shown(|| ProgressBar::new_spinner().with_prefix(name.to_string()), template, Unit::None)
}

/// Opening something of this name, which is told in lines alone, on a terminal too: most often it is over at once.
pub fn opening(kind: &str, name: &str) -> ProgressBar {
    let bar = ProgressBar::hidden().with_prefix(format!("opening {kind} {name}"));
    tell_in_lines(bar.downgrade(), Unit::None, [FIRST_LINE, LINE_EVERY], crate::output::say);
    bar
}

fn shown(make: impl FnOnce() -> ProgressBar, template: &str, unit: Unit) -> ProgressBar {
    let bar = make();
    if !io::stderr().is_terminal() {
        bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
        tell_in_lines(bar.downgrade(), unit, [FIRST_LINE, LINE_EVERY], crate::output::say);
        return bar;
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Says a line after the first of these times and then after each of the second, until the bar is finished or dropped.
fn tell_in_lines(
    bar: WeakProgressBar,
    unit: Unit,
    [first, every]: [Duration; 2],
    say: impl Fn(String) + Send + 'static,
) {
    std::thread::spawn(move || {
        std::thread::sleep(first);
        while let Some(bar) = bar.upgrade().filter(|bar| !bar.is_finished()) {
            say(line(&bar, &unit));
            drop(bar);
            std::thread::sleep(every);
        }
    });
}

/// How far a bar is, in a line.
fn line(bar: &ProgressBar, unit: &Unit) -> String {
    let (done, total) = (bar.position(), bar.length().filter(|total| *total > 0));
    let share = |done: &dyn std::fmt::Display, total: Option<String>| match total {
        Some(total) => format!("{done} of {total}"),
        None => done.to_string(),
    };
    let far = match unit {
        Unit::Counted(_) if done == 0 && total.is_none() => String::new(),
        Unit::Counted(_) => share(&HumanCount(done), total.map(|n| HumanCount(n).to_string())),
        Unit::Bytes(_) => share(&HumanBytes(done), total.map(|n| HumanBytes(n).to_string())),
        Unit::Steps => share(&done, total.map(|n| n.to_string())),
        Unit::None => String::new(),
    };
    let of = match unit {
        Unit::Counted(of) | Unit::Bytes(of) => of.as_str(),
        Unit::Steps | Unit::None => "",
    };
    let (name, doing) = (bar.prefix(), bar.message());
    let words = [name.as_str(), &far, of].map(str::trim);
    let words = words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    let doing = if doing.is_empty() { doing } else { format!(": {doing}") };
    format!("terrace: {words}, {} s so far{doing}", bar.elapsed().as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// A probe of a model said nothing for minutes where standard error was a file.
    #[test]
    fn a_bar_that_no_terminal_shows_tells_in_lines_until_it_is_finished() {
        let (tell, told) = mpsc::channel();
        let bar = ProgressBar::new(40).with_prefix("probe");
        bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
        bar.set_position(3);
        bar.set_message("dram0: latency");
        let times = [Duration::from_millis(1), Duration::from_millis(1)];
        tell_in_lines(bar.downgrade(), Unit::Steps, times, move |line| {
            let _ = tell.send(line);
        });
        for _ in 0..2 {
            let line = told.recv().expect("a line");
            assert_eq!(line, "terrace: probe 3 of 40, 0 s so far: dram0: latency");
        }
        bar.finish_and_clear();
        // The thread ends, and with it the channel.
        assert!(told.iter().count() < 100);
    }

    #[test]
    fn lines_say_how_much_of_what() {
        let hidden = |total| {
            let bar = ProgressBar::hidden();
            bar.set_length(total);
            bar.set_position(1 << 20);
            bar
        };
        let counted = line(&hidden(2 << 20), &Unit::Counted("keys".into()));
        assert_eq!(counted, "terrace: 1,048,576 of 2,097,152 keys, 0 s so far");
        let bytes = line(&hidden(2 << 20), &Unit::Bytes("checked".into()));
        assert_eq!(bytes, "terrace: 1.00 MiB of 2.00 MiB checked, 0 s so far");
        let unknown = line(&hidden(0), &Unit::Counted("keys".into()));
        assert_eq!(unknown, "terrace: 1,048,576 keys, 0 s so far");
        let one = line(&ProgressBar::hidden().with_prefix("kv-ycsb"), &Unit::None);
        assert_eq!(one, "terrace: kv-ycsb, 0 s so far");
    }
}
