//! A ledger that survives the kill of the process that keeps it: each note is a line in a file,
//! handed to the operating system before the noted call goes on.
//!
//! | line | note |
//! |---|---|
//! | `clock N` | number of the last note, at the head |
//! | `found KEY TICKET` | a settled key; ticket 0 for absent |
//! | `begin KEY+ KEY- ...` | a ticket: keys put (`+`) and deleted (`-`) |
//! | `ack TICKET` | acknowledged |
//! | `sync`, `synced MARK` | a sync begun, and its acknowledgement |
//!
//! A line without its end was cut by the kill before the call it was for: it counts as not there.

use super::ledger::{CrashRecord, Ledger, Promise, SyncMark, Ticket, Write};
use crate::Failure;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A ledger and the file it is written to.
#[derive(Debug)]
pub struct Journal(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    file: File,
    ledger: Ledger,
    line: String,
}

impl Journal {
    /// Opens the journal at `path`, made if absent, and goes on where it ended.
    ///
    /// # Errors
    /// The file cannot be read or written, or holds a line that is no note.
    pub fn open(path: &Path, promise: Promise) -> Result<Self, Failure> {
        let ledger = match fs::exists(path)? {
            true => Self::read(path, promise)?,
            false => Ledger::new(promise),
        };
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        // A line that the kill truncated would swallow the next one.
        let whole = fs::read(path)?.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        file.set_len(whole as u64)?;
        Ok(Self(Mutex::new(Inner { file, ledger, line: String::new() })))
    }

    /// The ledger that the journal at `path` tells, its process being dead.
    ///
    /// # Errors
    /// The file cannot be read, or holds a line that is no note.
    pub fn read(path: &Path, promise: Promise) -> Result<Ledger, Failure> {
        let text = fs::read_to_string(path)?;
        let mut ledger = Ledger::new(promise);
        let mut settled = Vec::new();
        let mut clock = 0;
        for (number, line) in text.split_inclusive('\n').enumerate() {
            let Some(line) = line.strip_suffix('\n') else {
                break;
            };
            let bad = || format!("{}:{}: no note: {line}", path.display(), number + 1);
            let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
            match kind {
                "clock" => clock = rest.parse().map_err(|_| bad())?,
                "found" => settled.push(parse_found(rest).ok_or_else(bad)?),
                _ => {
                    if clock > 0 || !settled.is_empty() {
                        ledger = Ledger::settled(promise, clock, settled.drain(..));
                        clock = 0;
                    }
                    replay(&mut ledger, kind, rest).ok_or_else(bad)?;
                }
            }
        }
        if clock > 0 || !settled.is_empty() {
            ledger = Ledger::settled(promise, clock, settled.into_iter());
        }
        Ok(ledger)
    }

    /// Replaces the journal at `path` by a settled ledger, as a verification leaves it.
    ///
    /// # Errors
    /// The file cannot be written; the old one is then whole.
    pub fn replace(path: &Path, ledger: &Ledger) -> Result<(), Failure> {
        let mut text = format!("clock {}\n", ledger.clock());
        for (key, noted) in &ledger.keys {
            let [only] = noted.as_slice() else {
                return Err(format!("key {key} is not settled").into());
            };
            writeln!(text, "found {key} {}", only.ticket.0)?;
        }
        let new = path.with_extension("new");
        fs::write(&new, text)?;
        Ok(fs::rename(new, path)?)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn parse_found(rest: &str) -> Option<(u64, Option<Ticket>)> {
    let (key, ticket) = rest.split_once(' ')?;
    let ticket: u64 = ticket.parse().ok()?;
    Some((key.parse().ok()?, (ticket > 0).then_some(Ticket(ticket))))
}

/// Makes in `ledger` the note of a line.
fn replay(ledger: &mut Ledger, kind: &str, rest: &str) -> Option<()> {
    match kind {
        "begin" => {
            let writes = rest.split(' ').map(|write| {
                let (key, kind) = write.split_at_checked(write.len().checked_sub(1)?)?;
                let write = match kind {
                    "+" => Write::Put,
                    "-" => Write::Delete,
                    _ => return None,
                };
                Some((key.parse().ok()?, write))
            });
            ledger.begin(&writes.collect::<Option<Vec<_>>>()?);
        }
        "ack" => ledger.acknowledge(Ticket(rest.parse().ok()?)),
        "sync" => {
            ledger.begin_sync();
        }
        "synced" => ledger.synced(SyncMark::at(rest.parse().ok()?)),
        _ => return None,
    }
    Some(())
}

impl Inner {
    /// Hands the line to the operating system.
    fn write_line(&mut self) -> Result<(), Failure> {
        self.line.push('\n');
        // One call: concurrent readers and the kill see the line whole or truncated, never mixed.
        let written = self.file.write_all(self.line.as_bytes());
        self.line.clear();
        Ok(written?)
    }
}

impl CrashRecord for Journal {
    fn begin(&self, writes: &[(u64, Write)]) -> Result<Ticket, Failure> {
        let mut inner = self.lock();
        inner.line.push_str("begin");
        for (key, write) in writes {
            let kind = if *write == Write::Put { '+' } else { '-' };
            write!(inner.line, " {key}{kind}")?;
        }
        inner.write_line()?;
        Ok(inner.ledger.begin(writes))
    }

    fn acknowledge(&self, ticket: Ticket) -> Result<(), Failure> {
        let mut inner = self.lock();
        write!(inner.line, "ack {}", ticket.0)?;
        inner.write_line()?;
        inner.ledger.acknowledge(ticket);
        Ok(())
    }

    fn begin_sync(&self) -> Result<SyncMark, Failure> {
        let mut inner = self.lock();
        inner.line.push_str("sync");
        inner.write_line()?;
        Ok(inner.ledger.begin_sync())
    }

    fn synced(&self, mark: SyncMark) -> Result<(), Failure> {
        let mut inner = self.lock();
        write!(inner.line, "synced {}", mark.place())?;
        inner.write_line()?;
        inner.ledger.synced(mark);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What may be found, key by key.
    fn candidates(ledger: &Ledger) -> Vec<(u64, Vec<(u64, bool)>)> {
        let noted = ledger.keys.iter();
        noted.map(|(k, n)| (*k, n.iter().map(|w| (w.ticket.0, w.kept)).collect())).collect()
    }

    #[test]
    fn a_journal_truncated_anywhere_yields_what_came_before() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let mut expected = vec![(0, candidates(&Ledger::new(Promise::OnSync)))];
        let journal = Journal::open(&path, Promise::OnSync).unwrap();
        let mut note = |journal: &Journal| {
            let length = fs::metadata(&path).unwrap().len();
            expected.push((length, candidates(&journal.lock().ledger)));
        };
        let first = journal.begin(&[(1, Write::Put), (2, Write::Delete)]).unwrap();
        note(&journal);
        journal.acknowledge(first).unwrap();
        note(&journal);
        let mark = journal.begin_sync().unwrap();
        note(&journal);
        journal.synced(mark).unwrap();
        note(&journal);
        journal.begin(&[(1, Write::Delete)]).unwrap();
        note(&journal);
        let whole = fs::read(&path).unwrap();
        for cut in 0..=whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            let told = candidates(&Journal::read(&path, Promise::OnSync).unwrap());
            let last = expected.iter().rev().find(|(length, _)| *length <= cut as u64).unwrap();
            assert_eq!(told, last.1, "cut at {cut}");
            let journal = Journal::open(&path, Promise::OnSync).unwrap();
            journal.begin(&[(77, Write::Put)]).unwrap();
            let ledger = Journal::read(&path, Promise::OnSync).unwrap();
            assert_eq!(ledger.keys().filter(|key| *key == 77).count(), 1);
        }
    }

    #[test]
    fn a_replaced_journal_goes_on() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let found = [(1, Some(Ticket(5))), (2, None)].into_iter();
        Journal::replace(&path, &Ledger::settled(Promise::OnAcknowledge, 9, found)).unwrap();
        let journal = Journal::open(&path, Promise::OnAcknowledge).unwrap();
        let ticket = journal.begin(&[(2, Write::Put)]).unwrap();
        assert_eq!(ticket, Ticket(10));
        drop(journal);
        let ledger = Journal::read(&path, Promise::OnAcknowledge).unwrap();
        assert_eq!(candidates(&ledger), [(1, vec![(5, true)]), (2, vec![(0, true), (10, false)])]);
    }

    #[test]
    fn lines_that_are_no_notes_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        for line in ["begin", "begin x+", "begin 1*", "ack", "found 1", "other"] {
            fs::write(&path, format!("begin 1+\n{line}\n")).unwrap();
            let error = Journal::read(&path, Promise::OnAcknowledge).unwrap_err();
            assert!(error.to_string().contains(":2:"), "{error}");
        }
    }
}
