//! Where code lies in a process that runs: `/proc/PID/maps`.

use super::lackey::Code;
use crate::analysis::Places;
use crate::binary::{Instruction, Symbols};
use crate::event::{Image, Sink};
use std::path::PathBuf;

/// The files mapped by a process, as the kernel lists them.
pub(super) fn parse(maps: &str) -> Vec<Image> {
    maps.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<Image> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let _access = words.next()?;
    let offset = words.next()?;
    let (_device, _inode) = (words.next()?, words.next()?);
    let path = words.next()?.trim_start();
    let number = |text| u64::from_str_radix(text, 16).ok();
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    path.starts_with('/').then_some(())?;
    Some(Image {
        path: PathBuf::from(path),
        start: number(start)?,
        end: number(end)?,
        offset: number(offset)?,
    })
}

/// The code of a process that is being traced; files are looked up when an address is new.
pub(super) struct Process {
    pid: u32,
    symbols: Symbols,
    /// Addresses that no file had when the process was last asked.
    is_unknown: crate::analysis::ByAddress<u64, ()>,
}

impl Process {
    pub(super) fn new(pid: u32) -> Process {
        Process { pid, symbols: Symbols::default(), is_unknown: Default::default() }
    }
}

impl Code for Process {
    fn instruction(&mut self, ip: u64, sink: &mut dyn Sink) -> Option<Instruction> {
        let page = ip / 4096;
        if !self.symbols.knows(ip) && !self.is_unknown.contains_key(&page) {
            let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid));
            let images = maps.map(|maps| parse(&maps)).unwrap_or_default();
            for image in images {
                self.symbols.image(&image);
                sink.image(&image);
            }
            if !self.symbols.knows(ip) {
                self.is_unknown.insert(page, ());
            }
        }
        self.symbols.instruction(ip)
    }
}

/// No process: a trace from a file that names no images.
pub(super) struct Nowhere;

impl Code for Nowhere {
    fn instruction(&mut self, _: u64, _: &mut dyn Sink) -> Option<Instruction> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_among_the_mappings() {
        let maps = "\
55d0c0a00000-55d0c0a02000 r-xp 00002000 08:01 1312   /usr/bin/a program
7ffe1000-7ffe2000 rw-p 00000000 00:00 0   [stack]
7f0000000000-7f0000001000 rw-p 00000000 00:00 0 
not a line
";
        let found = parse(maps);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].path, PathBuf::from("/usr/bin/a program"));
        assert_eq!((found[0].start, found[0].offset), (0x55d0c0a00000, 0x2000));
    }
}
