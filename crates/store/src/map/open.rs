//! Opening a map: in a directory, or on memories that the caller provides.

use super::Map;
use crate::error::Result;
use crate::options::{MapOptions, Persist};
use std::path::Path;
use std::sync::Arc;
use terrace_durable::Medium;
use terrace_memory::{Budget, Divide, Memory};

impl Map {
    /// Opens the map in directory `dir`, made if absent, and recovers it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// use terrace_store::{Map, MapOptions};
    /// let map = Map::open(dir.path(), MapOptions::default())?;
    /// map.put(b"ada", b"lovelace")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Locked`](crate::Error::Locked): another process has the map. [`Error::Option`](crate::Error::Option):
    /// options that exclude each other. [`Error::Medium`](crate::Error::Medium), with file and offset: damage, or a map
    /// that was made with other parameters.
    pub fn open(dir: &Path, options: MapOptions) -> Result<Map> {
        let budget = Arc::new(Budget::new(options.memory_budget_bytes));
        Map::open_within(dir, options, &budget)
    }

    /// Opens the map in directory `dir` with memory from a budget that it shares with others; the budget in `options`
    /// does not count.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = terrace_store::MapOptions::default();
    /// let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// let users = terrace_store::Map::open_within(&dir.path().join("users"), options.clone(), &budget)?;
    /// let pages = terrace_store::Map::open_within(&dir.path().join("pages"), options, &budget)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The variants that [`Map::open`] returns.
    pub fn open_within(dir: &Path, options: MapOptions, budget: &Arc<Budget>) -> Result<Map> {
        crate::open::open(dir, options, budget)
    }
}

impl<M: Memory> Map<M> {
    /// Opens the map in a byte-addressable `memory`, without a directory and without background threads:
    /// [`Map::collect`] does their work when it is called. For tests on memories that count accesses, or crash. Each
    /// opening of one memory passes another `lifetime`.
    ///
    /// ```
    /// # let memory = |bytes| -> std::io::Result<_> {
    /// #     let region = terrace_memory::Region::reserve(bytes, terrace_memory::Backing::Anonymous)?;
    /// #     region.commit(0, bytes)?;
    /// #     Ok(region.native())
    /// # };
    /// # use terrace_store::{Domain, Durability, MapOptions};
    /// # let (domain, durability) = (Domain::Adr, Durability::Sync);
    /// # let options = MapOptions { domain, durability, writers: 1, ..Default::default() };
    /// let map = terrace_store::Map::over(memory(64 << 20)?, true, 1, options)?;
    /// map.put(b"ada", b"lovelace")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Option`](crate::Error::Option): options that exclude each other.
    /// [`Error::Medium`](crate::Error::Medium): damage, or a memory that is too small.
    pub fn over(memory: M, is_new: bool, lifetime: u32, options: MapOptions) -> Result<Map<M>> {
        Map::on(Medium::over(memory, is_new, lifetime), options)
    }

    /// Opens the map on a medium that the caller made; otherwise like [`Map::over`].
    ///
    /// ```
    /// # let memory = |bytes| -> std::io::Result<_> {
    /// #     let region = terrace_memory::Region::reserve(bytes, terrace_memory::Backing::Anonymous)?;
    /// #     region.commit(0, bytes)?;
    /// #     Ok(region.native())
    /// # };
    /// # use terrace_store::{Domain, Durability, MapOptions};
    /// # let (domain, durability) = (Domain::Adr, Durability::Sync);
    /// # let options = MapOptions { domain, durability, writers: 1, ..Default::default() };
    /// let medium = terrace_durable::Medium::over(memory(64 << 20)?, true, 1);
    /// let map = terrace_store::Map::on(medium, options)?;
    /// assert!(map.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Option`](crate::Error::Option): options that exclude each other.
    /// [`Error::Medium`](crate::Error::Medium): damage, or a memory that is too small.
    pub fn on(medium: Medium<M>, options: MapOptions) -> Result<Map<M>> {
        crate::open::over(medium, options)
    }
}

impl<M: Memory, I: Divide> Map<M, I> {
    /// Opens the map like [`Map::over`], with its index in the memory `dram`: each opening rebuilds it there, and
    /// `dram` must be zero then. 24 bytes for each key are enough. For measurements of index and values together on
    /// modelled memories.
    ///
    /// ```
    /// # let memory = |bytes| -> std::io::Result<_> {
    /// #     let region = terrace_memory::Region::reserve(bytes, terrace_memory::Backing::Anonymous)?;
    /// #     region.commit(0, bytes)?;
    /// #     Ok(region.native())
    /// # };
    /// # use terrace_store::{Domain, Durability, MapOptions};
    /// # let (domain, durability) = (Domain::Adr, Durability::Sync);
    /// # let options = MapOptions { domain, durability, writers: 1, ..Default::default() };
    /// let dram = memory(16 << 20)?;
    /// let map = terrace_store::Map::over_with_dram(memory(64 << 20)?, &dram, true, 1, options)?;
    /// assert!(map.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Option`](crate::Error::Option): options that exclude each other.
    /// [`Error::Medium`](crate::Error::Medium): damage, or a memory that is too small.
    pub fn over_with_dram(
        memory: M,
        dram: &I,
        is_new: bool,
        lifetime: u32,
        options: MapOptions,
    ) -> Result<Map<M, I>> {
        Map::on_with_dram(Medium::over(memory, is_new, lifetime), dram, options)
    }

    /// Opens the map like [`Map::over_with_dram`], on a medium that the caller made.
    ///
    /// ```
    /// # let memory = |bytes| -> std::io::Result<_> {
    /// #     let region = terrace_memory::Region::reserve(bytes, terrace_memory::Backing::Anonymous)?;
    /// #     region.commit(0, bytes)?;
    /// #     Ok(region.native())
    /// # };
    /// # use terrace_store::{Domain, Durability, MapOptions};
    /// # let (domain, durability) = (Domain::Adr, Durability::Sync);
    /// # let options = MapOptions { domain, durability, writers: 1, ..Default::default() };
    /// let medium = terrace_durable::Medium::over(memory(64 << 20)?, true, 1);
    /// let map = terrace_store::Map::on_with_dram(medium, &memory(16 << 20)?, options)?;
    /// assert!(map.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Option`](crate::Error::Option): options that exclude each other.
    /// [`Error::Medium`](crate::Error::Medium): damage, or a memory that is too small.
    pub fn on_with_dram(medium: Medium<M>, dram: &I, options: MapOptions) -> Result<Map<M, I>> {
        let options = MapOptions { persist: Persist::Values, ..options };
        crate::open::over_with_dram(medium, dram, options)
    }
}

impl<M: Memory, I: Divide + Clone> Map<M, I> {
    /// Opens the map like [`Map::over`], with a persistent index in the memory `index`: under [`Persist::Full`] if
    /// `options` say so, otherwise under [`Persist::Index`].
    ///
    /// ```
    /// # let memory = |bytes| -> std::io::Result<_> {
    /// #     let region = terrace_memory::Region::reserve(bytes, terrace_memory::Backing::Anonymous)?;
    /// #     region.commit(0, bytes)?;
    /// #     Ok(region.native())
    /// # };
    /// # use terrace_store::{Domain, Durability, MapOptions};
    /// # let (domain, durability) = (Domain::Adr, Durability::Sync);
    /// # let options = MapOptions { domain, durability, writers: 1, ..Default::default() };
    /// let index = memory(16 << 20)?;
    /// let map = terrace_store::Map::over_with_index(memory(64 << 20)?, index, true, 1, options)?;
    /// assert!(map.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Option`](crate::Error::Option): options that exclude each other.
    /// [`Error::Medium`](crate::Error::Medium): damage, or a memory that is too small.
    pub fn over_with_index(
        memory: M,
        index: I,
        is_new: bool,
        lifetime: u32,
        options: MapOptions,
    ) -> Result<Map<M, I>> {
        let persist = match options.persist {
            Persist::Full => Persist::Full,
            _ => Persist::Index,
        };
        let options = MapOptions { persist, ..options };
        crate::open::over_with_index(Medium::over(memory, is_new, lifetime), index, options)
    }
}
