//! A disk of a few megabytes, to be filled.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A tmpfs, gone when dropped.
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts it at a directory; none where that is not allowed, which is printed.
    pub fn mount(at: &Path, bytes: u64) -> Option<SmallDisk> {
        let size = format!("size={bytes}");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(at).output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(SmallDisk(at.into()));
        }
        eprintln!(
            "SKIPPED: no file system can be mounted here (not root?): full and read-only disks are not tested"
        );
        None
    }

    pub fn read_only(&self) {
        let done =
            Command::new("mount").args(["-o", "remount,ro"]).arg(&self.0).status().expect("mount");
        assert!(done.success(), "remounted read-only");
    }

    /// Writes until there is no room, into a file that may be removed to make some.
    pub fn fill(&self) -> PathBuf {
        let path = self.0.join("ballast");
        let mut ballast = std::fs::File::create(&path).expect("ballast");
        while ballast.write(&[1; 4096]).is_ok() {}
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a map may still be open on it when a test fails.
        let _gone = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
