//! Recorded workloads on the modelled processor: every design, the same sections, virtual time.

use super::recorded::RecordedWorkload;
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use terrace_machine::ssp::{
    Design, Events, LinesWritten, Parameters, Processor, Refused, SectionTape,
};

/// Of all sections, one of so many warms up.
const WARM_UP: usize = 5;
/// Workloads of table 3.2 that are micro-benchmarks: the first seven.
const MICRO: usize = 7;

/// What one design did with a workload.
#[derive(Clone, Copy, Debug)]
pub struct HardwareRun {
    /// The design.
    pub design: Design,
    /// Sections of all cores a second of virtual time.
    pub sections_per_second: f64,
    /// Lines written to persistent memory.
    pub written: LinesWritten,
    /// What else happened.
    pub events: Events,
    /// Processor time that modelling it took on this computer.
    pub took: Duration,
}

/// Workloads, each on all designs of [`Design::ALL`].
#[derive(Clone, Debug)]
pub struct Designs {
    /// The workloads' names.
    pub names: Vec<&'static str>,
    /// A run for each design, in its order.
    pub runs: Vec<[HardwareRun; 4]>,
}

impl Designs {
    /// A figure of every workload: of shadow sub-paging, and of a rival.
    pub fn each(
        &self,
        rival: Design,
        figure: impl Fn(&HardwareRun, &HardwareRun) -> f64,
    ) -> Vec<f64> {
        let of = |runs: &[HardwareRun; 4]| {
            let ours = runs.iter().find(|run| run.design == Design::Ssp);
            let theirs = runs.iter().find(|run| run.design == rival);
            ours.zip(theirs).map_or(f64::NAN, |(ours, theirs)| figure(ours, theirs))
        };
        self.runs.iter().map(of).collect()
    }

    /// Sections that shadow sub-paging did while the rival did one.
    pub fn speed_over(&self, rival: Design) -> Vec<f64> {
        self.each(rival, |ours, theirs| ours.sections_per_second / theirs.sections_per_second)
    }

    /// Lines that shadow sub-paging wrote for each of the rival's.
    pub fn lines_over(&self, rival: Design) -> Vec<f64> {
        self.each(rival, |ours, theirs| ours.written.all() as f64 / theirs.written.all() as f64)
    }

    /// The geometric mean over the micro-benchmarks.
    pub fn micro(figures: &[f64]) -> f64 {
        let micro = &figures[..MICRO.min(figures.len())];
        (micro.iter().map(|figure| figure.ln()).sum::<f64>() / micro.len() as f64).exp()
    }

    /// Loads and stores that one processor of this computer modelled in a second, over all runs.
    pub fn accesses_per_second(&self) -> f64 {
        let runs = || self.runs.iter().flatten();
        let accesses: u64 = runs().map(|run| run.events.accesses).sum();
        let took: f64 = runs().map(|run| run.took.as_secs_f64()).sum();
        accesses as f64 / took
    }

    /// The figure of one workload.
    pub fn of(&self, name: &str, figures: &[f64]) -> f64 {
        let at = self.names.iter().position(|of| *of == name);
        at.and_then(|at| figures.get(at)).copied().unwrap_or(f64::NAN)
    }
}

/// Of this thread, so far.
fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

fn run(
    workload: &RecordedWorkload,
    parameters: &Parameters,
    design: Design,
    sections: usize,
) -> Result<HardwareRun, Refused> {
    let mut processor = Processor::new(parameters, design, workload.pages);
    let tapes: Vec<&SectionTape> = workload.tapes.iter().collect();
    let warm = 1 + sections / WARM_UP;
    processor.play(&tapes, 0..warm)?;
    processor.clear_counts();
    let (start, began) = (processor.elapsed_ps(), processor_time());
    processor.play(&tapes, warm..sections + 1)?;
    let took = processor_time().saturating_sub(began);
    let (events, written) = (processor.events(), processor.written());
    let seconds = (processor.elapsed_ps() - start) as f64 / 1e12;
    Ok(HardwareRun {
        design,
        sections_per_second: events.sections as f64 / seconds,
        written,
        events,
        took,
    })
}

/// Plays so many sections of each tape of the workloads on every design: a fifth to warm up, the rest counts.
///
/// ```
/// use terrace_experiments::sections::{Designs, Settings, compare, record};
/// use terrace_machine::ssp::{Design, Parameters};
///
/// let settings =
///     Settings { sections: 50, keys: 400, tuples: 400, pool_bytes: 8 << 20, ..Settings::default() };
/// let recorded = record(&settings, 1, |_| {})?;
/// let designs = compare(&recorded, &Parameters::ssp_sim(1), 50)?;
/// assert!(Designs::micro(&designs.speed_over(Design::Undo)) > 1.0);
/// assert!(designs.lines_over(Design::None).iter().all(|ratio| *ratio > 1.0));
/// assert!(designs.accesses_per_second() > 0.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// A section that is too large for a design.
pub fn compare(
    workloads: &[RecordedWorkload],
    parameters: &Parameters,
    sections: usize,
) -> Result<Designs, Refused> {
    let next = AtomicUsize::new(0);
    let next = || {
        let at = next.fetch_add(1, Ordering::Relaxed);
        workloads.get(at).map(|workload| (at, workload))
    };
    let work = || {
        let mut found = Vec::new();
        while let Some((at, workload)) = next() {
            let [none, undo, redo, ssp] =
                Design::ALL.map(|design| run(workload, parameters, design, sections));
            found.push((at, [none?, undo?, redo?, ssp?]));
        }
        Ok(found)
    };
    // Each of the processors is alone with its workload: which thread models it changes nothing.
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut found = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..threads.min(workloads.len())).map(|_| scope.spawn(work)).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<Vec<_>, Refused>>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect::<Result<Vec<_>, Refused>>()
    })?
    .concat();
    found.sort_by_key(|(at, _)| *at);
    let runs = found.into_iter().map(|(_, runs)| runs).collect();
    Ok(Designs { names: workloads.iter().map(|workload| workload.name).collect(), runs })
}
