//! What a mirrored medium is mirrored to.

use crate::error::Result;
use std::fmt::Debug;

/// A block device, or what stands for one: the contract of a mirrored medium's assumptions.
pub trait Disk: Debug + Send + Sync {
    /// Bytes it holds.
    fn capacity_bytes(&self) -> u64;

    /// Writes whole blocks; with `durable` they are safe on return, else after the next sync.
    ///
    /// # Errors
    /// Its own; what is on it is unknown then.
    fn write(&self, at: u64, blocks: &[u8], durable: bool) -> Result<()>;

    /// Everything written before is safe on return.
    ///
    /// # Errors
    /// Its own; what is on it is unknown then.
    fn sync(&self) -> Result<()>;

    /// Reads whole blocks into memory that was zero: what was never written may stay as it is.
    ///
    /// # Errors
    /// Its own.
    fn read(&self, at: u64, blocks: &mut [u8]) -> Result<()>;

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
