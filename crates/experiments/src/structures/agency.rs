//! A travel agency, after the application Vacation of the STAMP benchmarks: tables of cars, flights and
//! rooms, and customers with what they have booked, each table a red-black tree.
//!
//! One section is one customer's business: look at some offers and book the dearest of each kind, or
//! cancel everything and go; or the agency's: change what is on offer.

use super::Random;
use super::red_black::Tree;
use terrace_durable::plain;
use terrace_durable::sections::{Offset, Result, Root, Tx};
use terrace_memory::Memory;

plain! {
    struct Agency {
        tables: [u64; KINDS],
        customers: Offset<Tree>,
        rows: u64,
    }
}

plain! {
    struct Offer {
        used: u64,
        free: u64,
        total: u64,
        price: u64,
    }
}

plain! {
    struct Customer {
        first: Offset<Booking>,
    }
}

plain! {
    struct Booking {
        offer: Offset<Offer>,
        price: u64,
        next: Offset<Booking>,
    }
}

/// Cars, flights and rooms.
const KINDS: usize = 3;
/// Offers that a customer looks at, as in STAMP's configuration of low contention.
const QUERIES: u64 = 4;
/// Of a hundred rows, those that are asked for.
const QUERIED: u64 = 60;
/// Of a hundred sections, bookings; the rest are half cancellations, half changes of offers.
const BOOKINGS: u64 = 90;
/// What a change of an offer adds or takes away.
const SEATS: u64 = 100;

const ROOT: Root<Agency> = Root::new(5);

/// An agency, under root 5 of its pool.
///
/// # Errors
/// Every method passes on those of the section's reads, writes and allocations.
#[derive(Debug)]
pub struct TravelAgency;

/// The agency in an open section.
struct Open<'t, 's, M: Memory> {
    tx: &'t mut Tx<'s, M>,
    agency: Agency,
}

impl<M: Memory> Open<'_, '_, M> {
    fn table(&self, kind: usize) -> Offset<Tree> {
        Offset::new(self.agency.tables[kind])
    }

    fn find(&mut self, kind: usize, row: u64) -> Result<Option<Offset<Offer>>> {
        let table = self.table(kind);
        Ok(Tree::find(self.tx, table, row)?.map(Offset::new))
    }

    fn offer(&mut self, kind: usize, row: u64, seats: u64, price: u64) -> Result<()> {
        let offer = Offer { used: 0, free: seats, total: seats, price };
        let at = self.tx.create(&offer)?;
        let table = self.table(kind);
        Tree::add(self.tx, table, row, at.at())
    }

    /// The customer's record, made if need be.
    fn customer(&mut self, row: u64) -> Result<Offset<Customer>> {
        let customers = self.agency.customers;
        if let Some(at) = Tree::find(self.tx, customers, row)? {
            return Ok(Offset::new(at));
        }
        let at = self.tx.create(&Customer { first: Offset::NULL })?;
        Tree::add(self.tx, customers, row, at.at())?;
        Ok(at)
    }

    /// Looks at some offers and reserves the dearest free one of each kind.
    fn book(&mut self, random: &mut Random) -> Result<()> {
        let rows = self.queried();
        let mut dearest: [Option<(u64, Offset<Offer>)>; KINDS] = [None; KINDS];
        for _ in 0..QUERIES {
            let (kind, row) = (random.below(KINDS as u64) as usize, random.below(rows));
            let Some(at) = self.find(kind, row)? else { continue };
            let offer = self.tx.get(at)?;
            let is_dearer = dearest[kind].is_none_or(|(price, _)| offer.price > price);
            if offer.free > 0 && is_dearer {
                dearest[kind] = Some((offer.price, at));
            }
        }
        if dearest.iter().all(Option::is_none) {
            return Ok(());
        }
        let customer = self.customer(random.below(rows))?;
        for (price, at) in dearest.into_iter().flatten() {
            let offer = self.tx.get(at)?;
            self.tx.set(at, Offer { used: offer.used + 1, free: offer.free - 1, ..offer })?;
            let next = self.tx.get(Customer::first(customer))?;
            let booking = self.tx.create(&Booking { offer: at, price, next })?;
            self.tx.set(Customer::first(customer), booking)?;
        }
        Ok(())
    }

    /// Cancels everything a customer booked and forgets them.
    fn cancel(&mut self, random: &mut Random) -> Result<()> {
        let row = random.below(self.queried());
        let customers = self.agency.customers;
        let Some(at) = Tree::find(self.tx, customers, row)? else { return Ok(()) };
        let customer = Offset::<Customer>::new(at);
        let mut at = self.tx.get(Customer::first(customer))?;
        while !at.is_null() {
            let booking = self.tx.get(at)?;
            let offer = self.tx.get(booking.offer)?;
            let back = Offer { used: offer.used - 1, free: offer.free + 1, ..offer };
            self.tx.set(booking.offer, back)?;
            self.tx.destroy(at)?;
            at = booking.next;
        }
        Tree::remove(self.tx, customers, row)?;
        self.tx.destroy(customer)
    }

    /// Adds seats at a new price, or takes seats away; an offer without any is withdrawn.
    fn change(&mut self, random: &mut Random) -> Result<()> {
        let rows = self.queried();
        for _ in 0..QUERIES {
            let (kind, row) = (random.below(KINDS as u64) as usize, random.below(rows));
            let (adds, price) = (random.below(2) == 0, price(random));
            let Some(at) = self.find(kind, row)? else {
                if adds {
                    self.offer(kind, row, SEATS, price)?;
                }
                continue;
            };
            let Offer { used, free, total, .. } = self.tx.get(at)?;
            if adds {
                let (free, total) = (free + SEATS, total + SEATS);
                self.tx.set(at, Offer { used, free, total, price })?;
            } else if free >= SEATS && total > SEATS {
                self.tx.set(Offer::free(at), free - SEATS)?;
                self.tx.set(Offer::total(at), total - SEATS)?;
            } else if free == total {
                let table = self.table(kind);
                Tree::remove(self.tx, table, row)?;
                self.tx.destroy(at)?;
            }
        }
        Ok(())
    }

    fn queried(&self) -> u64 {
        (self.agency.rows * QUERIED / 100).max(1)
    }
}

fn price(random: &mut Random) -> u64 {
    50 + 10 * random.below(5)
}

impl TravelAgency {
    /// Makes one with empty tables that are to have so many rows each.
    pub fn create<M: Memory>(tx: &mut Tx<'_, M>, rows: u64) -> Result<()> {
        let mut tables = [0; KINDS];
        for table in &mut tables {
            *table = Tree::make(tx)?.at();
        }
        let customers = Tree::make(tx)?;
        let agency = tx.create(&Agency { tables, customers, rows })?;
        tx.set_root(ROOT, agency)
    }

    /// Fills one row of every table.
    pub fn fill<M: Memory>(tx: &mut Tx<'_, M>, row: u64) -> Result<()> {
        let mut random = Random(row);
        let agency = tx.get(tx.root(ROOT)?)?;
        let mut open = Open { tx, agency };
        for kind in 0..KINDS {
            let seats = SEATS * (1 + random.below(5));
            let price = price(&mut random);
            open.offer(kind, row, seats, price)?;
        }
        open.customer(row).map(drop)
    }

    /// One section's business, which follows from `seed`.
    pub fn serve<M: Memory>(tx: &mut Tx<'_, M>, seed: u64) -> Result<()> {
        let mut random = Random(seed);
        let part = random.below(100);
        TravelAgency::serve_part(tx, part, random)
    }

    /// As [`TravelAgency::serve`], but which business it is, of a hundred, is given.
    pub(crate) fn serve_part<M: Memory>(
        tx: &mut Tx<'_, M>,
        part: u64,
        mut random: Random,
    ) -> Result<()> {
        let agency = tx.get(tx.root(ROOT)?)?;
        let mut open = Open { tx, agency };
        match part {
            part if part < BOOKINGS => open.book(&mut random),
            part if part < (100 + BOOKINGS) / 2 => open.cancel(&mut random),
            _ => open.change(&mut random),
        }
    }

    /// What is on offer and what is booked, without a word of where it lies: of each offer its kind,
    /// row, seats and price; of each customer the row, and of each booking kind, row and price.
    /// Nothing if it was not made.
    pub fn contents<M: Memory>(tx: &Tx<'_, M>) -> Result<Vec<Vec<u64>>> {
        let root = tx.root(ROOT)?;
        if root.is_null() {
            return Ok(Vec::new());
        }
        let Agency { tables, customers, .. } = tx.get(root)?;
        let (mut offers, mut who) = (std::collections::BTreeMap::new(), Vec::new());
        for (kind, table) in tables.into_iter().enumerate() {
            Tree::each(tx, Offset::new(table), |row, offer, _| {
                offers.insert(offer, (kind as u64, row));
            })?;
        }
        Tree::each(tx, customers, |row, customer, _| who.push((row, customer)))?;
        let mut contents = Vec::new();
        for (at, (kind, row)) in &offers {
            let offer = tx.get(Offset::<Offer>::new(*at))?;
            contents.push(vec![*kind, *row, offer.used, offer.free, offer.total, offer.price]);
        }
        contents.sort();
        for (row, customer) in who {
            let mut line = vec![KINDS as u64, row];
            let mut at = tx.get(Customer::first(Offset::new(customer)))?;
            while !at.is_null() {
                let booking = tx.get(at)?;
                let (kind, row) = offers.get(&booking.offer.at()).expect("an offer that is there");
                line.extend([*kind, *row, booking.price]);
                at = booking.next;
            }
            contents.push(line);
        }
        Ok(contents)
    }

    /// Every object it is made of; none if it was not made.
    ///
    /// # Panics
    /// If an offer's seats are not those booked and those free.
    pub fn objects<M: Memory>(tx: &Tx<'_, M>) -> Result<Vec<u64>> {
        let root = tx.root(ROOT)?;
        if root.is_null() {
            return Ok(Vec::new());
        }
        let Agency { tables, customers, .. } = tx.get(root)?;
        let (mut offers, mut customers_at) = (Vec::new(), Vec::new());
        let mut objects = vec![root.at(), customers.at()];
        for table in tables {
            objects.push(table);
            Tree::each(tx, Offset::new(table), |_, offer, at| {
                offers.push(offer);
                objects.push(at);
            })?;
        }
        Tree::each(tx, customers, |_, customer, at| {
            customers_at.push(customer);
            objects.push(at);
        })?;
        let mut booked = std::collections::BTreeMap::new();
        for customer in &customers_at {
            let mut at = tx.get(Customer::first(Offset::new(*customer)))?;
            while !at.is_null() {
                let booking = tx.get(at)?;
                *booked.entry(booking.offer.at()).or_insert(0) += 1;
                objects.push(at.at());
                at = booking.next;
            }
        }
        for at in &offers {
            let offer = tx.get(Offset::<Offer>::new(*at))?;
            let used = booked.remove(at).unwrap_or(0);
            assert_eq!((offer.used, offer.total), (used, used + offer.free), "offer at {at}");
        }
        assert!(booked.is_empty(), "bookings of offers that are not there");
        objects.extend(offers);
        objects.extend(customers_at);
        Ok(objects)
    }
}
