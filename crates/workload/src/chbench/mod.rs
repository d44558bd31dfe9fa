//! ch-benCHmark as SnapKV ran it (Miller, section 3.5): TPC-C's New Order and Delivery beside the questions 1 and 3 of
//! an analyst, on the same rows.
//!
//! The benchmark is Cole et al., *The mixed workload CH-benCHmark* (DBTest 2011), on TPC-C, revision 5.11: rows are
//! drawn and transactions are done as its clauses 2.4, 2.7 and 4.3.3 say, with what no transaction here reads left out
//! of the rows but not out of their size.
//!
//! A question is *fresh* if it sees each transaction that was told to be committed before it began.

mod load;
mod orders;
mod questions;
mod rows;

use crate::Failure;
use crate::random::Rng;
pub use load::load;
pub use orders::{Asked, Outcome, Terminal};
pub use questions::{
    Group, Revenue, groups_of_lines, orders_seen, revenues, revenues_by_reads, wrong,
};

/// A table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// Warehouses, by number.
    Warehouse,
    /// Their districts, ten each.
    District,
    /// Customers, by district.
    Customer,
    /// What can be ordered.
    Item,
    /// How much of each there is, by warehouse.
    Stock,
    /// Orders, by district.
    Order,
    /// Those that are to be delivered.
    NewOrder,
    /// Their lines.
    Line,
}

impl Table {
    /// All of them.
    pub const ALL: [Table; 8] = [
        Table::Warehouse,
        Table::District,
        Table::Customer,
        Table::Item,
        Table::Stock,
        Table::Order,
        Table::NewOrder,
        Table::Line,
    ];
}

/// How much there is of everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Warehouses.
    pub warehouses: u32,
    /// Items, of each of which a warehouse has a stock.
    pub items: u32,
    /// Customers of a district, each of whom has ordered once; of three in ten the order is to be delivered.
    pub customers: u32,
}

/// Districts of a warehouse.
pub const DISTRICTS: u32 = 10;

impl Scale {
    /// That of TPC-C, with so many warehouses: about 570,000 rows and 90 MB for the first.
    ///
    /// ```
    /// assert_eq!(terrace_workload::chbench::Scale::of(10).items, 100_000);
    /// ```
    pub fn of(warehouses: u32) -> Scale {
        Scale { warehouses, items: 100_000, customers: 3_000 }
    }

    /// The first order of a district that is to be delivered.
    fn first_new(&self) -> u32 {
        self.customers * 7 / 10 + 1
    }
}

/// Is told the number of a range, and a key and a value of it.
pub type Each<'a> = dyn FnMut(usize, &[u8], &[u8]) + 'a;

/// A transaction of a database, with the eight tables as ordered maps. What it reads is of one moment.
pub trait Transact {
    /// Tells `read` the value of a key; whether there is one.
    ///
    /// # Errors
    /// The database's.
    fn get(
        &mut self,
        table: Table,
        key: &[u8],
        read: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, Failure>;

    /// Writes an item.
    ///
    /// # Errors
    /// The database's.
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), Failure>;

    /// Deletes an item.
    ///
    /// # Errors
    /// The database's.
    fn delete(&mut self, table: Table, key: &[u8]) -> Result<(), Failure>;

    /// Tells `each` the items from one key to before another, in their order, until it says no.
    ///
    /// # Errors
    /// The database's.
    fn range(
        &mut self,
        table: Table,
        span: (&[u8], &[u8]),
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), Failure>;

    /// Reads several ranges together, and tells `each` the number of the range, and the items.
    ///
    /// # Errors
    /// The database's.
    fn snapshot(
        &mut self,
        table: Table,
        spans: &[(Vec<u8>, Vec<u8>)],
        each: &mut Each<'_>,
    ) -> Result<(), Failure>;
}

/// A row that is not there, or not readable: the database has lost something, or the workload is wrong.
fn lost(table: Table) -> Failure {
    format!("a row of table {table:?} is missing or not readable").into()
}

fn row<R: rows::Row>(
    transaction: &mut impl Transact,
    table: Table,
    key: &[u8],
) -> Result<R, Failure> {
    let mut found = None;
    transaction.get(table, key, &mut |bytes| found = R::decode(bytes))?;
    found.ok_or_else(|| lost(table))
}

/// TPC-C's number that is not uniform (clause 2.1.6), from 1 to `most`.
fn skewed(random: &mut Rng, a: u64, most: u32) -> u32 {
    let one = random.below(a + 1);
    let other = 1 + random.below(u64::from(most));
    ((one | other) % u64::from(most)) as u32 + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Tables in memory, one transaction at a time.
    #[derive(Clone, Default)]
    struct Plain(BTreeMap<Vec<u8>, Vec<u8>>);

    fn keyed(table: Table, key: &[u8]) -> Vec<u8> {
        [&[table as u8], key].concat()
    }

    impl Transact for Plain {
        fn get(
            &mut self,
            table: Table,
            key: &[u8],
            read: &mut dyn FnMut(&[u8]),
        ) -> Result<bool, Failure> {
            let found = self.0.get(&keyed(table, key));
            found.into_iter().for_each(|value| read(value));
            Ok(found.is_some())
        }

        fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), Failure> {
            self.0.insert(keyed(table, key), value.to_vec());
            Ok(())
        }

        fn delete(&mut self, table: Table, key: &[u8]) -> Result<(), Failure> {
            self.0.remove(&keyed(table, key));
            Ok(())
        }

        fn range(
            &mut self,
            table: Table,
            (from, to): (&[u8], &[u8]),
            each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
        ) -> Result<(), Failure> {
            let mut items = self.0.range(keyed(table, from)..keyed(table, to));
            items.all(|(key, value)| each(&key[1..], value));
            Ok(())
        }

        fn snapshot(
            &mut self,
            table: Table,
            spans: &[(Vec<u8>, Vec<u8>)],
            each: &mut Each<'_>,
        ) -> Result<(), Failure> {
            for (asked, (from, to)) in spans.iter().enumerate() {
                let items = self.0.range(keyed(table, from)..keyed(table, to));
                items.for_each(|(key, value)| each(asked, &key[1..], value));
            }
            Ok(())
        }
    }

    #[test]
    fn rows_agree_after_transactions_and_both_plans_of_question_3_with_each_other() {
        let (scale, mut shop) =
            (Scale { warehouses: 2, items: 500, customers: 30 }, Plain::default());
        load(scale, |table, key, value| shop.put(table, key, value)).unwrap();
        let (mut ordered, mut delivered) = (0, 0);
        for home in [1, 2] {
            let mut terminal = Terminal::new(scale, home, 5);
            for _ in 0..400 {
                let (asked, before) = (terminal.draw(), shop.clone());
                match terminal.run(&mut shop, &asked).unwrap() {
                    Outcome::Ordered => ordered += 1,
                    Outcome::Delivered => delivered += 1,
                    Outcome::RolledBack => shop = before,
                }
            }
        }
        assert!(delivered > 40);
        assert_eq!(orders_seen(&mut shop, scale).unwrap(), ordered);
        assert_eq!(wrong(&mut shop, scale).unwrap(), 0);
        for states in [0, 12, 300, 676] {
            let reads = revenues_by_reads(&mut shop, scale, states).unwrap();
            assert_eq!(revenues(&mut shop, scale, states).unwrap(), reads);
            assert!(states < 300 || !reads.is_empty());
        }
        let groups = groups_of_lines(&mut shop).unwrap();
        assert_eq!(groups.len(), 15);
        assert!(groups[&1].lines > groups[&15].lines);
        // What is lost is noticed.
        for table in [Table::Line, Table::Order, Table::NewOrder] {
            let mut shop = shop.clone();
            let key = shop.0.keys().rfind(|key| key[0] == table as u8).unwrap().clone();
            shop.0.remove(&key);
            assert!(wrong(&mut shop, scale).unwrap() > 0, "{table:?}");
        }
    }
}
