//! What other systems keep by, each as published and for items of one size. They live here alone: the product has one.

use super::traces::Trace;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Decides which items have copies.
pub(super) trait Policy {
    /// A reader asks for it; whether there was a copy.
    fn ask(&mut self, item: u32) -> bool;

    /// Copies made so far, and how many of them went without having been asked for again.
    fn moves(&self) -> Moves;
}

#[derive(Clone, Copy, Default)]
pub(super) struct Moves {
    pub made: u64,
    pub in_vain: u64,
}

/// Items in queues. Each is in one of them or in none.
struct Queues {
    /// Behind the items, one for each queue: its newest, and its oldest.
    next: Vec<u32>,
    before: Vec<u32>,
    lengths: Vec<usize>,
    /// The queue of each item; `NONE`: it is in none.
    queue: Vec<u8>,
    /// How often it was asked for, as the policy counts.
    count: Vec<u8>,
    was_used: Vec<bool>,
    moves: Moves,
}

const NONE: u8 = u8::MAX;

impl Queues {
    fn new(items: usize, queues: usize) -> Queues {
        let ends: Vec<u32> = (0..items + queues).map(|n| n as u32).collect();
        Queues {
            next: ends.clone(),
            before: ends,
            lengths: vec![0; queues],
            queue: vec![NONE; items],
            count: vec![0; items],
            was_used: vec![false; items],
            moves: Moves::default(),
        }
    }

    fn end(&self, queue: u8) -> usize {
        self.queue.len() + usize::from(queue)
    }

    fn is_in(&self, item: u32) -> Option<u8> {
        Some(self.queue[item as usize]).filter(|queue| *queue != NONE)
    }

    fn push(&mut self, queue: u8, item: u32) {
        let end = self.end(queue);
        let first = self.next[end] as usize;
        (self.next[item as usize], self.before[item as usize]) = (first as u32, end as u32);
        (self.next[end], self.before[first]) = (item, item);
        self.queue[item as usize] = queue;
        self.lengths[usize::from(queue)] += 1;
    }

    fn remove(&mut self, item: u32) {
        let item = item as usize;
        let (next, before) = (self.next[item], self.before[item]);
        (self.next[before as usize], self.before[next as usize]) = (next, before);
        self.lengths[usize::from(self.queue[item])] -= 1;
        self.queue[item] = NONE;
    }

    fn oldest(&self, queue: u8) -> Option<u32> {
        (self.lengths[usize::from(queue)] > 0).then(|| self.before[self.end(queue)])
    }

    fn pop(&mut self, queue: u8) -> Option<u32> {
        self.oldest(queue).inspect(|item| self.remove(*item))
    }

    fn length(&self, queue: u8) -> usize {
        self.lengths[usize::from(queue)]
    }

    /// A new copy, of which nothing is known.
    fn copied(&mut self, queue: u8, item: u32) {
        self.push(queue, item);
        (self.count[item as usize], self.was_used[item as usize]) = (0, false);
        self.moves.made += 1;
    }

    /// A copy is asked for again.
    fn used(&mut self, item: u32, most: u8) {
        self.was_used[item as usize] = true;
        self.count[item as usize] = (self.count[item as usize] + 1).min(most);
    }

    /// A copy is no more.
    fn went(&mut self, item: u32) {
        self.moves.in_vain += u64::from(!self.was_used[item as usize]);
    }
}

/// What was asked for least recently goes.
pub(super) struct Lru(Queues, usize);

impl Lru {
    pub fn new(items: usize, room: usize) -> Lru {
        Lru(Queues::new(items, 1), room)
    }
}

impl Policy for Lru {
    fn ask(&mut self, item: u32) -> bool {
        let Lru(queues, room) = self;
        if queues.is_in(item).is_some() {
            queues.used(item, 1);
            queues.remove(item);
            queues.push(0, item);
            return true;
        }
        if queues.length(0) == *room {
            let gone = queues.pop(0).expect("the queue is full");
            queues.went(gone);
        }
        queues.copied(0, item);
        false
    }

    fn moves(&self) -> Moves {
        self.0.moves
    }
}

/// A hand passes by and takes what was not asked for since; each round it counts once less.
pub(super) struct Clock {
    queues: Queues,
    room: usize,
    most: u8,
}

impl Clock {
    /// Counts up to `most`.
    pub fn new(items: usize, room: usize, most: u8) -> Clock {
        Clock { queues: Queues::new(items, 1), room, most }
    }
}

impl Policy for Clock {
    fn ask(&mut self, item: u32) -> bool {
        let Clock { queues, room, most } = self;
        if queues.is_in(item).is_some() {
            queues.used(item, *most);
            return true;
        }
        while queues.length(0) == *room {
            let oldest = queues.pop(0).expect("the queue is full");
            match &mut queues.count[oldest as usize] {
                0 => queues.went(oldest),
                count => {
                    *count -= 1;
                    queues.push(0, oldest);
                }
            }
        }
        queues.copied(0, item);
        false
    }

    fn moves(&self) -> Moves {
        self.queues.moves
    }
}

/// As CLOCK, but what stays does not move, and new items come behind the hand (NSDI 2024).
pub(super) struct Sieve {
    queues: Queues,
    room: usize,
    hand: Option<u32>,
}

impl Sieve {
    pub fn new(items: usize, room: usize) -> Sieve {
        Sieve { queues: Queues::new(items, 1), room, hand: None }
    }
}

impl Policy for Sieve {
    fn ask(&mut self, item: u32) -> bool {
        let Sieve { queues, room, hand } = self;
        if queues.is_in(item).is_some() {
            queues.used(item, 1);
            return true;
        }
        if queues.length(0) == *room {
            let end = queues.end(0) as u32;
            let mut at = hand.or_else(|| queues.oldest(0)).expect("the queue is full");
            while std::mem::take(&mut queues.count[at as usize]) > 0 {
                at = match queues.before[at as usize] {
                    before if before == end => queues.oldest(0).expect("the queue is full"),
                    before => before,
                };
            }
            *hand = Some(queues.before[at as usize]).filter(|before| *before != end);
            queues.remove(at);
            queues.went(at);
        }
        queues.copied(0, item);
        false
    }

    fn moves(&self) -> Moves {
        self.queues.moves
    }
}

/// A short queue for what is new, a long one, and a third of what went (SOSP 2023).
pub(super) struct S3Fifo {
    queues: Queues,
    room: usize,
    short: usize,
}

impl S3Fifo {
    /// The short queue has so many in a hundred.
    pub fn new(items: usize, room: usize, share: usize) -> S3Fifo {
        S3Fifo { queues: Queues::new(items, 3), room, short: (room * share / 100).max(1) }
    }

    fn make_room(&mut self) {
        let S3Fifo { queues, room, short } = self;
        let long = *room - *short;
        while queues.length(0) + queues.length(1) >= *room {
            if queues.length(0) >= *short || queues.length(1) == 0 {
                let item = queues.pop(0).expect("it has some");
                if queues.count[item as usize] > 1 {
                    queues.count[item as usize] = 0;
                    queues.push(1, item);
                    continue;
                }
                queues.went(item);
                if queues.length(2) >= long {
                    queues.pop(2);
                }
                queues.push(2, item);
            } else {
                let item = queues.pop(1).expect("it has some");
                match &mut queues.count[item as usize] {
                    0 => queues.went(item),
                    count => {
                        *count -= 1;
                        queues.push(1, item);
                    }
                }
            }
        }
    }
}

impl Policy for S3Fifo {
    fn ask(&mut self, item: u32) -> bool {
        match self.queues.is_in(item) {
            Some(0 | 1) => {
                self.queues.used(item, 3);
                return true;
            }
            Some(_) => {
                self.queues.remove(item);
                self.make_room();
                self.queues.copied(1, item);
            }
            None => {
                self.make_room();
                self.queues.copied(0, item);
            }
        }
        false
    }

    fn moves(&self) -> Moves {
        self.queues.moves
    }
}

/// Newcomers wait in a window, and take the place of another if a sketch says that they are asked for more often
/// (Einziger and others, TOS 2017).
pub(super) struct TinyLfu {
    queues: Queues,
    sketch: Sketch,
    window: usize,
    guarded: usize,
    main: usize,
}

const WINDOW: u8 = 0;
const PROBATION: u8 = 1;
const GUARDED: u8 = 2;

impl TinyLfu {
    /// The window has so many in a hundred.
    pub fn new(items: usize, room: usize, share: usize) -> TinyLfu {
        let window = (room * share / 100).max(1);
        let main = room - window;
        TinyLfu { queues: Queues::new(items, 3), sketch: Sketch::new(room), window, guarded: main * 4 / 5, main }
    }

    fn again(&mut self, queue: u8, item: u32) {
        let TinyLfu { queues, guarded, .. } = self;
        queues.used(item, 1);
        queues.remove(item);
        queues.push(if queue == WINDOW { WINDOW } else { GUARDED }, item);
        if queues.length(GUARDED) > *guarded {
            let oldest = queues.pop(GUARDED).expect("it has some");
            queues.push(PROBATION, oldest);
        }
    }
}

impl Policy for TinyLfu {
    fn ask(&mut self, item: u32) -> bool {
        self.sketch.count(item);
        if let Some(queue) = self.queues.is_in(item) {
            self.again(queue, item);
            return true;
        }
        let TinyLfu { queues, sketch, window, main, .. } = self;
        queues.copied(WINDOW, item);
        if queues.length(WINDOW) > *window {
            let candidate = queues.pop(WINDOW).expect("it has some");
            if queues.length(PROBATION) + queues.length(GUARDED) < *main {
                queues.push(PROBATION, candidate);
            } else {
                let victim = queues.oldest(PROBATION).or_else(|| queues.oldest(GUARDED)).expect("it is full");
                if sketch.estimate(candidate) > sketch.estimate(victim) {
                    queues.remove(victim);
                    queues.went(victim);
                    queues.push(PROBATION, candidate);
                } else {
                    queues.went(candidate);
                }
            }
        }
        false
    }

    fn moves(&self) -> Moves {
        self.queues.moves
    }
}

/// Counts up to 15 in four rows; all are halved when ten times as many were counted as there is room for.
struct Sketch {
    rows: [Vec<u8>; 4],
    counted: usize,
    period: usize,
}

impl Sketch {
    fn new(room: usize) -> Sketch {
        let row = || vec![0; room.next_power_of_two()];
        Sketch { rows: [row(), row(), row(), row()], counted: 0, period: room * 10 }
    }

    fn places(&mut self, item: u32) -> impl Iterator<Item = &mut u8> {
        let mixed = (u64::from(item) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.rows.iter_mut().enumerate().map(move |(n, row)| {
            let place = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9 + 2 * n as u64) >> 32;
            let places = row.len();
            &mut row[place as usize & (places - 1)]
        })
    }

    fn count(&mut self, item: u32) {
        let least = self.estimate(item);
        // Only the least ones say something of this item.
        self.places(item).filter(|count| **count == least && least < 15).for_each(|count| *count += 1);
        self.counted += 1;
        if self.counted == self.period {
            self.counted /= 2;
            self.rows.iter_mut().flatten().for_each(|count| *count /= 2);
        }
    }

    fn estimate(&mut self, item: u32) -> u8 {
        self.places(item).map(|count| *count).min().expect("there are rows")
    }
}

/// What was asked for most often in the beginning, from then on.
pub(super) struct Static(Vec<bool>);

impl Static {
    pub fn new(trace: &Trace, room: usize, beginning: usize) -> Static {
        let mut counts = vec![0u32; trace.items];
        trace.asked[..beginning].iter().for_each(|item| counts[*item as usize] += 1);
        Static(most_frequent(&counts, room))
    }
}

fn most_frequent<T: Copy + PartialOrd>(scores: &[T], room: usize) -> Vec<bool> {
    let mut order: Vec<u32> = (0..scores.len() as u32).collect();
    let by = |a: &u32, b: &u32| scores[*b as usize].partial_cmp(&scores[*a as usize]).expect("scores are numbers");
    if room < order.len() {
        order.select_nth_unstable_by(room, by);
    }
    let mut is_in = vec![false; scores.len()];
    order.iter().take(room).for_each(|item| is_in[*item as usize] = true);
    is_in
}

impl Policy for Static {
    fn ask(&mut self, item: u32) -> bool {
        self.0[item as usize]
    }

    fn moves(&self) -> Moves {
        Moves::default()
    }
}

/// Every so often the items are ranked by what two averages of their requests say, a short one and a long one, and the
/// first ones are copied. After ARMS, which adds to that what a move costs.
pub(super) struct Ranked {
    kept: Vec<bool>,
    was_used: Vec<bool>,
    requests: Vec<u32>,
    scores: Vec<[f32; 2]>,
    room: usize,
    period: usize,
    asked: usize,
    moves: Moves,
}

impl Ranked {
    pub fn new(items: usize, room: usize, period: usize) -> Ranked {
        Ranked {
            kept: vec![false; items],
            was_used: vec![false; items],
            requests: vec![0; items],
            scores: vec![[0.0; 2]; items],
            room,
            period,
            asked: 0,
            moves: Moves::default(),
        }
    }

    fn rank(&mut self) {
        for (score, requests) in self.scores.iter_mut().zip(&mut self.requests) {
            let requests = std::mem::take(requests) as f32;
            score[0] += 0.5 * (requests - score[0]);
            score[1] += 0.05 * (requests - score[1]);
        }
        let scores: Vec<f32> = self.scores.iter().map(|[short, long]| short + long).collect();
        let kept = most_frequent(&scores, self.room);
        for (item, (now, before)) in kept.iter().zip(&self.kept).enumerate() {
            self.moves.in_vain += u64::from(*before && !now && !self.was_used[item]);
            if *now && !before {
                self.moves.made += 1;
                self.was_used[item] = false;
            }
        }
        self.kept = kept;
    }
}

impl Policy for Ranked {
    fn ask(&mut self, item: u32) -> bool {
        self.asked += 1;
        if self.asked.is_multiple_of(self.period) {
            self.rank();
        }
        self.requests[item as usize] += 1;
        let is_kept = self.kept[item as usize];
        self.was_used[item as usize] |= is_kept;
        is_kept
    }

    fn moves(&self) -> Moves {
        self.moves
    }
}

/// Knows what will be asked for: what is needed last goes, or does not come (Belady). A bound, no rival.
pub(super) struct Clairvoyant {
    /// When the item of each request is asked for next.
    next: Vec<u32>,
    at: usize,
    /// When each copy is needed next; 0: there is none.
    needed: Vec<u32>,
    /// By when they are needed; some have been asked for since.
    last: BinaryHeap<(u32, Reverse<u32>)>,
    room: usize,
    copies: usize,
}

impl Clairvoyant {
    pub fn new(trace: &Trace, room: usize) -> Clairvoyant {
        let mut seen = vec![u32::MAX; trace.items];
        let mut next = vec![0; trace.asked.len()];
        for (at, item) in trace.asked.iter().enumerate().rev() {
            next[at] = std::mem::replace(&mut seen[*item as usize], at as u32);
        }
        Clairvoyant { next, at: 0, needed: vec![0; trace.items], last: BinaryHeap::new(), room, copies: 0 }
    }
}

impl Policy for Clairvoyant {
    fn ask(&mut self, item: u32) -> bool {
        let next = self.next[self.at];
        self.at += 1;
        let was_there = self.needed[item as usize] != 0;
        self.copies += usize::from(!was_there);
        self.needed[item as usize] = next;
        self.last.push((next, Reverse(item)));
        while self.copies > self.room {
            let (needed, Reverse(item)) = self.last.pop().expect("each copy is in it");
            if self.needed[item as usize] == needed {
                self.needed[item as usize] = 0;
                self.copies -= 1;
            }
        }
        was_there
    }

    fn moves(&self) -> Moves {
        Moves::default()
    }
}
