//! Memory of one NUMA node, within a budget: `node_budget NODE BYTES`.
//!
//! A tier names the node and the most it may hold; a budget keeps to that; a region takes the memory
//! there. Whether it is there is asked three times, of independent witnesses: the pages one by one,
//! the policy, and what the kernel writes about this process (`numa_maps`).

use std::error::Error;
use std::fs;

use terrace_memory::tier::SystemPaths;
use terrace_memory::{Backing, Budget, ByteSize, Region, TierKind, TierSpec, Topology};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(node), Some(bytes)) = (arguments.next(), arguments.next()) else {
        return Err("usage: node_budget NODE BYTES".into());
    };
    let (node, bytes): (u32, u64) = (node.parse()?, bytes.parse()?);

    let topology = Topology::read()?;
    let spec = TierSpec {
        node: Some(node),
        bytes: Some(ByteSize(bytes)),
        ..TierSpec::new(format!("node{node}"), TierKind::Node)
    };
    let tier = spec.resolve(&topology, &SystemPaths)?;
    println!("tier     {}: {}; {}", tier.name, ByteSize(bytes), tier.medium);

    let budget = Budget::new(bytes);
    budget.take(bytes)?;
    let mut region = Region::reserve(bytes, Backing::Anonymous)?;
    region.bind(node)?;
    region.populate(0, bytes)?;
    // Bound once more, the pages are there to be asked for their node.
    println!("placed   {}", region.bind(node)?);
    println!("kernel   {}", numa_maps(region.bytes_mut(0, bytes)?.as_ptr().addr())?);

    match budget.take(1) {
        Ok(()) => Err("the budget gave more than it has".into()),
        Err(refusal) => {
            println!("refused  {refusal}");
            Ok(())
        }
    }
}

/// The kernel's line about the mapping that begins at `address`.
fn numa_maps(address: usize) -> Result<String, Box<dyn Error>> {
    let start = format!("{address:08x} ");
    let maps = fs::read_to_string("/proc/self/numa_maps")?;
    let line = maps.lines().find(|line| line.starts_with(&start));
    Ok(line.ok_or("the kernel has no such mapping")?.to_owned())
}
