//! Sections under the explorer: an engine, a structure, and a script of sections, aborts and
//! background work.

use super::applications::{FullCache, SmallAgency};
use super::exhaustive::Explored;
use super::rewrites::Rewrites;
use super::{Control, Settings};
use crate::structures::{BTree, HashTable, Keys, RedBlackTree, Structure, Swaps};
use std::collections::BTreeMap;
use terrace_durable::sections::{EngineKind, Error, Options, Pool, Result, Root, Step};
use terrace_machine::{Crashable, Explorer, Noted};
use terrace_memory::{Domain, Memory, Region};

type Contents = BTreeMap<u64, u64>;
type Scenario = (&'static str, fn(Plan) -> Explorer<usize>, Plan);

/// A word that every recovery counts up in a section of its own: what recovery did must stand although
/// logs are written again after it.
const RECOVERIES: Root<u64> = Root::new(20);

/// The scenario, and its small memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    engine: EngineKind,
    domain: Domain,
    without: Option<Step>,
    /// Keys that are toggled.
    keys: u64,
    sections: usize,
    /// Toggles in a section.
    together: u64,
    /// Shadow's active and spare pages.
    pages: [u32; 2],
    log_bytes: u64,
    journal_bytes: u64,
    memory_bytes: u64,
    seed: u64,
}

impl Plan {
    fn new(engine: EngineKind, settings: &Settings) -> Plan {
        Plan {
            engine,
            domain: settings.domain,
            without: None,
            keys: 12,
            sections: 10,
            together: 1,
            pages: [4, 2],
            log_bytes: 4 << 10,
            journal_bytes: 512,
            memory_bytes: 72 << 10,
            seed: settings.seed,
        }
    }

    /// Shadow with one active page: sections merge pages themselves, and fall back.
    fn beyond(settings: &Settings) -> Plan {
        Plan { pages: [1, 1], ..Plan::new(EngineKind::Shadow, settings) }
    }

    fn for_b_tree(self) -> Plan {
        Plan { keys: 40, sections: 8, together: 4, ..self }
    }

    fn for_swaps(self) -> Plan {
        Plan { keys: 700, log_bytes: 16 << 10, ..self }
    }

    /// Keys enough that most sets push another item out.
    fn for_cache(self) -> Plan {
        Plan { keys: 2 * FullCache::ITEMS, sections: 16, log_bytes: 16 << 10, ..self }
    }

    /// Businesses of each kind.
    fn for_agency(self) -> Plan {
        let (log_bytes, memory_bytes) = (16 << 10, 160 << 10);
        Plan { keys: 3, sections: 16, log_bytes, memory_bytes, ..self }
    }

    /// Memory and log for objects of a page each.
    fn for_rewrites(self) -> Plan {
        Plan { keys: 5, log_bytes: 16 << 10, sections: 16, memory_bytes: 96 << 10, ..self }
    }

    fn for_rewrites_together(self) -> Plan {
        Plan { together: 4, sections: 10, ..self.for_rewrites() }
    }

    fn for_merges(self) -> Plan {
        Plan { journal_bytes: 256, ..self.for_rewrites() }
    }

    fn options(&self, without: Option<Step>) -> Options {
        let options = Options::new(self.engine)
            .pages(self.pages[0], self.pages[1])
            .log_bytes(self.log_bytes)
            .journal_bytes(self.journal_bytes);
        match without {
            Some(step) => options.without(step),
            None => options,
        }
    }

    fn open(&self, memory: &Crashable) -> Result<Pool<Crashable>> {
        Pool::open(memory.clone(), &self.options(self.without))
    }

    /// The script: the toggles of each section, and whether it is then taken back.
    fn script(&self) -> Vec<(Vec<(u64, u64)>, bool)> {
        let mut keys = Keys::uniform(self.keys, self.seed);
        let section = |number: usize| {
            let toggles =
                (0..self.together).map(|_| (keys.next_key(), 1000 + keys.next_key())).collect();
            (toggles, number % 4 == 3)
        };
        (0..self.sections).map(section).collect()
    }
}

/// Contents after nothing, after the creation, and after each section that was kept.
fn states<S: Structure>(plan: &Plan) -> Vec<Contents> {
    let mut states = vec![Contents::new(), S::model_created()];
    for (toggles, fails) in plan.script() {
        if !fails {
            let mut model = states.last().expect("a state").clone();
            toggles.iter().for_each(|(key, value)| S::model_toggle(&mut model, *key, *value));
            states.push(model);
        }
    }
    states
}

#[derive(Debug)]
struct TakenBack;

impl From<Error> for TakenBack {
    fn from(_: Error) -> TakenBack {
        TakenBack
    }
}

/// Runs the script; tells how many states were acknowledged beside the first.
fn run<S: Structure, M: Memory>(pool: &Pool<M>, plan: &Plan, mut acknowledged: impl FnMut(usize)) {
    pool.section(|tx| S::create(tx)).expect("created");
    let mut kept = 1;
    acknowledged(kept);
    for (number, (toggles, fails)) in plan.script().into_iter().enumerate() {
        let result = pool.section(|tx| {
            toggles.iter().try_for_each(|(key, value)| S::toggle(tx, *key, *value))?;
            if fails { Err(TakenBack) } else { Ok(()) }
        });
        assert_eq!(result.is_err(), fails, "section {number}: {result:?}");
        if !fails {
            kept += 1;
            acknowledged(kept);
        }
        if number % 5 == 4 {
            pool.maintain().expect("maintained");
        }
    }
}

/// Finds the acknowledged sections, with or without the one under way, and every object reachable.
fn look<S: Structure>(
    plan: &Plan,
    states: &[Contents],
    memory: &Crashable,
    notes: &[Noted<usize>],
) -> std::result::Result<(), String> {
    let kept = notes.last().map_or(0, |note| note.event);
    let allowed = &states[kept..states.len().min(kept + 2)];
    let pool = plan.open(memory).map_err(|e| e.to_string())?;
    let (contents, objects) = pool
        .section(|tx| {
            let mut objects = S::objects(tx)?;
            objects.push(tx.root(RECOVERIES)?.at());
            Ok::<_, Error>((S::contents(tx)?, objects))
        })
        .map_err(|e| e.to_string())?;
    if !allowed.contains(&contents) {
        return Err(format!("found {contents:?}, allowed {allowed:?}"));
    }
    pool.check_reachable(objects).map(drop).map_err(|e| e.to_string())
}

fn explorer<S: Structure>(plan: Plan) -> Explorer<usize> {
    explorer_to::<S>(plan, states::<S>(&plan))
}

/// As [`states`], of a structure without a model: those of the same script without a crash.
fn states_in_memory<S: Structure>(plan: &Plan) -> Vec<Contents> {
    let folder = std::env::temp_dir();
    let region = Region::unnamed_file(&folder, plan.memory_bytes, Domain::Adr).expect("memory");
    let pool = Pool::create(region.native(), &plan.options(None)).expect("a pool");
    let mut states = vec![Contents::new()];
    run::<S, _>(&pool, plan, |_| {
        states.push(pool.section(|tx| S::contents(tx)).expect("contents"));
    });
    states
}

/// The script of `plan`, of which any of `states` may come back, as far as was acknowledged.
fn explorer_to<S: Structure>(plan: Plan, states: Vec<Contents>) -> Explorer<usize> {
    Explorer::new(plan.domain, plan.memory_bytes)
        .setup(move |memory| {
            // Made with every step: creation is not explored here.
            let pool = Pool::create(memory.clone(), &plan.options(None)).expect("a pool");
            let counted = pool.section(|tx| {
                let word = tx.create(&0)?;
                tx.set_root(RECOVERIES, word)
            });
            counted.expect("a word");
            pool.close();
        })
        .thread(move |memory, log| {
            let pool = plan.open(memory).expect("the pool");
            run::<S, _>(&pool, &plan, |kept| log.note(kept));
        })
        .recover(move |memory| {
            let pool = plan.open(memory).expect("a crash is no damage");
            let counted = pool.section(|tx| {
                let word = tx.root(RECOVERIES)?;
                let recoveries = tx.get(word)?;
                tx.set(word, recoveries + 1)
            });
            counted.expect("a word");
        })
        .check(move |memory, notes| look::<S>(&plan, &states, memory, notes))
        .crashes(2)
}

pub(super) fn tree(engine: EngineKind, settings: &Settings) -> Explorer<usize> {
    explorer::<RedBlackTree>(Plan::new(engine, settings))
}

pub(super) fn b_tree(engine: EngineKind, settings: &Settings) -> Explorer<usize> {
    explorer::<BTree>(Plan::new(engine, settings).for_b_tree())
}

pub(super) fn hash_table(engine: EngineKind, settings: &Settings) -> Explorer<usize> {
    explorer::<HashTable<8>>(Plan::new(engine, settings))
}

pub(super) fn swaps(engine: EngineKind, settings: &Settings) -> Explorer<usize> {
    explorer::<Swaps<700>>(Plan::new(engine, settings).for_swaps())
}

pub(super) fn cache(engine: EngineKind, settings: &Settings) -> Explorer<usize> {
    explorer::<FullCache>(Plan::new(engine, settings).for_cache())
}

pub(super) fn agency(engine: EngineKind, settings: &Settings) -> Explorer<usize> {
    let plan = Plan::new(engine, settings).for_agency();
    explorer_to::<SmallAgency>(plan, states_in_memory::<SmallAgency>(&plan))
}

pub(super) fn rewrites(engine: EngineKind, settings: &Settings) -> Explorer<usize> {
    explorer::<Rewrites<40>>(Plan::new(engine, settings).for_rewrites())
}

pub(super) fn merges(settings: &Settings) -> Explorer<usize> {
    explorer::<Rewrites<40>>(Plan::beyond(settings).for_merges())
}

pub(super) fn beyond_tree(settings: &Settings) -> Explorer<usize> {
    explorer::<RedBlackTree>(Plan::beyond(settings))
}

pub(super) fn beyond_b_tree(settings: &Settings) -> Explorer<usize> {
    explorer::<BTree>(Plan::beyond(settings).for_b_tree())
}

pub(super) fn beyond_hash_table(settings: &Settings) -> Explorer<usize> {
    explorer::<HashTable<8>>(Plan::beyond(settings))
}

pub(super) fn beyond_swaps(settings: &Settings) -> Explorer<usize> {
    explorer::<Swaps<700>>(Plan::beyond(settings).for_swaps())
}

pub(super) fn beyond_rewrites(settings: &Settings) -> Explorer<usize> {
    explorer::<Rewrites<2>>(Plan::beyond(settings).for_rewrites_together())
}

/// Scenarios for controls, in the order in which they are tried. Each is a crash test as well, with
/// nothing left out.
fn scenarios(engine: EngineKind, settings: &Settings) -> Vec<Scenario> {
    let plan = Plan::new(engine, settings);
    let mut all: Vec<Scenario> = vec![
        ("red-black tree", explorer::<RedBlackTree>, plan),
        ("hash table", explorer::<HashTable<8>>, plan),
        ("B-tree", explorer::<BTree>, plan.for_b_tree()),
        ("rewritten pages", explorer::<Rewrites<40>>, plan.for_rewrites()),
    ];
    if engine == EngineKind::Shadow {
        let beyond = Plan::beyond(settings);
        let together = beyond.for_rewrites_together();
        all.push(("rewritten pages, fall-back", explorer::<Rewrites<2>>, together));
        all.push(("rewritten pages, merges", explorer::<Rewrites<40>>, beyond.for_merges()));
        all.push(("red-black tree, merges", explorer::<RedBlackTree>, beyond));
    }
    all
}

/// The scenario that is tried first for a step: where its lack is likely to show.
fn likely(step: Step) -> usize {
    use Step as S;
    match step {
        S::UndoLogWriteBack | S::UndoLogFence | S::UndoChecksum => 4,
        S::RollBackWriteBack | S::RollBackFence | S::ShadowVoidMark => 4,
        S::ShadowMergeWriteBack | S::ShadowMergeFence => 3,
        S::ShadowMergeMarkWriteBack | S::ShadowMergeMarkFence => 3,
        S::ShadowTableWriteBack | S::ShadowTableFence | S::ShadowSlotsFence => 5,
        _ => 0,
    }
}

/// Looks for a crash that shows the lack of `step` in `engine`.
pub(super) fn control(step: Step, engine: EngineKind, settings: &Settings) -> Control {
    let mut control = Control {
        step: format!("{step:?}"),
        meaning: step.meaning(),
        engine: engine.to_string(),
        caught_by: None,
        states: 0,
        message: String::new(),
    };
    for settings in Control::seeds(settings) {
        let seed = settings.seed;
        let mut all = scenarios(engine, &settings);
        let first = likely(step) % all.len();
        all.rotate_left(first);
        for (name, explorer, plan) in all {
            let report = explorer(Plan { without: Some(step), ..plan }).left_out(&settings);
            control.states += report.states;
            // A scenario that fails without a crash is no control.
            if let Some(failure) = report.failure.filter(|_| report.states > 0) {
                control.message = failure.message.lines().next().unwrap_or("").into();
                control.caught_by = Some(format!("{name}, seed {seed}"));
                return control;
            }
        }
    }
    control
}
