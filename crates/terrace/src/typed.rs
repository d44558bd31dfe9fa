//! Maps of Rust types: keys in their order, values by serde.
//!
//! A key is bytes in the order of what it stands for ([`Key`]), so ranges of an ordered map are ranges of keys. A value
//! is MessagePack with the names of its fields: a struct may get new fields that have a default, and programs in other
//! languages can read it. Neither says its type: as another type of the same form it can be read.

mod key;

pub use key::{Key, KeyParts};

use crate::{Database, Error, Items, Kind, Map, MapOpener, Range, Result, Transaction, Value};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::time::{Duration, SystemTime};

/// A map of keys and values of these types. Any number of handles may be there, in any threads.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use terrace::{Database, MapOptions};
///
/// #[derive(Debug, PartialEq, Serialize, Deserialize)]
/// struct Reading {
///     celsius: f64,
/// }
///
/// let dir = tempfile::tempdir()?;
/// let db = Database::open(dir.path(), MapOptions::default())?;
/// let readings = db.typed_map::<(String, u64), Reading>("readings")?;
/// readings.put(&("cellar".into(), 1_700_000_000), &Reading { celsius: 11.5 })?;
/// readings.put(&("cellar".into(), 1_700_000_060), &Reading { celsius: 11.6 })?;
/// readings.put(&("roof".into(), 1_700_000_000), &Reading { celsius: -3.0 })?;
/// let newest = readings.prefix(&"cellar".into()).next_back().transpose()?;
/// assert_eq!(newest.map(|(_, reading)| reading), Some(Reading { celsius: 11.6 }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TypedMap<K, V> {
    map: Map,
    types: PhantomData<fn(K) -> V>,
}

impl<K, V> Clone for TypedMap<K, V> {
    fn clone(&self) -> Self {
        TypedMap { map: self.map.clone(), types: PhantomData }
    }
}

impl<K, V> fmt::Debug for TypedMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypedMap").field("kind", &self.map.kind()).finish_non_exhaustive()
    }
}

impl Database {
    /// The map `name`, ordered, for keys and values of these types. Every item in it must be one that a typed map of
    /// these types wrote, or that is written as they are. An ordered map keeps its values in memory: for more than that
    /// [`MapOpener::open_typed`] opens a hash map.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// let ages = db.typed_map::<String, u8>("ages")?;
    /// ages.put(&"ada".into(), &36)?;
    /// assert_eq!(ages.get(&"ada".into())?, Some(36));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Database::map`]; [`Error::Option`] if the map is open, and not as an ordered one.
    pub fn typed_map<K: Key, V>(&self, name: &str) -> Result<TypedMap<K, V>> {
        self.map_builder(name).kind(Kind::Ordered).open_typed()
    }
}

impl MapOpener<'_> {
    /// Opens the map for keys and values of these types.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// let sessions = db.map_builder("sessions").kind(terrace::Kind::Hash).open_typed::<u128, String>()?;
    /// sessions.put(&7, &"ada".into())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`MapOpener::open`].
    pub fn open_typed<K: Key, V>(self) -> Result<TypedMap<K, V>> {
        self.open().map(TypedMap::new)
    }
}

impl<K, V> TypedMap<K, V> {
    /// A map that is open already.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// let names = terrace::TypedMap::<u64, String>::new(db.map("names")?);
    /// assert!(names.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(map: Map) -> Self {
        TypedMap { map, types: PhantomData }
    }

    /// The map of bytes below: its statistics, sessions, `sync`, `clear`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// let ages = db.typed_map::<String, u8>("ages")?;
    /// ages.put(&"ada".into(), &36)?;
    /// assert_eq!(ages.map().get(b"ada")?, Some(vec![36]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn map(&self) -> &Map {
        &self.map
    }

    /// Number of keys, as [`Map::len`] counts them.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// let ages = db.typed_map::<String, u8>("ages")?;
    /// ages.put(&"ada".into(), &36)?;
    /// assert_eq!(ages.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn len(&self) -> u64 {
        self.map.len()
    }

    /// Whether there are no keys.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// assert!(db.typed_map::<String, u8>("ages")?.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }
}

impl<K: Key, V: Serialize + DeserializeOwned> TypedMap<K, V> {
    /// The value of `key`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// let ages = db.typed_map::<String, u8>("ages")?;
    /// assert_eq!(ages.get(&"ada".into())?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotOfType`] if what is there is no `V`; those of [`Map::get`].
    pub fn get(&self, key: &K) -> Result<Option<V>> {
        let key = key.encode();
        self.map.get_with(&key, |value| decode_value(&key, value.bytes))?.transpose()
    }

    /// Writes `value` for `key`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// let ages = db.typed_map::<String, u8>("ages")?;
    /// ages.put(&"ada".into(), &36)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotOfType`] if serde refuses the value; those of [`Map::put`].
    pub fn put(&self, key: &K, value: &V) -> Result<()> {
        let key = key.encode();
        self.map.put(&key, &encode_value(&key, value)?)
    }

    /// Writes `value` for `key`, which is gone after this time.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// use std::time::Duration;
    /// let tokens = db.typed_map::<String, u64>("tokens")?;
    /// tokens.put_for(&"ada".into(), &7, Duration::from_millis(1))?;
    /// std::thread::sleep(Duration::from_millis(20));
    /// assert_eq!(tokens.get(&"ada".into())?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`TypedMap::put`].
    pub fn put_for(&self, key: &K, value: &V, time: Duration) -> Result<()> {
        let key = key.encode();
        let value = encode_value(&key, value)?;
        let at = SystemTime::now().checked_add(time);
        let since = at.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
        // Beyond what a clock shows it never ends.
        let expires_at_ms = since.and_then(|since| u64::try_from(since.as_millis()).ok());
        let mut session = self.map.session();
        session.put(&key, &value, expires_at_ms)?;
        session.commit()
    }

    /// Removes `key`; whether it was there.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// let ages = db.typed_map::<String, u8>("ages")?;
    /// ages.put(&"ada".into(), &36)?;
    /// assert!(ages.delete(&"ada".into())?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Map::delete`].
    pub fn delete(&self, key: &K) -> Result<bool> {
        self.map.delete(&key.encode())
    }

    /// Changes the value of `key`: `f` gets it, or none, and returns the new one, which `update` returns; `None`
    /// deletes the key. It keeps its time of expiry. If others write the key meanwhile `f` runs again: it must have no
    /// other effect that cannot be repeated.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// let visits = db.typed_map::<String, u64>("visits")?;
    /// for _ in 0..3 {
    ///     visits.update(&"/".into(), |count| Some(count.unwrap_or(0) + 1))?;
    /// }
    /// assert_eq!(visits.get(&"/".into())?, Some(3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`TypedMap::get`] and [`TypedMap::put`]: the key is as it was then.
    pub fn update(&self, key: &K, mut f: impl FnMut(Option<V>) -> Option<V>) -> Result<Option<V>> {
        let key = key.encode();
        let mut session = self.map.session();
        let made = session.atomic(|session| {
            let old = session
                .get(&key, |value| (decode_value(&key, value.bytes), value.expires_at_ms))?;
            let (old, expires_at_ms) = old.map_or((None, None), |(old, at)| (Some(old), at));
            let new = f(old.transpose()?);
            match &new {
                Some(new) => session.put(&key, &encode_value(&key, new)?, expires_at_ms)?,
                None => drop(session.delete(&key)?),
            }
            Ok::<_, Error>(new)
        })?;
        session.commit()?;
        Ok(made)
    }

    /// The items of a range in the order of keys, from either end. Every key that is there from the first call to the
    /// last is told exactly once; see [`Map::iter`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// let squares = db.typed_map::<i32, i64>("squares")?;
    /// (-5..5).try_for_each(|n| squares.put(&n, &i64::from(n * n)))?;
    /// let sum: i64 = squares.range(-2..=2).map(|item| item.map(|(_, square)| square)).sum::<Result<_, _>>()?;
    /// assert_eq!(sum, 10);
    /// assert_eq!(squares.range(..).next_back().transpose()?, Some((4, 16)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotOfType`] stands for one item, and the next ones follow; any other is the last, as of [`Map::iter`].
    pub fn range(&self, range: impl RangeBounds<K>) -> TypedItems<'static, K, V> {
        let (from, to) = bounds(&range);
        TypedItems::of(self.map.iter((as_bytes(&from), as_bytes(&to))))
    }

    /// The items whose keys begin with this part, in their order.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// let visits = db.typed_map::<(String, u64), String>("visits")?;
    /// visits.put(&("ada".into(), 1), &"/".into())?;
    /// visits.put(&("ada".into(), 2), &"/docs".into())?;
    /// visits.put(&("adam".into(), 1), &"/".into())?;
    /// assert_eq!(visits.prefix(&"ada".into()).count(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`TypedMap::range`].
    pub fn prefix(&self, first: &K::First) -> TypedItems<'static, K, V>
    where
        K: KeyParts,
    {
        let (mut prefix, mut end) = (Vec::new(), Vec::new());
        first.encode_to(&mut prefix, false);
        TypedItems::of(self.map.iter(Range::of_prefix(&prefix, &mut end)))
    }

    /// The value of `key` in a transaction, which reads one moment; one that is dropped has only read.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// let accounts = db.typed_map::<String, i64>("accounts")?;
    /// accounts.put(&"ada".into(), &90)?;
    /// db.transaction(|tx| {
    ///     let ada = accounts.get_in(tx, &"ada".into())?.unwrap_or(0);
    ///     accounts.put_in(tx, &"ada".into(), &(ada - 20))?;
    ///     accounts.put_in(tx, &"eve".into(), &20)
    /// })?;
    /// assert_eq!(accounts.get(&"ada".into())?, Some(70));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotOfType`]; those of [`Transaction::get`].
    pub fn get_in(&self, transaction: &mut Transaction, key: &K) -> Result<Option<V>> {
        let key = key.encode();
        let found = transaction
            .get_with(&self.map, &key, |value: Value<'_>| decode_value(&key, value.bytes))?;
        found.transpose()
    }

    /// Writes `value` for `key` when the transaction is committed.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// let ages = db.typed_map::<String, u8>("ages")?;
    /// let mut tx = db.begin();
    /// ages.put_in(&mut tx, &"ada".into(), &36)?;
    /// assert!(ages.is_empty());
    /// tx.commit()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotOfType`]; those of [`Transaction::put`].
    pub fn put_in(&self, transaction: &mut Transaction, key: &K, value: &V) -> Result<()> {
        let key = key.encode();
        transaction.put(&self.map, &key, &encode_value(&key, value)?)
    }

    /// Removes `key` when the transaction is committed; whether it was there.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// let ages = db.typed_map::<String, u8>("ages")?;
    /// let mut tx = db.begin();
    /// assert!(!ages.delete_in(&mut tx, &"ada".into())?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Transaction::delete`].
    pub fn delete_in(&self, transaction: &mut Transaction, key: &K) -> Result<bool> {
        transaction.delete(&self.map, &key.encode())
    }

    /// The items of a range in a transaction, with what that wrote. They have the transaction to themselves: collect
    /// what is to be written.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// let jobs = db.typed_map::<u64, String>("jobs")?;
    /// jobs.put(&1, &"write".into())?;
    /// let first = db.transaction(|tx| {
    ///     let first = jobs.range_in(tx, ..).next().transpose()?;
    ///     first.iter().try_for_each(|(number, _)| jobs.delete_in(tx, number).map(drop))?;
    ///     Ok::<_, terrace::Error>(first)
    /// })?;
    /// assert_eq!((first, jobs.map().len()), (Some((1, "write".into())), 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`TypedMap::range`]; those of [`Transaction::range`].
    pub fn range_in<'a>(
        &self,
        transaction: &'a mut Transaction,
        range: impl RangeBounds<K>,
    ) -> TypedItems<'a, K, V> {
        let (from, to) = bounds(&range);
        TypedItems::of(transaction.iter(&self.map, (as_bytes(&from), as_bytes(&to))))
    }
}

/// The items of a range of a typed map; made by [`TypedMap::range`] and [`TypedMap::range_in`].
pub struct TypedItems<'a, K, V> {
    items: Items<'a>,
    types: PhantomData<fn() -> (K, V)>,
}

impl<'a, K: Key, V: DeserializeOwned> TypedItems<'a, K, V> {
    fn of(items: Items<'a>) -> Self {
        TypedItems { items, types: PhantomData }
    }
}

fn typed<K: Key, V: DeserializeOwned>(item: Result<(Vec<u8>, Vec<u8>)>) -> Result<(K, V)> {
    let (key, value) = item?;
    let value = decode_value(&key, &value)?;
    let found = K::decode(&key);
    found.map(|found| (found, value)).ok_or_else(|| not_of_type(&key, "the key is of another type"))
}

impl<K: Key, V: DeserializeOwned> Iterator for TypedItems<'_, K, V> {
    type Item = Result<(K, V)>;

    fn next(&mut self) -> Option<Result<(K, V)>> {
        self.items.next().map(typed)
    }
}

impl<K: Key, V: DeserializeOwned> FusedIterator for TypedItems<'_, K, V> {}

impl<K: Key, V: DeserializeOwned> DoubleEndedIterator for TypedItems<'_, K, V> {
    fn next_back(&mut self) -> Option<Result<(K, V)>> {
        self.items.next_back().map(typed)
    }
}

fn bounds<K: Key>(range: &impl RangeBounds<K>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    (range.start_bound().map(K::encode), range.end_bound().map(K::encode))
}

fn as_bytes(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

fn encode_value<V: Serialize>(key: &[u8], value: &V) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut encoder = rmp_serde::Serializer::new(&mut bytes)
        .with_struct_map()
        .with_bytes(rmp_serde::config::BytesMode::ForceAll);
    value.serialize(&mut encoder).map_err(|error| not_of_type(key, error))?;
    Ok(bytes)
}

fn decode_value<V: DeserializeOwned>(key: &[u8], bytes: &[u8]) -> Result<V> {
    let mut rest = bytes;
    let value = V::deserialize(&mut rmp_serde::Deserializer::new(&mut rest));
    let value = value.map_err(|error| not_of_type(key, error))?;
    match rest.is_empty() {
        true => Ok(value),
        false => Err(not_of_type(key, "there are bytes behind the value")),
    }
}

/// Bytes of a key that an error shows.
const SHOWN: usize = 64;

fn not_of_type(key: &[u8], why: impl fmt::Display) -> Error {
    let more = if key.len() > SHOWN { "..." } else { "" };
    let key = format!("{}{more}", key[..key.len().min(SHOWN)].escape_ascii());
    Error::NotOfType { key, why: why.to_string() }
}
