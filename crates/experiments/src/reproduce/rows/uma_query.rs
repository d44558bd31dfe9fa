//! `uma-query`: TPC-H's query 1 as a plan of kernels (unified memory, section on analytics; no figure is told).
//!
//! Every operator is a kernel over all rows: rows that the filter leaves are counted, the host adds the counts up, the
//! rows are gathered, sorted by their group in two radix passes, whose histograms the host adds up, and summed group by
//! group. A kernel's end is the barrier between them, as on a device without one. The device here is the processor's
//! threads; a GPU's column is not built.

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::measure::Samples;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use terrace_workload::random::Rng;

pub(super) const ROW: Row = Row {
    id: "uma-query",
    source: "unified memory, analytics query",
    runs_on: "native; gpu: not built",
    must_show: "the answer is that of row by row (and SQL's, in a test); what each operator takes; time grows with rows",
    run,
};

/// Rows whose columns are arrays. Prices are in cents, rates and quantities in hundredths.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    /// `l_returnflag` and `l_linestatus`, in the upper and the lower byte.
    pub group: Vec<u16>,
    /// `l_shipdate`, in days since 1970.
    pub shipped: Vec<i32>,
    /// `l_quantity`.
    pub quantity: Vec<i64>,
    /// `l_extendedprice`.
    pub price: Vec<i64>,
    /// `l_discount`.
    pub discount: Vec<i64>,
    /// `l_tax`.
    pub tax: Vec<i64>,
}

/// What query 1 says of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Rows.
    pub count: u64,
    /// Of quantities, in hundredths.
    pub quantity: i64,
    /// Of prices, in cents.
    pub price: i64,
    /// Of prices less discount, in ten thousandths.
    pub discounted: i64,
    /// Of these with tax, in millionths.
    pub charged: i64,
}

/// The answer: by group.
pub type Answer = BTreeMap<u16, Sums>;

/// The last day of the paper's query: 1998-09-04.
pub const LAST_DAY: i32 = 10_473;

impl Lines {
    /// Draws so many, with the distributions of TPC-H.
    ///
    /// ```
    /// let lines = terrace_experiments::reproduce::Lines::draw(100, 1);
    /// assert_eq!(lines.group.len(), 100);
    /// ```
    pub fn draw(rows: usize, seed: u64) -> Lines {
        let (mut lines, mut random) = (Lines::default(), Rng::new(seed));
        for _ in 0..rows {
            // From 1992-01-02 on; what was received before 1995-06-17 may have been returned.
            let shipped = 8_036 + random.below(2_526) as i32;
            let is_old = shipped + 1 + random.below(30) as i32 <= 9_298;
            let flag = if is_old { *b"AR".get(random.below(2) as usize).unwrap_or(&b'A') } else { b'N' };
            let status = if shipped <= 9_298 { b'F' } else { b'O' };
            let pieces = 1 + random.below(50) as i64;
            lines.group.push(u16::from_be_bytes([flag, status]));
            lines.shipped.push(shipped);
            lines.quantity.push(pieces * 100);
            lines.price.push(pieces * (90_000 + random.below(110_000) as i64));
            lines.discount.push(random.below(11) as i64);
            lines.tax.push(random.below(9) as i64);
        }
        lines
    }

    fn add(&self, row: usize, to: &mut Sums) {
        let discounted = self.price[row] * (100 - self.discount[row]);
        to.count += 1;
        to.quantity += self.quantity[row];
        to.price += self.price[row];
        to.discounted += discounted;
        to.charged += discounted * (100 + self.tax[row]);
    }

    /// The answer, row by row.
    ///
    /// ```
    /// use terrace_experiments::reproduce::{Lines, LAST_DAY};
    /// let lines = Lines::draw(1_000, 1);
    /// assert_eq!(lines.row_by_row(LAST_DAY), lines.by_kernels(LAST_DAY, 2).0);
    /// ```
    pub fn row_by_row(&self, last_day: i32) -> Answer {
        let mut answer = Answer::new();
        for (row, group) in self.group.iter().enumerate() {
            if self.shipped[row] <= last_day {
                self.add(row, answer.entry(*group).or_default());
            }
        }
        answer
    }

    /// The answer by kernels on so many threads, and what each operator took, in ms: count, filter, sort, sum.
    ///
    /// ```
    /// let lines = terrace_experiments::reproduce::Lines::draw(1_000, 1);
    /// assert_eq!(lines.by_kernels(0, 1).0.len(), 0);
    /// ```
    pub fn by_kernels(&self, last_day: i32, threads: usize) -> (Answer, [f64; 4]) {
        // The device's memory is there before the query comes.
        let (found, mut other) = (memory(self.group.len()), memory(self.group.len()));
        let mut clock = Clock { since: Instant::now(), took_ms: Vec::new() };
        let parts = parts(self.group.len(), threads);
        let is_left = |row: &usize| self.shipped[*row] <= last_day;
        let counts = launch(&parts, |rows| rows.filter(is_left).count());
        clock.lap();
        let left: usize = counts.iter().sum();
        let ends = ends(&counts);
        let places: Vec<(Range<usize>, usize)> = parts.iter().cloned().zip(ends).collect();
        launch(&places, |(rows, begin)| {
            for (slot, row) in found[begin..].iter().zip(rows.filter(is_left)) {
                slot.store(u64::from(self.group[row]) << 32 | row as u64, Ordering::Relaxed);
            }
        });
        clock.lap();
        let mut sorted = found;
        for shift in [32, 40] {
            radix_pass(&sorted[..left], &other, shift, threads);
            std::mem::swap(&mut sorted, &mut other);
        }
        clock.lap();
        let sums = launch(&self::parts(left, threads), |rows| {
            let mut groups: Vec<(u16, Sums)> = Vec::new();
            for slot in &sorted[rows] {
                let entry = slot.load(Ordering::Relaxed);
                let (group, row) = ((entry >> 32) as u16, entry as u32 as usize);
                if groups.last().is_none_or(|(last, _)| *last != group) {
                    groups.push((group, Sums::default()));
                }
                if let Some((_, sums)) = groups.last_mut() {
                    self.add(row, sums);
                }
            }
            groups
        });
        let mut answer = Answer::new();
        for (group, sums) in sums.into_iter().flatten() {
            let all = answer.entry(group).or_default();
            all.count += sums.count;
            all.quantity += sums.quantity;
            all.price += sums.price;
            all.discounted += sums.discounted;
            all.charged += sums.charged;
        }
        clock.lap();
        let took = clock.took_ms.try_into().expect("invariant: of four operators");
        (answer, took)
    }
}

struct Clock {
    since: Instant,
    took_ms: Vec<f64>,
}

impl Clock {
    fn lap(&mut self) {
        self.took_ms.push(self.since.elapsed().as_secs_f64() * 1e3);
        self.since = Instant::now();
    }
}

/// Memory of the device.
fn memory(words: usize) -> Vec<AtomicU64> {
    (0..words).map(|_| AtomicU64::new(0)).collect()
}

/// So many rows in as many parts as there are threads.
fn parts(rows: usize, threads: usize) -> Vec<Range<usize>> {
    let each = rows.div_ceil(threads.max(1)).max(1);
    (0..threads).map(|part| (part * each).min(rows)..((part + 1) * each).min(rows)).collect()
}

/// Where each of these begins.
fn ends(counts: &[usize]) -> Vec<usize> {
    let next = |sum: &mut usize, count: &usize| Some(std::mem::replace(sum, *sum + count));
    counts.iter().scan(0, next).collect()
}

/// Runs a kernel: a thread for each part; returns when all have ended.
fn launch<P: Clone + Send, R: Send>(parts: &[P], kernel: impl Fn(P) -> R + Sync) -> Vec<R> {
    let kernel = &kernel;
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            parts.iter().cloned().map(|part| scope.spawn(move || kernel(part))).collect();
        threads.into_iter().map(|thread| thread.join().expect("invariant: kernels end")).collect()
    })
}

/// Sorts by a byte, and leaves the order of equal ones as it was.
fn radix_pass(from: &[AtomicU64], to: &[AtomicU64], shift: u32, threads: usize) {
    let digit = |slot: &AtomicU64| (slot.load(Ordering::Relaxed) >> shift) as u8 as usize;
    let parts = parts(from.len(), threads);
    let counts = launch(&parts, |rows| {
        let mut counts = vec![0usize; 256];
        from[rows].iter().for_each(|slot| counts[digit(slot)] += 1);
        counts
    });
    // By digit, and within a digit by part: the host's work, as no kernel sees all counts.
    let mut begins = vec![vec![0usize; 256]; parts.len()];
    let mut next = 0;
    for digit in 0..256 {
        for (begins, counts) in begins.iter_mut().zip(&counts) {
            begins[digit] = next;
            next += counts[digit];
        }
    }
    let places: Vec<_> = parts.into_iter().zip(begins).collect();
    launch(&places, |(rows, mut begins)| {
        for slot in &from[rows] {
            let begin = &mut begins[digit(slot)];
            to[*begin].store(slot.load(Ordering::Relaxed), Ordering::Relaxed);
            *begin += 1;
        }
    });
}

#[derive(Debug, Default)]
struct Counted {
    /// By size: what all operators took, and row by row, ns a row.
    kernels_ns: Vec<f64>,
    row_by_row_ns: Vec<f64>,
    /// Of the largest: ms of each operator; and all of it on one thread over that on two.
    operators_ms: [f64; 4],
    speedup: f64,
    differ: u64,
    /// Groups that differ where a day less is asked for.
    control: u64,
}

fn run(run: &Run<'_>) -> Result<Outcome> {
    let largest = run.size(64_000_000, 4_000_000);
    let (sizes, rounds) = ([largest / 4, largest / 2, largest], run.size(5, 5));
    let mut counted = Counted::default();
    for rows in sizes {
        (run.tell)(&format!("{rows} rows"));
        let lines = Lines::draw(rows, 3);
        let mut samples = [(); 7].map(|()| Samples::default());
        for _ in 0..rounds {
            let start = Instant::now();
            let expected = lines.row_by_row(LAST_DAY);
            samples[4].push(start.elapsed().as_secs_f64() * 1e9 / rows as f64);
            let (one, took) = lines.by_kernels(LAST_DAY, 1);
            samples[6].push(took.iter().sum());
            let (answer, took) = lines.by_kernels(LAST_DAY, 2);
            samples[5].push(took.iter().sum());
            took.into_iter().zip(&mut samples).for_each(|(took, samples)| samples.push(took));
            counted.differ += u64::from(answer != expected) + u64::from(one != expected);
            counted.control += u64::from(lines.by_kernels(LAST_DAY - 1, 2).0 != expected);
        }
        let all_ms = samples[5].median();
        counted.kernels_ns.push(all_ms * 1e6 / rows as f64);
        counted.row_by_row_ns.push(samples[4].median());
        counted.operators_ms = [0, 1, 2, 3].map(|at| samples[at].median());
        counted.speedup = samples[6].median() / all_ms;
    }
    let mut outcome = judge(&counted, &sizes);
    outcome.size("rows", format!("{sizes:?}"));
    outcome.size("threads of the device", 2);
    outcome.size("repetitions", rounds);
    Ok(outcome)
}

fn judge(counted: &Counted, sizes: &[usize; 3]) -> Outcome {
    let mut outcome = Outcome::default();
    outcome.checks.extend([
        Check::at_most("answers that are not those of row by row", "0", counted.differ as f64, 0.0).order(),
        Check::at_least("control: answers that differ with a day less", "all", counted.control as f64, 15.0).order(),
        Check::within(
            "time a row of the most rows over that of a quarter of them",
            "1: linear",
            counted.kernels_ns[2] / counted.kernels_ns[0],
            0.67,
            1.5,
        ),
    ]);
    let check = Check::at_least("speed of two threads over one", "none told", counted.speedup, 1.3);
    outcome.checks.extend(check.and_order());
    outcome.note = format!(
        "Of the most rows: count {:.1} ms, filter {:.1} ms, sort {:.1} ms, sum {:.1} ms: {:.1} ns a row. Row by row, \
         which sorts nothing since there are few groups, one thread takes {:.1} ns. The paper shows the plan on a GPU \
         against HeavyDB, and no figures that could be compared.",
        counted.operators_ms[0],
        counted.operators_ms[1],
        counted.operators_ms[2],
        counted.operators_ms[3],
        counted.kernels_ns[2],
        counted.row_by_row_ns[2],
    );
    let title = "Operators of query 1";
    let figure = Figure::new(title, "", "ms", FigureKind::Bars).over(["count", "filter", "sort", "sum"]);
    outcome.figures.push(figure.with("two threads", counted.operators_ms));
    let title = "Time a row";
    let sizes = sizes.map(|rows| rows as f64);
    let figure = Figure::new(title, "rows", "ns", FigureKind::Lines).over(sizes);
    let figure = figure.with("kernels, two threads", counted.kernels_ns.iter().copied());
    outcome.figures.push(figure.with("row by row", counted.row_by_row_ns.iter().copied()));
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_answer_as_row_by_row_whatever_the_parts() {
        for rows in [0, 1, 7, 1000] {
            let lines = Lines::draw(rows, 5);
            for threads in [1, 2, 3, 16] {
                for day in [LAST_DAY, 9_000, 0] {
                    assert_eq!(lines.by_kernels(day, threads).0, lines.row_by_row(day), "{rows} {threads} {day}");
                }
            }
        }
    }
}
