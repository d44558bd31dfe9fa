//! The numbers that the rules compare with. The paper gives one of them, the 10 % gate; the others are ours.

use serde::{Deserialize, Serialize};

/// Bytes of a cache line, on x86-64.
pub const LINE_BYTES: u64 = 64;

/// What the rules compare with; every one is settable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Thresholds {
    /// A program below this share of stores is not write-intensive (the paper's 10 %).
    pub write_intensive: f64,
    /// A function is analysed if it has at least this share of the program's writes.
    pub function_share: f64,
    /// A function writes sequentially from this share of its writes in such runs. The paper's tensor operation has
    /// 50 %.
    pub sequential: f64,
    /// A run of adjacent writes is sequential from this many bytes: more than one line.
    pub run_bytes: u64,
    /// A fence follows a write *soon* within this many instructions.
    pub fence_soon: u64,
    /// Writes of a function are followed by fences if this share of them is, soon.
    pub fenced_share: f64,
    /// Data is re-read, or re-written, if this share of it is.
    pub reused_share: f64,
    /// A size class counts if it has this share of its function's writes.
    pub class_share: f64,
    /// Data re-written within this many instructions, on average, is hot: it stays cached, and a hint only costs.
    pub hot: u64,
    /// A re-use after more instructions than this is none: the line left the caches before. Tables print `inf`.
    pub horizon: u64,
    /// Instructions that a read from memory takes as long as: what a prefetch must be ahead.
    pub latency: u64,
    /// A read instruction is worth a prefetch if this share of its reads goes to lines not touched lately, irregularly.
    pub irregular: f64,
}

impl Default for Thresholds {
    fn default() -> Thresholds {
        Thresholds {
            write_intensive: 0.10,
            function_share: 0.02,
            sequential: 0.30,
            run_bytes: 2 * LINE_BYTES,
            fence_soon: 1_000,
            fenced_share: 0.10,
            reused_share: 0.20,
            class_share: 0.05,
            hot: 200_000,
            horizon: 1_000_000,
            latency: 300,
            irregular: 0.20,
        }
    }
}

/// A threshold that was asked for and does not exist, or has a value that it cannot have.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SettingError {
    /// No threshold has this name.
    #[error("{name}: no such threshold; known: {known}")]
    Unknown {
        /// The name.
        name: String,
        /// Those that exist.
        known: String,
    },
    /// The value is not one that this threshold can have.
    #[error(
        "{name}={value}: not a value for it; a share is from 0 to 1, a count a whole number from 1"
    )]
    Value {
        /// The name.
        name: String,
        /// What was given.
        value: String,
    },
    /// It is not `NAME=VALUE`.
    #[error("{0}: a threshold is set as NAME=VALUE, like hot=100000")]
    Form(String),
}

impl Thresholds {
    /// Sets one threshold from `NAME=VALUE`.
    ///
    /// # Errors
    /// [`SettingError`] if it is not of that form, the name is unknown or the value does not fit.
    ///
    /// # Examples
    /// ```
    /// let mut thresholds = terrace_dirtbuster::Thresholds::default();
    /// thresholds.set("hot=50000").unwrap();
    /// assert_eq!(thresholds.hot, 50_000);
    /// assert!(thresholds.set("sequential=7").is_err());
    /// assert!(thresholds.set("warmth=1").is_err());
    /// ```
    pub fn set(&mut self, setting: &str) -> Result<(), SettingError> {
        let (name, value) =
            setting.split_once('=').ok_or_else(|| SettingError::Form(setting.into()))?;
        let wrong = || SettingError::Value { name: name.into(), value: value.into() };
        let share = || {
            let share: f64 = value.parse().map_err(|_| wrong())?;
            if (0.0..=1.0).contains(&share) { Ok(share) } else { Err(wrong()) }
        };
        let count = || value.parse().ok().filter(|count: &u64| *count > 0).ok_or_else(wrong);
        match name {
            "write_intensive" => self.write_intensive = share()?,
            "function_share" => self.function_share = share()?,
            "sequential" => self.sequential = share()?,
            "run_bytes" => self.run_bytes = count()?,
            "fence_soon" => self.fence_soon = count()?,
            "fenced_share" => self.fenced_share = share()?,
            "reused_share" => self.reused_share = share()?,
            "class_share" => self.class_share = share()?,
            "hot" => self.hot = count()?,
            "horizon" => self.horizon = count()?,
            "latency" => self.latency = count()?,
            "irregular" => self.irregular = share()?,
            _ => {
                return Err(SettingError::Unknown {
                    name: name.into(),
                    known: Thresholds::names().join(", "),
                });
            }
        }
        Ok(())
    }

    /// The names that [`Thresholds::set`] knows.
    ///
    /// # Examples
    /// ```
    /// assert!(terrace_dirtbuster::Thresholds::names().contains(&"horizon"));
    /// ```
    pub fn names() -> &'static [&'static str] {
        &[
            "write_intensive",
            "function_share",
            "sequential",
            "run_bytes",
            "fence_soon",
            "fenced_share",
            "reused_share",
            "class_share",
            "hot",
            "horizon",
            "latency",
            "irregular",
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_sets_the_field_of_that_name() {
        for name in Thresholds::names() {
            let mut set = Thresholds::default();
            set.set(&format!("{name}=1")).expect("1 is a share and a count");
            let (set, default) = [&set, &Thresholds::default()]
                .map(|t| serde_json::to_value(t).expect("json"))
                .into();
            let differing: Vec<String> = set
                .as_object()
                .expect("an object")
                .iter()
                .filter(|(key, value)| default[key.as_str()] != **value)
                .map(|(key, _)| key.clone())
                .collect();
            assert_eq!(differing, [name.to_string()]);
        }
    }
}
