//! The copy benchmark on every engine of this machine, and what it refuses.

use terrace_movement::{BenchError, CopyTask, DsaQueues, EngineKind, Workload};

fn workload(tasks: Vec<CopyTask>) -> Workload {
    Workload { name: None, iterations: 3, tasks }
}

#[test]
fn every_engine_is_measured_single_and_in_batches_by_several_threads() {
    let has_device = EngineKind::Dsa.open(0).is_ok();
    for engine in EngineKind::ALL {
        for batch in [1, 300] {
            let task = CopyTask { batch, repetitions: 5, ..CopyTask::new(engine, 5_000) };
            match workload(vec![task.clone(), task.clone(), task]).run() {
                Ok(report) => {
                    assert_eq!((report.engines.len(), report.iterations.len()), (3, 3));
                    assert!(
                        report.gib_s_least <= report.gib_s && report.gib_s <= report.gib_s_most
                    );
                    for iteration in &report.iterations {
                        let slowest = iteration.task_ns.iter().max().unwrap();
                        assert!(iteration.total_ns >= *slowest && iteration.gib_s > 0.0);
                    }
                }
                Err(BenchError::Absent { kind: EngineKind::Dsa, why }) => {
                    assert!(!has_device && !why.is_empty());
                }
                Err(error) => panic!("{engine}: {error}"),
            }
        }
    }
}

#[test]
fn a_missing_device_is_told_with_the_way_out() {
    let found = DsaQueues::discover();
    let told = EngineKind::Dsa.open(u16::MAX).unwrap_err().to_string();
    match found.none {
        Some(why) => assert_eq!(told, format!("no engine `dsa` here: {why}")),
        None => assert!(told.contains("65535") || told.contains("wq"), "{told}"),
    }
}

#[test]
fn what_cannot_be_measured_is_refused_before_any_memory_is_taken() {
    let node = CopyTask { target_node: Some(999), ..CopyTask::new(EngineKind::Cpu, 100) };
    let refused = workload(vec![CopyTask::new(EngineKind::Cpu, 100), node]).run().unwrap_err();
    assert!(matches!(refused, BenchError::Node { node: 999, .. }), "{refused}");
    assert!(refused.to_string().starts_with("tasks[1]: no memory on node 999"), "{refused}");
    let huge = CopyTask { batch: 4096, ..CopyTask::new(EngineKind::Cpu, 1 << 40) };
    let refused = workload(vec![huge; 256]).run().unwrap_err();
    assert!(matches!(refused, BenchError::Memory { .. }), "{refused}");
    let none = workload(Vec::new()).run().unwrap_err();
    assert_eq!(none.to_string(), "tasks is 0; from 1 to 256");
}

#[test]
fn memory_is_there_before_the_time_begins() {
    let report = workload(vec![CopyTask::new(EngineKind::Streaming, 64 << 20)]).run().unwrap();
    // Of 16384 pages for each iteration; what else this process does meanwhile is counted too.
    assert!(report.page_faults < 5_000, "{}", report.page_faults);
    assert!(report.submitters_busy > 0.2, "the thread copies itself: {}", report.submitters_busy);
}
