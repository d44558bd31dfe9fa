//! One model for each protocol, and its control.

use crate::bell::Bell;
use crate::commit_queue::CommitQueue;
use crate::epochs::Epochs;
use crate::front::{Front, Hazards};
use crate::gate::Gate;
use crate::keys::Keys;
use crate::latch::{Latch, Seen};
use crate::moments::{Commit, Moments};
use crate::registry::{Reads, Registry};
use crate::sync::{AtomicU64, LeftOut, Mutex, Ordering, does, explore};
use crate::version_lock::{self, Look};
use crate::weak::Weak;
use loom::cell::UnsafeCell;
use loom::thread;
use std::sync::Arc;
use terrace_memory::Memory;

/// What loom says of a model without what is left out; none if it has nothing to say.
fn objection(left_out: LeftOut, model: fn()) -> Option<String> {
    let explored = std::panic::catch_unwind(|| explore(left_out, model));
    let said = explored.err()?;
    let text = said.downcast_ref::<String>().cloned();
    Some(text.or_else(|| said.downcast_ref::<&str>().map(|s| s.to_string())).unwrap_or_default())
}

/// The model holds, and does not without what is left out.
fn holds_but_not_without(left_out: LeftOut, model: fn()) {
    explore(LeftOut::Nothing, model);
    let said = objection(left_out, model).expect("loom objects to the control");
    assert!(!said.contains("exceeded"), "a program too long for loom proves nothing: {said}");
    println!("without {left_out:?}: {said}");
}

/// Two loops take a turn each; the second closes the gate in its own and has the data for itself.
fn gate() {
    let gate = Arc::new(Gate::new(2));
    let data = Arc::new(UnsafeCell::new(0));
    let other = {
        let (gate, data) = (Arc::clone(&gate), Arc::clone(&data));
        thread::spawn(move || {
            let _turn = gate.enter(0);
            data.with_mut(|_| ());
        })
    };
    let mut turn = gate.enter(1);
    turn.close();
    data.with_mut(|_| ());
    drop(turn);
    other.join().expect("it ends");
}

#[test]
fn a_thread_that_closes_the_gate_is_alone() {
    holds_but_not_without(LeftOut::Fences, gate);
}

/// One thread waits for an element, the other brings it and rings.
fn bell() {
    let bell = Arc::new(Bell::default());
    let element = Arc::new(AtomicU64::new(0));
    let waiter = {
        let (bell, element) = (Arc::clone(&bell), Arc::clone(&element));
        thread::spawn(move || {
            let look = || match element.load(Ordering::Acquire) {
                0 => Ok::<_, ()>(None),
                element => Ok(Some(element)),
            };
            assert_eq!(bell.wait(None, look), Ok(Some(7)));
        })
    };
    element.store(7, Ordering::Release);
    bell.ring();
    waiter.join().expect("it ends");
}

#[test]
fn nobody_sleeps_through_the_bell() {
    holds_but_not_without(LeftOut::Fences, bell);
}

/// A reader follows a link to a node that a writer unlinks, and whose slot the writer uses again when it may.
fn epochs() {
    let epochs = Arc::new(Epochs::new());
    let link = Arc::new(AtomicU64::new(1));
    let node = Arc::new(UnsafeCell::new(0));
    let (session, _) = epochs.join().expect("a session");
    let (other, mut retired) = epochs.join().expect("a session");
    let reader = {
        let (epochs, link, node) = (Arc::clone(&epochs), Arc::clone(&link), Arc::clone(&node));
        thread::spawn(move || {
            epochs.enter(session);
            if link.load(Ordering::Acquire) == 1 {
                node.with(|_| ());
            }
            epochs.leave(session);
        })
    };
    epochs.enter(other);
    link.store(2, Ordering::Release);
    epochs.retire(&mut retired, 1, |_| ());
    epochs.leave(other);
    epochs.advance(&mut retired, |_| node.with_mut(|_| ()));
    reader.join().expect("it ends");
}

#[test]
fn a_slot_is_used_again_when_nobody_holds_its_node() {
    holds_but_not_without(LeftOut::Fences, epochs);
}

/// Two threads append and commit; each finds on the medium what it appended.
fn commit_queue() {
    let queue = Arc::new(CommitQueue::default());
    let appended = Arc::new(Mutex::new(0));
    let medium = Arc::new(UnsafeCell::new(0));
    let commit = {
        let (queue, appended, medium) =
            (Arc::clone(&queue), Arc::clone(&appended), Arc::clone(&medium));
        move || {
            let position = {
                let mut appended = appended.lock();
                *appended += 1;
                *appended
            };
            while queue.durable() < position {
                let Some(lead) = queue.lead_or_wait() else { continue };
                if queue.durable() < position {
                    let all = *appended.lock();
                    let write = || {
                        medium.with_mut(|medium| {
                            // SAFETY: the leader's alone, which loom checks.
                            unsafe { *medium = all };
                        });
                    };
                    if does() {
                        write();
                        lead.reached(all);
                    } else {
                        // The control reports before it has written.
                        lead.reached(all);
                        drop(lead);
                        write();
                    }
                }
            }
            // Nobody leads any more who has more to write than what is there, or this waits for them.
            let _lead = queue.lead();
            medium.with(|medium| {
                // SAFETY: only leaders write it.
                assert!(unsafe { *medium } >= position);
            });
        }
    };
    let other = thread::spawn(commit.clone());
    commit();
    other.join().expect("it ends");
}

/// One thread commits, the other learns from the commit queue alone that it is done, as a reader under `sync` does.
fn told() {
    let queue = Arc::new(CommitQueue::default());
    let medium = Arc::new(UnsafeCell::new(0));
    let leader = {
        let (queue, medium) = (Arc::clone(&queue), Arc::clone(&medium));
        thread::spawn(move || {
            let lead = queue.lead();
            // SAFETY: the leader's alone, which loom checks.
            medium.with_mut(|medium| unsafe { *medium = 1 });
            lead.reached(1);
        })
    };
    if queue.durable() >= 1 {
        // SAFETY: nobody writes it any more, which loom checks.
        medium.with(|medium| assert_eq!(unsafe { *medium }, 1));
    }
    leader.join().expect("it ends");
}

#[test]
fn a_commit_queue_reports_only_durable_bytes() {
    holds_but_not_without(LeftOut::Step, commit_queue);
    holds_but_not_without(LeftOut::Orders, told);
}

/// Two threads add one each to the word at 8: both are counted.
fn both_add(add: fn(&Weak)) {
    let memory = Weak::new(2);
    let other = {
        let memory = memory.clone();
        thread::spawn(move || add(&memory))
    };
    add(&memory);
    other.join().expect("it ends");
    // SAFETY: nobody else is there any more.
    assert_eq!(unsafe { memory.load(8) }, 2);
}

struct NoKeys;

impl Keys for NoKeys {}

/// A reader copies two words of a node while a writer changes both: what it believes is of one state.
fn latch() {
    let memory = Weak::new(4);
    let writer = {
        let memory = memory.clone();
        thread::spawn(move || {
            let latch = Latch::wait(&memory, 0, &NoKeys);
            latch.change();
            // SAFETY: words of the latched node.
            unsafe { memory.write_changing(8, &[1; 16]) };
        })
    };
    let seen = Seen::look(&memory, 0, &NoKeys);
    let mut copy = [0u64; 2];
    // SAFETY: words of the node, which may be changing.
    unsafe { memory.copy_changing(8, copy.as_mut_ptr().cast(), 16) };
    if seen.holds(&memory) {
        assert_eq!(copy[0], copy[1], "two states in one copy");
    }
    writer.join().expect("it ends");
}

/// Two writers add to a word under the latch, one after the other.
fn latched() {
    both_add(|memory| {
        let latch = Latch::wait(memory, 0, &NoKeys);
        latch.change();
        // SAFETY: a word of the latched node.
        unsafe { memory.store(8, memory.load(8) + 1) };
    });
}

#[test]
fn a_copy_that_a_version_vouches_for_is_of_one_state() {
    holds_but_not_without(LeftOut::Orders, latch);
}

#[test]
fn a_latch_has_one_holder() {
    holds_but_not_without(LeftOut::Orders, latched);
}

/// The number of an opening, and one version more.
const OPENING: u8 = 1;
const VERSION: u64 = 1 << 32;

/// A reader copies an item of a bucket that a writer overwrites: what it believes is of one write.
fn bucket() {
    let memory = Weak::new(4);
    let writer = {
        let memory = memory.clone();
        // SAFETY: a header and an item of the locked bucket, in the memory.
        thread::spawn(move || unsafe {
            version_lock::lock(&memory, 0, OPENING, || ());
            memory.write_changing(8, &[1; 16]);
            if does() {
                version_lock::change(&memory, 0, |header| header + VERSION);
            }
            version_lock::unlock(&memory, 0);
        })
    };
    // SAFETY: a header in the memory.
    let look = unsafe { Look::at(&memory, 0) };
    let mut copy = [0u64; 2];
    // SAFETY: words of an item, which may be changing.
    unsafe { memory.copy_changing(8, copy.as_mut_ptr().cast(), 16) };
    if look.holds(&memory, OPENING) {
        assert_eq!(copy[0], copy[1], "two writes in one copy");
    }
    writer.join().expect("it ends");
}

/// An entry moves from the second place of a bucket to the first; a reader looks at one after the other, and believes
/// that it missed the key only if nothing was moved meanwhile.
fn moved() {
    let memory = Weak::new(4);
    // SAFETY: the second place, in the memory.
    unsafe { memory.store(16, 7) };
    let writer = {
        let memory = memory.clone();
        // SAFETY: a header and two places of the locked bucket, in the memory.
        thread::spawn(move || unsafe {
            version_lock::lock(&memory, 0, OPENING, || ());
            memory.store(8, 7);
            if does() {
                version_lock::change(&memory, 0, |header| header + VERSION);
            }
            memory.store(16, 0);
            version_lock::unlock(&memory, 0);
        })
    };
    // SAFETY: a header and two places in the memory.
    let (look, found) = unsafe {
        let look = Look::at(&memory, 0);
        (look, [memory.load(8), memory.load(16)])
    };
    assert!(found != [0, 0] || !look.is_unmoved(&memory), "a key was missed");
    writer.join().expect("it ends");
}

#[test]
fn a_key_that_moves_is_not_missed() {
    holds_but_not_without(LeftOut::Orders, moved);
    holds_but_not_without(LeftOut::Step, moved);
}

/// Two writers add to a word of a bucket that each locks.
fn locked() {
    both_add(|memory| {
        // SAFETY: a header and a word of the locked bucket, in the memory.
        unsafe {
            version_lock::lock(memory, 0, OPENING, || ());
            memory.store(8, memory.load(8) + 1);
            version_lock::unlock(memory, 0);
        }
    });
}

#[test]
fn a_copy_that_a_bucket_vouches_for_is_of_one_write() {
    holds_but_not_without(LeftOut::Orders, bucket);
    holds_but_not_without(LeftOut::Step, bucket);
}

#[test]
fn a_bucket_has_one_writer() {
    holds_but_not_without(LeftOut::Orders, locked);
}

/// A key of a map: the lock of its bucket, and its value, which readers load without it.
struct Key {
    registry: Registry,
    bucket: Mutex<()>,
    value: AtomicU64,
}

impl Key {
    fn new() -> Arc<Key> {
        Arc::new(Key {
            registry: Registry::default(),
            bucket: Mutex::new(()),
            value: AtomicU64::new(0),
        })
    }

    /// Writes the key as a map does; whether no batch has it reserved.
    fn write(&self, value: u64, is_mine: bool) -> bool {
        let _bucket = self.bucket.lock();
        let may_write =
            !self.registry.has_watchers() || self.registry.may_write(0, b"key", is_mine);
        if may_write {
            self.value.store(value, Ordering::Release);
        }
        may_write
    }

    fn read(&self, reads: &mut Reads) -> u64 {
        self.registry.read(reads, 0, b"key", || {
            if does() {
                drop(self.bucket.lock());
            }
        });
        self.value.load(Ordering::Acquire)
    }
}

/// A key of which somebody keeps what it was.
#[derive(Default)]
struct Versioned {
    value: AtomicU64,
    /// The write that replaced 0.
    written: Mutex<Option<Arc<Commit>>>,
}

/// One thread writes two keys as a batch, the other opens a snapshot and reads them, the first one twice.
fn snapshot() {
    let (moments, keys) = (Arc::<Moments>::default(), Arc::<[Versioned; 2]>::default());
    let writer = {
        let (moments, keys) = (Arc::clone(&moments), Arc::clone(&keys));
        thread::spawn(move || {
            let commit = Commit::of_batch();
            if !does() {
                commit.decide(&moments);
            }
            keys.iter().for_each(|key| *key.written.lock() = Some(Arc::clone(&commit)));
            keys.iter().for_each(|key| key.value.store(1, Ordering::Release));
            commit.decide(&moments);
        })
    };
    let moment = moments.open();
    let [first, second] = &*keys;
    let told = [first, second, first].map(|key| {
        let value = key.value.load(Ordering::Acquire);
        let written = key.written.lock().clone();
        if written.is_some_and(|commit| commit.is_after(moment.at())) { 0 } else { value }
    });
    assert!(told == [0; 3] || told == [1; 3], "{told:?}");
    drop(moment);
    writer.join().expect("it ends");
}

#[test]
fn a_snapshot_has_all_of_a_batch_or_nothing() {
    holds_but_not_without(LeftOut::Fences, snapshot);
    assert!(
        objection(LeftOut::Step, snapshot).is_some(),
        "its moment is decided when it is written"
    );
}

/// One thread reads a key, twice, and the other writes it: who finds two values is told that it was written.
fn watched() {
    let key = Key::new();
    let writer = {
        let key = Arc::clone(&key);
        thread::spawn(move || assert!(key.write(1, false)))
    };
    let mut reads = Reads::default();
    let first = key.read(&mut reads);
    let second = key.value.load(Ordering::Acquire);
    assert!(first == second || !key.registry.holds(&reads), "a write was missed");
    key.registry.forget(&mut reads);
    writer.join().expect("it ends");
}

#[test]
fn no_write_of_a_watched_key_is_missed() {
    holds_but_not_without(LeftOut::Step, watched);
    holds_but_not_without(LeftOut::Orders, watched);
}

/// Two batches add one to what they read of a key: each does, or is told that the other came first.
fn reserved() {
    let key = Key::new();
    let add = |key: &Key| {
        let mut reads = Reads::default();
        let found = key.read(&mut reads);
        let written = {
            let nothing_else = std::iter::empty::<(u64, &[u8])>();
            // The control asks whether the key was written, and does not reserve it.
            let reservation = does().then(|| key.registry.reserve(&reads, nothing_else));
            let goes_on = match &reservation {
                Some(reservation) => reservation.is_some(),
                None => key.registry.holds(&reads),
            };
            goes_on && key.write(found + 1, true)
        };
        key.registry.forget(&mut reads);
        u64::from(written)
    };
    let other = {
        let key = Arc::clone(&key);
        thread::spawn(move || add(&key))
    };
    let written = add(&key) + other.join().expect("it ends");
    assert_eq!(key.value.load(Ordering::Acquire), written, "an addition was lost");
}

#[test]
fn of_two_batches_that_read_a_key_neither_overwrites_the_other() {
    holds_but_not_without(LeftOut::Step, reserved);
}

/// One thread reads a key, twice, while the other clears the map: who finds two values is told that it was cleared.
fn cleared() {
    let key = Key::new();
    key.value.store(1, Ordering::Relaxed);
    let clearer = {
        let key = Arc::clone(&key);
        thread::spawn(move || {
            let clearing = does().then(|| key.registry.clear());
            key.value.store(0, Ordering::Relaxed);
            drop(clearing);
        })
    };
    let mut reads = Reads::default();
    key.registry.read(&mut reads, 0, b"key", || ());
    let (first, second) = (key.value.load(Ordering::Relaxed), key.value.load(Ordering::Relaxed));
    assert!(first == second || !key.registry.holds(&reads), "a clear was missed");
    key.registry.forget(&mut reads);
    clearer.join().expect("it ends");
}

#[test]
fn no_clear_of_the_map_is_missed() {
    holds_but_not_without(LeftOut::Fences, cleared);
    holds_but_not_without(LeftOut::Orders, cleared);
    holds_but_not_without(LeftOut::Step, cleared);
}

/// A reader finds an entry of the cache and reads it, while another thread takes it out and frees it.
fn front() {
    const HASH: u64 = 7;
    let (front, hazards) = (Arc::new(Front::new(1)), Arc::new(Hazards::new()));
    let entry = Arc::new(UnsafeCell::new(0));
    let address = Arc::as_ptr(&entry).cast_mut();
    front.install(HASH, address);
    let reader = {
        let (front, hazards, entry) =
            (Arc::clone(&front), Arc::clone(&hazards), Arc::clone(&entry));
        let line = hazards.enter();
        thread::spawn(move || {
            if front.protect(HASH, &line.hazards[0]).is_some() {
                entry.with(|_| ());
                line.hazards[0].store(std::ptr::null_mut(), Ordering::Release);
            }
        })
    };
    front.remove(HASH, address);
    if !hazards.snapshot().contains(&address) {
        // What frees it would do.
        entry.with_mut(|_| ());
    }
    reader.join().expect("it ends");
}

#[test]
fn an_entry_of_the_cache_is_not_freed_under_its_reader() {
    holds_but_not_without(LeftOut::Fences, front);
}
