//! The tests of the room `movement`.
