//! Files of orders for a ledger: CSV, or a JSON object a line.
//!
//! ```text
//! from,to,amount,gas,id                 columns in any order; without this line they are in this order,
//! 17,4,250,1,90001                      and gas and id may be left out
//! {"from":17,"to":4,"amount":250,"gas":1,"id":90001}
//! {"takes":[[17,200],[18,50]],"gives":[[4,250]],"floor":0,"id":90002}
//! ```
//! An id that a line before it has is refused, as is everything that is not one of these, with its line.

use serde::Deserialize;
use std::collections::HashSet;
use std::io::{self, BufRead};
use terrace_transact::ledger::{Block, Movement, Transfer};

/// How a file of orders is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderFormat {
    /// Columns of transfers.
    Csv,
    /// An object a line, of transfers or of movements.
    Jsonl,
}

/// What is wrong with a file of orders, and where.
#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    /// A line is no order.
    #[error("line {line}: {what}")]
    Line {
        /// From 1.
        line: u64,
        /// What is wrong with it.
        what: String,
    },
    /// The file cannot be read.
    #[error("behind line {line}: {source}")]
    Io {
        /// The last that was read.
        line: u64,
        /// What the system said.
        source: io::Error,
    },
}

/// The columns of a CSV file, by where they stand.
const COLUMNS: [&str; 5] = ["from", "to", "amount", "gas", "id"];

/// Reads orders, a block at a time.
pub struct OrderReader<R> {
    lines: io::Lines<R>,
    format: OrderFormat,
    line: u64,
    columns: Option<Vec<usize>>,
    ids: HashSet<u64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Object {
    Transfer(TransferObject),
    Movement(MovementObject),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TransferObject {
    from: u64,
    to: u64,
    amount: u64,
    #[serde(default)]
    gas: u64,
    #[serde(default)]
    id: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MovementObject {
    takes: Vec<(u64, u64)>,
    #[serde(default)]
    gives: Vec<(u64, u64)>,
    #[serde(default)]
    floor: i64,
    #[serde(default)]
    id: u64,
}

enum Order {
    Transfer(Transfer),
    Movement(Movement),
}

impl<R: BufRead> OrderReader<R> {
    /// A reader of `file`.
    ///
    /// ```
    /// use terrace::orders::{OrderFormat, OrderReader};
    /// let mut reader = OrderReader::new(&b"1,2,70\n2,1,5\n"[..], OrderFormat::Csv);
    /// assert!(reader.next_block(10)?.is_some() && reader.next_block(10)?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(file: R, format: OrderFormat) -> OrderReader<R> {
        OrderReader { lines: file.lines(), format, line: 0, columns: None, ids: HashSet::new() }
    }

    /// How many lines were read.
    ///
    /// ```
    /// use terrace::orders::{OrderFormat, OrderReader};
    /// let mut reader = OrderReader::new(&b"1,2,70\n2,1,5\n"[..], OrderFormat::Csv);
    /// reader.next_block(10)?;
    /// assert_eq!(reader.line(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn line(&self) -> u64 {
        self.line
    }

    /// The next block, of at most `orders` orders; none at the end of the file.
    ///
    /// ```
    /// use terrace::orders::{OrderFormat, OrderReader};
    /// let mut reader = OrderReader::new(&b"1,2,not a sum\n"[..], OrderFormat::Csv);
    /// assert!(reader.next_block(10).unwrap_err().to_string().contains("line 1"));
    /// ```
    ///
    /// # Errors
    /// A line that is no order, or the file cannot be read: what was read of the block is lost.
    pub fn next_block(&mut self, orders: usize) -> Result<Option<Block>, OrderError> {
        let (mut transfers, mut movements) = (Vec::new(), Vec::new());
        let first = self.line + 1;
        while transfers.len() + movements.len() < orders {
            let Some(text) = self.next_line()? else { break };
            match self
                .order(text.trim())
                .map_err(|what| OrderError::Line { line: self.line, what })?
            {
                None => {}
                Some(Order::Transfer(transfer)) => transfers.push(transfer),
                Some(Order::Movement(movement)) => movements.push(movement),
            }
            if !transfers.is_empty() && !movements.is_empty() {
                let what = "transfers and movements in one file: a ledger takes one of them".into();
                return Err(OrderError::Line { line: self.line, what });
            }
        }
        if transfers.is_empty() && movements.is_empty() {
            return Ok(None);
        }
        let block = match movements.is_empty() {
            true => Block::of_transfers(transfers),
            false => Block::of_movements(movements),
        };
        let refused = |error| OrderError::Line {
            line: self.line,
            what: format!("in the block that begins at line {first}: {error}"),
        };
        block.map(Some).map_err(refused)
    }

    fn next_line(&mut self) -> Result<Option<String>, OrderError> {
        let line = self.lines.next().transpose();
        let line = line.map_err(|source| OrderError::Io { line: self.line, source })?;
        self.line += u64::from(line.is_some());
        Ok(line)
    }

    /// What a line says: nothing, if it is empty or names the columns.
    fn order(&mut self, text: &str) -> Result<Option<Order>, String> {
        if text.is_empty() {
            return Ok(None);
        }
        let order = match self.format {
            OrderFormat::Csv => self.transfer(text)?,
            OrderFormat::Jsonl => Some(object(text)?),
        };
        let id = order.as_ref().map_or(0, |order| match order {
            Order::Transfer(transfer) => transfer.id,
            Order::Movement(movement) => movement.id,
        });
        match id != 0 && !self.ids.insert(id) {
            true => Err(format!("the id {id} is that of an earlier line")),
            false => Ok(order),
        }
    }

    fn transfer(&mut self, text: &str) -> Result<Option<Order>, String> {
        let fields: Vec<&str> = text.split(',').map(str::trim).collect();
        if self.columns.is_none() && !fields[0].starts_with(|c: char| c.is_ascii_digit()) {
            self.columns = Some(columns(&fields)?);
            return Ok(None);
        }
        let columns = self.columns.get_or_insert_with(|| (0..fields.len().min(5)).collect());
        if fields.len() != columns.len() || fields.len() < 3 {
            return Err(format!("{} columns, and not {}", fields.len(), columns.len().max(3)));
        }
        let mut values = [0; COLUMNS.len()];
        for (column, field) in columns.iter().zip(fields) {
            values[*column] = field.parse().map_err(|_| {
                format!("`{field}` is no {}: a number from 0 to {}", COLUMNS[*column], u64::MAX)
            })?;
        }
        let [from, to, amount, gas, id] = values;
        Ok(Some(Order::Transfer(Transfer { id, from, to, amount, gas })))
    }
}

fn columns(names: &[&str]) -> Result<Vec<usize>, String> {
    let column = |name: &&str| {
        let found = COLUMNS.iter().position(|column| column == name);
        found.ok_or_else(|| format!("no column is called `{name}`: {}", COLUMNS.join(", ")))
    };
    let columns = names.iter().map(column).collect::<Result<Vec<_>, String>>()?;
    for (needed, name) in COLUMNS.iter().enumerate() {
        let times = columns.iter().filter(|column| **column == needed).count();
        if times > 1 || (needed < 3 && times == 0) {
            return Err(format!("the column `{name}` stands there {times} times"));
        }
    }
    Ok(columns)
}

fn object(text: &str) -> Result<Order, String> {
    const FORMS: &str = "is no order: {\"from\", \"to\", \"amount\", \"gas\", \"id\"} or {\"takes\", \"gives\", \
                         \"floor\", \"id\"}, numbers all";
    let object = serde_json::from_str(text).map_err(|error| match error.is_data() {
        true => FORMS.to_string(),
        false => format!("is no JSON: {error}"),
    })?;
    Ok(match object {
        Object::Transfer(TransferObject { from, to, amount, gas, id }) => {
            Order::Transfer(Transfer { id, from, to, amount, gas })
        }
        Object::Movement(MovementObject { takes, gives, floor, id }) => {
            Order::Movement(Movement { id, takes, gives, floor })
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, format: OrderFormat) -> Result<Vec<Block>, String> {
        let mut reader = OrderReader::new(text.as_bytes(), format);
        let blocks = std::iter::from_fn(|| reader.next_block(2).transpose());
        blocks.collect::<Result<_, _>>().map_err(|error| error.to_string())
    }

    #[test]
    fn columns_are_named_or_in_their_order() {
        let pay = |from, to, amount, gas, id| Transfer { id, from, to, amount, gas };
        let block = |list: &[Transfer]| Block::of_transfers(list.to_vec()).expect("a block");
        let plain = read("1,2,3\n4, 5 ,6\n\n7,8,9\n", OrderFormat::Csv).expect("orders");
        let first = block(&[pay(1, 2, 3, 0, 0), pay(4, 5, 6, 0, 0)]);
        assert_eq!(plain, [first, block(&[pay(7, 8, 9, 0, 0)])]);
        let named = read("id,amount,to,from\n9,3,2,1\n", OrderFormat::Csv).expect("orders");
        assert_eq!(named, [block(&[pay(1, 2, 3, 0, 9)])]);
        let object = "{\"from\":1,\"to\":2,\"amount\":3,\"gas\":4}";
        assert_eq!(read(object, OrderFormat::Jsonl), Ok(vec![block(&[pay(1, 2, 3, 4, 0)])]));
        let moved = "{\"takes\":[[1,5],[2,6]],\"gives\":[[3,11]],\"floor\":-2}";
        let movement =
            Movement { id: 0, takes: vec![(1, 5), (2, 6)], gives: vec![(3, 11)], floor: -2 };
        let expected = Block::of_movements(vec![movement]).expect("a block");
        assert_eq!(read(moved, OrderFormat::Jsonl), Ok(vec![expected]));
    }

    #[test]
    fn an_invalid_order_is_named_with_its_line() {
        let cases = [
            ("1,2,3\n1,2\n", "line 2: 2 columns, and not 3"),
            ("1,2,-3\n", "line 1: `-3` is no amount: a number from 0 to 18446744073709551615"),
            ("from,to,sum\n", "line 1: no column is called `sum`: from, to, amount, gas, id"),
            ("from,to,gas\n1,2,3\n", "line 1: the column `amount` stands there 0 times"),
            ("1,2,3,0,7\n\n1,2,3,0,7\n", "line 3: the id 7 is that of an earlier line"),
            (
                "1,2,99999999999999999\n",
                "line 1: in the block that begins at line 1: order 0 is about 99999999999999999: sums go from 0 to \
                 72057594037927936",
            ),
        ];
        for (text, told) in cases {
            assert_eq!(read(text, OrderFormat::Csv), Err(told.to_string()));
        }
        let told = read("{\"from\":1}\n", OrderFormat::Jsonl).expect_err("no order");
        assert!(told.starts_with("line 1: is no order: {\"from\""), "{told}");
        let told = read("{\"from\":1\n", OrderFormat::Jsonl).expect_err("no JSON");
        assert!(told.starts_with("line 1: is no JSON: EOF"), "{told}");
        let both = "{\"from\":1,\"to\":2,\"amount\":3}\n{\"takes\":[[1,2]]}\n";
        let told = read(both, OrderFormat::Jsonl).expect_err("both");
        assert!(told.starts_with("line 2: transfers and movements in one file"), "{told}");
    }
}
