//! A disk of a few megabytes, to be filled.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Says that tests which mount a disk are left out where that is not allowed.
const LEFT_OUT: &str = "TERRACE_TEST_WITHOUT_DISKS";

/// A tmpfs, gone when dropped.
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts it at a directory; none where that is not allowed and whoever runs the tests has said that they know.
    ///
    /// # Panics
    /// If it is not allowed and they have not: what is left out would pass for tested.
    pub fn mount(at: &Path, bytes: u64) -> Option<SmallDisk> {
        let size = format!("size={bytes}");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(at).output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(SmallDisk(at.into()));
        }
        assert!(
            std::env::var_os(LEFT_OUT).is_some(),
            "no file system can be mounted here (not root?), so full and read-only disks are not tested; to leave them \
             out all the same, set {LEFT_OUT}=1"
        );
        None
    }

    pub fn read_only(&self) {
        let done =
            Command::new("mount").args(["-o", "remount,ro"]).arg(&self.0).status().expect("mount");
        assert!(done.success(), "remounted read-only");
    }

    /// Writes until there is no room.
    pub fn fill(&self) -> Ballast {
        let path = self.0.join("ballast");
        let mut file = std::fs::File::create(&path).expect("ballast");
        while file.write(&[1; 4096]).is_ok() {}
        Ballast(path)
    }
}

/// What fills a disk.
pub struct Ballast(PathBuf);

impl Ballast {
    /// Leaves room for so many pages.
    pub fn give_back(&self, pages: u64) {
        let file = std::fs::File::options().write(true).open(&self.0).expect("ballast");
        let bytes = file.metadata().expect("its size").len();
        file.set_len(bytes - pages * 4096).expect("some room");
    }

    /// All of it. Removed alone it would stay where a child that another test starts has the file until it is one.
    pub fn remove(self) {
        let file = std::fs::File::options().write(true).open(&self.0).expect("ballast");
        file.set_len(0).expect("space is freed");
        std::fs::remove_file(self.0).expect("ballast");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a map may still be open on it when a test fails.
        let _gone = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
