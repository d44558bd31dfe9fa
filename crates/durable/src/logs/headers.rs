//! The headers of all segments: what recovery looks at before it reads any log.

use super::segment::{FORMAT, FoundHeader, KNOWN_FLAGS, SegmentHeader};
use super::{Logs, SEGMENT_BYTES, SEGMENT_HEADER_BYTES, start_of};
use crate::error::{Error, Result};
use crate::medium::{BLOCK_BYTES, Blocks};
use crate::superblock::Checkpoint;
use crate::values::Damage;
use terrace_memory::Memory;

/// Headers that are read together.
const HEADERS_TOGETHER: usize = 1024;

impl<M: Memory> Logs<M> {
    /// Segments to scan, counting the head, and whether the file is as long as it was.
    pub(super) fn segments_in_file(&self, checkpoint: &Checkpoint) -> Result<(u32, Vec<Damage>)> {
        let file_bytes = self.medium.file_bytes()?;
        let segment_bytes = u64::from(SEGMENT_BYTES);
        // A mirrored file may end inside its last segment; a mapped one is only touched where it is.
        let present = match self.medium.is_byte_addressable() {
            true => file_bytes / segment_bytes,
            false => file_bytes.div_ceil(segment_bytes),
        };
        let present = self.check_room(present.max(1))?;
        let promised = u64::from(checkpoint.segments) * segment_bytes;
        let mut damage = Vec::new();
        if checkpoint.segments > 1 && file_bytes < promised {
            let what = format!("the file ends at {file_bytes}, it held {promised} bytes");
            damage.push(Damage { offset: file_bytes, bytes: promised - file_bytes, what });
        }
        Ok((present as u32, damage))
    }

    /// The newest generation among the segments, when no checkpoint tells.
    pub(super) fn newest_generation(&self, count: u32) -> Result<u64> {
        let mut newest = 0;
        for segment in 1..count {
            if let FoundHeader::Intact(header) = self.read_header(segment)? {
                newest = newest.max(header.generation);
            }
        }
        Ok(newest)
    }

    /// The headers of all segments, with one for the head of the file; of a mirrored file many are read together.
    pub(super) fn read_headers(&self, count: u32) -> Result<Vec<FoundHeader>> {
        let mut headers = vec![FoundHeader::Free; count as usize];
        for first in (1..count).step_by(HEADERS_TOGETHER) {
            let some = first..(first + HEADERS_TOGETHER as u32).min(count);
            let pieces: Vec<_> =
                some.map(|segment| (start_of(segment), BLOCK_BYTES as usize)).collect();
            let mut failed = None;
            self.medium.read_many(&pieces, &mut |number, found| match found {
                Ok(block) => headers[first as usize + number] = SegmentHeader::decode(block),
                Err(error) => failed = Some(error),
            });
            failed.map_or(Ok(()), Err)?;
        }
        Ok(headers)
    }

    pub(super) fn read_header(&self, segment: u32) -> Result<FoundHeader> {
        let start = start_of(segment);
        if !self.medium.is_byte_addressable() {
            // Not into its own memory, of which the system would give it much more.
            return Blocks::with(|blocks| {
                let head = blocks.of(BLOCK_BYTES as usize);
                self.medium.read_apart(start, head)?;
                Ok(SegmentHeader::decode(head))
            });
        }
        self.medium.commit(start, u64::from(SEGMENT_BYTES))?;
        // SAFETY: before recovery is over nobody but the one scanner of a segment uses its memory; not written while
        // borrowed.
        let header = unsafe { self.medium.memory().bytes(start, SEGMENT_HEADER_BYTES.into()) };
        Ok(SegmentHeader::decode(header))
    }

    /// Refuses a file with more segments than room was made for.
    fn check_room(&self, segments: u64) -> Result<u64> {
        let most = self.segments.len();
        if segments <= most as u64 {
            return Ok(segments);
        }
        let what = format!("the file holds {segments} segments, room was made for {most}");
        Err(Error::Damaged { path: self.medium.path().into(), offset: 0, what })
    }

    /// Refuses a file with segments that a later version made. Looks at it alone, and at memory that is the file.
    ///
    /// # Errors
    /// [`Error::Newer`]; [`Error::Damaged`] if the file is longer than there is room for.
    pub fn check_known(&self) -> Result<()> {
        let count = self.check_room(self.medium.file_bytes()? / u64::from(SEGMENT_BYTES))?;
        for segment in 1..count as u32 {
            if let Some(error) = self.newer(self.read_header(segment)?) {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Why a segment with this header is not read, if a later version made it.
    pub(super) fn newer(&self, header: FoundHeader) -> Option<Error> {
        let (what, found, known) = match header {
            FoundHeader::NewerFormat(found) => ("segment of format", found.into(), FORMAT.into()),
            FoundHeader::NewerFlags(found) => {
                ("segment with flags", found.into(), KNOWN_FLAGS.into())
            }
            FoundHeader::Free | FoundHeader::Damaged | FoundHeader::Intact(_) => return None,
        };
        Some(Error::Newer { path: self.medium.path().into(), what, found, known })
    }
}
