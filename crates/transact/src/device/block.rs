//! A device block: what is enqueued, and what comes of it at its end.

use super::memory::{Account, Bytes, Resident, Taken};
use super::stream::{Operation, Queue, Read};
use super::{DeviceError, Kernel, Result};
use bytemuck::Pod;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Elements of one type in a block's memory on the device. They last as long as the block.
pub struct Buffer<T> {
    any: AnyBuffer,
    elements: PhantomData<fn() -> T>,
}

impl<T> Clone for Buffer<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Buffer<T> {}

impl<T> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("bytes", &self.any.bytes).finish()
    }
}

/// A [`Buffer`] whatever its elements: what a kernel writes.
#[derive(Clone, Copy, Debug)]
pub struct AnyBuffer {
    block: u64,
    at: usize,
    bytes: usize,
}

impl<T> From<Buffer<T>> for AnyBuffer {
    fn from(buffer: Buffer<T>) -> Self {
        buffer.any
    }
}

/// What a kernel reads: a buffer of the block, or one that is resident.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// Of the block.
    Buffer(AnyBuffer),
    /// Of the device.
    Resident(&'a Resident),
}

impl<T> From<Buffer<T>> for Input<'_> {
    fn from(buffer: Buffer<T>) -> Self {
        Input::Buffer(buffer.any)
    }
}

impl<'a> From<&'a Resident> for Input<'a> {
    fn from(resident: &'a Resident) -> Self {
        Input::Resident(resident)
    }
}

/// What was copied by a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ran {
    /// Copies to the device, and back.
    pub copies: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Where what is copied back goes, in the order of the copies.
pub(super) struct Outputs<'b> {
    places: Vec<&'b mut [u8]>,
    ran: Ran,
}

impl Outputs<'_> {
    /// Fills the places with what came back.
    pub fn fill(self, back: Vec<Bytes>) -> Ran {
        for (place, bytes) in self.places.into_iter().zip(&back) {
            place.copy_from_slice(bytes.slice());
        }
        self.ran
    }
}

/// A device block while it is enqueued: see [`Device::block`](super::Device::block). Nothing runs before its end.
pub struct Block<'b> {
    number: u64,
    account: Arc<Account>,
    taken: Taken,
    buffers: usize,
    operations: Vec<Operation>,
    outputs: Outputs<'b>,
}

impl<'b> Block<'b> {
    pub(super) fn new(account: Arc<Account>) -> Block<'b> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        Block {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            taken: Taken::none_of(Arc::clone(&account)),
            account,
            buffers: 0,
            operations: Vec::with_capacity(4),
            outputs: Outputs { places: Vec::with_capacity(1), ran: Ran::default() },
        }
    }

    pub(super) fn enqueued(self) -> (Queue, Outputs<'b>) {
        (
            Queue { operations: self.operations, buffers: self.buffers, _taken: self.taken },
            self.outputs,
        )
    }

    fn buffer<T>(&mut self, bytes: usize) -> Result<Buffer<T>> {
        self.taken.grow(bytes)?;
        self.buffers += 1;
        let any = AnyBuffer { block: self.number, at: self.buffers - 1, bytes };
        Ok(Buffer { any, elements: PhantomData })
    }

    fn at(&self, buffer: AnyBuffer) -> Result<usize> {
        if buffer.block == self.number { Ok(buffer.at) } else { Err(DeviceError::NotOfBlock) }
    }

    fn counted(&mut self, bytes: usize) {
        self.outputs.ran.copies += 1;
        self.outputs.ran.bytes += bytes as u64;
    }

    /// A buffer of `count` zeros of the type.
    ///
    /// ```
    /// # use terrace_transact::device::Device;
    /// let mut back = [1u32; 2];
    /// Device::here(64).block(|block| {
    ///     let zeros = block.alloc::<u32>(2)?;
    ///     block.copy_out(zeros, &mut back)
    /// })?;
    /// assert_eq!(back, [0, 0]);
    /// # Ok::<(), terrace_transact::device::DeviceError>(())
    /// ```
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`].
    pub fn alloc<T: Pod>(&mut self, count: usize) -> Result<Buffer<T>> {
        let bytes = count.saturating_mul(size_of::<T>());
        let buffer = self.buffer(bytes)?;
        self.operations.push(Operation::Make(Bytes::zeroed(bytes)));
        Ok(buffer)
    }

    /// A buffer with a copy of `elements`, as they are now.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`].
    pub fn copy_in<T: Pod>(&mut self, elements: &[T]) -> Result<Buffer<T>> {
        let buffer = self.buffer(size_of_val(elements))?;
        self.counted(size_of_val(elements));
        let copied = Bytes::copied(bytemuck::cast_slice(elements));
        self.operations.push(Operation::Make(copied));
        Ok(buffer)
    }

    /// Runs `kernel`, which reads `reads` and reads and writes `writes`.
    ///
    /// ```
    /// # use terrace_transact::device::{Device, Kernel};
    /// static SCALE: Kernel = Kernel::new("scale", |launch| {
    ///     let by = launch.read::<f32>(0)[0];
    ///     launch.write::<f32>(0).iter_mut().for_each(|number| *number *= by);
    /// });
    /// let device = Device::here(1 << 10);
    /// let by = device.keep(&[3.0f32])?;
    /// let mut scaled = [0.0f32; 2];
    /// device.block(|block| {
    ///     let numbers = block.copy_in(&[1.0f32, 2.0])?;
    ///     block.launch(&SCALE, &[(&by).into()], &[numbers.into()])?;
    ///     block.copy_out(numbers, &mut scaled)
    /// })?;
    /// assert_eq!(scaled, [3.0, 6.0]);
    /// # Ok::<(), terrace_transact::device::DeviceError>(())
    /// ```
    ///
    /// # Errors
    /// [`DeviceError::NotOfBlock`], [`DeviceError::NotOfDevice`], [`DeviceError::BufferTwice`].
    pub fn launch(
        &mut self,
        kernel: &'static Kernel,
        reads: &[Input<'_>],
        writes: &[AnyBuffer],
    ) -> Result<()> {
        let writes = writes.iter().map(|buffer| self.at(*buffer)).collect::<Result<Vec<_>>>()?;
        let read = |input: &Input<'_>| match input {
            Input::Buffer(buffer) => self.at(*buffer).map(Read::Buffer),
            Input::Resident(resident) if resident.is_of(&self.account) => {
                Ok(Read::Resident((*resident).clone()))
            }
            Input::Resident(_) => Err(DeviceError::NotOfDevice),
        };
        let reads = reads.iter().map(read).collect::<Result<Vec<_>>>()?;
        let is_read =
            |at: &usize| reads.iter().any(|read| matches!(read, Read::Buffer(read) if read == at));
        let is_twice = |(number, at): (usize, &usize)| is_read(at) || writes[..number].contains(at);
        if writes.iter().enumerate().any(is_twice) {
            return Err(DeviceError::BufferTwice { kernel: kernel.name() });
        }
        self.operations.push(Operation::Launch { kernel, reads, writes });
        Ok(())
    }

    /// Copies `buffer`, as it is at this place in the order, to `elements`; they have it when the block has ended.
    ///
    /// # Errors
    /// [`DeviceError::NotOfBlock`], [`DeviceError::Size`].
    pub fn copy_out<T: Pod>(&mut self, buffer: Buffer<T>, elements: &'b mut [T]) -> Result<()> {
        let at = self.at(buffer.any)?;
        let place: &'b mut [u8] = bytemuck::cast_slice_mut(elements);
        if place.len() != buffer.any.bytes {
            return Err(DeviceError::Size { wanted: place.len(), there: buffer.any.bytes });
        }
        self.counted(place.len());
        self.outputs.places.push(place);
        self.operations.push(Operation::CopyOut(at));
        Ok(())
    }
}

impl fmt::Debug for Block<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block").field("operations", &self.operations.len()).finish()
    }
}
