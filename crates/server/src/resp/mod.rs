//! The wire format: RESP2 and RESP3, read and written without a copy per argument.
//!
//! [`Parser`] finds requests in a connection's input and hands out [`Args`], slices of that very
//! input. [`Output`] is the other direction: replies are formatted straight into the bytes that
//! go to the socket. Neither knows a command; neither touches a socket.

mod inline;
pub(crate) mod number;
mod output;
mod parser;

pub(crate) use output::{Output, shrink};
pub(crate) use parser::{Args, Parser, ProtocolError, RequestLimits, Span, Step};
