//! A map's plan: what its options come to in its directory, resolved once, before anything is opened. The rest
//! of the code takes the plan apart, and no options are left to ask.
//!
//! # The shapes
//! | medium | values | index | persistent |
//! |---|---|---|---|
//! | page cache: memory mirrors the file | logs | hash table, or tree of rows, in DRAM | values |
//! | byte-addressable: the file is the memory | logs or slabs | the same | values |
//! | the same | logs or slabs | hash table, or tree (FAST/FAIR leaves or delta logs, by the profile), beside the values | index |
//! | the same | logs or slabs | hash table beside the values, free space and counts with it | full |
//!
//! `docs/shapes.md` says where each of them wins. Anything else is refused by [`refused`](crate::refused).
//!
//! Settings that may change while the map is open (durability, budget, what happens when that is spent) are no part of
//! a plan.

use crate::advice::lookups_together;
use crate::error::{Error, Result};
use crate::laboratory::{InnerTier, Laboratory, LeafForm, TreeForm};
use crate::options::{IndexTier, Kind, MapOptions, Persist, ValueDesign, WhenFull};
use crate::refused::{self, check};
use crate::tree;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_durable::logs::{FarMemory, MAX_WRITERS};
use terrace_durable::{Access, Flush, Medium};
use terrace_index::tree::GroupFlush;
use terrace_memory::profile::Keeping;
use terrace_memory::{Domain, Memory};

/// How a map is stored.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub place: Place,
    pub access: Access,
    /// Of the directory.
    pub domain: Domain,
    pub kind: Kind,
    /// The index where it is not persistent.
    pub in_dram: InDram,
    /// Where logs are moved when the memory is spent.
    pub far: Option<Arc<FarMemory>>,
    /// Whether logs may leave memory while the map is open.
    pub may_spill: bool,
    /// Current logs, or writers of slabs, beside the collector.
    pub writers: usize,
    /// Lookups of a batch that go down an ordered index together.
    pub lookups_together: usize,
    /// When the lines of items are written back, as a sentence.
    pub flush_rule: String,
    /// Which index of an ordered map would be persistent, as a sentence.
    pub index_rule: Option<String>,
}

/// Where values lie, and how they come to be durable.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// In memory, of this node or any, which mirrors the file: logs, which are durable when the file is written. The
    /// index is rebuilt.
    Mirrored { node: Option<u32> },
    /// In the file, which is the memory: writing lines back makes them durable.
    Mapped(Mapped),
    /// In slabs in a private copy of the file: nothing is written.
    Copied,
}

/// What a map in byte-addressable memory is.
#[derive(Clone, Debug)]
pub(crate) struct Mapped {
    pub design: Design,
    pub flush: Flush,
    /// What was measured of the memory, if it was.
    pub keeping: Option<Arc<Keeping>>,
    /// What is persistent; `Auto` is what the value file names, which is not open yet.
    pub persist: Persist,
    /// The tree where the index is persistent, of an ordered map.
    pub tree: PersistentTree,
}

/// The two value designs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Design {
    Logs,
    Slabs {
        /// Superseded slots that each writer may leave to be freed later.
        deferred_frees: usize,
    },
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

impl Plan {
    /// What happens when the budget is spent, where this was asked for.
    pub fn when_full(&self, asked: WhenFull) -> WhenFull {
        if asked == WhenFull::Spill && !self.may_spill { WhenFull::Refuse } else { asked }
    }

    /// The plan of a map in a directory, and its value file.
    ///
    /// # Errors
    /// [`Error::Option`] if no map is like this, or the map that is there is another.
    pub fn in_directory(dir: &Path, options: &MapOptions) -> Result<(Plan, PathBuf)> {
        let (logs, slabs) = (dir.join("values.log"), dir.join("values.slab"));
        // Of the design that is there, if nothing was asked for.
        let values = design(options.values, &logs, &slabs)?;
        let path = if values == ValueDesign::Slab { slabs } else { logs };
        let options = MapOptions { values, ..options.clone() };
        check(&options, Some(dir))?;
        Ok((Plan::of(&options, options.domain.is_byte_addressable())?, path))
    }

    /// The plan of a map on a medium that somebody gave.
    ///
    /// # Errors
    /// As [`Plan::in_directory`].
    pub fn on<M: Memory>(medium: &Medium<M>, options: &MapOptions) -> Result<Plan> {
        let is_mapped = medium.is_byte_addressable();
        // What the memory is, experiments decide: items may stay in caches that do not survive.
        let domain = if is_mapped { Domain::Eadr } else { Domain::PageCache };
        check(&MapOptions { domain, ..options.clone() }, None)?;
        let writers = options.writers.max(1);
        Plan::of(&MapOptions { writers, ..options.clone() }, is_mapped)
    }

    fn of(options: &MapOptions, is_mapped: bool) -> Result<Plan> {
        let writes = options.access.writes();
        let is_slab = options.values == ValueDesign::Slab;
        let Laboratory { flush, deferred_frees, .. } = options.laboratory;
        let place = match is_mapped {
            _ if is_slab && !writes => Place::Copied,
            false => Place::Mirrored { node: options.node },
            true => Place::Mapped(Mapped {
                design: if is_slab { Design::Slabs { deferred_frees } } else { Design::Logs },
                flush,
                keeping: options.keeping().cloned(),
                // A reader leaves what is persistent alone, and needs no settings.
                persist: if writes { options.level() } else { Persist::Values },
                tree: PersistentTree::of(options),
            }),
        };
        let asked = if options.writers == 0 { processors() } else { options.writers };
        let plan = Plan {
            place,
            access: options.access,
            domain: options.domain,
            kind: options.kind,
            in_dram: InDram::of(options),
            far: options.far.clone().filter(|_| !is_mapped && !is_slab),
            may_spill: !is_mapped
                && options.kind == Kind::Hash
                && options.when_full == WhenFull::Spill,
            writers: asked.clamp(1, MAX_WRITERS - 1),
            lookups_together: lookups_together(options),
            flush_rule: options.flush_rule(),
            index_rule: options.index_rule(),
        };
        if options.kind == Kind::Ordered && writes {
            tree::check_nodes(&plan)?;
        }
        Ok(plan)
    }

    /// What a map in byte-addressable memory is. A persistent index is in such a map alone.
    pub fn mapped(&self) -> &Mapped {
        match &self.place {
            Place::Mapped(mapped) => mapped,
            other => panic!("a persistent index is in byte-addressable memory, not {other:?}"),
        }
    }

    pub fn design(&self) -> Design {
        match &self.place {
            Place::Mirrored { .. } => Design::Logs,
            Place::Mapped(mapped) => mapped.design,
            Place::Copied => Design::Slabs { deferred_frees: 0 },
        }
    }

    /// Refuses a tier for an index that turned out to be persistent.
    ///
    /// # Errors
    /// [`Error::Option`].
    pub fn check_index_tier(&self, dir: &Path) -> Result<()> {
        match self.in_dram.tier {
            Some(_) => Err(refused::INDEX_TIER.error(Some((dir, self.domain)))),
            None => Ok(()),
        }
    }

    /// Whether every operation is a section: that was asked for, or `was` so at the last opening.
    ///
    /// # Errors
    /// [`Error::Option`] if slots were to be freed late.
    pub fn is_full(&self, was: bool) -> Result<bool> {
        let Mapped { persist, design, .. } = self.mapped();
        let is_full = match persist {
            Persist::Full => true,
            // An ordered map has no sections, whatever the map was before.
            Persist::Auto => was && !self.is_ordered(),
            Persist::Index | Persist::Values => false,
        };
        match design {
            Design::Slabs { deferred_frees: 1.. } if is_full => {
                Err(refused::DEFERRED_FREES.error(None))
            }
            _ => Ok(is_full),
        }
    }

    pub fn is_ordered(&self) -> bool {
        self.kind == Kind::Ordered
    }

    /// The form of an index that is rebuilt at each opening; [`None`] of a hash map.
    pub fn form_in_dram(&self) -> Option<TreeForm> {
        self.is_ordered().then(|| self.in_dram.form.into())
    }

    /// The form of a new persistent index; [`None`] of a hash map.
    pub fn persistent_form(&self) -> Option<TreeForm> {
        self.is_ordered().then(|| self.mapped().tree.form)
    }
}

impl MapOptions {
    /// What is to be persistent: where nothing was said, a form of tree that was asked for decides, and a disk.
    pub(crate) fn level(&self) -> Persist {
        let Laboratory { tree, inner_tier, .. } = self.laboratory;
        match (self.persist, tree) {
            (Persist::Auto, _) if !self.domain.is_byte_addressable() => Persist::Values,
            (Persist::Auto, Some(form)) if form.is_persistent() => Persist::Index,
            (Persist::Auto, Some(_)) => Persist::Values,
            (Persist::Auto, None) if inner_tier == InnerTier::Index => Persist::Index,
            (persist, _) => persist,
        }
    }
}

pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The design asked for, which the directory's value file must not contradict.
fn design(asked: ValueDesign, logs: &Path, slabs: &Path) -> Result<ValueDesign> {
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
        ValueDesign::Slab => Ok(ValueDesign::Slab),
        ValueDesign::Auto if has_slabs => Ok(ValueDesign::Slab),
        ValueDesign::Log | ValueDesign::Auto => Ok(ValueDesign::Log),
    }
}

impl<M: Memory, I: Memory> crate::map::Map<M, I> {
    /// What it was opened for: on a full disk it takes no writes although they were asked for.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// assert_eq!(map.access(), terrace_store::Access::Write);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn access(&self) -> Access {
        self.inner.engine.plan.access
    }
}
