//! A machine seen from one of its nodes: the same memories, measured by that node's processors alone.

use super::{Effort, TestBed};
use crate::files::WrittenFile;
use crate::pages::PageCost;
use std::io;

/// A test bed whose threads all run on the processors of one node.
#[derive(Debug)]
pub struct At<'a, G: TestBed> {
    test_bed: &'a G,
    home: &'a str,
    threads: usize,
}

impl<'a, G: TestBed> At<'a, G> {
    /// `home` is one of [`TestBed::homes`].
    ///
    /// # Errors
    /// It is not.
    pub fn new(test_bed: &'a G, home: &'a str) -> io::Result<At<'a, G>> {
        let threads = super::Bench::threads(&test_bed.bench_at(home, usize::MAX)?);
        Ok(At { test_bed, home, threads })
    }
}

impl<G: TestBed> TestBed for At<'_, G> {
    type Bench = G::Bench;

    fn name(&self) -> &str {
        self.test_bed.name()
    }

    fn is_modelled(&self) -> bool {
        self.test_bed.is_modelled()
    }

    fn processor(&self) -> Option<String> {
        self.test_bed.processor()
    }

    fn nodes(&self) -> Vec<String> {
        self.test_bed.nodes()
    }

    fn medium(&self, node: &str) -> String {
        self.test_bed.medium(node)
    }

    fn tiers(&self) -> Vec<String> {
        self.test_bed.tiers()
    }

    fn homes(&self) -> Vec<String> {
        vec![self.home.to_string()]
    }

    fn most_threads(&self) -> usize {
        self.threads
    }

    fn cache_bytes(&self) -> u64 {
        self.test_bed.cache_bytes()
    }

    fn effort(&self) -> Effort {
        self.test_bed.effort()
    }

    fn pages(&self, node: &str) -> io::Result<Vec<PageCost>> {
        self.test_bed.pages(node)
    }

    /// # Errors
    /// The node has fewer processors.
    fn bench(&self, threads: usize) -> io::Result<G::Bench> {
        if threads == 0 || threads > self.threads {
            let what = format!("{}: {threads} threads; valid is 1 to {}", self.home, self.threads);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        self.test_bed.bench_at(self.home, threads)
    }

    fn bench_at(&self, home: &str, most: usize) -> io::Result<G::Bench> {
        self.test_bed.bench_at(home, most)
    }

    fn file(&self, tier: &str, bytes: u64) -> io::Result<WrittenFile> {
        self.test_bed.file(tier, bytes)
    }
}
