//! The library once more, for the tests: an example is built from what the tests of the workspace have built already.

#[path = "../src/lib.rs"]
mod library;
