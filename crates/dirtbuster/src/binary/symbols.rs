//! From an address of a running program to its function and line of source.

use super::decode::{Instruction, InstructionSets, decode};
use super::file::CodeFile;
use crate::analysis::{ByAddress, Places};
use crate::event::Image;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Instructions whose function is remembered, and functions: more come from a damaged trace.
const REMEMBERED: usize = 1 << 20;
/// Mappings of files.
const IMAGES: usize = 1 << 12;
/// Where no file is known, code is told apart by pages of this size.
const UNKNOWN_BYTES: u64 = 4096;

#[derive(Debug)]
struct Known {
    name: String,
    image: String,
    is_monitored: bool,
}

/// The functions and lines of a traced program, as its images become known.
#[derive(Debug, Default)]
pub struct Symbols {
    images: Vec<(Image, usize)>,
    files: Vec<CodeFile>,
    functions: Vec<Known>,
    by_begin: HashMap<(usize, u64), u32>,
    by_ip: ByAddress<u64, u32>,
    only: Option<Vec<String>>,
    sets: InstructionSets,
}

impl Symbols {
    /// Symbols of which only functions of these names are to be looked at.
    ///
    /// # Examples
    /// ```
    /// use terrace_dirtbuster::{Places, Symbols};
    /// let mut symbols = Symbols::of_functions(vec!["psinv".into()]);
    /// let elsewhere = symbols.function(0x1234);
    /// assert!(!symbols.is_monitored(elsewhere));
    /// ```
    pub fn of_functions(names: Vec<String>) -> Symbols {
        Symbols { only: Some(names), ..Symbols::default() }
    }

    fn file(&mut self, path: &Path) -> usize {
        match self.files.iter().position(|file| file.path() == path) {
            Some(at) => at,
            None => {
                self.files.push(CodeFile::read(path));
                self.files.len() - 1
            }
        }
    }

    /// The file, and the offset in it.
    fn find(&self, ip: u64) -> Option<(usize, u64)> {
        // The newest first: an address may be used again.
        let (image, file) = self.images.iter().rev().find(|(i, _)| ip >= i.start && ip < i.end)?;
        Some((*file, ip - image.start + image.offset))
    }

    /// Whether the code of this address is in a known file.
    ///
    /// # Examples
    /// ```
    /// assert!(!terrace_dirtbuster::Symbols::default().knows(0x1000));
    /// ```
    pub fn knows(&self, ip: u64) -> bool {
        self.find(ip).is_some()
    }

    /// The instruction at an address, from its file.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(terrace_dirtbuster::Symbols::default().instruction(0x1000), None);
    /// ```
    pub fn instruction(&self, ip: u64) -> Option<Instruction> {
        let (file, offset) = self.find(ip)?;
        decode(self.files[file].code(offset)?, ip)
    }

    /// The sets of instructions of those that accessed memory.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(terrace_dirtbuster::Symbols::default().instruction_sets().to_string(), "x86-64");
    /// ```
    pub fn instruction_sets(&self) -> InstructionSets {
        self.sets
    }

    /// Files that have no symbols of their own.
    ///
    /// # Examples
    /// ```
    /// assert!(terrace_dirtbuster::Symbols::default().stripped().is_empty());
    /// ```
    pub fn stripped(&self) -> Vec<PathBuf> {
        let of = self.files.iter().filter(|file| !file.has_symbols());
        of.map(|file| file.path().to_path_buf()).collect()
    }

    fn resolve(&mut self, ip: u64) -> u32 {
        let (key, name, image) = match self.find(ip) {
            None => {
                let page = ip / UNKNOWN_BYTES * UNKNOWN_BYTES;
                ((usize::MAX, page), format!("code at {page:#x}"), "unknown".to_string())
            }
            Some((at, offset)) => {
                let file = &self.files[at];
                let image = file_name(file.path());
                let address = file.address(offset).unwrap_or(offset);
                let (start, name) = match file.function(address) {
                    Some((start, Some(name))) => (start, name.to_string()),
                    Some((start, None)) => (start, format!("{image}+{start:#x}")),
                    None => {
                        let page = address / UNKNOWN_BYTES * UNKNOWN_BYTES;
                        (page, format!("{image}+{page:#x} (no function known)"))
                    }
                };
                ((at, start), name, image)
            }
        };
        if let Some(known) = self.by_begin.get(&key) {
            return *known;
        }
        if self.functions.len() >= REMEMBERED {
            return self.functions.len() as u32 - 1;
        }
        let only = self.only.as_ref();
        let is_monitored = only.is_none_or(|names| names.contains(&name));
        let number = self.functions.len() as u32;
        self.functions.push(Known { name, image, is_monitored });
        self.by_begin.insert(key, number);
        number
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

impl Places for Symbols {
    fn image(&mut self, image: &Image) {
        if self.images.len() >= IMAGES || self.images.iter().any(|(known, _)| known == image) {
            return;
        }
        let file = self.file(&image.path);
        self.images.push((image.clone(), file));
    }

    fn function(&mut self, ip: u64) -> u32 {
        if let Some(known) = self.by_ip.get(&ip) {
            return *known;
        }
        let function = self.resolve(ip);
        if self.by_ip.len() < REMEMBERED {
            self.by_ip.insert(ip, function);
        }
        function
    }

    fn name(&mut self, function: u32) -> (String, String) {
        match self.functions.get(function as usize) {
            Some(known) => (known.name.clone(), known.image.clone()),
            None => (format!("function {function}"), "unknown".into()),
        }
    }

    fn location(&mut self, ip: u64) -> String {
        let Some((at, offset)) = self.find(ip) else { return format!("{ip:#x}") };
        let file = &self.files[at];
        let address = file.address(offset).unwrap_or(offset);
        file.line(address).unwrap_or_else(|| format!("{}+{address:#x}", file_name(file.path())))
    }

    fn spills(&mut self, ip: u64) -> bool {
        // Asked once for each instruction that accesses memory.
        let instruction = self.instruction(ip);
        if let Some(instruction) = &instruction {
            self.sets.add(instruction);
        }
        instruction.is_some_and(|instruction| instruction.spills)
    }

    fn is_monitored(&self, function: u32) -> bool {
        self.functions.get(function as usize).is_some_and(|known| known.is_monitored)
    }
}
