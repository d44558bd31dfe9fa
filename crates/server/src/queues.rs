//! The queues that clients reach by list commands, and who waits for what is pushed to them.

use parking_lot::{Mutex, RwLock};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use terrace::queue::QueueTicket;
use terrace::{Database, Error, Popped, Queue};

/// Counts of queues made and removed: a name has one of these, and shares it with few others.
const LIVES: usize = 4096;

/// The queues of the database, opened at the start or when first pushed to.
pub(crate) struct Queues {
    database: Arc<Database>,
    /// Never held while somebody waits for the disk.
    open: RwLock<HashMap<Vec<u8>, Queue>>,
    /// Held by whoever makes or removes a queue, disk and all; nobody else waits for that.
    changing: Mutex<()>,
    /// Those that the configuration declares: clients empty them, and they stay.
    declared: OnceLock<HashSet<Vec<u8>>>,
    /// There is one: who asks about keys need not ask about queues otherwise.
    any: AtomicBool,
    /// How many clients may make.
    most: usize,
    /// Clients that wait for an element.
    pub(crate) waiting: AtomicUsize,
    /// How often a queue of such a name was made or removed: its positions begin again with each life.
    lives: Box<[AtomicU64]>,
    names: RandomState,
}

impl Queues {
    pub(crate) fn new(database: Arc<Database>, most: usize) -> Queues {
        Queues {
            database,
            open: RwLock::default(),
            changing: Mutex::default(),
            declared: OnceLock::new(),
            any: AtomicBool::new(false),
            most,
            waiting: AtomicUsize::new(0),
            lives: (0..LIVES).map(|_| AtomicU64::new(0)).collect(),
            names: RandomState::new(),
        }
    }

    fn life_of(&self, name: &[u8]) -> &AtomicU64 {
        &self.lives[self.names.hash_one(name) as usize % LIVES]
    }

    /// A number that differs before and after a queue of this name was made or removed. That of others may make it
    /// differ too.
    pub(crate) fn life(&self, name: &[u8]) -> u64 {
        self.life_of(name).load(SeqCst)
    }

    /// Opens those that exist; what is open already was declared.
    pub(crate) fn open_all(&self) -> terrace::Result<()> {
        let declared = self.database.open_queues().into_iter();
        self.declared.get_or_init(|| declared.map(|(name, _)| name.into_bytes()).collect());
        for name in self.database.queue_names()? {
            let queue = self.database.queue(&name)?;
            self.open.write().insert(name.into_bytes(), queue);
            self.any.store(true, SeqCst);
        }
        Ok(())
    }

    fn is_declared(&self, name: &[u8]) -> bool {
        self.declared.get().is_some_and(|declared| declared.contains(name))
    }

    /// The queue of this name, if there is one.
    pub(crate) fn get(&self, name: &[u8]) -> Option<Queue> {
        self.any.load(SeqCst).then(|| self.open.read().get(name).cloned())?
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<(Vec<u8>, Queue)> {
        self.open.read().iter().map(|(name, queue)| (name.clone(), queue.clone())).collect()
    }

    /// Whether there is one, or was.
    pub(crate) fn are_used(&self) -> bool {
        self.any.load(SeqCst)
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
        let there = || self.get(name).filter(|queue| !queue.was_given_up());
        if let Some(queue) = there() {
            return Ok(queue);
        }
        // One that is being removed is gone then.
        let _changing = self.changing.lock();
        if let Some(queue) = there() {
            return Ok(queue);
        }
        let refused =
            |_| "ERR a queue's name is 1 to 64 letters, digits, '_', '-', ':' or '.'".to_string();
        let text = std::str::from_utf8(name).map_err(refused)?;
        while self.made() >= self.most {
            if !self.give_up_some()? {
                return Err(format!(
                    "ERR no queue '{text}', and clients may make no more: declare [queues.{text}] in terrace.toml, \
                     or raise limits.queues"
                ));
            }
        }
        let queue = loop {
            match self.database.queue(text) {
                // What is empty takes room all the same, on a byte-addressable medium all that it may ever need.
                Err(Error::OutOfMemory { .. } | Error::DiskFull { .. })
                    if self.give_up_some()? => {}
                made => break made.map_err(|error| format!("ERR {error}"))?,
            }
        };
        self.life_of(name).fetch_add(1, SeqCst);
        self.open.write().insert(name.to_vec(), queue.clone());
        self.any.store(true, SeqCst);
        Ok(queue)
    }

    /// How many there are that clients made, before this start too.
    fn made(&self) -> usize {
        self.open.read().keys().filter(|name| !self.is_declared(name)).count()
    }

    /// Removes the queue of this name if it is empty and clients made it: its memory and disk are free, and clients
    /// may make another.
    pub(crate) fn give_up(&self, name: &[u8]) -> terrace::Result<()> {
        let _changing = self.changing.lock();
        self.give_up_alone(name).map(drop)
    }

    /// The same for whoever holds `changing`; whether it was removed.
    fn give_up_alone(&self, name: &[u8]) -> terrace::Result<bool> {
        let text = std::str::from_utf8(name).ok().filter(|_| !self.is_declared(name));
        let Some((text, queue)) = text.zip(self.get(name)) else { return Ok(false) };
        let given_up = self.database.give_up_queue(text);
        // Also where its folder could not be removed.
        if queue.was_given_up() {
            self.open.write().remove(name);
            self.life_of(name).fetch_add(1, SeqCst);
        }
        given_up
    }

    /// Removes a queue that clients made and emptied, so that they may make another; whether there was one.
    fn give_up_some(&self) -> Result<bool, String> {
        let empty = self.all().into_iter().filter(|(_, queue)| queue.is_empty());
        for (name, _) in empty {
            match self.give_up_alone(&name) {
                Ok(false) => {}
                given_up => return given_up.map_err(|error| format!("ERR {error}")),
            }
        }
        Ok(false)
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
