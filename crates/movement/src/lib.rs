//! Copy engines behind one asynchronous interface, and the cache that copies data nearer while the processor works.

#![deny(unsafe_op_in_unsafe_fn)]
