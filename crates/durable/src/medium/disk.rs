//! Where a medium's contents are durable.

use super::Blocks;
use crate::disk_budget::DiskSpace;
use crate::error::Result;
use std::fmt::Debug;
use std::path::Path;

/// A file, a block device, or what stands for one: all that a medium needs to be durable, and the contract of what is
/// assumed of it ([`medium`](super)). Another one may stand before it and do more: keep a replica, record, fail.
///
/// Of a mirrored medium all contents pass through here. Of a mapped one, whose memory is the file, only growth, release
/// and publication do.
pub trait Disk: Debug + Send + Sync {
    /// The file, if it is one that has a name.
    fn path(&self) -> Option<&Path> {
        None
    }

    /// Most bytes it can hold.
    fn capacity_bytes(&self) -> u64;

    /// Bytes it holds: what is behind them reads as zero.
    ///
    /// # Errors
    /// Its own.
    fn bytes(&self) -> Result<u64> {
        Ok(self.capacity_bytes())
    }

    /// Writes whole blocks; with `durable` they are safe on return, else after the next sync.
    ///
    /// # Errors
    /// Its own; what is on it is unknown then. With `durable` as for [`Disk::sync`].
    fn write(&self, at: u64, blocks: &[u8], durable: bool) -> Result<()>;

    /// Everything written before is safe on return.
    ///
    /// # Errors
    /// Its own; what is on it is unknown then, whoever wrote it: where the failure may have lost what others wrote, no
    /// sync that has not returned yet succeeds, and none that comes later.
    fn sync(&self) -> Result<()>;

    /// Reads whole blocks into memory that was zero: what was never written may stay as it is.
    ///
    /// # Errors
    /// Its own.
    fn read(&self, at: u64, blocks: &mut [u8]) -> Result<()>;

    /// Reads many pieces of whole blocks, each an offset and how many bytes, together as far as it can. Tells `each` of
    /// every one, in the order in which they come: its number and its bytes.
    fn read_many(&self, pieces: &[(u64, usize)], each: &mut dyn FnMut(usize, Result<&[u8]>)) {
        one_by_one(pieces, each, |at, blocks| self.read(at, blocks));
    }

    /// Makes room for `[at, at + bytes)`, so that a later write there cannot run out of it. Safe after the next sync.
    ///
    /// # Errors
    /// [`Error::DiskFull`](crate::Error::DiskFull) and its own; nothing is changed then that matters.
    fn grow(&self, _at: u64, _bytes: u64) -> Result<()> {
        Ok(())
    }

    /// How much room is left where it lies; none where that is not known.
    fn space(&self) -> Option<DiskSpace> {
        None
    }

    /// Whether it is known that growing `[at, at + bytes)` takes no room.
    fn has_blocks(&self, _at: u64, _bytes: u64) -> bool {
        false
    }

    /// Nobody needs `[at, at + bytes)` until it is grown again: it reads as zero then, or as it was.
    ///
    /// # Errors
    /// Its own.
    fn release(&self, _at: u64, _bytes: u64) -> Result<()> {
        Ok(())
    }

    /// Gives a new file its name, durably, with everything written so far and the folders above it.
    ///
    /// # Errors
    /// Its own; whether the file has its name is unknown then. Opening it to be written makes the name durable.
    fn publish(&self) -> Result<()> {
        Ok(())
    }

    /// Writes zeros, unsynced.
    ///
    /// # Errors
    /// As [`Disk::write`].
    fn write_zeros(&self, at: u64, bytes: u64) -> Result<()> {
        #[repr(align(4096))]
        struct Zeros([u8; 1 << 18]);
        static ZEROS: Zeros = Zeros([0; 1 << 18]);
        let mut done = 0;
        while done < bytes {
            let step = (bytes - done).min(1 << 18) as usize;
            self.write(at + done, &ZEROS.0[..step], false)?;
            done += step as u64;
        }
        Ok(())
    }
}

/// [`Disk::read_many`] for a disk that reads one piece at a time.
pub(super) fn one_by_one(
    pieces: &[(u64, usize)],
    each: &mut dyn FnMut(usize, Result<&[u8]>),
    read: impl Fn(u64, &mut [u8]) -> Result<()>,
) {
    for (number, (at, bytes)) in pieces.iter().enumerate() {
        Blocks::with(|blocks| {
            let into = &mut blocks.of(*bytes)[..*bytes];
            into.fill(0);
            let done = read(*at, into);
            each(number, done.map(|()| &*into));
        });
    }
}
