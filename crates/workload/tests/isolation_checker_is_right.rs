//! The checker of isolation finds every fault that a simulated store has, and nothing in one that has none.

use terrace_workload::isolation::drive::{Load, drive};
use terrace_workload::isolation::simulate::{FAULTS, Fault, Simulated, history};
use terrace_workload::isolation::{
    Anomaly, Because, Level, Operation, Outcome, Transaction, check,
};

const LOAD: Load = Load { keys: 6, clients: 5, transactions: 60, operations: 4, ranges: true };

fn checked(fault: Fault, certifies: bool, level: Level, seed: u64) -> Result<(), Anomaly> {
    let load = Load { ranges: seed.is_multiple_of(2), ..LOAD };
    let store = Simulated::new(fault, certifies);
    check(&history(&store, load, seed).expect("it does not fail"), level)
}

#[test]
fn nothing_is_found_where_nothing_is_wrong() {
    for seed in 0..100 {
        let (snapshot, serializable) = (Level::Snapshot, Level::Serializable);
        assert_eq!(checked(Fault::None, false, snapshot, seed), Ok(()), "seed {seed}");
        assert_eq!(checked(Fault::None, true, serializable, seed), Ok(()), "seed {seed}");
    }
    let store = Simulated::new(Fault::None, true);
    let load = Load { transactions: 500, ..LOAD };
    let history = drive(&store, load, 1).expect("it does not fail");
    assert_eq!(history.len(), 2501);
    assert_eq!(check(&history, Level::Serializable), Ok(()));
}

#[test]
fn each_fault_is_found() {
    for fault in FAULTS {
        let found: Vec<_> =
            (0..50).filter_map(|seed| checked(fault, false, Level::Snapshot, seed).err()).collect();
        assert!(found.len() >= 20, "{fault:?} was found in {} of 50", found.len());
        assert!(found.iter().all(|anomaly| anomaly.to_string().contains('T')));
        let is_as_expected = |anomaly: &Anomaly| match fault {
            Fault::OwnWritesUnseen | Fault::Phantom => matches!(anomaly, Anomaly::Changed { .. }),
            Fault::KeptAbort => matches!(anomaly, Anomaly::Aborted { .. }),
            // The list that was put last does not have what the other appended.
            Fault::LostUpdate => matches!(anomaly, Anomaly::Diverged { .. }),
            Fault::ReadCommitted | Fault::DirtyRead => true,
            _ => matches!(anomaly, Anomaly::Cycle(_)),
        };
        assert!(found.iter().any(is_as_expected), "{fault:?}: {found:?}");
    }
}

/// Snapshot isolation allows write skew; the serializable level does not.
#[test]
fn write_skew_is_told_from_the_rest() {
    let found: Vec<_> = (0..50)
        .filter_map(|seed| checked(Fault::None, false, Level::Serializable, seed).err())
        .collect();
    assert!(found.len() >= 25, "found in {} of 50", found.len());
    for anomaly in found {
        let Anomaly::Cycle(steps) = anomaly else { panic!("{anomaly}") };
        let was_before =
            |(_, because): &(usize, Because)| matches!(because, Because::ReadBefore(_));
        let is_next = |at: usize| was_before(&steps[(at + 1) % steps.len()]);
        assert!((0..steps.len()).any(|at| was_before(&steps[at]) && is_next(at)), "{steps:?}");
    }
}

fn append(key: u64, element: u64) -> Operation {
    Operation::Append { key, element }
}

fn read(key: u64, list: &[u64]) -> Operation {
    Operation::Read { key, list: list.to_vec() }
}

fn committed(began: u64, ended: u64, operations: &[Operation]) -> Transaction {
    let operations = operations.to_vec();
    Transaction { began, ended, outcome: Outcome::Committed, operations }
}

fn found(history: &[Transaction]) -> Anomaly {
    check(history, Level::Snapshot).expect_err("an anomaly")
}

#[test]
fn what_is_wrong_without_a_cycle_is_named() {
    let writer = committed(0, 1, &[append(1, 10), append(1, 11)]);
    let with = |list: &[u64]| found(&[writer.clone(), committed(2, 3, &[read(1, list)])]);
    assert_eq!(with(&[10, 11, 12]), Anomaly::Invented { reader: 1, key: 1, element: 12 });
    assert_eq!(with(&[10, 11, 10]), Anomaly::Twice { reader: 1, key: 1, element: 10 });
    assert_eq!(with(&[10]), Anomaly::Part { reader: 1, writer: 0, key: 1 });
    assert_eq!(with(&[11]), Anomaly::Part { reader: 1, writer: 0, key: 1 });
    assert_eq!(with(&[11, 10]), Anomaly::Part { reader: 1, writer: 0, key: 1 });

    let aborted = Transaction { outcome: Outcome::Aborted, ..writer.clone() };
    let all = [aborted, committed(2, 3, &[read(1, &[10, 11])])];
    assert_eq!(found(&all), Anomaly::Aborted { reader: 1, writer: 0, key: 1 });

    let twice = committed(2, 3, &[read(1, &[]), read(1, &[10, 11])]);
    assert_eq!(found(&[writer.clone(), twice]), Anomaly::Changed { reader: 1, key: 1 });
    let forgets = committed(2, 3, &[append(1, 12), read(1, &[10, 11])]);
    assert_eq!(found(&[writer.clone(), forgets]), Anomaly::Changed { reader: 1, key: 1 });

    let other = committed(0, 1, &[append(1, 20)]);
    let one = committed(2, 3, &[read(1, &[10, 11, 20])]);
    let two = committed(2, 3, &[read(1, &[20])]);
    let diverged = Anomaly::Diverged { reader: 3, other: 2, key: 1 };
    assert_eq!(found(&[writer, other, one, two]), diverged);
}

#[test]
fn real_time_counts_and_an_unknown_end_is_none() {
    let writer = committed(0, 1, &[append(1, 10)]);
    let stale = committed(2, 3, &[read(1, &[])]);
    let last = committed(4, 5, &[read(1, &[10])]);
    let anomaly = found(&[writer.clone(), stale.clone(), last.clone()]);
    let steps = vec![(0, Because::Time), (1, Because::ReadBefore(1))];
    let other = vec![(1, Because::ReadBefore(1)), (0, Because::Time)];
    assert!([Anomaly::Cycle(steps), Anomaly::Cycle(other)].contains(&anomaly), "{anomaly}");
    assert!(anomaly.to_string().contains("T1 (it read key 1 before the write of) "), "{anomaly}");

    let unknown = Transaction { outcome: Outcome::Unknown, ..writer };
    assert_eq!(check(&[unknown.clone(), stale.clone(), last], Level::Serializable), Ok(()));
    assert_eq!(check(&[unknown, stale], Level::Serializable), Ok(()));
}

/// A commit that nobody finds is missed by whoever begins later.
#[test]
fn a_commit_that_is_lost_is_found() {
    let writer = committed(0, 1, &[append(1, 10)]);
    assert!(matches!(
        found(&[writer, committed(2, 3, &[read(1, &[])])]),
        Anomaly::Cycle(steps) if steps.len() == 2
    ));
}
