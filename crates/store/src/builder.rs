//! Builders of options: what does not go together is refused when they are built, by the table of `docs/shapes.md`.

use crate::error::Result;
use crate::options::{Durability, Kind, MapOptions, Persist, ValueDesign, WhenFull};
use crate::queue::{Form as QueueForm, QueueOptions};
use crate::refused::check;
use crate::words::{Form as WordsForm, WordsOptions};
use terrace_durable::Access;
use terrace_memory::Domain;

/// A builder with one method for each setting; an option of which none is the default is given as its value.
macro_rules! builder {
    ($(#[$about:meta])* $builder:ident of $options:ident { $($(#[$doc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug)]
        #[must_use]
        pub struct $builder($options);

        impl $options {
            /// Builds options, from the defaults on.
            pub fn builder() -> $builder {
                $builder($options::default())
            }
        }

        /// Goes on from these options.
        impl From<$options> for $builder {
            fn from(options: $options) -> $builder {
                $builder(options)
            }
        }

        impl $builder {
            $(
                $(#[$doc])*
                pub fn $field(mut self, $field: $type) -> $builder {
                    self.0.$field = $field.into();
                    self
                }
            )*

            /// The options.
            ///
            /// # Errors
            /// [`Error::Option`](crate::Error::Option) names a setting that does not go with another, and the way out.
            pub fn build(self) -> Result<$options> {
                check(&self.0, None)?;
                Ok(self.0)
            }
        }
    };
}

builder! {
    /// Builds [`MapOptions`].
    ///
    /// ```
    /// use terrace_store::{Domain, Durability, Error, Kind, MapOptions, Persist};
    /// let synced = MapOptions::builder().durability(Durability::Sync).kind(Kind::Ordered).build()?;
    /// assert_eq!((synced.durability, synced.kind), (Durability::Sync, Kind::Ordered));
    /// let on_disk = MapOptions::builder().persist(Persist::Index).build();
    /// assert!(matches!(on_disk, Err(Error::Option { field: "persist", .. })));
    /// MapOptions::builder().persist(Persist::Index).domain(Domain::Adr).build()?;
    /// # Ok::<(), Error>(())
    /// ```
    MapBuilder of MapOptions {
        /// When a write survives a crash.
        durability: Durability,
        /// How keys are found.
        kind: Kind,
        /// The value design.
        values: ValueDesign,
        /// What is persistent.
        persist: Persist,
        /// Bytes of memory.
        memory_budget_bytes: u64,
        /// What happens when they are spent.
        when_full: WhenFull,
        /// Writers that do not wait for one another.
        writers: usize,
        /// What it is opened for.
        access: Access,
        /// The persistence domain of the directory.
        domain: Domain,
    }
}

builder! {
    /// Builds [`QueueOptions`].
    ///
    /// ```
    /// use terrace_store::{Error, QueueOptions, queue::Form};
    /// let small = QueueOptions::builder().capacity_bytes(1 << 20).build()?;
    /// assert_eq!(small.capacity_bytes, Some(1 << 20));
    /// let on_disk = QueueOptions::builder().form(Form::Tx).build();
    /// assert!(matches!(on_disk, Err(Error::Option { field: "form", .. })));
    /// # Ok::<(), Error>(())
    /// ```
    QueueBuilder of QueueOptions {
        /// How its ring is made durable.
        form: QueueForm,
        /// When a push or pop survives a crash.
        durability: Durability,
        /// Bytes of all slots.
        capacity_bytes: u64,
        /// Bytes of a slot.
        slot_bytes: u64,
        /// The largest element that is taken, bytes.
        largest_bytes: u64,
        /// What it is opened for.
        access: Access,
        /// The persistence domain of the directory.
        domain: Domain,
    }
}

builder! {
    /// Builds [`WordsOptions`].
    ///
    /// ```
    /// use terrace_store::{Domain, Error, WordsOptions};
    /// let small = WordsOptions::builder().capacity(1000).domain(Domain::Adr).build()?;
    /// assert_eq!(small.capacity, Some(1000));
    /// let on_disk = WordsOptions::builder().build();
    /// assert!(matches!(on_disk, Err(Error::Option { field: "domain", .. })));
    /// # Ok::<(), Error>(())
    /// ```
    WordsBuilder of WordsOptions {
        /// How it is made durable.
        form: WordsForm,
        /// The most keys.
        capacity: u64,
        /// What it is opened for.
        access: Access,
        /// The persistence domain of the directory.
        domain: Domain,
    }
}
