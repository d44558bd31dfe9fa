//! Compares what a recovered store holds with what the ledger allows.

use super::ledger::{Ledger, Noted, Ticket, Write};
use super::value::{Damage, key_named, name_of, read_value};
use crate::Failure;
use std::collections::BTreeMap;
use std::fmt;

/// A store after its recovery.
pub trait Recovered {
    /// The value at a key.
    ///
    /// # Errors
    /// The store could not be asked; the verification ends without a verdict.
    fn get(&mut self, name: &[u8]) -> Result<Option<Vec<u8>>, Failure>;

    /// Calls `each` once for every key and value there is, and returns true; or returns false
    /// where the store cannot be walked.
    ///
    /// # Errors
    /// As for [`Recovered::get`].
    fn walk(&mut self, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<bool, Failure> {
        let _ = each;
        Ok(false)
    }
}

/// Something that must never be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Nothing, where a write had been promised.
    Lost {
        /// Where.
        key: u64,
        /// Writes of which one should have been found.
        allowed: Vec<Ticket>,
    },
    /// A value that a later promised write had replaced.
    Stale {
        /// Where.
        key: u64,
        /// The write found.
        found: Ticket,
        /// Writes of which one should have been found; 0 for an absent key.
        allowed: Vec<Ticket>,
    },
    /// A value, where a promised deletion had removed it.
    Returned {
        /// Where.
        key: u64,
        /// The write found.
        found: Ticket,
    },
    /// A value from a write that was never asked for.
    Phantom {
        /// Where.
        key: u64,
        /// What the value says it was written by.
        found: Ticket,
    },
    /// A torn or changed value.
    Damaged {
        /// Where.
        key: u64,
        /// How.
        damage: Damage,
    },
    /// A whole value that was written to another key.
    Misplaced {
        /// Where.
        key: u64,
        /// The key it was written to.
        written_to: u64,
    },
    /// Some keys of a batch were written and others not.
    Torn {
        /// The batch.
        batch: Ticket,
        /// A key that holds its write.
        written: u64,
        /// A key that does not, nor anything later.
        unwritten: u64,
    },
    /// A walk came by a key twice.
    Twice {
        /// Which.
        key: u64,
    },
    /// A walk and a lookup disagree on a key.
    Walked {
        /// Which.
        key: u64,
    },
    /// A walk came by a key that nobody wrote.
    Stranger {
        /// Its name.
        name: Vec<u8>,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost { key, allowed } => {
                write!(f, "key {key}: lost: nothing found, promised one of {allowed:?}")
            }
            Self::Stale { key, found, allowed } => {
                write!(f, "key {key}: stale: found {found}, promised one of {allowed:?}")
            }
            Self::Returned { key, found } => {
                write!(f, "key {key}: deleted, yet found with the value of {found}")
            }
            Self::Phantom { key, found } => {
                write!(f, "key {key}: found with a value of {found}, which nobody wrote")
            }
            Self::Damaged { key, damage } => write!(f, "key {key}: damaged: {damage}"),
            Self::Misplaced { key, written_to } => {
                write!(f, "key {key}: holds a value written to key {written_to}")
            }
            Self::Torn { batch, written, unwritten } => {
                write!(f, "batch {batch}: key {written} was written, key {unwritten} was not")
            }
            Self::Twice { key } => write!(f, "key {key}: walked by twice"),
            Self::Walked { key } => write!(f, "key {key}: a walk and a lookup disagree"),
            Self::Stranger { name } => {
                write!(f, "\"{}\": found, and nobody wrote it", name.escape_ascii())
            }
        }
    }
}

/// What a verification found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Keys looked up: all ever written.
    pub keys: u64,
    /// Of these, found with a value.
    pub present: u64,
    /// Writes in flight at the kill, batches counted once.
    pub in_flight: u64,
    /// Keys at which one of them was found.
    pub in_flight_found: u64,
    /// Whether the store was walked as well.
    pub walked: bool,
    /// What must not be; empty for a sound store.
    pub violations: Vec<Violation>,
}

impl Report {
    /// Whether everything found was allowed.
    pub fn is_sound(&self) -> bool {
        self.violations.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { keys, present, in_flight, in_flight_found, walked, violations } = self;
        let walked = if *walked { "walked" } else { "not walked" };
        write!(f, "{present} of {keys} keys present, {in_flight} writes were in flight ")?;
        write!(f, "({in_flight_found} keys hold one), {walked}, {} violations", violations.len())?;
        violations.iter().take(20).try_for_each(|violation| write!(f, "\n  {violation}"))
    }
}

/// What a lookup found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyVerdict {
    Absent,
    Whole(Ticket),
    Broken,
}

/// Looks up every key of `ledger` in `store`, walks it if it can be, and settles the ledger on
/// what was found: it is then ready for the next round on the same store.
///
/// The store must be quiet, and whoever wrote to it before dead.
///
/// # Errors
/// The store could not be asked. The ledger is then as it was.
pub fn verify(ledger: &mut Ledger, store: &mut impl Recovered) -> Result<Report, Failure> {
    let mut report = Report { in_flight: ledger.in_flight.len() as u64, ..Report::default() };
    let mut found = BTreeMap::new();
    for (key, noted) in &ledger.keys {
        let value = store.get(&name_of(*key))?;
        let at = look(*key, value.as_deref(), noted, ledger.clock(), &mut report.violations);
        report.keys += 1;
        report.present += u64::from(at != KeyVerdict::Absent);
        let in_flight = |write: &Noted| write.acknowledged_at.is_none();
        report.in_flight_found += u64::from(
            noted.iter().any(|write| in_flight(write) && at == KeyVerdict::Whole(write.ticket)),
        );
        found.insert(*key, at);
    }
    walk(store, &found, &mut report)?;
    report.violations.extend(torn_batches(ledger, &found));
    for (key, at) in found {
        let ticket = match at {
            KeyVerdict::Whole(ticket) => Some(ticket),
            // A broken value has been reported; it is to stay broken or go.
            KeyVerdict::Absent | KeyVerdict::Broken => None,
        };
        ledger.settle(key, ticket);
    }
    ledger.in_flight.clear();
    Ok(report)
}

/// Judges one lookup.
fn look(
    key: u64,
    value: Option<&[u8]>,
    noted: &[Noted],
    clock: u64,
    violations: &mut Vec<Violation>,
) -> KeyVerdict {
    let puts = noted.iter().filter(|write| write.write == Write::Put);
    let puts: Vec<Ticket> = puts.map(|write| write.ticket).collect();
    let may_be_absent = noted.iter().any(|write| write.write == Write::Delete);
    let Some(value) = value else {
        if !may_be_absent {
            violations.push(Violation::Lost { key, allowed: puts });
        }
        return KeyVerdict::Absent;
    };
    let stamp = match read_value(value) {
        Ok(stamp) if stamp.key == key => stamp,
        Ok(stamp) => {
            violations.push(Violation::Misplaced { key, written_to: stamp.key });
            return KeyVerdict::Broken;
        }
        Err(damage) => {
            violations.push(Violation::Damaged { key, damage });
            return KeyVerdict::Broken;
        }
    };
    let found = stamp.ticket;
    if puts.contains(&found) {
        return KeyVerdict::Whole(found);
    }
    violations.push(if found.0 == 0 || found.0 > clock {
        Violation::Phantom { key, found }
    } else if puts.is_empty() {
        Violation::Returned { key, found }
    } else {
        let mut allowed = puts;
        allowed.extend(may_be_absent.then_some(Ticket(0)));
        Violation::Stale { key, found, allowed }
    });
    KeyVerdict::Whole(found)
}

/// Walks the store and compares with the lookups.
fn walk(
    store: &mut impl Recovered,
    found: &BTreeMap<u64, KeyVerdict>,
    report: &mut Report,
) -> Result<(), Failure> {
    let mut seen: BTreeMap<u64, KeyVerdict> = BTreeMap::new();
    let violations = &mut report.violations;
    report.walked = store.walk(&mut |name, value| {
        let Some(key) = key_named(name).filter(|key| found.contains_key(key)) else {
            violations.push(Violation::Stranger { name: name.to_vec() });
            return;
        };
        let at = match read_value(value) {
            Ok(stamp) if stamp.key == key => KeyVerdict::Whole(stamp.ticket),
            _ => KeyVerdict::Broken,
        };
        if seen.insert(key, at).is_some() {
            violations.push(Violation::Twice { key });
        }
    })?;
    if report.walked {
        let differs =
            |(key, at): &(&u64, &KeyVerdict)| seen.get(key).unwrap_or(&KeyVerdict::Absent) != *at;
        let differing = found.iter().filter(differs);
        violations.extend(differing.map(|(key, _)| Violation::Walked { key: *key }));
    }
    Ok(())
}

/// Batches in flight of which some keys were written and others not.
fn torn_batches(ledger: &Ledger, found: &BTreeMap<u64, KeyVerdict>) -> Vec<Violation> {
    let mut torn = Vec::new();
    for (batch, keys) in batches(ledger) {
        let holds = |key: &u64, wanted: &dyn Fn(&Noted) -> bool| {
            let noted = &ledger.keys[key];
            let at = found.get(key).copied().unwrap_or(KeyVerdict::Absent);
            // Of an absent key it is known what removed it only if there is no doubt.
            let mut fits = noted.iter().filter(|write| match at {
                KeyVerdict::Whole(ticket) => write.write == Write::Put && write.ticket == ticket,
                KeyVerdict::Absent => write.write == Write::Delete,
                KeyVerdict::Broken => false,
            });
            let first = fits.next();
            fits.next().is_none() && first.is_some_and(wanted)
        };
        let written = keys.iter().find(|key| holds(key, &|write| write.ticket == batch));
        let before = |write: &Noted| write.acknowledged_at.is_some_and(|at| at < batch.0);
        let unwritten = keys.iter().find(|key| holds(key, &before));
        if let (Some(written), Some(unwritten)) = (written, unwritten) {
            torn.push(Violation::Torn { batch, written: *written, unwritten: *unwritten });
        }
    }
    torn
}

/// Batches of several keys that may be found or not, with their keys.
fn batches(ledger: &Ledger) -> BTreeMap<Ticket, Vec<u64>> {
    let mut batches: BTreeMap<Ticket, Vec<u64>> = BTreeMap::new();
    for (key, noted) in &ledger.keys {
        for write in noted.iter().filter(|write| !write.kept) {
            batches.entry(write.ticket).or_default().push(*key);
        }
    }
    batches.retain(|_, keys| keys.len() > 1);
    batches
}
