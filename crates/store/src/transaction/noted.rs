//! How a transaction writes to several maps, or several values in slabs: by the database's commit journal.
//!
//! See [`together`](crate::together) for what is durable when. In between stand the tests `together_tests` of the room
//! and the scenario `map-transactions` of the crash explorer.

use super::Part;
use super::commit::{MayWrite, Not, Tickets, rooms, write};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::together::{Noted, Promise};
use std::sync::Arc;
use terrace_durable::commits::MOST_COMMIT_BYTES;
use terrace_durable::superblock::Rule;
use terrace_durable::{Survives, Values};
use terrace_memory::Memory;

/// Whether a crash could leave a part of what is written: values in slabs are each for itself.
pub(super) fn must_be_noted<M: Memory, I: Memory>(parts: &[Part<M, I>]) -> bool {
    let mut writing = parts.iter().filter(|part| part.writes());
    let first = writing.next();
    let in_slabs = |part: &Part<M, I>| part.engine().values.logs().is_none();
    writing.next().is_some()
        || first.is_some_and(|part| in_slabs(part) && part.batch.writes().len() > 1)
}

/// Writes everything, so that it is in all maps or in none after a crash, and as safe on return as they promise
/// ([`together`](crate::together)). The keys are reserved until then.
pub(super) fn write_noted<'a, M: Memory, I: Memory>(
    parts: &'a [Part<M, I>],
    bytes: &[usize],
    held: Vec<MayWrite<'a, M>>,
) -> std::result::Result<Tickets, Not> {
    let (all, most) = (bytes.iter().sum(), MOST_COMMIT_BYTES);
    if all > most {
        return Err(Error::BatchSize(all, most).into());
    }
    let written: Vec<_> = parts.iter().filter(|part| part.writes()).collect();
    let engines: Vec<_> = written.iter().map(|part| &part.inner().engine).collect();
    let does = || written.iter().map(|part| part.batch.to_be_noted()).collect();
    let begin = |survives| {
        let noted = Noted::begin(&engines, survives, does())?.ok_or(Not::Yet)?;
        #[cfg(any(test, feature = "faults"))]
        noted.end_early()?;
        Ok::<_, Not>(noted)
    };
    match promise_of(&engines)? {
        Promise::Prefix => {
            Engine::tie(&engines);
            write(parts, held)?;
        }
        Promise::Survives(survives @ Survives::Process) => {
            let noted = begin(survives)?;
            Engine::tie(&engines);
            write(parts, held)?;
            engines.iter().try_for_each(|engine| engine.settle_redo())?;
            noted.end()?;
        }
        Promise::Survives(survives @ Survives::Power) => {
            // Others write other keys while the disk is waited for. What this one saw, or writes over, is safe before.
            drop(held);
            commit_seen(parts)?;
            let noted = begin(survives)?;
            let held =
                match rooms(parts, bytes).and_then(|held| check_uncleared(parts).map(|()| held)) {
                    Ok(held) => held,
                    Err(error) => {
                        noted.end()?;
                        return Err(error.into());
                    }
                };
            for (part, tickets) in parts.iter().zip(write(parts, held)?) {
                let values = &part.engine().values;
                let mut tickets = tickets.into_iter();
                tickets.try_for_each(|ticket| values.commit(ticket)).map_err(Error::from)?;
            }
            noted.end()?;
        }
    }
    Ok(parts.iter().map(|_| Vec::new()).collect())
}

/// Everything that was written to the maps before is durable on return, where each item counts by itself.
fn commit_seen<M: Memory, I: Memory>(parts: &[Part<M, I>]) -> Result<()> {
    let logs = parts.iter().filter_map(|part| part.engine().values.logs());
    let mut each_counts = logs.filter(|logs| logs.rule() == Rule::All);
    Ok(each_counts.try_for_each(|logs| logs.commit_all())?)
}

/// A map that was cleared while nobody held it has ended the moment.
fn check_uncleared<M: Memory, I: Memory>(parts: &[Part<M, I>]) -> Result<()> {
    let check = |part: &Part<M, I>| part.engine().versions.check(part.snapshot.moment().at());
    parts.iter().try_for_each(check)
}

/// What all of the maps promise.
///
/// # Errors
/// They do not promise the same, or were not opened through one database.
fn promise_of<M: Memory, I: Memory>(engines: &[&Arc<Engine<M, I>>]) -> Result<Promise> {
    let first = engines[0];
    let is_of_one_database = |engine: &&Arc<Engine<M, I>>| match (&engine.database, &first.database)
    {
        (Some(of), Some(of_first)) => Arc::ptr_eq(&of.commits, &of_first.commits),
        _ => false,
    };
    let promise = first.promise();
    let why = match engines.iter().all(is_of_one_database) {
        true if engines.iter().all(|engine| engine.promise() == promise) => return Ok(promise),
        true => "their maps have different durability: give them the same (Map::set_durability)",
        false => "their maps were not opened through one database: open them by Database::map",
    };
    Err(Error::NotTogether { why })
}
