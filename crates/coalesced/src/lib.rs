//! Coalesced nodes: structures over nodes of several words that a back end reads and writes as one (Miller, chapter 5).

#![forbid(unsafe_code)]
