//! The numbers of inserted records, and which of them may be read.
//!
//! Workload D reads what was inserted last, so it must know which inserts have been acknowledged:
//! every record below [`Insertions::acknowledged`] has, whatever the other threads are doing.

use std::sync::atomic::{AtomicU64, Ordering};

/// A thread that is inserting nothing.
const IDLE: u64 = u64::MAX;

/// Hands out the numbers of new records.
#[derive(Debug)]
pub(super) struct Insertions {
    next: AtomicU64,
    /// For each thread a number no higher than the record it is inserting, or [`IDLE`].
    inserting: Vec<AtomicU64>,
}

impl Insertions {
    /// Numbers from `records` on, for `threads` threads.
    pub(super) fn after(records: u64, threads: usize) -> Self {
        Self {
            next: AtomicU64::new(records),
            inserting: (0..threads).map(|_| AtomicU64::new(IDLE)).collect(),
        }
    }

    /// A number for `thread` to insert.
    pub(super) fn begin(&self, thread: usize) -> u64 {
        // Marked before the number is taken, and no higher than it: otherwise `acknowledged`
        // could, between the two steps, count a record that nobody has written.
        self.inserting[thread].store(self.next.load(Ordering::SeqCst), Ordering::SeqCst);
        let record = self.next.fetch_add(1, Ordering::SeqCst);
        self.inserting[thread].store(record, Ordering::SeqCst);
        record
    }

    /// `thread`'s insert has been acknowledged.
    pub(super) fn end(&self, thread: usize) {
        self.inserting[thread].store(IDLE, Ordering::SeqCst);
    }

    /// Every record with a lower number has been written.
    pub(super) fn acknowledged(&self) -> u64 {
        // The order of the two reads matters: a number taken after `next` was read is above it.
        let next = self.next.load(Ordering::SeqCst);
        let lowest = self.inserting.iter().map(|at| at.load(Ordering::SeqCst)).min();
        lowest.unwrap_or(IDLE).min(next)
    }

    /// Records there are, those being inserted counted in.
    pub(super) fn records(&self) -> u64 {
        self.next.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn nothing_is_readable_before_it_is_written() {
        let insertions = Insertions::after(10, 2);
        let written: Vec<Mutex<bool>> = (0..20_010).map(|i| Mutex::new(i < 10)).collect();
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let (insertions, written) = (&insertions, &written);
                scope.spawn(move || {
                    for _ in 0..10_000 {
                        let record = insertions.begin(thread);
                        *written[record as usize].lock().unwrap() = true;
                        insertions.end(thread);
                        let newest = insertions.acknowledged() - 1;
                        assert!(*written[newest as usize].lock().unwrap());
                    }
                });
            }
        });
        assert_eq!(insertions.acknowledged(), 20_010);
    }
}
