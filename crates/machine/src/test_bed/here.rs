//! This machine as a test bed: pinned threads, memory bound to the kernel's nodes or in files, the real clock.

use super::files::Files;
use super::{Bench, Effort, TestBed};
use crate::files::WrittenFile;
use crate::model::NodeCounts;
use crate::pages::{self, PageCost};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};
use terrace_memory::{
    Backing, ByteSize, Divide, Domain, Memory, Native, Region, Tier, Topology, instructions,
    topology::{NumaNode, node_name},
};

/// How long a thread measures one figure.
const TIME: Duration = Duration::from_millis(200);

/// This machine.
#[derive(Debug)]
pub struct Here {
    topology: Topology,
    /// Processors that this process may use, those of the first node that has any before the others.
    cpus: Vec<usize>,
    /// Tiers that are files.
    files: Vec<Files>,
    /// Memory of each node and tier that was measured, kept for the next measurement: filling it takes longer.
    regions: Regions,
}

type Regions = Arc<Mutex<BTreeMap<String, Vec<Region>>>>;

impl Here {
    /// This machine, as the system tells it.
    ///
    /// # Errors
    /// The system does not tell which processors may be used.
    pub fn new(topology: Topology) -> io::Result<Here> {
        let allowed = sched_getaffinity(None)?;
        let mut cpus: Vec<usize> =
            topology.nodes.iter().flat_map(|node| &node.cpus).map(|cpu| *cpu as usize).collect();
        if cpus.is_empty() {
            cpus = (0..CpuSet::MAX_CPU).collect();
        }
        cpus.retain(|cpu| *cpu < CpuSet::MAX_CPU && allowed.is_set(*cpu));
        Ok(Here { topology, cpus, files: Vec::new(), regions: Regions::default() })
    }

    /// The same with the tiers that are files, as memories by their names; a tier of memory is measured as
    /// the node it is of.
    #[must_use]
    pub fn with_tiers(mut self, tiers: &[Tier]) -> Here {
        self.files.extend(tiers.iter().filter_map(Files::of));
        self
    }

    /// Puts a region on a node.
    pub(crate) fn bind(&self, region: &Region, node: &str) -> io::Result<()> {
        let number = number_of(&self.nodes(), node)?;
        // Where there is one node alone nothing need be bound.
        if self.topology.nodes.len() > 1 {
            region.bind(number).map_err(io::Error::other)?;
        }
        Ok(())
    }

    /// Processors of a node that this process may use.
    fn cpus_of(&self, node: &NumaNode) -> Vec<usize> {
        let cpus = node.cpus.iter().map(|cpu| *cpu as usize);
        cpus.filter(|cpu| self.cpus.contains(cpu)).collect()
    }

    fn bench_of(&self, cpus: Vec<usize>) -> HereBench {
        HereBench {
            cpus,
            only_node: (self.topology.nodes.len() == 1).then(|| self.topology.nodes[0].node),
            nodes: self.nodes(),
            files: self.files.clone(),
            regions: Arc::clone(&self.regions),
            start: Instant::now(),
        }
    }

    /// Its topology.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }
}

impl TestBed for Here {
    type Bench = HereBench;

    fn name(&self) -> &str {
        "this machine"
    }

    fn is_modelled(&self) -> bool {
        false
    }

    fn processor(&self) -> Option<String> {
        self.topology.processor.model.clone()
    }

    fn nodes(&self) -> Vec<String> {
        let nodes = self.topology.nodes.iter().filter(|node| node.has_memory());
        nodes.map(|node| node_name(node.node)).collect()
    }

    fn medium(&self, node: &str) -> String {
        if let Some(files) = self.files.iter().find(|files| files.name == node) {
            return files.words.clone();
        }
        let regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        let measured = regions.get(node).map_or(&[][..], Vec::as_slice);
        let bytes: u64 = measured.iter().map(Region::len).sum();
        let huge: Option<u64> = measured.iter().map(Region::huge_bytes).sum();
        match huge {
            Some(huge) if bytes > 0 => {
                format!("memory, {} % of what was measured in huge pages", huge * 100 / bytes)
            }
            _ => "memory".to_string(),
        }
    }

    fn tiers(&self) -> Vec<String> {
        self.files.iter().map(|files| files.name.clone()).collect()
    }

    fn homes(&self) -> Vec<String> {
        let nodes = self.topology.nodes.iter().filter(|node| !self.cpus_of(node).is_empty());
        nodes.map(|node| node_name(node.node)).collect()
    }

    fn most_threads(&self) -> usize {
        self.cpus.len()
    }

    fn cache_bytes(&self) -> u64 {
        self.topology.last_level_cache_bytes().unwrap_or(32 << 20)
    }

    fn effort(&self) -> Effort {
        Effort { bytes: 4 << 30, time: TIME }
    }

    fn pages(&self, node: &str) -> io::Result<Vec<PageCost>> {
        pages::measure(self, node)
    }

    fn bench(&self, threads: usize) -> io::Result<HereBench> {
        let most = self.cpus.len();
        if threads == 0 || threads > most {
            let what = format!("{threads} threads; this process may use {most} processors");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        Ok(self.bench_of(self.cpus[..threads].to_vec()))
    }

    fn bench_at(&self, home: &str, most: usize) -> io::Result<HereBench> {
        let number = number_of(&self.homes(), home)?;
        let node = self.topology.nodes.iter().find(|node| node.node == number);
        let mut cpus = node.map(|node| self.cpus_of(node)).unwrap_or_default();
        cpus.truncate(most);
        Ok(self.bench_of(cpus))
    }

    fn file(&self, tier: &str, bytes: u64) -> io::Result<WrittenFile> {
        let files = self
            .files
            .iter()
            .find(|files| files.name == tier)
            .ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, "memory, not files"))?;
        let bytes = bytes.min(files.bytes.unwrap_or(u64::MAX));
        let regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        let held = regions.get(tier).map_or(0, |of| of.iter().map(Region::len).sum());
        WrittenFile::new(files.file(bytes, held)?, bytes)
    }
}

/// Pinned threads of this machine.
#[derive(Debug)]
pub struct HereBench {
    cpus: Vec<usize>,
    /// The node that all memory is on, where there is one alone: nothing need be bound.
    only_node: Option<u32>,
    nodes: Vec<String>,
    files: Vec<Files>,
    regions: Regions,
    start: Instant,
}

impl Bench for HereBench {
    type Memory = Native;

    fn threads(&self) -> usize {
        self.cpus.len()
    }

    fn memory(&self, node: &str, bytes: u64, domain: Domain) -> io::Result<Native> {
        let mut regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        let of_node = regions.entry(node.to_string()).or_default();
        let fits = |region: &Region| region.len() >= bytes && region.domain() == domain;
        let place = match of_node.iter().position(fits) {
            Some(place) => place,
            None => {
                let held = of_node.iter().map(Region::len).sum();
                of_node.push(self.region(node, bytes, held, domain)?);
                of_node.len() - 1
            }
        };
        // Regions stay for as long as the bench, which is as long as the memory may be used.
        Ok(of_node[place].native().part(0, bytes))
    }

    fn run<S: FnMut() -> bool + Send>(&self, steps: &mut [S]) -> Duration {
        assert!(steps.len() <= self.cpus.len(), "the bench has {} threads", self.cpus.len());
        let barrier = Barrier::new(steps.len() + 1);
        let start = std::thread::scope(|scope| {
            for (step, cpu) in steps.iter_mut().zip(&self.cpus) {
                let barrier = &barrier;
                scope.spawn(move || {
                    let mut one = CpuSet::new();
                    one.set(*cpu);
                    // A thread that may not be pinned measures all the same, wherever it runs.
                    let _unpinned = sched_setaffinity(None, &one);
                    barrier.wait();
                    while step() {}
                });
            }
            barrier.wait();
            Instant::now()
        });
        start.elapsed()
    }

    fn forget(&self, memory: &Native) {
        // SAFETY: the whole memory, which no measurement changes now.
        instructions::evict(unsafe { memory.bytes(0, memory.len()) });
    }

    unsafe fn copy_string(&self, source: &Native, target: &Native) {
        // SAFETY: by contract; the length is that of both.
        unsafe { target.copy_string(0, source.bytes(0, source.len())) };
    }

    fn now_ps(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64 * 1000
    }

    fn compute_ns(&self, _ns: f64) {}

    fn wait_ns(&self, ns: f64) {
        let end = self.now_ps() + (ns * 1000.0) as u64;
        while self.now_ps() < end {
            std::hint::spin_loop();
        }
    }

    fn counts(&self, _node: &str) -> Option<NodeCounts> {
        None
    }
}

/// The kernel's number of a node by its name here.
fn number_of(nodes: &[String], node: &str) -> io::Result<u32> {
    let known = nodes.iter().any(|known| known == node);
    let number = node.strip_prefix("node").and_then(|number| number.parse().ok());
    number.filter(|_| known).ok_or_else(|| {
        let what = format!("no node {node}; there are: {}", nodes.join(", "));
        io::Error::new(io::ErrorKind::NotFound, what)
    })
}

/// Memory of a node that is free now, or holds files that the kernel can drop; `None` where it does not tell.
fn available_bytes(node: u32) -> Option<u64> {
    let path = format!("/sys/devices/system/node/node{node}/meminfo");
    available_of(&std::fs::read_to_string(path).ok()?)
}

/// The same of the file's text.
fn available_of(meminfo: &str) -> Option<u64> {
    let kib = |line: &str| {
        let (name, value) = line.split_once(':')?;
        let wanted = ["MemFree", "Active(file)", "Inactive(file)"];
        let is_wanted = wanted.contains(&name.rsplit(' ').next()?);
        is_wanted.then(|| value.trim().trim_end_matches(" kB").parse::<u64>().ok())?
    };
    meminfo.lines().filter_map(kib).reduce(|sum, kib| sum + kib).map(|kib| kib << 10)
}

impl HereBench {
    fn region(&self, name: &str, bytes: u64, held: u64, domain: Domain) -> io::Result<Region> {
        if let Some(files) = self.files.iter().find(|files| files.name == name) {
            return files.region(bytes, held, domain);
        }
        let names = self.nodes.iter().chain(self.files.iter().map(|files| &files.name));
        let names: Vec<String> = names.cloned().collect();
        let node = number_of(&names, name)?;
        // A kernel that finds no page of a node for memory that is bound to it ends the process.
        if let Some(available) = available_bytes(node)
            && bytes > available / 16 * 15
        {
            let (needed, available) = (ByteSize(bytes), ByteSize(available));
            let what = format!("{name} has {available} free, and {needed} are needed");
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, what));
        }
        let region = Region::reserve(bytes, Backing::HugePages)?;
        region.commit(0, bytes)?;
        if self.only_node != Some(node) {
            region.bind(node).map_err(io::Error::other)?;
        }
        region.populate(0, bytes)?;
        Ok(region.declared(domain))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_a_node_has_is_refused_in_words() {
        let text = "Node 3 MemTotal:         253952 kB\nNode 3 MemFree:           90000 kB\n\
                    Node 3 Active:             500 kB\nNode 3 Active(file):       1000 kB\n\
                    Node 3 Inactive(file):     9000 kB\nNode 3 Mapped:  7 kB\n";
        assert_eq!(available_of(text), Some(100_000 << 10));
        assert_eq!(available_of("nothing"), None);
        let here = Here::new(Topology::read().expect("a topology")).expect("processors");
        let node = here.nodes().first().expect("a node").clone();
        let Some(available) = available_bytes(number_of(&here.nodes(), &node).expect("known"))
        else {
            return;
        };
        let bench = here.bench(1).expect("a thread");
        let refused = bench.memory(&node, available + (1 << 30), Domain::None).map(drop);
        let refused = refused.expect_err("more than there is").to_string();
        assert!(
            refused.starts_with(&format!("{node} has ")) && !refused.contains('\n'),
            "{refused}"
        );
    }
}
