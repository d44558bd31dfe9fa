//! A scenario: a pool, a structure, and a script of sections, aborts and background work; and what
//! every crash of it must leave.

use crate::images::each_image;
use crate::memory::Traced;
use crate::structures::{Keys, Random, Structure};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use terrace_durable::sections::{EngineKind, Error, Options, Pool, Result, Step};
use terrace_memory::{Domain, Memory};

type Contents = BTreeMap<u64, u64>;

#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub engine: EngineKind,
    pub domain: Domain,
    pub without: Option<Step>,
    /// Keys that are toggled.
    pub keys: u64,
    pub sections: usize,
    /// Toggles in a section.
    pub together: u64,
    pub pages: [u32; 2],
    pub log_bytes: u64,
    pub journal_bytes: u64,
    pub memory_bytes: usize,
    /// Images for each event, beside the two extreme ones.
    pub per_event: usize,
    /// One in so many images is also crashed during its recovery.
    pub recovery_every: u64,
    pub seed: u64,
}

/// The seed of a run: `TERRACE_SEED`, or 1.
pub fn seed() -> u64 {
    std::env::var("TERRACE_SEED").map_or(1, |text| text.parse().expect("TERRACE_SEED is a number"))
}

impl Plan {
    pub fn new(engine: EngineKind) -> Plan {
        Plan {
            engine,
            domain: Domain::Adr,
            without: None,
            keys: 12,
            sections: 10,
            together: 1,
            pages: [4, 2],
            log_bytes: 4 << 10,
            journal_bytes: 512,
            memory_bytes: 72 << 10,
            per_event: 2,
            recovery_every: 40,
            seed: seed(),
        }
    }

    pub fn options(&self) -> Options {
        let options = Options::new(self.engine)
            .pages(self.pages[0], self.pages[1])
            .log_bytes(self.log_bytes)
            .journal_bytes(self.journal_bytes);
        match self.without {
            Some(step) => options.without(step),
            None => options,
        }
    }
}

#[derive(Debug)]
struct Fail;

impl From<Error> for Fail {
    fn from(_: Error) -> Fail {
        Fail
    }
}

/// What exploring found.
#[derive(Debug, Default)]
pub struct Found {
    pub images: u64,
    pub recovery_images: u64,
    /// The first image that was wrong: at which of all, and what was wrong.
    pub wrong: Option<(u64, String)>,
}

/// Runs the script, then crashes it everywhere.
pub fn explore<S: Structure>(plan: &Plan) -> Found {
    let memory = Traced::new(plan.memory_bytes, plan.domain);
    // Made without faults: creation is not what is explored here.
    let clean = Plan { without: None, ..*plan };
    let pool = Pool::create(memory, &clean.options()).expect("a pool");
    let pool = Pool::open(pool.close(), &plan.options()).expect("the pool");
    let before = pool.memory().record();
    let states = run::<S, _>(&pool, plan);
    let events = pool.memory().events();
    let mut found = Found::default();
    let (mut recoveries, mut wrong) = (0, None);
    let mut random = Random(plan.seed);
    let mut inner_random = Random(plan.seed ^ 0xabcd);
    let mut count = 0;
    found.images = each_image(
        before,
        plan.domain,
        &events,
        plan.per_event,
        &mut random,
        &mut |image, acknowledged| {
            count += 1;
            let deep = count % plan.recovery_every == 0;
            let result = check::<S>(image, plan, &states, acknowledged, deep, &mut inner_random);
            match result {
                Ok(more) => recoveries += more,
                Err(what) => wrong = Some((count, what)),
            }
            wrong.is_none()
        },
    );
    found.recovery_images = recoveries;
    found.wrong = wrong;
    found
}

/// The script. Returns the contents after each acknowledged section; the last one twice, since
/// nothing follows it.
fn run<S: Structure, M: Memory>(pool: &Pool<M>, plan: &Plan) -> Vec<Contents>
where
    Pool<M>: Note,
{
    let mut keys = Keys::uniform(plan.keys, plan.seed);
    let mut states = vec![Contents::new()];
    pool.section(|tx| S::create(tx)).expect("created");
    states.push(S::model_created());
    pool.note(1);
    for number in 0..plan.sections {
        let mut model = states.last().expect("a state").clone();
        let chosen: Vec<_> =
            (0..plan.together).map(|_| (keys.next(), 1000 + keys.next())).collect();
        let fails = number % 4 == 3;
        let result: Result<(), Fail> = pool.section(|tx| {
            chosen.iter().try_for_each(|(key, value)| S::toggle(tx, *key, *value))?;
            if fails { Err(Fail) } else { Ok(()) }
        });
        assert_eq!(result.is_err(), fails, "{result:?}");
        if !fails {
            chosen.iter().for_each(|(key, value)| S::model_toggle(&mut model, *key, *value));
            states.push(model);
            pool.note(states.len() - 1);
        }
        if number % 5 == 4 {
            pool.maintain().expect("maintained");
        }
    }
    states.push(states.last().expect("a state").clone());
    states
}

pub trait Note {
    fn note(&self, acknowledged: usize);
}

impl Note for Pool<Traced> {
    fn note(&self, acknowledged: usize) {
        self.memory().note(acknowledged);
    }
}

/// Recovers an image and looks at everything; `deep`, also after crashes of the recovery and of a
/// section after it. Returns how many of those were tried.
fn check<S: Structure>(
    image: Vec<u64>,
    plan: &Plan,
    states: &[Contents],
    acknowledged: usize,
    deep: bool,
    random: &mut Random,
) -> Result<u64, String> {
    let verdict = catch_unwind(AssertUnwindSafe(|| {
        let allowed = &states[acknowledged..=acknowledged + 1];
        if deep {
            return check_deep::<S>(image, plan, allowed, random);
        }
        let memory = Traced::from(image, plan.domain);
        let pool = Pool::open(memory, &plan.options()).map_err(|e| e.to_string())?;
        look::<S>(&pool, allowed)?;
        Ok(0)
    }));
    verdict.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(text.or(panic.downcast_ref::<&str>().map(|s| (*s).into())).unwrap_or_default())
    })
}

/// Recovers, runs one more section, and crashes both everywhere.
fn check_deep<S: Structure>(
    image: Vec<u64>,
    plan: &Plan,
    allowed: &[Contents],
    random: &mut Random,
) -> Result<u64, String> {
    let memory = Traced::from(image.clone(), plan.domain);
    memory.record();
    let pool = Pool::open(memory, &plan.options()).map_err(|e| e.to_string())?;
    let found = look::<S>(&pool, allowed)?;
    pool.note(1);
    let mut new = found.clone();
    if !pool.objects()?.is_empty() {
        let (key, value) = (random.below(plan.keys), random.below(plan.keys));
        pool.section(|tx| S::toggle(tx, key, value)).map_err(|e| e.to_string())?;
        S::model_toggle(&mut new, key, value);
        look::<S>(&pool, std::slice::from_ref(&new))?;
    }
    pool.note(2);
    let allowed = [found.clone(), found, new.clone(), new];
    let allowed = [&allowed[..1], &allowed[1..3], &allowed[2..3]];
    let events = pool.memory().events();
    let mut wrong = None;
    let tried = each_image(image, plan.domain, &events, 1, random, &mut |image, noted| {
        let memory = Traced::from(image, plan.domain);
        let again = Pool::open(memory, &plan.options())
            .map_err(|e| e.to_string())
            .and_then(|pool| look::<S>(&pool, allowed[noted]));
        wrong = again.err();
        wrong.is_none()
    });
    match wrong {
        Some(what) => Err(format!("recovered, went on, crashed: {what}")),
        None => Ok(tried),
    }
}

fn look<S: Structure>(pool: &Pool<Traced>, allowed: &[Contents]) -> Result<Contents, String> {
    let (contents, objects) = pool
        .section(|tx| Ok::<_, Error>((S::contents(tx)?, S::objects(tx)?)))
        .map_err(|e| e.to_string())?;
    if !allowed.contains(&contents) {
        return Err(format!("found {contents:?}, allowed {allowed:?}"));
    }
    pool.check_reachable(objects)?;
    Ok(contents)
}
