//! loom's locks and atomics under the names and signatures that the protocols use, and a way to weaken them.

use std::cell::Cell;
use std::time::Instant;

pub use loom::sync::atomic::Ordering;

/// What is left out of a protocol, for its control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOut {
    Nothing,
    /// Fences do nothing.
    Fences,
    /// Every access is relaxed.
    Orders,
    /// A step that a model takes of its own, unless [`does`] says that it is left out.
    Step,
}

thread_local! {
    // loom runs the threads of a model on the one that asked for it.
    static LEFT_OUT: Cell<LeftOut> = const { Cell::new(LeftOut::Nothing) };
}

/// Explores `model` without what is left out.
pub fn explore(left_out: LeftOut, model: impl Fn() + Sync + Send + 'static) {
    LEFT_OUT.set(left_out);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.max_branches = 10_000;
    builder.check(model);
}

/// Whether a model takes a step that its control leaves out.
pub fn does() -> bool {
    LEFT_OUT.get() != LeftOut::Step
}

fn order(wanted: Ordering) -> Ordering {
    if LEFT_OUT.get() == LeftOut::Orders { Ordering::Relaxed } else { wanted }
}

pub fn fence(order: Ordering) {
    if LEFT_OUT.get() != LeftOut::Fences {
        loom::sync::atomic::fence(order);
    }
}

macro_rules! atomic {
    ($name:ident, $value:ty) => {
        #[derive(Debug, Default)]
        pub struct $name(loom::sync::atomic::$name);

        #[allow(dead_code)]
        impl $name {
            pub fn new(value: $value) -> Self {
                $name(loom::sync::atomic::$name::new(value))
            }
            pub fn load(&self, o: Ordering) -> $value {
                self.0.load(order(o))
            }
            pub fn store(&self, value: $value, o: Ordering) {
                self.0.store(value, order(o));
            }
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                o: Ordering,
                failed: Ordering,
            ) -> Result<$value, $value> {
                self.0.compare_exchange(current, new, order(o), order(failed))
            }
        }
    };
    ($name:ident, $value:ty, counts) => {
        atomic!($name, $value);

        #[allow(dead_code)]
        impl $name {
            pub fn fetch_add(&self, value: $value, o: Ordering) -> $value {
                self.0.fetch_add(value, order(o))
            }
            pub fn fetch_sub(&self, value: $value, o: Ordering) -> $value {
                self.0.fetch_sub(value, order(o))
            }
            pub fn fetch_max(&self, value: $value, o: Ordering) -> $value {
                self.0.fetch_max(value, order(o))
            }
            pub fn fetch_and(&self, value: $value, o: Ordering) -> $value {
                self.0.fetch_and(value, order(o))
            }
            pub fn fetch_update(
                &self,
                o: Ordering,
                failed: Ordering,
                f: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                self.0.fetch_update(order(o), order(failed), f)
            }
        }
    };
}

atomic!(AtomicBool, bool);
atomic!(AtomicU64, u64, counts);
atomic!(AtomicUsize, usize, counts);

#[derive(Debug)]
pub struct AtomicPtr<T>(loom::sync::atomic::AtomicPtr<T>);

impl<T> AtomicPtr<T> {
    pub fn new(value: *mut T) -> Self {
        AtomicPtr(loom::sync::atomic::AtomicPtr::new(value))
    }
    pub fn load(&self, o: Ordering) -> *mut T {
        self.0.load(order(o))
    }
    pub fn store(&self, value: *mut T, o: Ordering) {
        self.0.store(value, order(o));
    }
}

/// loom knows no order of single accesses that all threads agree on, but of fences: the barrier that is an exchange
/// where it serves is a store and a fence here.
pub fn publish<T>(place: &AtomicPtr<T>, value: *mut T) {
    place.store(value, Ordering::Release);
    fence(Ordering::SeqCst);
}

/// Lines of the processor's cache are no matter here.
#[derive(Debug)]
pub struct CachePadded<T>(T);

impl<T> CachePadded<T> {
    pub fn new(value: T) -> Self {
        CachePadded(value)
    }
}

impl<T> std::ops::Deref for CachePadded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// As parking_lot's.
#[derive(Debug, Default)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Mutex(loom::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().expect("no thread of a model panics and goes on")))
    }

    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        Some(MutexGuard(Some(self.0.try_lock().ok()?)))
    }
}

/// There but for the moment in which it is waited with.
pub struct MutexGuard<'a, T>(Option<loom::sync::MutexGuard<'a, T>>);

impl<T> std::ops::Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("there")
    }
}

impl<T> std::ops::DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("there")
    }
}

/// As parking_lot's.
#[derive(Debug, Default)]
pub struct Condvar(loom::sync::Condvar);

impl Condvar {
    /// Models know no time: who waits for a while waits.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: std::time::Duration) {
        self.wait(guard);
    }

    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.0.take().expect("there");
        guard.0 = Some(self.0.wait(held).expect("no thread of a model panics and goes on"));
    }

    /// Models wait without limit.
    pub fn wait_until<T>(&self, _: &mut MutexGuard<'_, T>, _: Instant) -> TimedOut {
        unreachable!("no deadline in a model")
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

pub struct TimedOut;

impl TimedOut {
    pub fn timed_out(&self) -> bool {
        true
    }
}

/// Waiting for another thread of the model.
#[derive(Default)]
pub struct Patience;

impl Patience {
    pub fn wait(&self) {
        loom::thread::yield_now();
    }
}
