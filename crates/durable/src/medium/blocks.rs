//! Memory for whole blocks, aligned as direct I/O asks.

use super::BLOCK_BYTES;
use std::cell::Cell;

#[repr(align(4096))]
#[derive(Clone)]
struct Block {
    _bytes: [u8; BLOCK_BYTES as usize],
}

/// Blocks of this thread, used again and again.
#[derive(Default)]
pub(crate) struct Blocks(Vec<Block>);

thread_local! {
    static BLOCKS: Cell<Vec<Block>> = const { Cell::new(Vec::new()) };
}

impl Blocks {
    /// Runs `f` with this thread's, or with others where they are in use already.
    pub fn with<R>(f: impl FnOnce(&mut Blocks) -> R) -> R {
        // Taken while they are used: a disk that tries crashes recovers, and so writes, inside a write.
        let mut blocks = Blocks(BLOCKS.take());
        let result = f(&mut blocks);
        BLOCKS.set(blocks.0);
        result
    }

    /// So many bytes, whole blocks, with whatever they held.
    pub fn of(&mut self, bytes: usize) -> &mut [u8] {
        let count = bytes.div_ceil(BLOCK_BYTES as usize);
        if self.0.len() < count {
            self.0.resize(count, Block { _bytes: [0; BLOCK_BYTES as usize] });
        }
        let blocks = &mut self.0[..count];
        // SAFETY: a block is its bytes, and as long as its alignment.
        unsafe { std::slice::from_raw_parts_mut(blocks.as_mut_ptr().cast(), size_of_val(blocks)) }
    }
}
