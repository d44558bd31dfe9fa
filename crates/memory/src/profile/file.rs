//! Profiles in files.

use super::{FORMAT, Profile, ProfileError, VERSION};
use std::fs;
use std::io::{self, Write};
use std::path::Path;

impl Profile {
    /// Reads a profile.
    ///
    /// # Errors
    /// [`ProfileError::File`], [`ProfileError::NotJson`], or [`ProfileError::Malformed`] with the field at fault.
    pub fn read(path: &Path) -> Result<Profile, ProfileError> {
        let text = fs::read_to_string(path).map_err(|source| at(path, source))?;
        let mut json = serde_json::Deserializer::from_str(&text);
        let malformed = |field: String, reason: String| ProfileError::Malformed {
            path: path.into(),
            field,
            reason,
        };
        let not_json = |reason: String| ProfileError::NotJson { path: path.into(), reason };
        let profile: Profile = serde_path_to_error::deserialize(&mut json).map_err(|error| {
            let reason = error.inner().to_string();
            match (error.inner().is_data(), error.path().to_string()) {
                (false, _) => not_json(reason),
                (true, field) if field == "." => malformed("profile".into(), reason),
                (true, field) => malformed(field, reason),
            }
        })?;
        json.end().map_err(|error| not_json(error.to_string()))?;
        if profile.format != FORMAT {
            let reason = format!("it is `{}`, a profile has `{FORMAT}`", profile.format);
            return Err(malformed("format".into(), reason));
        }
        if profile.version != VERSION {
            let reason = format!("it is {}, known here is {VERSION}", profile.version);
            return Err(malformed("version".into(), reason));
        }
        if profile.nodes.is_empty() {
            return Err(malformed("nodes".into(), "no memory was measured".into()));
        }
        if let Some((field, name)) = profile.named_twice() {
            return Err(malformed(field, format!("`{name}` is the name of a node before it")));
        }
        match profile.impossible() {
            None => Ok(profile),
            Some((field, reason)) => Err(malformed(field, reason)),
        }
    }

    /// The first node of a name that another has: settings and refinements go by names.
    fn named_twice(&self) -> Option<(String, &str)> {
        let mut nodes = self.nodes.iter().enumerate();
        let found = nodes.find(|(number, node)| {
            self.nodes[..*number].iter().any(|other| other.name == node.name)
        });
        found.map(|(number, node)| (format!("nodes[{number}].name"), node.name.as_str()))
    }

    /// A setting that nothing could have been measured at: its field, and why.
    fn impossible(&self) -> Option<(String, String)> {
        let most = self.machine.threads;
        let threads = |field: &str, found: usize| {
            let why = format!("it is {found}, the machine has 1 to {most} threads");
            (found == 0 || found > most).then(|| (format!("{field}.threads"), why))
        };
        let at_least = |field: String, found: u64, least: u64| {
            (found < least).then(|| (field, format!("it is {found}, at least {least}")))
        };
        for (number, node) in self.nodes.iter().enumerate() {
            let at = |part: &str, place: usize| format!("nodes[{number}].{part}[{place}]");
            let latency = node.latency.points().iter().enumerate();
            let mut found =
                latency.map(|(n, p)| at_least(at("latency", n) + ".bytes", p.bytes, 128));
            let bandwidth = node.bandwidth.points().iter().enumerate().map(|(n, p)| {
                let field = at("bandwidth", n);
                threads(&field, p.threads).or(at_least(field + ".piece_bytes", p.piece_bytes, 1))
            });
            let loaded = node.loaded.points().iter().enumerate();
            let loaded = loaded.map(|(n, p)| threads(&at("loaded", n), p.threads));
            let stores = node.stores.points().iter().enumerate();
            let mut others = stores
                .map(|(n, p)| at_least(at("stores", n) + ".piece_bytes", p.piece_bytes, 1))
                .chain(bandwidth)
                .chain(loaded);
            if let Some(found) = found.find_map(|found| found).or_else(|| others.find_map(|f| f)) {
                return Some(found);
            }
        }
        None
    }

    /// Writes the profile in place of whatever was there, whole or not at all.
    ///
    /// # Errors
    /// [`ProfileError::File`].
    pub fn write(&self, path: &Path) -> Result<(), ProfileError> {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let name = path.file_name().ok_or_else(|| at(path, io::ErrorKind::InvalidInput.into()))?;
        let mut beside = std::ffi::OsString::from(".");
        beside.push(name);
        beside.push(".new");
        let beside = folder.join(beside);
        let written = (|| {
            let mut file = fs::File::create(&beside)?;
            serde_json::to_writer_pretty(&mut file, self)?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            fs::rename(&beside, path)
        })();
        written.map_err(|source| {
            // Nothing half done stays; that it cannot be removed would say nothing new.
            let _ = fs::remove_file(&beside);
            at(path, source)
        })
    }
}

fn at(path: &Path, source: io::Error) -> ProfileError {
    ProfileError::File { path: path.into(), source }
}
