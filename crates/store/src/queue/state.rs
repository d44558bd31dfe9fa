//! What a queue tells about itself.

use super::{Queue, QueueDamage, QueueRecovery, QueueStats};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_memory::Memory;

impl<M: Memory + Clone> Queue<M> {
    /// Elements in the queue, those of operations under way perhaps among them.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let queue = terrace_store::Queue::open(dir.path(), &Default::default(), &budget)?;
    /// assert_eq!(queue.len(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn len(&self) -> u64 {
        self.inner.elements.load(Ordering::Relaxed).max(0) as u64
    }

    /// Whether there are none.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let queue = terrace_store::Queue::open(dir.path(), &Default::default(), &budget)?;
    /// assert!(queue.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How far pushes and pops have come: both numbers only grow while the queue is open, and one of them does
    /// with everything that changes it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let queue = terrace_store::Queue::open(dir.path(), &Default::default(), &budget)?;
    /// let before = queue.positions();
    /// queue.push(b"job 1")?;
    /// assert_ne!(queue.positions(), before);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn positions(&self) -> (u64, u64) {
        (self.inner.ring.head(), self.inner.ring.claimed_through())
    }

    /// Whether both are handles on one queue.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let queue = terrace_store::Queue::open(dir.path(), &Default::default(), &budget)?;
    /// assert!(queue.is_same(&queue.clone()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_same(&self, other: &Queue<M>) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// A word that the queue's user keeps with it; 0 at first.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let queue = terrace_store::Queue::open(dir.path(), &Default::default(), &budget)?;
    /// assert_eq!(queue.note(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn note(&self) -> u64 {
        self.inner.ring.note()
    }

    /// The largest element that is taken, bytes.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let queue = terrace_store::Queue::open(dir.path(), &Default::default(), &budget)?;
    /// assert!(queue.push(&vec![0; 1 + queue.largest_bytes() as usize]).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn largest_bytes(&self) -> u64 {
        self.inner.largest_bytes
    }

    /// How full it is.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let queue = terrace_store::Queue::open(dir.path(), &Default::default(), &budget)?;
    /// assert_eq!(queue.stats().elements, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stats(&self) -> QueueStats {
        let ring = &self.inner.ring;
        QueueStats {
            form: self.inner.form,
            elements: self.len(),
            used_slots: ring.used_slots(),
            slots: ring.options().slots,
            slot_bytes: ring.options().slot_bytes,
            written: self.inner.medium.traffic(),
        }
    }

    /// What opening it found.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let queue = terrace_store::Queue::open(dir.path(), &Default::default(), &budget)?;
    /// assert_eq!(queue.recovery().elements, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn recovery(&self) -> &QueueRecovery {
        &self.inner.recovery
    }

    /// What a salvage went around, with the offsets in the file.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let queue = terrace_store::Queue::open(dir.path(), &Default::default(), &budget)?;
    /// assert!(queue.damage().is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn damage(&self) -> &[QueueDamage] {
        &self.inner.damage
    }

    /// Its file.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let queue = terrace_store::Queue::open(dir.path(), &Default::default(), &budget)?;
    /// assert!(queue.path().starts_with(dir.path()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn path(&self) -> PathBuf {
        self.inner.medium.path().to_path_buf()
    }

    /// Why the queue takes no more, if it does not.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    /// # let queue = terrace_store::Queue::open(dir.path(), &Default::default(), &budget)?;
    /// assert_eq!(queue.stopped(), None);
    /// queue.close()?;
    /// assert!(queue.stopped().is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stopped(&self) -> Option<&str> {
        self.inner.reason().map(String::as_str)
    }
}
