//! Intel's Data Streaming Accelerator: descriptors, completion records, one driver, and two portals to it.
//!
//! Everything but the write to the portal is the same for the device and for the emulated one, and tested on that. The
//! path to the device follows the public specification (Intel, "Data Streaming Accelerator Architecture
//! Specification") and the kernel's `idxd` driver; no machine with the device was at hand, so it was never run.

mod completion;
mod descriptor;
mod emulated;
mod idxd;
mod portal;
mod queue;

#[cfg(feature = "faults")]
pub use emulated::Misdeed;
pub use emulated::{Emulated, EmulatedOptions, EmulatedStats};
pub use idxd::{DsaQueue, DsaQueues};
