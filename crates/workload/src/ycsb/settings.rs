//! What to run, how much of it, and on how large a store.

use super::distribution::Distribution;
use super::keys;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// A mix of operations; see the table in [`super`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Workload {
    /// 50 % reads, 50 % updates.
    A,
    /// 95 % reads, 5 % updates.
    B,
    /// Reads.
    C,
    /// 95 % reads of the latest, 5 % inserts.
    D,
    /// 95 % short scans, 5 % inserts.
    E,
    /// 50 % reads, 50 % read-modify-writes.
    F,
    /// Not YCSB's: reads in batches.
    G,
    /// Not YCSB's: updates.
    U,
}

impl Workload {
    /// All of them, in an order fit for one store: first those that add no record.
    pub const ALL: [Workload; 8] =
        [Self::A, Self::B, Self::C, Self::F, Self::G, Self::U, Self::D, Self::E];

    pub(super) fn mix(self) -> Mix {
        let none = Mix::default();
        match self {
            Self::A => Mix { read: 50, update: 50, ..none },
            Self::B => Mix { read: 95, update: 5, ..none },
            Self::C => Mix { read: 100, ..none },
            Self::D => Mix { read: 95, insert: 5, ..none },
            Self::E => Mix { scan: 95, insert: 5, ..none },
            Self::F => Mix { read: 50, read_modify_write: 50, ..none },
            Self::G => Mix { batch_read: 100, ..none },
            Self::U => Mix { update: 100, ..none },
        }
    }

    /// YCSB's choice of records for this workload.
    pub fn distribution(self) -> Distribution {
        match self {
            Self::D => Distribution::Latest,
            _ => Distribution::ZIPFIAN,
        }
    }

    /// Whether it needs a store that scans in key order.
    pub fn needs_order(self) -> bool {
        self.mix().scan > 0
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl std::str::FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|workload| workload.to_string().eq_ignore_ascii_case(text))
            .ok_or_else(|| format!("\"{text}\" is not one of A, B, C, D, E, F, G, U"))
    }
}

/// Shares of operations, in percent; they add to 100.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mix {
    pub(super) read: u64,
    pub(super) update: u64,
    pub(super) insert: u64,
    pub(super) scan: u64,
    pub(super) read_modify_write: u64,
    pub(super) batch_read: u64,
}

/// The order of keys in which records are inserted (YCSB's `insertorder`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InsertOrder {
    /// At random.
    #[default]
    Hashed,
    /// Upwards.
    Ordered,
}

impl std::str::FromStr for InsertOrder {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "hashed" => Ok(Self::Hashed),
            "ordered" => Ok(Self::Ordered),
            other => Err(format!("\"{other}\" is not one of hashed, ordered")),
        }
    }
}

impl fmt::Display for InsertOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Hashed { "hashed" } else { "ordered" })
    }
}

/// The size of the store and of the runs on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Records loaded before the workloads, 1 to 2^32 - 1.
    pub records: u64,
    /// Length of a key: 8 to 1024.
    pub key_bytes: usize,
    /// Length of a value: 8 to 16 MiB.
    pub value_bytes: usize,
    /// The order of keys in which records are inserted.
    pub insert_order: InsertOrder,
    /// Threads that load the store, each with its own handle: 1 to 4096.
    pub threads: usize,
    /// Choice of records; `None` for each workload's own.
    pub distribution: Option<Distribution>,
    /// A run ends after this long, or sooner with `operations`.
    pub duration: Duration,
    /// A run ends after about this many operations over all threads, or sooner with `duration`.
    pub operations: u64,
    /// Untimed running before each workload.
    pub warm_up: Duration,
    /// One operation in so many is timed, its value checked whole, and the end looked for. 1 where
    /// operations are slow; 16 keeps the clock's own cost below a per cent of a fast one.
    pub sample_every: u64,
    /// Keys of one batched read (workload G): 1 to 4096.
    pub batch_keys: usize,
    /// Longest scan (workload E), in records; lengths are uniform from 1.
    pub scan_records: usize,
    /// What the random choices follow from.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            records: 1_000_000,
            key_bytes: 16,
            value_bytes: 100,
            insert_order: InsertOrder::Hashed,
            threads: 1,
            distribution: None,
            duration: Duration::from_secs(10),
            operations: u64::MAX,
            warm_up: Duration::from_secs(1),
            sample_every: 16,
            batch_keys: 32,
            scan_records: 100,
            seed: 1,
        }
    }
}

/// A setting outside its range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError {
    /// The setting's name, as a field of [`Settings`].
    pub setting: &'static str,
    /// What it may be.
    pub allowed: String,
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} must be {}", self.setting, self.allowed)
    }
}

impl std::error::Error for SettingsError {}

impl Settings {
    /// Checks every range.
    ///
    /// # Errors
    /// [`SettingsError`] names the first setting that is out of its range.
    pub fn validate(&self) -> Result<(), SettingsError> {
        let within = |setting, value: u64, low: u64, high: u64| {
            let error = SettingsError { setting, allowed: format!("{low} to {high}") };
            if (low..=high).contains(&value) { Ok(()) } else { Err(error) }
        };
        within("records", self.records, 1, u64::from(u32::MAX))?;
        within("key_bytes", self.key_bytes as u64, keys::MIN_KEY_BYTES as u64, 1024)?;
        within("value_bytes", self.value_bytes as u64, keys::MIN_VALUE_BYTES as u64, 16 << 20)?;
        within("threads", self.threads as u64, 1, 4096)?;
        within("sample_every", self.sample_every, 1, 1 << 20)?;
        within("operations", self.operations, 1, u64::MAX)?;
        within("batch_keys", self.batch_keys as u64, 1, 4096)?;
        within("scan_records", self.scan_records as u64, 1, 1 << 20)?;
        match self.distribution {
            Some(Distribution::Zipfian { theta }) if !(theta > 0.0 && theta < 1.0) => {
                let allowed = "between 0 and 1, both excluded".to_string();
                Err(SettingsError { setting: "theta", allowed })
            }
            _ => Ok(()),
        }
    }

    /// The choice of records in force for `workload`.
    pub fn distribution_of(&self, workload: Workload) -> Distribution {
        self.distribution.unwrap_or(workload.distribution())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mix_adds_to_a_hundred() {
        for workload in Workload::ALL {
            let m = workload.mix();
            let sum = m.read + m.update + m.insert + m.scan + m.read_modify_write + m.batch_read;
            assert_eq!(sum, 100, "{workload}");
            assert_eq!(workload.to_string().to_lowercase().parse(), Ok(workload));
        }
        assert!("H".parse::<Workload>().is_err());
    }

    #[test]
    fn settings_out_of_range_are_named() {
        let good = Settings::default();
        assert_eq!(good.validate(), Ok(()));
        let cases = [
            (Settings { records: 0, ..good.clone() }, "records"),
            (Settings { records: 1 << 32, ..good.clone() }, "records"),
            (Settings { key_bytes: 7, ..good.clone() }, "key_bytes"),
            (Settings { value_bytes: 7, ..good.clone() }, "value_bytes"),
            (Settings { threads: 0, ..good.clone() }, "threads"),
            (Settings { sample_every: 0, ..good.clone() }, "sample_every"),
            (Settings { batch_keys: 0, ..good.clone() }, "batch_keys"),
            (
                Settings { distribution: Some(Distribution::Zipfian { theta: 1.0 }), ..good },
                "theta",
            ),
        ];
        for (settings, name) in cases {
            assert_eq!(settings.validate().unwrap_err().setting, name);
        }
    }
}
