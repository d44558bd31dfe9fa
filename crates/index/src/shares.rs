//! Work that is cut into shares, one a thread.

use std::ops::Range;

/// Fewer pieces than this are not worth a thread.
const LEAST: usize = 256;

/// Has `f` do the pieces from 0 to `count` in shares, each of neighbours, on so many threads, of which the
/// caller's is one. Returns what each share gave, in order.
pub(crate) fn shares<T: Send>(
    count: usize,
    threads: usize,
    f: impl Fn(Range<usize>) -> T + Sync,
) -> Vec<T> {
    let shares = threads.min(count / LEAST).max(1);
    let share = |number: usize| count * number / shares..count * (number + 1) / shares;
    std::thread::scope(|scope| {
        let f = &f;
        let others: Vec<_> =
            (1..shares).map(|number| scope.spawn(move || f(share(number)))).collect();
        let mine = f(share(0));
        let others = others.into_iter().map(|other| other.join().expect("no share panicked"));
        std::iter::once(mine).chain(others).collect()
    })
}
