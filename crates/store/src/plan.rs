//! A map's plan: what its options come to in its directory, resolved once, before anything is opened. The rest
//! of the code takes the plan apart and asks no option again.
//!
//! # The shapes
//! | medium | values | index | persistent |
//! |---|---|---|---|
//! | page cache: memory mirrors the file | logs | hash table, or tree of rows, in DRAM | values |
//! | byte-addressable: the file is the memory | logs or slabs | the same | values |
//! | the same | logs or slabs | hash table, or tree (FAST/FAIR leaves or delta logs, by the profile), beside the values | index |
//! | the same | logs or slabs | hash table beside the values, free space and counts with it | full |
//!
//! `docs/shapes.md` says where each of them wins. What else could be asked for is refused here, by [`REFUSED`].

use crate::error::{Error, Result};
use crate::laboratory::{InnerTier, LeafForm, TreeForm};
use crate::options::{IndexTier, Kind, MapOptions, Persist, ValueDesign};
use crate::tree;
use std::path::{Path, PathBuf};
use terrace_durable::Access;
use terrace_index::tree::GroupFlush;
use terrace_memory::Domain;

/// How a map is kept.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub place: Place,
    pub design: Design,
    /// What is persistent; `Auto` is what the value file names, which is not open yet.
    pub persist: Persist,
    pub kind: Kind,
    /// The index where it is not persistent.
    pub in_dram: InDram,
    /// The tree where it is, of an ordered map.
    pub persistent_tree: PersistentTree,
}

/// Where values lie, and how they come to be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In memory, of this node or any, which mirrors the file: writing the file makes them durable.
    Mirrored { node: Option<u32> },
    /// In the file, which is the memory: writing lines back makes them durable.
    Mapped { dax: bool },
    /// In a private copy of the file: nothing is written.
    Copied,
}

/// The two value designs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Design {
    Logs,
    Slabs,
}

/// An index that is rebuilt at each opening.
#[derive(Clone, Debug)]
pub(crate) struct InDram {
    pub form: LeafForm,
    pub node_bytes: u64,
    pub group_flush: GroupFlush,
    /// Its tier, with a budget of its own; none: on the budget of the values.
    pub tier: Option<IndexTier>,
}

/// A tree that outlives its process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PersistentTree {
    /// What a new one is.
    pub form: TreeForm,
    pub node_bytes: u64,
    pub inner_tier: InnerTier,
    /// What was asked for, and so must not be another; nothing by the product.
    pub asked: (Option<TreeForm>, Option<u64>),
}

/// Two settings that no map can have together.
pub struct Refusal {
    /// The setting that is refused, as in [`Error::Option`].
    pub field: &'static str,
    /// It, as it would be written.
    pub setting: &'static str,
    /// What it does not go with.
    pub with: &'static str,
    /// Why, and the way out.
    pub why: &'static str,
    applies: Applies,
}

type Applies = fn(&MapOptions) -> bool;

fn keeps_index(options: &MapOptions) -> bool {
    matches!(options.persist, Persist::Index | Persist::Full)
}

/// What cannot be combined, all of it: `docs/shapes.md` prints this table.
pub const REFUSED: &[Refusal] = &[
    Refusal {
        field: "values",
        setting: "values = \"slab\"",
        with: "domain = \"page-cache\" or \"none\"",
        why: "slabs need a byte-addressable medium, because a slot is freed and written in place line by line. Use \
              values = \"log\", or declare the domain if the directory is on persistent memory",
        applies: |o| o.values == ValueDesign::Slab && !o.domain.is_byte_addressable(),
    },
    Refusal {
        field: "persist",
        setting: "persist = \"index\" or \"full\"",
        with: "domain = \"page-cache\" or \"none\"",
        why: "a persistent index is changed word by word and needs a byte-addressable medium. Use persist = \"values\", \
              or declare the domain if the directory is on persistent memory",
        applies: |o| keeps_index(o) && !o.domain.is_byte_addressable(),
    },
    Refusal {
        field: "persist",
        setting: "persist = \"full\"",
        with: "kind = \"ordered\"",
        why: "an ordered map makes its index durable word by word, and has no failure-atomic sections over it. Use \
              persist = \"index\" or \"values\", or kind = \"hash\"",
        applies: |o| o.persist == Persist::Full && o.kind == Kind::Ordered,
    },
    Refusal {
        field: "tier",
        setting: "tier",
        with: "domain = \"adr\" or \"eadr\"",
        why: "the values are in the mapped file, so the directory decides where they are. Leave the tier out, or put the \
              directory on that tier",
        applies: |o| o.node.is_some() && o.domain.is_byte_addressable(),
    },
    Refusal {
        field: "index_tier",
        setting: "index_tier",
        with: "persist = \"index\" or \"full\"",
        why: "a persistent index is a file in the directory. Leave the tier out, or use persist = \"values\"",
        applies: |o| o.index_tier.is_some() && keeps_index(o),
    },
];

impl Plan {
    /// The plan of a map in a directory, and its value file.
    ///
    /// # Errors
    /// [`Error::Option`] if no map is like this, or the map that is there is another.
    pub fn in_directory(dir: &Path, options: &MapOptions) -> Result<(Plan, PathBuf)> {
        let (logs, slabs) = (dir.join("values.log"), dir.join("values.slab"));
        let design = design(options.values, &logs, &slabs)?;
        let path = if design == Design::Logs { logs } else { slabs };
        let place = match options.domain.is_byte_addressable() {
            _ if !options.access.writes() && design == Design::Slabs => Place::Copied,
            true => Place::Mapped { dax: options.dax },
            false => Place::Mirrored { node: options.node },
        };
        if options.access.writes() {
            // Of the design that is there, whatever was asked for.
            let values = if design == Design::Logs { ValueDesign::Log } else { ValueDesign::Slab };
            check(&MapOptions { values, ..options.clone() }, Some(dir))?;
            options.laboratory.check_domain(options.domain)?;
        }
        Ok((Plan::of(place, design, options)?, path))
    }

    /// The plan of a map in a byte-addressable memory that somebody gave.
    ///
    /// # Errors
    /// As [`Plan::in_directory`].
    pub fn in_memory(options: &MapOptions) -> Result<Plan> {
        let design = match options.values {
            ValueDesign::Slab => Design::Slabs,
            ValueDesign::Log | ValueDesign::Auto => Design::Logs,
        };
        check(&MapOptions { domain: Domain::Adr, ..options.clone() }, None)?;
        Plan::of(Place::Mapped { dax: false }, design, options)
    }

    fn of(place: Place, design: Design, options: &MapOptions) -> Result<Plan> {
        let persist = match options.access {
            Access::Write => options.laboratory.check(options.kind, options.persist)?,
            // A reader leaves what is persistent alone, and needs no settings.
            _ => Persist::Values,
        };
        let plan = Plan {
            place,
            design,
            persist,
            kind: options.kind,
            in_dram: InDram::of(options),
            persistent_tree: PersistentTree::of(options),
        };
        if options.kind == Kind::Ordered && options.access.writes() {
            tree::check_nodes(&plan)?;
        }
        Ok(plan)
    }

    /// Refuses a tier for an index that turned out to be persistent.
    ///
    /// # Errors
    /// [`Error::Option`].
    pub fn check_index_tier(&self) -> Result<()> {
        let Some(tier) = &self.in_dram.tier else { return Ok(()) };
        let why = format!(
            "the map's index is persistent and lies in the directory, not in `{}`; leave the tier out, or use persist = \
             \"values\"",
            tier.name
        );
        Err(Error::Option { field: "index_tier", why })
    }

    pub fn is_ordered(&self) -> bool {
        self.kind == Kind::Ordered
    }
}

/// Refuses what [`REFUSED`] names.
fn check(options: &MapOptions, dir: Option<&Path>) -> Result<()> {
    let Some(refusal) = REFUSED.iter().find(|refusal| (refusal.applies)(options)) else {
        return Ok(());
    };
    let place = dir.map_or_else(String::new, |dir| format!(" of {}", dir.display()));
    let why = format!(
        "{} does not go with {}: {} (the domain{place} is: {})",
        refusal.setting, refusal.with, refusal.why, options.domain
    );
    Err(Error::Option { field: refusal.field, why })
}

/// The design asked for, which the directory's value file must not contradict.
fn design(asked: ValueDesign, logs: &Path, slabs: &Path) -> Result<Design> {
    let (has_logs, has_slabs) = (logs.exists(), slabs.exists());
    let refused = |why| Err(Error::Option { field: "values", why });
    match asked {
        _ if has_logs && has_slabs => refused(format!(
            "there are both {} and {}, and a map has one value file; move away the one that is not this map's",
            logs.display(),
            slabs.display()
        )),
        ValueDesign::Log if has_slabs => refused(format!(
            "\"log\" would be {}, but the map is in {}; use \"slab\" or \"auto\", or export it and import it anew",
            logs.display(),
            slabs.display()
        )),
        ValueDesign::Slab if has_logs => refused(format!(
            "\"slab\" would be {}, but the map is in {}; use \"log\" or \"auto\", or export it and import it anew",
            slabs.display(),
            logs.display()
        )),
        ValueDesign::Slab => Ok(Design::Slabs),
        ValueDesign::Auto if has_slabs => Ok(Design::Slabs),
        ValueDesign::Log | ValueDesign::Auto => Ok(Design::Logs),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever reads the page reads what is refused.
    #[test]
    fn the_page_of_shapes_prints_this_table() {
        let page = include_str!("../../../docs/shapes.md");
        for Refusal { setting, with, why, .. } in REFUSED {
            let row = format!("| `{setting}` | `{with}` | {why} |");
            assert!(page.contains(&row), "docs/shapes.md lacks: {row}");
        }
        let section = page.split("## Invalid combinations").nth(1).expect("the section");
        let section = section.split("## ").next().expect("its text");
        let rows = section.lines().filter(|line| line.starts_with("| `")).count();
        assert_eq!(rows, REFUSED.len(), "the page has as many rows as the table");
    }

    #[test]
    fn each_refusal_applies_to_its_own_settings_and_not_to_the_defaults() {
        let byte_addressable = MapOptions { domain: Domain::Adr, ..MapOptions::default() };
        for fine in [&MapOptions::default(), &byte_addressable] {
            assert!(check(fine, None).is_ok());
        }
        let refused = [
            MapOptions { values: ValueDesign::Slab, ..MapOptions::default() },
            MapOptions { persist: Persist::Full, ..MapOptions::default() },
            MapOptions { persist: Persist::Full, kind: Kind::Ordered, ..byte_addressable.clone() },
            MapOptions { node: Some(0), ..byte_addressable },
        ];
        for options in refused {
            let error = check(&options, None).expect_err("refused");
            assert!(matches!(error, Error::Option { .. }), "{error}");
        }
    }
}
