//! Kernels: what a device computes.

use super::{DeviceError, Result};
use bytemuck::Pod;
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A function that a device runs on buffers, by its name. It sees nothing else, so that it can run on another device.
/// Its result must not depend on how many threads run it.
///
/// ```
/// use terrace_transact::device::Kernel;
/// static SUM: Kernel = Kernel::new("sum", |launch| {
///     let (numbers, sum) = (launch.read::<u64>(0), launch.write::<u64>(0));
///     sum[0] = numbers.iter().sum();
/// });
/// assert_eq!(SUM.name(), "sum");
/// ```
pub struct Kernel {
    name: &'static str,
    run: fn(&mut Launch<'_>),
}

impl Kernel {
    /// The kernel `name`, which the processor runs as `run`.
    pub const fn new(name: &'static str, run: fn(&mut Launch<'_>)) -> Kernel {
        Kernel { name, run }
    }

    /// Its name, which errors have.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Runs it. A panic is an error.
    pub(super) fn run(&self, reads: &[&[u8]], writes: Vec<&mut [u8]>) -> Result<()> {
        let mut launch = Launch { reads, writes: writes.into_iter().map(Some).collect() };
        // What it may have left half written is the block's own, and goes with it.
        catch_unwind(AssertUnwindSafe(|| (self.run)(&mut launch)))
            .map_err(|panic| DeviceError::Kernel { kernel: self.name, why: told(&*panic) })
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Kernel").field(&self.name).finish()
    }
}

/// The message of a panic.
fn told(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it panicked".into())
}

/// The buffers that a kernel was launched with.
pub struct Launch<'a> {
    reads: &'a [&'a [u8]],
    /// Each until it was taken.
    writes: Vec<Option<&'a mut [u8]>>,
}

impl<'a> Launch<'a> {
    /// The buffer that stands at `at` among those that it reads.
    ///
    /// # Panics
    /// If there is none, or it is not a whole number of elements: the launch fails then ([`DeviceError::Kernel`]).
    pub fn read<T: Pod>(&self, at: usize) -> &'a [T] {
        const { assert!(align_of::<T>() <= 8, "buffers are aligned to 8 bytes") };
        let count = self.reads.len();
        let bytes = self.reads.get(at);
        let bytes = bytes.unwrap_or_else(|| panic!("it reads buffer {at} of {count} to be read"));
        match bytemuck::try_cast_slice(bytes) {
            Ok(elements) => elements,
            Err(error) => panic!("{}", misfit::<T>(bytes.len(), error)),
        }
    }

    /// The buffer that stands at `at` among those that it writes, with what is in it. Each can be taken once.
    ///
    /// # Panics
    /// As [`Launch::read`], and if it was taken before.
    pub fn write<T: Pod>(&mut self, at: usize) -> &'a mut [T] {
        const { assert!(align_of::<T>() <= 8, "buffers are aligned to 8 bytes") };
        let count = self.writes.len();
        let bytes = self.writes.get_mut(at);
        let bytes =
            bytes.unwrap_or_else(|| panic!("it writes buffer {at} of {count} to be written"));
        let bytes =
            bytes.take().unwrap_or_else(|| panic!("it takes buffer {at} to be written twice"));
        let len = bytes.len();
        match bytemuck::try_cast_slice_mut(bytes) {
            Ok(elements) => elements,
            Err(error) => panic!("{}", misfit::<T>(len, error)),
        }
    }
}

impl fmt::Debug for Launch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (reads, writes) = (self.reads.len(), self.writes.len());
        f.debug_struct("Launch").field("reads", &reads).field("writes", &writes).finish()
    }
}

fn misfit<T>(bytes: usize, error: bytemuck::PodCastError) -> String {
    format!("a buffer of {bytes} bytes is not one of {}: {error}", std::any::type_name::<T>())
}
