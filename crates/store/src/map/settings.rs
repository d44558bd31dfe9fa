//! What a map was opened with, and what of that may change.

use super::Map;
use crate::error::{Error, Result};
use crate::kept::Kept;
use crate::options::{Durability, Persist, WhenFull};
use std::sync::atomic::Ordering;
use terrace_durable::lock;
use terrace_memory::Memory;

impl<M: Memory, I: Memory> Map<M, I> {
    /// When writes survive a crash, as it is now.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// assert_eq!(map.durability(), terrace_store::MapOptions::default().durability);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn durability(&self) -> Durability {
        self.inner.engine.durability.get()
    }

    /// What happens when the memory budget is spent, as it is now.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// assert_eq!(map.when_full(), terrace_store::WhenFull::Spill);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn when_full(&self) -> WhenFull {
        match self.inner.engine.when_full.load(Ordering::Relaxed) {
            set if set == WhenFull::Evict as u8 => WhenFull::Evict,
            set if set == WhenFull::Spill as u8 => WhenFull::Spill,
            _ => WhenFull::Refuse,
        }
    }

    /// What is persistent.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// assert_eq!(map.persist(), terrace_store::Persist::Values);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn persist(&self) -> Persist {
        match &self.inner.engine.kept {
            None => Persist::Values,
            Some(Kept { sections: None, .. }) => Persist::Index,
            Some(Kept { sections: Some(_), .. }) => Persist::Full,
        }
    }

    /// Writers that do not wait for one another.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// let options = terrace_store::MapOptions { writers: 3, ..Default::default() };
    /// assert_eq!(terrace_store::Map::open(dir.path(), options)?.writers(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn writers(&self) -> usize {
        self.inner.engine.values.writers()
    }

    /// When the lines of items are written back, and what decides it, as a sentence.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// assert_eq!(map.flush_rule(), "none: the file is written instead");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn flush_rule(&self) -> &str {
        &self.inner.engine.plan.flush_rule
    }

    /// Which persistent index a new map of this kind would have, and what decides it, as a sentence; none where there
    /// is nothing to decide.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// assert_eq!(map.index_rule(), None, "it has no tree");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn index_rule(&self) -> Option<&str> {
        self.inner.engine.plan.index_rule.as_deref()
    }

    /// Changes when writes survive a crash; everything written before is durable on return.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// use terrace_store::Durability;
    /// map.set_durability(Durability::Sync)?;
    /// assert_eq!(map.durability(), Durability::Sync);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of the medium; the old durability stays.
    pub fn set_durability(&self, durability: Durability) -> Result<()> {
        self.inner.engine.switch_durability(durability)
    }

    /// Changes the memory budget. A map that evicts gives up what is beyond it, but for its index, which keeps its
    /// size until the map is opened again; in another what is in use stays.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// map.set_memory_budget(1 << 30);
    /// assert_eq!(map.stats().memory_budget_bytes, 1 << 30);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_memory_budget(&self, bytes: u64) {
        self.inner.engine.budget.set_limit(bytes);
        self.inner.engine.relieve();
    }

    /// Changes what happens when the budget is spent.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// map.set_when_full(terrace_store::WhenFull::Evict)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Option`] of [`WhenFull::Spill`], unless the map was opened so.
    pub fn set_when_full(&self, when_full: WhenFull) -> Result<()> {
        let engine = &self.inner.engine;
        if when_full == WhenFull::Spill && !engine.plan.may_spill {
            let why = "logs leave the memory of a hash map on a disk that was opened with it; open the map anew".into();
            return Err(Error::Option { field: "when_full", why });
        }
        // A round that began before would refuse writes for what was asked for then.
        let _between = lock(engine.values.medium().memory(), &engine.collecting);
        engine.when_full.store(when_full as u8, Ordering::Relaxed);
        engine.relieve();
        Ok(())
    }
}
