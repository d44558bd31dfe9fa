//! What sections promise without any crash.

use super::list;
use super::memory::Words;
use std::panic::{AssertUnwindSafe, catch_unwind};
use terrace_durable::sections::{EngineKind, Error, Offset, Options, Pool, Result, Root};
use terrace_machine::Counted;
use terrace_memory::{Domain, Memory};

const COUNT: Root<u64> = Root::new(5);
const BYTES: usize = 160 << 10;

fn options(engine: EngineKind) -> Options {
    Options::new(engine).pages(4, 2).log_bytes(8 << 10).journal_bytes(1 << 10)
}

fn pool(engine: EngineKind) -> Pool<Words> {
    pool_on(Words::new(BYTES, Domain::Adr), engine)
}

fn pool_on<M: Memory>(memory: M, engine: EngineKind) -> Pool<M> {
    let pool = Pool::create(memory, &options(engine)).expect("a pool");
    pool.section(|tx| {
        let count = tx.create(&1u64)?;
        tx.set_root(COUNT, count)
    })
    .expect("a root");
    pool
}

fn count<M: Memory>(pool: &Pool<M>) -> u64 {
    pool.section(|tx| tx.get(tx.root(COUNT)?)).expect("the count")
}

fn set(pool: &Pool<Words>, value: u64) -> Result<()> {
    pool.section(|tx| {
        let at = tx.root(COUNT)?;
        tx.set(at, value)
    })
}

/// The embarrassing one: a panic half-way must not leave half.
#[test]
fn a_panic_inside_takes_everything_back() {
    for engine in EngineKind::ALL {
        let pool = pool(engine);
        let before = pool.objects().expect("metadata");
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            pool.section(|tx| {
                let at = tx.root(COUNT)?;
                tx.set(at, 2)?;
                tx.allocate(100)?;
                tx.free(at.at())?;
                if tx.get(at)? == 2 {
                    panic!("planned");
                }
                Ok::<_, Error>(())
            })
        }));
        assert!(panicked.is_err());
        assert_eq!((count(&pool), pool.objects().expect("metadata")), (1, before), "{engine}");
        set(&pool, 3).expect("life goes on");
        let pool = Pool::open(pool.close(), &options(engine)).expect("open");
        assert_eq!(count(&pool), 3, "{engine}");
    }
}

#[test]
fn an_inner_error_takes_the_outer_section_back_even_if_it_is_swallowed() {
    for engine in EngineKind::ALL {
        let pool = pool(engine);
        let result: Result<()> = pool.section(|tx| {
            let at = tx.root(COUNT)?;
            tx.set(at, 2)?;
            let inner: Result<()> = tx.section(|tx| {
                tx.set(at, 3)?;
                Err(Error::NotAllocated { at: 0 })
            });
            assert!(inner.is_err());
            Ok(())
        });
        assert_eq!(result, Err(Error::InnerFailed), "{engine}");
        assert_eq!(count(&pool), 1);
        let swallowed: Result<()> = pool.section(|tx| {
            let at = tx.root(COUNT)?;
            tx.set(at, 4)?;
            let _panic = catch_unwind(AssertUnwindSafe(|| {
                let _inner: Result<()> = pool.section(|_| panic!("planned"));
            }));
            Ok(())
        });
        assert_eq!((swallowed, count(&pool)), (Err(Error::InnerFailed), 1), "{engine}");
    }
}

#[test]
fn an_inner_section_is_part_of_the_outer_one() {
    for engine in EngineKind::ALL {
        let pool = pool(engine);
        pool.section(|_| {
            set(&pool, 2)?;
            assert_eq!(count(&pool), 2, "sees what it wrote");
            assert_eq!(pool.maintain().err(), Some(Error::InsideSection { what: "maintain" }));
            set(&pool, 5)
        })
        .expect("both");
        assert_eq!(count(&pool), 5);
        let outer: Result<()> = pool.section(|_| {
            set(&pool, 6)?;
            Err(Error::ReadOnly)
        });
        assert_eq!((outer, count(&pool)), (Err(Error::ReadOnly), 5), "{engine}");
    }
}

#[test]
fn a_section_larger_than_the_log_is_an_error_and_changes_nothing() {
    for engine in EngineKind::ALL {
        let pool = pool(engine);
        let before = pool.objects().expect("metadata");
        let swallow: Result<()> = pool.section(|tx| {
            let at = tx.root(COUNT)?;
            tx.set(at, 2)?;
            for _ in 0..14 {
                let at = tx.allocate(4000)?;
                // Swallowed on purpose: the section is taken back all the same.
                if tx.write(at, &[7; 4000]).is_err() {
                    break;
                }
            }
            Ok(())
        });
        let Err(Error::SectionTooLarge { engine: of, needs_bytes, has_bytes }) = swallow else {
            panic!("{engine}: {swallow:?}");
        };
        assert_eq!((of, has_bytes), (engine, 8 << 10));
        assert!(needs_bytes > has_bytes);
        assert_eq!((count(&pool), pool.objects().expect("metadata")), (1, before), "{engine}");
        set(&pool, 9).expect("life goes on");
        assert_eq!(count(&pool), 9);
    }
}

#[test]
fn a_full_heap_is_an_error_that_a_section_may_live_with() {
    for engine in EngineKind::ALL {
        let pool = pool(engine);
        let kept = pool.section(|tx| {
            let mut kept = Vec::new();
            loop {
                match tx.allocate(9000) {
                    Ok(at) => kept.push(at),
                    Err(Error::NoRoom { asked_bytes: 9000, .. }) => return Ok::<_, Error>(kept),
                    Err(other) => return Err(other),
                }
            }
        });
        let kept = kept.expect("kept");
        assert!(!kept.is_empty());
        let census = pool.check().expect("metadata");
        assert_eq!(census.objects, 1 + kept.len() as u64, "{engine}");
        pool.section(|tx| kept.iter().try_for_each(|at| tx.free(*at))).expect("freed");
        assert_eq!(pool.check().expect("metadata").objects, 1);
    }
}

#[test]
fn freeing_an_unallocated_offset_is_an_error() {
    for engine in EngineKind::ALL {
        let pool = pool(engine);
        pool.section(|tx| {
            let (small, large) = (tx.allocate(20)?, tx.allocate(9000)?);
            for bad in
                [0, 64, small + 8, small + 16, small + 32, large + 4096, large - 64, u64::MAX]
            {
                assert_eq!(tx.free(bad), Err(Error::NotAllocated { at: bad }), "{engine}");
                assert_eq!(tx.room_of(bad), None);
            }
            assert_eq!((tx.room_of(small), tx.room_of(large)), (Some(32), Some(3 * 4096 - 64)));
            tx.free(small)?;
            assert_eq!(tx.free(small), Err(Error::NotAllocated { at: small }));
            tx.free(large)?;
            assert_eq!(tx.free(large), Err(Error::NotAllocated { at: large }));
            Ok::<_, Error>(())
        })
        .expect("errors that change nothing do not take the section back");
        assert_eq!(pool.check().expect("metadata").objects, 1);
    }
}

#[test]
fn the_heap_ends_where_it_ends() {
    for engine in EngineKind::ALL {
        let pool = pool(engine);
        pool.section(|tx| {
            for at in [0, 8, u64::MAX, u64::MAX - 4, 1 << 40] {
                assert!(matches!(tx.load(at), Err(Error::OutOfHeap { .. })), "{engine} {at}");
                assert!(matches!(tx.store(at, 1), Err(Error::OutOfHeap { .. })));
            }
            assert!(matches!(tx.get(Offset::<u64>::NULL), Err(Error::OutOfHeap { .. })));
            let wrong = Root::<[u64; 2]>::new(5);
            let mismatch = tx.root(wrong).expect_err("another type");
            assert!(mismatch.to_string().contains("8, asked for was 16"), "{mismatch}");
            Ok::<_, Error>(())
        })
        .expect("refusals that change nothing do not take the section back");
    }
}

#[test]
fn a_pool_opens_at_another_address() {
    for engine in EngineKind::ALL {
        let pool = pool(engine);
        for value in 0..50 {
            pool.section(|tx| list::push(tx, value)).expect("pushed");
        }
        let words = pool.memory().words();
        let elsewhere = Words::from(words, Domain::Adr);
        let pool = Pool::open(elsewhere, &options(engine)).expect("opens");
        assert!(!pool.recovery().was_clean);
        let values = pool.section(|tx| list::values(tx)).expect("values");
        assert!(values.into_iter().eq((0..50).rev()), "{engine}");
        pool.check().expect("metadata");
    }
}

#[test]
fn closing_is_noted_and_dropping_is_not() {
    for engine in EngineKind::ALL {
        let pool = pool(engine);
        let pool = Pool::open(pool.close(), &options(engine)).expect("open");
        assert!(pool.recovery().was_clean, "{engine}");
        let memory = Words::from(pool.memory().words(), Domain::Adr);
        drop(pool);
        let pool = Pool::open(memory, &options(engine)).expect("open");
        assert!(!pool.recovery().was_clean, "{engine}");
        assert_eq!(pool.recovery().engine, engine);
    }
}

#[test]
fn a_section_that_wrote_nothing_costs_nothing() {
    for engine in EngineKind::ALL {
        let pool = pool_on(Counted::new(Words::new(BYTES, Domain::Adr)), engine);
        let counts = pool.memory().measure(|| count(&pool));
        let changes = (counts.stores, counts.writes, counts.write_backs, counts.fences);
        assert_eq!(changes, (0, 0, 0, 0), "{engine}: {counts}");
    }
}

#[test]
fn the_fences_of_a_section_are_those_of_its_protocol() {
    for (engine, fences) in [(EngineKind::Undo, 4), (EngineKind::Redo, 2), (EngineKind::Shadow, 2)]
    {
        let pool = pool_on(Counted::new(Words::new(BYTES, Domain::Adr)), engine);
        let section = || {
            pool.section(|tx| {
                let at = tx.root(COUNT)?;
                tx.set(at, 2)?;
                let other = tx.allocate(8)?;
                tx.free(other)
            })
            .expect("a section");
        };
        let found = pool.memory().measure(section).fences;
        assert!(
            found >= fences && (engine == EngineKind::Undo || found == fences),
            "{engine} {found}"
        );
    }
}
