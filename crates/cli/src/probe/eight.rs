//! `terrace probe --idiosyncrasies`: one memory held to the eight tests of PMIdioBench, beside DRAM.

use super::Arguments;
use crate::output::{Failure, Outcome, print, print_json};
use crate::progress;
use serde_json::json;
use std::cell::Cell;
use terrace::memory::Profile;
use terrace::memory::profile::NodeProfile;
use terrace_advise::idiosyncrasies::{
    self as tests, Advice, Cause, Findings, Settings, Sweep, Thresholds,
};
use terrace_advise::machine::test_bed::TestBed;
use terrace_advise::probe;

/// Of one memory.
const TESTS: u64 = 8;

/// What they found, why, and what follows.
pub struct EightTests {
    found: Findings,
    dram: Findings,
    causes: Vec<Cause>,
    advice: Vec<Advice>,
}

impl EightTests {
    /// Measures the memory that was named, or else the first that is not DRAM.
    pub fn of<G: TestBed>(test_bed: &G, arguments: &Arguments) -> Result<EightTests, Failure> {
        let memories = [test_bed.nodes(), test_bed.tiers()].concat();
        let [subject, dram] = subjects(test_bed, &memories, arguments)?;
        let settings = if arguments.quick { Settings::brief() } else { Settings::paper() };
        let sweep = Sweep::new(test_bed, settings);
        let bar = progress::steps("probe");
        let memories_tested = if dram == subject { 1 } else { 2 };
        bar.set_length(TESTS * memories_tested);
        let begun = Cell::new(0);
        let tell = |what: &str| {
            bar.set_position(begun.replace(begun.get() + 1));
            bar.set_message(what.to_string());
        };
        let measure = |node: &str, remote: Option<&str>| {
            Findings::measure(&sweep, node, remote, &tell)
                .map_err(|error| Failure::new(format!("{node}: {error}")))
        };
        // A preset's nodes are named by kind and socket; what the kernel's numbers mean is not known.
        let twin = |node: &str| {
            let kind = |node: &str| node.trim_end_matches(|c: char| c.is_ascii_digit()).to_string();
            let is_twin = |other: &&String| other.as_str() != node && kind(other) == kind(node);
            memories.iter().find(is_twin).filter(|_| test_bed.is_modelled()).map(String::as_str)
        };
        let found = measure(&subject, arguments.remote.as_deref().or(twin(&subject)))?;
        let beside = if dram == subject { found.clone() } else { measure(&dram, twin(&dram))? };
        bar.finish_and_clear();
        let causes = tests::classify(&found, &beside, Thresholds::default());
        let advice = tests::recommend(&found);
        Ok(EightTests { found, dram: beside, causes, advice })
    }

    /// As a run of a profile, of the two memories.
    pub fn profile<G: TestBed>(&self, test_bed: &G) -> Profile {
        let mut profile = Profile::new(probe::machine_of(test_bed));
        profile.taken_at.push(probe::now());
        let mut of = NodeProfile::new(&self.found.node);
        of.medium = test_bed.medium(&self.found.node);
        of.effects = tests::effects(&self.found, &self.causes);
        of.recommendations = tests::recommendations(&self.advice);
        profile.nodes.push(of);
        profile
    }

    /// The tests, or all that was measured as JSON.
    pub fn print(&self, is_json: bool) -> Outcome {
        if is_json {
            return print_json(&json!({
                "findings": self.found, "dram": self.dram,
                "causes": self.causes, "recommendations": self.advice
            }));
        }
        print(tests::table(&self.found, &self.causes, &self.advice).trim_end())
    }
}

/// The memory to test, and the DRAM beside it.
fn subjects<G: TestBed>(
    test_bed: &G,
    memories: &[String],
    arguments: &Arguments,
) -> Result<[String; 2], Failure> {
    let known = |node: &String| match memories.contains(node) {
        true => Ok(()),
        false => {
            let valid = memories.join(", ");
            Err(Failure::Usage(format!("no node or tier `{node}`; this machine has: {valid}")))
        }
    };
    let Some(any) = memories.first() else {
        let reason = "the kernel reports no node with memory (/sys/devices/system/node)";
        return Err(Failure::new(reason));
    };
    if arguments.nodes.len() > 1 {
        let one = "--node: the eight tests measure one memory; give exactly one --node";
        return Err(Failure::Usage(one.into()));
    }
    let first =
        |wanted: &dyn Fn(&&String) -> bool| memories.iter().find(wanted).unwrap_or(any).clone();
    // A tier that was named is what its user asks about.
    let tier = test_bed.tiers().first().cloned();
    let subject = arguments.nodes.first().cloned().or(tier);
    let subject = subject.unwrap_or_else(|| first(&|node| !node.starts_with("dram")));
    let dram = arguments.dram.clone().unwrap_or_else(|| first(&|node| node.starts_with("dram")));
    [Some(&subject), Some(&dram), arguments.remote.as_ref()]
        .into_iter()
        .flatten()
        .try_for_each(known)?;
    Ok([subject, dram])
}
