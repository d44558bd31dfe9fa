//! Profiles in files.

use super::{FORMAT, Profile, ProfileError, VERSION};
use std::fs;
use std::io::{self, Write};
use std::path::Path;

impl Profile {
    /// Reads a profile.
    ///
    /// # Errors
    /// [`ProfileError::File`], or [`ProfileError::Malformed`] with the field at fault.
    pub fn read(path: &Path) -> Result<Profile, ProfileError> {
        let text = fs::read_to_string(path).map_err(|source| at(path, source))?;
        let mut json = serde_json::Deserializer::from_str(&text);
        let malformed = |field: String, reason: String| ProfileError::Malformed {
            path: path.into(),
            field,
            reason,
        };
        let profile: Profile = serde_path_to_error::deserialize(&mut json)
            .map_err(|error| malformed(error.path().to_string(), error.inner().to_string()))?;
        json.end().map_err(|error| malformed(".".into(), error.to_string()))?;
        if profile.format != FORMAT {
            let reason = format!("it is `{}`, a profile has `{FORMAT}`", profile.format);
            return Err(malformed("format".into(), reason));
        }
        if profile.version != VERSION {
            let reason = format!("it is {}, known here is {VERSION}", profile.version);
            return Err(malformed("version".into(), reason));
        }
        Ok(profile)
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
