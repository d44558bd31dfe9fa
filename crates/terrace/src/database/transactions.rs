//! Snapshots, transactions and procedures over the maps of a database.

use super::Database;
use std::sync::Arc;
use terrace_store::{Error, Moment, Transaction};
use terrace_transact::device::Device;
use terrace_transact::{Call, Procedure};

impl Database {
    /// All maps as they are now, whatever is written after: [`Map::at`](terrace_store::Map::at) gives each of them.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// let (stock, orders) = (db.map("stock")?, db.map("orders")?);
    /// stock.put(b"chair", b"7")?;
    /// let moment = db.snapshot();
    /// stock.put(b"chair", b"6")?;
    /// orders.put(b"1", b"chair")?;
    /// assert_eq!(stock.at(&moment)?.get(b"chair")?.as_deref(), Some(&b"7"[..]));
    /// assert_eq!(orders.at(&moment)?.get(b"1")?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Complexity
    /// O(1) in the data. The first one for a second waits for the writes that are under way.
    pub fn snapshot(&self) -> Arc<Moment> {
        self.options.moments.open()
    }

    /// Begins a transaction, which reads all maps as they are now, and writes as one or not at all. It is committed by
    /// [`Transaction::commit`]; dropped it leaves nothing.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// let stock = db.map("stock")?;
    /// stock.put(b"chair", b"1")?;
    /// let mut transaction = db.begin();
    /// transaction.delete(&stock, b"chair")?;
    /// transaction.put(&stock, b"sold", b"chair")?;
    /// assert!(stock.get(b"chair")?.is_some(), "nobody sees it yet");
    /// transaction.commit()?;
    /// assert!(stock.get(b"chair")?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Complexity
    /// As [`Database::snapshot`].
    pub fn begin(&self) -> Transaction {
        self.options.moments.begin()
    }

    /// Runs `f` in a transaction and commits it; if others came first, again, in a new one, after a pause that grows.
    /// So `f` must have no other effect that cannot be repeated.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = terrace::Database::open(dir.path(), terrace::MapOptions::default())?;
    /// let accounts = db.map("accounts")?;
    /// accounts.multi_put(&[(b"ada", &[9]), (b"grace", &[1])])?;
    /// let of = |balance: Option<Vec<u8>>| balance.map_or(0, |bytes| bytes[0]);
    /// db.transaction(|transaction| {
    ///     let (ada, grace) =
    ///         (of(transaction.get(&accounts, b"ada")?), of(transaction.get(&accounts, b"grace")?));
    ///     transaction.put(&accounts, b"ada", &[ada - 5])?;
    ///     transaction.put(&accounts, b"grace", &[grace + 5])
    /// })?;
    /// assert_eq!(accounts.get(b"grace")?.as_deref(), Some(&[6][..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of `f`, and of [`Transaction::commit`], a conflict aside: nothing is written then.
    pub fn transaction<R, E: From<Error>>(
        &self,
        f: impl FnMut(&mut Transaction) -> std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        self.options.moments.transaction(f)
    }

    /// The procedure `name`: a transaction that also computes on `device`. `body` may run several times for one call,
    /// as the closure of [`Database::transaction`].
    ///
    /// ```
    /// use terrace::device::{Device, Kernel};
    /// use terrace::{Database, MapOptions, ProcedureError};
    /// static DOUBLE: Kernel = Kernel::new("double", |launch| {
    ///     launch.write::<f32>(0).iter_mut().for_each(|price| *price *= 2.0);
    /// });
    /// # let dir = tempfile::tempdir()?;
    /// # let db = Database::open(dir.path(), MapOptions::default())?;
    /// let prices = db.typed_map::<String, f32>("prices")?;
    /// prices.put(&"chair".into(), &20.0)?;
    /// let double = db.procedure("double", &Device::here(1 << 20), {
    ///     let prices = prices.clone();
    ///     move |call, name: &String| {
    ///         let mut price = [prices.get_in(call, name)?.unwrap_or(0.0)];
    ///         let old = price;
    ///         call.device(|block| {
    ///             let number = block.copy_in(&old)?;
    ///             block.launch(&DOUBLE, &[], &[number.into()])?;
    ///             block.copy_out(number, &mut price)
    ///         })?;
    ///         Ok::<_, ProcedureError>(prices.put_in(call, name, &price[0])?)
    ///     }
    /// });
    /// double.call(&"chair".into())?;
    /// assert_eq!(prices.get(&"chair".into())?, Some(40.0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn procedure<I: ?Sized, R, E: From<Error>>(
        &self,
        name: impl Into<String>,
        device: &Device,
        body: impl Fn(&mut Call<'_>, &I) -> std::result::Result<R, E> + Send + Sync + 'static,
    ) -> Procedure<I, R, E> {
        Procedure::new(name, Arc::clone(&self.options.moments), device.clone(), body)
    }
}
