//! DynamoRIO's traces as its tool `view` prints them.
//!
//! ```text
//!   47742   37769:   2765543 ifetch   6 byte(s) @ 0x0000000000404a78 0f 84 5b 01 00 00    jz ...
//!   47744   37770:   2765543 write    8 byte(s) @ 0x00007f8881e37a70 by PC 0x0000000000402680
//! ```
//! Older versions write `T2765543` and one number before the colon. The encodings of the instructions are in it, so
//! fences and calls are known without files; functions are not: it names no images.

use super::text::Reader;
use crate::binary::{Instruction, decode};
use crate::event::{Event, Kind, Sink};
use std::collections::HashMap;

#[derive(Default)]
struct Thread {
    number: u32,
    count: u64,
    ip: u64,
    at: Option<Instruction>,
}

/// Reads lines of `view`.
#[derive(Default)]
pub(super) struct DrMemTrace {
    threads: HashMap<u64, Thread>,
}

impl Reader for DrMemTrace {
    fn line(&mut self, line: &[u8], sink: &mut dyn Sink) -> bool {
        let Ok(text) = std::str::from_utf8(line) else { return true };
        let Some(record) = parse(text) else { return true };
        let next = self.threads.len() as u32;
        let thread = self
            .threads
            .entry(record.thread)
            .or_insert_with(|| Thread { number: next, ..Thread::default() });
        let number = thread.number;
        let event = |thread: &Thread, kind, address, size| Event {
            count: thread.count,
            kind,
            ip: thread.ip,
            address,
            size,
            thread: number,
        };
        match record.what {
            "ifetch" => {
                let before = thread.at.take();
                let next = thread.ip.wrapping_add(before.map_or(0, |at| u64::from(at.bytes)));
                let called = before.is_some_and(|at| at.is_call) && record.address != next;
                let returned = before.is_some_and(|at| at.is_return);
                let of_before = event(thread, Kind::Call, record.address, 8);
                thread.count += 1;
                thread.ip = record.address;
                thread.at = decode(&record.bytes, record.address);
                let is_fence = thread.at.is_some_and(|at| at.is_fence);
                let fence = event(thread, Kind::Fence, 0, 0);
                (!called || sink.take(&of_before))
                    && (!returned
                        || sink.take(&Event { kind: Kind::Return, address: 0, ..of_before }))
                    && (!is_fence || sink.take(&fence))
            }
            "read" => sink.take(&event(thread, Kind::Read, record.address, record.size)),
            "write" => {
                let spills = thread.at.is_some_and(|at| at.spills);
                let kind = if spills { Kind::Spill } else { Kind::Write };
                sink.take(&event(thread, kind, record.address, record.size))
            }
            _ => true,
        }
    }
}

struct Record<'a> {
    thread: u64,
    what: &'a str,
    size: u32,
    address: u64,
    /// The encoding of an instruction.
    bytes: Vec<u8>,
}

fn parse(line: &str) -> Option<Record<'_>> {
    let (_, rest) = line.split_once(':')?;
    let mut words = rest.split_whitespace();
    let thread = words.next()?;
    let thread = thread.strip_prefix('T').unwrap_or(thread).parse().ok()?;
    let what = words.next()?;
    let size: u32 = words.next()?.parse().ok()?;
    (words.next()? == "byte(s)" && words.next()? == "@").then_some(())?;
    let address = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    let byte = |word: &str| (word.len() == 2).then(|| u8::from_str_radix(word, 16).ok()).flatten();
    let bytes = words.take(size.min(16) as usize).map_while(byte).collect();
    Some(Record { thread, what, size, address, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Image;

    struct All(Vec<(u32, Kind, u64, u64)>);

    impl Sink for All {
        fn take(&mut self, e: &Event) -> bool {
            self.0.push((e.thread, e.kind, e.count, e.address));
            true
        }
        fn image(&mut self, _: &Image) {}
    }

    #[test]
    fn both_forms_of_the_view_are_read() {
        let text = "
Output format:
<--record#-> <--instr#->: <---tid---> <record details>
           1           0:     2765542 <marker: version 5>
       47742           1:     2765543 ifetch       3 byte(s) @ 0x0000000000402680 f3 48 a5             rep movsq
       47743           1:     2765543 read         8 byte(s) @ 0x00007f8881e37c70 by PC 0x0000000000402680
       47744           1:     2765543 write        8 byte(s) @ 0x00007f8881e37a70 by PC 0x0000000000402680
   173369: T1774669 ifetch       4 byte(s) @ 0x0000000000402690 f0 0f b1 0f          lock cmpxchg
   173370: T1774669 write        4 byte(s) @ 0x0000000000001000 by PC 0x0000000000402690
";
        let mut all = All(Vec::new());
        let mut reader = DrMemTrace::default();
        assert!(text.lines().all(|line| reader.line(line.as_bytes(), &mut all)));
        let expected = [
            (0, Kind::Read, 1, 0x7f8881e37c70),
            (0, Kind::Write, 1, 0x7f8881e37a70),
            (1, Kind::Fence, 1, 0),
            (1, Kind::Write, 1, 0x1000),
        ];
        // A thread is numbered when it first accesses something.
        assert_eq!(all.0, expected);
    }
}
