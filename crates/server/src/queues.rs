//! The queues that clients reach by list commands, and who waits for what is pushed to them.

use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use terrace::queue::QueueTicket;
use terrace::{Database, Popped, Queue};

/// The queues of the database, opened at the start or when first pushed to.
pub(crate) struct Queues {
    database: Arc<Database>,
    open: RwLock<HashMap<Vec<u8>, Queue>>,
    /// There is one: who asks about keys need not ask about queues otherwise.
    any: AtomicBool,
    /// How many more clients may make.
    left: AtomicUsize,
    /// Clients that wait for an element.
    pub(crate) waiting: AtomicUsize,
}

impl Queues {
    /// Opens those that exist.
    pub(crate) fn new(database: Arc<Database>, most: usize) -> terrace::Result<Queues> {
        let mut open = HashMap::new();
        for name in database.queue_names()? {
            let queue = database.queue(&name)?;
            open.insert(name.into_bytes(), queue);
        }
        let (left, any) = (AtomicUsize::new(most), AtomicBool::new(!open.is_empty()));
        let waiting = AtomicUsize::new(0);
        Ok(Queues { database, open: RwLock::new(open), any, left, waiting })
    }

    /// The queue of this name, if there is one.
    pub(crate) fn get(&self, name: &[u8]) -> Option<Queue> {
        self.any.load(SeqCst).then(|| self.open.read().get(name).cloned())?
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Queue> {
        self.open.read().values().cloned().collect()
    }

    /// The names of those that have elements, in order.
    pub(crate) fn names(&self) -> Vec<Vec<u8>> {
        let open = self.open.read();
        let filled = open.iter().filter(|(_, queue)| !queue.is_empty());
        let mut names: Vec<Vec<u8>> = filled.map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        names
    }

    /// The queue of this name, made if there is none.
    pub(crate) fn get_or_make(&self, name: &[u8]) -> Result<Queue, String> {
        if let Some(queue) = self.get(name) {
            return Ok(queue);
        }
        let mut open = self.open.write();
        if let Some(queue) = open.get(name) {
            return Ok(queue.clone());
        }
        let refused =
            |_| "ERR a queue's name is 1 to 64 letters, digits, '_', '-', ':' or '.'".to_string();
        let text = std::str::from_utf8(name).map_err(refused)?;
        if self.left.load(SeqCst) == 0 {
            return Err(format!(
                "ERR no queue '{text}', and clients may make no more: declare [queues.{text}] in terrace.toml, \
                 or raise limits.queues"
            ));
        }
        let queue = self.database.queue(text).map_err(|error| format!("ERR {error}"))?;
        self.left.fetch_sub(1, SeqCst);
        open.insert(name.to_vec(), queue.clone());
        self.any.store(true, SeqCst);
        Ok(queue)
    }
}

/// What a loop has done to queues in this turn, and a buffer for what it pops.
#[derive(Default)]
pub(crate) struct QueueTurn {
    used: Vec<(Queue, QueueTicket)>,
    pub(crate) popped: Popped,
}

impl QueueTurn {
    /// What was done has to be durable before anyone is told.
    pub(crate) fn note(&mut self, queue: Queue, ticket: QueueTicket) {
        match self.used.iter_mut().find(|(used, _)| used.is_same(&queue)) {
            Some((_, before)) => *before = before.and(ticket),
            None => self.used.push((queue, ticket)),
        }
    }

    /// Commits what this turn has done; the first error.
    pub(crate) fn commit(&mut self) -> terrace::Result<()> {
        let commits = self.used.drain(..).map(|(queue, ticket)| queue.commit(ticket));
        commits.fold(Ok(()), terrace::Result::and)
    }
}
