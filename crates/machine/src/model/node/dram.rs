//! A channel of DRAM: open rows are quick, others must be opened first.
//!
//! Reads and writes share the wires, each line for as long as a read of it takes. That writes alone
//! reach about half of what reads do is a limit of its own beside that one: a load that does both
//! reaches more than writes alone do. Behind a serial link, which has wires for each way, writes wait for writes alone.

use super::super::calendar::Calendar;
use super::super::preset::{Ablation, NodeSpec};
use super::super::time::{Ps, from_ns, of_bytes};
use super::{Served, room};

/// Rows open at a time: 16 banks in each of two ranks, the common DDR4 and DDR5 module.
const ROWS: usize = 32;
/// Bytes of a row.
pub(in crate::model) const ROW_BYTES: u64 = 8192;

#[derive(Clone, Debug)]
pub(super) struct Dram {
    wires: Calendar,
    writer: Calendar,
    both_ways: bool,
    /// Open rows, the latest first.
    rows: [u64; ROWS],
    row_lines: u64,
    /// Work of a line: read or write, in an open row or another.
    read: [Ps; 2],
    write: [Ps; 2],
    latency: [Ps; 2],
    queue: Ps,
    queue_lines: u64,
}

impl Dram {
    pub fn new(spec: &NodeSpec, line_bytes: u64, without: Ablation) -> Self {
        let work = |gb_s: f64| of_bytes(line_bytes, gb_s / spec.channels as f64);
        let read = [spec.read_gb_s, spec.random_read_gb_s.unwrap_or(spec.read_gb_s)].map(work);
        let write = [spec.write_gb_s, spec.random_write_gb_s.unwrap_or(spec.write_gb_s)].map(work);
        Dram {
            wires: Calendar::new(1, read[1], !without.queueing),
            writer: Calendar::new(1, write[1], !without.queueing),
            both_ways: spec.both_ways,
            rows: [u64::MAX; ROWS],
            row_lines: ROW_BYTES / line_bytes,
            read,
            write,
            latency: [from_ns(spec.read_ns), from_ns(spec.random_read_ns)],
            queue: spec.write_queue * write[0],
            queue_lines: spec.write_queue,
        }
    }

    pub fn read(&mut self, line: u64, at: Ps) -> Ps {
        let opened = self.open(line);
        self.wires.reserve(at, self.read[opened]) + self.latency[opened]
    }

    pub fn write(&mut self, line: u64, at: Ps) -> Served {
        let opened = self.open(line);
        let wires = if self.both_ways { at } else { self.wires.reserve(at, self.read[opened]) };
        Served { begin: self.writer.reserve(at, self.write[opened]).max(wires), queue: self.queue }
    }

    /// Lines that the write queue has room for.
    pub fn room(&mut self, at: Ps) -> usize {
        room(self.queue_lines, self.queue, self.writer.wait(at))
    }

    /// 0 if the line's row is open, 1 if it had to be opened.
    fn open(&mut self, line: u64) -> usize {
        let row = line / self.row_lines;
        match self.rows.iter().position(|open| *open == row) {
            Some(place) => {
                self.rows[..=place].rotate_right(1);
                0
            }
            None => {
                self.rows.rotate_right(1);
                self.rows[0] = row;
                1
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::preset::Preset;
    use super::*;

    #[test]
    fn only_over_two_ways_reads_do_not_wait_for_writes() {
        let waits = |both_ways| {
            let preset = Preset::named("cxl").expect("a preset");
            let spec = preset.node.iter().find(|node| node.name == "cxl").expect("its node");
            let spec = NodeSpec { both_ways, ..spec.clone() };
            let mut dram = Dram::new(&spec, 64, Ablation::default());
            let alone = dram.read(0, 0);
            (0..1000).for_each(|line| {
                dram.write(line, 0);
            });
            dram.read(1, 0) > 2 * alone
        };
        assert_eq!([false, true].map(waits), [true, false]);
    }
}
