//! The file door: TOML with positions, walked by hand so that every complaint has its line.

use super::{
    Config, ConfigError, KEYS, LEDGER_KEYS, LedgerConfig, MAP_KEYS, MapConfig, QUEUE_KEYS,
    QueueConfig, TIER_KEYS, TierDraft, WORDS_KEYS, WordsConfig, keys,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use toml::de::{DeTable, DeValue};

/// Lays the settings of `text` over `config`.
pub(super) fn apply(config: &mut Config, text: &str) -> Result<(), ConfigError> {
    let walk = Walk { text, retired: RefCell::default() };
    let table = DeTable::parse(text).map_err(|e| {
        walk.error(e.span().map_or(0, |s| s.start), format!("not TOML: {}", e.message()))
    })?;
    for (key, value) in table.get_ref() {
        let at = key.span().start;
        match (key.get_ref().as_ref(), value.get_ref()) {
            ("maps", DeValue::Table(maps)) => {
                walk.named::<MapConfig>("maps", MAP_KEYS, &mut config.maps, maps)?;
            }
            ("queues", DeValue::Table(queues)) => {
                walk.named::<QueueConfig>("queues", QUEUE_KEYS, &mut config.queues, queues)?;
            }
            ("ledgers", DeValue::Table(ledgers)) => {
                walk.named::<LedgerConfig>("ledgers", LEDGER_KEYS, &mut config.ledgers, ledgers)?;
            }
            ("words", DeValue::Table(words)) => {
                walk.named::<WordsConfig>("words", WORDS_KEYS, &mut config.words, words)?;
            }
            ("tier", DeValue::Array(tiers)) => {
                for tier in tiers {
                    walk.tier(config, tier.get_ref(), tier.span().start)?;
                }
            }
            ("maps" | "queues" | "ledgers" | "words", _) => {
                return Err(walk.is_section(at, key.get_ref()));
            }
            ("tier", _) => return Err(walk.error(at, "`tier` is a list of sections: [[tier]]")),
            (name, DeValue::Table(section)) if is_section(name) => {
                walk.keys(KEYS, config, section, "", &format!("{name}."))?;
            }
            (name, value) => walk.key(KEYS, config, "", name, value, at)?,
        }
    }
    let mut retired = walk.retired.into_inner();
    retired.sort();
    config.retired = retired.into_iter().map(|(_, told)| told).collect();
    Ok(())
}

fn is_section(name: &str) -> bool {
    KEYS.iter().any(|k| k.name.split_once('.').is_some_and(|(section, _)| section == name))
}

struct Walk<'t> {
    text: &'t str,
    /// Settings of earlier versions that were met, and their lines.
    retired: RefCell<Vec<(usize, String)>>,
}

impl Walk<'_> {
    fn error(&self, at: usize, what: impl Into<String>) -> ConfigError {
        ConfigError { file: None, line: Some(self.line(at)), what: what.into() }
    }

    fn line(&self, at: usize) -> usize {
        let before = self.text.get(..at.min(self.text.len())).unwrap_or(self.text);
        before.bytes().filter(|b| *b == b'\n').count() + 1
    }

    fn is_section(&self, at: usize, of: &str) -> ConfigError {
        self.error(at, format!("`{of}` is a section: [{of}.NAME]"))
    }

    /// The sections `[of.NAME]`.
    fn named<T: Default>(
        &self,
        of: &str,
        known: &[keys::Key<T>],
        into: &mut BTreeMap<String, T>,
        sections: &DeTable<'_>,
    ) -> Result<(), ConfigError> {
        for (name, value) in sections {
            let DeValue::Table(section) = value.get_ref() else {
                return Err(self.is_section(name.span().start, of));
            };
            let name = name.get_ref().to_string();
            let mut target = T::default();
            self.keys(known, &mut target, section, &format!("{of}.{name}."), "")?;
            into.insert(name, target);
        }
        Ok(())
    }

    fn tier(&self, config: &mut Config, tier: &DeValue<'_>, at: usize) -> Result<(), ConfigError> {
        let DeValue::Table(section) = tier else {
            return Err(self.error(at, "`tier` is a list of sections: [[tier]]"));
        };
        let mut tier = TierDraft::default();
        self.keys(TIER_KEYS, &mut tier, section, "tier.", "")?;
        let at = section.iter().map(|(key, _)| key.span().start).min().unwrap_or(at);
        config.add_tier(tier).map_err(|what| self.error(at, what))
    }

    /// The keys of one section. `prefix` is for messages, `path` goes before the looked-up name.
    fn keys<T>(
        &self,
        known: &[keys::Key<T>],
        target: &mut T,
        section: &DeTable<'_>,
        prefix: &str,
        path: &str,
    ) -> Result<(), ConfigError> {
        for (key, value) in section {
            let name = format!("{path}{}", key.get_ref());
            self.key(known, target, prefix, &name, value.get_ref(), key.span().start)?;
        }
        Ok(())
    }

    fn key<T>(
        &self,
        known: &[keys::Key<T>],
        target: &mut T,
        prefix: &str,
        name: &str,
        value: &DeValue<'_>,
        at: usize,
    ) -> Result<(), ConfigError> {
        if let Some(what) = keys::retired(prefix, name) {
            let line = self.line(at);
            let told = format!(
                "line {line}: `{prefix}{name}` is no longer a setting and does nothing: {what}"
            );
            self.retired.borrow_mut().push((line, told));
            return Ok(());
        }
        // An unknown key is reported as such even where its value has no text form.
        let text = text_of(value);
        let set = keys::set(known, prefix, target, name, text.as_deref().unwrap_or(""));
        match (set, text) {
            (Err(what), Some(_)) => Err(self.error(at, what)),
            (Err(what), None) if what.starts_with("unknown key") => Err(self.error(at, what)),
            (_, None) => Err(self.error(
                at,
                format!("`{prefix}{name}`: expected a string, a number or a list of strings"),
            )),
            (Ok(()), Some(_)) => Ok(()),
        }
    }
}

/// The form the flag would have.
fn text_of(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(s) => Some(s.to_string()),
        DeValue::Integer(n) => {
            i128::from_str_radix(n.as_str(), n.radix()).ok().map(|n| n.to_string())
        }
        DeValue::Float(f) => Some(f.as_str().to_string()),
        DeValue::Boolean(b) => Some(b.to_string()),
        DeValue::Array(items) => {
            let items: Option<Vec<_>> = items.iter().map(|i| text_of(i.get_ref())).collect();
            items.map(|i| i.join(","))
        }
        DeValue::Datetime(_) | DeValue::Table(_) => None,
    }
}
