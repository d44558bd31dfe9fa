//! What a page costs: its first touch, and what its size does to loads that are all over.

use crate::chase::Chase;
use crate::test_bed::{Here, TestBed};
use std::io;
use std::time::Instant;
use terrace_memory::{Backing, Memory, Region};

/// The page that every kernel has here, bytes.
const BASE_PAGE: u64 = 4096;
/// How much larger than the largest cache the region is.
const CACHES: u64 = 2;
/// The least of a region, bytes.
const REGION_MIN: u64 = 256 << 20;
/// Samples of 32 loads.
const SAMPLES: u64 = 4000;

/// What a page of a size costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PageCost {
    /// Bytes of a page.
    pub page_bytes: u64,
    /// The first touch of a page that is not there, ns.
    pub fault_ns: f64,
    /// A dependent load of a random line of a region of such pages, ns.
    pub random_load_ns: f64,
}

/// What base pages and transparent huge pages cost on a node; as many of them as the kernel's settings
/// leave apart.
pub(crate) fn measure(here: &Here, node: &str) -> io::Result<Vec<PageCost>> {
    let transparent = &here.topology().transparent_huge_pages;
    let enabled = transparent.enabled.as_deref().unwrap_or("never");
    let mut costs = Vec::new();
    // Where the kernel makes huge pages unasked, base pages cannot be had for comparison.
    if enabled != "always" {
        costs.push(cost(here, node, Backing::Anonymous, BASE_PAGE)?);
    }
    if enabled != "never" {
        let huge = transparent.page_bytes.unwrap_or(2 << 20);
        costs.push(cost(here, node, Backing::HugePages, huge)?);
    }
    Ok(costs)
}

fn cost(here: &Here, node: &str, backing: Backing, page_bytes: u64) -> io::Result<PageCost> {
    let bytes = (CACHES * here.cache_bytes()).max(REGION_MIN).next_power_of_two();
    let region = Region::reserve(bytes, backing)?;
    region.commit(0, bytes)?;
    here.bind(&region, node)?;
    let bench = here.bench(1)?;
    let memory = region.native();
    let start = Instant::now();
    for page in 0..bytes / page_bytes {
        // SAFETY: inside the region, committed and aligned; nobody else has it.
        unsafe { memory.store(page * page_bytes, 1) };
    }
    let fault_ns = start.elapsed().as_nanos() as f64 / (bytes / page_bytes) as f64;
    let random_load_ns = Chase::lay(&bench, &memory, bytes).follow(SAMPLES).mean_ns;
    Ok(PageCost { page_bytes, fault_ns, random_load_ns })
}
