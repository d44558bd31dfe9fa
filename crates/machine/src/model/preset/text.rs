//! TOML that people write, read with the line and the field at fault.

use serde::de::DeserializeOwned;

/// Where a text is no `T`: a line, counted from 1, and what is wrong there, in one line that names the field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The line.
    pub line: usize,
    /// The mistake.
    pub what: String,
}

/// Reads a text.
///
/// # Errors
/// [`Wrong`].
pub fn from_toml<T: DeserializeOwned>(text: &str) -> Result<T, Wrong> {
    let wrong = |error: &toml::de::Error, field: Option<String>| {
        let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
        let message = error.message().replace('\n', " ");
        let what = field.map_or(message.clone(), |field| format!("{message} (field `{field}`)"));
        Wrong { line, what }
    };
    let read = toml::Deserializer::parse(text).map_err(|error| wrong(&error, None))?;
    serde_path_to_error::deserialize(read).map_err(|error| {
        let field = error.path().to_string();
        wrong(error.inner(), (field != ".").then_some(field))
    })
}
