//! What a checkpoint record says of the redo log that goes with it, so that its absence is noticed.
//!
//! A record names the boot of the kernel whose pages hold the redo log, and the value file beside which it lies: its
//! inode and when it was made. After another boot the redo log is worth nothing, and no file is missed. A copy of the
//! value file is another file: whoever copied or restored it may have left the redo log behind. One that lies beside
//! it has to be intact all the same.

use super::boot;
use crate::checksum::Crc;
use crate::superblock::Checkpoint;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

/// What a checkpoint record lets one expect of the redo log.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    /// There may be one, of whatever state.
    Nothing,
    /// One that is there is intact.
    Intact,
    /// There is one, and it is intact.
    Present,
}

impl Expected {
    /// Of the redo log beside the value file `values`, whose checkpoint record is `checkpoint`.
    pub fn of(checkpoint: &Checkpoint, values: &Path) -> Expected {
        match name(values) {
            name if checkpoint.redo == 0 || checkpoint.redo as u32 != name as u32 => {
                Expected::Nothing
            }
            name if name == checkpoint.redo => Expected::Present,
            _ => Expected::Intact,
        }
    }
}

/// The name of a redo log beside `values` in this boot, never 0: the boot's half below that of the file. 0 where the
/// kernel does not say which boot it is.
pub(super) fn name(values: &Path) -> u64 {
    let half = |bytes: &[u8]| Crc::new(0).update(bytes).finish() | 1;
    let Some(boot) = boot() else { return 0 };
    let file = std::fs::metadata(values).map_or([0; 3], |found| {
        let made = found.created().ok().and_then(|made| made.duration_since(UNIX_EPOCH).ok());
        [found.dev(), found.ino(), made.map_or(0, |made| made.as_nanos() as u64)]
    });
    let file: Vec<u8> = file.iter().flat_map(|word| word.to_le_bytes()).collect();
    u64::from(half(&file)) << 32 | u64::from(half(&boot))
}
