//! Work that is cut into shares, one a thread.

use parking_lot::Mutex;
use std::ops::Range;

/// Fewer pieces than this are not worth a thread.
pub(crate) const LEAST: usize = 256;

/// Has a function do every number below a count, on any number of threads, and returns when all is done.
pub type Pass<'p> = &'p dyn Fn(u32, &(dyn Fn(u32) + Sync));

/// A thread for each number, of which the caller's is one.
pub(crate) fn spread(count: u32, does: &(dyn Fn(u32) + Sync)) {
    std::thread::scope(|scope| {
        (1..count).for_each(|number| drop(scope.spawn(move || does(number))));
        does(0);
    });
}

/// Has `f` do the pieces from 0 to `count` in one pass of shares, each of neighbours, at most `threads` of them.
/// Returns what each share gave, in order.
pub(crate) fn shares<T: Send>(
    count: usize,
    threads: usize,
    pass: Pass<'_>,
    f: impl Fn(Range<usize>) -> T + Sync,
) -> Vec<T> {
    let shares = threads.min(count / LEAST).max(1);
    let share = |number: usize| count * number / shares..count * (number + 1) / shares;
    if shares == 1 {
        return vec![f(share(0))];
    }
    let done: Vec<Mutex<Option<T>>> = (0..shares).map(|_| Mutex::default()).collect();
    pass(shares as u32, &|number| {
        let number = number as usize;
        let done_now = f(share(number));
        *done[number].lock() = Some(done_now);
    });
    done.into_iter().map(|done| done.into_inner().expect("a pass does every number")).collect()
}
