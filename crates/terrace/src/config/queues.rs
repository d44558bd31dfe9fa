//! The settings of queues: sections `[queues.NAME]`.

use super::keys::{self, Key, interval_ms};
use super::values::choice;
use super::{Config, ConfigError, DurabilityMode, parts};
use terrace_store::QueueOptions;
use terrace_store::queue::Form;

/// A queue's settings; what is not set is as it was made, or the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueConfig {
    /// How its ring is made durable.
    pub form: Option<Form>,
    /// When a push or pop survives a crash.
    pub durability: Option<DurabilityMode>,
    /// Time between checkpoints under [`DurabilityMode::Interval`].
    pub interval_ms: Option<u64>,
    /// Bytes of all slots.
    pub capacity_bytes: Option<u64>,
    /// Bytes of a slot.
    pub slot_bytes: Option<u64>,
    /// Bytes of the largest element.
    pub largest_bytes: Option<u64>,
}

/// The keys of a section `[queues.NAME]`.
pub const QUEUE_KEYS: &[Key<QueueConfig>] = &[
    Key {
        name: "form",
        default: "tx-free",
        help: "tx (only adr and eadr), tx-free, or volatile: a restart loses all elements",
        set: |q, v| v.parse().map(|form| q.form = Some(form)),
    },
    Key {
        name: "durability",
        default: "as for maps",
        help: "sync, interval or none; always sync on a byte-addressable medium",
        set: |q, v| choice(v, DurabilityMode::NAMES).map(|d| q.durability = Some(d)),
    },
    Key {
        name: "interval_ms",
        default: "as for maps",
        help: "milliseconds of pushes and pops that a crash may take under interval",
        set: |q, v| interval_ms(v).map(|n| q.interval_ms = Some(n)),
    },
    Key {
        name: "capacity",
        default: "64 MiB, or as created",
        help: "size of all slots, on disk and in memory; fixed at creation",
        set: |q, v| keys::size_from(v, 128).map(|n| q.capacity_bytes = Some(n)),
    },
    Key {
        name: "slot",
        default: "256, or as created",
        help: "size of a slot, including its header of 16 bytes; a multiple of 64; an element may take several slots",
        set: |q, v| {
            let bytes = keys::size_from(v, 64)?;
            if !bytes.is_multiple_of(64) || bytes > 65472 {
                return Err(format!("`{v}` is not a multiple of 64 from 64 to 65472"));
            }
            q.slot_bytes = Some(bytes);
            Ok(())
        },
    },
    Key {
        name: "largest",
        default: "1 MiB",
        help: "size of the largest element; at most 65536 slots",
        set: |q, v| keys::size_from(v, 1).map(|n| q.largest_bytes = Some(n)),
    },
];

impl Config {
    /// Sets one key of one queue from `NAME.KEY=VALUE`, the form of the flag `--queue`.
    ///
    /// ```
    /// let mut config = terrace::Config::default();
    /// config.set_queue("jobs.slot=128")?;
    /// assert_eq!(config.queues["jobs"].slot_bytes, Some(128));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Another form, an unknown key or a bad value.
    pub fn set_queue(&mut self, text: &str) -> Result<(), ConfigError> {
        let (name, key, value) = parts(text)?;
        let queue = self.queues.entry(name.to_string()).or_default();
        let prefix = format!("queues.{name}.");
        keys::set(QUEUE_KEYS, &prefix, queue, key, value).map_err(ConfigError::plain)
    }

    /// The options the queue `name` opens with: its own settings over `base`.
    ///
    /// ```
    /// let config = terrace::Config::parse("[queues.jobs]\ncapacity = \"1 MiB\"", "terrace.toml".as_ref())?;
    /// assert_eq!(config.queue_options_of("jobs", Default::default()).capacity_bytes, Some(1 << 20));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn queue_options_of(&self, name: &str, base: QueueOptions) -> QueueOptions {
        let Some(own) = self.queues.get(name) else { return base };
        let mode = own.durability.or(own.interval_ms.map(|_| DurabilityMode::Interval));
        let interval_ms = own.interval_ms.or(self.map.interval_ms);
        QueueOptions {
            form: own.form.unwrap_or(base.form),
            durability: mode.map_or(base.durability, |mode| mode.lasting(interval_ms)),
            capacity_bytes: own.capacity_bytes.or(base.capacity_bytes),
            slot_bytes: own.slot_bytes.or(base.slot_bytes),
            largest_bytes: own.largest_bytes.unwrap_or(base.largest_bytes),
            ..base
        }
    }
}
