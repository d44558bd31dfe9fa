//! A machine seen from one of its nodes: the same memories, measured by that node's processors alone.

use super::{Effort, Ground};
use crate::files::WrittenFile;
use crate::pages::PageCost;
use std::io;

/// A ground whose threads all run on the processors of one node.
#[derive(Debug)]
pub struct At<'a, G: Ground> {
    ground: &'a G,
    home: &'a str,
    threads: usize,
}

impl<'a, G: Ground> At<'a, G> {
    /// `home` is one of [`Ground::homes`].
    ///
    /// # Errors
    /// It is not.
    pub fn new(ground: &'a G, home: &'a str) -> io::Result<At<'a, G>> {
        let threads = super::Bench::threads(&ground.bench_at(home, usize::MAX)?);
        Ok(At { ground, home, threads })
    }
}

impl<G: Ground> Ground for At<'_, G> {
    type Bench = G::Bench;

    fn name(&self) -> &str {
        self.ground.name()
    }

    fn is_modelled(&self) -> bool {
        self.ground.is_modelled()
    }

    fn processor(&self) -> Option<String> {
        self.ground.processor()
    }

    fn nodes(&self) -> Vec<String> {
        self.ground.nodes()
    }

    fn medium(&self, node: &str) -> String {
        self.ground.medium(node)
    }

    fn tiers(&self) -> Vec<String> {
        self.ground.tiers()
    }

    fn homes(&self) -> Vec<String> {
        vec![self.home.to_string()]
    }

    fn most_threads(&self) -> usize {
        self.threads
    }

    fn cache_bytes(&self) -> u64 {
        self.ground.cache_bytes()
    }

    fn effort(&self) -> Effort {
        self.ground.effort()
    }

    fn pages(&self, node: &str) -> io::Result<Vec<PageCost>> {
        self.ground.pages(node)
    }

    /// # Errors
    /// The node has not so many processors.
    fn bench(&self, threads: usize) -> io::Result<G::Bench> {
        if threads == 0 || threads > self.threads {
            let what = format!("{}: {threads} threads; valid is 1 to {}", self.home, self.threads);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        self.ground.bench_at(self.home, threads)
    }

    fn bench_at(&self, home: &str, most: usize) -> io::Result<G::Bench> {
        self.ground.bench_at(home, most)
    }

    fn file(&self, tier: &str, bytes: u64) -> io::Result<WrittenFile> {
        self.ground.file(tier, bytes)
    }
}
