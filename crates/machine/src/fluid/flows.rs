//! Flows that share resources, timers, and the clock.

use super::fair::{Demand, rates};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What a flow takes of a resource.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Use {
    /// The resource, as [`Fluid::resource`] numbered it.
    pub resource: usize,
    /// What each unit of the flow takes of it.
    pub cost: f64,
}

/// Something that flows: bytes, or nanoseconds of a processor's work.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// How much.
    pub amount: f64,
    /// Its rate with everything for itself, a nanosecond. Of what it shares it gets in proportion to this.
    pub alone: f64,
    /// What it shares.
    pub uses: Vec<Use>,
    /// The processors whose time it needs, as [`Fluid::cores`] numbered them.
    pub cores: Option<usize>,
}

/// Flows, timers and a clock, which stands at their next end. `T` is what whoever began one wants to hear then.
///
/// ```
/// use terrace_machine::fluid::{Flow, Fluid, Use};
///
/// let mut fluid = Fluid::new();
/// let pipe = fluid.resource(10.0);
/// let flow = |amount| Flow { amount, alone: 8.0, uses: vec![Use { resource: pipe, cost: 1.0 }], cores: None };
/// fluid.begin(flow(50.0), "short");
/// fluid.begin(flow(90.0), "long");
/// // 5 a nanosecond each; the rest of the long one at 8.
/// assert_eq!((fluid.next(), fluid.now()), (Some("short"), 10.0));
/// assert_eq!((fluid.next(), fluid.now()), (Some("long"), 15.0));
/// assert_eq!(fluid.next(), None);
/// ```
#[derive(Debug)]
pub struct Fluid<T> {
    now: f64,
    capacities: Vec<f64>,
    groups: Vec<f64>,
    flowing: Vec<Flowing<T>>,
    timers: BinaryHeap<Reverse<Timer<T>>>,
    begun: u64,
    /// Whether the rates are those of the flows that there are.
    is_settled: bool,
}

#[derive(Debug)]
struct Flowing<T> {
    flow: Flow,
    left: f64,
    rate: f64,
    token: T,
}

#[derive(Debug)]
struct Timer<T> {
    at: f64,
    number: u64,
    token: T,
}

impl<T> Ord for Timer<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at.total_cmp(&other.at).then(self.number.cmp(&other.number))
    }
}

impl<T> PartialOrd for Timer<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Timer<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T> Eq for Timer<T> {}

impl<T> Default for Fluid<T> {
    fn default() -> Fluid<T> {
        Fluid::new()
    }
}

impl<T> Fluid<T> {
    /// Nothing, at time 0.
    pub fn new() -> Fluid<T> {
        Fluid {
            now: 0.0,
            capacities: Vec::new(),
            groups: Vec::new(),
            flowing: Vec::new(),
            timers: BinaryHeap::new(),
            begun: 0,
            is_settled: true,
        }
    }

    /// Adds a resource that gives so much a nanosecond; returns its number.
    pub fn resource(&mut self, capacity: f64) -> usize {
        self.capacities.push(capacity);
        self.capacities.len() - 1
    }

    /// Adds so many processors; returns their number. They are divided among flows as by an operating system: equally,
    /// whether a flow waits for memory or not, and none gets more than one.
    pub fn cores(&mut self, processors: f64) -> usize {
        self.groups.push(processors);
        self.groups.len() - 1
    }

    /// The time, in nanoseconds.
    pub fn now(&self) -> f64 {
        self.now
    }

    /// Begins a flow, which [`Fluid::next`] tells of when it has ended.
    ///
    /// # Panics
    /// If it has no rate, or uses what was not added.
    pub fn begin(&mut self, flow: Flow, token: T) {
        assert!(
            flow.alone > 0.0 && flow.alone.is_finite() && flow.amount.is_finite(),
            "a flow has a rate and an end"
        );
        assert!(
            flow.uses.iter().all(|of| of.resource < self.capacities.len()),
            "its resources were added"
        );
        assert!(
            flow.cores.is_none_or(|cores| cores < self.groups.len()),
            "its processors were added"
        );
        let left = flow.amount.max(0.0);
        self.flowing.push(Flowing { flow, left, rate: 0.0, token });
        self.is_settled = false;
    }

    /// Tells of `token` after so many nanoseconds.
    pub fn after(&mut self, ns: f64, token: T) {
        let at = self.now + ns.max(0.0);
        self.begun += 1;
        self.timers.push(Reverse(Timer { at, number: self.begun, token }));
    }

    /// Goes on to the next end, and says whose it is; none if nothing goes on. Of several at one time timers come
    /// first, in the order in which they were set.
    #[allow(
        clippy::should_implement_trait,
        reason = "what it returns depends on what is begun meanwhile"
    )]
    pub fn next(&mut self) -> Option<T> {
        self.settle();
        let ends = self.flowing.iter().map(|of| self.now + of.left / of.rate).enumerate();
        let first = ends.min_by(|(_, a), (_, b)| a.total_cmp(b));
        let timer = self.timers.peek().map(|Reverse(timer)| timer.at);
        match (first, timer) {
            (None, None) => None,
            (Some((at, end)), timer) if timer.is_none_or(|timer| end < timer) => {
                self.go_on(end);
                let ended = self.flowing.swap_remove(at);
                self.is_settled = false;
                Some(ended.token)
            }
            _ => {
                let Reverse(timer) = self.timers.pop()?;
                self.go_on(timer.at);
                Some(timer.token)
            }
        }
    }

    fn go_on(&mut self, until: f64) {
        let ns = (until - self.now).max(0.0);
        self.flowing.iter_mut().for_each(|of| of.left = (of.left - of.rate * ns).max(0.0));
        self.now = self.now.max(until);
    }

    fn settle(&mut self) {
        if self.is_settled {
            return;
        }
        let mut runnable = vec![0.0; self.groups.len()];
        self.flowing.iter().filter_map(|of| of.flow.cores).for_each(|cores| runnable[cores] += 1.0);
        let share = |cores: usize| (self.groups[cores] / runnable[cores]).min(1.0);
        let demands: Vec<Demand<'_>> = self
            .flowing
            .iter()
            .map(|of| Demand {
                alone: of.flow.alone * of.flow.cores.map_or(1.0, share),
                uses: &of.flow.uses,
            })
            .collect();
        let rates = rates(&self.capacities, &demands);
        self.flowing.iter_mut().zip(rates).for_each(|(of, rate)| of.rate = rate);
        self.is_settled = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(amount: f64, alone: f64, resource: usize) -> Flow {
        Flow { amount, alone, uses: vec![Use { resource, cost: 1.0 }], cores: None }
    }

    #[test]
    fn one_flow_ends_when_its_bytes_have_passed_and_later_ones_slow_it() {
        let mut fluid = Fluid::new();
        let pipe = fluid.resource(4.0);
        fluid.begin(flow(100.0, 4.0, pipe), 'a');
        fluid.after(10.0, 't');
        assert_eq!((fluid.next(), fluid.now()), (Some('t'), 10.0));
        // 60 are left, at half the rate while 20 of the other pass; then 40 at the whole.
        fluid.begin(flow(20.0, 4.0, pipe), 'b');
        assert_eq!((fluid.next(), fluid.now()), (Some('b'), 20.0));
        assert_eq!((fluid.next(), fluid.now()), (Some('a'), 30.0));
    }

    #[test]
    fn timers_of_one_time_come_in_order_and_before_flows() {
        let mut fluid = Fluid::new();
        fluid.begin(Flow { amount: 5.0, alone: 1.0, uses: Vec::new(), cores: None }, 2);
        fluid.after(5.0, 0);
        fluid.after(5.0, 1);
        let order: Vec<i32> = std::iter::from_fn(|| fluid.next()).collect();
        assert_eq!((order, fluid.now()), (vec![0, 1, 2], 5.0));
    }

    #[test]
    fn processors_are_divided_equally() {
        let mut fluid = Fluid::new();
        let two = fluid.cores(2.0);
        for at in 0..4 {
            fluid.begin(Flow { amount: 10.0, alone: 1.0, uses: Vec::new(), cores: Some(two) }, at);
        }
        let count = std::iter::from_fn(|| fluid.next()).count();
        assert_eq!((count, fluid.now()), (4, 20.0), "four threads on two processors");
        fluid.begin(Flow { amount: 10.0, alone: 1.0, uses: Vec::new(), cores: Some(two) }, 4);
        assert_eq!((fluid.next(), fluid.now()), (Some(4), 30.0), "one thread uses one of them");
    }
}
