//! ch-benCHmark on a map: rows are items whose keys begin with their table, as in SnapKV.

use super::error::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;
use terrace_store::{
    Durability, Error as StoreError, Kind, Map, MapOptions, Moments, Range, Transaction,
};
use terrace_workload::Failure;
use terrace_workload::chbench::{
    DISTRICTS, Each, Outcome, Scale, Table, Terminal, Transact, load, wrong,
};

/// The tables, in memory.
pub(super) struct Shop {
    _dir: tempfile::TempDir,
    moments: Arc<Moments>,
    map: Map,
    pub scale: Scale,
    /// Orders that were told to be committed.
    pub ordered: AtomicU64,
}

/// A transaction, or a reader, on them.
pub(super) struct Within<'a> {
    transaction: Transaction,
    map: &'a Map,
}

/// A key with its table before it.
fn keyed(table: Table, key: &[u8]) -> Vec<u8> {
    let mut keyed = Vec::with_capacity(1 + key.len());
    keyed.push(table as u8);
    keyed.extend_from_slice(key);
    keyed
}

impl Transact for Within<'_> {
    fn get(
        &mut self,
        table: Table,
        key: &[u8],
        read: &mut dyn FnMut(&[u8]),
    ) -> std::result::Result<bool, Failure> {
        let found =
            self.transaction.get_with(self.map, &keyed(table, key), |value| read(value.bytes))?;
        Ok(found.is_some())
    }

    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> std::result::Result<(), Failure> {
        Ok(self.transaction.put(self.map, &keyed(table, key), value)?)
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> std::result::Result<(), Failure> {
        self.transaction.delete(self.map, &keyed(table, key))?;
        Ok(())
    }

    fn range(
        &mut self,
        table: Table,
        (from, to): (&[u8], &[u8]),
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> std::result::Result<(), Failure> {
        let (from, to) = (keyed(table, from), keyed(table, to));
        let range = Range::from(&from[..]..&to[..]);
        Ok(self
            .transaction
            .range_while(self.map, range, |key, value| each(&key[1..], value.bytes))?)
    }

    fn snapshot(
        &mut self,
        table: Table,
        spans: &[(Vec<u8>, Vec<u8>)],
        each: &mut Each<'_>,
    ) -> std::result::Result<(), Failure> {
        let keyed: Vec<(Vec<u8>, Vec<u8>)> =
            spans.iter().map(|(from, to)| (keyed(table, from), keyed(table, to))).collect();
        let ranges: Vec<Range<'_>> =
            keyed.iter().map(|(from, to)| Range::from(&from[..]..&to[..])).collect();
        let found = self.transaction.snapshot(self.map, &[], &ranges)?;
        found.iter().for_each(|(asked, key, value)| each(asked, &key[1..], value));
        Ok(())
    }
}

/// Ends a client when it is dropped: when what is beside it fails, too.
pub(super) struct Ends<'a>(pub &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Shop {
    pub fn open(scale: Scale) -> Result<Shop> {
        let dir = tempfile::tempdir().map_err(Error::system("make a directory"))?;
        let moments = Arc::<Moments>::default();
        let options = MapOptions {
            kind: Kind::Ordered,
            durability: Durability::None,
            writers: 2,
            moments: Arc::clone(&moments),
            ..MapOptions::default()
        };
        let map = Map::open(dir.path(), options)?;
        let loaded = load(scale, |table, key, value| Ok(map.put(&keyed(table, key), value)?));
        loaded.map_err(Error::Workload)?;
        Ok(Shop { _dir: dir, moments, map, scale, ordered: AtomicU64::new(0) })
    }

    pub fn begin(&self) -> Within<'_> {
        Within { transaction: self.moments.begin(), map: &self.map }
    }

    /// Does what a terminal draws until `ended`, each until it is not refused; transactions that were done, and how
    /// often one was refused.
    pub fn serve(&self, seed: u64, ended: &AtomicBool) -> Result<(u64, u64)> {
        let (mut done, mut refused) = (0, 0);
        let mut terminal =
            Terminal::new(self.scale, 1 + (seed % u64::from(self.scale.warehouses)) as u32, seed);
        while !ended.load(Ordering::Relaxed) {
            let asked = terminal.draw();
            loop {
                let mut within = self.begin();
                let outcome = terminal.run(&mut within, &asked).map_err(Error::Workload)?;
                if outcome == Outcome::RolledBack {
                    break;
                }
                match within.transaction.commit() {
                    Ok(()) => {
                        self.ordered
                            .fetch_add(u64::from(outcome == Outcome::Ordered), Ordering::SeqCst);
                        break;
                    }
                    Err(StoreError::Conflict { .. }) => refused += 1,
                    Err(error) => return Err(error.into()),
                }
            }
            done += 1;
        }
        Ok((done, refused))
    }

    /// Asks again and again until so long has passed; questions answered a second.
    pub fn ask(
        &self,
        until: Instant,
        mut question: impl FnMut(&mut Within<'_>) -> std::result::Result<(), Failure>,
    ) -> Result<f64> {
        let (start, mut asked) = (Instant::now(), 0u32);
        while Instant::now() < until {
            question(&mut self.begin()).map_err(Error::Workload)?;
            asked += 1;
        }
        Ok(f64::from(asked) / start.elapsed().as_secs_f64())
    }

    /// How long it takes to find the oldest new order of a district; us.
    pub fn oldest_us(&self) -> Result<f64> {
        let mut within = self.begin();
        let start = Instant::now();
        for district in 1..=DISTRICTS as u8 {
            let (from, to) = ([0, 0, 0, 1, district], [0, 0, 0, 1, district + 1]);
            within
                .range(Table::NewOrder, (&from, &to), &mut |_, _| false)
                .map_err(Error::Workload)?;
        }
        Ok(start.elapsed().as_secs_f64() * 1e6 / f64::from(DISTRICTS))
    }

    /// Places where the rows do not agree.
    pub fn wrong(&self) -> Result<u64> {
        wrong(&mut self.begin(), self.scale).map_err(Error::Workload)
    }
}
