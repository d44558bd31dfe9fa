//! Every adapter against a model: puts, lookups, deletions, batches, scans, and reopening.

use crate::engine::{Durability, Engine, OpenOptions};
use crate::engines::{Name, Visit, with_engine};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use terrace_workload::Failure;
use terrace_workload::random::Rng;
use terrace_workload::ycsb::Handle;
use terrace_workload::ycsb::InsertOrder;
use terrace_workload::ycsb::keys::write_key;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Records the checks choose from.
const RECORDS: u64 = 2000;

/// Checks the engines with each length of key and each durability, and says how they did.
pub fn all(engines: &[Name], directory: Option<&Path>) -> Result<(), Failure> {
    let temporary = std::env::temp_dir().join(format!("terrace-peers-{}", std::process::id()));
    let directory = directory.map_or(temporary, |directory| directory.join("check"));
    let mut failed = 0;
    for name in engines {
        for key_bytes in [8, 16, 24].into_iter().filter(|bytes| name.takes_keys_of(*bytes)) {
            for durability in [Durability::None, Durability::Sync] {
                if durability == Durability::Sync && !name.is_durable() {
                    continue;
                }
                let result = one(*name, key_bytes, durability, directory.clone());
                let text = result.as_ref().map_or_else(ToString::to_string, |()| "ok".to_string());
                println!(
                    "{name:15} {:16} {key_bytes:2} B keys, {durability:4}  {text}",
                    name.version()
                );
                failed += u32::from(result.is_err());
            }
        }
    }
    let _ = std::fs::remove_dir_all(&directory);
    if failed > 0 { Err(format!("{failed} checks failed").into()) } else { Ok(()) }
}

/// Checks one engine in an empty `directory`.
pub fn one(
    name: Name,
    key_bytes: usize,
    durability: Durability,
    directory: PathBuf,
) -> Result<(), Failure> {
    // The folder of an earlier run, if there is one.
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory)?;
    let options =
        OpenOptions { durability, cache_bytes: 256 << 20, is_larger: false, records: RECORDS };
    with_engine(name, key_bytes, Check { directory, options, key_bytes })
}

struct Check {
    directory: PathBuf,
    options: OpenOptions,
    key_bytes: usize,
}

impl Visit for Check {
    type Output = Result<(), Failure>;

    fn visit<E: Engine>(self) -> Result<(), Failure> {
        let mut rng = Rng::new(self.key_bytes as u64);
        let mut model = Model::new();
        let mut engine = E::open(&self.directory, &self.options)?;
        let steps = if self.options.durability == Durability::Sync { 200 } else { 10_000 };
        let is_ordered = engine.is_ordered();
        for _ in 0..3 {
            {
                let mut handle = engine.handle()?;
                change(&mut handle, &mut model, self.key_bytes, steps, &mut rng)?;
                compare(&mut handle, &model, self.key_bytes, is_ordered, &mut rng)?;
            }
            if E::DURABLE {
                engine.flush()?;
                engine.close()?;
                engine = E::open(&self.directory, &self.options)?;
                let mut handle = engine.handle()?;
                compare(&mut handle, &model, self.key_bytes, is_ordered, &mut rng)?;
            }
        }
        engine.close()
    }
}

fn key_of(record: u64, key_bytes: usize) -> Vec<u8> {
    let mut key = vec![0; key_bytes];
    write_key(InsertOrder::Hashed, record, &mut key);
    key
}

/// Puts, deletes and writes a batch, in the engine and in the model.
fn change(
    handle: &mut impl Handle,
    model: &mut Model,
    key_bytes: usize,
    steps: usize,
    rng: &mut Rng,
) -> Result<(), Failure> {
    for _ in 0..steps {
        let key = key_of(rng.below(RECORDS), key_bytes);
        if rng.one_in(4) {
            handle.delete(&key)?;
            model.remove(&key);
        } else {
            let value: Vec<u8> = (0..8 + rng.below(200)).map(|_| rng.bits() as u8).collect();
            handle.put(&key, &value)?;
            model.insert(key, value);
        }
    }
    let fill = rng.bits() as u8;
    let records = (0..100).map(|_| rng.below(RECORDS));
    let batch: Vec<_> = records.map(|record| (key_of(record, key_bytes), vec![fill; 64])).collect();
    handle.put_batch(&batch)?;
    model.extend(batch);
    Ok(())
}

/// Looks up every record, some in batches, and scans.
fn compare(
    handle: &mut impl Handle,
    model: &Model,
    key_bytes: usize,
    ordered: bool,
    rng: &mut Rng,
) -> Result<(), Failure> {
    let mut value = Vec::new();
    for record in 0..RECORDS {
        let key = key_of(record, key_bytes);
        let found = handle.get(&key, &mut value)?;
        if found.then_some(&value) != model.get(&key) {
            return Err(format!("lookup of record {record} differs").into());
        }
    }
    let keys: Vec<_> = (0..40).map(|_| key_of(rng.below(RECORDS), key_bytes)).collect();
    let slices: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let mut found: Vec<Option<Option<Vec<u8>>>> = vec![None; keys.len()];
    handle.multi_get(&slices, |i, value| found[i] = Some(value.map(<[u8]>::to_vec)))?;
    let expected: Vec<_> = keys.iter().map(|key| Some(model.get(key).cloned())).collect();
    if found != expected {
        return Err("a batch of lookups differs".into());
    }
    for _ in 0..if ordered { 50 } else { 0 } {
        let start = key_of(rng.below(RECORDS), key_bytes);
        let limit = 1 + rng.below(100) as usize;
        let mut found = Vec::new();
        let seen = handle.scan(&start, limit, |k, v| found.push((k.to_vec(), v.to_vec())))?;
        let expected = model.range(start..).take(limit).map(|(k, v)| (k.clone(), v.clone()));
        if found != expected.collect::<Vec<_>>() || seen != found.len() {
            return Err("a scan differs".into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_adapter_agrees_with_a_model() {
        let directory = tempfile::tempdir().expect("a temporary folder");
        for name in Name::DEFAULT {
            for key_bytes in [8, 16, 24] {
                let result = one(name, key_bytes, Durability::None, directory.path().join("data"));
                assert!(result.is_ok(), "{name}, {key_bytes} B keys: {result:?}");
            }
        }
    }
}
