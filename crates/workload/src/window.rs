//! How old an acknowledged operation was that a power cut took: what `interval(d)` promises is that none was older
//! than `d`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often the watcher looks how far the trace has come.
const LOOK: Duration = Duration::from_millis(5);
/// Time between two operations.
const BETWEEN: Duration = Duration::from_millis(1);

/// What was acknowledged when, and how far the trace of the medium had come meanwhile.
#[derive(Debug)]
pub struct Watched {
    acknowledged: Vec<Instant>,
    moments: Vec<(Instant, usize)>,
    /// How late the system let the watcher go on, at the most: the clock of whoever flushes may have been as late.
    pub late: Duration,
}

/// Does operations 0, 1, 2 ... for so long, one after another; each is acknowledged when `operation` returns.
pub fn watch(
    time: Duration,
    trace_length: impl Fn() -> usize + Sync,
    mut operation: impl FnMut(u64),
) -> Watched {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let (mut moments, mut late) = (Vec::new(), Duration::ZERO);
            while !over.load(Ordering::Relaxed) {
                let now = Instant::now();
                moments.push((now, trace_length()));
                std::thread::sleep(LOOK);
                late = late.max(now.elapsed().saturating_sub(LOOK));
            }
            (moments, late)
        });
        let begun = Instant::now();
        let mut acknowledged = Vec::new();
        while begun.elapsed() < time {
            operation(acknowledged.len() as u64);
            acknowledged.push(Instant::now());
            std::thread::sleep(BETWEEN);
        }
        over.store(true, Ordering::Relaxed);
        let (moments, late) = watcher.join().expect("it only looks");
        Watched { acknowledged, moments, late }
    })
}

impl Watched {
    /// The age of the oldest acknowledged operation that a power cut takes, over so many moments; `survivors` says how
    /// many of the first operations survive one after so many events of the trace.
    pub fn oldest_lost(
        &self,
        moments: usize,
        mut survivors: impl FnMut(usize) -> usize,
    ) -> Duration {
        let every = (self.moments.len() / moments).max(1);
        let ages = self.moments.iter().step_by(every).filter_map(|(moment, events)| {
            let lost = self.acknowledged.get(survivors(*events))?;
            Some(moment.saturating_duration_since(*lost))
        });
        ages.max().unwrap_or_default()
    }
}
