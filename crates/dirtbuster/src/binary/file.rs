//! A program or library on disk: functions, lines and bytes of code.

use addr2line::Loader;
use addr2line::gimli::{BaseAddresses, EhFrame, LittleEndian, UnwindSection};
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SymbolKind};
use std::path::{Path, PathBuf};

/// The largest program that is read.
const LARGEST: u64 = 1 << 31;

/// A function of a file.
#[derive(Clone, Debug)]
struct Function {
    start: u64,
    end: u64,
    /// None where only the tables for unwinding know it.
    name: Option<String>,
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    offset: u64,
    bytes: u64,
    address: u64,
}

/// A program or library on disk. One that cannot be read has no functions.
pub(crate) struct CodeFile {
    path: PathBuf,
    bytes: Vec<u8>,
    functions: Vec<Function>,
    segments: Vec<Segment>,
    loader: Option<Loader>,
    has_symbols: bool,
}

impl std::fmt::Debug for CodeFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CodeFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl CodeFile {
    pub(crate) fn read(path: &Path) -> CodeFile {
        // A trace may name anything, a device without an end too.
        let is_fit = std::fs::metadata(path).is_ok_and(|of| of.is_file() && of.len() <= LARGEST);
        let bytes = if is_fit { std::fs::read(path).unwrap_or_default() } else { Vec::new() };
        let mut file = CodeFile {
            path: path.to_path_buf(),
            functions: Vec::new(),
            segments: Vec::new(),
            loader: None,
            has_symbols: false,
            bytes,
        };
        let Ok(object) = object::File::parse(&*file.bytes) else { return file };
        let segment = |s: object::Segment<'_, '_>| {
            let (offset, bytes) = s.file_range();
            Segment { offset, bytes, address: s.address() }
        };
        file.segments = object.segments().map(segment).collect();
        file.has_symbols = object.symbols().any(|symbol| symbol.kind() == SymbolKind::Text);
        file.functions = functions(&object);
        file.loader = Loader::new(path).ok();
        file
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it has a table of its own symbols, not only of those that it exports.
    pub(crate) fn has_symbols(&self) -> bool {
        self.has_symbols
    }

    /// The address that the file gives to the byte at `offset`.
    pub(crate) fn address(&self, offset: u64) -> Option<u64> {
        let segment =
            self.segments.iter().find(|s| offset >= s.offset && offset - s.offset < s.bytes)?;
        Some(segment.address + (offset - segment.offset))
    }

    /// Code at an offset, up to the longest instruction.
    pub(crate) fn code(&self, offset: u64) -> Option<&[u8]> {
        let from = usize::try_from(offset).ok()?;
        let code = self.bytes.get(from..)?;
        Some(&code[..code.len().min(16)])
    }

    /// The begin and the name of the function at an address.
    pub(crate) fn function(&self, address: u64) -> Option<(u64, Option<&str>)> {
        let at = self.functions.partition_point(|f| f.start <= address).checked_sub(1)?;
        let found = &self.functions[at];
        (address < found.end).then_some((found.start, found.name.as_deref()))
    }

    /// `file:line`.
    pub(crate) fn line(&self, address: u64) -> Option<String> {
        let location = self.loader.as_ref()?.find_location(address).ok()??;
        let file = location.file?;
        Some(match location.line {
            Some(line) => format!("{file}:{line}"),
            None => file.to_string(),
        })
    }
}

fn functions(object: &object::File<'_>) -> Vec<Function> {
    let text = |symbol: &object::Symbol<'_, '_>| {
        symbol.kind() == SymbolKind::Text && symbol.is_definition() && symbol.address() != 0
    };
    let named = |symbol: object::Symbol<'_, '_>| {
        let name = symbol.name().ok()?;
        let start = symbol.address();
        Some(Function {
            start,
            end: start.saturating_add(symbol.size()),
            name: Some(demangled(name)),
        })
    };
    let mut all: Vec<Function> = object
        .symbols()
        .chain(object.dynamic_symbols())
        .filter(text)
        .filter_map(named)
        .chain(unwound(object))
        .collect();
    // Of several names for one place, the one that has a size, then the shortest.
    all.sort_by_key(|f| {
        let name = f.name.as_ref().map_or(usize::MAX, String::len);
        (f.start, f.end == f.start, name, f.name.clone())
    });
    all.dedup_by_key(|f| f.start);
    // A symbol without a size reaches to the next one.
    for at in 0..all.len() {
        let next = all.get(at + 1).map_or(u64::MAX, |next| next.start);
        let function = &mut all[at];
        if function.end == function.start {
            function.end = next.min(function.start.saturating_add(1 << 16));
        }
    }
    all
}

/// Functions as the tables for unwinding know them: a stripped program has these.
fn unwound(object: &object::File<'_>) -> Vec<Function> {
    let Some(section) = object.section_by_name(".eh_frame") else { return Vec::new() };
    let Ok(data) = section.data() else { return Vec::new() };
    let frames = EhFrame::new(data, LittleEndian);
    let text = object.section_by_name(".text").map_or(0, |text| text.address());
    let bases = BaseAddresses::default().set_eh_frame(section.address()).set_text(text);
    let mut entries = frames.entries(&bases);
    let mut found = Vec::new();
    while let Ok(Some(entry)) = entries.next() {
        let addr2line::gimli::CieOrFde::Fde(partial) = entry else { continue };
        let Ok(entry) = partial.parse(EhFrame::cie_from_offset) else { continue };
        let start = entry.initial_address();
        let end = start.saturating_add(entry.len());
        if start != 0 && end > start {
            found.push(Function { start, end, name: None });
        }
    }
    found
}

fn demangled(name: &str) -> String {
    addr2line::demangle_auto(name.into(), None).into_owned()
}
