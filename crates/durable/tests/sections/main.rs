//! Failure-atomic sections: what they promise, and that every ordering point is needed for it.

#[path = "../../../experiments/src/structures/mod.rs"]
mod structures;

mod behaviour;
mod crashes;
mod damage;
mod faults;
mod images;
mod memory;
mod model;
mod scenario;
mod threads;
