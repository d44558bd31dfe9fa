//! The advice: the rule's placement and the best one, side by side.

use super::error::{Error, Result};
use super::exhaustive::{self, Best};
use super::question::{Placement, Question};
use super::{cost, rule};
use serde::Serialize;
use std::fmt;
use terrace_memory::ByteSize;

/// Costs that differ by less are the same.
const SAME: f64 = 1e-9;

/// A structure on its node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Placed {
    /// The structure.
    pub structure: String,
    /// Its size.
    pub bytes: ByteSize,
    /// Its effective bandwidth ratio.
    pub ebr: f64,
    /// The node.
    pub node: String,
    /// Whether the node belongs to the threads' socket.
    pub local: bool,
    /// Predicted time that an access waits for memory.
    pub stall_ns: f64,
}

/// A placement of every structure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlacementPlan {
    /// In the order of the question.
    pub placed: Vec<Placed>,
    /// Threads that wait, predicted; see [`cost`].
    pub cost: f64,
    /// Cost over that of everything on its nearest node, had that room for all: what too little of it
    /// costs.
    pub penalty: f64,
    /// Predicted time that an access waits for memory, the mean of all.
    pub stall_ns: f64,
    /// The same with everything on the nearest node.
    pub nearest_stall_ns: f64,
    /// Bytes that the nearest node lacks to hold everything, and its name.
    pub lacks: (ByteSize, String),
    /// By node, what is left of its capacity and the part of its bandwidth that is asked for.
    pub nodes: Vec<(String, ByteSize, f64)>,
}

/// What to put where.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// By the rule; none if what chose first left no room for the rest.
    pub rule: Option<PlacementPlan>,
    /// The structure that the rule found no room for.
    pub without_room: Option<String>,
    /// The cheapest of all; none if there are too many to try.
    pub best: Option<PlacementPlan>,
    /// Placements there are; none if too many to count.
    pub placements: Option<u64>,
    /// Of these, those that fit, if they were tried.
    pub fitting: Option<u64>,
}

/// Advice for a question.
///
/// # Errors
/// [`Error::NoRoom`] if nothing fits; where the placements are too many to try them, if the rule finds none.
pub fn advise(question: &Question) -> Result<Advice> {
    let best = exhaustive::best(question, |placement| cost::predicted(question, placement))?;
    let by_rule = rule::by_ebr(question);
    if best.is_none() && by_rule.is_err() {
        let bytes = question.structures().iter().map(|s| s.bytes.0).fold(0, u64::saturating_add);
        let capacity = question.nodes().iter().map(|n| n.capacity.0).fold(0, u64::saturating_add);
        return Err(Error::NoRoom { bytes: ByteSize(bytes), capacity: ByteSize(capacity) });
    }
    let name = |structure: &usize| question.structures()[*structure].name.clone();
    let fitting = best.as_ref().map(|best| best.fitting);
    Ok(Advice {
        without_room: by_rule.as_ref().err().map(name),
        rule: by_rule.ok().map(|placement| plan(question, &placement)),
        placements: exhaustive::placements(question),
        fitting,
        best: best.map(|Best { placement, .. }| plan(question, &placement)),
    })
}

fn plan(question: &Question, placement: &Placement) -> PlacementPlan {
    let (nodes, structures) = (question.nodes(), question.structures());
    let stalls = cost::stalls(question, placement);
    let placed =
        structures.iter().zip(placement).zip(&stalls).map(|((structure, node), stall)| Placed {
            structure: structure.name.clone(),
            bytes: structure.bytes,
            ebr: structure.ebr,
            node: nodes[*node].name.clone(),
            local: nodes[*node].local,
            stall_ns: stall * 1e9 / structure.accesses_per_s,
        });
    let cost = cost::predicted(question, placement);
    let nearest = question.nearest_first()[0];
    let all_nearest = cost::predicted(question, &vec![nearest; placement.len()]);
    let accesses_per_s: f64 = structures.iter().map(|structure| structure.accesses_per_s).sum();
    let bytes = structures.iter().map(|s| s.bytes.0).fold(0, u64::saturating_add);
    let left = question.room_left(placement).expect("a plan fits");
    let asked = cost::utilisation(question, placement);
    let on = nodes.iter().zip(left).zip(asked);
    PlacementPlan {
        placed: placed.collect(),
        cost,
        penalty: cost / all_nearest,
        stall_ns: cost * 1e9 / accesses_per_s,
        nearest_stall_ns: all_nearest * 1e9 / accesses_per_s,
        lacks: (
            ByteSize(bytes.saturating_sub(nodes[nearest].capacity.0)),
            nodes[nearest].name.clone(),
        ),
        nodes: on.map(|((node, left), part)| (node.name.clone(), ByteSize(left), part)).collect(),
    }
}

impl PlacementPlan {
    fn same_as(&self, other: &PlacementPlan) -> bool {
        self.cost <= other.cost * (1.0 + SAME)
    }
}

impl Advice {
    /// The placement to take: the cheapest, if all were tried; otherwise the rule's.
    pub fn plan(&self) -> &PlacementPlan {
        self.best.as_ref().or(self.rule.as_ref()).expect("without either there is no advice")
    }

    /// Whether the rule's placement costs no more than the best one; `None` where the rule was compared with
    /// nothing, for the reason that [`Advice::not_compared`] gives.
    pub fn agrees(&self) -> Option<bool> {
        let best = self.best.as_ref()?;
        Some(self.rule.as_ref().is_some_and(|rule| rule.same_as(best)))
    }

    /// Why the rule was compared with nothing; `None` where it was.
    pub fn not_compared(&self) -> Option<String> {
        let most = exhaustive::PLACEMENTS_MAX;
        match (&self.best, self.placements) {
            (Some(_), _) => None,
            (None, Some(count)) => {
                Some(format!("there are {count} placements, more than the limit of {most}"))
            }
            (None, None) => {
                Some(format!("there are too many placements to count; the limit is {most}"))
            }
        }
    }

    /// The node of a structure, by [`Advice::plan`].
    pub fn node_of(&self, structure: &str) -> Option<&str> {
        let placed = self.plan().placed.iter().find(|placed| placed.structure == structure)?;
        Some(&placed.node)
    }
}

fn told(plan: &PlacementPlan) -> String {
    let places = plan.placed.iter().map(|p| format!("{} on {}", p.structure, p.node));
    places.collect::<Vec<_>>().join(", ")
}

/// What a node of another socket than the threads' is marked with.
const FAR: &str = " (remote)";

/// Nanoseconds as people compare them.
fn ns(ns: f64) -> String {
    if ns < 10.0 { format!("{ns:.1} ns") } else { format!("{ns:.0} ns") }
}

/// What it costs, and what would make it cheaper.
impl fmt::Display for PlacementPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Predicted memory stall: {} per access", ns(self.stall_ns))?;
        let (lacks, nearest) = &self.lacks;
        if lacks.0 == 0 || self.stall_ns <= self.nearest_stall_ns {
            return f.write_str(".");
        }
        let than = ns(self.nearest_stall_ns);
        write!(f, "; {than} with everything on {nearest} (give it {lacks} more).")
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plan = self.plan();
        let width = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0).max(9);
        let names = width(&mut plan.placed.iter().map(|placed| placed.structure.len()));
        let nodes = width(&mut plan.placed.iter().map(|placed| placed.node.len() + FAR.len()));
        writeln!(
            f,
            "{:names$}  {:>10}  {:>7}  {:nodes$}  stall per access",
            "structure", "size", "EBR", "put it on"
        )?;
        for Placed { structure, bytes, ebr, node, local, stall_ns } in &plan.placed {
            let node = format!("{node}{}", if *local { "" } else { FAR });
            let stall = ns(*stall_ns);
            writeln!(f, "{structure:names$}  {bytes:>10}  {ebr:>7.3}  {node:nodes$}  {stall}")?;
        }
        for (node, left, part) in &plan.nodes {
            writeln!(f, "{node}: {left} free, {:.0} % of its bandwidth used", 100.0 * part)?;
        }
        writeln!(f, "{plan}")?;
        match (&self.rule, &self.best) {
            (_, None) => {
                let why = self.not_compared().unwrap_or_default();
                write!(
                    f,
                    "placed by the rule (lowest EBR nearest), not compared with other placements: {why}"
                )
            }
            (None, Some(_)) => {
                let name = self.without_room.as_deref().unwrap_or_default();
                write!(f, "DISAGREEMENT: the rule (lowest EBR nearest) leaves no space for {name}")
            }
            (Some(rule), Some(best)) if !rule.same_as(best) => write!(
                f,
                "DISAGREEMENT: the rule (lowest EBR nearest) says {}: {} per access; EBR does not tell how \
                 often a structure is used",
                told(rule),
                ns(rule.stall_ns)
            ),
            (Some(_), Some(_)) => write!(
                f,
                "the rule (lowest EBR nearest) and the cheapest of {} placements that fit agree",
                self.fitting.unwrap_or(0)
            ),
        }
    }
}
