//! Engines beside the processor: Intel DSA and GPUs.

use super::{Finding, System, names_in, text_of};
use std::path::Path;

/// Intel's PCI identities of DSA.
const DSA_DEVICES: [&str; 3] = ["0x0b25", "0x11fb", "0x1212"];
const INTEL: &str = "0x8086";
const NVIDIA: &str = "0x10de";
/// Where the CUDA driver's library usually is.
const CUDA_LIBRARIES: [&str; 4] = [
    "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
    "/usr/lib64/libcuda.so.1",
    "/usr/lib/libcuda.so.1",
    "/usr/local/cuda/compat/libcuda.so.1",
];

pub(super) fn examine(place: &System<'_>) -> Vec<Finding> {
    let looks: [(_, Look); 2] = [(DSA, dsa), (GPU, gpu)];
    let told = |(subject, look): (_, Look)| {
        look(place).unwrap_or_else(|unread| Finding::unknown(subject, unread))
    };
    looks.map(told).into()
}

const DSA: &str = "Intel DSA";
const GPU: &str = "GPU";

/// What was found, or which file should have told and cannot be read.
type Look = fn(&System<'_>) -> Result<Finding, String>;

/// PCI devices of a vendor whose `file` holds what is `wanted`.
fn pci_devices(
    place: &System<'_>,
    vendor: &str,
    file: &str,
    wanted: impl Fn(&str) -> bool,
) -> Result<usize, String> {
    let folder = place.sys("bus/pci/devices");
    let mut count = 0;
    for name in names_in(&folder)? {
        let of = |file: &str| text_of(&folder.join(&name).join(file));
        // A device may go away between two looks.
        let is_wanted = of("vendor")?.is_some_and(|found| found == vendor)
            && of(file)?.is_some_and(|found| wanted(&found));
        count += usize::from(is_wanted);
    }
    Ok(count)
}

fn dsa(place: &System<'_>) -> Result<Finding, String> {
    let folder = place.sys("bus/dsa/devices");
    let names = names_in(&folder)?;
    let devices = names.iter().filter(|name| name.starts_with("dsa")).count();
    let mut enabled = Vec::new();
    for name in names.iter().filter(|name| name.starts_with("wq")) {
        if text_of(&folder.join(name).join("state"))?.as_deref() == Some("enabled") {
            enabled.push(name.as_str());
        }
    }
    if !enabled.is_empty() {
        return Ok(Finding::found(DSA, format!("work queues {}", enabled.join(", "))));
    }
    if devices > 0 {
        let what = format!("{devices} devices and no enabled work queue");
        let enable = "accel-config load-config -c terrace.json -e (or accel-config config-wq, \
                      enable-device, enable-wq) for a shared queue of type user";
        return Ok(Finding::limited(DSA, what, enable));
    }
    let found = pci_devices(place, INTEL, "device", |device| DSA_DEVICES.contains(&device))?;
    Ok(match found {
        0 => Finding::missing(
            DSA,
            "no device",
            "Sapphire Rapids and later have it; without it the processors copy",
        ),
        count => Finding::limited(
            DSA,
            format!("{count} PCI devices without their driver"),
            "modprobe idxd (kernel option CONFIG_INTEL_IDXD; intel_iommu=on,sm_on for shared queues)",
        ),
    })
}

fn gpu(place: &System<'_>) -> Result<Finding, String> {
    let driver = text_of(&place.proc("driver/nvidia/version"))?;
    let has_library = CUDA_LIBRARIES.iter().any(|path| Path::new(path).exists());
    let cards = pci_devices(place, NVIDIA, "class", |class| class.starts_with("0x03"))?;
    Ok(match (driver, has_library) {
        (Some(driver), true) => {
            let version = driver.lines().next().unwrap_or("unknown version").trim();
            Finding::found(GPU, format!("{cards} NVIDIA, {version}"))
        }
        (Some(_), false) => Finding::limited(
            GPU,
            "the kernel has the NVIDIA driver, but its library libcuda.so.1 is missing",
            "install the driver's user library (libcuda1), or pass it into the container",
        ),
        (None, _) if cards > 0 => Finding::limited(
            GPU,
            format!("{cards} NVIDIA cards without their driver"),
            "install the NVIDIA driver (nvidia-driver) and load it: modprobe nvidia",
        ),
        (None, _) => {
            Finding::missing(GPU, "no NVIDIA card", "nothing to enable; Terrace does not use GPUs")
        }
    })
}
