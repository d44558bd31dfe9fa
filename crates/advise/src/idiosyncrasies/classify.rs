//! From measurements to causes: the procedure of Gugnani, section 3, and its table 1.
//!
//! Each test was made to bring out certain parts of a machine ([`Component`]): some of the platform
//! around the memory (caches, links, prefetchers of the processor), some of the memory itself. Which of
//! them an effect is due to is decided by three measurements and two thresholds that are the same for
//! every test:
//!
//! 1. The effect on the memory in question must *show*: reach [`Thresholds::shows`]. Otherwise there is
//!    nothing to explain.
//! 2. If the same test shows it on DRAM too, the part of the platform that the test brings out is a
//!    cause, and every class of memory has it.
//! 3. If it is [stronger](Thresholds::stronger) than on DRAM, and the memory's counters speak for the part
//!    inside of it that the test brings out, that part is a cause, and every class of memory that has
//!    such a part is concerned: worse than the others, where both hold.
//!
//! Effects are factors: a loss of two thirds is 3. What the counters must say is in [`Evidence`].

use super::{Findings, Reading};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What decides whether there is an effect; the same for every test.
///
/// The paper calls a factor of 1.12 none (I5 on DRAM) and one of 1.7 an effect (I6 on DRAM); effects of
/// the same test differ by 1.6 or more where it blames the memory too, and need not differ where it does
/// not. The default is the geometric middle of each pair; from anything between them the paper's
/// figures give its table, which a test holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    /// An effect by this factor shows.
    pub shows: f64,
    /// An effect this many times as large as on DRAM is due to the medium and not to the platform.
    pub stronger: f64,
}

impl Default for Thresholds {
    fn default() -> Thresholds {
        Thresholds { shows: 1.38, stronger: 1.26 }
    }
}

/// Two ratios that differ by this factor differ: more than a repetition does.
const DIFFERS: f64 = 1.1;
/// Less than half of what is written reaches the medium as asked.
const HALF: f64 = 0.5;
/// A ratio so near to 1 is 1 (the paper calls 0.79 near 1).
const NEAR: f64 = 0.25;

/// A class of persistent memory (Gugnani, table 2). Not exclusive: DCPMM is in the two before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Class {
    /// NVDIMM or battery-backed DRAM.
    C1,
    /// With an internal cache and prefetcher.
    C2,
    /// With an access granularity that is not the cache line's.
    C3,
    /// Intel DC Persistent Memory Module.
    C4,
}

/// A part of a machine that an effect may be due to (Gugnani, figure 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Component {
    /// The processor's caches.
    CpuCache,
    /// What joins the sockets.
    Interconnect,
    /// The processor's prefetchers.
    CpuPrefetcher,
    /// Writers contending at the controller for a medium that writes slowly.
    Contention,
    /// The line size of the medium.
    Granularity,
    /// The memory's prefetcher.
    DevicePrefetcher,
    /// The rules of the memory's buffer.
    DeviceBuffer,
}

impl Component {
    /// The classes of memory that have it.
    pub fn classes(self) -> &'static [Class] {
        use Class::{C1, C2, C3, C4};
        match self {
            Component::CpuCache | Component::Interconnect | Component::CpuPrefetcher => {
                &[C1, C2, C3, C4]
            }
            Component::Granularity => &[C3, C4],
            Component::DevicePrefetcher => &[C2, C4],
            Component::Contention | Component::DeviceBuffer => &[C4],
        }
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Component::CpuCache => "the processor's caches",
            Component::Interconnect => "the link between sockets",
            Component::CpuPrefetcher => "the processor's prefetchers",
            Component::Contention => "writers contending for a slow medium",
            Component::Granularity => "the medium's line size",
            Component::DevicePrefetcher => "the memory's prefetcher",
            Component::DeviceBuffer => "the memory's buffer",
        })
    }
}

/// What one test comes to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cause {
    /// I1 to I7.
    pub test: &'static str,
    /// The effect on the memory in question.
    pub effect: Reading<f64>,
    /// The effect on DRAM.
    pub on_dram: Reading<f64>,
    /// What it is due to: the platform's first.
    pub components: Vec<Component>,
    /// The classes concerned, and whether it is worse for them than for others.
    pub classes: Vec<(Class, bool)>,
    /// Why no cause is named, where none is.
    pub unexplained: Option<String>,
}

impl Cause {
    /// The classes as in table 1, with a star where it is worse.
    pub fn class_names(&self) -> Vec<String> {
        let name =
            |(class, worse): &(Class, bool)| format!("{class:?}{}", if *worse { "*" } else { "" });
        self.classes.iter().map(name).collect()
    }

    /// The same in one line.
    pub fn classes_text(&self) -> String {
        self.class_names().join(", ")
    }
}

/// What the counters of a memory say of the parts inside of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// Some writers write more than all do, which is not so on DRAM.
    pub contention: bool,
    /// Of 64-byte writes most of the medium's line is in vain at random, and little in sequence.
    pub granularity: Reading<bool>,
    /// The buffer serves more reads in sequence than at random.
    pub prefetcher: Reading<bool>,
    /// Rewriting a line of the medium writes it, and reads it, each time.
    pub buffer: Reading<bool>,
}

impl Evidence {
    /// Of a memory, beside DRAM's.
    pub fn of(subject: &Findings, dram: &Findings) -> Evidence {
        let near_one = |ratio: f64| (ratio - 1.0).abs() <= NEAR;
        let in_vain = |ratio: f64| ratio <= HALF;
        let small = &subject.small_writes;
        let granularity = match (&small.sequential_ewr, &small.random_ewr) {
            (Reading::Measured(one), Reading::Measured(other)) => {
                Reading::Measured(near_one(one[0]) && in_vain(other[0]))
            }
            (Reading::NotMeasurable(why), _) | (_, Reading::NotMeasurable(why)) => {
                Reading::NotMeasurable(why.clone())
            }
        };
        Evidence {
            contention: subject.asymmetry.decline() >= DIFFERS
                && dram.asymmetry.decline() < DIFFERS,
            granularity,
            prefetcher: subject.reads.buffer_hits.map(|[one, other]| *one >= DIFFERS * other),
            buffer: subject.rewritten.map(|found| near_one(found.ewr) && near_one(found.rwr)),
        }
    }

    /// What they say of a part inside of the memory.
    fn speaks_for(&self, component: Component) -> Reading<bool> {
        match component {
            Component::Contention => Reading::Measured(self.contention),
            Component::Granularity => self.granularity.clone(),
            Component::DevicePrefetcher => self.prefetcher.clone(),
            Component::DeviceBuffer => self.buffer.clone(),
            Component::CpuCache | Component::Interconnect | Component::CpuPrefetcher => {
                Reading::Measured(true)
            }
        }
    }
}

/// A test: its effects, and the parts it was made to bring out.
struct Test {
    name: &'static str,
    effect: Reading<f64>,
    on_dram: Reading<f64>,
    platform: Option<Component>,
    inside: Option<Component>,
}

/// The causes of I1 to I7 for a memory, beside DRAM of the same machine.
pub fn classify(subject: &Findings, dram: &Findings, thresholds: Thresholds) -> Vec<Cause> {
    let evidence = Evidence::of(subject, dram);
    let tests = tests(subject, dram).into_iter();
    tests.map(|test| cause(test, &evidence, thresholds)).collect()
}

fn tests(subject: &Findings, dram: &Findings) -> [Test; 7] {
    let test = |name, effect: &dyn Fn(&Findings) -> Reading<f64>, platform, inside| Test {
        name,
        effect: effect(subject),
        on_dram: effect(dram),
        platform,
        inside,
    };
    let measured = Reading::Measured;
    [
        test("I1", &|f| measured(f.cached_latency.effect()), Some(Component::CpuCache), None),
        // Taken where the memory is at its limit: what DRAM shows there is DRAM's own.
        test("I2", &|f| measured(f.asymmetry.effect()), None, Some(Component::Contention)),
        test("I3", &|f| measured(f.small_writes.effect()), None, Some(Component::Granularity)),
        test(
            "I4",
            &|f| f.remote.map(|found| found.effect()),
            Some(Component::Interconnect),
            Some(Component::DevicePrefetcher),
        ),
        test(
            "I5",
            &|f| measured(f.plain_stores.effect()),
            Some(Component::CpuCache),
            Some(Component::DevicePrefetcher),
        ),
        test(
            "I6",
            &|f| measured(f.reads.effect()),
            Some(Component::CpuPrefetcher),
            Some(Component::DevicePrefetcher),
        ),
        test(
            "I7",
            &|f| f.rewritten.map(|found| found.effect()),
            None,
            Some(Component::DeviceBuffer),
        ),
    ]
}

fn cause(test: Test, evidence: &Evidence, thresholds: Thresholds) -> Cause {
    let Thresholds { shows, stronger } = thresholds;
    let Test { name, effect, on_dram, platform, inside } = test;
    let mut cause = Cause {
        test: name,
        effect,
        on_dram,
        components: Vec::new(),
        classes: Vec::new(),
        unexplained: None,
    };
    let found = match &cause.effect {
        Reading::Measured(found) if *found >= shows => *found,
        Reading::Measured(found) => {
            cause.unexplained = Some(format!("no effect: {found:.2} is below {shows}"));
            return cause;
        }
        Reading::NotMeasurable(why) => {
            cause.unexplained = Some(why.clone());
            return cause;
        }
    };
    let beside = cause.on_dram.measured().copied().unwrap_or(1.0);
    if let Some(component) = platform.filter(|_| beside >= shows) {
        cause.components.push(component);
        cause.classes = component.classes().iter().map(|class| (*class, false)).collect();
    }
    if let Some(component) = inside.filter(|_| found >= stronger * beside) {
        match evidence.speaks_for(component) {
            Reading::Measured(true) => {
                cause.components.push(component);
                mark(&mut cause.classes, component.classes());
            }
            Reading::Measured(false) => {
                cause.unexplained = Some(format!("the counters do not support {component:?}"));
            }
            Reading::NotMeasurable(why) => cause.unexplained = Some(why),
        }
    } else if cause.components.is_empty() {
        cause.unexplained =
            Some("DRAM shows it too, and no part of the platform explains it".into());
    }
    cause
}

/// Adds classes; those that are there already are concerned more than the rest.
fn mark(classes: &mut Vec<(Class, bool)>, more: &[Class]) {
    let alone = classes.is_empty();
    for class in more {
        match classes.iter_mut().find(|(known, _)| known == class) {
            Some((_, worse)) => *worse = !alone,
            None => classes.push((*class, false)),
        }
    }
}

#[cfg(test)]
mod tests;
