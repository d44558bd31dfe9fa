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
    prestore_amplification,
    prestore_clean,
    prestore_demote,
    prestore_hotline,
    prestore_skip,
    prestore_apps,
    kv_recovery,
    ssp_crash,
    ssp_software,
}
