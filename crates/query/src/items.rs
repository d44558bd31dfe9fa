//! Maps that no table was made of, as tables of keys and values: which of their keys a query asks for, and all items of
//! a hash map.
//!
//! A hash map has no order, so only single keys of it can be looked up; all its items are read as they come. Where the
//! index grows meanwhile, a snapshot may meet a key twice: those that were met are remembered, as numbers of 128 bits.

use crate::batches::{Counts, Gathered};
use crate::error::{Error, Result};
use crate::facts::{Fact, of_conditions};
use crate::span::{Span, behind};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::{DataFusionError, Result as EngineResult};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, Like, Operator};
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::scalar::ScalarValue;
use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::ops::Bound;
use std::sync::Arc;
use terrace::MapSnapshot;

/// The names of their columns.
pub(crate) const COLUMNS: [&str; 2] = ["key", "value"];

/// The parts of a map that these conditions leave: all keys that they hold for, and perhaps more.
pub(crate) fn spans(filters: &[Expr]) -> Vec<Span> {
    let place = |name: &str| COLUMNS.iter().position(|column| *column == name);
    let mut spans = vec![Span::all()];
    for fact in of_conditions(&place, filters) {
        let (Fact::Compared { column: 0, .. } | Fact::Among { .. }) = &fact else { continue };
        let said = match &fact {
            Fact::Compared { operator, value, .. } => {
                compared(*operator, value).map(|span| vec![span])
            }
            Fact::Among { columns, values } if columns[..] == [0] => {
                let one = |values: &Vec<ScalarValue>| compared(Operator::Eq, values.first()?);
                values.iter().map(one).collect()
            }
            Fact::Among { .. } => None,
        };
        spans = said.map_or(spans.clone(), |said| both(&spans, &said));
    }
    for prefix in filters.iter().filter_map(prefix) {
        let to = behind(&prefix);
        spans = both(&spans, &[Span { from: Bound::Included(prefix), to }]);
    }
    spans.sort_unstable_by(|one, other| bytes_of(&one.from).cmp(bytes_of(&other.from)));
    spans.dedup();
    spans
}

/// Whether a condition says anything of keys.
pub(crate) fn narrows(filter: &Expr) -> bool {
    spans(std::slice::from_ref(filter)) != [Span::all()]
}

fn compared(operator: Operator, value: &ScalarValue) -> Option<Span> {
    let key = match value {
        ScalarValue::Binary(Some(key))
        | ScalarValue::LargeBinary(Some(key))
        | ScalarValue::BinaryView(Some(key)) => key.clone(),
        _ => return None,
    };
    let (included, excluded) = (Bound::Included(key.clone()), Bound::Excluded(key));
    let (from, to) = match operator {
        Operator::Eq => (included.clone(), included),
        Operator::Lt => (Bound::Unbounded, excluded),
        Operator::LtEq => (Bound::Unbounded, included),
        Operator::Gt => (excluded, Bound::Unbounded),
        Operator::GtEq => (included, Bound::Unbounded),
        _ => return None,
    };
    Some(Span { from, to })
}

/// What `key LIKE 'abc%'` says keys begin with.
fn prefix(filter: &Expr) -> Option<Vec<u8>> {
    let Expr::Like(Like {
        negated: false,
        expr,
        pattern,
        escape_char: None,
        case_insensitive: false,
    }) = filter
    else {
        return None;
    };
    let of = match &**expr {
        // As the types are made to fit.
        Expr::Cast(cast) => &*cast.expr,
        Expr::TryCast(cast) => &*cast.expr,
        other => other,
    };
    let (Expr::Column(column), Expr::Literal(pattern, _)) = (of, &**pattern) else { return None };
    let pattern = pattern.try_as_str()??;
    let (prefix, _) = pattern.split_once(['%', '_', '\\'])?;
    (column.name == COLUMNS[0] && !prefix.is_empty()).then(|| prefix.as_bytes().to_vec())
}

fn bytes_of(bound: &Bound<Vec<u8>>) -> &[u8] {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => key,
        Bound::Unbounded => &[],
    }
}

/// What is in one of the first and in one of the others.
fn both(spans: &[Span], others: &[Span]) -> Vec<Span> {
    let met = |one: &Span, other: &Span| Span {
        from: later(&one.from, &other.from).clone(),
        to: earlier(&one.to, &other.to).clone(),
    };
    let pairs = spans.iter().flat_map(|one| others.iter().map(move |other| met(one, other)));
    pairs.filter(|span| !span.is_empty()).collect()
}

fn later<'a>(one: &'a Bound<Vec<u8>>, other: &'a Bound<Vec<u8>>) -> &'a Bound<Vec<u8>> {
    let place = |bound: &Bound<Vec<u8>>| match bound {
        Bound::Unbounded => None,
        Bound::Included(key) => Some((key.clone(), false)),
        Bound::Excluded(key) => Some((key.clone(), true)),
    };
    if place(one) >= place(other) { one } else { other }
}

fn earlier<'a>(one: &'a Bound<Vec<u8>>, other: &'a Bound<Vec<u8>>) -> &'a Bound<Vec<u8>> {
    match (one, other) {
        (Bound::Unbounded, bound) | (bound, Bound::Unbounded) => bound,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b))
            if a != b =>
        {
            if a < b {
                one
            } else {
                other
            }
        }
        (Bound::Excluded(_), _) => one,
        _ => other,
    }
}

/// All items of a hash map, batch by batch.
pub(crate) fn all(
    snapshot: MapSnapshot,
    (name, schema): (&str, SchemaRef),
    mut items: Gathered,
    counts: Counts,
    context: &Arc<TaskContext>,
) -> SendableRecordBatchStream {
    let mut stream = RecordBatchReceiverStreamBuilder::new(schema, 2);
    let (batches, remembered) = (stream.tx(), MemoryConsumer::new(format!("keys of map {name}")));
    let mut met = Met::new(remembered.register(context.memory_pool()));
    stream.spawn_blocking(move || {
        let send = |items: &mut Gathered| -> Result<(), Stop> {
            counts.bytes.add(items.size().1);
            let batch = items.finish()?;
            counts.baseline.record_output(batch.num_rows());
            batches.blocking_send(Ok(batch)).map_err(|_| Stop::Unwanted)
        };
        let read = snapshot.try_for_each(|key, value| {
            if met.is_first(key)? {
                items.push(key, value.bytes)?;
            }
            if items.is_full() { send(&mut items) } else { Ok(()) }
        });
        let sent = read.and_then(|()| if items.size().0 > 0 { send(&mut items) } else { Ok(()) });
        match sent {
            Ok(()) | Err(Stop::Unwanted) => Ok(()),
            Err(Stop::Failed(error)) => Err(error),
        }
    });
    stream.build()
}

/// Why reading ended before the end.
enum Stop {
    /// Nobody wants more.
    Unwanted,
    Failed(DataFusionError),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error.into())
    }
}

impl From<terrace::Error> for Stop {
    fn from(error: terrace::Error) -> Stop {
        Error::Database(error).into()
    }
}

impl From<DataFusionError> for Stop {
    fn from(error: DataFusionError) -> Stop {
        Stop::Failed(error)
    }
}

/// The keys that were met, within the memory of queries.
struct Met {
    keys: HashSet<u128, BuildHasherDefault<Itself>>,
    hashes: [RandomState; 2],
    memory: MemoryReservation,
}

/// Bytes that a set has for each key it has room for: the number, and a byte of its own.
const KEY_BYTES: usize = 17;

impl Met {
    fn new(memory: MemoryReservation) -> Met {
        Met { keys: HashSet::default(), hashes: [RandomState::new(), RandomState::new()], memory }
    }

    fn is_first(&mut self, key: &[u8]) -> EngineResult<bool> {
        if self.keys.len() == self.keys.capacity() {
            // The set doubles, and has both for a moment.
            let more = (self.keys.capacity() * 2).max(1024);
            self.memory.try_grow(more * KEY_BYTES)?;
            self.keys.reserve(more - self.keys.len());
        }
        let [high, low] = self.hashes.each_ref().map(|hash| u128::from(hash.hash_one(key)));
        Ok(self.keys.insert(high << 64 | low))
    }
}

/// Numbers that are hashes already.
#[derive(Default)]
struct Itself(u64);

impl Hasher for Itself {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u128(&mut self, number: u128) {
        self.0 = number as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
