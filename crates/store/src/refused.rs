//! Settings that do not go together, of maps, queues and word tables: one table, which `docs/shapes.md` prints.
//! Builders and openings refuse by it, before anything is made.

use crate::error::{Error, Result};
use crate::form::TreeForm;
use crate::laboratory::{Flush, InnerTier};
use crate::options::{Kind, MapOptions, Persist, ValueDesign};
use crate::queue::{Form, QueueOptions};
use crate::words::WordsOptions;
use std::path::Path;
use terrace_durable::Access;
use terrace_memory::Domain;

/// Two settings that nothing can have together.
pub(crate) struct Refusal<O> {
    /// The setting that is refused, as in [`Error::Option`].
    pub field: &'static str,
    /// It, as it would be written.
    pub setting: &'static str,
    /// What it does not go with.
    pub with: &'static str,
    /// Why, and the way out.
    pub why: &'static str,
    pub applies: fn(&O) -> bool,
}

/// Options of which some do not go together.
pub(crate) trait Combined: Sized + 'static {
    /// Tables, in the order in which they are asked.
    const REFUSED: &'static [&'static [Refusal<Self>]];
    fn domain(&self) -> Domain;
    fn access(&self) -> Access;
}

impl Combined for MapOptions {
    const REFUSED: &'static [&'static [Refusal<MapOptions>]] = &[MAPS, LABORATORY];
    fn domain(&self) -> Domain {
        self.domain
    }
    fn access(&self) -> Access {
        self.access
    }
}

impl Combined for QueueOptions {
    const REFUSED: &'static [&'static [Refusal<QueueOptions>]] = &[QUEUES];
    fn domain(&self) -> Domain {
        self.domain
    }
    fn access(&self) -> Access {
        self.access
    }
}

impl Combined for WordsOptions {
    const REFUSED: &'static [&'static [Refusal<WordsOptions>]] = &[WORDS];
    fn domain(&self) -> Domain {
        self.domain
    }
    fn access(&self) -> Access {
        self.access
    }
}

impl<O: Combined> Refusal<O> {
    /// Says it, of what lies at `path` in a domain if that is known.
    pub fn error(&self, lies: Option<(&Path, Domain)>) -> Error {
        let Refusal { field, setting, with, why, .. } = *self;
        let lies = lies.map_or_else(String::new, |(path, domain)| {
            format!(" (the domain of {} is: {domain})", path.display())
        });
        Error::Option { field, why: format!("{setting} does not go with {with}: {why}{lies}") }
    }
}

/// Refuses what the tables name, of options for what lies, or is to lie, at `path`. A reader takes it as it is.
///
/// # Errors
/// [`Error::Option`].
pub(crate) fn check<O: Combined>(options: &O, path: Option<&Path>) -> Result<()> {
    if !options.access().writes() {
        return Ok(());
    }
    let mut all = O::REFUSED.iter().copied().flatten();
    match all.find(|refusal| (refusal.applies)(options)) {
        Some(refusal) => Err(refusal.error(path.map(|path| (path, options.domain())))),
        None => Ok(()),
    }
}

fn keeps_index(options: &MapOptions) -> bool {
    matches!(options.level(), Persist::Index | Persist::Full)
}

/// An index in a tier, which may also turn out to be persistent when the map is opened.
pub(crate) const INDEX_TIER: Refusal<MapOptions> = Refusal {
    field: "index_tier",
    setting: "index_tier",
    with: "persist = \"index\" or \"full\"",
    why: "a persistent index is a file in the directory. Leave the tier out, or use persist = \"values\"",
    applies: |o| o.index_tier.is_some() && keeps_index(o),
};

/// Slots freed late, where each operation may turn out to be a section when the map is opened.
pub(crate) const DEFERRED_FREES: Refusal<MapOptions> = Refusal {
    field: "deferred_frees",
    setting: "deferred_frees",
    with: "persist = \"full\"",
    why: "the section that supersedes a slot frees it. Use 0, or persist = \"index\"",
    applies: |o| o.laboratory.deferred_frees > 0 && o.level() == Persist::Full,
};

pub(crate) const MAPS: &[Refusal<MapOptions>] = &[
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
    INDEX_TIER,
    Refusal {
        field: "far_tier",
        setting: "far_tier",
        with: "domain = \"adr\" or \"eadr\"",
        why: "the values are in the mapped file, so the directory decides where they are. Leave the tier out",
        applies: |o| o.far.is_some() && o.domain.is_byte_addressable(),
    },
    Refusal {
        field: "far_tier",
        setting: "far_tier",
        with: "tier on the same node",
        why: "moving values would make no room. Give it memory of another node",
        applies: |o| o.far.as_ref().is_some_and(|far| o.node == Some(far.node())),
    },
];

pub(crate) const LABORATORY: &[Refusal<MapOptions>] = &[
    Refusal {
        field: "index",
        setting: "index",
        with: "kind = \"hash\"",
        why: "the forms are those of trees. Leave it out, or use kind = \"ordered\"",
        applies: |o| o.laboratory.tree.is_some() && o.kind == Kind::Hash,
    },
    Refusal {
        field: "node_bytes",
        setting: "node_bytes",
        with: "kind = \"hash\"",
        why: "a hash table has no nodes. Leave it out, or use kind = \"ordered\"",
        applies: |o| o.laboratory.node_bytes.is_some() && o.kind == Kind::Hash,
    },
    Refusal {
        field: "inner_tier",
        setting: "inner_tier = \"index\"",
        with: "kind = \"hash\"",
        why: "a hash table has no inner nodes. Leave it out, or use kind = \"ordered\"",
        applies: |o| o.laboratory.inner_tier == InnerTier::Index && o.kind == Kind::Hash,
    },
    Refusal {
        field: "index",
        setting: "index = \"btree\", \"unsorted\" or \"btree-rows\"",
        with: "persist = \"index\"",
        why: "such a tree is gone after a crash. Use \"btree-wal\", \"fast-fair\", \"persistent-unsorted\" or \
              \"btree-ls\", or leave it out",
        applies: |o| asks_for(o, false) && o.persist == Persist::Index,
    },
    Refusal {
        field: "index",
        setting: "index = \"btree-wal\", \"fast-fair\", \"persistent-unsorted\" or \"btree-ls\"",
        with: "persist = \"values\"",
        why: "such a tree is persistent. Use \"btree\", \"unsorted\" or \"btree-rows\", or persist = \"index\"",
        applies: |o| asks_for(o, true) && o.persist == Persist::Values,
    },
    Refusal {
        field: "inner_tier",
        setting: "inner_tier = \"index\"",
        with: "persist = \"values\"",
        why: "inner nodes of an index that is not persistent lie where it does, in DRAM or in index_tier. Leave it out, \
              or use persist = \"index\"",
        applies: |o| o.laboratory.inner_tier == InnerTier::Index && o.level() == Persist::Values,
    },
    Refusal {
        field: "flush",
        setting: "flush = \"keep\"",
        with: "domain = \"page-cache\", \"none\" or \"adr\"",
        why: "it leaves items in the processor's caches, which survive a power cut under eADR alone. Use \"auto\"",
        applies: |o| o.laboratory.flush == Flush::Keep && o.domain != Domain::Eadr,
    },
    DEFERRED_FREES,
];

/// Whether a form of tree was asked for that is persistent, or one that is not.
fn asks_for(options: &MapOptions, is_kept: bool) -> bool {
    options.laboratory.tree.is_some_and(|form: TreeForm| form.is_persistent() == is_kept)
}

pub(crate) const QUEUES: &[Refusal<QueueOptions>] = &[Refusal {
    field: "form",
    setting: "form = \"tx\"",
    with: "domain = \"page-cache\" or \"none\"",
    why: "its transactions order stores to byte-addressable memory. Use tx-free or volatile, or declare the domain if the \
          directory is on persistent memory",
    applies: |o| o.form == Form::Tx && !o.domain.is_byte_addressable(),
}];

pub(crate) const WORDS: &[Refusal<WordsOptions>] = &[Refusal {
    field: "domain",
    setting: "a word table",
    with: "domain = \"page-cache\" or \"none\"",
    why: "it needs byte-addressable memory. Put it on a DAX mount, or declare domain = \"adr\" or \"eadr\" for an \
          emulated medium",
    applies: |o| !o.domain.is_byte_addressable(),
}];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laboratory::Laboratory;

    fn rows<O>(of: &str, table: &[Refusal<O>]) -> Vec<String> {
        let row = |refusal: &Refusal<O>| {
            let Refusal { setting, with, why, .. } = refusal;
            format!("| {of} | `{setting}` | `{with}` | {why} |")
        };
        table.iter().map(row).collect()
    }

    /// Whoever reads the page reads what is refused.
    #[test]
    fn the_page_of_shapes_prints_this_table() {
        let page = include_str!("../../../docs/shapes.md");
        let section = page.split("## Invalid combinations").nth(1).expect("the section");
        let section = section.split("## ").next().expect("its text");
        let printed: Vec<_> =
            section.lines().filter(|line| line.starts_with("| ") && line.contains('`')).collect();
        let expected = [
            rows("map", MAPS),
            rows("queue", QUEUES),
            rows("words", WORDS),
            rows("map of the laboratory", LABORATORY),
        ];
        assert_eq!(printed, expected.concat(), "{}", expected.concat().join("\n"));
    }

    /// The table names the forms by hand.
    #[test]
    fn each_form_of_tree_is_on_its_side_of_persist() {
        for form in TreeForm::ALL {
            let named = |refusal: &&Refusal<MapOptions>| {
                refusal.field == "index" && refusal.setting.contains(&format!("\"{form}\""))
            };
            let found: Vec<_> = LABORATORY.iter().filter(named).collect();
            let [row] = found[..] else {
                panic!("{form} is in one setting");
            };
            assert_eq!(row.with.contains("values"), form.is_persistent(), "{form}");
        }
    }

    fn refused<O: Combined>(options: &O) -> &'static str {
        match check(options, None) {
            Err(Error::Option { field, .. }) => field,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_refusal_applies_to_its_own_settings_and_not_to_the_defaults() {
        let adr = MapOptions { domain: Domain::Adr, ..MapOptions::default() };
        for fine in [&MapOptions::default(), &adr] {
            assert!(check(fine, None).is_ok());
        }
        assert!(check(&QueueOptions::default(), None).is_ok());
        assert!(check(&WordsOptions { domain: Domain::Eadr, ..Default::default() }, None).is_ok());

        let slabs = MapOptions { values: ValueDesign::Slab, ..MapOptions::default() };
        let full = MapOptions { persist: Persist::Full, ..adr.clone() };
        assert_eq!(refused(&slabs), "values");
        assert_eq!(refused(&MapOptions { domain: Domain::PageCache, ..full.clone() }), "persist");
        assert_eq!(refused(&MapOptions { kind: Kind::Ordered, ..full.clone() }), "persist");
        assert_eq!(refused(&MapOptions { node: Some(0), ..adr.clone() }), "tier");
        let deferred = Laboratory { deferred_frees: 1, ..Laboratory::default() };
        assert_eq!(refused(&MapOptions { laboratory: deferred, ..full }), "deferred_frees");
        let kept = Laboratory { flush: Flush::Keep, ..Laboratory::default() };
        assert_eq!(refused(&MapOptions { laboratory: kept, ..adr }), "flush");
        assert_eq!(refused(&QueueOptions { form: Form::Tx, ..Default::default() }), "form");
        assert_eq!(refused(&WordsOptions::default()), "domain");
    }
}
