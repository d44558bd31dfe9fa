//! The least that can be called a map on slabs: an array of keys instead of an index, and a note of
//! what was acknowledged. The order of its steps can be got wrong on purpose.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use terrace_durable::item::NewItem;
use terrace_durable::sections::Changes;
use terrace_durable::slabs::{Census, Slabs};
use terrace_durable::values::{Recovered, Room};
use terrace_durable::{Access, Error, Medium, MediumSpec};
use terrace_memory::{Budget, Domain};

/// A directory in memory where there is one, since that is what is declared byte-addressable.
pub fn directory() -> tempfile::TempDir {
    let shm = Path::new("/dev/shm");
    let made = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() };
    made.expect("directory")
}

pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// In which order an old version is cleared and a new one written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As it must be.
    WriteThenClear,
    /// As the paper has it.
    ClearThenWrite,
    /// Old versions and deleted keys stay in storage.
    NeverClear,
}

/// What a key may hold after a crash: the number of a write, or nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Told {
    acknowledged: Option<u64>,
    in_flight: Option<Option<u64>>,
}

impl Told {
    pub fn allows(&self, found: Option<u64>) -> bool {
        found == self.acknowledged || self.in_flight == Some(found)
    }
}

pub struct Mini {
    pub slabs: Slabs,
    order: Order,
    /// 0: absent.
    locations: Vec<AtomicU64>,
    /// The lock of each key's bucket.
    locks: Vec<Mutex<()>>,
    told: Vec<Mutex<Told>>,
    /// Read by whoever takes a step in storage, written by whoever stops the world.
    world: RwLock<()>,
}

/// The file of a directory.
pub fn path(dir: &Path) -> PathBuf {
    dir.join("values.slab")
}

pub fn open(dir: &Path, domain: Domain, budget: u64, access: Access) -> Result<Slabs, Error> {
    let spec = MediumSpec { path: path(dir), domain, dax: false, capacity_bytes: 1 << 30, access };
    Slabs::open(Medium::open(&spec)?, 4, &Arc::new(Budget::new(budget)))
}

fn value(key: usize, number: u64, bytes: usize) -> Vec<u8> {
    let mut value = vec![number as u8 ^ key as u8; bytes.max(16)];
    value[..8].copy_from_slice(&(key as u64).to_le_bytes());
    value[8..16].copy_from_slice(&number.to_le_bytes());
    value
}

/// The write a value is of. Panics if it is not whole or another key's.
pub fn number_of(key: usize, value: &[u8]) -> u64 {
    let number = u64::from_le_bytes(value[8..16].try_into().expect("eight bytes"));
    assert_eq!(value[..8], (key as u64).to_le_bytes(), "a value of this key");
    assert!(value[16..].iter().all(|byte| *byte == number as u8 ^ key as u8), "a whole value");
    number
}

/// Recovers, and retires the older of two versions: key, location, version and number of what is
/// there.
pub type Contents = BTreeMap<usize, (u64, u64, u64)>;

pub fn recover(slabs: &Slabs) -> Result<(Contents, Recovered), Error> {
    let newest: Mutex<Contents> = Mutex::default();
    let found = slabs.recover(2, &|location, item, _| {
        let key = usize::from(u16::from_be_bytes(item.key.try_into().expect("two bytes")));
        let found = (location, item.version, number_of(key, item.value));
        let mut newest = newest.lock().expect("lock");
        match newest.get(&key).copied() {
            Some((_, version, _)) if version >= item.version => slabs.supersede(location),
            old => {
                old.into_iter().for_each(|(older, ..)| slabs.supersede(older));
                newest.insert(key, found);
            }
        }
    })?;
    Ok((newest.into_inner().expect("lock"), found))
}

impl Mini {
    pub fn open(dir: &Path, keys: usize, domain: Domain, budget: u64, order: Order) -> Mini {
        let slabs = open(dir, domain, budget, Access::Write).expect("open");
        let (contents, _) = recover(&slabs).expect("recover");
        let mini = Mini {
            slabs,
            order,
            locations: (0..keys).map(|_| AtomicU64::new(0)).collect(),
            locks: (0..keys).map(|_| Mutex::default()).collect(),
            told: (0..keys).map(|_| Mutex::default()).collect(),
            world: RwLock::default(),
        };
        for (key, (location, _, number)) in contents {
            mini.locations[key].store(location, Ordering::Release);
            mini.told[key].lock().expect("lock").acknowledged = Some(number);
        }
        mini
    }

    fn step<R>(&self, step: impl FnOnce() -> R) -> R {
        let _no_image = self.world.read().expect("world");
        step()
    }

    fn tell(&self, key: usize, told: impl FnOnce(&mut Told)) {
        told(&mut self.told[key].lock().expect("lock"));
    }

    /// Writes value number `number`; `between` is called between the steps.
    pub fn put(
        &self,
        writer: usize,
        key: usize,
        number: u64,
        value_bytes: usize,
        between: &mut dyn FnMut(),
    ) -> Result<(), Error> {
        let value = value(key, number, value_bytes);
        let name = (key as u16).to_be_bytes();
        let mut bytes = value.len() + 30;
        loop {
            let mut room = self.step(|| self.slabs.slots(writer, bytes, Room::Ordinary))?;
            let guard = crossbeam_epoch::pin();
            let _bucket = self.locks[key].lock().expect("lock");
            let old =
                Some(self.locations[key].load(Ordering::Acquire)).filter(|location| *location != 0);
            let version = old.map_or(1, |location| {
                self.slabs.item(location, &guard).expect("an item").version + 1
            });
            let new = NewItem {
                key: &name,
                value: &value,
                version,
                expires_at_ms: None,
                tombstone: false,
            };
            bytes = new.item_bytes();
            if !room.fits(bytes) {
                continue;
            }
            self.tell(key, |told| told.in_flight = Some(Some(number)));
            between();
            if self.order == Order::ClearThenWrite {
                old.into_iter()
                    .for_each(|old| self.step(|| self.slabs.retire(old, &mut Changes::new())));
                between();
            }
            let location = self.step(|| room.write(&new, &mut Changes::new()));
            between();
            if self.order == Order::WriteThenClear {
                old.into_iter()
                    .for_each(|old| self.step(|| self.slabs.retire(old, &mut Changes::new())));
                between();
            }
            self.locations[key].store(location, Ordering::Release);
            if self.order != Order::NeverClear {
                old.into_iter().for_each(|old| self.slabs.release(old));
            }
            self.tell(key, |told| *told = Told { acknowledged: Some(number), in_flight: None });
            return Ok(());
        }
    }

    /// Deletes; whether it was there.
    pub fn delete(&self, key: usize, between: &mut dyn FnMut()) -> bool {
        let _guard = crossbeam_epoch::pin();
        let _bucket = self.locks[key].lock().expect("lock");
        let old = self.locations[key].load(Ordering::Acquire);
        if old == 0 {
            return false;
        }
        self.tell(key, |told| told.in_flight = Some(None));
        if self.order != Order::NeverClear {
            self.step(|| self.slabs.retire(old, &mut Changes::new()));
        }
        between();
        self.locations[key].store(0, Ordering::Release);
        if self.order != Order::NeverClear {
            self.slabs.release(old);
        }
        self.tell(key, |told| *told = Told { acknowledged: None, in_flight: None });
        true
    }

    /// Forgets where everything is.
    pub fn forget(&self) {
        self.locations.iter().for_each(|location| location.store(0, Ordering::Release));
    }

    /// The number of the value of `key`, read as readers do: without any lock.
    pub fn get(&self, key: usize) -> Option<u64> {
        let guard = crossbeam_epoch::pin();
        let location = self.locations[key].load(Ordering::Acquire);
        (location != 0)
            .then(|| number_of(key, self.slabs.item(location, &guard).expect("an item").value))
    }

    pub fn contents(&self) -> BTreeMap<usize, u64> {
        (0..self.locations.len()).filter_map(|key| Some((key, self.get(key)?))).collect()
    }

    pub fn told(&self) -> Vec<Told> {
        self.told.iter().map(|told| *told.lock().expect("lock")).collect()
    }

    /// The file and what was told at one instant at which no step is under way.
    pub fn stop_the_world(&self) -> (Vec<u8>, Vec<Told>) {
        let _stopped = self.world.write().expect("world");
        let image = std::fs::read(self.slabs.medium().path()).expect("image");
        (image, self.told())
    }

    /// Every slot accounted for once readers have left; nobody may write meanwhile.
    pub fn census(&self) -> Census {
        for _ in 0..100_000 {
            crossbeam_epoch::pin().flush();
            if self.slabs.waiting_slots() == 0 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
        assert_eq!(self.slabs.waiting_slots(), 0, "readers have left");
        self.slabs.check().expect("every slot has one owner")
    }
}
