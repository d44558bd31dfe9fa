//! Dependencies that stay built between runs of continuous integration, which start from a fresh clone each time.
//!
//! A run has one of two slots in the cache folder as its target folder, locked for as long as the run lasts; a run that
//! finds both taken, or no folder to write to, builds in the clone as if there were none. What is left in a slot are
//! packages of a registry and nothing of ours: a clone's files may be older than what another clone built of them.
//! A slot counts only if the run before it ended in order and every file has the length it had then; otherwise, and
//! under another compiler or lock file, it is emptied.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashSet};
use std::fs::{self, File};
use std::hash::{Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

const SLOTS: usize = 2;
/// A slot that is larger after a run is given up.
const SLOT_BYTES_MAX: u64 = 4 << 30;
/// What a slot's dependencies depend on beside the compiler.
const SETTINGS: [&str; 3] = ["Cargo.lock", "Cargo.toml", ".cargo/config.toml"];
/// Written last, gone while a run is under way: what the slot's files were when all was well.
const MARK: &str = "whole";
/// Folders of a slot that are kept as they are: environments of clients, fetched over the network.
const FETCHED: [&str; 2] = ["clients-venv", "clients-ycsb"];

/// A slot that is this run's until it is dropped.
pub struct Kept {
    pub folder: PathBuf,
    settings: u64,
    packages: HashSet<String>,
    /// Its lock goes when it is closed, however this process ends.
    _lock: File,
}

/// A slot for this run. `Err` says why there is none; a run does without.
pub fn claim(root: &Path) -> Result<Kept, String> {
    let cache = cache_folder().ok_or("neither XDG_CACHE_HOME nor HOME is set")?;
    let settings = settings(root).map_err(|e| format!("settings cannot be read: {e}"))?;
    let packages = packages(&root.join("Cargo.lock"))?;
    claim_in(&cache, settings, &packages).map_err(|e| format!("{}: {e}", cache.display()))
}

fn cache_folder() -> Option<PathBuf> {
    let folder = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let cache = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")))?;
    Some(cache.join("terrace-tests"))
}

fn claim_in(cache: &Path, settings: u64, packages: &HashSet<String>) -> io::Result<Kept> {
    fs::create_dir_all(cache)?;
    for slot in 0..SLOTS {
        // The file of a lock is never deleted: two runs would lock two files of one name.
        let lock = File::create(cache.join(format!("{slot}.lock")))?;
        if lock.try_lock().is_err() {
            continue;
        }
        let folder = cache.join(slot.to_string());
        let packages = packages.clone();
        let kept = Kept { folder, settings, packages, _lock: lock };
        kept.begin()?;
        return Ok(kept);
    }
    Err(io::Error::other(format!("all {SLOTS} slots are in use by other runs")))
}

impl Kept {
    /// Takes what the last run left, if it is whole, and empties the slot if it is not.
    fn begin(&self) -> io::Result<()> {
        let is_whole = self.is_whole();
        match fs::remove_file(self.folder.join(MARK)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        if !is_whole && self.folder.exists() {
            fs::remove_dir_all(&self.folder)?;
        }
        fs::create_dir_all(&self.folder)
    }

    fn is_whole(&self) -> bool {
        let mark = fs::read_to_string(self.folder.join(MARK));
        matches!((mark, self.mark()), (Ok(found), Ok(expected)) if found == expected)
    }

    /// Leaves the dependencies for the next run.
    pub fn end(self) -> io::Result<()> {
        self.prune()?;
        if bytes(&self.folder)? > SLOT_BYTES_MAX {
            return fs::remove_dir_all(&self.folder);
        }
        let mark = self.mark()?;
        // What the mark vouches for is on the disk before the mark is.
        let synced = Command::new("sync").arg("-f").arg(&self.folder).status();
        if synced.is_ok_and(|status| status.success()) {
            fs::write(self.folder.join(MARK), mark)?;
        }
        Ok(())
    }

    /// What was built of a package is known by the hash in its names: those of the registry's stay.
    fn prune(&self) -> io::Result<()> {
        for entry in entries(&self.folder)? {
            let profile = self.folder.join(&entry);
            if FETCHED.contains(&entry.as_str()) || entry == ".rustc_info.json" {
                continue;
            }
            if !profile.join(".fingerprint").is_dir() {
                remove(&profile)?;
                continue;
            }
            let units = entries(&profile.join(".fingerprint"))?;
            let hashes: HashSet<&str> = units
                .iter()
                .filter_map(|unit| unit.rsplit_once('-'))
                .filter(|(package, _)| self.packages.contains(*package))
                .map(|(_, hash)| hash)
                .collect();
            for part in entries(&profile)? {
                let folder = profile.join(&part);
                if ![".fingerprint", "build", "deps"].contains(&part.as_str()) {
                    remove(&folder)?;
                    continue;
                }
                for name in entries(&folder)? {
                    let stem = name.split_once('.').map_or(name.as_str(), |(stem, _)| stem);
                    if !stem.rsplit_once('-').is_some_and(|(_, hash)| hashes.contains(hash)) {
                        remove(&folder.join(name))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn mark(&self) -> io::Result<String> {
        let mut all = BTreeSet::new();
        walk(&self.folder, &mut |path, bytes| {
            if path.file_name().is_some_and(|name| name != MARK) {
                all.insert((path.to_path_buf(), bytes));
            }
        })?;
        let mut hasher = DefaultHasher::new();
        all.hash(&mut hasher);
        Ok(format!("{:016x} {:016x}\n", self.settings, hasher.finish()))
    }
}

/// The compiler and what it is told.
fn settings(root: &Path) -> io::Result<u64> {
    let mut hasher = DefaultHasher::new();
    for program in ["cargo", "rustc"] {
        Command::new(program).arg("-vV").output()?.stdout.hash(&mut hasher);
    }
    for file in SETTINGS {
        fs::read(root.join(file))?.hash(&mut hasher);
    }
    for (name, value) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name == "RUSTFLAGS" || name.starts_with("CARGO_PROFILE_") || name == "CC" {
            (name, value).hash(&mut hasher);
        }
    }
    Ok(hasher.finish())
}

/// Names of the packages that come from a registry, and are what the lock file says whoever builds them.
fn packages(lock: &Path) -> Result<HashSet<String>, String> {
    let text = fs::read_to_string(lock).map_err(|e| format!("{}: {e}", lock.display()))?;
    let lock: toml::Table = text.parse().map_err(|e| format!("{}: {e}", lock.display()))?;
    let all = lock.get("package").and_then(toml::Value::as_array).into_iter().flatten();
    let fetched = all.filter(|package| package.get("source").is_some());
    let names = fetched.filter_map(|package| package.get("name")?.as_str().map(String::from));
    Ok(names.collect())
}

fn bytes(folder: &Path) -> io::Result<u64> {
    let mut sum = 0;
    walk(folder, &mut |_, bytes| sum += bytes)?;
    Ok(sum)
}

fn walk(folder: &Path, see: &mut dyn FnMut(&Path, u64)) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            walk(&entry.path(), see)?;
        } else {
            see(&entry.path(), entry.metadata()?.len());
        }
    }
    Ok(())
}

/// Names in a folder; none where there is no folder.
fn entries(folder: &Path) -> io::Result<Vec<String>> {
    match fs::read_dir(folder) {
        Ok(all) => all.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(e),
    }
}

fn remove(path: &Path) -> io::Result<()> {
    if path.is_dir() && !path.is_symlink() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let folder = std::env::temp_dir().join(format!("kept-{name}-{}", std::process::id()));
            let _none = fs::remove_dir_all(&folder);
            Folder(folder)
        }
        fn claim(&self, settings: u64) -> io::Result<Kept> {
            claim_in(&self.0, settings, &HashSet::from(["serde".to_string()]))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _gone = fs::remove_dir_all(&self.0);
        }
    }

    const DEPENDENCY: [&str; 3] = [
        "debug/.fingerprint/serde-0123456789abcdef/lib-serde",
        "debug/deps/libserde-0123456789abcdef.rlib",
        "debug/build/serde-0123456789abcdef/output",
    ];
    const OURS: [&str; 5] = [
        "debug/.fingerprint/terrace-store-fedcba9876543210/lib-terrace_store",
        "debug/deps/libterrace_store-fedcba9876543210.rlib",
        "debug/incremental/terrace_store-x/s/dep-graph.bin",
        "debug/terrace",
        "tmp/scratch",
    ];

    fn build(kept: &Kept) {
        for name in DEPENDENCY.iter().chain(&OURS) {
            let path = kept.folder.join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            fs::write(path, b"built").expect("a file");
        }
    }

    fn is_there(kept: &Kept, names: &[&str]) -> bool {
        names.iter().all(|name| kept.folder.join(name).exists())
    }

    #[test]
    fn dependencies_stay_and_nothing_of_ours() {
        let cache = Folder::new("stay");
        let first = cache.claim(1).expect("a slot");
        build(&first);
        first.end().expect("kept");
        let second = cache.claim(1).expect("a slot");
        assert!(is_there(&second, &DEPENDENCY));
        assert!(OURS.iter().all(|name| !second.folder.join(name).exists()));
    }

    #[test]
    fn an_incomplete_cache_is_rebuilt() {
        let cache = Folder::new("whole");
        for what in ["a run that did not end", "another length", "a file that is gone"] {
            let kept = cache.claim(1).expect("a slot");
            build(&kept);
            let mark = kept.mark().expect("a mark");
            match what {
                "another length" => fs::write(kept.folder.join(DEPENDENCY[1]), b"bui"),
                "a file that is gone" => fs::remove_file(kept.folder.join(DEPENDENCY[2])),
                _ => Ok(()),
            }
            .expect("spoilt");
            if what != "a run that did not end" {
                fs::write(kept.folder.join(MARK), mark).expect("a file");
            }
            drop(kept);
            let next = cache.claim(1).expect("a slot");
            assert!(!is_there(&next, &DEPENDENCY[..1]), "{what}");
        }
        let kept = cache.claim(1).expect("a slot");
        build(&kept);
        kept.end().expect("kept");
        let other = cache.claim(2).expect("a slot");
        assert!(!is_there(&other, &DEPENDENCY[..1]), "other settings");
    }

    #[test]
    fn runs_that_overlap_have_slots_of_their_own_and_the_third_has_none() {
        let cache = Folder::new("overlap");
        let (first, second) = (cache.claim(1).expect("a slot"), cache.claim(1).expect("a slot"));
        assert_ne!(first.folder, second.folder);
        assert!(cache.claim(1).is_err());
        drop(first);
        // A process that another test begins just now has a copy of the lock until it executes its program.
        let is_free = (0..100).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            cache.claim(1).is_ok()
        });
        assert!(is_free);
    }

    #[test]
    fn a_cache_that_cannot_be_written_is_an_error_and_no_panic() {
        let cache = Folder::new("refused");
        fs::write(&cache.0, b"a file in its place").expect("a file");
        assert!(cache.claim(1).is_err());
        fs::remove_file(&cache.0).expect("a file");
    }

    #[test]
    fn packages_of_the_registry_are_those_of_the_lock_file_with_a_source() {
        let found = packages(&crate::workspace_root().join("Cargo.lock")).expect("a lock file");
        assert!(found.contains("serde") && !found.contains("terrace-store"), "{found:?}");
    }
}
