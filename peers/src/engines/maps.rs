//! Concurrent maps in memory. A value is a `Box<[u8]>`, one allocation a put; keys of 8 and 16
//! bytes are held inline, others boxed. All hash with foldhash and start empty.

use crate::engine::{Engine, OpenOptions};
use std::borrow::Borrow;
use std::hash::Hash;
use std::path::Path;
use terrace_workload::Failure;
use terrace_workload::ycsb::{Handle, Target};

/// How a map holds its values.
pub type Value = Box<[u8]>;
type Hasher = foldhash::fast::RandomState;

/// How a map holds its keys.
pub trait Key: Borrow<[u8]> + Hash + Ord + Clone + Send + Sync + 'static {
    /// The key of these bytes.
    fn of(bytes: &[u8]) -> Self;
}

impl<const N: usize> Key for [u8; N] {
    #[inline]
    fn of(bytes: &[u8]) -> Self {
        bytes.try_into().expect("invariant: the engine was chosen by the length of its keys")
    }
}

impl Key for Box<[u8]> {
    #[inline]
    fn of(bytes: &[u8]) -> Self {
        bytes.into()
    }
}

/// dashmap.
pub struct Dashmap<K: Key>(dashmap::DashMap<K, Value, Hasher>);
/// papaya.
pub struct Papaya<K: Key>(papaya::HashMap<K, Value, Hasher>);
/// scc's hash map.
pub struct Scc<K: Key>(scc::HashMap<K, Value, Hasher>);

/// What is alike in all maps in memory: nothing to open, or to flush.
macro_rules! volatile {
    ([$($key:ident: $bound:ident)?] $map:ty, $new:expr, ordered: $ordered:literal) => {
        impl$(<$key: $bound>)? Engine for $map {
            const DURABLE: bool = false;

            fn open(_directory: &Path, _options: &OpenOptions) -> Result<Self, Failure> {
                Ok(Self($new))
            }

            fn close(self) -> Result<(), Failure> {
                // Freeing millions of boxes one by one is no part of what is measured.
                std::mem::forget(self);
                Ok(())
            }
        }

        impl$(<$key: $bound>)? Target for $map {
            type Handle<'a> = &'a $map;

            fn is_ordered(&self) -> bool {
                $ordered
            }

            fn handle(&self) -> Result<&$map, Failure> {
                Ok(self)
            }

            fn flush(&self) -> Result<(), Failure> {
                Ok(())
            }
        }
    };
}
pub(super) use volatile;

volatile!([K: Key] Dashmap<K>, dashmap::DashMap::with_hasher(Hasher::default()), ordered: false);
volatile!([K: Key] Papaya<K>, papaya::HashMap::with_hasher(Hasher::default()), ordered: false);
volatile!([K: Key] Scc<K>, scc::HashMap::with_hasher(Hasher::default()), ordered: false);

impl<K: Key> Handle for &Dashmap<K> {
    #[inline]
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Failure> {
        Ok(self.0.get(key).map(|found| super::copy(&found, value)).is_some())
    }

    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.0.insert(K::of(key), value.into());
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Failure> {
        self.0.remove(key);
        Ok(())
    }
}

impl<K: Key> Handle for &Papaya<K> {
    #[inline]
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Failure> {
        Ok(self.0.pin().get(key).map(|found| super::copy(found, value)).is_some())
    }

    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.0.pin().insert(K::of(key), value.into());
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Failure> {
        self.0.pin().remove(key);
        Ok(())
    }

    #[inline]
    fn multi_get(
        &mut self,
        keys: &[&[u8]],
        mut each: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<(), Failure> {
        let pinned = self.0.pin();
        for (i, key) in keys.iter().enumerate() {
            each(i, pinned.get(*key).map(|value| &value[..]));
        }
        Ok(())
    }
}

impl<K: Key> Handle for &Scc<K> {
    #[inline]
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Failure> {
        Ok(self.0.read_sync(key, |_, found| super::copy(found, value)).is_some())
    }

    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.0.upsert_sync(K::of(key), value.into());
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Failure> {
        self.0.remove_sync(key);
        Ok(())
    }
}
