//! Versions of files: looked at before anything else is believed.
//!
//! A file says what it is by a magic number, and of which format by a number behind it, at places that no format
//! moves. A number above those this program knows is a newer program's: its file is refused by that number, also
//! under salvage, since nothing else in it can be believed to mean what it means here. A damaged number is damage all
//! the same: where the block matches its checksum with a known number in the place of the one found, that one was
//! never written; and numbers that no format will have are none.

use crate::error::{Error, Result};
use crate::superblock::{block_is_intact, get_u32, put_u32};
use std::path::Path;

/// Formats have numbers up to this.
const MOST: u32 = u16::MAX as u32;

/// Refuses a `what` of the version `found` if that is newer than `known`, unless `is_ours` says that the number is
/// what is damaged of it.
pub(crate) fn check(
    path: &Path,
    what: &'static str,
    (found, known): (u32, u32),
    is_ours: impl FnOnce() -> bool,
) -> Result<()> {
    if found <= known || found > MOST || is_ours() {
        return Ok(());
    }
    Err(Error::Newer { path: path.into(), what, found: found.into(), known: known.into() })
}

/// The same of a block that is sealed and has its version behind eight bytes of magic.
pub(crate) fn check_block(path: &Path, what: &'static str, block: &[u8], known: u32) -> Result<()> {
    check(path, what, (get_u32(block, 8), known), || {
        (1..=known).any(|version| {
            let mut as_ours = block.to_vec();
            put_u32(&mut as_ours, 8, version);
            block_is_intact(&as_ours)
        })
    })
}
