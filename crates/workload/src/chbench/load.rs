//! The rows that there are before the first transaction.

use super::rows::{
    self, Customer, District, Item, Line, NewOrder, Order, Row, Stock, Warehouse, letters,
};
use super::{DISTRICTS, Scale, Table};
use crate::Failure;
use crate::random::Rng;

/// Draws all rows, and tells them to `put`.
///
/// ```
/// use terrace_workload::chbench::{Scale, load};
/// let (mut rows, scale) = (0, Scale { warehouses: 1, items: 10, customers: 3 });
/// load(scale, |_, _, _| {
///     rows += 1;
///     Ok(())
/// })?;
/// assert!(rows > 100);
/// # Ok::<(), terrace_workload::Failure>(())
/// ```
///
/// # Errors
/// Those of `put`.
pub fn load(
    scale: Scale,
    mut put: impl FnMut(Table, &[u8], &[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut random = Rng::new(11);
    for item in 1..=scale.items {
        let price = 100 + random.below(9_901) as u32;
        let row = Item {
            price,
            image: item,
            name: letters(|| random.bits()),
            data: letters(|| random.bits()),
        };
        put(Table::Item, &rows::item(item), &row.encode())?;
    }
    for warehouse in 1..=scale.warehouses {
        let tax = random.below(2_001) as u16;
        let row = Warehouse { tax, paid: 30_000_000, address: letters(|| random.bits()) };
        put(Table::Warehouse, &rows::warehouse(warehouse), &row.encode())?;
        for item in 1..=scale.items {
            let row = Stock {
                quantity: 10 + random.below(91) as u32,
                sold: 0,
                orders: 0,
                remote: 0,
                districts: letters(|| random.bits()),
                data: letters(|| random.bits()),
            };
            put(Table::Stock, &rows::stock(warehouse, item), &row.encode())?;
        }
        for district in 1..=DISTRICTS {
            let row = District {
                tax: random.below(2_001) as u16,
                next_order: scale.customers + 1,
                paid: 3_000_000,
                address: letters(|| random.bits()),
            };
            put(Table::District, &rows::district(warehouse, district), &row.encode())?;
            load_district(scale, (warehouse, district), &mut random, &mut put)?;
        }
    }
    Ok(())
}

fn load_district(
    scale: Scale,
    (warehouse, district): (u32, u32),
    random: &mut Rng,
    put: &mut impl FnMut(Table, &[u8], &[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut customers: Vec<u32> = (1..=scale.customers).collect();
    for at in (1..customers.len()).rev() {
        customers.swap(at, random.below(at as u64 + 1) as usize);
    }
    for (customer, order) in customers.into_iter().zip(1..) {
        let [one, other] = [(); 2].map(|()| b'A' + random.below(26) as u8);
        let row = Customer {
            state: [one, other],
            discount: random.below(5_001) as u16,
            balance: -1_000,
            deliveries: 0,
            name: letters(|| random.bits()),
            data: letters(|| random.bits()),
        };
        put(Table::Customer, &rows::of_district(warehouse, district, customer), &row.encode())?;
        let key = rows::of_district(warehouse, district, order);
        let is_new = order >= scale.first_new();
        let lines = 5 + random.below(11) as u8;
        let carrier = if is_new { 0 } else { 1 + random.below(10) as u8 };
        let row = Order { customer, entered: i64::from(order), carrier, lines };
        put(Table::Order, &key, &row.encode())?;
        if is_new {
            put(Table::NewOrder, &key, &NewOrder {}.encode())?;
        }
        for line in 1..=u32::from(lines) {
            let row = Line {
                item: 1 + random.below(u64::from(scale.items)) as u32,
                supplier: warehouse,
                delivered: if is_new { 0 } else { i64::from(order) },
                quantity: 5,
                amount: if is_new { 1 + random.below(999_999) as u32 } else { 0 },
                info: letters(|| random.bits()),
            };
            put(Table::Line, &rows::line(warehouse, district, order, line), &row.encode())?;
        }
    }
    Ok(())
}
