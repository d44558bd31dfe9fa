//! BACKUP: a thread of its own makes backups of all databases at one moment while the event loops serve.

use crate::shared::{Shared, unix_time};
use parking_lot::{Condvar, Mutex};
use std::path::{Path, PathBuf};
use terrace::backup::{Backup, BackupError, Progress};

/// The folder in the database's directory that backups are made in.
const FOLDER: &str = "backups";
/// The end of the name of one that has not come to its end.
const PARTIAL: &str = ".partial";

/// The backup that is being made, and what came of the last one.
#[derive(Default)]
pub(crate) struct Backups {
    state: Mutex<State>,
    changed: Condvar,
}

/// What INFO tells.
#[derive(Clone, Default)]
pub(crate) struct State {
    /// The name of the one that is asked for, or being made.
    asked: Option<String>,
    pub(crate) records: u64,
    pub(crate) of_records: u64,
    /// The name of the last one, and what came of it,
    pub(crate) last: Option<(String, Result<Made, String>)>,
    /// in which second since 1970.
    pub(crate) last_s: u64,
    stops: bool,
}

/// A backup that was made.
#[derive(Clone)]
pub(crate) struct Made {
    pub(crate) folder: PathBuf,
    pub(crate) lacks: Vec<String>,
}

impl State {
    pub(crate) fn is_at_work(&self) -> bool {
        self.asked.is_some()
    }
}

impl Backups {
    /// Asks for a backup of this name. False if one is being made.
    pub(crate) fn ask(&self, name: String) -> bool {
        let mut state = self.state.lock();
        let is_free = state.asked.is_none();
        if is_free {
            (state.asked, state.records, state.of_records) = (Some(name), 0, 0);
            self.changed.notify_all();
        }
        is_free
    }

    pub(crate) fn state(&self) -> State {
        self.state.lock().clone()
    }

    /// The one that is being made ends, and no other is begun.
    pub(crate) fn stop(&self) {
        self.state.lock().stops = true;
        self.changed.notify_all();
    }

    /// The next name; none at the end.
    fn next(&self) -> Option<String> {
        let mut state = self.state.lock();
        loop {
            if state.stops {
                return None;
            }
            if let Some(name) = &state.asked {
                return Some(name.clone());
            }
            self.changed.wait(&mut state);
        }
    }

    /// Whether to go on.
    fn tell(&self, progress: &Progress<'_>) -> bool {
        let mut state = self.state.lock();
        (state.records, state.of_records) = (progress.records, progress.of_records);
        !state.stops
    }

    fn done(&self, result: Result<Made, String>) {
        let mut state = self.state.lock();
        state.last = state.asked.take().map(|name| (name, result));
        state.last_s = unix_time().as_secs();
    }
}

/// Whether a backup may have this name: it is a folder's, and leads nowhere else.
pub(crate) fn is_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    (1..=64).contains(&name.len())
        && !name.starts_with('.')
        && !name.ends_with(PARTIAL)
        && name.chars().all(is_plain)
}

/// Makes the backups that are asked for, until the server stops; `id`: its own at the gate.
pub(crate) fn run(shared: &Shared, id: usize) {
    let folder = shared.maps.database().dir().join(FOLDER);
    let folder = std::path::absolute(&folder).unwrap_or(folder);
    while let Some(name) = shared.backups.next() {
        // Nobody else makes any here, while this process has the directory.
        remove_partial(&folder);
        let result = make(shared, id, &folder.join(name)).map_err(|error| error.to_string());
        shared.backups.done(result);
    }
}

/// Removes what a process that was killed has left.
fn remove_partial(folder: &Path) {
    let is_partial = |path: &Path| path.to_str().is_some_and(|name| name.ends_with(PARTIAL));
    let left = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    for path in left.filter(|path| is_partial(path)) {
        // What cannot be removed is in the way of its name alone, which is told.
        let _left = std::fs::remove_dir_all(path);
    }
}

fn make(shared: &Shared, id: usize, folder: &Path) -> Result<Made, BackupError> {
    let database = shared.maps.database();
    // The first one waits for whatever writes or collects; the next one, while it lasts, for nobody.
    let armed = database.snapshot();
    let moment = {
        // Alone: what becomes visible key by key while the others wait is not in it by half.
        let mut turn = shared.gate.enter(id);
        turn.close();
        database.snapshot()
    };
    drop(armed);
    // Maps that nobody here uses are not opened for it: they would keep their memory until the server ends.
    let mut open = |map: &str| database.tier_of(map).map(|_| database.map(map)).transpose();
    let mut tell = |progress: &Progress<'_>| shared.backups.tell(progress);
    let Backup { folder, manifest } =
        Backup::make((database, &moment), folder, &mut open, &mut tell)?;
    Ok(Made { folder, lacks: manifest.lacks })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_a_folder_in_its_place() {
        assert!(["monday", "2026-11-28_04.30", "a"].into_iter().all(is_name));
        let long = "x".repeat(65);
        let others =
            ["", ".", "..", ".hidden", "a/b", "/etc", "a.partial", "a b", "a\0", "\u{e4}", &long];
        assert!(!others.into_iter().any(is_name));
    }
}
