//! Mounted file systems, as `/proc/self/mountinfo` lists them.
//!
//! A line reads `27 1 259:0 / /mnt/pmem rw,relatime shared:5 - ext4 /dev/pmem0 rw,dax=always`:
//! mount id, parent, device numbers, root within the file system, mount point, options, optional
//! fields up to the dash, file-system type, source, the file system's own options. White space and
//! backslashes within a field are octal escapes.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::source::{Source, TopologyError, malformed};

/// What a mount says about direct access to its medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DaxOption {
    /// Every file is mapped directly (`dax`, `dax=always`).
    Always,
    /// Files flagged for it are mapped directly (`dax=inode`).
    Inode,
    /// No file is (`dax=never`).
    Never,
    /// The mount does not say; file systems then go by the file's flag, which is normally off.
    Unstated,
}

impl DaxOption {
    /// Whether files of the mount may be mapped directly.
    pub fn is_possible(self) -> bool {
        matches!(self, DaxOption::Always | DaxOption::Inode)
    }

    fn from_options<'a>(options: impl Iterator<Item = &'a [u8]>) -> Self {
        // The last one counts, as it does for the kernel.
        options.fold(DaxOption::Unstated, |found, option| match option {
            b"dax" | b"dax=always" => DaxOption::Always,
            b"dax=inode" => DaxOption::Inode,
            b"dax=never" => DaxOption::Never,
            _ => found,
        })
    }
}

/// One mounted file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mount {
    /// The kernel's number of the mount.
    pub id: u64,
    /// Type of the file system, such as `ext4`.
    pub kind: String,
    /// What is mounted: a device node, or a word for file systems without one.
    pub device: String,
    /// Device numbers, `major:minor`.
    pub numbers: String,
    /// Where it is mounted.
    pub mount_point: PathBuf,
    /// Whether the mount or the file system is read-only.
    pub read_only: bool,
    /// Direct access.
    pub dax: DaxOption,
}

impl Mount {
    /// Every mount this process sees, in the kernel's order: a later one may cover an earlier one.
    /// Empty where `proc`, the folder procfs is mounted at, does not tell.
    ///
    /// # Errors
    /// [`TopologyError::Malformed`] with the first line that is none of mountinfo.
    pub fn list(proc: &Path) -> Result<Vec<Mount>, TopologyError> {
        read_mounts(&Source::default(), proc)
    }
}

/// [`Mount::list`], with a note where procfs does not tell.
pub(super) fn read_mounts(source: &Source, proc: &Path) -> Result<Vec<Mount>, TopologyError> {
    let path = proc.join("self/mountinfo");
    let Some(bytes) = source.bytes(&path) else {
        return Ok(Vec::new());
    };
    bytes
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| {
            parse_line(line).ok_or_else(|| {
                malformed(&path, &String::from_utf8_lossy(line), "a line of mountinfo")
            })
        })
        .collect()
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let _parent = fields.next()?;
    let numbers = text(fields.next()?)?;
    let (major, minor) = numbers.split_once(':')?;
    major.parse::<u32>().ok()?;
    minor.parse::<u32>().ok()?;
    let _root = fields.next()?;
    let mount_point = PathBuf::from(OsString::from_vec(unescape(fields.next()?)?));
    let options = fields.next()?;
    // Optional fields come in any number and end with a dash.
    fields.by_ref().find(|field| *field == b"-")?;
    let kind = text(&unescape(fields.next()?)?)?;
    let device = String::from_utf8_lossy(&unescape(fields.next()?)?).into_owned();
    let super_options = fields.next().unwrap_or_default();
    let all = || {
        let comma = |byte: &u8| *byte == b',';
        options.split(comma).chain(super_options.split(comma))
    };
    Some(Mount {
        id,
        kind,
        device,
        numbers,
        mount_point,
        read_only: all().any(|option| option == b"ro"),
        dax: DaxOption::from_options(all()),
    })
}

fn text(bytes: &[u8]) -> Option<String> {
    String::from_utf8(bytes.to_vec()).ok()
}

/// Undoes the kernel's octal escapes; `None` for a backslash without three octal digits of one
/// byte.
fn unescape(field: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'\\' {
            plain.push(*first);
            continue;
        }
        let (digits, after) = tail.split_at_checked(3)?;
        let value = digits.iter().try_fold(0u32, |value, digit| {
            let digit = digit.checked_sub(b'0').filter(|digit| *digit < 8)?;
            Some(value * 8 + u32::from(digit))
        })?;
        plain.push(u8::try_from(value).ok()?);
        rest = after;
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_taken_apart() {
        let line = b"27 1 259:0 / /mnt/my\\040pmem rw,relatime shared:5 master:1 \
                     - ext4 /dev/pmem0 rw,dax=always";
        let mount = parse_line(line).expect("a good line");
        assert_eq!(mount.id, 27);
        assert_eq!(mount.kind, "ext4");
        assert_eq!(mount.device, "/dev/pmem0");
        assert_eq!(mount.numbers, "259:0");
        assert_eq!(mount.mount_point, Path::new("/mnt/my pmem"));
        assert_eq!(mount.dax, DaxOption::Always);
        assert!(!mount.read_only);
    }

    #[test]
    fn dax_is_read_in_all_its_spellings() {
        let dax = |options: &str| {
            let line = format!("27 1 8:0 / / ro - xfs /dev/x {options}");
            parse_line(line.as_bytes()).expect("a good line").dax
        };
        assert_eq!(dax("rw,dax"), DaxOption::Always);
        assert_eq!(dax("rw,dax=inode"), DaxOption::Inode);
        assert_eq!(dax("rw,dax=never"), DaxOption::Never);
        assert_eq!(dax("rw,daxing"), DaxOption::Unstated);
        assert!(!DaxOption::Never.is_possible());
    }

    #[test]
    fn lines_without_the_parts_are_refused() {
        for bad in [
            "",
            "27",
            "x 1 8:0 / / rw - ext4 /dev/x rw",
            "27 1 80 / / rw - ext4 /dev/x rw",
            "27 1 8:x / / rw - ext4 /dev/x rw",
            "27 1 8:0 / / rw ext4 /dev/x rw",
            "27 1 8:0 / / rw -",
            r"27 1 8:0 / /a\0 rw - ext4 /dev/x rw",
            r"27 1 8:0 / /a\999 rw - ext4 /dev/x rw",
        ] {
            assert_eq!(parse_line(bad.as_bytes()), None, "{bad}");
        }
    }
}
