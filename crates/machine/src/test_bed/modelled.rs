//! A modelled machine as a test bed: every bench is a fresh one, so no measurement sees another's caches.

use super::{Bench, Effort, TestBed};
use crate::files::WrittenFile;
use crate::model::{Machine, Modelled, NodeCounts, Preset};
use crate::pages::PageCost;
use std::io;
use std::time::Duration;
use terrace_memory::Domain;

/// The seed of modelled caches, the same in every measurement.
const SEED: u64 = 1;

impl TestBed for Preset {
    type Bench = Machine;

    fn name(&self) -> &str {
        &self.name
    }

    fn is_modelled(&self) -> bool {
        true
    }

    fn nodes(&self) -> Vec<String> {
        let mut nodes: Vec<_> = self.node.iter().collect();
        nodes.sort_by_key(|node| node.socket);
        nodes.into_iter().map(|node| node.name.clone()).collect()
    }

    fn medium(&self, node: &str) -> String {
        format!("{node} of the preset {}", self.name)
    }

    fn homes(&self) -> Vec<String> {
        (0..self.processor.sockets).map(|socket| format!("socket{socket}")).collect()
    }

    fn most_threads(&self) -> usize {
        self.processor.cores_per_socket * self.processor.threads_per_core
    }

    fn cache_bytes(&self) -> u64 {
        self.cache.last().map_or(0, |level| level.bytes)
    }

    fn effort(&self) -> Effort {
        Effort { bytes: 16 << 20, time: Duration::MAX }
    }

    fn pages(&self, _node: &str) -> io::Result<Vec<PageCost>> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "modelled machines have no pages"))
    }

    fn bench(&self, threads: usize) -> io::Result<Machine> {
        let most = self.most_threads();
        if threads == 0 || threads > most {
            let what = format!("{}: {threads} threads; a socket has 1 to {most}", self.name);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        Ok(pinned(self, 0, threads))
    }

    fn bench_at(&self, home: &str, most: usize) -> io::Result<Machine> {
        let homes = self.homes();
        let socket = homes.iter().position(|known| known == home).ok_or_else(|| {
            let what = format!("no socket {home}; there are: {}", homes.join(", "));
            io::Error::new(io::ErrorKind::NotFound, what)
        })?;
        Ok(pinned(self, socket, most.min(self.most_threads())))
    }

    fn file(&self, _tier: &str, _bytes: u64) -> io::Result<WrittenFile> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "modelled machines have no files"))
    }
}

/// Threads on the cores of a socket, one after the other, then the second of each.
fn pinned(preset: &Preset, socket: usize, threads: usize) -> Machine {
    let cores = preset.processor.cores_per_socket;
    let cores: Vec<usize> = (0..threads).map(|thread| socket * cores + thread % cores).collect();
    Machine::pinned(preset, &cores, SEED)
}

impl Bench for Machine {
    type Memory = Modelled;

    fn threads(&self) -> usize {
        Machine::threads(self)
    }

    fn memory(&self, node: &str, bytes: u64, domain: Domain) -> io::Result<Modelled> {
        Machine::memory(self, node, bytes, domain)
    }

    fn run<S: FnMut() -> bool + Send>(&self, steps: &mut [S]) -> Duration {
        self.run_steps(steps)
    }

    /// All lines of all memories: there is nothing else on the machine.
    fn forget(&self, _memory: &Modelled) {
        self.clear_caches();
    }

    unsafe fn copy_string(&self, _source: &Modelled, _target: &Modelled) {
        unreachable!("modelled processors have no instruction that copies")
    }

    fn now_ps(&self) -> u64 {
        Machine::now_ps(self)
    }

    fn compute_ns(&self, ns: f64) {
        Machine::compute_ns(self, ns);
    }

    fn wait_ns(&self, ns: f64) {
        Machine::compute_ns(self, ns);
    }

    fn counts(&self, node: &str) -> Option<NodeCounts> {
        self.node_counts(node).ok()
    }
}
