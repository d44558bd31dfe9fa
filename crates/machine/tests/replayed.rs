//! Recorded accesses on modelled machines: the same as if the structure had run there; copies and
//! litmus probes on both kinds of test bed.

use terrace_machine::copy::{Copy, CopyMethod};
use terrace_machine::litmus::{LitmusForm, PROBES, Probe};
use terrace_machine::model::{Player, Stage};
use terrace_machine::test_bed::{Here, TestBed};
use terrace_machine::{Access, Counted, Machine, Modelled, Preset, Recorded, Tape, What, Without};
use terrace_memory::{Backing, Domain, Memory, Part, Region, Topology, lab};

const BYTES: u64 = 4 << 20;

/// Some of everything that a structure does, at places that look random.
fn work(memory: &impl Memory) {
    let mut buffer = [0; 4096];
    for round in 0..300u64 {
        let at = round.wrapping_mul(0x9e37_79b9) % (BYTES / 4096) * 4096;
        // SAFETY: inside and aligned; one thread.
        unsafe {
            memory.store(at, round);
            memory.write(at + 64, &[7; 200]);
            memory.persist(at, 264);
            memory.stream(at + 1024, &[8; 256]);
            memory.fence();
            memory.prefetch(at + 2048);
            let _exchanged = memory.compare_exchange(at, round, round + 1);
            memory.read(at, &mut buffer[..if round % 2 == 0 { 4096 } else { 100 }]);
            memory.clean(at, 264);
            // Of two borrows one is looked at.
            lab::borrow(memory, at + 512, 512);
            lab::looked_at(memory, at + 512, lab::borrow(memory, at + 512, 200).len() as u64);
            memory.demote(at, 64);
            memory.load(at);
            memory.load_line(at + 128);
        }
    }
}

fn recorded() -> Vec<Access> {
    let region = Region::reserve(BYTES, Backing::Anonymous).expect("memory").declared(Domain::Adr);
    region.commit(0, BYTES).expect("memory");
    let tape = Tape::new();
    let memory = Recorded::new(region.native(), 0, &tape);
    work(&memory);
    let ((), accesses) = tape.record(|| work(&memory));
    accesses
}

#[test]
fn a_recording_takes_as_long_and_moves_as_much_as_the_structure_itself() {
    let accesses = recorded();
    assert_eq!(accesses.iter().filter(|access| access.what == What::Exchange).count(), 300);
    for name in ["optane-001", "optane-004", "enzian-fast"] {
        let preset = Preset::named(name).expect("built in");
        let node = preset.node.last().expect("a node").name.clone();
        let run = Machine::new(&preset, 1, 7);
        work(&run.memory(&node, BYTES, Domain::Adr).expect("memory"));
        let played = Machine::new(&preset, 1, 7);
        let stage = Stage::new(played.room(&node, BYTES).expect("a node"));
        let hand = [&accesses[..]];
        played.run_steps(&mut [Player::new(&played, vec![stage], &hand)]);
        assert_eq!(played.elapsed(), run.elapsed(), "{name}");
        let counts = |machine: &Machine| machine.node_counts(&node).expect("a node");
        assert_eq!(counts(&played), counts(&run), "{name}");
    }
}

#[test]
fn a_wrapper_changes_neither_time_nor_traffic() {
    let preset = Preset::named("optane-004").expect("built in");
    let run = |work: &dyn Fn(Modelled)| {
        let machine = Machine::new(&preset, 1, 7);
        work(machine.memory("pmem0", BYTES, Domain::Adr).expect("memory"));
        (machine.elapsed(), machine.node_counts("pmem0").expect("a node"))
    };
    let bare = run(&|memory| work(&memory));
    assert_eq!(run(&|memory| work(&Counted::new(memory))), bare, "Counted");
    assert_eq!(run(&|memory| work(&Without::nothing(memory))), bare, "Without");
    assert_eq!(run(&|memory| work(&Recorded::new(memory, 0, &Tape::new()))), bare, "Recorded");
    assert_eq!(run(&|memory| work(&Part::new(memory, 0, BYTES))), bare, "Part");
    assert_ne!(
        run(&|memory| work(&Without::nothing(memory).fences())),
        bare,
        "fences have a price"
    );
}

#[test]
fn private_lines_are_not_transferred_between_threads() {
    let accesses: Vec<Access> =
        (0..500).map(|_| Access { what: What::Store, place: 0, bytes: 8, at: 0 }).collect();
    let preset = Preset::named("optane-001").expect("built in");
    let taken = |own: bool| {
        let machine = Machine::new(&preset, 2, 7);
        let room = machine.room("pmem0", 4096).expect("a node");
        let stage = || match own {
            true => Stage::new(room).with_own(0..64, machine.room("pmem0", 64).expect("a node")),
            false => Stage::new(room),
        };
        let hand: Vec<&[Access]> = vec![&accesses];
        let mut players = [0, 1].map(|_| Player::new(&machine, vec![stage()], &hand).working(50.0));
        machine.run_steps(&mut players);
        assert!(players.iter().all(|player| player.took_ps().len() == 1));
        (0..2).map(|thread| machine.thread_counts(thread).from_cores).sum::<u64>()
    };
    assert!(taken(false) > 50, "{}", taken(false));
    assert_eq!(taken(true), 0);
}

#[test]
fn a_copy_moves_less_than_the_memory_reads() {
    let preset = Preset::named("two-socket").expect("built in").with_caches_divided(32);
    let node = &preset.node[0];
    let copy = |threads| Copy {
        from: &node.name,
        to: &node.name,
        engine: CopyMethod::Store,
        bytes: 8 << 20,
        threads,
        times: 1,
    };
    let [one, four] = [1, 4].map(|threads| copy(threads).run(&preset).expect("copied"));
    assert!(one > 0.5 && four > 1.5 * one && four < node.read_gb_s, "{one} and {four} GB/s");
    assert!(copy(1000).run(&preset).is_err(), "so many threads there are not");
}

#[test]
fn broken_probes_fail_on_real_processors_and_sound_ones_do_not() {
    let here = Here::new(Topology::read().expect("a topology")).expect("processors");
    if here.most_threads() < 2 {
        return;
    }
    let node = &here.nodes()[0];
    let run = |probe: Probe, form| probe.run(&here, node, form, 1).expect("probed").forbidden;
    for probe in PROBES {
        assert_eq!(run(probe, LitmusForm::Sound), 0, "{probe:?}");
        // On a busy machine the two threads may not run at once at first.
        assert!((0..200).any(|_| run(probe, LitmusForm::Broken) > 0), "{probe:?} sees nothing");
    }
}
