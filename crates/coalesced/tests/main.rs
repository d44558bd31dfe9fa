//! The tests of the room `coalesced` that need no look inside.
