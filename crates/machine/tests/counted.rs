//! A structure's cost is a number, and a test can hold it there.
#![allow(clippy::unwrap_used)]

use std::ptr::NonNull;
use terrace_machine::{Counted, Counts};
use terrace_memory::{Domain, Laboratory, Memory, Native};

#[repr(align(4096))]
struct Page([u8; 4096]);

/// A counted page of this machine's memory.
fn page(domain: Domain) -> Counted {
    let page = Box::leak(Box::new(Page([0; 4096])));
    let base = NonNull::from(&mut page.0).cast();
    // SAFETY: the page is leaked, so it outlives everything.
    Counted::new(unsafe { Native::new(base, 4096, domain) })
}

/// Updates a record and its version: two lines; `careful` writes the first back twice.
fn update(memory: &impl Memory, careful: bool) {
    // SAFETY: words inside the page, one thread.
    unsafe {
        memory.store(128, 7);
        memory.store(136, 8);
        memory.write_back(128, 16);
        if careful {
            memory.write_back(136, 8);
        }
        memory.store(0, memory.load(0) + 1);
        memory.write_back(0, 8);
        memory.fence();
    }
}

#[test]
fn a_budget_is_met_exactly_and_an_extra_flush_breaks_it() {
    let memory = page(Domain::Adr);
    let budget = Counts { write_backs: 2, fences: 1, ..Counts::default() };
    assert_eq!(memory.measure(|| update(&memory, false)).ordering(), budget);
    let careful = memory.measure(|| update(&memory, true)).ordering();
    assert_ne!(careful, budget);
    assert_eq!(careful.to_string(), "3 write-backs, 1 fence");
}

#[test]
fn every_operation_is_counted_with_its_bytes_and_lines() {
    let memory = page(Domain::Adr);
    // SAFETY: ranges inside the page, one thread.
    let counts = memory.measure(|| unsafe {
        memory.store(0, 1);
        memory.load(0);
        memory.load_line(64);
        memory.compare_exchange(0, 1, 2).unwrap();
        memory.compare_exchange(0, 1, 3).unwrap_err();
        assert_eq!(memory.fetch_add(0, 5), 2);
        memory.write(250, &[1; 20]);
        memory.write_changing(250, &[1; 20]);
        memory.read(250, &mut [0; 20]);
        assert_eq!(memory.bytes(250, 2), [1, 1]);
        memory.copy_changing(250, [0u8; 20].as_mut_ptr(), 20);
        memory.stream(512, &[2; 128]);
        memory.write_back(250, 20);
        memory.write_back(250, 1);
        memory.fence();
        memory.clean(250, 20);
        memory.clean(250, 0);
        assert_eq!(memory.borrow(2048, 64).len(), 64);
        assert_eq!(memory.borrow(250, 2), [1, 1]);
        memory.looked_at(250, 2);
        memory.demote(0, 8);
        memory.prefetch(0);
        memory.prefetch_of_many(0);
        memory.pause();
    });
    let expected = Counts {
        loads: 9,
        stores: 1,
        compare_exchanges: 2,
        additions: 1,
        reads: 4,
        writes: 2,
        streams: 1,
        write_backs: 3,
        fences: 1,
        cleans: 2,
        demotes: 1,
        prefetches: 2,
        bytes_read: 8 + 64 + 16 + 8 + 42 + 2,
        bytes_written: 8 + 8 + 8 + 20 + 20,
        bytes_streamed: 128,
        lines_touched: 2 + 2 + 2,
        lines_written_back: 2,
    };
    assert_eq!(counts, expected, "{counts}");
    assert_eq!(memory.totals(), expected);
}

#[test]
fn persist_costs_what_the_domain_asks() {
    let cases = [
        (Domain::Adr, "2 write-backs, 1 fence"),
        (Domain::Eadr, "1 fence"),
        (Domain::PageCache, "nothing"),
        (Domain::None, "nothing"),
    ];
    for (domain, expected) in cases {
        let memory = page(domain);
        // SAFETY: inside the page.
        let counts = memory.measure(|| unsafe { memory.persist(60, 8) });
        assert_eq!(counts.ordering().to_string(), expected, "{domain}");
    }
}

#[test]
fn sections_nest_survive_panics_and_belong_to_their_thread() {
    let memory = page(Domain::Adr);
    let outer = memory.measure(|| {
        update(&memory, false);
        let (value, inner) = memory.measured(|| {
            memory.fence();
            5
        });
        assert_eq!((value, inner.fences), (5, 1));
        let panicking = || memory.measure(|| panic!("on purpose"));
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(panicking)).unwrap_err();
        std::thread::scope(|scope| scope.spawn(|| update(&memory, false)).join().unwrap());
    });
    assert_eq!(outer.fences, 2);
    // The two lines are the same two: distinct ones count once in every sum.
    assert_eq!((memory.totals().fences, memory.totals().lines_touched), (3, 2));
    assert_eq!(memory.thread_totals().fences, 2);
}
