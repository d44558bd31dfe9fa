//! Finds the requests in a stream of bytes.
//!
//! The parser is incremental: it is shown the bytes not yet consumed, and when a request is not
//! complete it remembers how far it came, so that a request of a million arguments, or one that
//! arrives a byte at a time, costs its own length and no more. It copies nothing: an argument is
//! a span of the bytes it was shown. (Inline requests, typed by people, are the exception: quotes
//! and escapes have to be taken out, so their arguments lie in a side buffer.)
//!
//! What it accepts is decided by prefixes alone: whether a request is refused, and with which
//! words, does not depend on how the bytes were cut into packets. A property test holds it to
//! that.

use super::inline;

/// Where an argument lies: offsets from the start of its request.
pub(crate) type Span = (u32, u32);

/// Longest number in a header: the digits of a 64-bit integer and a sign.
const NUMBER_DIGITS_MAX: usize = 20;

/// What one request may be made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestLimits {
    pub(crate) arguments_max: usize,
    pub(crate) bulk_bytes_max: usize,
    pub(crate) inline_bytes_max: usize,
    /// The limits are those of a client that has not authenticated: says why in the error.
    pub(crate) unauthenticated: bool,
}

/// Why a stream of bytes is not the protocol. The connection is closed after the error is sent:
/// there is no telling where the next request would start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProtocolError {
    #[error("Protocol error: invalid multibulk length")]
    ArgumentCount,
    #[error("Protocol error: unauthenticated multibulk length")]
    UnauthenticatedArgumentCount,
    #[error("Protocol error: expected '$', got '{}'", char::from(*.0))]
    ExpectedBulk(u8),
    #[error("Protocol error: invalid bulk length")]
    BulkLength,
    #[error("Protocol error: unauthenticated bulk length")]
    UnauthenticatedBulkLength,
    #[error("Protocol error: expected CRLF after an argument")]
    ArgumentEnd,
    #[error("Protocol error: too big inline request")]
    InlineTooLong,
    #[error("Protocol error: unbalanced quotes in request")]
    UnbalancedQuotes,
}

/// What the parser made of the bytes it was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A request of this many bytes; its arguments are to be had from [`Parser::args`]. A request
    /// without arguments (an empty line, `*0`) asks for nothing and gets no reply.
    Request(usize),
    /// The bytes end inside a request; at least this many more are needed.
    Partial(usize),
    /// Not the protocol.
    Bad(ProtocolError),
}

/// A request's arguments, the command's name first.
#[derive(Clone, Copy)]
pub(crate) struct Args<'a> {
    base: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Args<'a> {
    pub(crate) fn new(base: &'a [u8], spans: &'a [Span]) -> Args<'a> {
        Args { base, spans }
    }
    pub(crate) fn len(&self) -> usize {
        self.spans.len()
    }
    /// Argument `i`; `i` below [`Args::len`].
    #[inline]
    pub(crate) fn at(&self, i: usize) -> &'a [u8] {
        let (start, end) = self.spans[i];
        &self.base[start as usize..end as usize]
    }
    pub(crate) fn get(&self, i: usize) -> Option<&'a [u8]> {
        (i < self.spans.len()).then(|| self.at(i))
    }
    /// The arguments from `first` on.
    pub(crate) fn from(
        &self,
        first: usize,
    ) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone + use<'a> {
        let base = self.base;
        let spans = self.spans.get(first..).unwrap_or(&[]);
        spans.iter().map(move |&(start, end)| &base[start as usize..end as usize])
    }
    /// Bytes of all arguments together.
    pub(crate) fn bytes(&self) -> usize {
        self.spans.iter().map(|&(start, end)| (end - start) as usize).sum()
    }
}

/// A connection's parser: where it stands inside the request under way.
#[derive(Default)]
pub(crate) struct Parser {
    spans: Vec<Span>,
    /// Arguments still to come of the request under way; 0 between requests.
    remaining: usize,
    /// Offset of the next unread byte, when a request is under way (or an inline line unfinished).
    at: usize,
    /// The last request was inline: its arguments lie in `unescaped`.
    inline: bool,
    unescaped: Vec<u8>,
}

/// A number and a line end, from a header.
enum Header {
    Value { value: i64, next: usize },
    More,
    Bad,
}

/// Reads `[-]digits\r\n` at `from`. Leading zeros, `+` and blanks are refused, as Redis does.
fn header(buf: &[u8], from: usize) -> Header {
    let negative = match buf.get(from) {
        None => return Header::More,
        Some(&b'-') => true,
        Some(_) => false,
    };
    let first = from + usize::from(negative);
    let mut value: i64 = 0;
    let mut at = first;
    loop {
        let Some(&byte) = buf.get(at) else { return Header::More };
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        let leading_zero = at > first && value == 0;
        if leading_zero || at - first >= NUMBER_DIGITS_MAX - 2 {
            return Header::Bad;
        }
        value = value * 10 + i64::from(digit);
        at += 1;
    }
    if at == first || buf[at] != b'\r' || (negative && value == 0) {
        return Header::Bad;
    }
    match buf.get(at + 1) {
        None => Header::More,
        Some(&b'\n') => {
            Header::Value { value: if negative { -value } else { value }, next: at + 2 }
        }
        Some(_) => Header::Bad,
    }
}

impl Parser {
    /// Looks at `buf`, the bytes not yet consumed, which start where the last complete request
    /// ended; when the last answer was [`Step::Partial`] they must start with the same bytes.
    #[inline]
    pub(crate) fn next(&mut self, buf: &[u8], limits: &RequestLimits) -> Step {
        if self.remaining == 0 {
            match *buf {
                [b'*', count @ b'1'..=b'9', b'\r', b'\n', ..]
                    if usize::from(count - b'0') <= limits.arguments_max =>
                {
                    self.start(usize::from(count - b'0'), 4);
                }
                [] => return Step::Partial(1),
                [b'*', ..] => match self.any_count(buf, limits) {
                    Ok(()) => {}
                    Err(step) => return step,
                },
                _ => return self.next_inline(buf, limits),
            }
        }
        self.arguments(buf, limits)
    }

    /// Starts a request of `count` arguments, whose first stands at `at`.
    #[inline]
    fn start(&mut self, count: usize, at: usize) {
        self.spans.clear();
        self.inline = false;
        self.remaining = count;
        self.at = at;
    }

    /// Reads any `*count\r\n`, and says what is wrong with it.
    #[inline(never)]
    fn any_count(&mut self, buf: &[u8], limits: &RequestLimits) -> Result<(), Step> {
        let (count, next) = match header(buf, 1) {
            Header::Value { value, next } => (value, next),
            Header::More => return Err(Step::Partial(1)),
            Header::Bad => return Err(Step::Bad(ProtocolError::ArgumentCount)),
        };
        if count > 0 && count as u64 > limits.arguments_max as u64 {
            return Err(Step::Bad(match limits.unauthenticated {
                true => ProtocolError::UnauthenticatedArgumentCount,
                false => ProtocolError::ArgumentCount,
            }));
        }
        self.start(count.max(0) as usize, next);
        Ok(())
    }

    /// Reads arguments until the request is complete or the bytes end. An argument that is not
    /// complete is left whole, header included, for the next time.
    #[inline]
    fn arguments(&mut self, buf: &[u8], limits: &RequestLimits) -> Step {
        let mut at = self.at;
        let mut remaining = self.remaining;
        let step = loop {
            if remaining == 0 {
                self.remaining = 0;
                self.at = 0;
                return Step::Request(at);
            }
            let (start, end) = match bulk_header(buf, at, limits) {
                Ok((len, start)) => (start, start + len),
                Err(step) => break step,
            };
            match buf.get(end..end + 2) {
                Some(b"\r\n") => {}
                None if buf.get(end).is_none_or(|&byte| byte == b'\r') => {
                    break Step::Partial(end + 2 - buf.len());
                }
                _ => break Step::Bad(ProtocolError::ArgumentEnd),
            }
            self.spans.push((start as u32, end as u32));
            at = end + 2;
            remaining -= 1;
        };
        self.at = at;
        self.remaining = remaining;
        step
    }

    fn next_inline(&mut self, buf: &[u8], limits: &RequestLimits) -> Step {
        let unseen = self.at.min(buf.len());
        let Some(newline) = buf[unseen..].iter().position(|&byte| byte == b'\n') else {
            if buf.len() > limits.inline_bytes_max {
                return Step::Bad(ProtocolError::InlineTooLong);
            }
            self.at = buf.len();
            return Step::Partial(1);
        };
        let newline = unseen + newline;
        self.at = 0;
        if newline > limits.inline_bytes_max {
            return Step::Bad(ProtocolError::InlineTooLong);
        }
        let line = buf[..newline].strip_suffix(b"\r").unwrap_or(&buf[..newline]);
        self.inline = true;
        match inline::split(line, &mut self.unescaped, &mut self.spans) {
            true => Step::Request(newline + 1),
            false => Step::Bad(ProtocolError::UnbalancedQuotes),
        }
    }

    /// The arguments of the request just found at the start of `buf`.
    #[inline]
    pub(crate) fn args<'a>(&'a self, buf: &'a [u8]) -> Args<'a> {
        Args { base: if self.inline { &self.unescaped } else { buf }, spans: &self.spans }
    }

    /// Where argument `i` of the last request lies, counted from the request's first byte; not
    /// for inline requests.
    #[inline]
    pub(crate) fn span(&self, i: usize) -> (usize, usize) {
        let (start, end) = self.spans[i];
        (start as usize, end as usize)
    }

    /// Whether the last request was inline: then its arguments are not spans of the input.
    pub(crate) fn was_inline(&self) -> bool {
        self.inline
    }

    /// Forgets how far it came: a request before that one is to be read again.
    pub(crate) fn restart(&mut self) {
        (self.remaining, self.at) = (0, 0);
    }

    /// Gives back memory that an unusually large request left behind.
    pub(crate) fn shrink(&mut self) {
        const KEPT: usize = 64;
        if self.remaining == 0 && self.spans.capacity() > KEPT {
            self.spans = Vec::new();
        }
        if self.unescaped.capacity() > KEPT * 16 {
            self.unescaped = Vec::new();
        }
    }

    /// Bytes of memory held beside the input itself.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.spans.capacity() * size_of::<Span>() + self.unescaped.capacity()
    }
}

/// Reads `$len\r\n` at `at`: the length, and where the argument starts.
#[inline]
fn bulk_header(buf: &[u8], at: usize, limits: &RequestLimits) -> Result<(usize, usize), Step> {
    if let Some(&[b'$', ref digits @ ..]) = buf.get(at..)
        && let Some((len, used)) = short_number(digits)
        && len <= limits.bulk_bytes_max
    {
        return Ok((len, at + 1 + used));
    }
    any_bulk_header(buf, at, limits)
}

/// Up to three digits and a line end, which is what nearly all headers are: the number, and the
/// bytes it took.
#[inline(always)]
fn short_number(bytes: &[u8]) -> Option<(usize, usize)> {
    let digit = |byte: u8| usize::from(byte.wrapping_sub(b'0'));
    match *bytes {
        [a, b'\r', b'\n', ..] if digit(a) <= 9 => Some((digit(a), 3)),
        [b'0', ..] => None,
        [a, b, b'\r', b'\n', ..] if digit(a) <= 9 && digit(b) <= 9 => {
            Some((10 * digit(a) + digit(b), 4))
        }
        [a, b, c, b'\r', b'\n', ..] if digit(a) <= 9 && digit(b) <= 9 && digit(c) <= 9 => {
            Some((100 * digit(a) + 10 * digit(b) + digit(c), 5))
        }
        _ => None,
    }
}

/// Reads any header, and says what is wrong with it.
#[inline(never)]
fn any_bulk_header(buf: &[u8], at: usize, limits: &RequestLimits) -> Result<(usize, usize), Step> {
    match buf.get(at) {
        None => return Err(Step::Partial(1)),
        Some(&b'$') => {}
        Some(&other) => return Err(Step::Bad(ProtocolError::ExpectedBulk(other))),
    }
    match header(buf, at + 1) {
        Header::More => Err(Step::Partial(1)),
        Header::Bad => Err(Step::Bad(ProtocolError::BulkLength)),
        Header::Value { value, .. } if value < 0 => Err(Step::Bad(ProtocolError::BulkLength)),
        Header::Value { value, .. } if value as u64 > limits.bulk_bytes_max as u64 => {
            Err(Step::Bad(match limits.unauthenticated {
                true => ProtocolError::UnauthenticatedBulkLength,
                false => ProtocolError::BulkLength,
            }))
        }
        Header::Value { value, next } => Ok((value as usize, next)),
    }
}

#[cfg(test)]
mod tests;
