//! The fluid model of copy engines beside closed forms, and presets of engines that are refused.

use terrace_machine::Preset;
use terrace_machine::fluid::{Copied, Copies, Copy, Mover, Submitter, World, WorldOptions};

const GIB: u64 = 1 << 30;

fn xeon_max() -> Preset {
    Preset::named("xeon-max").expect("a preset of this crate")
}

/// Memories of the preset by the numbers that the paper uses.
fn nodes<const N: usize>(numbers: [u16; N]) -> [usize; N] {
    let world = World::new(&xeon_max(), WorldOptions::default()).expect("it has engines");
    numbers.map(|number| world.numbered(number).expect("a node of the machine"))
}

fn by_engine(engine: usize, bytes: u64, count: u32, from: usize, to: usize) -> Submitter {
    let copy = Copy { bytes, count, from, to };
    Submitter { tile: engine, mover: Mover::Engine(engine), copy, repetitions: 1 }
}

fn run(preset: &Preset, submitters: &[Submitter]) -> Copied {
    Copies(submitters.to_vec()).run(preset).expect("it has engines")
}

fn is_near(found: f64, expected: f64) -> bool {
    (found / expected - 1.0).abs() < 1e-6
}

#[test]
fn one_copy_takes_its_submission_its_bytes_and_its_end() {
    let (preset, [ddr]) = (xeon_max(), nodes([0]));
    let spec = preset.engines.clone().expect("engines");
    let overhead = spec.submit_ns + spec.dispatch_ns + spec.start_ns + spec.finish_ns;
    for bytes in [64, 4096, 1 << 20, GIB] {
        let found = run(&preset, &[by_engine(0, bytes, 1, ddr, ddr)]);
        let expected = overhead + bytes as f64 / spec.gb_s;
        assert!(is_near(found.total_ns, expected), "{bytes}: {found:?}, expected {expected}");
        assert_eq!((found.executed, found.bytes, found.retries), (1, bytes, 0));
        assert!(is_near(found.work_ns, spec.submit_ns));
    }
}

#[test]
fn a_batch_pays_once_for_its_submission_and_once_for_each_beginning() {
    let (mut preset, [ddr]) = (xeon_max(), nodes([0]));
    let spec = preset.engines.as_mut().expect("engines");
    // So that beginnings are what limits it: a descriptor is over before the next one begins.
    spec.start_ns = 0.0;
    let spec = spec.clone();
    let (bytes, count) = (1024, 100u32);
    let found = run(&preset, &[by_engine(0, bytes, count, ddr, ddr)]);
    let once = spec.submit_ns + spec.fetch_ns + spec.finish_ns + bytes as f64 / spec.gb_s;
    let expected = once + f64::from(count) * (spec.add_ns + spec.dispatch_ns);
    assert!(is_near(found.total_ns, expected), "{found:?}, expected {expected}");
    assert_eq!(found.executed, u64::from(count));
    // One by one they pay everything each time.
    let one = Submitter { repetitions: count, ..by_engine(0, bytes, 1, ddr, ddr) };
    let single = run(&preset, &[one]);
    let each = spec.submit_ns + spec.dispatch_ns + spec.finish_ns + bytes as f64 / spec.gb_s;
    assert!(is_near(single.total_ns, f64::from(count) * each), "{single:?}");
}

#[test]
fn engines_share_what_their_source_gives_and_no_more() {
    let (preset, [ddr, hbm, other]) = (xeon_max(), nodes([0, 11, 15]));
    let spec = preset.engines.clone().expect("engines");
    let ddr_gb_s = preset.node[ddr].read_gb_s;
    let of = |engines: usize, to: usize| {
        let each = |engine| by_engine(engine, GIB, 1, ddr, to);
        run(&preset, &(0..engines).map(each).collect::<Vec<_>>())
    };
    for to in [hbm, other] {
        // Within what a submission takes of a copy of 1 GiB.
        let is_close = |found: &Copied, gb_s: f64| {
            (found.bytes as f64 / found.total_ns / gb_s - 1.0).abs() < 1e-3
        };
        assert!(is_close(&of(1, to), spec.gb_s), "{:?}", of(1, to));
        assert!(is_close(&of(2, to), (2.0 * spec.gb_s).min(ddr_gb_s)), "{:?}", of(2, to));
        assert!(is_close(&of(8, to), ddr_gb_s), "{:?}", of(8, to));
    }
    // The control: with memories without a limit, eight engines copy eight times as much as one.
    let all: Vec<Submitter> = (0..4).map(|engine| by_engine(engine, GIB, 1, ddr, hbm)).collect();
    let options = WorldOptions { unlimited_memories: true, ..WorldOptions::default() };
    let free = Copies(all).run_with(&preset, options).expect("engines");
    assert!((free.bytes as f64 / free.total_ns / (4.0 * spec.gb_s) - 1.0).abs() < 1e-3, "{free:?}");
}

#[test]
fn a_queue_that_is_full_refuses_and_nothing_is_lost() {
    let (mut preset, [ddr]) = (xeon_max(), nodes([0]));
    let spec = preset.engines.as_mut().expect("engines");
    (spec.queue, spec.in_flight) = (2, 1);
    let one = Submitter { repetitions: 50, ..by_engine(0, 1 << 16, 1, ddr, ddr) };
    let found = run(&preset, &[one; 12]);
    assert!(found.retries > 0, "{found:?}");
    assert_eq!((found.executed, found.bytes), (600, 600 << 16));
    let alone = run(&preset, &[one]);
    assert_eq!(alone.retries, 0);
    assert!(found.gib_s() > alone.gib_s(), "submissions overlap with copies");
}

#[test]
fn cores_copy_by_their_streams_until_memory_is_the_limit() {
    let (preset, [ddr, hbm]) = (xeon_max(), nodes([0, 8]));
    let copy = Copy { bytes: GIB, count: 1, from: ddr, to: hbm };
    let of = |cores: usize| {
        let one = Submitter { tile: 0, mover: Mover::Core, copy, repetitions: 1 };
        let found = run(&preset, &vec![one; cores]);
        found.bytes as f64 / found.total_ns
    };
    let stream = (preset.processor.prefetch_lines * 64) as f64 / preset.node[hbm].read_ns;
    assert!(is_near(of(1), stream), "{} {stream}", of(1));
    assert!(is_near(of(2), 2.0 * stream));
    assert!(is_near(of(12), preset.node[ddr].read_gb_s), "{}", of(12));
}

#[test]
fn engines_without_figures_or_with_impossible_ones_are_refused_by_field() {
    let text = Preset::text("xeon-max").expect("a preset of this crate");
    let with = |field: &str, value: &str| {
        let section = text.find("[engines]").expect("its engines");
        let (before, engines) = text.split_at(section);
        let line =
            engines.lines().find(|line| line.split(" = ").next() == Some(field)).expect("a field");
        let engines = engines.replacen(line, &format!("{field} = {value}"), 1);
        Preset::parse(&format!("{before}{engines}")).expect_err(field).to_string()
    };
    for (field, value, valid) in [
        ("tiles", "3", "a divisor of processor.sockets"),
        ("tiles", "0", "a divisor of processor.sockets"),
        ("gb_s", "0.0", "more than 0"),
        ("gb_s", "inf", "more than 0"),
        ("package_read_gb_s", "-1.0", "more than 0"),
        ("write_cost", "nan", "more than 0"),
        ("queue", "0", "1 to 65536"),
        ("in_flight", "65537", "1 to 65536"),
        ("submit_ns", "-1.0", "0 to 1e9"),
        ("finish_ns", "nan", "0 to 1e9"),
        ("retry_ns", "0.0", "1 to 1e9"),
        ("package_ns", "18.0", "at least tile_ns"),
    ] {
        let told = with(field, value);
        assert!(
            told.contains(&format!("xeon-max: engines.{field} = ")) && told.contains(valid),
            "{told}"
        );
        assert!(!told.contains('\n'), "{told}");
    }
    let missing = text.replacen("\nfinish_ns = ", "\n# finish_ns = ", 1);
    let told = Preset::parse(&missing).expect_err("a field is missing").to_string();
    assert!(told.contains("missing field `finish_ns`"), "{told}");
    let told = with("queue", "\"long\"");
    assert!(told.contains("engines.queue"), "{told}");
    let none = Preset::named("cxl").expect("a preset");
    let told = World::new(&none, WorldOptions::default()).expect_err("no engines").to_string();
    assert_eq!(told, "cxl: it has no [engines]; xeon-max has");
}
