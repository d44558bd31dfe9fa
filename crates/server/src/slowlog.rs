//! The slow log and the latency monitor: what took long, kept in bounded rings.

use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};

/// Arguments kept of a slow command, and bytes kept of each.
const ARGUMENTS_KEPT: usize = 32;
const ARGUMENT_BYTES_KEPT: usize = 128;

/// One slow command.
#[derive(Clone)]
pub(crate) struct SlowEntry {
    pub(crate) id: u64,
    /// Seconds since 1970.
    pub(crate) at_s: u64,
    pub(crate) microseconds: u64,
    pub(crate) arguments: Vec<Vec<u8>>,
    pub(crate) address: String,
    pub(crate) client_name: String,
}

/// The newest slow commands.
#[derive(Default)]
pub(crate) struct SlowLog {
    inner: Mutex<SlowRing>,
}

#[derive(Default)]
struct SlowRing {
    entries: VecDeque<SlowEntry>,
    next_id: u64,
}

impl SlowLog {
    /// Adds an entry (its id is given here) and drops the oldest beyond `kept`.
    pub(crate) fn add(&self, mut entry: SlowEntry, kept: usize) {
        let mut ring = self.inner.lock();
        entry.id = ring.next_id;
        ring.next_id += 1;
        ring.entries.push_front(entry);
        ring.entries.truncate(kept);
    }
    pub(crate) fn newest(&self, count: usize) -> Vec<SlowEntry> {
        self.inner.lock().entries.iter().take(count).cloned().collect()
    }
    pub(crate) fn len(&self) -> usize {
        self.inner.lock().entries.len()
    }
    pub(crate) fn clear(&self) {
        self.inner.lock().entries.clear();
    }
}

/// Shortens a request to what the slow log keeps.
pub(crate) fn abridge<'a>(arguments: impl ExactSizeIterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
    let count = arguments.len();
    let kept = if count > ARGUMENTS_KEPT { ARGUMENTS_KEPT - 1 } else { count };
    let mut abridged: Vec<Vec<u8>> = arguments
        .take(kept)
        .map(|argument| {
            let mut text = argument[..argument.len().min(ARGUMENT_BYTES_KEPT)].to_vec();
            if argument.len() > ARGUMENT_BYTES_KEPT {
                text.extend(
                    format!("... ({} more bytes)", argument.len() - ARGUMENT_BYTES_KEPT).bytes(),
                );
            }
            text
        })
        .collect();
    if kept < count {
        abridged.push(format!("... ({} more arguments)", count - kept).into_bytes());
    }
    abridged
}

/// Samples kept per event, as Redis keeps.
const SAMPLES_KEPT: usize = 160;

/// Events that took longer than the monitor's threshold, by name.
#[derive(Default)]
pub(crate) struct LatencyMonitor {
    events: Mutex<BTreeMap<&'static str, LatencyEvent>>,
}

/// The history of one kind of event.
#[derive(Clone, Default)]
pub(crate) struct LatencyEvent {
    /// Seconds since 1970 and milliseconds it took; one sample per second, the worst of it.
    pub(crate) samples: VecDeque<(u64, u64)>,
    pub(crate) worst_ms: u64,
}

impl LatencyMonitor {
    pub(crate) fn add(&self, event: &'static str, at_s: u64, took_ms: u64) {
        let mut events = self.events.lock();
        let event = events.entry(event).or_default();
        event.worst_ms = event.worst_ms.max(took_ms);
        match event.samples.back_mut() {
            Some((second, worst)) if *second == at_s => *worst = (*worst).max(took_ms),
            _ => event.samples.push_back((at_s, took_ms)),
        }
        if event.samples.len() > SAMPLES_KEPT {
            event.samples.pop_front();
        }
    }
    pub(crate) fn all(&self) -> Vec<(&'static str, LatencyEvent)> {
        self.events.lock().iter().map(|(name, event)| (*name, event.clone())).collect()
    }
    /// Forgets the named events, or all; returns how many there were.
    pub(crate) fn reset(&self, names: &[&[u8]]) -> usize {
        let mut events = self.events.lock();
        let before = events.len();
        events.retain(|name, _| {
            !names.is_empty() && !names.iter().any(|n| n.eq_ignore_ascii_case(name.as_bytes()))
        });
        before - events.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_abridged() {
        let long = [b'x'; 200];
        let many: Vec<&[u8]> = std::iter::repeat_n(&long[..], 40).collect();
        let kept = abridge(many.into_iter());
        assert_eq!(kept.len(), 32);
        assert!(kept[0].ends_with(b"... (72 more bytes)"));
        assert_eq!(kept[31], b"... (9 more arguments)");
    }

    #[test]
    fn one_latency_sample_per_second() {
        let monitor = LatencyMonitor::default();
        for (at, took) in [(1, 5), (1, 9), (1, 7), (2, 3)] {
            monitor.add("command", at, took);
        }
        let (_, event) = monitor.all().remove(0);
        assert_eq!((event.samples, event.worst_ms), (VecDeque::from([(1, 9), (2, 3)]), 9));
        assert_eq!(monitor.reset(&[b"other"]), 0);
        assert_eq!(monitor.reset(&[]), 1);
    }
}
