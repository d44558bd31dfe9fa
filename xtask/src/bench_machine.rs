//! `cargo xtask bench-machine`: a small machine that nobody here owns, emulated from its firmware up,
//! with memory of several kinds and persistent memory; on it our binary is asked what it finds, binds
//! memory, fills a store, and loses its power.
//!
//! It proves interfaces, not speed: an emulator has neither latencies nor caches. What a store that
//! was not written back would lose is the crash explorer's matter. See docs/bench-machine.md.

mod checks;
mod initramfs;
mod ledger;
mod machine;
mod parts;

use crate::run::target;
use checks::{MAPS, Verdict};
use ledger::Ledger;
use machine::{Boot, End, Firmware, Machine};
use parts::Availability;
use std::fs;
use std::ops::Range;
use std::path::Path;

/// Records of the load of each map.
const RECORDS: u64 = 20_000;
/// Keys that the operations around a power cut go round.
const KEYS: u64 = 100;
/// Operations of each map that are acknowledged before the power fails.
const ACKNOWLEDGED: u64 = 250;
/// Where the sequence of operations begins after each power cut.
const CUTS: [u64; 2] = [0, 1_000_000];
/// The map in the guest's memory, on a server of its own: the power takes it.
const VOLATILE: &str = "volatile";

/// What was checked, and what came of it.
type Row = (String, Verdict);

/// Boots, checks and prints; `Some(why)` where there are no parts to make a machine of.
pub fn main(root: &Path) -> Result<Option<String>, String> {
    let work = target(root).join("bench-machine");
    fs::create_dir_all(&work).map_err(|e| format!("{}: {e}", work.display()))?;
    let parts = match parts::find_all(root, &work)? {
        Availability::All(parts) => parts,
        Availability::Missing(why) => return Ok(Some(why)),
    };
    let machine = Machine::build(parts, &work)?;
    let (mut rows, first) = survey_and_load(&machine)?;
    rows.extend(cut_the_power(&machine, &first)?);
    rows.extend(silent_firmware(&machine)?);
    for (name, verdict) in &rows {
        match verdict {
            Ok(what) => println!("    pass  {name:<34}  {what}"),
            Err(what) => println!("    FAIL  {name:<34}  {what}"),
        }
    }
    println!("    what each command printed: {}", work.join("boots").display());
    let failed = rows.iter().filter(|(_, verdict)| verdict.is_err()).count();
    match failed {
        0 => Ok(None),
        n => Err(format!("{n} of {} checks on the emulated machine failed", rows.len())),
    }
}

fn row(name: impl Into<String>, verdict: Verdict) -> Row {
    (name.into(), verdict)
}

/// What the machine is, as our binary sees it, memory on its nodes, and a store that is filled.
fn survey_and_load(machine: &Machine) -> Result<(Vec<Row>, Boot), String> {
    let steps = format!(
        "steps=format,mount_direct,give_to_kernel,survey,tiers,nodes,load records={RECORDS}"
    );
    let boot = machine.boot("first", Firmware::Tells, &steps, End::InOrder)?;
    let prepared = ["format", "mount_direct", "give_to_kernel"];
    let prepared = prepared.iter().try_for_each(|step| boot.output(step).map(drop));
    let rows = vec![
        row("the guest is as it should be", prepared.map(|()| "two NVDIMMs in use".into())),
        row("nodes", checks::nodes(&boot)),
        row("the firmware's costs", checks::costs(&boot)),
        row("the kernel's memory tiers", checks::kernel_tiers(&boot)),
        row("file system for direct access", checks::direct_mount(&boot)),
        row("device memory as a node", checks::device_memory(&boot)),
        row("doctor", checks::doctor(&boot)),
        row("tiers", checks::tiers(&boot)),
        row("tiers that are refused", checks::refused_tiers(&boot)),
        row("memory bound to each node", checks::bound(&boot)),
        row("a map in a tier", checks::placed_map(&boot)),
        row("an index in a tier of its own", checks::placed_index(&boot)),
        row("values that move to another node", checks::moved_values(&boot)),
        row("nodes without processors, probed", checks::probed(&boot)),
        row("a load on persistent memory", checks::load(&boot, RECORDS)),
    ];
    Ok((rows, boot))
}

/// The load after a reboot, then two power cuts amid acknowledged writes, each followed by a look at
/// what is there.
fn cut_the_power(machine: &Machine, first: &Boot) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    let mut ledgers = vec![Ledger::default(); MAPS.len() + 1];
    let end = End::PowerCut { maps: MAPS.len() + 1, acknowledged: ACKNOWLEDGED };
    let mut look = "reopen";
    let mut before: Option<(u64, Boot)> = None;
    for (number, from) in CUTS.into_iter().enumerate() {
        let steps = format!(
            "steps=mount_direct,give_to_kernel,{look},fail records={RECORDS} keys={KEYS} from={from}"
        );
        let boot = machine.boot(&format!("cut-{}", number + 1), Firmware::Tells, &steps, end)?;
        match &before {
            None => {
                rows.push(row("the load after a reboot", checks::reopened(&boot, RECORDS)));
                rows.push(row("mappings of the store", checks::mapped(&boot)));
                rows.push(row("media of the servers", checks::media(first, &boot)));
            }
            Some((from, cut)) => rows.extend(after_cut(number, *from, cut, &boot, &mut ledgers)),
        }
        before = Some((from, boot));
        look = "verify";
    }
    let steps = format!("steps=mount_direct,give_to_kernel,verify keys={KEYS}");
    let boot = machine.boot("last", Firmware::Tells, &steps, End::InOrder)?;
    if let Some((from, cut)) = &before {
        rows.extend(after_cut(CUTS.len(), *from, cut, &boot, &mut ledgers));
    }
    Ok(rows)
}

/// Judges what the boot after a power cut found; and sees to it that the judge would notice.
fn after_cut(
    number: usize,
    from: u64,
    cut: &Boot,
    next: &Boot,
    ledgers: &mut [Ledger],
) -> Vec<Row> {
    let acknowledged = |map: &str| -> Range<u64> {
        from..from + cut.acknowledged.get(map).copied().unwrap_or_default()
    };
    let mut rows = Vec::new();
    if !cut.refused.is_empty() {
        let verdict = Err(cut.refused.join("; "));
        rows.push(row(format!("power cut {number}: every write is taken"), verdict));
    }
    let mut noticed = 0;
    for (database, (ledger, name)) in ledgers.iter_mut().zip(MAPS).enumerate() {
        let answered = acknowledged(&database.to_string());
        let judge = |ledger: &mut Ledger, answered| {
            let found = next.output(&format!("found-{database}"))?;
            ledger.judge(KEYS, answered, found)
        };
        let before = ledger.clone();
        let verdict = judge(ledger, answered.clone());
        if let Ok(more) = verdict {
            // One acknowledged too many must be found out.
            let too_many = answered.start..answered.end + more + 1;
            noticed += usize::from(judge(&mut before.clone(), too_many).is_err());
        }
        let count = answered.end - answered.start;
        let told = |more| format!("{count} acknowledged, all there, {more} in flight too");
        rows.push(row(format!("power cut {number}: {name}"), verdict.map(told)));
    }
    rows.push(row(format!("power cut {number}: recovery"), checks::procedures(next)));
    let told = format!("noticed in {noticed} of {} maps", MAPS.len());
    let verdict = if noticed == MAPS.len() { Ok(told) } else { Err(told) };
    rows.push(row(format!("power cut {number}: control, one too many"), verdict));
    // A directory that is gone holds nothing.
    let found = next.output("found-volatile").unwrap_or_default();
    let judged = ledgers[MAPS.len()].judge(KEYS, acknowledged(VOLATILE), found);
    let verdict = match judged {
        Ok(_) => Err("what was in memory is still there: did the power fail?".into()),
        Err(loss) => Ok(format!("noticed: {loss}")),
    };
    rows.push(row(format!("power cut {number}: control, in memory"), verdict));
    rows
}

/// The same machine with a firmware that tells nothing: the checks notice, and nothing is guessed.
fn silent_firmware(machine: &Machine) -> Result<Vec<Row>, String> {
    let steps = "steps=mount_direct,give_to_kernel,survey,tiers";
    let boot = machine.boot("silent", Firmware::IsSilent, steps, End::InOrder)?;
    let checks = [
        ("costs", checks::costs(&boot)),
        ("kernel tiers", checks::kernel_tiers(&boot)),
        ("direct access", checks::direct_mount(&boot)),
        ("tiers", checks::tiers(&boot)),
    ];
    let unnoticed = checks.iter().filter(|(_, verdict)| verdict.is_ok());
    let unnoticed: Vec<_> = unnoticed.map(|(name, _)| *name).collect();
    let verdict = match unnoticed.as_slice() {
        [] => Ok(format!("noticed by {} checks", checks.len())),
        some => Err(format!("not noticed by: {}", some.join(", "))),
    };
    Ok(vec![
        row("control: firmware that is silent", verdict),
        row("nothing is guessed in its stead", checks::nothing_is_guessed(&boot)),
    ])
}
