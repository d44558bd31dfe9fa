//! The transactions: nine in ten are a New Order, one is a Delivery.

use super::rows::{self, Customer, District, Item, Line, NewOrder, Order, Row, Stock, Warehouse};
use super::{DISTRICTS, Scale, Table, Transact, row, skewed};
use crate::Failure;
use crate::random::Rng;

/// How a transaction is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is to be committed, and then there is an order more.
    Ordered,
    /// It is to be committed.
    Delivered,
    /// It is to be rolled back: the last item of one order in a hundred is not there.
    RolledBack,
}

/// Draws what one of those asks for who enter orders, for a warehouse of theirs.
pub struct Terminal {
    scale: Scale,
    warehouse: u32,
    random: Rng,
    now: i64,
}

/// What one transaction is asked for: the same whenever it is tried again.
#[derive(Clone, Debug)]
pub struct Asked(What);

#[derive(Clone, Debug)]
enum What {
    NewOrder { district: u32, customer: u32, lines: Vec<Wanted> },
    Delivery { carrier: u8 },
}

#[derive(Clone, Copy, Debug)]
struct Wanted {
    item: u32,
    supplier: u32,
    quantity: u8,
}

impl Terminal {
    /// One of a warehouse, from 1 on.
    ///
    /// ```
    /// use terrace_workload::chbench::{Scale, Terminal};
    /// let mut terminal = Terminal::new(Scale::of(1), 1, 42);
    /// let _asked = terminal.draw();
    /// ```
    pub fn new(scale: Scale, warehouse: u32, seed: u64) -> Terminal {
        let random = Rng::new(seed ^ u64::from(warehouse) << 32);
        Terminal { scale, warehouse, random, now: i64::from(scale.customers) }
    }

    /// Draws the next transaction.
    pub fn draw(&mut self) -> Asked {
        let random = &mut self.random;
        if random.one_in(10) {
            return Asked(What::Delivery { carrier: 1 + random.below(10) as u8 });
        }
        let district = 1 + random.below(u64::from(DISTRICTS)) as u32;
        let customer = skewed(random, 1023, self.scale.customers);
        let (count, is_wrong) = (5 + random.below(11), random.one_in(100));
        let mut lines: Vec<Wanted> = Vec::with_capacity(count as usize);
        for number in 1..=count {
            let item = skewed(random, 8191, self.scale.items);
            let is_missing = is_wrong && number == count;
            let others = u64::from(self.scale.warehouses) - 1;
            let supplier = if others > 0 && random.one_in(100) {
                (self.warehouse + random.below(others) as u32) % self.scale.warehouses + 1
            } else {
                self.warehouse
            };
            let quantity = 1 + random.below(10) as u8;
            lines.push(Wanted { item: if is_missing { 0 } else { item }, supplier, quantity });
        }
        Asked(What::NewOrder { district, customer, lines })
    }

    /// Does what is asked in a transaction, up to its end, which is the caller's.
    ///
    /// # Errors
    /// The database's; and for rows that are not there.
    pub fn run(
        &mut self,
        transaction: &mut impl Transact,
        asked: &Asked,
    ) -> Result<Outcome, Failure> {
        self.now += 1;
        match &asked.0 {
            What::NewOrder { district, customer, lines } => {
                self.new_order(transaction, *district, *customer, lines)
            }
            What::Delivery { carrier } => self.deliver(transaction, *carrier),
        }
    }

    /// TPC-C, clause 2.4.2.
    fn new_order(
        &self,
        transaction: &mut impl Transact,
        district: u32,
        customer: u32,
        lines: &[Wanted],
    ) -> Result<Outcome, Failure> {
        let home = self.warehouse;
        let warehouse: Warehouse = row(transaction, Table::Warehouse, &rows::warehouse(home))?;
        let of: Customer =
            row(transaction, Table::Customer, &rows::of_district(home, district, customer))?;
        let key = rows::district(home, district);
        let mut at: District = row(transaction, Table::District, &key)?;
        let order = at.next_order;
        at.next_order += 1;
        transaction.put(Table::District, &key, &at.encode())?;
        let key = rows::of_district(home, district, order);
        let entered = Order { customer, entered: self.now, carrier: 0, lines: lines.len() as u8 };
        transaction.put(Table::Order, &key, &entered.encode())?;
        transaction.put(Table::NewOrder, &key, &NewOrder {}.encode())?;
        for (wanted, number) in lines.iter().zip(1..) {
            let mut item = None;
            transaction.get(Table::Item, &rows::item(wanted.item), &mut |bytes| {
                item = Item::decode(bytes);
            })?;
            let Some(item) = item else { return Ok(Outcome::RolledBack) };
            let key = rows::stock(wanted.supplier, wanted.item);
            let mut stock: Stock = row(transaction, Table::Stock, &key)?;
            let quantity = u32::from(wanted.quantity);
            let is_enough = stock.quantity >= quantity + 10;
            stock.quantity = stock.quantity + if is_enough { 0 } else { 91 } - quantity;
            stock.sold += quantity;
            stock.orders += 1;
            stock.remote += u32::from(wanted.supplier != home);
            transaction.put(Table::Stock, &key, &stock.encode())?;
            let info = 24 * (district as usize - 1);
            let line = Line {
                item: wanted.item,
                supplier: wanted.supplier,
                delivered: 0,
                quantity: wanted.quantity,
                amount: quantity * item.price,
                info: *stock.districts[info..].first_chunk().expect("invariant: of ten districts"),
            };
            transaction.put(
                Table::Line,
                &rows::line(home, district, order, number),
                &line.encode(),
            )?;
        }
        // What it costs is told the customer, and written nowhere.
        let rates = (u32::from(warehouse.tax), u32::from(at.tax), u32::from(of.discount));
        std::hint::black_box(rates);
        Ok(Outcome::Ordered)
    }

    /// TPC-C, clause 2.7.4, of all districts in one transaction.
    fn deliver(&self, transaction: &mut impl Transact, carrier: u8) -> Result<Outcome, Failure> {
        let home = self.warehouse;
        for district in 1..=DISTRICTS {
            let (from, to) =
                (rows::of_district(home, district, 0), rows::district(home, district + 1));
            let mut oldest = None;
            transaction.range(Table::NewOrder, (&from, &to), &mut |key, _| {
                oldest = Some(key.to_vec());
                false
            })?;
            // Of a district without any there is nothing to deliver.
            let Some(key) = oldest else { continue };
            transaction.delete(Table::NewOrder, &key)?;
            let mut order: Order = row(transaction, Table::Order, &key)?;
            order.carrier = carrier;
            transaction.put(Table::Order, &key, &order.encode())?;
            let (mut lines, mut amount) = (Vec::with_capacity(order.lines.into()), 0);
            let end = [&key[..], &[u8::MAX]].concat();
            transaction.range(Table::Line, (&key, &end), &mut |key, bytes| {
                lines.push((key.to_vec(), Line::decode(bytes)));
                true
            })?;
            for (key, line) in lines {
                let mut line = line.ok_or_else(|| super::lost(Table::Line))?;
                amount += i64::from(line.amount);
                line.delivered = self.now;
                transaction.put(Table::Line, &key, &line.encode())?;
            }
            let key = rows::of_district(home, district, order.customer);
            let mut customer: Customer = row(transaction, Table::Customer, &key)?;
            customer.balance += amount;
            customer.deliveries += 1;
            transaction.put(Table::Customer, &key, &customer.encode())?;
        }
        Ok(Outcome::Delivered)
    }
}
