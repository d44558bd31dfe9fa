//! C-objects and c-pointers: objects of several elements that are moved as one.

use crate::backend::{Context, Method, Regime};
use crate::error::{Error, Result};

/// A near copy of an object. Changes stay here until they are published by [`CPointer::set`].
///
/// With [`Method::Bypass`] there is no copy: elements are read where they lie, until [`CObject::fill`].
#[derive(Clone, Debug)]
pub struct CObject {
    elements: Box<[u64]>,
    /// Where elements are read instead.
    far: Option<CPointer>,
}

impl CObject {
    /// An object of so many elements, all 0.
    pub fn new(elements: usize) -> CObject {
        CObject { elements: vec![0; elements].into(), far: None }
    }

    /// Element `i`.
    #[inline]
    pub fn load<C: Context>(&self, context: &mut C, i: usize) -> u64 {
        match self.far {
            Some(far) => far.load(context, i),
            None => self.elements[i],
        }
    }

    /// Reads what has been left far, so that all elements are near.
    #[inline]
    pub fn fill<C: Context>(&mut self, context: &mut C) {
        if let Some(far) = self.far.take() {
            for (i, element) in self.elements.iter_mut().enumerate() {
                *element = far.load(context, i);
            }
        }
    }

    /// The elements, all near.
    ///
    /// # Panics
    /// If they are still far: see [`CObject::fill`].
    #[inline]
    pub fn near(&mut self) -> &mut [u64] {
        assert!(self.far.is_none(), "an object is filled before it is changed");
        &mut self.elements
    }
}

/// How objects are moved: fixed for a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    regime: Regime,
    method: Method,
}

impl Access {
    /// Objects moved by `method`, as atomically as `regime` says.
    ///
    /// # Errors
    /// [`Error::BypassIsNotAtomic`]: what is never copied whole is never read at one instant.
    pub fn new(regime: Regime, method: Method) -> Result<Access> {
        match (regime, method) {
            (Regime::Full, Method::Bypass) => Err(Error::BypassIsNotAtomic),
            _ => Ok(Access { regime, method }),
        }
    }

    /// How atomically.
    pub fn regime(self) -> Regime {
        self.regime
    }
}

/// A pointer to an object in far memory.
///
/// ```
/// use terrace_coalesced::{Access, Backend, CObject, CPointer, Method, Native, Regime};
///
/// let memory = Native::new(1024);
/// let mut context = memory.context();
/// let access = Access::new(Regime::Full, Method::CopyPointer)?;
/// let far = CPointer::new(memory.allocate(1, 6, Regime::Full)?.first);
///
/// let mut copy = CObject::new(6);
/// copy.near()[5] = 7;
/// far.set(&mut context, &copy, access);
/// assert_eq!(far.compare_and_swap(&mut context, 5, 7, 8), Ok(()));
/// far.get(&mut context, &mut copy, access);
/// assert_eq!(copy.load(&mut context, 5), 8);
/// # Ok::<(), terrace_coalesced::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CPointer(u64);

impl CPointer {
    /// A pointer to what [`Backend::allocate`](crate::Backend::allocate) gave.
    pub fn new(at: u64) -> CPointer {
        CPointer(at)
    }

    /// Element `i`, read alone.
    #[inline]
    pub fn load<C: Context>(self, context: &mut C, i: usize) -> u64 {
        context.load(self.0 + i as u64)
    }

    /// Writes element `i` alone.
    #[inline]
    pub fn store<C: Context>(self, context: &mut C, i: usize, value: u64) {
        context.store(self.0 + i as u64, value);
    }

    /// Writes `new` to element `i` if it is `current`.
    ///
    /// # Errors
    /// What it is instead.
    #[inline]
    pub fn compare_and_swap<C: Context>(
        self,
        context: &mut C,
        i: usize,
        current: u64,
        new: u64,
    ) -> std::result::Result<(), u64> {
        context.compare_and_swap(self.0 + i as u64, current, new)
    }

    /// Copies all of it.
    #[inline]
    pub fn get<C: Context>(self, context: &mut C, copy: &mut CObject, access: Access) {
        if access.method == Method::Bypass {
            copy.far = Some(self);
        } else {
            copy.far = None;
            context.get(self.0, &mut copy.elements, access.regime, access.method);
        }
    }

    /// Writes all of it.
    ///
    /// # Panics
    /// If the copy is not near: see [`CObject::fill`].
    #[inline]
    pub fn set<C: Context>(self, context: &mut C, copy: &CObject, access: Access) {
        assert!(copy.far.is_none(), "an object is filled before it is written");
        context.set(self.0, &copy.elements, access.regime, access.method);
    }
}
