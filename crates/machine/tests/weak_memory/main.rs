//! The small protocols between threads, under every order of their steps that the language's memory model allows.
//!
//! The crash explorer runs threads one step at a time on one memory that all see at once; what a weaker order of loads
//! and stores could show it does not know. loom does, for programs of a few dozen steps. So each protocol is a file of
//! its own that takes locks and atomics from `crate::sync`: the standard ones where it serves, loom's here. Each model
//! has a control: the same protocol without its fences, or without its orders, which loom must catch.

#![allow(
    clippy::arc_with_non_send_sync,
    reason = "loom shares cells that it watches, and its models are run by it"
)]
#![allow(
    clippy::default_constructed_unit_structs,
    reason = "what stands in the place of another type is made as that"
)]

mod sync;
mod weak;

/// What latches ask of keys; the rest is not theirs.
mod keys {
    pub trait Keys {
        fn pause(&self) {}
    }
}

#[path = "../../../store/src/queue/bell.rs"]
mod bell;
#[path = "../../../durable/src/logs/commit_queue.rs"]
#[allow(dead_code)]
mod commit_queue;
#[path = "../../../lockfree/src/list/epochs.rs"]
#[allow(dead_code)]
mod epochs;
#[path = "../../../movement/src/cache/front.rs"]
#[allow(dead_code)]
mod front;
#[path = "../../../server/src/gate.rs"]
mod gate;
#[path = "../../../index/src/latch.rs"]
#[allow(dead_code)]
mod latch;
#[path = "../../../store/src/moments.rs"]
#[allow(dead_code)]
mod moments;

#[path = "../../../store/src/watch/registry.rs"]
#[allow(dead_code)]
mod registry;
#[path = "../../../index/src/table/version_lock.rs"]
#[allow(dead_code)]
mod version_lock;

mod models;
