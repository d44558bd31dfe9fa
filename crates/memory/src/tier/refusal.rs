//! Why a tier is refused: the part at fault, and what is there instead.

use std::path::PathBuf;

use super::TierKind;
use crate::dax::PathError;
use crate::domain::Domain;
use crate::size::ByteSize;

/// A tier does not fit the machine, or its declaration makes no sense.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TierError {
    /// The name is empty, long, or has other characters.
    #[error("tier {tier:?}: a name has 1 to 64 letters, digits, '-', '_' and '.'")]
    BadName {
        /// The tier.
        tier: String,
    },
    /// Two tiers have one name.
    #[error("tier {tier}: there are two of this name")]
    SameName {
        /// The tier.
        tier: String,
    },
    /// A key that this kind of tier needs.
    #[error("tier {tier}: kind {:?} needs the key {key:?}", kind.word())]
    MissingKey {
        /// The tier.
        tier: String,
        /// Its kind.
        kind: TierKind,
        /// The key.
        key: &'static str,
    },
    /// A key that this kind of tier cannot use.
    #[error("tier {tier}: the key {key:?} means nothing for kind {:?}", kind.word())]
    IdleKey {
        /// The tier.
        tier: String,
        /// Its kind.
        kind: TierKind,
        /// The key.
        key: &'static str,
    },
    /// The size is zero.
    #[error("tier {tier}: it may hold 0 bytes")]
    Empty {
        /// The tier.
        tier: String,
    },
    /// The size is more than the machine has.
    #[error("tier {tier}: {bytes} asked, {available} there")]
    TooLarge {
        /// The tier.
        tier: String,
        /// Bytes asked for.
        bytes: ByteSize,
        /// Bytes the machine has for it.
        available: ByteSize,
    },
    /// There is no such NUMA node.
    #[error("tier {tier}: no node {node}; this machine has {found:?}")]
    UnknownNode {
        /// The tier.
        tier: String,
        /// The node asked for.
        node: u32,
        /// The nodes there are.
        found: Vec<u32>,
    },
    /// The node, or the machine, has no memory.
    #[error("tier {tier}: {} has no memory", place(*node))]
    NoMemory {
        /// The tier.
        tier: String,
        /// The node; `None` for the whole machine.
        node: Option<u32>,
    },
    /// Transparent huge pages are off and no pool has pages.
    #[error(
        "tier {tier}: no huge pages; reserve some in /sys/kernel/mm/hugepages or allow \
         transparent ones in /sys/kernel/mm/transparent_hugepage/enabled"
    )]
    NoHugePages {
        /// The tier.
        tier: String,
    },
    /// The path is on another kind of file system than the tier says.
    #[error("tier {tier}: {} is on {found}, which is not {wanted}", path.display())]
    WrongFilesystem {
        /// The tier.
        tier: String,
        /// Its path.
        path: PathBuf,
        /// What it is on.
        found: String,
        /// What the kind asks for.
        wanted: &'static str,
    },
    /// More is declared to survive than was found to.
    #[error(
        "tier {tier}: domain {} is declared, but {found}; a file or tmpfs tier may stand in for it \
         with declared = true",
        super::medium::domain_word(*declared)
    )]
    DomainTooStrong {
        /// The tier.
        tier: String,
        /// The domain asked for.
        declared: Domain,
        /// The sentence of the medium found.
        found: String,
    },
    /// The path could not be asked.
    #[error("tier {tier}: {source}")]
    Path {
        /// The tier.
        tier: String,
        /// What failed.
        source: PathError,
    },
}

/// The node, or the whole machine, as the subject of a sentence.
fn place(node: Option<u32>) -> String {
    node.map_or_else(|| "the machine".to_owned(), |node| format!("node {node}"))
}
