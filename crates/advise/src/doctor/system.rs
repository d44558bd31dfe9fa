//! The system's settings: huge pages, events of the processor, limits.

use super::{Finding, System, line_of, names_in, text_of};
use rustix::process::{Resource, getrlimit};
use terrace_memory::ByteSize;

/// Memory that locked buffers of engines want, bytes.
const LOCKED: u64 = 64 << 20;
/// Files that a server with many clients wants.
const FILES: u64 = 65_536;
/// Mappings that large databases want.
const MAPPINGS: u64 = 262_144;

pub(super) fn examine(place: &System<'_>) -> Vec<Finding> {
    let mut findings = vec![huge_pages(place), pools(place), events(place), clock(place)];
    findings.extend(limits(place));
    findings
}

fn huge_pages(place: &System<'_>) -> Finding {
    const SUBJECT: &str = "huge pages";
    let pages = &place.topology.transparent_huge_pages;
    let enable = "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled";
    match pages.enabled.as_deref() {
        Some(word @ ("always" | "madvise")) => {
            let size = pages.page_bytes.map_or("2 MiB".into(), |b| ByteSize(b).to_string());
            Finding::found(SUBJECT, format!("transparent ({word}), {size}"))
        }
        Some(word) => {
            Finding::missing(SUBJECT, format!("transparent huge pages are `{word}`"), enable)
        }
        None => Finding::unknown(SUBJECT, "the kernel does not report transparent huge pages"),
    }
}

fn pools(place: &System<'_>) -> Finding {
    const SUBJECT: &str = "huge-page pools";
    let reserved = place.topology.huge_pages.iter().filter(|pool| pool.available_bytes() > 0);
    let listed: Vec<String> = reserved
        .map(|pool| {
            let (all, page) = (ByteSize(pool.available_bytes()), ByteSize(pool.page_bytes));
            format!("{all} in pages of {page}")
        })
        .collect();
    if listed.is_empty() {
        let enable =
            "sysctl vm.nr_hugepages=1024 reserves 2 GiB; transparent huge pages usually suffice";
        return Finding::missing(SUBJECT, "none reserved", enable);
    }
    Finding::found(SUBJECT, listed.join(", "))
}

fn events(place: &System<'_>) -> Finding {
    const SUBJECT: &str = "perf events";
    let sources = names_in(&place.sys("bus/event_source/devices"));
    let level = text_of(&place.proc("sys/kernel/perf_event_paranoid"));
    let (sources, level) = match sources.and_then(|sources| Ok((sources, level?))) {
        Ok((sources, Some(level))) => (sources, level),
        Ok((_, None)) => {
            let enable = "a kernel with CONFIG_PERF_EVENTS";
            return Finding::missing(SUBJECT, "the kernel has no perf events", enable);
        }
        Err(unread) => return Finding::unknown(SUBJECT, unread),
    };
    let has_counters = sources.iter().any(|name| name == "cpu" || name.starts_with("cpu_"));
    let level = level.parse::<i32>().unwrap_or(4);
    if !has_counters {
        let enable =
            "enable the vPMU of the virtual machine; sampling by cpu-clock works without it";
        return Finding::limited(SUBJECT, "no processor counters, only software events", enable);
    }
    if level > 2 {
        let what = format!("kernel.perf_event_paranoid is {level}: not available to users");
        return Finding::limited(SUBJECT, what, "sysctl kernel.perf_event_paranoid=1");
    }
    Finding::found(SUBJECT, "processor counters, available to users")
}

fn clock(place: &System<'_>) -> Finding {
    const SUBJECT: &str = "clock";
    let path = "devices/system/clocksource/clocksource0/current_clocksource";
    match line_of(&place.sys(path)) {
        Some(source) if matches!(source.as_str(), "tsc" | "kvm-clock" | "arch_sys_counter") => {
            Finding::found(SUBJECT, format!("{source}: read without a system call"))
        }
        Some(source) => Finding::limited(
            SUBJECT,
            format!("{source}: every reading is a system call, which distorts short measurements"),
            format!("echo tsc > /sys/{path}, if the processor's clock is stable"),
        ),
        None => Finding::unknown(SUBJECT, "the kernel does not report its clock source"),
    }
}

fn limits(place: &System<'_>) -> Vec<Finding> {
    let limit = |resource| getrlimit(resource).current.unwrap_or(u64::MAX);
    let mappings = line_of(&place.proc("sys/vm/max_map_count")).and_then(|n| n.parse().ok());
    vec![
        least("locked memory", limit(Resource::Memlock), LOCKED, true, "ulimit -l unlimited"),
        least("open files", limit(Resource::Nofile), FILES, false, "ulimit -n 65536"),
        match mappings {
            Some(count) => {
                least("mappings", count, MAPPINGS, false, "sysctl vm.max_map_count=262144")
            }
            None => Finding::unknown("mappings", "the kernel does not report vm.max_map_count"),
        },
        overcommit(place),
    ]
}

/// A limit that should be at least `wanted`.
fn least(subject: &'static str, found: u64, wanted: u64, is_bytes: bool, enable: &str) -> Finding {
    let shown = |value: u64| match (value, is_bytes) {
        (u64::MAX, _) => "unlimited".to_string(),
        (value, true) => ByteSize(value).to_string(),
        (value, false) => value.to_string(),
    };
    if found >= wanted {
        return Finding::found(subject, shown(found));
    }
    Finding::limited(subject, format!("{}, less than {}", shown(found), shown(wanted)), enable)
}

/// Strict accounting refuses the reservation of address space that regions begin with.
fn overcommit(place: &System<'_>) -> Finding {
    const SUBJECT: &str = "overcommit";
    match line_of(&place.proc("sys/vm/overcommit_memory")).as_deref() {
        Some("2") => Finding::limited(
            SUBJECT,
            "strict: reserving address space counts as memory",
            "sysctl vm.overcommit_memory=0",
        ),
        Some(_) => Finding::found(SUBJECT, "address space can be reserved"),
        None => Finding::unknown(SUBJECT, "the kernel does not report vm.overcommit_memory"),
    }
}
