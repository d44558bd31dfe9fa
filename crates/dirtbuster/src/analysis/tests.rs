//! Each rule on a small stream, written by hand.

use super::*;

/// Functions are the thousands of their addresses.
#[derive(Debug)]
struct Thousands;

impl Places for Thousands {
    fn image(&mut self, _: &Image) {}
    fn function(&mut self, ip: u64) -> u32 {
        (ip / 1000).min(1000) as u32
    }
    fn name(&mut self, function: u32) -> (String, String) {
        (format!("f{function}"), "test".into())
    }
    fn location(&mut self, ip: u64) -> String {
        format!("t.c:{ip}")
    }
    fn spills(&mut self, _: u64) -> bool {
        false
    }
    fn is_monitored(&self, _: u32) -> bool {
        true
    }
}

struct Stream {
    analysis: Analysis<Thousands>,
    count: u64,
}

impl Stream {
    fn new() -> Stream {
        Stream { analysis: Analysis::new(Thousands, Thresholds::default()), count: 0 }
    }

    fn event(&mut self, kind: Kind, ip: u64, address: u64, size: u32) -> &mut Stream {
        self.count += 1;
        let event = Event { count: self.count, kind, ip, address, size, thread: 0 };
        self.analysis.take(&event);
        self
    }

    fn write(&mut self, ip: u64, address: u64) -> &mut Stream {
        self.event(Kind::Write, ip, address, 8)
    }

    fn read(&mut self, ip: u64, address: u64) -> &mut Stream {
        self.event(Kind::Read, ip, address, 8)
    }

    fn fence(&mut self) -> &mut Stream {
        self.event(Kind::Fence, 9000, 0, 0)
    }

    /// Other instructions.
    fn wait(&mut self, instructions: u64) -> &mut Stream {
        self.count += instructions;
        self
    }

    fn of(self, function: &str) -> FunctionReport {
        let findings = self.analysis.finish();
        findings.functions.into_iter().find(|f| f.function == function).expect("the function")
    }
}

const BASE: u64 = 0x7f00_0000_0000;

fn array(number: u64) -> u64 {
    BASE + (number << 28)
}

#[test]
fn an_array_written_once_is_streamed() {
    let mut stream = Stream::new();
    (0..10_000).for_each(|i| {
        stream.write(1000, array(0) + 8 * i).wait(5);
    });
    let found = stream.of("f1");
    assert_eq!(found.verdict.advice, Advice::Stream, "{:?}", found.verdict);
    assert!(found.measured.sequential_share > 0.999);
    assert_eq!(found.places[0].classes[0].bytes, 80_000);
    assert_eq!(found.measured.reread_distance.or(found.measured.rewrite_distance), None);
}

#[test]
fn arrays_written_in_turn_with_temporaries_between_are_sequential() {
    let mut stream = Stream::new();
    for i in 0..5_000 {
        stream.write(1000, array(0) + 8 * i).write(1001, array(9)).write(1002, array(1) + 8 * i);
    }
    let found = stream.of("f1");
    // Two thirds: the temporary is always at the same place. A detector of adjacent writes finds none.
    assert!((0.64..0.69).contains(&found.measured.sequential_share), "{:?}", found.measured);
    let advice: Vec<Advice> = found.places.iter().map(|place| place.verdict.advice).collect();
    assert_eq!(advice, [Advice::Stream, Advice::Nothing, Advice::Stream]);
}

/// FT's cffts1: the scratch area is hot, the result cold, in one function.
#[test]
fn each_place_of_a_function_has_its_verdict_and_unrolled_stores_are_one_place() {
    let mut stream = Stream::new();
    for row in 0..100 {
        (0..256).for_each(|i| {
            stream.write(1000 + i % 4, array(0) + 8 * i);
        });
        (0..256).for_each(|i| {
            stream.write(1010, array(1) + 2048 * row + 8 * i);
        });
    }
    let found = stream.of("f1");
    let places: Vec<(usize, Advice)> =
        found.places.iter().map(|place| (place.lines.len(), place.verdict.advice)).collect();
    assert!(
        places.contains(&(4, Advice::Nothing)) && places.contains(&(1, Advice::Stream)),
        "{places:?}"
    );
    assert_eq!(found.verdict.advice, Advice::Stream);
}

#[test]
fn a_descending_run_is_sequential_too() {
    let mut stream = Stream::new();
    (0..1_000).for_each(|i| {
        stream.write(1000, array(0) + 80_000 - 8 * i);
    });
    assert!(stream.of("f1").measured.sequential_share > 0.99);
}

#[test]
fn random_writes_get_nothing_however_small_the_table() {
    for slots in [1 << 9, 1 << 12, 1 << 20] {
        let mut stream = Stream::new();
        let mut random: u64 = 7;
        for _ in 0..50_000 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            stream.write(1000, array(0) + 8 * ((random >> 33) % slots)).wait(3);
        }
        let found = stream.of("f1");
        assert!(found.measured.sequential_share < 0.2, "{slots}: {:?}", found.measured);
        assert_eq!(found.verdict.advice, Advice::Nothing, "{slots}: {:?}", found.verdict);
    }
}

#[test]
fn data_that_is_read_again_is_cleaned() {
    let mut stream = Stream::new();
    for block in 0..100 {
        (0..512).for_each(|i| {
            stream.write(1000, array(0) + 4096 * block + 8 * i);
        });
        stream.wait(20_000);
        (0..512).for_each(|i| {
            stream.read(2000, array(0) + 4096 * block + 8 * i);
        });
    }
    let found = stream.of("f1");
    assert_eq!(found.verdict.advice, Advice::Clean, "{:?}", found.verdict);
    let distance = found.measured.reread_distance.expect("re-read");
    assert!((20_000.0..21_000.0).contains(&distance), "{distance}");
    assert!(found.verdict.warning.expect("a warning").contains("do not stream"));
}

/// `u[i] = u[i] + ...` reads the neighbour of what it wrote, in the line that it writes: MG's psinv is no re-read.
#[test]
fn a_read_of_the_neighbour_in_the_line_being_written_is_no_re_read() {
    let mut stream = Stream::new();
    for i in 0..10_000 {
        stream.read(1000, array(0) + 8 * i).write(1001, array(0) + 8 * i);
    }
    let found = stream.of("f1");
    assert_eq!(found.measured.reread_distance, None);
    assert_eq!(found.verdict.advice, Advice::Stream);
}

#[test]
fn a_re_use_beyond_the_horizon_is_none() {
    let mut stream = Stream::new();
    for _ in 0..3 {
        (0..2_000).for_each(|i| {
            stream.write(1000, array(0) + 8 * i);
        });
        stream.wait(2_000_000);
        (0..2_000).for_each(|i| {
            stream.read(2000, array(0) + 8 * i);
        });
    }
    let found = stream.of("f1");
    assert_eq!(found.verdict.advice, Advice::Stream, "{:?}", found.verdict);
}

#[test]
fn hot_data_gets_nothing_and_a_warning() {
    let mut stream = Stream::new();
    for _ in 0..200 {
        (0..512).for_each(|i| {
            stream.write(1000, array(0) + 8 * i);
        });
        (0..512).for_each(|i| {
            stream.read(1001, array(0) + 8 * i);
        });
    }
    let found = stream.of("f1");
    assert_eq!(found.verdict.advice, Advice::Nothing, "{:?}", found.verdict);
    assert!(found.verdict.warning.expect("a warning").contains("do not clean"));
    let distance = found.measured.rewrite_distance.expect("re-written");
    assert!((512.0..1100.0).contains(&distance), "{distance}");
}

#[test]
fn data_re_written_late_without_a_fence_is_cleaned() {
    let mut stream = Stream::new();
    for _ in 0..20 {
        (0..512).for_each(|i| {
            stream.write(1000, array(0) + 8 * i);
        });
        stream.wait(500_000);
    }
    assert_eq!(stream.of("f1").verdict.advice, Advice::Clean);
}

#[test]
fn a_message_that_is_re_written_before_a_fence_is_demoted() {
    let mut stream = Stream::new();
    for _ in 0..500 {
        (0..16).for_each(|i| {
            stream.write(1000, array(0) + 8 * i);
        });
        stream.wait(30).fence().wait(200);
    }
    let found = stream.of("f1");
    assert_eq!(found.verdict.advice, Advice::Demote, "{:?}", found.verdict);
    assert_eq!(found.measured.fence_distance, Some(31));
    assert!(found.measured.fenced_share > 0.99);
}

#[test]
fn one_fence_at_the_end_does_not_make_a_function_one_before_fences() {
    let mut stream = Stream::new();
    (0..100_000).for_each(|i| {
        stream.write(1000, array(0) + 8 * i).wait(3);
    });
    stream.fence();
    let found = stream.of("f1");
    assert_eq!(found.verdict.advice, Advice::Stream);
    assert!(
        found.measured.fenced_share < 0.01 && found.measured.fence_distance == Some(4),
        "{:?}",
        found.measured
    );
}

#[test]
fn the_write_of_an_atomic_instruction_does_not_count_as_before_its_own_fence() {
    let mut stream = Stream::new();
    for i in 0..1_000 {
        stream.wait(5_000).fence();
        stream.count -= 1;
        stream.write(1000, array(0) + 64 * i);
    }
    assert_eq!(stream.of("f1").measured.fenced_share, 0.0);
}

/// The tensor operation: large results are never used again, small ones at once, and the code is the same.
#[test]
fn one_small_class_that_is_re_read_decides_for_the_function() {
    let mut stream = Stream::new();
    for i in 0..100_000u64 {
        stream.write(1000, array(0) + 8 * i);
    }
    for small in 0..1_000 {
        for i in 0..30 {
            stream
                .write(1000, array(1) + 8192 * small + 8 * i)
                .read(1001, array(1) + 8192 * small + 8 * i);
        }
    }
    let found = stream.of("f1");
    assert_eq!(found.verdict.advice, Advice::Clean, "{:?}", found.verdict);
    let sizes: Vec<u64> = found.places[0].classes.iter().map(|class| class.bytes).collect();
    assert_eq!(sizes, [800_000, 240]);
    assert!(found.verdict.reason.contains("regions of 240 B"), "{}", found.verdict.reason);
}

#[test]
fn vector_tails_that_overlap_belong_to_their_copy() {
    let mut stream = Stream::new();
    for copy in 0..1_000 {
        let to = array(0) + 8192 * copy;
        (0..7).for_each(|i| {
            stream.event(Kind::Write, 1000, to + 32 * i, 32);
        });
        stream.event(Kind::Write, 1000, to + 208, 32);
        stream.wait(1_000);
    }
    let found = stream.of("f1");
    assert_eq!(found.measured.rewrite_distance, None, "{:?}", found.measured);
    assert!(found.measured.sequential_share > 0.99);
}

/// An allocator's header shares a line with the object behind it; the paper counts by the line, we by the byte.
#[test]
fn a_header_in_the_same_line_is_no_re_write_of_the_object() {
    let mut stream = Stream::new();
    for object in 0..2_000 {
        let at = array(0) + 1040 * object;
        stream.write(2000, at).wait(20);
        (0..128).for_each(|i| {
            stream.write(1000, at + 16 + 8 * i);
        });
    }
    assert_eq!(stream.of("f1").verdict.advice, Advice::Stream);
}

#[test]
fn threads_have_distances_of_their_own_and_share_apart() {
    let mut analysis = Analysis::new(Thousands, Thresholds::default());
    for count in 1..10_000 {
        let address = array(0) + 8 * count;
        let event = Event { count, kind: Kind::Write, ip: 1000, address, size: 8, thread: 0 };
        analysis.take(&event);
        analysis.take(&Event { kind: Kind::Read, ip: 2000, thread: 1, ..event });
    }
    let findings = analysis.finish();
    assert_eq!(findings.totals.threads, 2);
    let found = &findings.functions[0];
    assert_eq!(found.measured.reread_distance, None);
    assert!(found.measured.shared_share > 0.99, "{:?}", found.measured);
}

#[test]
fn irregular_reads_are_worth_a_prefetch_and_regular_ones_not() {
    let mut stream = Stream::new();
    let mut random: u64 = 7;
    for i in 0..50_000u64 {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        stream.read(1000, array(1) + 64 * ((random >> 33) % (1 << 20))).wait(28);
        stream.read(2000, array(2) + 8 * i).read(3000, array(3) + 4096 * i);
    }
    let findings = stream.analysis.finish();
    let [only] = &findings.prefetches[..] else { panic!("{:?}", findings.prefetches) };
    assert_eq!((only.location.as_str(), only.ahead), ("t.c:1000", 10));
}

#[test]
fn calls_name_the_path_into_a_generic_function() {
    let mut stream = Stream::new();
    for i in 0..10_000u64 {
        let caller = if i % 4 == 0 { 3000 } else { 2000 };
        stream.event(Kind::Call, caller, 1000, 8);
        stream.write(1000, array(0) + 8 * i).event(Kind::Return, 1001, 0, 8);
    }
    let found = stream.of("f1");
    assert_eq!(found.callers[0].callers, ["f2"]);
    assert_eq!(found.callers[1].callers, ["f3"]);
    assert!(found.callers[0].writes > 2 * found.callers[1].writes);
}

/// A trace with new code, new memory and a count that stands still: what is remembered stays within its bound.
#[test]
fn a_trace_that_writes_everywhere_stays_within_its_memory() {
    let bound = 4 << 20;
    let mut analysis = Analysis::new(Thousands, Thresholds::default()).within(bound);
    let mut random: u64 = 7;
    for _ in 0..300_000 {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let event = Event {
            count: 1,
            kind: Kind::Write,
            ip: random >> 50,
            address: random,
            size: 8,
            thread: 0,
        };
        analysis.take(&event);
    }
    assert!(
        analysis.is_full() && analysis.remembered_bytes() < 4 * bound,
        "{}",
        analysis.remembered_bytes()
    );
    assert!(analysis.threads[0].unfenced.len() <= UNFENCED);
    let findings = analysis.finish();
    let writes: u64 = findings.functions.iter().map(|function| function.measured.writes).sum();
    assert_eq!(writes, 300_000, "none is lost");
}

mod any_stream {
    use super::*;
    use proptest::prelude::*;

    fn kind() -> impl Strategy<Value = Kind> {
        prop::sample::select(vec![
            Kind::Read,
            Kind::Write,
            Kind::Spill,
            Kind::Fence,
            Kind::Call,
            Kind::Return,
        ])
    }

    /// Few addresses and all of them, so that accesses meet and ends of the address space are tried.
    fn address() -> impl Strategy<Value = u64> {
        prop_oneof![0u64..512, any::<u64>(), (u64::MAX - 300)..=u64::MAX]
    }

    fn event() -> impl Strategy<Value = Event> {
        let count = prop_oneof![0u64..100, any::<u64>()];
        let size = prop_oneof![0u32..80, any::<u32>()];
        let thread = prop_oneof![0u32..3, any::<u32>()];
        (count, kind(), 0u64..9000, address(), size, thread).prop_map(
            |(count, kind, ip, address, size, thread)| Event {
                count,
                kind,
                ip,
                address,
                size,
                thread,
            },
        )
    }

    proptest! {
        #[test]
        fn is_analysed_without_a_panic_and_its_shares_are_shares(events in prop::collection::vec(event(), 0..300)) {
            let mut analysis = Analysis::new(Thousands, Thresholds { function_share: 0.0, ..Thresholds::default() });
            for event in &events {
                analysis.take(event);
            }
            let findings = analysis.finish();
            prop_assert_eq!(findings.totals.events, events.len() as u64);
            for function in &findings.functions {
                let m = &function.measured;
                let shares = [m.share, m.sequential_share, m.fenced_share, m.reread_share];
                for share in shares.into_iter().chain([m.rewritten_share, m.shared_share]) {
                    prop_assert!((0.0..=1.0).contains(&share), "{:?}", m);
                }
            }
        }
    }
}
