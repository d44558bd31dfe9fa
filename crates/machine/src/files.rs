//! Files as a medium: pieces at random places, read past the page cache, or written and made durable.

use crate::random::Rng;
use crate::timed::Times;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Barrier;
use std::time::{Duration, Instant};
use terrace_memory::dax;

/// The operation on a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileOp {
    /// It is read.
    Read,
    /// It is written, and made durable.
    WriteSync,
}

/// Pieces of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSetting {
    /// The operation.
    pub op: FileOp,
    /// Bytes of a piece: whole pages.
    pub piece_bytes: u64,
    /// Threads, each over its own part of the file.
    pub threads: usize,
    /// The most time that a thread takes.
    pub time: Duration,
}

/// What came of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FileRun {
    /// Whether reads went past the page cache.
    pub is_direct: bool,
    /// 10^9 bytes a second, all threads together.
    pub gb_s: f64,
    /// Of a piece.
    pub times: Times,
}

/// Pages are what transfers past the page cache are aligned to, on every device in use.
const PAGE: u64 = 4096;

/// A file whose blocks were all written, ready to measure.
#[derive(Debug)]
pub struct WrittenFile {
    file: File,
    /// The same past the page cache, where its file system can.
    direct: Option<File>,
    bytes: u64,
}

impl WrittenFile {
    /// Writes all of a file, since blocks that never were written are not read from the medium.
    ///
    /// # Errors
    /// The system's.
    pub fn new(file: File, bytes: u64) -> io::Result<WrittenFile> {
        const PIECE: usize = 1 << 20;
        let piece = vec![0xA5; PIECE];
        for at in (0..bytes).step_by(PIECE) {
            let left = (bytes - at).min(PIECE as u64) as usize;
            file.write_all_at(&piece[..left], at)?;
        }
        file.sync_data()?;
        let direct = dax::past_the_cache(&file).ok();
        Ok(WrittenFile { file, direct, bytes })
    }

    /// Its length.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Measures a setting. Writes go through the page cache, as the store's do.
    ///
    /// # Errors
    /// The system's, or that a thread's part of the file is smaller than a piece.
    ///
    /// # Panics
    /// If there is no thread, or a piece is not of whole pages.
    pub fn run(&self, setting: FileSetting) -> io::Result<FileRun> {
        let FileSetting { op, piece_bytes, threads, .. } = setting;
        assert!(threads > 0 && piece_bytes > 0 && piece_bytes.is_multiple_of(PAGE));
        let pieces = self.bytes / threads as u64 / piece_bytes;
        if pieces == 0 {
            let what =
                format!("a file of {} bytes is too small for pieces of {piece_bytes}", self.bytes);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let direct = self.direct.as_ref().filter(|_| op == FileOp::Read);
        let used = direct.unwrap_or(&self.file);
        let begin = Barrier::new(threads);
        let ran: Vec<(Vec<u64>, Duration)> = std::thread::scope(|scope| {
            let thread = |number| {
                let begin = &begin;
                scope.spawn(move || setting.part(used, number, pieces, begin))
            };
            let threads: Vec<_> = (0..threads as u64).map(thread).collect();
            let ended = || io::Error::other("a thread of the measurement ended");
            let joined = threads.into_iter().map(|thread| thread.join().map_err(|_| ended())?);
            joined.collect::<io::Result<_>>()
        })?;
        let longest = ran.iter().map(|(_, time)| *time).max().unwrap_or_default();
        let samples: Vec<u64> = ran.into_iter().flat_map(|(samples, _)| samples).collect();
        let moved = samples.len() as u64 * piece_bytes;
        let gb_s = moved as f64 / 1e9 / longest.as_secs_f64();
        Ok(FileRun { is_direct: direct.is_some(), gb_s, times: Times::of(samples) })
    }
}

impl FileSetting {
    /// A thread's share: the time of each piece, ps, and of all.
    fn part(
        self,
        file: &File,
        thread: u64,
        pieces: u64,
        begin: &Barrier,
    ) -> io::Result<(Vec<u64>, Duration)> {
        let mut memory = vec![0u8; (self.piece_bytes + PAGE) as usize];
        let lead = memory.as_ptr().align_offset(PAGE as usize);
        let piece = &mut memory[lead..][..self.piece_bytes as usize];
        let mut random = Rng::new(thread + 1);
        let mut samples = Vec::new();
        begin.wait();
        let start = Instant::now();
        while samples.is_empty() || start.elapsed() < self.time {
            let at = (thread * pieces + random.below(pieces)) * self.piece_bytes;
            let before = Instant::now();
            match self.op {
                FileOp::Read => file.read_exact_at(piece, at)?,
                FileOp::WriteSync => {
                    // Never the same bytes twice: a device may pass over what it has.
                    piece[..8].copy_from_slice(&(samples.len() as u64 + 1).to_le_bytes());
                    file.write_all_at(piece, at)?;
                    file.sync_data()?;
                }
            }
            samples.push(before.elapsed().as_nanos() as u64 * 1000);
        }
        Ok((samples, start.elapsed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_timed_and_counted_and_a_file_too_small_is_refused() {
        let folder = std::env::temp_dir();
        let file = |bytes| {
            let file = dax::whole_scratch_file(&folder, bytes).expect("room for a small file");
            WrittenFile::new(file, bytes).expect("it can be written")
        };
        for op in [FileOp::Read, FileOp::WriteSync] {
            let setting =
                FileSetting { op, piece_bytes: 8192, threads: 2, time: Duration::from_millis(5) };
            let run = file(4 << 20).run(setting).expect("the file can be used");
            assert!(
                run.gb_s > 0.0 && run.times.p50_ns > 0.0 && run.times.p99_ns >= run.times.p50_ns
            );
            let refused = file(8192).run(setting).expect_err("half a piece for each thread");
            assert!(refused.to_string().contains("too small for pieces of 8192"), "{refused}");
        }
    }
}
