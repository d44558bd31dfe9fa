//! Epochs, one step at a time; under every order that memory allows they are tried in `machine`'s `tests/weak_memory`.

use crate::list::epochs::{Epochs, SESSIONS};

#[test]
fn a_slot_waits_for_the_operations_that_may_hold_it() {
    let epochs = Epochs::new();
    let (reader, _) = epochs.join().expect("a session");
    let (writer, mut retired) = epochs.join().expect("a session");
    let mut freed = Vec::new();
    epochs.enter(reader);
    epochs.enter(writer);
    epochs.retire(&mut retired, 7, |slot| freed.push(slot));
    epochs.leave(writer);
    epochs.advance(&mut retired, |slot| freed.push(slot));
    assert!(freed.is_empty(), "the reader may hold it");
    epochs.leave(reader);
    epochs.advance(&mut retired, |slot| freed.push(slot));
    assert_eq!(freed, [7]);
}

#[test]
fn the_next_session_frees_what_its_predecessor_retired() {
    let epochs = Epochs::new();
    let (number, mut retired) = epochs.join().expect("a session");
    epochs.retire(&mut retired, 9, |_| panic!("too early"));
    epochs.part(number, &mut retired);
    let (again, mut retired) = epochs.join().expect("a session");
    assert_eq!(again, number);
    let mut freed = Vec::new();
    epochs.advance(&mut retired, |slot| freed.push(slot));
    assert_eq!(freed, [9]);
}

#[test]
fn there_are_so_many_sessions_and_no_more() {
    let epochs = Epochs::new();
    let all: Vec<usize> = std::iter::from_fn(|| Some(epochs.join()?.0)).collect();
    assert_eq!(all, (0..SESSIONS).collect::<Vec<_>>());
}
