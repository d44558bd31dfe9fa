//! What a table answers, compared with maps that are simply right.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

mod interleaved;
mod scheduler;
mod single;
mod storm;
mod threads;
