//! Memory that a copy may use while nobody waits for it.
//!
//! An engine works on after `submit` has returned, and after its handle was dropped or forgotten. So a task borrows
//! nothing: a [`Source`] shares the ownership of bytes that nobody changes, and a [`Buffer`] is the only owner of bytes
//! that the engine may write. The task holds both until the engine is done, and then gives the buffer back.

use crate::error::{Error, Result};
use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

/// A memory node: where bytes lie, or beside which memory an engine works. The kernel's number on a real machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node(pub u16);

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

/// What the cache knows a source by, if it has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub datum: u64,
    pub version: u64,
    /// Where the source begins in what was named: slices that begin elsewhere are other data.
    pub at: usize,
}

/// Bytes that nobody changes, and a share of their ownership. A clone is a second share.
///
/// ```
/// use std::sync::Arc;
/// use terrace_movement::Source;
///
/// let column: Arc<[u8]> = vec![7; 4096].into();
/// let source = Source::new(Arc::new(column)).slice(1024, 512).unwrap();
/// assert_eq!(source.bytes(), [7; 512]);
/// assert!(source.slice(500, 13).is_err());
/// ```
#[derive(Clone)]
pub struct Source {
    start: NonNull<u8>,
    len: usize,
    node: Node,
    name: Option<Name>,
    _owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: a source is a shared borrow of bytes that its owner, which is `Send` and `Sync`, lends for as long as the
// source holds it.
unsafe impl Send for Source {}
// SAFETY: as above; a source has no interior mutability.
unsafe impl Sync for Source {}

impl Source {
    /// All bytes of `owner`, which are asked for once.
    pub fn new<T: AsRef<[u8]> + Send + Sync + 'static>(owner: Arc<T>) -> Source {
        let bytes: &[u8] = (*owner).as_ref();
        let (start, len) = (NonNull::from(bytes).cast(), bytes.len());
        Source { start, len, node: Node(0), name: None, _owner: owner }
    }

    /// `bytes` bytes from `at` on.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn slice(&self, at: usize, bytes: usize) -> Result<Source> {
        within("source", at, bytes, self.len)?;
        // SAFETY: inside the bytes that the owner lends.
        let start = unsafe { self.start.add(at) };
        let name = self.name.map(|name| Name { at: name.at + at, ..name });
        Ok(Source { start, len: bytes, name, ..self.clone() })
    }

    /// The same bytes, declared to lie on `node`.
    #[must_use]
    pub fn on(self, node: Node) -> Source {
        Source { node, ..self }
    }

    /// The same bytes as the version `version` of the datum `datum`. The cache identifies a source by its address
    /// unless it has such a name, and serves no copy of another version. A slice of it keeps the name, with the place
    /// where it begins.
    #[must_use]
    pub fn named(self, datum: u64, version: u64) -> Source {
        Source { name: Some(Name { datum, version, at: 0 }), ..self }
    }

    /// The bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the owner lent these bytes for as long as this value holds a share of it.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// The node that the bytes lie on.
    #[inline]
    pub fn node(&self) -> Node {
        self.node
    }

    #[inline]
    pub(crate) fn name(&self) -> Option<Name> {
        self.name
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source")
            .field("start", &self.start)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl From<Vec<u8>> for Source {
    fn from(bytes: Vec<u8>) -> Source {
        Source::new(Arc::new(bytes))
    }
}

impl From<Buffer> for Source {
    fn from(buffer: Buffer) -> Source {
        Source::new(Arc::new(buffer))
    }
}

/// Bytes of one owner, who may write them. They are freed as whoever allocated them frees them: by the owner's `Drop`.
///
/// ```
/// use terrace_movement::Buffer;
///
/// let mut buffer = Buffer::new(vec![0; 64]);
/// buffer.bytes_mut()[3] = 1;
/// assert_eq!(buffer.bytes()[..5], [0, 0, 0, 1, 0]);
/// ```
pub struct Buffer {
    start: NonNull<u8>,
    len: usize,
    /// From `Box::into_raw`, and not a box: a box that moves would claim the bytes for itself, and `start` could not
    /// be used any more.
    owner: NonNull<dyn Any + Send + Sync>,
}

// SAFETY: the only owner of its bytes; their owner may move to another thread.
unsafe impl Send for Buffer {}
// SAFETY: a shared buffer lends its bytes to be read, and nothing else.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// The bytes of `owner`, which are asked for once.
    pub fn new<T: AsMut<[u8]> + Send + Sync + 'static>(owner: T) -> Buffer {
        let owner = Box::into_raw(Box::new(owner));
        // SAFETY: just made, and nobody else has it.
        let bytes: &mut [u8] = unsafe { (*owner).as_mut() };
        let (start, len) = (NonNull::from(&mut *bytes).cast(), bytes.len());
        // SAFETY: a box is never null.
        let owner = unsafe { NonNull::new_unchecked(owner as *mut (dyn Any + Send + Sync)) };
        Buffer { start, len, owner }
    }

    /// The bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `owner` lent them until it is dropped, and this value is the only one that has them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// The bytes, to be written.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and this borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    /// Where they begin: for engines, which write there while a job holds the buffer.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("start", &self.start)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: from `Box::into_raw`, freed once; nobody borrows the bytes any more.
        drop(unsafe { Box::from_raw(self.owner.as_ptr()) });
    }
}

/// Whether a range lies in a memory.
pub(crate) fn within(what: &'static str, at: usize, bytes: usize, len: usize) -> Result<()> {
    match at.checked_add(bytes) {
        Some(end) if end <= len => Ok(()),
        _ => Err(Error::OutOfRange { what, at, bytes, len }),
    }
}
