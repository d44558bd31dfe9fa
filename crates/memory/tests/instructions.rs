//! The instructions against their plain counterparts, over every size and alignment that matters.
//!
//! The counters and the switch belong to the process, so everything that reads them is one test, in
//! this file alone.

use proptest::prelude::*;
use terrace_memory::instructions::{
    Counters, LINE_BYTES, clean, counters, demote, fence, set_enabled, stream, write_back,
};

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
        lines_demoted: after.lines_demoted - before.lines_demoted,
    }
}

#[test]
fn lines_are_counted_exactly_and_the_switch_stops_them() {
    let _turn = one_at_a_time();
    let buffer = Lines([1; BUFFER_BYTES]);
    for at in 0..130 {
        for bytes in (0..200).chain([1000, 2048, 4096]) {
            let start = buffer.0[at..].as_ptr();
            let expected = lines_touched(at, bytes);
            // SAFETY: at + bytes is at most 130 + 4096, inside the buffer.
            let work = counted(|| unsafe { write_back(start, bytes) });
            assert_eq!(
                (work.lines_written_back, work.lines_demoted),
                (expected, 0),
                "{at}+{bytes}"
            );
            // SAFETY: as above.
            let work = counted(|| unsafe { demote(start, bytes) });
            assert_eq!(
                (work.lines_written_back, work.lines_demoted),
                (0, expected),
                "{at}+{bytes}"
            );
        }
    }
    assert!(counted(fence).fences >= 1);
    assert!(buffer.0.iter().all(|byte| *byte == 1), "none of them changes data");

    set_enabled(false);
    let work = counted(|| {
        // SAFETY: inside the buffer.
        unsafe {
            write_back(buffer.0.as_ptr(), 640);
            demote(buffer.0.as_ptr(), 640);
        }
    });
    set_enabled(true);
    assert_eq!((work.lines_written_back, work.lines_demoted), (0, 0));
    // SAFETY: inside the buffer.
    let work = counted(|| unsafe { write_back(buffer.0.as_ptr(), 640) });
    assert_eq!(work.lines_written_back, 10);
    assert_eq!(counted(|| clean(&buffer.0[..65])).lines_written_back, 2);
}

#[test]
fn the_method_chosen_is_the_one_the_processor_has() {
    let _turn = one_at_a_time();
    use terrace_memory::instructions::{WriteBack, write_back_method};
    let word = match write_back_method() {
        WriteBack::Clwb => "clwb",
        WriteBack::ClflushOpt => "clflushopt",
        WriteBack::Clflush => "clflush",
    };
    assert_eq!(terrace_memory::cpu::Features::detect().write_back_word(), Some(word));
}
