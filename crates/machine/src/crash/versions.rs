//! What a power cut may leave of each line: the stores since the last guaranteed one, and the
//! arithmetic of choosing among them.
//!
//! Memory persists in *units*: lines of 64 bytes, or pages of 4 KiB under the page cache. Stores to
//! a unit form *groups*, numbered from 1 in program order: a word store is a group of one piece, a
//! plain write a group with a piece for every word it touches. A unit persists as all groups up to
//! some number `p` and any subset of group `p + 1` (stores of one line reach the medium in order;
//! the pieces of one write have none). So everything known about a unit is a [`Span`]: `p` lies in
//! `lo..=hi`.
//!
//! Reading a word asks which piece was the last to persist there. If it is a piece of group `g`,
//! and the next piece on that word is of group `n`, then `g - 1 <= p <= n - 1`: at `p = g - 1` the
//! piece is in the subset, at `p = n - 1` the next one is not. Two words never disagree about the
//! subset, because a group has one piece a word; so intersecting spans, read by read, is exact: a
//! span is empty if and only if no image gives the values read. That is why no image is ever built.
//!
//! Streamed pieces are in no group: each may persist or not, alone, until its thread's fence.

/// An inclusive range of the number of groups that persisted whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Span {
    pub lo: u32,
    pub hi: u32,
}

/// How a piece is ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// In the unit's groups.
    Grouped(u32),
    /// Streamed in the event of this number, and not fenced.
    Streamed(u64),
}

/// One store of at most a word: the word's value once it has persisted.
#[derive(Clone, Copy, Debug)]
struct Piece {
    word: u64,
    value: u64,
    order: Order,
}

/// A value that a word may have after a crash, and what that says of its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// `None`: no piece persisted; the word is as below this log.
    pub value: Option<u64>,
    pub span: Span,
    /// Group of the piece that persisted last; 0 for none, and for a streamed one.
    pub group: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Unit {
    floor: u32,
    newest: u32,
    last_event: u64,
}

/// The stores of one execution that no fence has made certain yet.
#[derive(Debug)]
pub(crate) struct StoreLog {
    lines: Vec<Vec<Piece>>,
    units: Vec<Unit>,
    lines_of_unit_log2: u32,
    /// Lines stored to since the last [`StoreLog::clear`], each once.
    touched: Vec<u32>,
    listed: Vec<bool>,
}

impl StoreLog {
    /// A log over `lines` lines, in units of `2^lines_of_unit_log2` lines.
    pub fn new(lines: usize, lines_of_unit_log2: u32) -> Self {
        StoreLog {
            lines: vec![Vec::new(); lines],
            units: vec![Unit::default(); (lines >> lines_of_unit_log2) + 1],
            lines_of_unit_log2,
            touched: Vec::new(),
            listed: vec![false; lines],
        }
    }

    pub fn unit_of(&self, line: usize) -> usize {
        line >> self.lines_of_unit_log2
    }

    /// What may have persisted of a unit: from the guaranteed group to the newest.
    pub fn span(&self, unit: usize) -> Span {
        Span { lo: self.units[unit].floor, hi: self.units[unit].newest }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        for line in self.touched.drain(..) {
            let line = line as usize;
            self.lines[line].clear();
            self.listed[line] = false;
            self.units[line >> self.lines_of_unit_log2] = Unit::default();
        }
    }

    /// Appends a store to `word`. Stores of the same `event` (never 0) to a unit share a group.
    pub fn push(&mut self, word: u64, value: u64, event: u64, streamed: bool) {
        let line = (word / 8) as usize;
        if !self.listed[line] {
            self.listed[line] = true;
            self.touched.push(line as u32);
        }
        let order = if streamed {
            Order::Streamed(event)
        } else {
            let unit = &mut self.units[line >> self.lines_of_unit_log2];
            if unit.last_event != event {
                unit.last_event = event;
                unit.newest += 1;
            }
            Order::Grouped(unit.newest)
        };
        self.lines[line].push(Piece { word, value, order });
    }

    /// Whether a store to `word` is uncertain.
    pub fn has(&self, word: u64) -> bool {
        self.lines[(word / 8) as usize].iter().any(|piece| piece.word == word)
    }

    /// Whether a streamed store to `word` is uncertain.
    pub fn has_streamed(&self, word: u64) -> bool {
        self.lines[(word / 8) as usize]
            .iter()
            .any(|piece| piece.word == word && matches!(piece.order, Order::Streamed(_)))
    }

    /// Every group of `unit` up to `group` has persisted: the words this settles go to `settled`.
    pub fn raise(&mut self, unit: usize, group: u32, settled: &mut Vec<(u64, u64)>) {
        if self.units[unit].floor >= group {
            return;
        }
        self.units[unit].floor = group;
        let first = unit << self.lines_of_unit_log2;
        for line in first..(first + (1 << self.lines_of_unit_log2)).min(self.lines.len()) {
            self.settle(line, |order| matches!(order, Order::Grouped(g) if g <= group), settled);
        }
    }

    /// The pieces streamed to `line` in `event` have persisted.
    pub fn fix_streamed(&mut self, line: usize, event: u64, settled: &mut Vec<(u64, u64)>) {
        self.settle(line, |order| order == Order::Streamed(event), settled);
    }

    /// Everything has persisted.
    pub fn raise_all(&mut self, settled: &mut Vec<(u64, u64)>) {
        for at in 0..self.touched.len() {
            let line = self.touched[at] as usize;
            let unit = &mut self.units[line >> self.lines_of_unit_log2];
            unit.floor = unit.newest;
            self.settle(line, |_| true, settled);
        }
    }

    /// Pieces for which `certain` holds have persisted. The last of them on a word makes every
    /// earlier piece on that word unobservable, streamed ones included: it overwrote them.
    fn settle(
        &mut self,
        line: usize,
        certain: impl Fn(Order) -> bool,
        settled: &mut Vec<(u64, u64)>,
    ) {
        let pieces = &mut self.lines[line];
        let mut last = [None; 8];
        for (at, piece) in pieces.iter().enumerate() {
            if certain(piece.order) {
                last[(piece.word % 8) as usize] = Some(at);
            }
        }
        if last.iter().all(Option::is_none) {
            return;
        }
        settled.extend(last.iter().flatten().map(|at| (pieces[*at].word, pieces[*at].value)));
        let mut at = 0;
        pieces.retain(|piece| {
            let kept = last[(piece.word % 8) as usize].is_none_or(|certain| at > certain);
            at += 1;
            kept
        });
    }

    /// The values `word` may have where its unit is within `span`, newest first. Never empty for a
    /// span that earlier reads left possible.
    pub fn candidates(&self, word: u64, span: Span, found: &mut Vec<Candidate>) {
        found.clear();
        let mut offer = |value, group, lo: u32, hi: u32| {
            let span = Span { lo: lo.max(span.lo), hi: hi.min(span.hi) };
            if span.lo <= span.hi {
                found.push(Candidate { value, span, group });
            }
        };
        // Walking back: `hi` keeps every grouped piece after this one from having persisted.
        let mut hi = u32::MAX;
        for piece in self.lines[(word / 8) as usize].iter().rev() {
            if piece.word != word {
                continue;
            }
            match piece.order {
                Order::Grouped(group) => {
                    offer(Some(piece.value), group, group - 1, hi);
                    hi = hi.min(group - 1);
                }
                Order::Streamed(_) => offer(Some(piece.value), 0, 0, hi),
            }
        }
        offer(None, 0, 0, hi);
    }

    /// How many images the uncertain stores allow, as a floating number because it explodes.
    pub fn images(&self) -> f64 {
        let mut sizes: Vec<(usize, Option<u32>)> = Vec::new();
        let mut product = 1.0;
        for line in &self.touched {
            let unit = self.unit_of(*line as usize);
            for piece in &self.lines[*line as usize] {
                match piece.order {
                    Order::Grouped(group) => sizes.push((unit, Some(group))),
                    Order::Streamed(_) => product *= 2.0,
                }
            }
        }
        sizes.sort_unstable();
        for pieces in sizes.chunk_by(|a, b| a.0 == b.0) {
            let subsets = |group: &[(usize, Option<u32>)]| 2f64.powi(group.len() as i32) - 1.0;
            product *= 1.0 + pieces.chunk_by(|a, b| a == b).map(subsets).sum::<f64>();
        }
        product
    }

    /// Mixes what may be left: equal for equal sets of images of these stores.
    pub fn fingerprint(&self, mix: &mut impl FnMut(u64)) {
        let mut lines = self.touched.clone();
        lines.sort_unstable();
        for line in &lines {
            let floor = self.span(self.unit_of(*line as usize)).lo;
            for piece in &self.lines[*line as usize] {
                mix(piece.word);
                mix(piece.value);
                // Groups count from the floor: how often a line was settled before is no matter.
                mix(match piece.order {
                    Order::Grouped(group) => u64::from(group - floor),
                    Order::Streamed(_) => u64::MAX,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(log: &StoreLog, word: u64, span: Span) -> Vec<(Option<u64>, Span)> {
        let mut found = Vec::new();
        log.candidates(word, span, &mut found);
        found.into_iter().map(|c| (c.value, c.span)).collect()
    }

    #[test]
    fn word_stores_of_a_line_persist_in_order() {
        let mut log = StoreLog::new(4, 0);
        log.push(0, 10, 1, false);
        log.push(1, 11, 2, false);
        let all = log.span(0);
        // The later store persisted, so the earlier one did.
        let (value, span) = values(&log, 1, all)[0];
        assert_eq!((value, span), (Some(11), Span { lo: 1, hi: 2 }));
        assert_eq!(values(&log, 0, span), [(Some(10), span)]);
        // It did not: the earlier one may have.
        let (value, span) = values(&log, 1, all)[1];
        assert_eq!((value, span), (None, Span { lo: 0, hi: 1 }));
        assert_eq!(values(&log, 0, span).len(), 2);
        assert_eq!(log.images(), 3.0);
    }

    #[test]
    fn pieces_of_a_write_persist_in_any_order() {
        let mut log = StoreLog::new(4, 0);
        log.push(0, 10, 1, false);
        log.push(1, 11, 1, false);
        for (_, span) in values(&log, 0, log.span(0)) {
            assert_eq!(values(&log, 1, span).len(), 2);
        }
        assert_eq!(log.images(), 4.0);
    }

    #[test]
    fn a_floor_settles_words_and_a_stream_floats() {
        let mut log = StoreLog::new(4, 0);
        log.push(0, 10, 1, false);
        log.push(1, 20, 2, true);
        log.push(0, 11, 3, false);
        let mut settled = Vec::new();
        log.raise(0, 1, &mut settled);
        assert_eq!(settled, [(0, 10)]);
        assert_eq!(values(&log, 1, log.span(0)).len(), 2);
        settled.clear();
        log.fix_streamed(0, 2, &mut settled);
        assert_eq!(settled, [(1, 20)]);
        assert!(!log.has(1) && log.has(0));
        settled.clear();
        log.raise_all(&mut settled);
        assert_eq!(settled, [(0, 11)]);
    }
}
