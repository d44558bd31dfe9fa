//! The rows that a query gives.

use crate::error::{Error, Result};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;
use std::fmt;
use std::sync::Arc;
use tokio::runtime::Runtime;

/// The batches of a query's rows: an iterator, which computes them. The query's moment stays open until it is dropped.
pub struct Rows {
    stream: SendableRecordBatchStream,
    runtime: Arc<Runtime>,
}

impl Rows {
    pub(crate) fn new(stream: SendableRecordBatchStream, runtime: Arc<Runtime>) -> Rows {
        Rows { stream, runtime }
    }

    /// The columns.
    pub fn schema(&self) -> SchemaRef {
        self.stream.schema()
    }
}

impl Iterator for Rows {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.runtime.block_on(self.stream.next());
        next.map(|batch| batch.map_err(Error::from))
    }
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("schema", &self.schema()).finish()
    }
}
