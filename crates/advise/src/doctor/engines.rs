//! Engines beside the processor: Intel DSA and GPUs.

use super::{Finding, Place, line_of, names_in};
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

pub(super) fn examine(place: &Place<'_>) -> Vec<Finding> {
    vec![dsa(place), gpu(place)]
}

/// PCI devices of a vendor of which `wanted` is true of identity and class.
fn pci_devices(place: &Place<'_>, vendor: &str, wanted: impl Fn(&str, &str) -> bool) -> usize {
    let folder = place.sys("bus/pci/devices");
    let is_wanted = |name: &String| {
        let of = |file: &str| line_of(&folder.join(name).join(file)).unwrap_or_default();
        of("vendor") == vendor && wanted(&of("device"), &of("class"))
    };
    names_in(&folder).iter().filter(|name| is_wanted(name)).count()
}

fn dsa(place: &Place<'_>) -> Finding {
    const SUBJECT: &str = "Intel DSA";
    let folder = place.sys("bus/dsa/devices");
    let names = names_in(&folder);
    let is_enabled =
        |name: &String| line_of(&folder.join(name).join("state")).as_deref() == Some("enabled");
    let queues: Vec<&String> = names.iter().filter(|name| name.starts_with("wq")).collect();
    let devices = names.iter().filter(|name| name.starts_with("dsa")).count();
    let enabled: Vec<&str> =
        queues.iter().filter(|name| is_enabled(name)).map(|name| name.as_str()).collect();
    if !enabled.is_empty() {
        return Finding::found(SUBJECT, format!("work queues {}", enabled.join(", ")));
    }
    if devices > 0 {
        let what = format!("{devices} devices and no enabled work queue");
        let enable = "accel-config load-config -c terrace.json -e (or accel-config config-wq, \
                      enable-device, enable-wq) for a shared queue of type user";
        return Finding::limited(SUBJECT, what, enable);
    }
    match pci_devices(place, INTEL, |device, _| DSA_DEVICES.contains(&device)) {
        0 => Finding::missing(
            SUBJECT,
            "no device",
            "Sapphire Rapids and later have it; without, copies run on processors",
        ),
        count => Finding::limited(
            SUBJECT,
            format!("{count} PCI devices without their driver"),
            "modprobe idxd (kernel option CONFIG_INTEL_IDXD; intel_iommu=on,sm_on for shared queues)",
        ),
    }
}

fn gpu(place: &Place<'_>) -> Finding {
    const SUBJECT: &str = "GPU";
    let driver = line_of(&place.proc("driver/nvidia/version"));
    let has_library = CUDA_LIBRARIES.iter().any(|path| Path::new(path).exists());
    let cards = pci_devices(place, NVIDIA, |_, class| class.starts_with("0x03"));
    match (driver, has_library) {
        (Some(driver), true) => {
            let version = driver.lines().next().unwrap_or_default();
            Finding::found(SUBJECT, format!("{cards} NVIDIA, {}", version.trim()))
        }
        (Some(_), false) => Finding::limited(
            SUBJECT,
            "the kernel has the NVIDIA driver, and its library libcuda.so.1 is not there",
            "install the driver's user library (libcuda1), or pass it into the container",
        ),
        (None, _) if cards > 0 => Finding::limited(
            SUBJECT,
            format!("{cards} NVIDIA cards without their driver"),
            "install the NVIDIA driver (nvidia-driver) and load it: modprobe nvidia",
        ),
        (None, _) => Finding::missing(
            SUBJECT,
            "no NVIDIA card",
            "nothing to enable; device code runs on the emulator of warps",
        ),
    }
}
