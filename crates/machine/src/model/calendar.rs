//! Servers in virtual time: a shared resource is busy for a while, and later requests wait.
//!
//! A "busy until" time would do if requests arrived in the order of their times. They do not:
//! logical threads run one after the other for a window of virtual time each, so a request of now
//! may be simulated after one of later. A [`Calendar`] keeps the work reserved in each short slot of
//! time, so that a late comer still finds the gap that was free at its time, and no slot ever
//! serves more than it can. Order within a slot is lost; that is the approximation.

use super::time::Ps;

/// Slots kept; older ones are forgotten. A power of two.
const SLOTS: usize = 2048;
/// The least span of all slots: further apart than any two logical threads should run.
const SPAN_PS: u64 = 100_000_000;
/// Utilisation from which the estimate of waiting no longer grows: the slots' limits take over.
const BUSY_MAX: f64 = 0.9;

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    number: u64,
    used: u64,
}

/// One server, or several that are alike and share a queue.
#[derive(Clone, Debug)]
pub(super) struct Calendar {
    slots: Box<[Slot]>,
    shift: u32,
    capacity: u64,
    servers: u64,
    /// Whether anybody waits: off in an ablation, then the server is infinitely many.
    queueing: bool,
}

impl Calendar {
    /// `servers` of them; `work` is a typical piece, which decides how long slots are.
    pub fn new(servers: u64, work: Ps, queueing: bool) -> Self {
        let width = (4 * work).max(SPAN_PS / SLOTS as u64).next_power_of_two();
        Calendar {
            slots: vec![Slot::default(); SLOTS].into(),
            shift: width.trailing_zeros(),
            capacity: width * servers,
            servers,
            queueing,
        }
    }

    /// Reserves `work` at `at` or as soon as there is room; returns when it begins.
    pub fn reserve(&mut self, at: Ps, work: Ps) -> Ps {
        if !self.queueing {
            return at;
        }
        let first = at >> self.shift;
        let Some(number) = self.first_free(first) else {
            return at;
        };
        let used = self.slot(number).used;
        let begin = if number == first {
            at + self.expected_wait(number, work)
        } else {
            (number << self.shift) + used / self.servers
        };
        self.consume(number, work);
        begin
    }

    /// How long a request at `at` would wait for room.
    pub fn wait(&mut self, at: Ps) -> Ps {
        if !self.queueing {
            return 0;
        }
        let first = at >> self.shift;
        match self.first_free(first) {
            Some(number) if number > first => {
                (number << self.shift) + self.slot(number).used / self.servers - at
            }
            _ => 0,
        }
    }

    /// The first slot from `first` on with room; `None` where time has gone on so far that nothing is
    /// known about it any more.
    fn first_free(&mut self, first: u64) -> Option<u64> {
        for number in first..first + SLOTS as u64 / 2 {
            let capacity = self.capacity;
            let slot = &mut self.slots[number as usize % SLOTS];
            if slot.number > number {
                return None;
            }
            if slot.number < number {
                *slot = Slot { number, used: 0 };
            }
            if slot.used < capacity {
                return Some(number);
            }
        }
        None
    }

    fn slot(&self, number: u64) -> Slot {
        let slot = self.slots[number as usize % SLOTS];
        if slot.number == number { slot } else { Slot { number, used: 0 } }
    }

    /// The mean wait of a queue with constant service at this slot's utilisation (M/D/1): the knee
    /// before the limit.
    fn expected_wait(&self, number: u64, work: Ps) -> Ps {
        let used = self.slot(number).used.max(self.slot(number.saturating_sub(1)).used);
        if used * 16 < self.capacity {
            return 0;
        }
        let busy = (used as f64 / self.capacity as f64).min(BUSY_MAX);
        (work as f64 / self.servers as f64 * busy / (2.0 * (1.0 - busy))) as Ps
    }

    fn consume(&mut self, mut number: u64, mut work: Ps) {
        let end = number + SLOTS as u64 / 2;
        while work > 0 && number < end {
            let capacity = self.capacity;
            let slot = &mut self.slots[number as usize % SLOTS];
            if slot.number > number {
                return;
            }
            if slot.number < number {
                *slot = Slot { number, used: 0 };
            }
            let taken = work.min(capacity - slot.used);
            slot.used += taken;
            work -= taken;
            number += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_served_than_there_is_time() {
        let work = 10_000;
        let mut server = Calendar::new(1, work, true);
        let mut last = 0;
        for _ in 0..1000 {
            last = last.max(server.reserve(0, work));
        }
        let served = last + work;
        assert!(served.abs_diff(1000 * work) <= 100_000, "{served}");
    }

    #[test]
    fn a_late_comer_finds_the_gap_of_its_time() {
        let mut server = Calendar::new(1, 10_000, true);
        assert_eq!(server.reserve(50_000_000, 10_000), 50_000_000);
        assert_eq!(server.reserve(1_000_000, 10_000), 1_000_000);
    }

    #[test]
    fn without_queueing_nobody_waits() {
        let mut server = Calendar::new(1, 10_000, false);
        (0..1000).for_each(|_| assert_eq!(server.reserve(7, 10_000), 7));
        assert_eq!(server.wait(7), 0);
    }
}
