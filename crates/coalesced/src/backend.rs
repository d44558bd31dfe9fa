//! Far memory, and how it is accessed: what a back end is.
//!
//! A structure is written once. Its nodes lie in *far* memory (DRAM, a GPU's, another computer's), as words of 8 bytes;
//! it moves a node to *near* memory (registers, the cache, its own computer) as a whole, looks at the copy there,
//! changes it there, and moves it back. How that is done is the back end's business, and it is all a new back end has
//! to know: [`Backend`] hands out memory and contexts, a [`Context`] (one for each thread, or for each group of threads
//! that cooperate) moves objects and single elements.

use crate::error::{Error, Result};
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

/// No object.
pub const NULL: u64 = 0;
/// Words of a cache line.
pub const LINE_WORDS: usize = 8;

/// What a back end promises of a whole object. Of a single element it always promises that it is never torn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Regime {
    /// A get and a set of an object happen at one instant each, as gets and sets see it. An access of a single element
    /// may come between the elements of a set, or of a get.
    Full,
    /// Each element is moved at an instant of its own, in any order: a get may find elements of several sets.
    ElementWise,
}

impl fmt::Display for Regime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Regime::Full => "fully atomic",
            Regime::ElementWise => "element-wise atomic",
        })
    }
}

/// How an object is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// In fragments of a fixed size, a line each: a loop whose body the compiler unrolls, and as many one-sided
    /// accesses as lines where the memory is remote.
    Fragment,
    /// As one copy of all its words: one one-sided access where the memory is remote.
    CopyPointer,
    /// Not at all: each element is read from far memory when it is looked at.
    Bypass,
}

impl Method {
    /// Every method.
    pub const ALL: [Method; 3] = [Method::Fragment, Method::CopyPointer, Method::Bypass];
}

/// The kinds of back ends, by name.
///
/// ```
/// use terrace_coalesced::{BackendKind, Error};
///
/// assert_eq!("native".parse(), Ok(BackendKind::Native));
/// assert_eq!("warp".parse::<BackendKind>(), Err(Error::NotBuilt { name: "warp" }));
/// assert!(matches!("abacus".parse::<BackendKind>(), Err(Error::UnknownBackend { .. })));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendKind {
    /// This machine's own memory.
    Native,
    /// The same, with every memory transaction counted.
    Counted,
    /// An emulated remote memory, accessed from one side.
    Remote,
}

impl FromStr for BackendKind {
    type Err = Error;

    fn from_str(name: &str) -> Result<BackendKind> {
        match name {
            "native" => Ok(BackendKind::Native),
            "counted" => Ok(BackendKind::Counted),
            "remote" => Ok(BackendKind::Remote),
            "warp" => Err(Error::NotBuilt { name: "warp" }),
            other => Err(Error::UnknownBackend { name: other.into() }),
        }
    }
}

/// Memory transactions of one context. What moves whole objects counts as many as it takes (lines, or what the back end
/// moves at once), a single element counts one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transactions {
    /// Of gets.
    pub gets: u64,
    /// Of sets.
    pub sets: u64,
    /// Single elements read.
    pub loads: u64,
    /// Single elements written.
    pub stores: u64,
    /// Compare-and-swaps of single elements.
    pub swaps: u64,
    /// Times that somebody else was waited for.
    pub waits: u64,
}

impl Transactions {
    /// What has been added since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Transactions) -> Transactions {
        Transactions {
            gets: self.gets - earlier.gets,
            sets: self.sets - earlier.sets,
            loads: self.loads - earlier.loads,
            stores: self.stores - earlier.stores,
            swaps: self.swaps - earlier.swaps,
            waits: self.waits - earlier.waits,
        }
    }

    /// All of them but the waits, which move nothing.
    pub fn total(self) -> u64 {
        self.gets + self.sets + self.loads + self.stores + self.swaps
    }
}

/// One thread's access to far memory. Places are numbers of words.
///
/// Single elements are accessed with acquire and release order, as are the elements of an object that is moved.
///
/// # Panics
/// All of it may, at places that [`Backend::allocate`] did not give.
pub trait Context {
    /// The element at `at`.
    fn load(&mut self, at: u64) -> u64;
    /// Writes the element at `at`.
    fn store(&mut self, at: u64, value: u64);
    /// Writes `new` where `current` is, or says what is there instead.
    fn compare_and_swap(&mut self, at: u64, current: u64, new: u64)
    -> std::result::Result<(), u64>;
    /// Copies the object at `at`, as `regime` says; never asked for with [`Method::Bypass`].
    fn get(&mut self, at: u64, copy: &mut [u64], regime: Regime, method: Method);
    /// Writes the object at `at`, as `regime` says.
    fn set(&mut self, at: u64, copy: &[u64], regime: Regime, method: Method);
    /// Somebody else has to go on before this thread can; it has tried as often as `tries` says.
    fn pause(&mut self, tries: u32);
    /// What it moved so far; nothing where nobody counts.
    fn transactions(&self) -> Transactions {
        Transactions::default()
    }
}

/// Objects that lie one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Objects {
    /// Where the first one is.
    pub first: u64,
    /// From one to the next.
    pub stride: u64,
}

impl Objects {
    /// Where object `i` is.
    #[inline]
    pub fn at(self, i: usize) -> u64 {
        self.first + i as u64 * self.stride
    }
}

/// Takes `objects` objects of `words` words out of a memory of `size` words, whose first `fresh` are taken. Each is
/// aligned so that it touches as few lines as it can.
pub(crate) fn take(fresh: &AtomicU64, objects: usize, words: usize, size: u64) -> Result<Objects> {
    let full = Error::Full { words: size };
    // Then nothing below overflows.
    if words as u64 > size {
        return Err(full);
    }
    let words = words as u64;
    let (line, short) = (LINE_WORDS as u64, words.next_power_of_two());
    let (stride, align) =
        if short < line { (short, short) } else { (words.next_multiple_of(line), line) };
    let taken = fresh.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |fresh| {
        let all = stride.checked_mul(objects as u64)?;
        let end = fresh.next_multiple_of(align).checked_add(all)?;
        (end <= size).then_some(end)
    });
    let first = taken.map_err(|_| full)?.next_multiple_of(align);
    Ok(Objects { first, stride })
}

/// Far memory, all zero at first.
pub trait Backend: Send + Sync {
    /// A thread's access to it.
    type Context<'a>: Context
    where
        Self: 'a;

    /// Access for one more thread.
    fn context(&self) -> Self::Context<'_>;
    /// Memory for `objects` objects of so many words each, aligned so that each touches as few lines as it can; none is
    /// at [`NULL`].
    ///
    /// # Errors
    /// [`Error::Full`].
    fn allocate(&self, objects: usize, words: usize, regime: Regime) -> Result<Objects>;
    /// The most words that an object may have.
    ///
    /// # Errors
    /// [`Error::NotAtomic`] if there are no fully atomic objects here.
    fn most_words(&self, regime: Regime) -> Result<usize>;
    /// Size of all of it, in words.
    fn words(&self) -> u64;
}
