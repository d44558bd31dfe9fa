//! Counters, as the papers define them.
//!
//! A memory counts at two places: where the processor hands it lines (the boundary of cache and
//! controller), and at its medium. The ratios between the two are the papers'; each says whose.

use std::ops::Sub;

/// What went in and out of one memory. Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounts {
    /// Read by the processor, for whatever reason.
    pub read_bytes: u64,
    /// Of these, by processors' prefetchers.
    pub prefetched_bytes: u64,
    /// Written by the processor: the sum of the next four.
    pub written_bytes: u64,
    /// Dirty lines that caches gave up.
    pub evicted_bytes: u64,
    /// Lines written back on demand.
    pub written_back_bytes: u64,
    /// Lines streamed.
    pub streamed_bytes: u64,
    /// Lines written because the memory notes that another socket read them.
    pub noted_bytes: u64,
    /// Read from the medium: for reads, for fetching ahead, and to complete lines that are written
    /// in part.
    pub media_read_bytes: u64,
    /// Of these, to complete lines.
    pub media_completed_bytes: u64,
    /// Of these, fetched ahead.
    pub media_ahead_bytes: u64,
    /// Written to the medium.
    pub media_written_bytes: u64,
    /// Reads that found their line in the device's buffer, bytes.
    pub read_hit_bytes: u64,
    /// Writes that did.
    pub write_hit_bytes: u64,
}

impl NodeCounts {
    /// Effective write ratio: bytes written to the controller by bytes written to the medium (seed
    /// Gugnani, metrics: `64 * ddrt_write_ops / (256 * media_write_ops)`). 1 is best, 0.25 is one 64-byte
    /// line for each 256-byte line of the medium.
    pub fn ewr(&self) -> f64 {
        ratio(self.written_bytes, self.media_written_bytes)
    }

    /// Write amplification: bytes written to the medium by bytes that left the caches (Wu,
    /// 3.4.1; Ni, chapter 2): the inverse of [`NodeCounts::ewr`].
    pub fn write_amplification(&self) -> f64 {
        ratio(self.media_written_bytes, self.written_bytes)
    }

    /// Read amplification: bytes read from the medium for the bytes read by the processor (Ni,
    /// table 5.1). What is read to complete written lines is not counted, since the paper's
    /// controller counters do not have it.
    pub fn read_amplification(&self) -> f64 {
        ratio(self.media_read_bytes - self.media_completed_bytes, self.read_bytes)
    }

    /// Read-write ratio at the medium: bytes read by bytes written (Gugnani, metrics), reads that
    /// complete written lines included, as in the paper's raw counters (4.7: 0.793).
    pub fn rwr(&self) -> f64 {
        ratio(self.media_read_bytes, self.media_written_bytes)
    }

    /// Effective bandwidth ratio: bytes of the medium that were read and written in a time, by what
    /// it could have moved (Gugnani, metrics; the paper's tool takes written bytes and its peak write
    /// bandwidth).
    pub fn ebr(&self, seconds: f64, peak_gb_s: f64) -> f64 {
        self.media_written_bytes as f64 / 1e9 / seconds / peak_gb_s
    }

    /// Share of reads that the device's buffer served: `(ddrt_read - media_read) / ddrt_read` of
    /// Gugnani, metrics, in lines of 64 and 256 bytes.
    pub fn read_hit_ratio(&self, line_bytes: u64, media_line_bytes: u64) -> f64 {
        let media = (self.media_read_bytes - self.media_completed_bytes) / media_line_bytes.max(1);
        hit_ratio(self.read_bytes / line_bytes, media)
    }

    /// Share of writes that the device's buffer took in without one to the medium: as above.
    pub fn write_hit_ratio(&self, line_bytes: u64, media_line_bytes: u64) -> f64 {
        hit_ratio(
            self.written_bytes / line_bytes,
            self.media_written_bytes / media_line_bytes.max(1),
        )
    }
}

fn ratio(above: u64, below: u64) -> f64 {
    if below == 0 { 0.0 } else { above as f64 / below as f64 }
}

fn hit_ratio(asked: u64, media: u64) -> f64 {
    if asked == 0 { 0.0 } else { 1.0 - media as f64 / asked as f64 }
}

/// What one logical thread did and waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadCounts {
    /// Lines asked for: loads, stores, exchanges; not prefetches.
    pub accesses: u64,
    /// Of these, found in the nearest cache.
    pub first_level_hits: u64,
    /// Found in the second private cache.
    pub second_level_hits: u64,
    /// Found in the cache that the socket shares.
    pub shared_hits: u64,
    /// Taken from another core's cache.
    pub from_cores: u64,
    /// Fetched from memory.
    pub misses: u64,
    /// Lines prefetched by the program or by the processor.
    pub prefetches: u64,
    /// Fences.
    pub fences: u64,
    /// Waited at fences and exchanges for stores, write-backs and streams, ps.
    pub fence_wait_ps: u64,
    /// Waited because the store buffer was full, ps.
    pub store_wait_ps: u64,
    /// Waited for a line fill buffer, ps.
    pub buffer_wait_ps: u64,
    /// Waited for lines, ps.
    pub memory_wait_ps: u64,
    /// Of that, because the write-back queue was full, ps.
    pub eviction_wait_ps: u64,
    /// Waited for other threads, as [`pause`](terrace_memory::lab::pause) said, ps.
    pub paused_ps: u64,
}

macro_rules! subtract {
    ($type:ident: $($field:ident)*) => {
        impl Sub for $type {
            type Output = $type;
            /// What came in between two readings.
            fn sub(self, earlier: $type) -> $type {
                $type { $($field: self.$field - earlier.$field,)* }
            }
        }
    };
}

subtract!(NodeCounts: read_bytes prefetched_bytes written_bytes evicted_bytes written_back_bytes
    streamed_bytes noted_bytes media_read_bytes media_completed_bytes media_ahead_bytes media_written_bytes
    read_hit_bytes write_hit_bytes);
subtract!(ThreadCounts: accesses first_level_hits second_level_hits shared_hits from_cores misses
    prefetches fences fence_wait_ps store_wait_ps buffer_wait_ps memory_wait_ps eviction_wait_ps
    paused_ps);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_of_the_papers_raw_counts() {
        // Gugnani, figure 7: I7's counters. The raw reads include those done for writes, which here are
        // in `media_read_bytes` and not in `read_bytes`.
        let counts = NodeCounts {
            written_bytes: 64 * 10_067_626,
            media_written_bytes: 256 * 2_756_575,
            media_read_bytes: 256 * 2_186_052,
            media_completed_bytes: 256 * 2_186_052,
            ..NodeCounts::default()
        };
        assert!((counts.ewr() - 0.913).abs() < 0.001, "{}", counts.ewr());
        assert!((counts.rwr() - 0.793).abs() < 0.001, "{}", counts.rwr());
        let hits = counts.write_hit_ratio(64, 256);
        assert!((hits - 0.726).abs() < 0.001, "{hits}");
        let reads = NodeCounts {
            read_bytes: 64 * 10_069_187,
            media_read_bytes: 256 * 2_186_052,
            ..NodeCounts::default()
        };
        let hits = reads.read_hit_ratio(64, 256);
        assert!((hits - 0.783).abs() < 0.001, "{hits}");
    }
}
