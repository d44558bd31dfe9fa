//! Many reads of one file at a time.
//!
//! A flash disk answers one reader in some 70 us and a hundred in not much more: reads that are known at one time
//! are submitted as one, through io_uring, and each is looked at as it comes while the others are under way. Where the
//! kernel gives no ring (old, or forbidden in a container) threads read side by side.
//!
//! # Safety of what is under way
//! The kernel writes to a buffer until it has said that the read is done. Buffers belong to the ring, and one with
//! reads under way is never dropped: it is leaked.

use super::Blocks;
use super::disk::one_by_one;
use crate::error::Result;
use io_uring::{IoUring, cqueue, opcode, types};
use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::slice::from_raw_parts;

/// Reads under way at once: from here on flash disks answer no faster.
const READS: usize = 64;
/// Buffers for each of them: what came is looked at while the next is read.
const TURNS: usize = 2;
/// Longer pieces are read by themselves, which takes longer than asking for them.
const PIECE_MOST: usize = 32 << 10;
/// Bytes of all buffers.
const BUFFER_BYTES: usize = 2 << 20;
/// Threads that stand in for a ring, and how many pieces each has at least.
const THREADS: usize = 8;
const PIECES_EACH: usize = 4;

/// Reads a piece whole; what the file does not have reads as zero.
type ReadOne<'a> = &'a (dyn Fn(u64, &mut [u8]) -> Result<()> + Sync);

thread_local! {
    static RING: Cell<Tried> = const { Cell::new(Tried::NotYet) };
}

/// A thread's ring, taken while it is used.
#[derive(Default)]
enum Tried {
    #[default]
    NotYet,
    Refused,
    Ready(Box<Ring>),
}

/// Reads `pieces` of `file`, and tells `each` of every one as it comes. Those that a ring does not read whole are read
/// by `one`, which says what is wrong with them.
pub(super) fn read_many(
    file: &File,
    pieces: &[(u64, usize)],
    each: &mut dyn FnMut(usize, Result<&[u8]>),
    one: ReadOne<'_>,
) {
    if pieces.len() < 2 {
        return one_by_one(pieces, each, one);
    }
    let ring = match RING.take() {
        Tried::NotYet => Ring::new().ok(),
        Tried::Refused => None,
        Tried::Ready(ring) => Some(ring),
    };
    let Some(mut ring) = ring else {
        RING.set(Tried::Refused);
        return side_by_side(pieces, each, one);
    };
    let mut left: Vec<usize> = Vec::new();
    let is_whole = ring.read(file, pieces, &mut left, each);
    // One that failed has reads under way perhaps, and its buffers are lost: not again and again.
    RING.set(if is_whole { Tried::Ready(ring) } else { Tried::Refused });
    for number in left {
        let piece = &pieces[number..=number];
        one_by_one(piece, &mut |_, found| each(number, found), one);
    }
}

struct Ring {
    ring: IoUring,
    buffers: Blocks,
    /// Where the first of them is, in a call; and the bytes of each, as long as the longest piece.
    first: *mut u8,
    each_bytes: usize,
    /// Which piece is being read to each buffer.
    asked: Vec<Option<usize>>,
    free: Vec<usize>,
    under_way: usize,
}

impl Ring {
    fn new() -> io::Result<Box<Ring>> {
        // What is done for one thread's reads needs no interrupt of it. Kernels before 6.0 do not know of that.
        let mut of_one = IoUring::builder();
        of_one.setup_single_issuer().setup_coop_taskrun();
        let ring = of_one.build(READS as u32).or_else(|_| IoUring::new(READS as u32))?;
        let (buffers, asked, free) = (Blocks::default(), Vec::new(), Vec::new());
        let first = std::ptr::null_mut();
        Ok(Box::new(Ring { ring, buffers, first, each_bytes: 0, asked, free, under_way: 0 }))
    }

    /// Makes buffers for the longest of the pieces that are read together. Nothing is under way.
    fn prepare(&mut self, pieces: &[(u64, usize)]) {
        let together = pieces.iter().map(|piece| piece.1).filter(|bytes| *bytes <= PIECE_MOST);
        self.each_bytes = together.max().unwrap_or(1).next_power_of_two();
        let count = (BUFFER_BYTES / self.each_bytes).min(TURNS * READS).min(pieces.len());
        self.first = self.buffers.of(count * self.each_bytes).as_mut_ptr();
        self.asked = vec![None; count];
        self.free = (0..count).collect();
    }

    /// Tells `each` of pieces that were read whole; the others are `left`. Whether the ring can be used again.
    fn read(
        &mut self,
        file: &File,
        pieces: &[(u64, usize)],
        left: &mut Vec<usize>,
        each: &mut dyn FnMut(usize, Result<&[u8]>),
    ) -> bool {
        self.prepare(pieces);
        let mut next = 0;
        let mut done: Vec<cqueue::Entry> = Vec::with_capacity(READS);
        loop {
            self.ask_for_more(file, pieces, &mut next, left);
            if self.under_way == 0 {
                return true;
            }
            match self.ring.submit_and_wait(self.under_way.div_ceil(2)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    left.extend(self.asked.iter().flatten());
                    left.extend(next..pieces.len());
                    return false;
                }
            }
            done.extend(self.ring.completion());
            self.under_way -= done.len();
            // The disk goes on while what came is looked at. What is not submitted now is with the next.
            self.ask_for_more(file, pieces, &mut next, left);
            let _with_the_next = self.ring.submit();
            for entry in done.drain(..) {
                let buffer = entry.user_data() as usize;
                let number = self.asked[buffer].take().expect("a buffer that was asked for");
                let bytes = pieces[number].1;
                match entry.result() == bytes as i32 {
                    // SAFETY: a buffer of this call, as long as the piece, whose read is done; it is not asked for
                    // before `each` is.
                    true => each(number, Ok(unsafe { from_raw_parts(self.buffer(buffer), bytes) })),
                    false => left.push(number),
                }
                self.free.push(buffer);
            }
        }
    }

    /// Asks for the next pieces, as far as there are buffers; those that are too long are `left`.
    fn ask_for_more(
        &mut self,
        file: &File,
        pieces: &[(u64, usize)],
        next: &mut usize,
        left: &mut Vec<usize>,
    ) {
        while let Some(piece) = pieces.get(*next)
            && self.under_way < READS
        {
            if piece.1 > PIECE_MOST {
                left.push(*next);
            } else if let Some(buffer) = self.free.pop() {
                self.ask(file, buffer, *next, *piece);
            } else {
                return;
            }
            *next += 1;
        }
    }

    fn buffer(&self, number: usize) -> *mut u8 {
        debug_assert!(number < self.asked.len());
        // Within the buffers of this call.
        self.first.wrapping_add(number * self.each_bytes)
    }

    fn ask(&mut self, file: &File, buffer: usize, number: usize, (at, bytes): (u64, usize)) {
        self.asked[buffer] = Some(number);
        self.under_way += 1;
        let into = self.buffer(buffer);
        let read = opcode::Read::new(types::Fd(file.as_raw_fd()), into, bytes as u32)
            .offset(at)
            .build()
            .user_data(buffer as u64);
        // SAFETY: the file is open until all reads are done, and so long nobody else has the buffer, which is not
        // dropped or moved while reads are under way: those of a call are made before its first read.
        let pushed = unsafe { self.ring.submission().push(&read) };
        assert!(pushed.is_ok(), "a queue with as many entries as reads under way");
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.under_way > 0 {
            std::mem::forget(std::mem::take(&mut self.buffers));
        }
    }
}

/// The same by threads.
fn side_by_side(
    pieces: &[(u64, usize)],
    each: &mut dyn FnMut(usize, Result<&[u8]>),
    one: ReadOne<'_>,
) {
    let mut first = 0;
    while first < pieces.len() {
        let is_short = |piece: &&(u64, usize)| piece.1 <= PIECE_MOST;
        let short = pieces[first..].iter().take(THREADS * PIECES_EACH).take_while(is_short).count();
        if short == 0 {
            one_by_one(&pieces[first..=first], &mut |_, found| each(first, found), one);
            first += 1;
            continue;
        }
        let some = &pieces[first..first + short];
        let threads = (some.len() / PIECES_EACH).max(1);
        let share = some.len().div_ceil(threads);
        let read = |share: &[(u64, usize)]| {
            let mut found: Vec<Result<Blocks>> = Vec::with_capacity(share.len());
            for (at, bytes) in share {
                let mut blocks = Blocks::default();
                found.push(one(*at, blocks.of(*bytes)).map(|()| blocks));
            }
            found
        };
        let found: Vec<Result<Blocks>> = std::thread::scope(|scope| {
            let mut shares = some.chunks(share);
            let own = shares.next().unwrap_or_default();
            let start = |share| {
                (share, std::thread::Builder::new().spawn_scoped(scope, move || read(share)))
            };
            let others: Vec<_> = shares.map(start).collect();
            let mut found = read(own);
            for (share, other) in others {
                let read_there = other.ok().and_then(|thread| thread.join().ok());
                found.extend(read_there.unwrap_or_else(|| read(share)));
            }
            found
        });
        for (number, found) in found.into_iter().enumerate() {
            match found {
                Ok(mut blocks) => {
                    each(first + number, Ok(&blocks.of(some[number].1)[..some[number].1]))
                }
                Err(error) => each(first + number, Err(error)),
            }
        }
        first += short;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::io_error;
    use std::os::unix::fs::FileExt;

    use crate::medium::BLOCK_BYTES;

    const BLOCK: usize = BLOCK_BYTES as usize;

    /// A file whose words say where they lie, without the last half block.
    fn file(blocks: u64) -> File {
        let file = tempfile::tempfile().expect("a file");
        let words = (0..blocks * BLOCK_BYTES / 8 - BLOCK_BYTES / 16).flat_map(u64::to_le_bytes);
        file.write_all_at(&words.collect::<Vec<u8>>(), 0).expect("written");
        file
    }

    fn one(file: &File) -> impl Fn(u64, &mut [u8]) -> Result<()> + Sync {
        move |at, into| {
            into.fill(0);
            let mut done = 0;
            while done < into.len() {
                match file.read_at(&mut into[done..], at + done as u64) {
                    Ok(0) => break,
                    Ok(more) => done += more,
                    Err(error) => {
                        return Err(io_error(std::path::Path::new("file"), "read")(error));
                    }
                }
            }
            Ok(())
        }
    }

    #[track_caller]
    fn check(
        blocks: u64,
        pieces: &[(u64, usize)],
        read: impl FnOnce(&mut dyn FnMut(usize, Result<&[u8]>)),
    ) {
        let mut seen = vec![0; pieces.len()];
        read(&mut |number, found| {
            let (at, bytes) = pieces[number];
            let found = found.expect("read");
            assert_eq!(found.len(), bytes);
            let end = blocks * BLOCK_BYTES / 8 - BLOCK_BYTES / 16;
            for (word, found) in (at / 8..).zip(found.chunks_exact(8)) {
                let is = if word < end { word } else { 0 };
                assert_eq!(found, is.to_le_bytes(), "word {word} of the file");
            }
            seen[number] += 1;
        });
        assert!(seen.iter().all(|seen| *seen == 1), "{seen:?}");
    }

    /// More than a ring holds, short, long, too long for a buffer, and beyond the end of the file.
    fn pieces(blocks: u64) -> Vec<(u64, usize)> {
        let mut pieces: Vec<(u64, usize)> = (0..500)
            .map(|n: u64| {
                (
                    n.wrapping_mul(2_654_435_761) % (blocks - 16) * BLOCK_BYTES,
                    (n as usize % 10 + 1) * BLOCK,
                )
            })
            .collect();
        pieces.push(((blocks - 1) * BLOCK_BYTES, BLOCK));
        pieces.push((blocks * BLOCK_BYTES, BLOCK));
        pieces
    }

    #[test]
    fn a_ring_reads_each_piece_once() {
        let (file, pieces) = (file(1000), pieces(1000));
        check(1000, &pieces, |each| read_many(&file, &pieces, each, &one(&file)));
        check(1000, &pieces[..1], |each| read_many(&file, &pieces[..1], each, &one(&file)));
    }

    #[test]
    fn threads_read_each_piece_once() {
        let (file, pieces) = (file(1000), pieces(1000));
        for some in [&pieces[..], &pieces[..1], &pieces[..3], &pieces[..33], &[]] {
            check(1000, some, |each| side_by_side(some, each, &one(&file)));
        }
    }

    #[test]
    fn what_cannot_be_read_is_an_error_of_its_piece() {
        // Not open for reading: the ring is refused each piece, and so is who reads them one by one.
        let folder = tempfile::tempdir().expect("folder");
        let file = File::create(folder.path().join("written")).expect("a file");
        file.write_all_at(&[7; 4 * BLOCK], 0).expect("written");
        let pieces = [(0, BLOCK), (BLOCK_BYTES, BLOCK)];
        let mut errors = 0;
        read_many(
            &file,
            &pieces,
            &mut |_, found| errors += usize::from(found.is_err()),
            &one(&file),
        );
        assert_eq!(errors, 2);
    }
}
