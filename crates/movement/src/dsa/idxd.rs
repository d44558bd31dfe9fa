//! Work queues that the kernel's `idxd` driver offers to user programs, found in `/sys/bus/dsa`.
//!
//! Every queue is listed, with the reason if it cannot be used: configured for the kernel, not enabled, not readable.

use super::portal::{Instructions, MappedPortal};
use super::queue::{Driver, Limits};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::pool::bound;
use crate::range::Node;
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};

const SYSFS: &str = "/sys/bus/dsa/devices";
const DEVICES: &str = "/dev/dsa";
const TRANSFER_LEAST: usize = 4096;
/// A descriptor has 32 bits for it.
const TRANSFER_MOST: usize = 2 << 30;

/// A work queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DsaQueue {
    /// As the kernel names it: `wq0.1` is the second queue of the first device.
    pub name: String,
    /// The node beside which its device works.
    pub node: Node,
    /// Whether it has one client at a time.
    pub dedicated: bool,
    /// Descriptors it has room for.
    pub size: usize,
    /// Most descriptors of a batch.
    pub batch: usize,
    /// Most bytes of a descriptor.
    pub transfer_bytes: usize,
    /// Whether the device may wait for missing pages.
    pub block_on_fault: bool,
    /// Why it cannot be used, if so.
    pub unusable: Option<String>,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DsaQueues {
    /// Queues, by name.
    pub queues: Vec<DsaQueue>,
    /// Why there is none, if so.
    pub none: Option<String>,
}

impl DsaQueues {
    /// Those of this machine.
    ///
    /// ```
    /// use terrace_movement::{DsaQueues, Engine};
    ///
    /// let found = DsaQueues::discover();
    /// assert_eq!(found.queues.is_empty(), found.none.is_some());
    /// for queue in found.queues.iter().filter(|queue| queue.unusable.is_none()) {
    ///     let engine: Engine = queue.open().expect("a queue that can be used");
    /// }
    /// ```
    pub fn discover() -> DsaQueues {
        DsaQueues::under(Path::new(SYSFS))
    }

    /// Those of a folder that looks like `/sys/bus/dsa/devices`.
    pub(crate) fn under(folder: &Path) -> DsaQueues {
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) => {
                let what = "load the kernel module `idxd`, on a processor that has the device";
                return DsaQueues {
                    none: Some(format!("{}: {error}; {what}", folder.display())),
                    queues: Vec::new(),
                };
            }
        };
        let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> = names.filter(|name| name.starts_with("wq")).collect();
        names.sort_unstable();
        let queues: Vec<DsaQueue> = names.iter().map(|name| DsaQueue::read(folder, name)).collect();
        let none = queues.is_empty().then(|| {
            format!(
                "{}: no work queue; configure one with `accel-config load-config -e`",
                folder.display()
            )
        });
        DsaQueues { queues, none }
    }
}

impl DsaQueue {
    fn read(folder: &Path, name: &str) -> DsaQueue {
        let path = folder.join(name);
        let text = |file: &str| -> io::Result<String> {
            Ok(std::fs::read_to_string(path.join(file))?.trim().to_owned())
        };
        let number =
            |file: &str| text(file).ok().and_then(|text| text.parse::<usize>().ok()).unwrap_or(0);
        let is = |file: &str, value: &str| text(file).is_ok_and(|text| text == value);
        let device = name.trim_start_matches("wq").split('.').next().unwrap_or_default();
        let node = std::fs::read_to_string(folder.join(format!("dsa{device}/numa_node"))).ok();
        // The kernel says -1 where it does not know.
        let node = node.and_then(|text| text.trim().parse::<u16>().ok()).unwrap_or(0);
        let unusable = if !is("state", "enabled") {
            Some("not enabled: `accel-config enable-wq`".to_owned())
        } else if !is("type", "user") {
            Some("configured for the kernel, not for user programs".to_owned())
        } else if number("size") == 0 || number("max_transfer_size") < TRANSFER_LEAST {
            Some("its size or its largest transfer cannot be read".to_owned())
        } else {
            None
        };
        DsaQueue {
            name: name.to_owned(),
            node: Node(node),
            dedicated: is("mode", "dedicated"),
            size: number("size"),
            batch: number("max_batch_size"),
            transfer_bytes: number("max_transfer_size").min(TRANSFER_MOST),
            block_on_fault: is("block_on_fault", "1"),
            unusable,
        }
    }

    /// Whether the fields, which anybody may change, are those of a queue.
    fn check(&self) -> Result<()> {
        let numbers = self.name.strip_prefix("wq").and_then(|name| name.split_once('.'));
        let is_number = |text: &str| text.parse::<u16>().is_ok();
        if !numbers.is_some_and(|(device, queue)| is_number(device) && is_number(queue)) {
            return Err(Error::NoEngine(self.name.clone()));
        }
        if self.unusable.is_some() {
            // Its numbers may be missing; the reason says why.
            return Ok(());
        }
        bound("size", self.size, 1 << 16, "from 1 to 65536")?;
        if !(TRANSFER_LEAST..=TRANSFER_MOST).contains(&self.transfer_bytes) {
            let found = self.transfer_bytes as u64;
            let bounds = "from 4096 to 2147483648";
            return Err(Error::Option { option: "transfer_bytes", found, bounds });
        }
        Ok(())
    }

    /// An engine on this queue, which it keeps open. Never run on a device so far.
    ///
    /// # Errors
    /// [`Error::System`]: the queue cannot be used, the processor lacks the instruction of its kind, or the kernel does
    /// not map its portal (newer ones ask for `CAP_SYS_RAWIO`). [`Error::Option`] and [`Error::NoEngine`]: its fields
    /// were changed to what no queue has.
    pub fn open(&self) -> Result<Engine> {
        self.check()?;
        let path = PathBuf::from(DEVICES).join(&self.name);
        let system = |source| Error::System { doing: format!("open {}", path.display()), source };
        if let Some(why) = &self.unusable {
            return Err(system(io::Error::new(io::ErrorKind::Unsupported, why.as_str())));
        }
        let has = Instructions::detect();
        let (is_able, lacks) =
            if self.dedicated { (has.movdir64b, "movdir64b") } else { (has.enqcmd, "enqcmd") };
        if !is_able {
            let why = format!("this processor has no `{lacks}`");
            return Err(system(io::Error::new(io::ErrorKind::Unsupported, why)));
        }
        let file = OpenOptions::new().read(true).write(true).open(&path).map_err(system)?;
        let portal = MappedPortal::map(file, self.dedicated).map_err(system)?;
        let limits = Limits {
            size: self.size,
            is_dedicated: self.dedicated,
            batch: self.batch,
            transfer_bytes: self.transfer_bytes / 64 * 64,
            block_on_fault: self.block_on_fault,
        };
        Ok(Engine::of(Driver::new(&format!("dsa-{}", self.name), portal, limits)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_read_from_sysfs_with_the_reason_why_not() {
        let folder = std::env::temp_dir().join(format!("terrace-dsa-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = folder.join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, format!("{text}\n")).expect("written");
        };
        write("dsa2/numa_node", "1");
        for (name, mode, state, kind) in [
            ("wq2.0", "shared", "enabled", "user"),
            ("wq2.1", "dedicated", "disabled", "user"),
            ("wq2.2", "dedicated", "enabled", "kernel"),
        ] {
            for (file, text) in [
                ("mode", mode),
                ("state", state),
                ("type", kind),
                ("size", "16"),
                ("max_batch_size", "32"),
                ("max_transfer_size", "2147483648"),
                ("block_on_fault", "1"),
            ] {
                write(&format!("{name}/{file}"), text);
            }
        }
        let found = DsaQueues::under(&folder);
        std::fs::remove_dir_all(&folder).expect("removed");
        assert_eq!((found.queues.len(), found.none.is_none()), (3, true));
        let first = &found.queues[0];
        assert_eq!(
            (first.node, first.dedicated, first.size, first.batch),
            (Node(1), false, 16, 32)
        );
        assert_eq!(
            (first.transfer_bytes, first.block_on_fault, &first.unusable),
            (2 << 30, true, &None)
        );
        assert!(found.queues[1].unusable.as_ref().is_some_and(|why| why.contains("not enabled")));
        assert!(
            found.queues[2].unusable.as_ref().is_some_and(|why| why.contains("for the kernel"))
        );
        assert!(matches!(found.queues[1].open(), Err(Error::System { .. })));
        // Its fields are anybody's: what no descriptor can say is refused, and so is a path to elsewhere.
        let refused = |change: &dyn Fn(&mut DsaQueue)| {
            let mut queue = first.clone();
            change(&mut queue);
            match queue.open() {
                Err(Error::Option { option, .. }) => option,
                Err(Error::NoEngine(name)) if name == queue.name => "name",
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(refused(&|queue| queue.transfer_bytes = 5 << 30), "transfer_bytes");
        assert_eq!(refused(&|queue| queue.transfer_bytes = 63), "transfer_bytes");
        assert_eq!(refused(&|queue| queue.size = 0), "size");
        assert_eq!(refused(&|queue| queue.name = "../shm/wq0.0".into()), "name");
        assert_eq!(refused(&|queue| queue.name = "wq0".into()), "name");
        assert!(DsaQueues::under(&folder).none.is_some_and(|why| why.contains("idxd")));
    }
}
