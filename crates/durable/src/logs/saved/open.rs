//! Finding a saved index, and what it knows of the logs that are there.

use super::frames::{HEAD_FRAMES, Reading};
use super::{HEAD_BYTES, MAGIC, PARAMETERS, PART_BYTES, ROW_BYTES, Row, Saved, VERSION};
use crate::error::Result;
use crate::logs::segment::{FoundHeader, SegmentHeader};
use crate::logs::{Logs, SEGMENT_BYTES, SEGMENT_HEADER_BYTES, State, start_of};
use crate::superblock::{Checkpoint, SavedAt, get_u32, get_u64};
use crate::values::place::segment_of;
use std::sync::atomic::{AtomicUsize, Ordering};
use terrace_memory::Memory;

/// A log is read whole in the time that so many of its items take, one by one.
const READS_OF_A_LOG: u64 = 300;

/// The index that the checkpoint record names.
#[derive(Debug)]
pub struct SavedIndex {
    at: SavedAt,
    next_sequence: u64,
    parameters: [u64; PARAMETERS],
    /// Of each part, the first frame and the bytes; without the rows.
    parts: Vec<(u64, u64)>,
    /// Its segments; the last is that of the head.
    segments: Vec<u32>,
    /// By segment, what is known of the log there that is not read.
    known: Vec<Option<Row>>,
    /// By segment, the header that was found.
    pub(in crate::logs) headers: Vec<FoundHeader>,
}

/// A part of it, read word by word.
pub struct Part<'a, M: Memory>(Reading<'a, M>);

impl<M: Memory> Part<'_, M> {
    /// The next words; `false` if they are damaged, or there are no more.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn next(&mut self, words: &mut [u64]) -> Result<bool> {
        let mut bytes = [0; 512];
        for some in words.chunks_mut(bytes.len() / 8) {
            let bytes = &mut bytes[..some.len() * 8];
            if !self.0.next(bytes)? {
                return Ok(false);
            }
            for (word, bytes) in some.iter_mut().zip(bytes.chunks_exact(8)) {
                *word = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
            }
        }
        Ok(true)
    }

    /// Whether all of it was read.
    pub fn is_over(&self) -> bool {
        self.0.left() == 0
    }
}

impl SavedIndex {
    /// What it was [published](super::Saving::publish) with.
    pub fn parameters(&self) -> &[u64; PARAMETERS] {
        &self.parameters
    }

    /// Number of its parts.
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Whether what lies at `location` is known, and not read again.
    #[inline(always)]
    pub fn knows(&self, location: u64) -> bool {
        self.known.get(segment_of(location)).is_some_and(Option::is_some)
    }

    pub(in crate::logs) fn known_logs(&self) -> u64 {
        self.known.iter().flatten().count() as u64
    }

    pub(in crate::logs) fn is_of(&self, segment: u32) -> bool {
        self.segments.contains(&segment)
    }

    /// Whether each segment that it names is there, once, and says that it is a part of a saved index.
    fn has_its_segments(&self) -> bool {
        let mut named = self.segments.clone();
        named.sort_unstable();
        named.dedup();
        let is_one = |segment: &u32| {
            let header = self.headers.get(*segment as usize);
            matches!(header, Some(FoundHeader::Intact(header)) if header.is_saved)
        };
        named.len() == self.segments.len() && named.iter().all(is_one)
    }
}

impl<M: Memory> Logs<M> {
    /// The index that the checkpoint record names; none if it names none. Or why it cannot be used.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn find_saved(&self) -> Result<std::result::Result<Option<SavedIndex>, String>> {
        let checkpoint = self.lock_checkpoint().clone();
        let at = checkpoint.saved;
        if at.segment == 0 || self.head_damage.is_some() {
            return Ok(Ok(None));
        }
        let (count, damage) = self.segments_in_file(&checkpoint)?;
        if let Some(damage) = damage.first() {
            return Ok(Err(damage.what.clone()));
        }
        if at.segment >= count
            || !(HEAD_BYTES..=SEGMENT_BYTES as usize).contains(&(at.bytes as usize))
        {
            return Ok(Err("its head lies behind the file, or is none".into()));
        }
        let whole = [at.segment];
        let mut head = vec![0; at.bytes as usize];
        let mut reading =
            Reading::new(self.medium(), &whole, (at.salt, HEAD_FRAMES), 0, at.bytes.into());
        match reading.next(&mut head) {
            Ok(true) => {}
            Ok(false) => return Ok(Err("its head does not match its checksum".into())),
            // What it was saved for is read instead.
            Err(error) => return Ok(Err(format!("its head: {error}"))),
        }
        let mut found = match SavedIndex::decode(at, &head, &checkpoint) {
            Ok(found) => found,
            Err(why) => return Ok(Err(why)),
        };
        let rows = match self.read_rows(&mut found, &head) {
            Ok(Some(rows)) => rows,
            Ok(None) => {
                return Ok(Err("what it says of logs does not match its checksum".into()));
            }
            Err(error) => return Ok(Err(format!("what it says of logs: {error}"))),
        };
        found.headers = self.read_headers(count)?;
        if !found.has_its_segments() {
            return Ok(Err("a segment that it names is not its own".into()));
        }
        found.known = vec![None; count as usize];
        for row in rows {
            let header = found.headers.get(row.segment as usize);
            if header.is_some_and(|header| row.is_of(header, checkpoint.generation)) {
                found.known[row.segment as usize] = Some(row);
            }
        }
        Ok(Ok(Some(found)))
    }

    /// The rows, which are the last part; it is none of the others from here on.
    fn read_rows(&self, found: &mut SavedIndex, head: &[u8]) -> Result<Option<Vec<Row>>> {
        let has_rows = get_u32(head, 12) != 0;
        let Some((first, bytes)) = has_rows.then(|| found.parts.pop()).flatten() else {
            return Ok(Some(Vec::new()));
        };
        let kind = (found.at.salt, 0);
        let mut reading = Reading::new(self.medium(), &found.segments, kind, first as usize, bytes);
        let mut rows = Vec::new();
        let mut row = [0; ROW_BYTES];
        while reading.left() > 0 {
            if !reading.next(&mut row)? {
                return Ok(None);
            }
            rows.push(Row::decode(&row));
        }
        Ok(Some(rows))
    }

    /// Part `number` of a saved index.
    pub fn read_part<'a>(&'a self, saved: &'a SavedIndex, number: usize) -> Part<'a, M> {
        let (first, bytes) = saved.parts[number];
        let kind = (saved.at.salt, 0);
        Part(Reading::new(self.medium(), &saved.segments, kind, first as usize, bytes))
    }

    /// The checkpoint record names no saved index any more, durably on return.
    pub(in crate::logs) fn forget_saved(&self) -> Result<()> {
        let mut checkpoint = self.lock_checkpoint();
        if checkpoint.saved.segment == 0 {
            return Ok(());
        }
        let saved = SavedAt::default();
        let next = Checkpoint { number: checkpoint.number + 1, saved, ..checkpoint.clone() };
        self.stop_on_error(self.store_checkpoint(&next))?;
        *checkpoint = next;
        Ok(())
    }

    /// A saved index that was loaded is the one in use.
    pub(in crate::logs) fn uses_saved(&self, saved: &SavedIndex) {
        let mut known: Vec<u64> = saved.known.iter().flatten().map(|row| row.sequence).collect();
        known.sort_unstable();
        let segments = saved.segments.clone();
        *self.saved.lock() = Saved { segments, known, next_sequence: saved.next_sequence };
        self.saved_segments.store(saved.segments.len(), Ordering::Relaxed);
    }

    /// Before the other logs are read, whose items are compared with those of known ones: these are away, as if they
    /// had been read and had left.
    pub(in crate::logs) fn takes_known(&self, saved: &SavedIndex) {
        for row in saved.known.iter().flatten() {
            let state = &self.segments[row.segment as usize];
            state.sequence.store(row.sequence, Ordering::Relaxed);
            state.salt.store(row.salt, Ordering::Relaxed);
            state.end.store(row.end, Ordering::Relaxed);
            state.deleted.store(row.deleted, Ordering::Relaxed);
            state.half_expires_at_ms.store(row.half_expires_at_ms, Ordering::Relaxed);
            self.supersede(start_of(row.segment), row.dead as usize);
            self.starts_away(row.segment);
        }
    }

    /// Whether so much was written since that more of the known logs' items are asked for than it takes to read all
    /// of them, one log after the other; and there is memory for all.
    fn is_all_to_be_read(&self, saved: &SavedIndex, item_bytes: usize) -> bool {
        let known = saved.known_logs();
        let unknown = saved.headers.iter().zip(&saved.known).filter(|(_, known)| known.is_none());
        let bytes_of = |header: &FoundHeader| match header {
            FoundHeader::Intact(header) if header.is_saved => 0,
            FoundHeader::Intact(header) if header.sealed_bytes > 0 => header.sealed_bytes,
            FoundHeader::Intact(_) => SEGMENT_BYTES,
            _ => 0,
        };
        let log_bytes: u64 = unknown.map(|(header, _)| u64::from(bytes_of(header))).sum();
        let redo_bytes = match &*self.left.lock() {
            Some(_) => self.redo_log().map_or(0, |(_, bytes)| bytes),
            None => 0,
        };
        let reads = (log_bytes + redo_bytes) / item_bytes.max(1) as u64;
        reads > known * READS_OF_A_LOG && self.may_come_back(known)
    }

    /// Reads known logs back into memory, side by side, where that is worth it. One that cannot be read, or is damaged,
    /// stays away: whoever asks for its items is told.
    pub(in crate::logs) fn reads_known(
        &self,
        saved: &SavedIndex,
        item_bytes: usize,
        threads: usize,
    ) {
        if !self.is_all_to_be_read(saved, item_bytes) {
            return;
        }
        let next = AtomicUsize::new(0);
        let known: Vec<u32> = saved.known.iter().flatten().map(|row| row.segment).collect();
        let worker = || {
            while let Some(segment) = known.get(next.fetch_add(1, Ordering::Relaxed)) {
                let row = &self.segments[*segment as usize];
                row.set_state(State::Collecting);
                let _stays = self.bring_back(*segment);
                row.set_state(State::Sealed);
            }
        };
        std::thread::scope(|scope| {
            (1..threads).for_each(|_| _ = scope.spawn(worker));
            worker();
        });
        // Counted at the end of recovery, like all that is in memory then.
        let back = known.len() - self.away_logs();
        self.away.kept.fetch_add(back, Ordering::Relaxed);
        self.budget.give(back as u64 * u64::from(SEGMENT_BYTES));
    }
}

impl SavedIndex {
    fn decode(
        at: SavedAt,
        head: &[u8],
        checkpoint: &Checkpoint,
    ) -> std::result::Result<SavedIndex, String> {
        let [version, _, parts, segments] =
            [8, 12, 16, 20].map(|place| get_u32(head, place) as usize);
        if get_u64(head, 0) != MAGIC {
            return Err("its head is none".into());
        }
        if version != VERSION as usize {
            return Err(format!("it is of version {version}, and {VERSION} is known"));
        }
        if get_u64(head, 32) != checkpoint.generation {
            return Err("it is of values that were cleared".into());
        }
        let segments_at = HEAD_BYTES + PART_BYTES * parts;
        if head.len() != segments_at + 4 * segments {
            return Err("its head has another length".into());
        }
        let part = |number: usize| {
            let at = HEAD_BYTES + PART_BYTES * number;
            (get_u64(head, at), get_u64(head, at + 8))
        };
        let segment = |number: usize| get_u32(head, segments_at + 4 * number);
        Ok(SavedIndex {
            at,
            next_sequence: get_u64(head, 24),
            parameters: std::array::from_fn(|number| get_u64(head, 40 + 8 * number)),
            parts: (0..parts).map(part).collect(),
            segments: (0..segments).map(segment).chain([at.segment]).collect(),
            known: Vec::new(),
            headers: Vec::new(),
        })
    }
}

impl Row {
    fn decode(bytes: &[u8]) -> Row {
        let [segment, end, salt, dead, deleted] = [0, 4, 8, 12, 16].map(|at| get_u32(bytes, at));
        let (sequence, half_expires_at_ms) = (get_u64(bytes, 24), get_u64(bytes, 32));
        Row { segment, end, sequence, salt, dead, deleted, half_expires_at_ms }
    }

    /// Whether the segment with this header is the log, sealed where it was: one whose seal is lost is read.
    fn is_of(&self, header: &FoundHeader, generation: u64) -> bool {
        let FoundHeader::Intact(header) = header else { return false };
        let SegmentHeader { sequence, salt, sealed_bytes, is_saved, .. } = *header;
        let own = (self.sequence, self.salt, self.end);
        let is_log = !is_saved && (SEGMENT_HEADER_BYTES..=SEGMENT_BYTES).contains(&self.end);
        is_log && (sequence, salt, sealed_bytes) == own && header.generation == generation
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::superblock::{Rule, put_u32, put_u64};

    fn checkpoint() -> Checkpoint {
        let saved = SavedAt { segment: 2, salt: 3, bytes: 200 };
        Checkpoint {
            number: 1,
            rule: Rule::All,
            generation: 5,
            next_sequence: 9,
            segments: 4,
            open: Vec::new(),
            index: 0,
            saved,
            redo: 0,
        }
    }

    /// As after a flipped bit that a checksum did not notice, or by a hand.
    #[test]
    fn a_head_of_any_numbers_is_refused_or_names_what_it_has_room_for() {
        let checkpoint = checkpoint();
        let mut decoded = 0;
        for bytes in HEAD_BYTES..HEAD_BYTES + 80 {
            for numbers in
                [[0, 0], [1, 1], [2, 4], [1, 5], [u32::MAX, 0], [0, u32::MAX], [u32::MAX; 2]]
            {
                let mut head = vec![0xff; bytes];
                put_u64(&mut head, 0, MAGIC);
                put_u32(&mut head, 8, VERSION);
                put_u32(&mut head, 16, numbers[0]);
                put_u32(&mut head, 20, numbers[1]);
                put_u64(&mut head, 32, checkpoint.generation);
                let Ok(found) = SavedIndex::decode(checkpoint.saved, &head, &checkpoint) else {
                    continue;
                };
                decoded += 1;
                let [parts, segments] = numbers.map(|number| number as usize);
                assert_eq!((found.parts.len(), found.segments.len()), (parts, segments + 1));
                assert!(!found.has_its_segments(), "no header was read");
            }
        }
        assert!(decoded >= 4, "{decoded} are heads");
    }

    #[test]
    fn a_row_is_of_no_log_that_ends_behind_its_segment() {
        let header = SegmentHeader {
            writer: 1,
            sequence: 7,
            salt: 11,
            generation: 5,
            sealed_bytes: 1000,
            format: 2,
            is_in_order: false,
            is_saved: false,
        };
        let row = Row {
            segment: 1,
            end: 1000,
            sequence: 7,
            salt: 11,
            dead: 0,
            deleted: 0,
            half_expires_at_ms: 0,
        };
        let is_of = |row: &Row, header: SegmentHeader| row.is_of(&FoundHeader::Intact(header), 5);
        assert!(is_of(&row, header));
        for end in [0, SEGMENT_HEADER_BYTES - 1, SEGMENT_BYTES + 1, u32::MAX] {
            assert!(!is_of(&Row { end, ..row }, SegmentHeader { sealed_bytes: end, ..header }));
        }
        assert!(!is_of(&row, SegmentHeader { sequence: 8, ..header }), "another log");
        assert!(!is_of(&row, SegmentHeader { generation: 6, ..header }), "one of after a clear");
        assert!(!is_of(&row, SegmentHeader { is_saved: true, ..header }));
        assert!(!is_of(&row, SegmentHeader { sealed_bytes: 0, ..header }), "its seal is lost");
    }
}
