//! What must be true of the guest's words: each check knows it from the machine's definition, not from
//! an earlier run.

use super::machine::{Boot, NODES};
use serde_json::Value;

/// What was found to be so, or what was not.
pub type Verdict = Result<String, String>;

/// Each value design with each persist level, in the order of the databases of the server.
pub const MAPS: [&str; 6] =
    ["log-values", "log-index", "log-full", "slab-values", "slab-index", "slab-full"];

/// Bytes that are bound to each node in turn, as the script has it.
const BOUND_BYTES: u64 = 16 << 20;

/// `Ok(what)` if it holds, else `Err(otherwise)`.
fn holds(condition: bool, what: impl Into<String>, otherwise: impl Into<String>) -> Verdict {
    if condition { Ok(what.into()) } else { Err(otherwise.into()) }
}

/// `text` has all of `wanted`.
fn says(text: &str, wanted: &[&str]) -> Result<(), String> {
    match wanted.iter().find(|word| !text.contains(**word)) {
        None => Ok(()),
        Some(word) => Err(format!("`{word}` is not in `{}`", text.trim())),
    }
}

/// What the command called `name` printed, all of it JSON; else the line where it is not.
fn json(boot: &Boot, name: &str) -> Result<Value, String> {
    let output = boot.output(name)?;
    serde_json::from_str(output).map_err(|e| {
        let line = output.lines().nth(e.line().saturating_sub(1)).unwrap_or_default();
        format!("`{name}` is not JSON: {e}: `{line}`")
    })
}

fn list<'v>(value: &'v Value, name: &str) -> Result<&'v Vec<Value>, String> {
    value[name].as_array().ok_or(format!("`{name}` is not told"))
}

/// All nodes, those without processors known as such.
pub fn nodes(boot: &Boot) -> Verdict {
    let topology = json(boot, "topology")?;
    let found: Vec<_> = list(&topology, "nodes")?
        .iter()
        .map(|node| (node["node"].as_u64(), node["cpus"].as_array().map_or(0, Vec::len)))
        .collect();
    let wanted = [(Some(0), 2), (Some(1), 0), (Some(2), 0), (Some(3), 0)];
    holds(found == wanted, "node 0 has 2 cpus; nodes 1, 2, 3 have none", format!("{found:?}"))
}

/// Latency and bandwidth of each node, as the firmware tells them.
pub fn costs(boot: &Boot) -> Verdict {
    let topology = json(boot, "topology")?;
    let nodes = list(&topology, "nodes")?;
    for (number, wanted) in NODES.iter().enumerate() {
        let access = &nodes.get(number).ok_or(format!("no node {number}"))?["access1"];
        let found = ["read_latency_ns", "write_latency_ns", "read_bandwidth_mbps"]
            .map(|cost| access[cost].as_u64());
        let wanted = [wanted.latency_ns, wanted.latency_ns, wanted.bandwidth_gib << 10].map(Some);
        if found != wanted {
            return Err(format!("node {number}: {found:?}, the firmware tells {wanted:?}"));
        }
    }
    let latencies = NODES.map(|node| node.latency_ns.to_string());
    Ok(format!("{} ns, and the bandwidths", latencies.join(", ")))
}

/// The kernel's tiers: HBM above DRAM above the expander above the NVDIMM.
pub fn kernel_tiers(boot: &Boot) -> Verdict {
    let topology = json(boot, "topology")?;
    let mut tiers: Vec<_> = list(&topology, "kernel_tiers")?
        .iter()
        .map(|tier| (tier["tier"].as_u64(), tier["nodes"].to_string()))
        .collect();
    tiers.sort();
    let order: Vec<_> = tiers.into_iter().map(|(_, nodes)| nodes).collect();
    holds(order == ["[1]", "[0]", "[2]", "[3]"], order.join(" > "), format!("{order:?}"))
}

/// The file system for direct access, with the domain of the region below it.
pub fn direct_mount(boot: &Boot) -> Verdict {
    let topology = json(boot, "topology")?;
    let persistent = &topology["persistent"];
    let regions = list(persistent, "regions")?.len();
    let mount = list(persistent, "mounts")?.first().ok_or("no mount with direct access")?;
    let found = [&mount["mount"]["mount_point"], &mount["mount"]["kind"], &mount["domain"]];
    holds(
        regions == 2 && found == ["/pm", "ext4", "adr"],
        format!("/pm on ext4 over {}, ADR; {regions} regions", mount["regions"][0]),
        format!("{regions} regions, {found:?}"),
    )
}

/// The NVDIMM that the kernel uses as memory.
pub fn device_memory(boot: &Boot) -> Verdict {
    let topology = json(boot, "topology")?;
    let device = list(&topology["persistent"], "devices")?.first().ok_or("no device")?;
    let found = (device["driver"].as_str(), device["target_node"].as_u64());
    holds(found == (Some("kmem"), Some(3)), "driver kmem, node 3", format!("{found:?}"))
}

/// `terrace doctor` says the same in its words.
pub fn doctor(boot: &Boot) -> Verdict {
    let wanted = [
        "/pm (region",
        "): ADR: ",
        " is memory of node 3",
        "by the firmware: wider than DRAM, like HBM), node 2 (",
        "by the firmware: farther than DRAM, like a CXL expander",
    ];
    says(boot.output("doctor-table")?, &wanted)?;
    Ok("/pm, the device and the nodes".into())
}

/// Tiers of a configuration on each node, and one whose domain was found, not declared.
pub fn tiers(boot: &Boot) -> Verdict {
    let wanted = [
        "near: dram",
        "fast: node, 64 MiB; none: memory of node 1 (no processors)",
        "slow: node",
        "memory of node 3 (no processors)",
        "kept: dax, no limit; ADR: ext4 on /dev/pmem",
        "maps directly with MAP_SYNC on region",
    ];
    says(boot.output("tiers-found")?, &wanted)?;
    Ok("memory of nodes 1 to 3; ADR found on /pm".into())
}

/// Tiers that the machine does not have.
pub fn refused_tiers(boot: &Boot) -> Verdict {
    says(boot.refusal("tier-too-large")?, &["fast: 64 GiB asked"])?;
    says(boot.refusal("tier-unknown")?, &["no node 9; this machine has [0, 1, 2, 3]"])?;
    says(boot.refusal("tier-too-strong")?, &["domain eADR is declared, but ADR"])?;
    Ok("too large, of no node, of a domain too strong".into())
}

/// Memory bound to each node by our own code: by its own word, by the kernel's, and not a byte more
/// than the budget.
pub fn bound(boot: &Boot) -> Verdict {
    let pages = BOUND_BYTES / 4096;
    for node in 0..NODES.len() {
        let output = boot.output(&format!("bound-{node}"))?;
        let placed = format!("placed   {pages} pages on node {node}, 0 absent");
        let kernel = [format!(" bind:{node} "), format!(" N{node}={pages} ")];
        let refused = format!("refused  1 bytes asked, {BOUND_BYTES} of {BOUND_BYTES} bytes used");
        says(output, &[&placed, &kernel[0], &kernel[1], &refused])?;
        if pages_by_node(output).count() != 1 {
            return Err(format!("the kernel sees pages elsewhere: {output}"));
        }
    }
    says(boot.refusal("bound-9")?, &["node: 9"])?;
    Ok(format!("{pages} pages on each of 4 nodes, one more byte refused"))
}

/// A map in a tier: its pages are on the tier's node and nowhere else, and what the tier has no bytes for
/// is refused.
pub fn placed_map(boot: &Boot) -> Verdict {
    /// Values of 32 KiB, as the script has it.
    const SENT: u64 = 1280;
    const FIT: u64 = (32 << 20) / (32 << 10);
    let answers = boot.output("writes-to-a-tier")?;
    // QUIT is answered too.
    let (taken, refused) = (counted(answers, "+OK").saturating_sub(1), counted(answers, "-OOM"));
    if taken + refused != SENT || !(FIT / 2..FIT).contains(&taken) {
        return Err(format!("{taken} values taken, {refused} refused: {}", answers.trim()));
    }
    let (mut there, mut elsewhere) = (0, 0);
    for line in boot.output("pages-of-a-tier")?.lines() {
        let here = if line.contains(" bind:2 ") { &mut there } else { &mut elsewhere };
        *here +=
            pages_by_node(line).filter(|(node, _)| *node == 2).map(|(_, pages)| pages).sum::<u64>();
        elsewhere +=
            pages_by_node(line).filter(|(node, _)| *node != 2).map(|(_, pages)| pages).sum::<u64>();
    }
    let told = format!("{taken} values in {there} pages of node 2, {refused} refused");
    let enough = there * 4096 >= taken * (32 << 10);
    holds(enough && elsewhere == 0, &told, format!("{told}; {elsewhere} pages elsewhere"))
}

/// Values that move from one node to another: each is there, the pages of the first are no more than its tier has, and
/// those of the second are as many as the server says.
pub fn moved_values(boot: &Boot) -> Verdict {
    /// Values of 32 KiB, as the script has it.
    const SENT: u64 = 1280;
    const NEAR: u64 = 24 << 20;
    let answers = boot.output("writes-to-two-tiers")?;
    // QUIT is answered too.
    let taken = counted(answers, "+OK").saturating_sub(1);
    let values = boot.output("values-of-two-tiers")?;
    let whole = counted(values, "whole");
    if taken != SENT || whole != SENT {
        return Err(format!("{taken} of {SENT} values taken, {whole} whole: {}", values.trim()));
    }
    let mut bytes = [0; 4];
    for (node, pages) in boot.output("pages-of-two-tiers")?.lines().flat_map(pages_by_node) {
        bytes[(node as usize).min(3)] += pages * 4096;
    }
    let ([_, near, far, _], elsewhere) = (bytes, bytes[0] + bytes[3]);
    let said = boot.output("says-of-two-tiers")?;
    let bytes = said.split("far_bytes=").nth(1).and_then(|rest| rest.split(',').next());
    let bytes: u64 = bytes.and_then(|bytes| bytes.parse().ok()).ok_or("no far_bytes")?;
    let told = format!(
        "{whole} values whole, {} MiB on node 1, {} MiB moved to node 2; the server says {} MiB",
        near >> 20,
        far >> 20,
        bytes >> 20
    );
    // A log that was not full has pages that were never touched.
    let fits = near <= NEAR && far <= bytes && far + (4 << 20) > bytes && far > NEAR / 2;
    holds(fits && elsewhere == 0, &told, format!("{told}; {elsewhere} bytes elsewhere"))
}

/// An index apart from its values: its pages are on its tier's node, no more than the tier has, and keys that it
/// has no room for are refused.
pub fn placed_index(boot: &Boot) -> Verdict {
    /// Keys, as the script has it.
    const SENT: u64 = 120_000;
    const BYTES: u64 = 1 << 20;
    let answers = boot.output("keys-for-an-index")?;
    let refused = counted(answers, "-OOM the index has no space for another");
    // SELECT and QUIT are answered too.
    let taken = counted(answers, "+OK").saturating_sub(2);
    if taken + refused != SENT || !(20_000..100_000).contains(&taken) {
        return Err(format!("{taken} keys taken, {refused} refused: {}", answers.trim()));
    }
    let (mut there, mut elsewhere) = (0, 0);
    for (node, pages) in boot.output("pages-of-an-index")?.lines().flat_map(pages_by_node) {
        *(if node == 1 { &mut there } else { &mut elsewhere }) += pages;
    }
    let told = format!("{taken} keys in {there} pages of node 1, {refused} refused");
    let fits = (BYTES / 2..=BYTES * 3 / 2).contains(&(there * 4096));
    holds(fits && elsewhere == 0, &told, format!("{told}; {elsewhere} pages elsewhere"))
}

/// Of lines of `uniq -c`: how many answers begin like this.
fn counted(answers: &str, wanted: &str) -> u64 {
    let lines = answers.lines().filter_map(|line| line.trim().split_once(' '));
    let wanted = lines.filter(|(_, answer)| answer.starts_with(wanted));
    wanted.filter_map(|(count, _)| count.parse::<u64>().ok()).sum()
}

/// `terrace probe` of two nodes without processors: a latency of each beyond the caches, and the memory it came
/// from was on the node; and of files on the mount with direct access, by the domain that the firmware tells.
pub fn probed(boot: &Boot) -> Verdict {
    const NODES: [u32; 2] = [2, 3];
    let profile = json(boot, "probe")?;
    let cache = profile["machine"]["cache_bytes"].as_u64().ok_or("no size of the caches")?;
    let mut most = [0; 2];
    for (number, pages) in boot.output("pages-of-the-probe")?.lines().flat_map(pages_by_node) {
        let place = NODES.iter().position(|node| *node == number);
        let place = place.ok_or(format!("{pages} pages of the probe are on node {number}"))?;
        most[place] = most[place].max(pages * 4096);
    }
    let beyond = |name: &str| {
        let node = list(&profile, "nodes")?.iter().find(|node| node["name"] == *name);
        let node = node.ok_or(format!("nothing of {name}"))?;
        let far = list(node, "latency")?.iter().filter(|set| set["bytes"].as_u64() > Some(cache));
        let measured = far.filter(|set| set["load"]["mean_ns"][0].as_f64() > Some(0.0)).count();
        holds(measured > 0, name, format!("{name}: no latency beyond {cache} B"))?;
        Ok::<_, String>(node["medium"].to_string())
    };
    for (number, most) in NODES.iter().zip(most) {
        beyond(&format!("node{number}"))?;
        holds(most > cache, "on it", format!("{most} B of the probe on node {number}"))?;
    }
    let medium = beyond("dax0")?;
    holds(medium.contains("ADR: ext4") && medium.contains("MAP_SYNC"), "ADR", medium)?;
    let mib = cache >> 20;
    Ok(format!("latencies beyond {mib} MiB of caches on nodes 2 and 3, and on files with MAP_SYNC"))
}

/// Nodes and pages of a line of `numa_maps`.
fn pages_by_node(line: &str) -> impl Iterator<Item = (u32, u64)> {
    line.split_whitespace().filter_map(|word| {
        let (node, pages) = word.strip_prefix('N')?.split_once('=')?;
        Some((node.parse().ok()?, pages.parse().ok()?))
    })
}

/// Single keys, and a load of so many records into each map.
pub fn load(boot: &Boot, records: u64) -> Verdict {
    boot.output("put")?;
    says(boot.output("get")?, &["hello"])?;
    says(boot.output("del")?, &["1 removed"])?;
    for map in MAPS {
        let report = json(boot, &format!("import-{map}"))?;
        if report["summary"]["records"].as_u64() != Some(records) {
            return Err(format!("{map}: {}", report["summary"]));
        }
    }
    Ok(format!("{} keys in {} maps", records * MAPS.len() as u64, MAPS.len()))
}

/// After an orderly end and another boot: persistent indexes are reopened as they are, and every record is
/// what it was.
pub fn reopened(boot: &Boot, records: u64) -> Verdict {
    let report = json(boot, "reopen")?;
    for map in MAPS {
        let said = list(&report, "maps")?.iter().find(|said| said["name"] == map);
        let said = said.ok_or(format!("{map} is gone"))?;
        if said["keys"].as_u64() != Some(records) {
            return Err(format!("{map}: {} keys", said["keys"]));
        }
        let says = said["procedure_says"].as_str().unwrap_or_default();
        let read = says.starts_with("full log scan") || says.starts_with("full slab scan");
        if read != map.ends_with("-values") || !said["index_unfit"].is_null() {
            return Err(format!("{map}: {says}; {}", said["index_unfit"]));
        }
        boot.output(&format!("compare-{map}")).map_err(|what| format!("{map}: {what}"))?;
    }
    Ok(format!("{} records unchanged; 4 persistent indexes reopened", records * MAPS.len() as u64))
}

/// Values and persistent indexes mapped so that written lines are found again without a sync.
pub fn mapped(boot: &Boot) -> Verdict {
    let output = boot.output("mapped")?;
    let mappings: Vec<_> = output.lines().filter_map(|line| line.split_once(":VmFlags:")).collect();
    let plain = mappings.iter().find(|(_, flags)| !flags.split(' ').any(|flag| flag == "sf"));
    if let Some((file, _)) = plain {
        return Err(format!("{file} is mapped without MAP_SYNC"));
    }
    let files = MAPS.len() + MAPS.iter().filter(|map| !map.ends_with("-values")).count();
    let mut found: Vec<_> = mappings.iter().map(|(file, _)| *file).collect();
    found.sort_unstable();
    found.dedup();
    holds(found.len() == files, format!("{files} files, all with MAP_SYNC"), format!("{found:?}"))
}

/// The medium of the servers, as they say it themselves: more is not promised than was found.
pub fn media(first: &Boot, cut: &Boot) -> Verdict {
    let mapped = ["ADR (durable after write-back and fence): ext4", "mapped with MAP_SYNC"];
    says(first.output("medium-adr")?, &mapped)?;
    says(cut.output("serve-6379")?, &mapped)?;
    let too_strong = ["declared, but found ADR: ext4", "not safe from a power cut"];
    says(first.output("medium-eadr")?, &too_strong)?;
    says(cut.output("serve-6380")?, &["none: rootfs at /, lost with the power"])?;
    Ok("ADR with MAP_SYNC; eADR is not believed, memory not called durable".into())
}

/// After a power cut each map is recovered by the procedure of its persist level.
pub fn procedures(boot: &Boot) -> Verdict {
    let output = boot.output("recovered")?;
    let wanted = [
        "0: full log scan",
        "1: index walk: unnamed bytes counted as dead",
        "2: replay of the last section",
        "3: full slab scan",
        "4: index walk: unnamed slots were freed",
        "5: replay of the last section",
    ];
    let found: Vec<_> = output
        .lines()
        .filter_map(|line| {
            let (head, procedure) = line.split_once("; ")?;
            let (map, _) = head.split_once(": ").filter(|(map, _)| map.parse::<u32>().is_ok())?;
            Some(format!("{map}: {procedure}"))
        })
        .collect();
    holds(found == wanted, "recoveries 2, 4, 5 of logs, 1, 3, 5 of slabs", format!("{found:?}"))
}

/// A firmware that does not say what survives: nothing is promised in its stead.
pub fn nothing_is_guessed(boot: &Boot) -> Verdict {
    let topology = json(boot, "topology")?;
    let domain = &list(&topology["persistent"], "mounts")?.first().ok_or("no mount")?["domain"];
    if !domain.is_null() {
        return Err(format!("the domain is {domain}"));
    }
    let wanted = "kept: dax, no limit; page cache: ext4 on /dev/pmem";
    says(boot.output("tiers-found")?, &[wanted, "the kernel reports no persistence domain"])?;
    says(boot.output("medium-adr")?, &["declared, but found page cache", "not safe"])?;
    Ok("no domain told, so /pm is made durable by fdatasync".into())
}
