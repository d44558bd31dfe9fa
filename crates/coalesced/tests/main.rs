//! The tests of the room `coalesced`.
