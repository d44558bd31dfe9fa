//! What a writer asks with, and what it gets.

/// How badly room is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Refused when the budget is spent but for its headroom, or the collector is behind.
    Ordinary,
    /// For deletes, which free room in the end: takes of the headroom; in logs, but for a segment that is left
    /// to the collector.
    Urgent,
    /// For the collector, and what cannot wait for it: takes more than the budget if need be.
    Anyway,
}

/// A position in a writer's log; durable once the commit queue has reached it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The writer.
    pub writer: u8,
    /// Bytes appended, since the logs were opened.
    pub position: u64,
}
