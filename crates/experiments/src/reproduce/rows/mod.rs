//! The rows: one file each, and one line here.

use super::{Check, Figure, Form, Outcome, Result, Row, Run};

macro_rules! rows {
    ($($row:ident),* $(,)?) => {
        $(mod $row;)*

        /// Every row that is built.
        pub const ALL: &[Row] = &[$($row::ROW),*];
    };
}

rows! {
    kv_sustained,
    kv_gc_stall,
    kv_async_free,
    kv_breakdown,
    kv_ycsb,
    prestore_hotline,
    kv_recovery,
    ssp_crash,
    ssp_software,
    kv_burst,
    kv_levels,
    kv_flush,
    kv_dirty_dram,
}
