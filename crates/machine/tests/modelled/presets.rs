//! Presets: every one makes a machine, bad ones are refused in a line, and the model agrees with what was published.

use super::{Shorthand, optane, preset};
use terrace_machine::model::preset::Measured;
use terrace_machine::model::{Machine, Modelled, Preset};
use terrace_memory::Domain;

#[test]
fn every_preset_makes_a_machine_of_all_its_threads() {
    for name in Preset::names() {
        let preset = preset(name);
        assert_eq!(preset.name, name);
        let machine = Machine::new(&preset, preset.threads(), 7);
        let memories: Vec<Modelled> = preset
            .node
            .iter()
            .map(|node| machine.memory(&node.name, 1 << 20, Domain::None).unwrap())
            .collect();
        let mut steps: Vec<_> = (0..preset.threads() as u64)
            .map(|thread| {
                let memories = &memories;
                let mut left = 20;
                move || {
                    let memory = &memories[thread as usize % memories.len()];
                    memory.put((thread * 64 + left * 4096) % (1 << 20), thread);
                    left -= 1;
                    left > 0
                }
            })
            .collect();
        let time = machine.run_steps(&mut steps);
        println!("{name}: {} threads, {time:?}", preset.threads());
        assert!(time.as_nanos() > 0);
    }
}

/// The preset with another value where a field is given first.
fn with(text: &str, field: &str, value: &str) -> String {
    let is_it = |line: &&str| line.split(" = ").next() == Some(field);
    let line = text.lines().find(is_it).expect("a field of every preset");
    text.replacen(&format!("\n{line}\n"), &format!("\n{field} = {value}\n"), 1)
}

#[test]
fn a_preset_is_refused_in_one_line() {
    let text = Preset::text("cxl").unwrap();
    let cases = [
        (
            text.replace("clock_mhz", "clock_ghz"),
            "unknown field `clock_ghz`, expected one of `sockets`",
        ),
        (
            text.replace("\"eager\"", "\"soon\""),
            "unknown variant `soon`, expected `eager` or `lazy`",
        ),
        (text.replace("sockets = 1", "sockets = 500"), "it must be 1 to 128"),
        (with(text, "read_ns", "\"fast\""), "expected f64 (field `node[0].read_ns`)"),
        (text.replace("ways = 12", "ways = 77"), "cache[0].ways = 77"),
        (text.replace("channels = 1  ", "channels = 0  "), "at least one channel"),
    ];
    for (text, expected) in cases {
        let error = Preset::parse(&text).unwrap_err().to_string();
        assert!(error.contains(expected) && !error.contains('\n'), "{error}");
    }
    for (field, found) in [
        ("read_ns", "-107.0"),
        ("read_ns", "nan"),
        ("stream_ns", "inf"),
        ("read_gb_s", "nan"),
        ("write_gb_s", "0.0"),
        ("core_to_core_ns", "-1.0"),
        ("latency_ns", "nan"),
        ("bytes", "0"),
        ("threads_per_core", "0"),
        ("clock_mhz", "0"),
        ("write_queue", "0"),
        ("write_back_queue", "0"),
    ] {
        let error = Preset::parse(&with(text, field, found)).unwrap_err().to_string();
        let found = found.trim_end_matches(".0").replace("nan", "NaN");
        assert!(error.contains(&format!("{field} = {found}; it must be")), "{error}");
    }
    let (front, back) = text.rsplit_once("name = \"cxl\"").expect("its second node");
    let twice = format!("{front}name = \"dram0\"{back}");
    let error = Preset::parse(&twice).unwrap_err().to_string();
    assert!(error.contains("name = dram0; it must be of this node alone"), "{error}");
    let error = Preset::named("optane").unwrap_err().to_string();
    assert!(error.contains("optane-004, enzian-fast"), "{error}");
    let machine = optane(1);
    let error = machine.memory("hbm0", 4096, Domain::None).unwrap_err().to_string();
    assert!(error.contains("there are dram0, pmem0"), "{error}");
}

#[test]
fn the_model_agrees_with_the_reference_device() {
    let table = terrace_machine::model::calibrate::calibrate("optane-004").unwrap();
    println!("{table}");
    let misses: Vec<_> = table.checks.iter().filter(|check| !check.agrees()).collect();
    assert!(misses.is_empty(), "{misses:?}");
}

#[test]
fn a_generator_is_of_the_preset_that_has_its_figures() {
    use terrace_machine::model::calibrate::Generator;
    let found = Generator::of_gugnani(&preset("optane-001")).unwrap();
    assert!(found.write_ns > 0.0 && found.item_ns > 0.0, "{found:?}");
    let error = Generator::of_gugnani(&preset("cxl")).unwrap_err().to_string();
    assert_eq!(error, "cxl: it has no [generator]");
    let text = Preset::text("optane-001").unwrap();
    let twice = Preset::parse(&with(text, "item_ns", "212.0")).unwrap();
    let slower = Generator::of_gugnani(&twice).unwrap();
    assert!((slower.item_ns - found.item_ns - 106.0).abs() < 1e-6, "{slower:?}");
    for (field, value) in [("read_64_mib_s", "0.0"), ("item_ns", "-1.0")] {
        let error = Preset::parse(&with(text, field, value)).unwrap_err().to_string();
        assert!(error.contains(&format!("generator.{field}")), "{error}");
    }
}

#[test]
fn this_machine_can_be_modelled_too() {
    let topology = terrace_memory::Topology::read().unwrap();
    let given = Measured {
        cache_ns: [2.0, 6.0, 40.0],
        random_read_ns: 120.0,
        read_gb_s: 10.0,
        write_gb_s: 8.0,
        write_back_ns: 60.0,
        stream_ns: 90.0,
    };
    let preset = Preset::of_machine(&topology, &given);
    let machine = Machine::new(&preset, 1, 7);
    let memory = machine.memory("dram0", 1 << 20, Domain::None).unwrap();
    memory.look(0);
    assert_eq!(machine.now_ps(), 120_000);
    memory.look(0);
    assert_eq!(machine.now_ps(), 122_000);
}
