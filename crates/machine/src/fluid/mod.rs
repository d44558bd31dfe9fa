//! Copy engines and the memories that they share, as flows in virtual time.
//!
//! Copies of megabytes are limited by bandwidths, and queues of descriptors by the work for each of them. Neither needs
//! single lines of memory, which the other models of this crate move one by one: a copy of 1 GiB here is one flow with
//! one end. So the eight engines and sixteen memories of Fuerst's machine are modelled in milliseconds.
//!
//! * [`Fluid`]: flows that share resources, and the clock. Which flow is how fast is decided anew whenever one begins
//!   or ends, by max-min fairness: in proportion to what each would move alone, as each has so many
//!   requests on their way.
//! * [`World`]: a preset's memories, links, engines with their queues, and cores ([`Preset::engines`]).
//! * [`Copies`]: the copy benchmark of the paper on a world.
//!
//! # What it has not
//! * Latency does not grow with load: a memory is shared, not slower. What a queue of requests adds is absent.
//! * A memory moves the same in any order of addresses.
//! * Tiles of one package are joined by latency alone; no mesh is ever full.
//! * Caches: every byte is read from memory and written to it.
//!
//! [`Preset::engines`]: crate::Preset

mod copies;
mod device;
mod fair;
mod flows;
mod world;

pub use copies::{Copied, Copies, Mover, Submitter};
pub use device::{Copy, EngineCounts};
pub use flows::{Flow, Fluid, Use};
pub use world::{World, WorldOptions};
