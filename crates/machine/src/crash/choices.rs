//! Which of the possible values each read of recovery gets: a sequence of choices, and the order in
//! which sequences are tried.
//!
//! Recovery is run again for each sequence. It must be deterministic, so the same choices lead to
//! the same reads, and the tree of all its executions is walked depth first by changing the last
//! choice that has another option. Option 0 is the newest value, the last option the oldest.

use crate::random::Rng;

/// How executions are searched.
#[derive(Clone, Debug)]
pub(crate) enum Search {
    /// Every sequence.
    All,
    /// Every sequence in which at most `most` units are not at their newest (or, if `oldest`, not
    /// at their oldest).
    Few { oldest: bool, most: usize },
    /// This sequence, and the newest beyond its end.
    Forced(Vec<u16>),
    /// `samples` sequences on average: one half drawn evenly, one half newest or oldest everywhere
    /// but at one read.
    Random { samples: f64 },
}

#[derive(Clone, Copy, Debug)]
struct Choice {
    /// Counted from the preferred end; see [`Choices::option`].
    rank: u16,
    options: u16,
    unit: u32,
}

#[derive(Clone, Copy, Debug)]
enum Style {
    Even,
    AllBut { oldest: bool, exception: u64 },
}

/// The choices of one level's executions.
#[derive(Debug)]
pub(crate) struct Choices {
    search: Search,
    made: Vec<Choice>,
    cursor: usize,
    /// Choices set before the execution began; what precedes the last of them has been seen.
    forced: usize,
    samples_left: u64,
    style: Style,
    rng: Rng,
}

impl Choices {
    pub fn new() -> Self {
        Choices {
            search: Search::All,
            made: Vec::new(),
            cursor: 0,
            forced: 0,
            samples_left: 0,
            style: Style::Even,
            rng: Rng::new(0),
        }
    }

    /// Starts a search. False if it has no execution at all.
    pub fn start(&mut self, search: Search, seed: u64) -> bool {
        self.made.clear();
        self.forced = 0;
        let mut any = true;
        if let Search::Random { samples } = &search {
            self.rng = Rng::new(seed);
            let whole = samples.floor();
            let more = self.rng.unit() < samples - whole;
            self.samples_left = whole as u64 + u64::from(more);
            any = self.samples_left > 0;
            // How many reads there are is known after the first execution.
            self.style = match self.rng.below(4) {
                _ if self.samples_left > 1 => Style::AllBut { oldest: false, exception: u64::MAX },
                0 => Style::AllBut { oldest: false, exception: self.rng.below(8) },
                1 => Style::AllBut { oldest: true, exception: self.rng.below(8) },
                _ => Style::Even,
            };
        }
        self.search = search;
        any
    }

    /// Begins an execution.
    pub fn begin(&mut self) {
        self.cursor = 0;
    }

    /// Whether this execution has left what earlier ones have seen.
    pub fn is_new(&self) -> bool {
        self.cursor >= self.forced
    }

    /// Chooses one of `options` (at least 2) values of a word in `unit`.
    ///
    /// # Panics
    /// If the execution is not the one that these choices were made in.
    pub fn choose(&mut self, options: usize, unit: usize) -> usize {
        let options = options as u16;
        let at = self.cursor;
        self.cursor += 1;
        if let Some(choice) = self.made.get(at) {
            assert!(
                choice.options == options && choice.unit == unit as u32,
                "recovery is not deterministic: read {at} found another choice than before"
            );
            return self.option(*choice);
        }
        let rank = match &self.search {
            Search::All | Search::Few { .. } => 0,
            Search::Forced(list) => list.get(at).copied().unwrap_or(0).min(options - 1),
            Search::Random { .. } => self.draw(at as u64, options),
        };
        let choice = Choice { rank, options, unit: unit as u32 };
        self.made.push(choice);
        self.option(choice)
    }

    fn draw(&mut self, at: u64, options: u16) -> u16 {
        match self.style {
            Style::Even => self.rng.below(u64::from(options)) as u16,
            Style::AllBut { oldest, exception } => {
                let usual = if oldest { options - 1 } else { 0 };
                if at != exception {
                    return usual;
                }
                let other = 1 + self.rng.below(u64::from(options) - 1) as u16;
                if oldest { options - 1 - other } else { other }
            }
        }
    }

    fn option(&self, choice: Choice) -> usize {
        let from_oldest = matches!(self.search, Search::Few { oldest: true, .. });
        usize::from(if from_oldest { choice.options - 1 - choice.rank } else { choice.rank })
    }

    /// The options chosen so far in this execution.
    pub fn options(&self) -> Vec<u16> {
        self.made[..self.cursor].iter().map(|choice| self.option(*choice) as u16).collect()
    }

    /// Goes to the next execution; false if the search has ended.
    pub fn advance(&mut self) -> bool {
        self.made.truncate(self.cursor);
        match self.search {
            Search::Forced(_) => false,
            Search::Random { .. } => self.redraw(),
            Search::All => self.next_within(usize::MAX),
            Search::Few { most, .. } => self.next_within(most),
        }
    }

    fn redraw(&mut self) -> bool {
        let reads = self.made.len() as u64;
        self.samples_left -= 1;
        // Without a choice every execution is this one.
        if self.samples_left == 0 || reads == 0 {
            return false;
        }
        self.made.clear();
        self.style = match self.rng.below(4) {
            0 => Style::AllBut { oldest: false, exception: self.rng.below(reads) },
            1 => Style::AllBut { oldest: true, exception: self.rng.below(reads) },
            _ => Style::Even,
        };
        true
    }

    fn next_within(&mut self, most: usize) -> bool {
        while let Some(last) = self.made.pop() {
            if last.rank + 1 < last.options {
                self.made.push(Choice { rank: last.rank + 1, ..last });
                if most == usize::MAX || self.deviating_units() <= most {
                    self.forced = self.made.len();
                    return true;
                }
                self.made.pop();
            }
        }
        false
    }

    fn deviating_units(&self) -> usize {
        let mut units: Vec<u32> =
            self.made.iter().filter(|choice| choice.rank > 0).map(|choice| choice.unit).collect();
        units.sort_unstable();
        units.dedup();
        units.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a "recovery" that reads three words, of 2, 3 and (if the first is new) 2 values.
    fn executions(search: Search) -> Vec<Vec<u16>> {
        let mut choices = Choices::new();
        let mut all = Vec::new();
        if !choices.start(search, 1) {
            return all;
        }
        loop {
            choices.begin();
            let first = choices.choose(2, 0);
            choices.choose(3, 1);
            if first == 0 {
                choices.choose(2, 2);
            }
            all.push(choices.options());
            if !choices.advance() {
                return all;
            }
        }
    }

    #[test]
    fn every_sequence_is_tried_once() {
        let mut all = executions(Search::All);
        assert_eq!(all.len(), 3 * 2 + 3);
        assert_eq!(all[0], [0, 0, 0]);
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 9);
    }

    #[test]
    fn few_counts_units_from_either_end() {
        assert_eq!(executions(Search::Few { oldest: false, most: 0 }), [[0, 0, 0]]);
        assert_eq!(executions(Search::Few { oldest: true, most: 0 }), [[1, 2]]);
        let one = executions(Search::Few { oldest: false, most: 1 });
        assert_eq!(one.len(), 1 + 1 + 2 + 1);
    }

    #[test]
    fn forced_and_random_follow_their_orders() {
        assert_eq!(executions(Search::Forced(vec![1, 2])), [[1, 2]]);
        assert_eq!(executions(Search::Random { samples: 40.0 }).len(), 40);
        assert!(executions(Search::Random { samples: 0.0 }).is_empty());
    }
}
