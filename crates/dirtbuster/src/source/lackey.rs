//! Valgrind's memory trace: the lines that `--tool=lackey --trace-mem=yes` prints.
//!
//! ```text
//! I  0401ab70,3      an instruction of 3 bytes
//!  L 1fff000758,8    it loads
//!  S 1fff000750,8    it stores
//!  M 1fff000750,8    it loads and stores
//! ```
//!
//! Lackey shows neither fences, nor calls, nor threads. The first two follow from the instruction itself, where its
//! file is known. Threads are one stream: Valgrind runs one at a time and does not say which.

use super::text::Reader;
use crate::analysis::ByAddress;
use crate::binary::Instruction;
use crate::event::{Event, Kind, Sink};

/// Who knows the instruction at an address.
pub(super) trait Code {
    fn instruction(&mut self, ip: u64, sink: &mut dyn Sink) -> Option<Instruction>;
}

/// Reads lines of a lackey trace.
pub(super) struct Lackey<C> {
    code: C,
    known: ByAddress<u64, Option<Instruction>>,
    count: u64,
    ip: u64,
    at: Option<Instruction>,
}

impl<C: Code> Lackey<C> {
    pub(super) fn new(code: C) -> Lackey<C> {
        Lackey { code, known: ByAddress::default(), count: 0, ip: 0, at: None }
    }

    fn event(&self, kind: Kind, address: u64, size: u32) -> Event {
        Event { count: self.count, kind, ip: self.ip, address, size, thread: 0 }
    }

    fn instruction(&mut self, ip: u64, sink: &mut dyn Sink) -> bool {
        let before = self.at;
        let next = self.ip.wrapping_add(before.map_or(0, |at| u64::from(at.bytes)));
        // A call that Valgrind leaves out of the trace goes to the next instruction; it is none.
        if before.is_some_and(|at| at.is_call) && ip != next {
            let call = self.event(Kind::Call, ip, 8);
            if !sink.take(&call) {
                return false;
            }
        }
        if before.is_some_and(|at| at.is_return) && !sink.take(&self.event(Kind::Return, 0, 8)) {
            return false;
        }
        self.count += 1;
        self.ip = ip;
        self.at = match self.known.get(&ip) {
            Some(known) => *known,
            None => {
                let found = self.code.instruction(ip, sink);
                self.known.insert(ip, found);
                found
            }
        };
        match self.at.is_some_and(|at| at.is_fence) {
            true => sink.take(&self.event(Kind::Fence, 0, 0)),
            false => true,
        }
    }
}

impl<C: Code> Reader for Lackey<C> {
    fn line(&mut self, line: &[u8], sink: &mut dyn Sink) -> bool {
        let [kind @ (b'I' | b' '), access, b' ', rest @ ..] = line else { return true };
        let Some((address, size)) = numbers(rest) else { return true };
        let write = if self.at.is_some_and(|at| at.spills) { Kind::Spill } else { Kind::Write };
        match (kind, access) {
            (b'I', b' ') => self.instruction(address, sink),
            (b' ', b'L') => sink.take(&self.event(Kind::Read, address, size)),
            (b' ', b'S') => sink.take(&self.event(write, address, size)),
            (b' ', b'M') => {
                sink.take(&self.event(Kind::Read, address, size))
                    && sink.take(&self.event(write, address, size))
            }
            _ => true,
        }
    }
}

/// `1fff000758,8`: hexadecimal, then decimal.
fn numbers(text: &[u8]) -> Option<(u64, u32)> {
    let text = text.trim_ascii_start();
    let mut address = 0u64;
    let mut at = 0;
    while let Some(digit) = text.get(at).and_then(|b| char::from(*b).to_digit(16)) {
        address = address.checked_mul(16)?.checked_add(u64::from(digit))?;
        at += 1;
    }
    if at == 0 || text.get(at) != Some(&b',') {
        return None;
    }
    let digits = text[at + 1..].trim_ascii_end();
    let size = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some((address, size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binary::decode;
    use crate::event::Image;

    #[derive(Default)]
    struct All(Vec<Event>);

    impl Sink for All {
        fn take(&mut self, event: &Event) -> bool {
            self.0.push(*event);
            true
        }
        fn image(&mut self, _: &Image) {}
    }

    struct Fixed;

    impl Code for Fixed {
        fn instruction(&mut self, ip: u64, _: &mut dyn Sink) -> Option<Instruction> {
            match ip {
                0x1000 => decode(&[0xe8, 0, 0, 0, 0], ip),
                0x2000 => decode(&[0xf0, 0x0f, 0xb1, 0x0f], ip),
                0x2004 => decode(&[0xc3], ip),
                _ => None,
            }
        }
    }

    #[test]
    fn instructions_add_fences_calls_and_returns() {
        let text = "==7== Lackey\nI  1000,5\n S 1fff0,8\nI  2000,4\n M 5000,4\nI  2004,1\n L 1fff0,8\nI  1005,3\n S 6000,8\n";
        let mut all = All::default();
        let mut reader = Lackey::new(Fixed);
        for line in text.lines() {
            assert!(reader.line(line.as_bytes(), &mut all));
        }
        let found: Vec<(Kind, u64, u64)> =
            all.0.iter().map(|e| (e.kind, e.count, e.address)).collect();
        let expected = [
            (Kind::Spill, 1, 0x1fff0),
            (Kind::Call, 1, 0x2000),
            (Kind::Fence, 2, 0),
            (Kind::Read, 2, 0x5000),
            (Kind::Write, 2, 0x5000),
            (Kind::Read, 3, 0x1fff0),
            (Kind::Return, 3, 0),
            (Kind::Write, 4, 0x6000),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_no_line_of_a_trace_is_passed_over() {
        let mut all = All::default();
        let mut reader = Lackey::new(Fixed);
        for line in [
            "",
            "I",
            "I  zz,3",
            " S 12",
            " S ,8",
            " S fffffffffffffffff,8",
            " S 10,99999999999",
            "==1==   x",
        ] {
            assert!(reader.line(line.as_bytes(), &mut all));
        }
        assert!(all.0.is_empty());
    }
}
