//! What a file is opened for.

/// What a file is opened for. Only [`Access::Write`] changes anything on the medium: the others use a copy in
/// memory, or a mapping whose stores stay in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// To read and write; what a crash left unfinished is mended.
    #[default]
    Write,
    /// To read. What a crash left unfinished is passed over; damage is an error.
    Read,
    /// As [`Access::Read`], and all that is there is read and verified, though an opening needs less.
    Verify,
    /// As [`Access::Read`], since the disk had no room for what opening the file to write takes.
    FullDisk,
    /// To read what is intact of a damaged file.
    Salvage,
}

impl Access {
    /// Whether anything may be written.
    pub fn writes(self) -> bool {
        self == Access::Write
    }

    /// Whether damage is gone around and told, rather than an error.
    pub fn passes_damage(self) -> bool {
        self == Access::Salvage
    }

    /// Whether all that is there is read.
    pub fn reads_all(self) -> bool {
        matches!(self, Access::Verify | Access::Salvage)
    }

    /// Why nothing is taken, where nothing is.
    pub fn refusal(self) -> Option<&'static str> {
        match self {
            Access::Write => None,
            Access::Read | Access::Verify => Some("opened to be read"),
            Access::FullDisk => Some(
                "the disk was full when it was opened; nothing is lost, but free space and open it again to write",
            ),
            Access::Salvage => Some("opened with salvage: read-only"),
        }
    }
}
