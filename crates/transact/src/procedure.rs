//! Procedures: transactions with a name, of blocks on the processor and blocks on a device (Miller, 3.3).
//!
//! The blocks of a call alternate and never overlap, so a call means what a program of one thread means. A device block
//! sees copies of what the transaction read, and cannot change what is stored. A call is a transaction: it reads one
//! moment, and writes as one or not at all. If others wrote what it writes, or what it read if it certifies that
//! ([`Transaction::certify_reads`]), the whole call runs again, its device blocks included.
//!
//! The paper loads procedures from shared objects. Here they are closures of the program that embeds the database:
//! what is loaded into a database's process can corrupt it, and no compiler checks it. Clients of a server send
//! scripts.

use crate::device::{Block, Device, DeviceError};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use terrace_store::{Error as StoreError, Moments, Transaction};

/// What a procedure fails with that has no errors of its own.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcedureError {
    /// Of a map or of the transaction.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Of a device block.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

type Body<I, R, E> = dyn Fn(&mut Call<'_>, &I) -> Result<R, E> + Send + Sync;

/// A transaction with a name, which is called with an input. Threads may call it at the same time.
pub struct Procedure<I: ?Sized, R, E = ProcedureError> {
    name: String,
    moments: Arc<Moments>,
    device: Device,
    body: Box<Body<I, R, E>>,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    calls: AtomicU64,
    runs: AtomicU64,
    failed: AtomicU64,
    device_blocks: AtomicU64,
    copies: AtomicU64,
    copied_bytes: AtomicU64,
    on_device_ns: AtomicU64,
}

/// What a procedure has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProcedureStats {
    /// Calls that have ended.
    pub calls: u64,
    /// Of these, which returned an error.
    pub failed: u64,
    /// How often the body ran: more often than it was called where others came first.
    pub runs: u64,
    /// Device blocks that ended well, each with one synchronisation.
    pub device_blocks: u64,
    /// Copies to the device and back.
    pub copies: u64,
    /// Their bytes.
    pub copied_bytes: u64,
    /// Time from the beginning of a device block until its results were there, added up.
    pub on_device_ns: u64,
}

impl<I: ?Sized, R, E: From<StoreError>> Procedure<I, R, E> {
    /// The procedure `name` on the maps that share the clock `moments`; its device blocks run on `device`. `body` may
    /// run several times for one call, so it must have no other effect that cannot be repeated.
    ///
    /// ```
    /// use terrace_transact::device::{Device, Kernel};
    /// use terrace_transact::{Procedure, ProcedureError};
    /// static SUM: Kernel = Kernel::new("sum", |launch| {
    ///     let (numbers, sum) = (launch.read::<u8>(0), launch.write::<u64>(0));
    ///     sum[0] = numbers.iter().copied().map(u64::from).sum();
    /// });
    /// # let dir = tempfile::tempdir()?;
    /// # let kind = terrace_store::Kind::Ordered;
    /// # let options = terrace_store::MapOptions { kind, ..Default::default() };
    /// # let moments = std::sync::Arc::clone(&options.moments);
    /// # let map = terrace_store::Map::open(dir.path(), options)?;
    /// map.multi_put(&[(b"scale 1", &[20]), (b"scale 2", &[35])])?;
    /// let total = {
    ///     let map = map.clone();
    ///     Procedure::new("total", moments, Device::here(1 << 20), move |call, key: &[u8]| {
    ///         let scales = call.snapshot(&map, &[], &[("scale ".."scale!").into()])?;
    ///         let mut sum = [0u64];
    ///         call.device(|block| {
    ///             let (weights, total) = (block.copy_in(&scales.values)?, block.alloc::<u64>(1)?);
    ///             block.launch(&SUM, &[weights.into()], &[total.into()])?;
    ///             block.copy_out(total, &mut sum)
    ///         })?;
    ///         call.put(&map, key, &sum[0].to_le_bytes())?;
    ///         Ok::<u64, ProcedureError>(sum[0])
    ///     })
    /// };
    /// assert_eq!(total.call(b"total")?, 55);
    /// assert_eq!(map.get(b"total")?, Some(55u64.to_le_bytes().to_vec()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(
        name: impl Into<String>,
        moments: Arc<Moments>,
        device: Device,
        body: impl Fn(&mut Call<'_>, &I) -> Result<R, E> + Send + Sync + 'static,
    ) -> Self {
        let (name, counts) = (name.into(), Counts::default());
        Procedure { name, moments, device, body: Box::new(body), counts }
    }

    /// Runs it in a transaction of its own and commits that; if others came first, again, in a new one, after a pause
    /// that grows.
    ///
    /// # Errors
    /// Those of its body, which should return those of its device blocks: nothing is written then. Those of
    /// [`Transaction::commit`], a conflict aside.
    pub fn call(&self, input: &I) -> Result<R, E> {
        self.counted(self.moments.transaction(|transaction| self.run(transaction, input)))
    }

    /// The same, but once: for callers that would rather do something else than wait for others.
    ///
    /// # Errors
    /// As [`Procedure::call`]; [`StoreError::Conflict`] if others came first.
    pub fn try_call(&self, input: &I) -> Result<R, E> {
        let mut transaction = self.moments.begin();
        let ran = self.run(&mut transaction, input);
        self.counted(ran.and_then(|result| Ok(transaction.commit().map(|()| result)?)))
    }

    fn run(&self, transaction: &mut Transaction, input: &I) -> Result<R, E> {
        self.counts.runs.fetch_add(1, Ordering::Relaxed);
        let (device, counts) = (&self.device, &self.counts);
        (self.body)(&mut Call { transaction, device, counts }, input)
    }

    fn counted(&self, ended: Result<R, E>) -> Result<R, E> {
        self.counts.calls.fetch_add(1, Ordering::Relaxed);
        self.counts.failed.fetch_add(u64::from(ended.is_err()), Ordering::Release);
        ended
    }
}

impl<I: ?Sized, R, E> Procedure<I, R, E> {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it has done since it was made.
    ///
    /// ```
    /// # use terrace_transact::{Procedure, ProcedureError, device::Device};
    /// let nothing = Procedure::new("nothing", Default::default(), Device::here(0), |_, _: &()| {
    ///     Ok::<(), ProcedureError>(())
    /// });
    /// nothing.call(&())?;
    /// assert_eq!((nothing.stats().calls, nothing.stats().device_blocks), (1, 0));
    /// # Ok::<(), ProcedureError>(())
    /// ```
    pub fn stats(&self) -> ProcedureStats {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        // Those that failed are among the calls that are read after them.
        let failed = self.counts.failed.load(Ordering::Acquire);
        ProcedureStats {
            calls: of(&self.counts.calls),
            failed,
            runs: of(&self.counts.runs),
            device_blocks: of(&self.counts.device_blocks),
            copies: of(&self.counts.copies),
            copied_bytes: of(&self.counts.copied_bytes),
            on_device_ns: of(&self.counts.on_device_ns),
        }
    }
}

impl<I: ?Sized, R, E> fmt::Debug for Procedure<I, R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Procedure").field("name", &self.name).field("stats", &self.stats()).finish()
    }
}

/// One run of a procedure: it dereferences to its transaction, and [`Call::device`] opens a device block.
pub struct Call<'c> {
    transaction: &'c mut Transaction,
    device: &'c Device,
    counts: &'c Counts,
}

impl Call<'_> {
    /// A device block: runs the operations that `f` enqueues on one stream and waits for them once. What they copy back
    /// is in place when this returns.
    ///
    /// # Errors
    /// As [`Device::block`].
    pub fn device<'b, T>(
        &mut self,
        f: impl FnOnce(&mut Block<'b>) -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        let start = Instant::now();
        let (result, ran) = self.device.block_counted(f)?;
        let took = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let add = |count: &AtomicU64, more| count.fetch_add(more, Ordering::Relaxed);
        add(&self.counts.device_blocks, 1);
        add(&self.counts.copies, ran.copies);
        add(&self.counts.copied_bytes, ran.bytes);
        add(&self.counts.on_device_ns, took);
        Ok(result)
    }
}

impl Deref for Call<'_> {
    type Target = Transaction;

    fn deref(&self) -> &Transaction {
        self.transaction
    }
}

impl DerefMut for Call<'_> {
    fn deref_mut(&mut self) -> &mut Transaction {
        self.transaction
    }
}

impl fmt::Debug for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").finish_non_exhaustive()
    }
}
