//! `cods-cost`: the memory transactions of the coalesced list, beside the paper's table (Miller, section 5.4).
//!
//! Each operation is the most expensive one of its kind that can be: it goes through all of a list of full nodes, and
//! splits or empties the last.

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::coalesced::refused;
use std::sync::Arc;
use terrace_coalesced::{
    Atomicity, Backend, Context, Counted, List, ListSession, Method, Native, Network, Options,
    PrintedList, PrintedSession, Regime, Remote, Transactions,
};

pub(super) const ROW: Row = Row {
    id: "cods-cost",
    source: "Miller, section 5.4",
    runs_on: "counted + emulated remote (warp: not built)",
    must_show: "memory transactions per operation equal the cost table exactly",
    run,
};

/// Nodes of a list.
const NODES: u64 = 20;
/// Keys of a node: with the two other words of a node, what fills lines of 4, 8, 16, 32 and 64 words.
const ELEMENTS: [usize; 5] = [2, 6, 14, 30, 62];
/// Words of a transaction: a line of a processor, one of a GPU, a packet of a network.
const MOVED: [usize; 3] = [8, 16, 512];

/// What the operations of a list moved.
#[derive(Clone, Copy, Debug)]
struct Costs {
    search: Transactions,
    insert: Transactions,
    remove: Transactions,
}

/// The table: transactions of a search, an insertion and a removal on `nodes` nodes, each moved by `each`.
fn table(regime: Regime, nodes: u64, each: u64) -> [u64; 3] {
    let search = nodes * each;
    match regime {
        Regime::Full => [search, search + 2 * each, search + 2 * each],
        Regime::ElementWise => [search, (nodes + 2) * each + 1, search + (each + 1).max(2)],
    }
}

/// What the table counts of it: whole nodes moved, and in the element-wise regime the one link that publishes.
fn counted(regime: Regime, costs: &Costs) -> [u64; 3] {
    let publishes = u64::from(regime == Regime::ElementWise);
    let update = |moved: Transactions| moved.gets + moved.sets + publishes.min(moved.swaps);
    [costs.search.gets, update(costs.insert), update(costs.remove)]
}

/// What it leaves out: loads of the head's link, and one compare-and-swap for each lock or claim.
fn beside(regime: Regime, costs: &Costs) -> [u64; 3] {
    let all = [costs.search, costs.insert, costs.remove].map(Transactions::total);
    std::array::from_fn(|i| all[i] - counted(regime, costs)[i])
}

/// Whose sessions have their transactions counted.
trait Asks {
    fn insert(&mut self, key: u64) -> bool;
    fn remove(&mut self, key: u64) -> bool;
    fn contains(&mut self, key: u64) -> bool;
    fn transactions(&self) -> Transactions;
}

macro_rules! asks {
    ($session:ident) => {
        impl<B: Backend> Asks for $session<'_, B> {
            fn insert(&mut self, key: u64) -> bool {
                $session::insert(self, key) == Ok(true)
            }

            fn remove(&mut self, key: u64) -> bool {
                $session::remove(self, key) == Ok(true)
            }

            fn contains(&mut self, key: u64) -> bool {
                $session::contains(self, key)
            }

            fn transactions(&self) -> Transactions {
                self.context().transactions()
            }
        }
    };
}

asks!(ListSession);
asks!(PrintedSession);

/// Makes a list, and passes a session of it on.
type Lend<'a> = &'a dyn Fn(&mut dyn FnMut(&mut dyn Asks)) -> Result<()>;

/// What one operation on a list of `keys` even keys moved, whose nodes are full but for the last.
fn one(lend: Lend<'_>, keys: u64, operation: impl Fn(&mut dyn Asks) -> bool) -> Result<Transactions> {
    let mut moved = Transactions::default();
    lend(&mut |list| {
        (0..keys).for_each(|key| assert!(list.insert(2 * key), "a new key"));
        let before = list.transactions();
        assert!(operation(list), "the operation finds the list as it is expected");
        moved = list.transactions().since(before);
    })?;
    Ok(moved)
}

/// The three operations, each on a new list of [`NODES`] nodes.
fn costs(lend: Lend<'_>, elements: usize, regime: Regime) -> Result<Costs> {
    let full = NODES * elements as u64;
    // The last node has one key, and becomes empty; where nodes are replaced, it costs more if one is left.
    let last = if regime == Regime::Full { 1 } else { 2.min(elements as u64) };
    let short = full - elements as u64 + last;
    Ok(Costs {
        search: one(lend, full, |list| list.contains(2 * (full - 1)))?,
        insert: one(lend, full, |list| list.insert(2 * (full - 1) - 1))?,
        remove: one(lend, short, |list| list.remove(2 * (short - 1)))?,
    })
}

fn list_costs<B: Backend>(
    options: Options,
    new: impl Fn() -> terrace_coalesced::Result<B>,
) -> Result<Costs> {
    let lend = |visit: &mut dyn FnMut(&mut dyn Asks)| {
        let memory = Arc::new(new().map_err(refused)?);
        let list = List::new(memory, options).map_err(refused)?;
        visit(&mut list.session().map_err(refused)?);
        Ok(())
    };
    costs(&lend, options.elements, options.regime)
}

fn native() -> Native {
    Native::new(1 << 15)
}

/// The figures of one regime on one back end.
struct Found {
    what: String,
    regime: Regime,
    /// Keys of a node, words of a transaction, and what was moved.
    costs: Vec<(usize, usize, Costs)>,
}

fn options(elements: usize, regime: Regime, method: Method) -> Options {
    Options { elements, regime, method }
}

fn run(_: &Run<'_>) -> Result<Outcome> {
    let mut all = Vec::new();
    for regime in [Regime::Full, Regime::ElementWise] {
        let mut costs = Vec::new();
        for (elements, moved) in ELEMENTS.into_iter().flat_map(|n| MOVED.map(|m| (n, m))) {
            let options = options(elements, regime, Method::CopyPointer);
            costs.push((elements, moved, list_costs(options, || Counted::new(native(), moved))?));
        }
        all.push(Found { what: format!("counted, {regime}"), regime, costs });
    }
    for (regime, atomicity, elements) in [
        (Regime::Full, Atomicity::Line, &ELEMENTS[..2]),
        (Regime::ElementWise, Atomicity::Word, &ELEMENTS[..]),
    ] {
        let mut costs = Vec::new();
        for elements in elements {
            let options = options(*elements, regime, Method::CopyPointer);
            let memory = || Remote::new(1 << 15, atomicity, Network::default(), 1);
            costs.push((*elements, terrace_coalesced::LINE_WORDS, list_costs(options, memory)?));
        }
        all.push(Found { what: format!("remote, {regime}"), regime, costs });
    }
    let control = list_costs(options(14, Regime::ElementWise, Method::Bypass), || Counted::new(native(), 8))?;
    let wide = list_costs(options(8, Regime::ElementWise, Method::CopyPointer), || Counted::new(native(), 8))?;
    Ok(judge(&all, &control, &wide, &printed()?))
}

/// The list as printed, on nodes of 14 keys and transactions of 8 words.
fn printed() -> Result<Costs> {
    let options = options(14, Regime::ElementWise, Method::CopyPointer);
    let lend = |visit: &mut dyn FnMut(&mut dyn Asks)| {
        let memory = Arc::new(Counted::new(native(), 8).map_err(refused)?);
        let list = PrintedList::new(memory, options).map_err(refused)?;
        visit(&mut list.session());
        Ok(())
    };
    costs(&lend, options.elements, options.regime)
}

/// In how many of the sizes the operation costs other than the table says.
fn differ(found: &Found, operation: usize) -> usize {
    let differs = |(elements, moved, costs): &&(usize, usize, Costs)| {
        let each = elements.div_ceil(*moved) as u64;
        table(found.regime, NODES, each)[operation] != counted(found.regime, costs)[operation]
    };
    found.costs.iter().filter(differs).count()
}

fn judge(all: &[Found], control: &Costs, wide: &Costs, printed: &Costs) -> Outcome {
    let mut outcome = Outcome::default();
    for found in all {
        let sizes = found.costs.len();
        for (operation, name) in ["a search", "an insertion", "a removal"].into_iter().enumerate() {
            let what = format!("{}: sizes in which {name} differs from the table, of {sizes}", found.what);
            outcome.checks.push(Check::within(what, "0", differ(found, operation) as f64, 0.0, 0.0).order());
        }
        let most = |i: usize| found.costs.iter().map(|(.., costs)| beside(found.regime, costs)[i]).max();
        let most = [0, 1, 2].map(|i| most(i).unwrap_or(0));
        let what = format!("{}: most transactions beside the table, of an operation", found.what);
        let most = most.into_iter().max().unwrap_or(0);
        outcome.checks.push(Check::at_most(what, "none told", most as f64, 2.0));
    }
    let control = control.search.total() as f64 / table(Regime::ElementWise, NODES, 2)[0] as f64;
    let what = "a search that reads key by key (method bypass), over the table: noticed";
    outcome.checks.push(Check::at_least(what, "none told", control, 1.01).order());
    let each = |costs: &Costs| costs.search.gets / NODES;
    outcome.note = format!(
        "Lists of {NODES} nodes; each operation is the worst of its kind. Beside the table, which counts neither, \
         stand a load of the head's link where nodes are replaced, and one compare-and-swap for each lock or claim: \
         a node is locked as it was read, so it is not read again. The list as printed (element-wise, 14 keys, \
         transactions of 8 words) moves {} transactions at an insertion and {} at a removal, of which the table has \
         {} and {}: its locks and what it reads again under them are not in the table. And the table counts keys \
         only: a node of 8 keys has 10 words, and takes {} transactions of 8 words where the table says 1. The \
         sizes here are those in which a node's two other words fit beside its keys.",
        printed.insert.total(),
        printed.remove.total(),
        table(Regime::ElementWise, NODES, 2)[1],
        table(Regime::ElementWise, NODES, 2)[2],
        each(wide),
    );
    outcome.size("nodes", NODES);
    outcome.size("keys of a node", format!("{ELEMENTS:?}"));
    outcome.size("words of a transaction", format!("{MOVED:?}"));
    let lines = |found: &Found, operation: usize| {
        let of = found.costs.iter().filter(|(_, moved, _)| *moved == 8);
        of.map(|(.., costs)| counted(found.regime, costs)[operation] as f64).collect::<Vec<_>>()
    };
    for found in &all[..2.min(all.len())] {
        let title = format!("Transactions of an operation on {NODES} nodes, {}", found.regime);
        outcome.figures.push(
            Figure::new(&title, "keys of a node", "transactions", FigureKind::Bars)
                .over(ELEMENTS.map(|n| n.to_string()))
                .with("search", lines(found, 0))
                .with("insertion", lines(found, 1))
                .with("removal", lines(found, 2)),
        );
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_met_and_a_transaction_more_is_noticed() {
        let of = |regime| {
            let options = options(6, regime, Method::CopyPointer);
            list_costs(options, || Counted::new(native(), 8)).expect("a list")
        };
        for regime in [Regime::Full, Regime::ElementWise] {
            let found = |costs| Found { what: String::new(), regime, costs: vec![(6, 8, costs)] };
            let mut costs = of(regime);
            assert_eq!([0, 1, 2].map(|i| differ(&found(costs), i)), [0; 3], "{costs:?}");
            costs.insert.gets += 1;
            costs.remove.sets += 1;
            assert_eq!([0, 1, 2].map(|i| differ(&found(costs), i)), [0, 1, 1]);
        }
    }
}
