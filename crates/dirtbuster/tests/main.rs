//! The tests of this crate from outside, one module per behaviour, in one program: what they share is compiled and
//! linked once. `cargo test -p terrace-dirtbuster --test suite NAME::` runs those of one file.
#![forbid(unsafe_code)]

mod a_program_that_cannot_be_seen;
mod the_analysis_keeps_up;
mod the_corpus_gets_the_papers_verdicts;
