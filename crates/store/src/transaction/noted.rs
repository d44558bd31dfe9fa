//! How a transaction writes to several maps: by the database's commit journal.
//!
//! See [`together`](crate::together) for what is durable when. In between stand `tests/several_maps.rs` and the crash
//! tests `map-several*`.

use super::Part;
use super::commit::{MayWrite, Not, Tickets, rooms, write};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::together::{Noted, Promise};
use crate::watch::HeldRanges;
use std::sync::Arc;
use terrace_durable::commits::MOST_COMMIT_BYTES;
use terrace_durable::superblock::Rule;
use terrace_durable::{Survives, Values};
use terrace_memory::{Memory, Spin};

/// How often room is looked for behind a record before that is taken back.
const TRIED: u32 = 1_000;

/// Whether several maps are written to.
pub(super) fn is_of_several<M: Memory, I: Memory>(parts: &[Part<M, I>]) -> bool {
    parts.iter().filter(|part| part.writes()).count() > 1
}

fn engines_of<M: Memory, I: Memory>(parts: &[Part<M, I>]) -> Vec<&Arc<Engine<M, I>>> {
    parts.iter().filter(|part| part.writes()).map(|part| &part.inner().engine).collect()
}

/// Before anything is held: the writes are not too long, their maps can have them as one, and there is a journal.
///
/// # Errors
/// [`Error::BatchSize`], [`Error::NotTogether`]; those of the journal's medium.
pub(super) fn prepare<M: Memory, I: Memory>(parts: &[Part<M, I>], bytes: &[usize]) -> Result<()> {
    let (all, most) = (bytes.iter().sum(), MOST_COMMIT_BYTES);
    if all > most {
        return Err(Error::BatchSize(all, most));
    }
    let engines = engines_of(parts);
    if let Some(reason) = engines.iter().find_map(|engine| engine.values.stopped()) {
        return Err(Error::ReadOnly(reason.into()));
    }
    promise_of(&engines)?;
    let database = engines[0].database.as_ref().expect("asked above");
    Ok(database.commits.prepare()?)
}

/// Writes everything, so that it is in all maps or in none after a crash, and as safe on return as they promise
/// ([`together`](crate::together)). The keys are reserved until then.
pub(super) fn write_noted<'a, M: Memory, I: Memory>(
    parts: &'a [Part<M, I>],
    bytes: &[usize],
    held: Vec<MayWrite<'a, M>>,
    ranges: &[Option<HeldRanges<'_>>],
) -> std::result::Result<Tickets, Not> {
    let engines = engines_of(parts);
    let does = || {
        let writing = parts.iter().filter(|part| part.writes());
        writing.map(|part| part.batch.to_be_noted()).collect()
    };
    let begin = |survives| {
        let noted = Noted::begin(&engines, survives, does())?.ok_or(Not::Yet)?;
        #[cfg(any(test, feature = "faults"))]
        noted.end_early()?;
        Ok::<_, Not>(noted)
    };
    match promise_of(&engines)? {
        Promise::Prefix => {
            tie(&engines)?;
            write(parts, held)?;
        }
        Promise::Survives(survives @ Survives::Process) => {
            tie(&engines)?;
            let noted = begin(survives)?;
            write_or_end(parts, held, &noted)?;
            engines.iter().try_for_each(|engine| engine.settle_redo())?;
            noted.end()?;
        }
        Promise::Survives(survives @ Survives::Power) => {
            // Others write other keys while the disk is waited for. What this one saw, or writes over, is safe before.
            drop(held);
            commit_seen(parts)?;
            let noted = begin(survives)?;
            let held = match rooms_again(parts, bytes, ranges) {
                Ok(held) => held,
                Err(error) => {
                    noted.end()?;
                    return Err(error);
                }
            };
            let tickets = write_or_end(parts, held, &noted)?;
            for (part, tickets) in parts.iter().zip(tickets) {
                let values = &part.engine().values;
                let mut tickets = tickets.into_iter();
                tickets.try_for_each(|ticket| values.commit(ticket)).map_err(Error::from)?;
                part.engine().settle_redo()?;
            }
            noted.end()?;
        }
    }
    Ok(parts.iter().map(|_| Vec::new()).collect())
}

/// Ties the maps, whose writers are held.
fn tie<M: Memory, I: Memory>(engines: &[&Arc<Engine<M, I>>]) -> std::result::Result<(), Not> {
    // Somebody is about to take a checkpoint of one alone.
    if engines.iter().filter_map(|engine| engine.values.logs()).any(|logs| logs.stays_alone()) {
        return Err(Not::Yet);
    }
    Engine::tie(engines);
    Ok(())
}

/// Writes everything. If that fails no batch has its end, so that nothing of it is there at the next opening: then the
/// record is of no use either.
fn write_or_end<'a, M: Memory, I: Memory>(
    parts: &'a [Part<M, I>],
    held: Vec<MayWrite<'a, M>>,
    noted: &Noted<'_, M, I>,
) -> std::result::Result<Tickets, Not> {
    match write(parts, held) {
        Ok(tickets) => Ok(tickets),
        Err(error) => {
            noted.takes_back()?;
            Err(error.into())
        }
    }
}

/// Writers and room once more, behind the record, if all is as it was when they were had before.
fn rooms_again<'a, M: Memory, I: Memory>(
    parts: &'a [Part<M, I>],
    bytes: &[usize],
    ranges: &[Option<HeldRanges<'_>>],
) -> std::result::Result<Vec<MayWrite<'a, M>>, Not> {
    let spin = Spin::on(parts[0].engine().values.medium().memory());
    for _ in 0..TRIED {
        let Some(held) = rooms(parts, bytes)? else { continue };
        // A map that was cleared meanwhile has ended the moment.
        let check = |part: &Part<M, I>| part.engine().versions.check(part.snapshot.moment().at());
        parts.iter().try_for_each(check)?;
        if promise_of(&engines_of(parts))? != Promise::Survives(Survives::Power) {
            return Err(Not::Yet);
        }
        // Somebody who certifies a range with a key of this one began to hold it while no writer was held. That ends,
        // and waits for nothing here; but there may be one after the other.
        let is_held = |(part, own): (&Part<M, I>, &Option<HeldRanges<'_>>)| {
            let mut keys = part.batch.writes().keys();
            keys.any(|key| part.engine().watches.is_in_held_range(key, own.as_ref()))
        };
        if !parts.iter().zip(ranges).any(is_held) {
            return Ok(held);
        }
        drop(held);
        spin.wait();
    }
    Err(Not::Yet)
}

/// Everything that was written to the maps before is durable on return, where each item counts by itself.
fn commit_seen<M: Memory, I: Memory>(parts: &[Part<M, I>]) -> Result<()> {
    let logs = parts.iter().filter_map(|part| part.engine().values.logs());
    let mut each_counts = logs.filter(|logs| logs.rule() == Rule::All);
    Ok(each_counts.try_for_each(|logs| logs.commit_all())?)
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
    let in_slabs = engines.iter().any(|engine| engine.values.logs().is_none());
    let why = match engines.iter().all(is_of_one_database) {
        true if in_slabs => "one of their maps keeps its values in slabs",
        true if engines.iter().all(|engine| engine.promise() == promise) => return Ok(promise),
        true => {
            "their maps do not promise the same: give them one durability, and one kind of index and medium"
        }
        false => "their maps were not opened through one database: open them by Database::map",
    };
    Err(Error::NotTogether { why })
}
