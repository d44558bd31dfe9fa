//! A device that computes beside the processor, and the blocks of operations that a procedure gives it.
//!
//! SnapKV (Miller, chapter 3) runs a transaction as an alternation of blocks: the processor reads and writes records,
//! the device computes on copies of them. A device block is a list of operations on one stream: copies to the device,
//! kernels, copies back. Nothing of it is waited for until its end, and then once; so a trip to a distant device is
//! paid once for a block, not once for an operation.
//!
//! No GPU is driven yet. Its place is taken by the processor, with a stream's rules: a block's operations are kept in a
//! queue and run in order, its results are there at its end and no earlier. They run on the caller's own thread
//! ([`Device::here`]), or on threads of their own ([`Device::workers`]), which is what a trip costs.

mod block;
mod kernel;
mod memory;
mod stream;
#[cfg(test)]
mod tests;

pub use block::{AnyBuffer, Block, Buffer, Input};
pub use bytemuck::Pod;
pub use kernel::{Kernel, Launch};
pub use memory::Resident;

pub(crate) use block::Ran;
use memory::Account;
use std::sync::Arc;
use stream::Streams;

/// What a device can answer instead of running a block. Nothing of the block has had an effect on the caller then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The buffers of all blocks that there are now, and what is resident, would not fit the device's memory.
    #[error(
        "the device is out of memory: {wanted} bytes wanted, {used} of {capacity} used by what is resident and by blocks \
         that are under way; copy less in one block, call fewer procedures at a time, or make the device with more memory"
    )]
    OutOfMemory {
        /// Bytes of the buffer that there was no room for.
        wanted: u64,
        /// Bytes in use.
        used: u64,
        /// Bytes of the device.
        capacity: u64,
    },
    /// A kernel panicked, or read a buffer that it was not given.
    #[error("kernel `{kernel}` failed: {why}; nothing of its block was copied back")]
    Kernel {
        /// The kernel's name.
        kernel: &'static str,
        /// The message of the panic.
        why: String,
    },
    /// A kernel would write a buffer that it also reads, or write it twice.
    #[error(
        "kernel `{kernel}` is given a buffer twice and writes it; name it once, among those that it writes"
    )]
    BufferTwice {
        /// The kernel's name.
        kernel: &'static str,
    },
    /// What was kept belongs to another device.
    #[error(
        "what is to be read was kept on another device; keep it on this one too (Device::keep)"
    )]
    NotOfDevice,
    /// The buffer belongs to another block: it went when that ended.
    #[error(
        "a buffer of another block: buffers last as long as their block; Device::keep makes one that stays"
    )]
    NotOfBlock,
    /// What is copied back has not the size of the buffer.
    #[error("{wanted} bytes are to be copied back from a buffer of {there}; both must be equal")]
    Size {
        /// Bytes of the caller's slice.
        wanted: usize,
        /// Bytes of the buffer.
        there: usize,
    },
    /// A worker of the device could not be started.
    #[error(
        "a worker of the device did not start: {0}; make it with fewer workers, or use Device::here"
    )]
    Worker(std::io::Error),
}

/// A result of a device.
pub type Result<T, E = DeviceError> = std::result::Result<T, E>;

/// What runs device blocks. A clone is the same device.
#[derive(Clone)]
pub struct Device {
    account: Arc<Account>,
    runs: Runs,
}

#[derive(Clone)]
enum Runs {
    /// On the thread that synchronises.
    Here,
    OnWorkers(Arc<Streams>),
}

impl Device {
    /// The processor as a device: a block runs on the thread that ends it. It has `memory_bytes` for buffers.
    ///
    /// The quickest where there is no other device: no thread is woken.
    ///
    /// ```
    /// use terrace_transact::device::{Device, Kernel};
    /// static DOUBLE: Kernel = Kernel::new("double", |launch| {
    ///     launch.write::<f32>(0).iter_mut().for_each(|number| *number *= 2.0);
    /// });
    /// let device = Device::here(1 << 20);
    /// let mut doubled = [0.0f32; 3];
    /// device.block(|block| {
    ///     let numbers = block.copy_in(&[1.0f32, 2.0, 3.0])?;
    ///     block.launch(&DOUBLE, &[], &[numbers.into()])?;
    ///     block.copy_out(numbers, &mut doubled)
    /// })?;
    /// assert_eq!(doubled, [2.0, 4.0, 6.0]);
    /// # Ok::<(), terrace_transact::device::DeviceError>(())
    /// ```
    pub fn here(memory_bytes: u64) -> Device {
        Device { account: Account::new(memory_bytes), runs: Runs::Here }
    }

    /// `count` threads (one at least) as a device: a block is sent to one of them, and waited for once. It has
    /// `memory_bytes` for buffers. Stands for a device that is a trip away, and keeps long kernels off the callers'
    /// processors if it runs on others.
    ///
    /// ```
    /// use terrace_transact::device::Device;
    /// let device = Device::workers(2, 1 << 20)?;
    /// let mut back = [0u64; 2];
    /// device.block(|block| {
    ///     let numbers = block.copy_in(&[7u64, 9])?;
    ///     block.copy_out(numbers, &mut back)
    /// })?;
    /// assert_eq!(back, [7, 9]);
    /// # Ok::<(), terrace_transact::device::DeviceError>(())
    /// ```
    ///
    /// # Errors
    /// [`DeviceError::Worker`].
    pub fn workers(count: usize, memory_bytes: u64) -> Result<Device> {
        let streams = Streams::start(count.max(1)).map_err(DeviceError::Worker)?;
        Ok(Device { account: Account::new(memory_bytes), runs: Runs::OnWorkers(Arc::new(streams)) })
    }

    /// Copies `elements` to the device, to stay there until what is returned is dropped: the weights of a model, say,
    /// which every block reads and none writes.
    ///
    /// ```
    /// # use terrace_transact::device::Device;
    /// let device = Device::here(1 << 20);
    /// let weights = device.keep(&[0.5f32; 1000])?;
    /// assert_eq!(device.memory_used(), 4000);
    /// drop(weights);
    /// assert_eq!(device.memory_used(), 0);
    /// # Ok::<(), terrace_transact::device::DeviceError>(())
    /// ```
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`].
    pub fn keep<T: Pod>(&self, elements: &[T]) -> Result<Resident> {
        Resident::new(Arc::clone(&self.account), elements)
    }

    /// Bytes of buffers and of what is resident.
    ///
    /// ```
    /// # use terrace_transact::device::Device;
    /// assert_eq!(Device::here(1 << 20).memory_used(), 0);
    /// ```
    pub fn memory_used(&self) -> u64 {
        self.account.used()
    }

    /// Runs the operations that `f` enqueues, in their order, and waits for them once. What was copied back is in place
    /// when this returns, and no earlier.
    ///
    /// # Errors
    /// Those of `f`, before anything runs; [`DeviceError::Kernel`]: nothing was copied back then.
    pub fn block<'b, R>(&self, f: impl FnOnce(&mut Block<'b>) -> Result<R>) -> Result<R> {
        self.block_counted(f).map(|(result, _)| result)
    }

    /// The same, with what was copied.
    pub(crate) fn block_counted<'b, R>(
        &self,
        f: impl FnOnce(&mut Block<'b>) -> Result<R>,
    ) -> Result<(R, Ran)> {
        let mut block = Block::new(Arc::clone(&self.account));
        let result = f(&mut block)?;
        let (queue, outputs) = block.enqueued();
        let ran = match &self.runs {
            Runs::Here => queue.run(),
            Runs::OnWorkers(streams) => streams.run(queue),
        };
        Ok((result, outputs.fill(ran?)))
    }
}
