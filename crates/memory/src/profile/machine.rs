//! The machine that a profile is of.

use super::ProfileError;
use crate::size::ByteSize;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The machine that a profile is of. Two profiles are of one machine if all of this is equal, the processor as far as
/// both tell it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProfiledMachine {
    /// Its name; of a modelled machine, its preset's.
    pub name: String,
    /// Whether it is modelled and the times are virtual.
    pub is_modelled: bool,
    /// The model of its processor, where the system tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor: Option<String>,
    /// Processors that could be used.
    pub threads: usize,
    /// The largest cache, bytes.
    pub cache_bytes: u64,
    /// The names of its own memories; tiers of files may come and go.
    pub nodes: Vec<String>,
}

impl ProfiledMachine {
    /// The first field by which this is another machine, with what both have there.
    fn difference(&self, other: &ProfiledMachine) -> Option<(&'static str, String, String)> {
        // Who does not tell a processor may have any.
        let processor = |of: &ProfiledMachine, beside: &ProfiledMachine| {
            of.processor.clone().filter(|_| beside.processor.is_some()).unwrap_or_default()
        };
        let fields = [
            ("name", self.name.clone(), other.name.clone()),
            ("is_modelled", self.is_modelled.to_string(), other.is_modelled.to_string()),
            ("processor", processor(self, other), processor(other, self)),
            ("threads", self.threads.to_string(), other.threads.to_string()),
            ("cache_bytes", self.cache_bytes.to_string(), other.cache_bytes.to_string()),
            ("nodes", self.nodes.join(", "), other.nodes.join(", ")),
        ];
        fields.into_iter().find(|(_, this, that)| this != that)
    }

    pub(super) fn must_be(&self, other: &ProfiledMachine) -> Result<(), ProfileError> {
        match self.difference(other) {
            None => Ok(()),
            Some((field, profile, here)) => {
                Err(ProfileError::OtherMachine { field, profile, here })
            }
        }
    }

    /// What whoever takes figures of this machine for those of `here` should be told; `None` where it is the same.
    pub fn differs_from(&self, here: &ProfiledMachine) -> Option<String> {
        let (field, ..) = self.difference(here)?;
        Some(format!("of another machine, by its {field}: {self}; this one is {here}"))
    }
}

impl fmt::Display for ProfiledMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.is_modelled, &self.processor) {
            (true, _) => write!(f, "modelled {}", self.name)?,
            (false, Some(processor)) => f.write_str(processor)?,
            (false, None) => f.write_str("processor not told")?,
        }
        let (cache, nodes) = (ByteSize(self.cache_bytes), self.nodes.join(" "));
        write!(f, ", {} threads, largest cache {cache}, {nodes}", self.threads)
    }
}
