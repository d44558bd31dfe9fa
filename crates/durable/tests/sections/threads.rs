//! Sections of several threads: one at a time, none lost.

use super::list;
use std::ptr::NonNull;
use terrace_durable::sections::{EngineKind, Error, Options, Pool, Root};
use terrace_memory::{Domain, Native};

const SUM: Root<u64> = Root::new(6);

#[test]
fn sections_of_several_threads_are_isolated_and_none_is_lost() {
    for engine in EngineKind::ALL {
        let mut words = vec![0u64; 1 << 17];
        let base = NonNull::new(words.as_mut_ptr().cast()).expect("not null");
        // SAFETY: the words outlive the pool, which alone uses them until it is dropped.
        let memory = unsafe { Native::new(base, 8 * words.len() as u64, Domain::Adr) };
        let pool = Pool::create(memory, &Options::new(engine)).expect("a pool");
        pool.section(|tx| {
            let sum = tx.create(&0u64)?;
            tx.set_root(SUM, sum)
        })
        .expect("a sum");
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let pool = &pool;
                scope.spawn(move || {
                    for i in 0..250 {
                        let result: Result<(), Error> = pool.section(|tx| {
                            let sum = tx.root(SUM)?;
                            let old = tx.get(sum)?;
                            tx.set(sum, old + 1)?;
                            list::push(tx, 1000 * thread + i)?;
                            if i % 10 == 9 { Err(Error::ReadOnly) } else { Ok(()) }
                        });
                        assert_eq!(result.is_err(), i % 10 == 9);
                        if i % 50 == 0 {
                            pool.maintain().expect("maintained");
                        }
                    }
                });
            }
        });
        let pool = Pool::open(pool.close(), &Options::new(engine)).expect("opens");
        pool.section(|tx| {
            assert_eq!(tx.get(tx.root(SUM)?)?, 4 * 225, "{engine}");
            let (values, mut objects) = list::walk(tx)?;
            assert_eq!(values.len(), 4 * 225);
            let distinct: std::collections::BTreeSet<u64> = values.into_iter().collect();
            assert_eq!(distinct.len(), 4 * 225);
            objects.push(tx.root(SUM)?.at());
            Ok::<_, Error>(objects)
        })
        .map(|objects| pool.check_reachable(objects).expect("metadata"))
        .expect("contents");
    }
}
