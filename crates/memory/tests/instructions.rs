//! The instructions against their plain counterparts, over every size and alignment that matters.
//!
//! The counters and the switch belong to the process, so everything that reads them is one test, in
//! this file alone.

use proptest::prelude::*;
use terrace_memory::instructions::{
    Counters, LINE_BYTES, WriteBack, counters, fence, stream, write_back, write_back_method,
};
use terrace_memory::prestore::{self, Op, Site, hint, set_enabled, set_least_bytes, sites};

/// Larger than any copy, with room for every alignment on both sides.
const BUFFER_BYTES: usize = 4096 + 256;
/// What lies around a copy and must stay.
const GUARD: u8 = 0xa5;

/// A buffer that begins on a line.
#[repr(align(64))]
struct Lines([u8; BUFFER_BYTES]);

fn pattern() -> Vec<u8> {
    (0..BUFFER_BYTES).map(|at| (at * 31 + at / 251) as u8).collect()
}

/// Streams `bytes` bytes between the given offsets and checks every byte of the target, guards
/// included.
fn check_stream(target: &mut Lines, source: &[u8], to: usize, from: usize, bytes: usize) {
    target.0.fill(GUARD);
    let source = &source[from..from + bytes];
    assert!(to + bytes <= BUFFER_BYTES);
    // SAFETY: the range lies in `target`, which is borrowed exclusively and is not `source`.
    unsafe { stream(target.0.as_mut_ptr().add(to), source) };
    fence();
    assert!(target.0[..to].iter().all(|byte| *byte == GUARD), "before {to}+{bytes}");
    assert_eq!(&target.0[to..to + bytes], source, "at {to}, from {from}, {bytes} bytes");
    assert!(target.0[to + bytes..].iter().all(|byte| *byte == GUARD), "after {to}+{bytes}");
}

#[test]
fn streaming_is_copying_for_every_size() {
    let _turn = one_at_a_time();
    let source = pattern();
    let mut target = Lines([0; BUFFER_BYTES]);
    for bytes in 0..=4096 {
        // Each size meets every alignment of a line as sizes go by; small ones meet all of them at
        // once.
        check_stream(&mut target, &source, bytes * 7 % 64, bytes * 13 % 64, bytes);
    }
    for bytes in 0..=130 {
        for to in 0..64 {
            check_stream(&mut target, &source, to, (to * 5 + bytes) % 64, bytes);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn streaming_is_copying_anywhere(
        to in 0usize..128,
        from in 0usize..128,
        bytes in 0usize..=4096,
    ) {
        let _turn = one_at_a_time();
        check_stream(&mut Lines([0; BUFFER_BYTES]), &pattern(), to, from, bytes);
    }
}

/// Lines that hold a byte of `[at, at + bytes)` of a buffer that begins on a line.
fn lines_touched(at: usize, bytes: usize) -> u64 {
    let line = LINE_BYTES as usize;
    match bytes {
        0 => 0,
        _ => ((at + bytes - 1) / line - at / line + 1) as u64,
    }
}

/// The counters are the process's: no two tests of this file may run at once.
fn one_at_a_time() -> std::sync::MutexGuard<'static, ()> {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// What `work` adds to the counters of this process.
fn counted(work: impl FnOnce()) -> Counters {
    let before = counters();
    work();
    let after = counters();
    Counters {
        lines_written_back: after.lines_written_back - before.lines_written_back,
        fences: after.fences - before.fences,
        bytes_streamed: after.bytes_streamed - before.bytes_streamed,
        lines_cleaned: after.lines_cleaned - before.lines_cleaned,
        lines_demoted: after.lines_demoted - before.lines_demoted,
    }
}

/// Cleaned lines of so many, on this processor.
fn if_it_cleans(lines: u64) -> u64 {
    if write_back_method() == WriteBack::Clwb { lines } else { 0 }
}

#[test]
fn lines_are_counted_exactly() {
    let _turn = one_at_a_time();
    let buffer = Lines([1; BUFFER_BYTES]);
    for at in 0..130 {
        for bytes in (0..200).chain([1000, 2048, 4096]) {
            let start = buffer.0[at..].as_ptr();
            let expected = lines_touched(at, bytes);
            let of =
                |work: Counters| (work.lines_written_back, work.lines_cleaned, work.lines_demoted);
            // SAFETY: at + bytes is at most 130 + 4096, inside the buffer.
            let work = counted(|| unsafe { write_back(start, bytes) });
            assert_eq!(of(work), (expected, 0, 0), "{at}+{bytes}");
            // SAFETY: as above.
            let work = counted(|| unsafe { hint(Op::Clean, start, bytes) });
            assert_eq!(of(work), (0, if_it_cleans(expected), 0), "{at}+{bytes}");
            // SAFETY: as above.
            let work = counted(|| unsafe { hint(Op::Demote, start, bytes) });
            assert_eq!(of(work), (0, 0, expected), "{at}+{bytes}");
        }
    }
    assert!(counted(fence).fences >= 1);
    assert!(buffer.0.iter().all(|byte| *byte == 1), "none of them changes data");
}

#[test]
fn the_switch_stops_hints_and_nothing_that_must_happen() {
    let _turn = one_at_a_time();
    let source = pattern();
    let mut target = Lines([GUARD; BUFFER_BYTES]);
    let everything = |target: &mut Lines| {
        counted(|| {
            prestore::clean(&target.0[..640]);
            prestore::demote(&target.0[..640]);
            prestore::copy(&mut target.0[3..1000], &source[3..1000]);
            prestore::fill(&mut target.0[1000..2000], 7);
            // SAFETY: inside the buffer.
            unsafe {
                write_back(target.0.as_ptr(), 640);
                stream(target.0.as_mut_ptr().add(2048), &source[..640]);
            }
            fence();
        })
    };
    let must =
        Counters { lines_written_back: 10, fences: 1, bytes_streamed: 640, ..Counters::default() };
    let stored = |target: &Lines| {
        target.0[3..1000] == source[3..1000]
            && target.0[1000..2000].iter().all(|byte| *byte == 7)
            && target.0[2048..2688] == source[..640]
    };

    set_enabled(false);
    let off = everything(&mut target);
    set_enabled(true);
    assert_eq!(off, must);
    assert!(stored(&target));

    set_least_bytes(1001);
    let small = everything(&mut target);
    set_least_bytes(640);
    let large = everything(&mut target);
    set_least_bytes(0);
    assert_eq!(small, must);

    target.0.fill(GUARD);
    let on = everything(&mut target);
    assert!(stored(&target));
    // 64..960 of the copy, 1024..1984 of the fill; their ends are 61 + 40 and 24 + 16 bytes.
    assert_eq!(on.bytes_streamed, 640 + 896 + 960);
    let hinted = Counters { bytes_streamed: 640, lines_cleaned: 0, lines_demoted: 0, ..on };
    assert_eq!((hinted, on.lines_demoted), (must, 10));
    assert_eq!(on.lines_cleaned, if_it_cleans(10 + 2 + 2));
    assert_eq!(large, on, "the rule is about the whole of a copy, not its ends");
}

#[test]
fn copying_and_filling_past_the_caches_are_copying_and_filling() {
    let _turn = one_at_a_time();
    let source = pattern();
    let mut target = Lines([0; BUFFER_BYTES]);
    for bytes in 0..=200 {
        for to in 0..64 {
            let from = (to * 5 + bytes) % 64;
            target.0.fill(GUARD);
            prestore::copy(&mut target.0[to..to + bytes], &source[from..from + bytes]);
            prestore::fill(&mut target.0[1024 + to..1024 + to + bytes], 7);
            fence();
            let mut expected = [GUARD; BUFFER_BYTES];
            expected[to..to + bytes].copy_from_slice(&source[from..from + bytes]);
            expected[1024 + to..1024 + to + bytes].fill(7);
            assert!(target.0 == expected, "{bytes} bytes at {to}, from {from}");
        }
    }
}

#[test]
fn sites_count_what_they_issued_over_all_threads() {
    static VALUES: Site = Site::new("values");
    static UNUSED: Site = Site::new("unused");
    let _turn = one_at_a_time();
    let report = |name: &str| sites().into_iter().find(|site| site.name == name);
    let mut buffer = Lines([0; BUFFER_BYTES]);
    assert_eq!(report("values"), None, "not on the list before it issued something");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let lines = &buffer.0[..130];
            scope.spawn(move || (0..1000).for_each(|_| VALUES.clean(lines)));
        }
    });
    let found = report("values").expect("on the list");
    assert_eq!((found.calls, found.lines, found.bytes), (4000, 4000 * 3, 4000 * 130));
    assert!(found.file.ends_with("instructions.rs"));

    VALUES.copy(&mut buffer.0[..64], &[1; 64]);
    VALUES.fill(&mut buffer.0[64..128], 1);
    VALUES.demote(&buffer.0[63..65]);
    set_enabled(false);
    VALUES.clean(&buffer.0);
    UNUSED.demote(&buffer.0);
    set_enabled(true);
    let found = report("values").expect("on the list");
    assert_eq!((found.calls, found.lines), (4003, 4000 * 3 + 1 + 1 + 2));
    assert_eq!(report("unused"), None);
}

#[test]
fn the_method_chosen_is_the_one_the_processor_has() {
    let _turn = one_at_a_time();
    let word = match write_back_method() {
        WriteBack::Clwb => "clwb",
        WriteBack::ClflushOpt => "clflushopt",
        WriteBack::Clflush => "clflush",
    };
    assert_eq!(terrace_memory::cpu::Features::detect().write_back_word(), Some(word));
}
