//! The analysis alone, without a tracer: how many events a second one processor judges. Measured with
//! `cargo test --release -p terrace-dirtbuster --test suite keeps_up -- --nocapture`; a test build has no bound.

use std::time::Instant;
use terrace_dirtbuster::{Analysis, Event, Kind, Sink, Symbols, Thresholds};

/// Two thirds reads, as most programs have; a stream, a hot buffer and a table at random, with calls and fences.
fn feed(analysis: &mut Analysis<Symbols>, rounds: u64) -> u64 {
    let mut count = 0;
    let mut events = 0;
    let mut random: u64 = 7;
    let mut send = |kind, ip, address, size| {
        count += 2;
        events += 1;
        analysis.take(&Event { count, kind, ip, address, size, thread: 0 });
    };
    for round in 0..rounds {
        send(Kind::Call, 0x40_0000, 0x40_1000, 8);
        for i in 0..64u64 {
            let at = round * 512 + 8 * i;
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            send(Kind::Read, 0x40_1000, 0x1000_0000 + at, 8);
            send(Kind::Read, 0x40_1008, 0x2000_0000 + at % (1 << 14), 8);
            send(Kind::Write, 0x40_1010, 0x3000_0000 + at % (1 << 26), 8);
            send(Kind::Read, 0x40_1018, 0x5000_0000 + 8 * ((random >> 33) % (1 << 18)), 8);
            send(Kind::Write, 0x40_1020, 0x2000_0000 + at % (1 << 14), 8);
            send(Kind::Read, 0x40_1028, 0x7fff_0000 + 8 * (i % 16), 8);
        }
        send(Kind::Fence, 0x40_1030, 0, 0);
        send(Kind::Return, 0x40_1038, 0, 8);
    }
    events
}

#[test]
fn a_mixed_stream_is_judged() {
    let rounds = if cfg!(debug_assertions) { 2_000 } else { 100_000 };
    let mut analysis = Analysis::new(Symbols::default(), Thresholds::default());
    let start = Instant::now();
    let events = feed(&mut analysis, rounds);
    let findings = analysis.finish();
    let rate = events as f64 / start.elapsed().as_secs_f64() / 1e6;
    println!("{events} events, {rate:.1} million a second");
    assert_eq!(findings.totals.events, events);
    assert_eq!(findings.functions.len(), 1);
    assert_eq!(findings.functions[0].places.len(), 2, "the stream and the hot buffer");
}
