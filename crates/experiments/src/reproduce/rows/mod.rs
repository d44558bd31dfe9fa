//! The rows: one file each, and one line here, which takes its place in [`NOT_BUILT`].

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};

pub use tier_open::victim;
pub use uma_query::{LAST_DAY, Lines, Sums};

macro_rules! rows {
    ($($row:ident),* $(,)?) => {
        $(mod $row;)*

        /// Every row that is built.
        pub const ALL: &[Row] = &[$($row::ROW),*];
    };
}

/// Rows that nobody asked of these papers: they test what Terrace decides by itself.
pub const BEYOND: &[&str] = &["btree-auto"];

/// Experiments that are to be shown and have no row yet.
pub const NOT_BUILT: &[&str] = &[
    "uma-sort",
    "uma-hash-cpu",
    "uma-prefetch",
    "uma-cooperate",
    "uma-hotcold",
    "slab-hash",
    "kvcg-latency",
    "kvcg-ratio",
    "kvcg-switch",
    "lit-gpu",
    "tmc-predict",
    "tmc-select",
    "tmc-pack",
    "tmc-sampling",
    "tier-modelled",
];

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
    numa_placement,
    uma_memory,
    uma_litmus,
    uma_query,
    prestore_skip,
    prestore_apps,
    dirtbuster_corpus,
    dirtbuster_gate,
    kv_recovery,
    ssp_crash,
    ssp_software,
    ssp_speed,
    ssp_writes,
    ssp_sensitivity,
    pmem_i1,
    pmem_i2,
    pmem_i3,
    pmem_i4,
    pmem_i5,
    pmem_i6,
    pmem_i7,
    pmem_i8,
    pmem_metrics,
    pmem_classify,
    kv_burst,
    kv_levels,
    kv_flush,
    kv_dirty_dram,
    list_cost,
    list_crash,
    list_throughput,
    btree_log,
    btree_cost,
    btree_crash,
    btree_scaling,
    btree_selective,
    btree_interleave,
    btree_group_flush,
    btree_auto,
    ring_crash,
    ring_latency,
    ring_flush,
    orangutan_equal,
    orangutan_speed,
    orangutan_skew,
    snapkv_isolation,
    snapkv_olda,
    snapkv_htap,
    snapkv_crossover,
    lit_traversal,
    lit_ranges,
    lit_peers,
    cods_cost,
    cods_atomicity,
    cods_list,
    cods_hash,
    cods_blink,
    tier_larger,
    tier_open,
    tier_policy,
    cache_protocol,
    cache_semantics,
    dsa_threads,
    dsa_submit,
    dsa_balance,
    dsa_cpu,
    qdp,
}
