//! The tests of this crate from outside, one module per behaviour, in one program: what they share is compiled and
//! linked once. `cargo test -p terrace-advise --test suite NAME::` runs those of one file.

mod a_machine_is_modelled_from_its_profile;
mod memories_are_held_to_the_tests;
