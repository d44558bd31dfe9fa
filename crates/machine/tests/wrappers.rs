//! Wrapped memories hear what their wrapper was asked.

use std::sync::{Arc, Mutex};
use terrace_machine::{Counted, Recorded, Tape, Without};
use terrace_memory::{Backing, Laboratory, Memory, Native, Part, Region, Request, Wrapper};

/// Notes what arrives.
#[derive(Clone)]
struct Spy {
    memory: Native,
    heard: Arc<Mutex<Vec<(Request, u64, u64)>>>,
}

// SAFETY: all of the memory.
unsafe impl Wrapper for Spy {
    type Inner = Native;

    fn inner(&self) -> &Native {
        &self.memory
    }

    fn asked(&self, what: Request, at: u64, bytes: u64, _: bool) {
        self.heard.lock().expect("no panic").push((what, at, bytes));
    }
}

impl Spy {
    fn new() -> Spy {
        let region = Region::reserve(4096, Backing::Anonymous).expect("addresses");
        region.commit(0, 4096).expect("memory");
        Spy { memory: region.native(), heard: Arc::default() }
    }
}

/// Asks everything once; returns what must arrive at a memory that begins `start` bytes further on.
fn ask_everything(memory: &(impl Memory + Laboratory), start: u64) -> Vec<(Request, u64, u64)> {
    let mut target = [0; 16];
    // SAFETY: aligned ranges inside the page, which nobody else uses.
    unsafe {
        memory.load(8);
        memory.load_line(64);
        memory.store(16, 1);
        let _refused = memory.compare_exchange(24, 1, 2);
        memory.fetch_add(32, 1);
        memory.read(40, &mut target);
        memory.copy_changing(48, target.as_mut_ptr(), 16);
        memory.write(56, &target);
        memory.write_changing(72, &target);
        memory.stream(128, &target);
        memory.bytes(80, 16);
        memory.borrow(88, 16);
        memory.looked_at(96, 16);
        memory.write_back(104, 16);
        memory.fence();
        memory.prefetch(112);
        memory.prefetch_of_many(113);
        memory.prefetch_to_write(114);
        memory.clean(120, 16);
        memory.demote(136, 16);
    }
    memory.pause();
    assert_eq!(memory.zeros(0, 64), 0);
    let asked = [
        (Request::Load, 8, 8),
        (Request::LoadLine, 64, 64),
        (Request::Store, 16, 8),
        (Request::Exchange, 24, 8),
        (Request::Add, 32, 8),
        (Request::Read, 40, 16),
        (Request::CopyChanging, 48, 16),
        (Request::Write, 56, 16),
        (Request::WriteChanging, 72, 16),
        (Request::Stream, 128, 16),
        (Request::Bytes, 80, 16),
        (Request::LookedAt, 96, 16),
        (Request::WriteBack, 104, 16),
        (Request::Fence, 0, 0),
        (Request::Prefetch, 112, 1),
        (Request::PrefetchOfMany, 113, 1),
        (Request::PrefetchToWrite, 114, 1),
        (Request::Clean, 120, 16),
        (Request::Demote, 136, 16),
    ];
    let moved = |(what, at, bytes)| (what, if bytes > 0 { start + at } else { at }, bytes);
    asked.map(moved).to_vec()
}

/// A wrapper that forgot a method took its default: an atomic addition became a loop, and where additions were
/// counted, none was; a prefetch of many became one of a single line.
#[test]
fn a_wrapper_passes_every_method_on_as_what_it_is() {
    let check = |name: &str, start: u64, wrap: &dyn Fn(Spy) -> Vec<(Request, u64, u64)>| {
        let spy = Spy::new();
        let heard = Arc::clone(&spy.heard);
        let asked = wrap(spy);
        assert_eq!(*heard.lock().expect("no panic"), asked, "{name}, from {start}");
    };
    check("part", 1024, &|spy| ask_everything(&Part::new(spy, 1024, 512), 1024));
    check("counted", 0, &|spy| ask_everything(&Counted::new(spy), 0));
    check("recorded", 0, &|spy| ask_everything(&Recorded::new(spy, 1, &Tape::new()), 0));
    check("without", 0, &|spy| ask_everything(&Without::nothing(spy), 0));
    check("all of them", 64, &|spy| {
        let counted = Counted::new(Without::nothing(spy));
        ask_everything(&Part::new(Recorded::new(counted, 0, &Tape::new()), 64, 512), 64)
    });
}
