//! What a map must hold after the power failed under it.
//!
//! The guest sends each map one sequence of operations over one connection, so the map goes through
//! one sequence of states: after a power cut it must be in one of them, not before the last operation that
//! was acknowledged, and not behind the last that can have been sent.

use std::collections::BTreeMap;
use std::ops::Range;

/// Operations that may have happened without our knowledge: those the guest leaves unanswered, as its
/// script has it, and those whose acknowledgements, of 21 bytes at the least, were in the 4 KiB that
/// its serial line buffers when the power failed.
const IN_FLIGHT: u64 = 8 + 4096 / 21;

/// The last operation that wrote each key that is there.
type State = BTreeMap<u64, u64>;

/// The history of one map.
#[derive(Clone, Default)]
pub struct Ledger {
    /// Operations that happened, by what was found after each power cut.
    happened: Vec<Range<u64>>,
}

/// The operations on a map with so many keys, as the guest's script makes them.
fn apply(state: &mut State, operation: u64, keys: u64) {
    if operation % 7 == 6 {
        state.remove(&(operation % keys));
    } else {
        state.insert(operation % keys, operation);
    }
}

fn value(operation: u64) -> String {
    format!("{operation}{}", ".".repeat((operation % 61) as usize))
}

/// What `terrace scan` printed, as a state.
fn parse(found: &str) -> Result<State, String> {
    let entry = |line: &str| {
        let (key, text) = line.split_once('\t')?;
        let operation: u64 = text.trim_end_matches('.').parse().ok()?;
        let intact = text == value(operation);
        Some((key.strip_prefix('k')?.parse().ok()?, operation)).filter(|_| intact)
    };
    let mut state = State::new();
    for line in found.lines() {
        let (key, operation) = entry(line).ok_or(format!("`{line}` was never written"))?;
        if state.insert(key, operation).is_some() {
            return Err(format!("key k{key} is there twice"));
        }
    }
    Ok(state)
}

impl Ledger {
    /// Judges what was `found` after a cut in a sequence of operations on `keys` keys, those of
    /// `acknowledged` having been answered; says how many unanswered ones had happened.
    ///
    /// # Errors
    /// What was lost, or invented.
    pub fn judge(
        &mut self,
        keys: u64,
        acknowledged: Range<u64>,
        found: &str,
    ) -> Result<u64, String> {
        let found = parse(found)?;
        let mut state = State::new();
        let happened = self.happened.iter().cloned().flatten();
        happened.for_each(|operation| apply(&mut state, operation, keys));
        let mut end = (state == found).then_some(acknowledged.start);
        for operation in acknowledged.start..acknowledged.end + IN_FLIGHT {
            apply(&mut state, operation, keys);
            if state == found {
                end = Some(operation + 1);
            }
        }
        let Some(end) = end else {
            return Err(format!(
                "no state that the map ever had, with {} operations acknowledged",
                acknowledged.end - acknowledged.start
            ));
        };
        self.happened.push(acknowledged.start..end);
        if end < acknowledged.end {
            return Err(format!(
                "{} of {} acknowledged operations lost",
                acknowledged.end - end,
                acknowledged.end - acknowledged.start
            ));
        }
        Ok(end - acknowledged.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: u64 = 20;

    fn scan_after(operations: impl IntoIterator<Item = u64>) -> String {
        let mut state = State::new();
        operations.into_iter().for_each(|operation| apply(&mut state, operation, KEYS));
        let line = |(key, operation): (&u64, &u64)| format!("k{key}\t{}\n", value(*operation));
        state.iter().map(line).collect()
    }

    #[test]
    fn every_state_from_the_last_acknowledged_to_the_last_sent_is_sound() {
        for unanswered in 0..=IN_FLIGHT {
            let mut ledger = Ledger::default();
            let found = scan_after(0..100 + unanswered);
            assert_eq!(ledger.judge(KEYS, 0..100, &found), Ok(unanswered));
            let found = scan_after((0..100 + unanswered).chain(1000..1050));
            assert_eq!(ledger.judge(KEYS, 1000..1050, &found), Ok(0));
        }
    }

    #[test]
    fn one_acknowledged_operation_too_many_is_reported() {
        let error = Ledger::default().judge(KEYS, 0..101, &scan_after(0..100));
        assert_eq!(error, Err("1 of 101 acknowledged operations lost".into()));
        let error = Ledger::default().judge(KEYS, 0..50, "");
        assert_eq!(error, Err("50 of 50 acknowledged operations lost".into()));
    }

    #[test]
    fn a_state_that_never_existed_is_reported() {
        let sound = scan_after(0..100);
        let without_the_first = sound.split_once('\n').expect("lines").1;
        let of_the_future = scan_after(0..100 + IN_FLIGHT + 1);
        for found in [without_the_first, &of_the_future] {
            let error = Ledger::default().judge(KEYS, 0..100, found).expect_err("not sound");
            assert!(error.starts_with("no state that the map ever had"), "{error}");
        }
        for (line, complaint) in [("k1\t99..\n", "never written"), ("k99\t99", "never written")] {
            let error = Ledger::default().judge(KEYS, 0..100, line).expect_err("not sound");
            assert!(error.contains(complaint), "{error}");
        }
        let twice = format!("{sound}{sound}");
        let error = Ledger::default().judge(KEYS, 0..100, &twice).expect_err("not sound");
        assert!(error.ends_with("is there twice"), "{error}");
    }
}
