//! Modelled machines by what people name them: a preset, its file, or a profile.

use super::{Preset, PresetError};
use std::fmt::Display;
use std::path::Path;
use terrace_memory::Profile;

/// A machine as it was named.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The machine.
    pub preset: Preset,
    /// Its file, with the source of every figure.
    pub text: String,
    /// What it was made from.
    pub profile: Option<Profile>,
}

impl Preset {
    /// The machine of a preset's name, or of a file: a preset, or a profile to make one of. A relative path is of the
    /// process's directory.
    ///
    /// # Errors
    /// There is no such preset, or the file cannot be read or is neither: one line that says what would be right.
    pub fn open(name: &str) -> Result<Opened, PresetError> {
        let path = Path::new(name);
        if !name.contains(['/', '.']) && !path.is_file() {
            let preset = Preset::named(name).map_err(|error| {
                PresetError(format!(
                    "{error}; or name a preset's file, or a profile that `terrace probe --out` wrote"
                ))
            })?;
            let text = Preset::text(name).unwrap_or_default().to_string();
            return Ok(Opened { preset, text, profile: None });
        }
        let at = |error: &dyn Display| PresetError(format!("{name}: {error}"));
        let text = std::fs::read_to_string(path).map_err(|error| at(&error))?;
        // A preset is TOML, where nothing begins so.
        if text.trim_start().starts_with('{') {
            let profile = Profile::read(path).map_err(|error| PresetError(error.to_string()))?;
            let made = Preset::of_profile(&profile).map_err(|error| at(&error))?;
            return Ok(Opened { preset: made.preset, text: made.text, profile: Some(profile) });
        }
        let preset = Preset::parse(&text).map_err(|error| at(&error))?;
        Ok(Opened { preset, text, profile: None })
    }
}
