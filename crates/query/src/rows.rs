//! The rows that a query gives.

use crate::error::{Error, Result};
use crate::threads::Threads;
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
}

enum Batches {
    Computed { stream: SendableRecordBatchStream, runtime: Arc<Threads> },
    Held(std::vec::IntoIter<RecordBatch>),
}

impl Rows {
    pub(crate) fn new(stream: SendableRecordBatchStream, runtime: Arc<Threads>) -> Rows {
        Rows { schema: stream.schema(), batches: Batches::Computed { stream, runtime } }
    }

    /// These.
    pub(crate) fn of(batch: RecordBatch) -> Rows {
        Rows { schema: batch.schema(), batches: Batches::Held(vec![batch].into_iter()) }
    }

    /// The same, computed to the end.
    pub(crate) fn held(self) -> Result<Rows> {
        let schema = self.schema();
        let batches = Batches::Held(self.collect::<Result<Vec<_>>>()?.into_iter());
        Ok(Rows { schema, batches })
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
            Batches::Computed { stream, runtime } => {
                let next = runtime.block_on(stream.next());
                next.map(|batch| batch.map_err(Error::from))
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
