//! What a backup says of itself: a line of JSON, and a line with its checksum.

use super::summed;
use crate::{Kind, transfer};
use serde::{Deserialize, Serialize};

pub(super) const FILE: &str = "manifest.json";
const FORMAT: u32 = 1;

/// A map in a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackedUp {
    /// Its name.
    pub name: String,
    /// How its keys are found.
    #[serde(with = "kind")]
    pub kind: Kind,
    /// Records of it.
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Checksum of its file.
    pub crc32c: u32,
}

/// What is in a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    format: u32,
    /// What made it.
    pub made_by: String,
    /// When, in milliseconds since 1970.
    pub made_at_ms: u64,
    /// The maps, by name.
    pub maps: Vec<BackedUp>,
    /// Checksum of `terrace.toml`, if there is one.
    pub settings_crc32c: Option<u32>,
    /// What the database had beside them, in words.
    pub lacks: Vec<String>,
}

impl Manifest {
    pub(super) fn new(lacks: Vec<String>) -> Manifest {
        Manifest {
            format: FORMAT,
            made_by: concat!("terrace ", env!("CARGO_PKG_VERSION")).into(),
            made_at_ms: transfer::now_ms(),
            maps: Vec::new(),
            settings_crc32c: None,
            lacks,
        }
    }

    pub(super) fn text(&self) -> String {
        let json = serde_json::to_string(self).expect("names and numbers are JSON");
        format!("{json}\n{:08x}\n", summed::of(json.as_bytes()))
    }

    /// The manifest in a file, or what is wrong with it.
    pub(super) fn of(text: &[u8]) -> Result<Manifest, String> {
        let mut lines = text.split(|byte| *byte == b'\n');
        let (json, sum) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
        if format!("{:08x}", summed::of(json)).as_bytes() != sum {
            return Err("damaged: its checksum is another".into());
        }
        #[derive(Deserialize)]
        struct Head {
            format: u32,
        }
        let Head { format } = serde_json::from_slice(json).map_err(|e| e.to_string())?;
        if format > FORMAT {
            return Err(format!(
                "made by a newer Terrace: a backup of format {format}, and this one reads up to {FORMAT}"
            ));
        }
        serde_json::from_slice(json).map_err(|e| e.to_string())
    }
}

/// Kinds by their names in the settings.
mod kind {
    use crate::Kind;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(kind: &Kind, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(match kind {
            Kind::Hash => "hash",
            Kind::Ordered => "ordered",
        })
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Kind, D::Error> {
        match String::deserialize(from)?.as_str() {
            "hash" => Ok(Kind::Hash),
            "ordered" => Ok(Kind::Ordered),
            other => Err(serde::de::Error::custom(format!("a map of kind `{other}`"))),
        }
    }
}
