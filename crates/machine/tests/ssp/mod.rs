//! The modelled processor: crashes anywhere, the steps that recovery needs, and what time and counts say.

mod counts;
mod crashes;
mod refusals;
mod world;
