//! `list-cost`: what an operation on the four lists writes back and waits for (Gugnani, case study 2).

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::lists::List;
use crate::reproduce::error::Error;
use std::io;
use terrace_lockfree::list::{
    LinkFree, ListTable, LogFree, Media, NOT_PUBLISHED, Protocol, Session, Size, Soft, Step, TLog,
};
use terrace_machine::Counted;
use terrace_memory::{Backing, Domain, Native, Region};

pub(super) const ROW: Row = Row {
    id: "list-cost",
    source: "Gugnani, case study 2, lists",
    runs_on: "counted",
    must_show: "flushes/fences: TLog insert 4/3, delete 4/4; Link-free 1/1; SOFT 1/1; Log-free 0; contains 0",
    run,
};

/// Keys of the list before, all even.
const KEYS: u64 = 100;
/// One in the middle that is not there.
const KEY: u64 = 101;

/// Lines written back, and fences.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cost(u64, u64);

/// Of an operation in the middle of a list, alone.
struct Costs {
    insert: Cost,
    remove: Cost,
    get: Cost,
}

fn run(_: &Run<'_>) -> Result<Outcome> {
    let of = |list| match list {
        List::TLog => costs::<TLog>(Domain::Adr, &[]),
        List::Published => costs::<TLog>(Domain::Adr, &NOT_PUBLISHED),
        List::LogFree => costs::<LogFree>(Domain::Eadr, &[]),
        List::LinkFree => costs::<LinkFree>(Domain::Adr, &[]),
        List::Soft => costs::<Soft>(Domain::Adr, &[]),
    };
    let all: Result<Vec<(List, Costs)>> =
        List::ALL.into_iter().map(|list| Ok((list, of(list)?))).collect();
    Ok(judge(&all?))
}

fn costs<P: Protocol>(domain: Domain, left_out: &[Step]) -> Result<Costs> {
    let size = Size::list(2 * KEYS);
    let refused = |e: terrace_lockfree::list::Error| Error::system("use a list")(io::Error::other(e));
    let bytes = size.bytes::<P>().map_err(refused)?;
    let region = || -> io::Result<Region> {
        let region = Region::reserve(bytes, Backing::Anonymous)?.declared(domain);
        region.commit(0, bytes)?;
        Ok(region)
    };
    let (kept, links) = (region(), region());
    let kept = kept.map_err(Error::system("have memory for a list"))?;
    let links = links.map_err(Error::system("have memory for links"))?;
    let [memory, links] = [&kept, &links].map(|region| Counted::new(region.native()));
    let media =
        if P::LINKS_APART { Media::two(memory.clone(), links) } else { Media::one(memory.clone()) };
    let table = ListTable::<_, P>::create_without(media, size, left_out).map_err(refused)?;
    let mut session = table.session().map_err(refused)?;
    for key in 0..KEYS {
        session.insert(2 * key, key).map_err(refused)?;
    }
    let mut cost = |does: fn(&mut Session<Counted<Native>, P>) -> bool| {
        let (was_done, counts) = memory.measured(|| does(&mut session));
        assert!(was_done, "the operation finds the list as it is expected");
        Cost(counts.write_backs, counts.fences)
    };
    Ok(Costs {
        insert: cost(|list| list.insert(KEY, 0) == Ok(true)),
        get: cost(|list| list.get(KEY).is_some()),
        remove: cost(|list| list.remove(KEY).is_some()),
    })
}

fn judge(all: &[(List, Costs)]) -> Outcome {
    let mut outcome = Outcome::default();
    let of = |list| all.iter().find(|(of, _)| *of == list).map(|(_, costs)| costs);
    let mut exactly = |what: String, paper: &str, measured: u64, expected: u64| {
        let expected = expected as f64;
        let check = Check::within(what, paper, measured as f64, expected, expected).order();
        outcome.checks.push(check);
    };
    let mut updates = |list: List, insert: Cost, remove: Cost| {
        let Some(costs) = of(list) else { return };
        for (name, found, expected) in
            [("an insertion", costs.insert, insert), ("a removal", costs.remove, remove)]
        {
            let name = format!("{}, {name}", list.name());
            exactly(format!("lines written back, {name}"), &expected.0.to_string(), found.0, expected.0);
            exactly(format!("fences, {name}"), &expected.1.to_string(), found.1, expected.1);
        }
    };
    updates(List::Published, Cost(4, 3), Cost(4, 4));
    updates(List::LinkFree, Cost(1, 1), Cost(1, 1));
    updates(List::Soft, Cost(1, 1), Cost(1, 1));
    if let Some(costs) = of(List::LogFree) {
        let written = costs.insert.0 + costs.remove.0;
        exactly("lines written back, Log-free, both".into(), "0", written, 0);
    }
    let lookups: u64 = all.iter().map(|(_, costs)| costs.get.0 + costs.get.1).sum();
    exactly("lines written back and fences, lookups of all lists".into(), "0", lookups, 0);
    if let Some((corrected, published)) = of(List::TLog).zip(of(List::Published)) {
        let more = corrected.insert.0 - published.insert.0;
        let fences = corrected.insert.1 - published.insert.1;
        outcome.note = format!(
            "One thread, a key in the middle of {KEYS}. TLog as published loses what it told (row list-crash); \
             corrected it writes back {more} line more at an insertion, that of the link to the node that \
             the new one follows, and waits {fences} times more. Log-free under eADR, the others under ADR."
        );
    }
    let lines = |costs: fn(&Costs) -> u64| all.iter().map(move |(_, of)| costs(of) as f64);
    outcome.figures.push(
        Figure::new("Lines written back by an operation", "list", "lines", FigureKind::Bars)
            .over(all.iter().map(|(list, _)| list.name()))
            .with("insertion", lines(|costs| costs.insert.0))
            .with("removal", lines(|costs| costs.remove.0))
            .with("lookup", lines(|costs| costs.get.0)),
    );
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_more_is_a_miss() {
        let all = |lines| {
            let costs = |list| {
                let (insert, remove) = match list {
                    List::TLog => (Cost(5, 3), Cost(4, 4)),
                    List::Published => (Cost(4, 3), Cost(4, 4)),
                    List::LogFree => (Cost(0, 2), Cost(0, 1)),
                    _ => (Cost(lines, 1), Cost(1, 1)),
                };
                (list, Costs { insert, remove, get: Cost(0, 0) })
            };
            judge(&List::ALL.map(costs)).checks.iter().all(|check| check.pass)
        };
        assert!(all(1) && !all(2));
    }
}
