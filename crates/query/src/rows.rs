//! The rows that a query gives.

use crate::client::Canceller;
use crate::error::{Error, Result};
use crate::threads::{Threads, with_stack};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;
use std::fmt;
use std::sync::Arc;

/// The batches of a query's rows: an iterator, which computes them. The query's moment stays open until it is dropped.
pub struct Rows {
    schema: SchemaRef,
    batches: Batches,
    /// Whether computing them needs a large stack.
    is_deep: bool,
}

enum Batches {
    Computed { stream: SendableRecordBatchStream, runtime: Arc<Threads>, canceller: Canceller },
    Held(std::vec::IntoIter<RecordBatch>),
}

impl Rows {
    pub(crate) fn new(
        stream: SendableRecordBatchStream,
        runtime: Arc<Threads>,
        canceller: Canceller,
    ) -> Rows {
        let schema = stream.schema();
        let batches = Batches::Computed { stream, runtime, canceller };
        Rows { schema, batches, is_deep: false }
    }

    /// These.
    pub(crate) fn of(batch: RecordBatch) -> Rows {
        let (schema, batches) = (batch.schema(), Batches::Held(vec![batch].into_iter()));
        Rows { schema, batches, is_deep: false }
    }

    /// The same, computed with a large stack if the statement was deep.
    pub(crate) fn deep(self, is_deep: bool) -> Rows {
        Rows { is_deep, ..self }
    }

    /// The same, computed to the end.
    pub(crate) fn held(self) -> Result<Rows> {
        let schema = self.schema();
        let batches = Batches::Held(self.collect::<Result<Vec<_>>>()?.into_iter());
        Ok(Rows { schema, batches, is_deep: false })
    }

    /// The columns.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

impl Iterator for Rows {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.batches {
            Batches::Computed { stream, runtime, canceller } => {
                let next = canceller.or(stream.next());
                let next = with_stack(self.is_deep, || runtime.block_on(next)).flatten();
                next.transpose().map(|batch| batch?.map_err(Error::from))
            }
            Batches::Held(batches) => batches.next().map(Ok),
        }
    }
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("schema", &self.schema()).finish()
    }
}
