//! Putting memory on a NUMA node, and looking where it is.
//!
//! `mbind` is a request about pages not yet touched and, with moving asked for, about those that
//! are; kernels without NUMA, containers and control groups refuse it in different ways, and a page
//! may stay where it was. So the answer is checked: the policy is read back, and every page present
//! is asked for its node. A tier that names a node is on it, or its opening fails with the reason.
//!
//! Binding changes where bytes are, never what they are, so the functions are safe to call on any
//! address.

use std::collections::BTreeMap;
use std::io;

/// The most nodes a kernel is built for.
const NODES_MAX: u32 = 1024;

/// Move pages that are elsewhere already (`linux/mempolicy.h`, which libc does not carry).
const MPOL_MF_MOVE: libc::c_ulong = 1 << 1;
/// Fail if one cannot be moved.
const MPOL_MF_STRICT: libc::c_ulong = 1 << 0;
/// Tell the policy of an address.
const MPOL_F_ADDR: libc::c_ulong = 1 << 1;

/// A set of nodes as the kernel takes it: one bit each.
type NodeMask = [libc::c_ulong; NODES_MAX as usize / libc::c_ulong::BITS as usize];

/// Why memory is not bound to a node.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// The range does not begin on a page, or is empty.
    #[error(
        "the range of {bytes} bytes at {start:#x} is not made of whole pages of {page_bytes} bytes"
    )]
    NotPages {
        /// Its first address.
        start: usize,
        /// Its length, bytes.
        bytes: usize,
        /// The page of this system, bytes.
        page_bytes: usize,
    },
    /// No kernel has a node of that number.
    #[error("node {node} is beyond the {NODES_MAX} nodes a kernel can have")]
    NoSuchNode {
        /// The node.
        node: u32,
    },
    /// The kernel refused a call.
    #[error("{call} for node {node}: {}", meaning(source))]
    Refused {
        /// The system call.
        call: &'static str,
        /// The node.
        node: u32,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel accepted, but the policy read back is another one.
    #[error("node {node}: the kernel accepted the binding and then reports policy {mode}")]
    NotTaken {
        /// The node.
        node: u32,
        /// The number of the policy found.
        mode: i32,
    },
    /// Pages are on other nodes in spite of the binding.
    #[error("node {node}: pages are elsewhere ({found})")]
    Elsewhere {
        /// The node.
        node: u32,
        /// Where the pages are.
        found: Placement,
    },
}

/// The kernel's refusals in the terms of this module.
fn meaning(refusal: &io::Error) -> String {
    let hint = match refusal.raw_os_error() {
        Some(libc::EINVAL | libc::ENODEV | libc::EACCES) => {
            "the node is not online, has no memory, or is not allowed to this process"
        }
        Some(libc::EPERM) => "not permitted; containers need the capability SYS_NICE",
        Some(libc::ENOSYS) => "the kernel has no NUMA support",
        Some(libc::EIO) => "some pages could not be moved there",
        _ => return refusal.to_string(),
    };
    format!("{hint} ({refusal})")
}

/// Where the pages of a range are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Pages present, by node.
    pub pages_by_node: BTreeMap<u32, u64>,
    /// Pages never touched, or swapped out.
    pub pages_absent: u64,
}

impl Placement {
    /// Whether no present page is on a node other than `node`.
    pub fn is_only_on(&self, node: u32) -> bool {
        self.pages_by_node.keys().all(|found| *found == node)
    }
}

impl std::fmt::Display for Placement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (node, pages) in &self.pages_by_node {
            write!(f, "{pages} pages on node {node}, ")?;
        }
        write!(f, "{} absent", self.pages_absent)
    }
}

/// Binds the pages of `bytes` bytes at `start` to `node`, moves those already there, and verifies
/// both.
///
/// On return every page of the range that is present is on `node`, and the others will be taken
/// from it when touched. `start` must lie on a page; a last partial page is bound as a whole.
///
/// # Errors
/// [`BindError`]; after one, the policy of the range is unspecified, its contents unchanged.
///
/// # Cost
/// Moving copies each page present; verifying asks for each page, about 0.1 us a page.
pub fn bind_to_node(start: *const u8, bytes: usize, node: u32) -> Result<Placement, BindError> {
    bind_untouched(start, bytes, node)?;
    let found = placement(start, bytes)?;
    if found.is_only_on(node) { Ok(found) } else { Err(BindError::Elsewhere { node, found }) }
}

/// The same where no page was touched yet, so that there is none to ask for its node: what is touched
/// later comes from `node`.
///
/// # Errors
/// As [`bind_to_node`], but that no page is looked at.
pub fn bind_untouched(start: *const u8, bytes: usize, node: u32) -> Result<(), BindError> {
    check_range(start, bytes)?;
    let mask = mask_of(node)?;
    let flags = MPOL_MF_MOVE | MPOL_MF_STRICT;
    // SAFETY: the mask lives through the call and has the bits announced (the kernel reads one
    // fewer than told); the range is only moved between nodes, and one that is not mapped is
    // refused.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            start.addr(),
            bytes,
            libc::MPOL_BIND as libc::c_ulong,
            mask.as_ptr(),
            libc::c_ulong::from(NODES_MAX + 1),
            flags,
        )
    };
    check(result, "mbind", node)?;
    verify_policy(start, node, &mask)
}

/// Where the pages of `bytes` bytes at `start` are.
///
/// # Errors
/// [`BindError::NotPages`], or [`BindError::Refused`] when the kernel does not tell.
pub fn placement(start: *const u8, bytes: usize) -> Result<Placement, BindError> {
    /// Pages asked for in one call.
    const BATCH: usize = 1024;
    let page_bytes = rustix::param::page_size();
    check_range(start, bytes)?;
    let mut found = Placement::default();
    let mut pages = Vec::with_capacity(BATCH);
    let mut status = [0 as libc::c_int; BATCH];
    for first in (0..bytes).step_by(BATCH * page_bytes) {
        let end = bytes.min(first + BATCH * page_bytes);
        pages.clear();
        pages.extend((first..end).step_by(page_bytes).map(|at| start.wrapping_add(at)));
        let nowhere: *const libc::c_int = std::ptr::null();
        // SAFETY: both arrays hold `pages.len()` entries and live through the call. Without target
        // nodes the call moves nothing, and addresses that are not mapped get an error as their
        // status.
        let result = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                0 as libc::c_int,
                pages.len() as libc::c_ulong,
                pages.as_ptr(),
                nowhere,
                status.as_mut_ptr(),
                0 as libc::c_int,
            )
        };
        check(result, "move_pages", 0)?;
        for status in &status[..pages.len()] {
            match u32::try_from(*status) {
                Ok(node) => *found.pages_by_node.entry(node).or_default() += 1,
                Err(_) => found.pages_absent += 1,
            }
        }
    }
    Ok(found)
}

/// What became of pages that were to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// Each page that is present is on the node now.
    All,
    /// Some are elsewhere: they were in use each time, and may be free to move a little later.
    Busy,
    /// Some are elsewhere, because the node has no memory free, or they are shared with another process.
    Refused,
}

/// Times that pages are tried that somebody else holds.
const TRIES: usize = 3;

/// Moves the pages of `bytes` bytes at `start` that are present to `node`, whatever the policy of the range, and leaves
/// that as it is: pages that are touched for the first time later come from where the policy says. Whoever reads or
/// writes a page meanwhile waits until it has moved.
///
/// # Errors
/// [`BindError`] where the kernel moves nothing there. After it, and after anything but [`Moved::All`], some pages may
/// have moved.
///
/// # Cost
/// A copy of each page that is elsewhere; about 1 ms for 4 MiB.
pub fn move_to_node(start: *const u8, bytes: usize, node: u32) -> Result<Moved, BindError> {
    /// Where the kernel has written no status: it stopped before.
    const UNKNOWN: libc::c_int = libc::c_int::MAX;
    check_range(start, bytes)?;
    mask_of(node)?;
    let page_bytes = rustix::param::page_size();
    let pages: Vec<_> = (0..bytes).step_by(page_bytes).map(|at| start.wrapping_add(at)).collect();
    let nodes = vec![node as libc::c_int; pages.len()];
    let mut status = vec![UNKNOWN; pages.len()];
    for _ in 0..TRIES {
        // SAFETY: the three arrays have `pages.len()` entries and live through the call, which moves pages between
        // nodes and changes nothing else; addresses that are not mapped get an error as their status.
        let result = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                0 as libc::c_int,
                pages.len() as libc::c_ulong,
                pages.as_ptr(),
                nodes.as_ptr(),
                status.as_mut_ptr(),
                MPOL_MF_MOVE as libc::c_int,
            )
        };
        // A positive result counts pages that stayed; why, their status says.
        if result < 0 {
            let source = io::Error::last_os_error();
            if source.raw_os_error() == Some(libc::ENOMEM) {
                return Ok(Moved::Refused);
            }
            return Err(BindError::Refused { call: "move_pages", node, source });
        }
        // The status of a part of a huge page is unreliable while the page moves, so each is asked again.
        if placement(start, bytes)?.is_only_on(node) {
            return Ok(Moved::All);
        }
    }
    let is_refused = status.iter().any(|found| matches!(-found, libc::ENOMEM | libc::EACCES));
    Ok(if is_refused { Moved::Refused } else { Moved::Busy })
}

fn verify_policy(start: *const u8, node: u32, wanted: &NodeMask) -> Result<(), BindError> {
    let mut mode: libc::c_int = -1;
    let mut mask: NodeMask = [0; _];
    // SAFETY: both results live through the call; the mask has the bits announced.
    let result = unsafe {
        libc::syscall(
            libc::SYS_get_mempolicy,
            &raw mut mode,
            mask.as_mut_ptr(),
            libc::c_ulong::from(NODES_MAX + 1),
            start.addr(),
            MPOL_F_ADDR,
        )
    };
    check(result, "get_mempolicy", node)?;
    if mode == libc::MPOL_BIND && mask == *wanted {
        Ok(())
    } else {
        Err(BindError::NotTaken { node, mode })
    }
}

fn check_range(start: *const u8, bytes: usize) -> Result<(), BindError> {
    let page_bytes = rustix::param::page_size();
    if bytes > 0 && start.addr().is_multiple_of(page_bytes) {
        return Ok(());
    }
    Err(BindError::NotPages { start: start.addr(), bytes, page_bytes })
}

fn mask_of(node: u32) -> Result<NodeMask, BindError> {
    if node >= NODES_MAX {
        return Err(BindError::NoSuchNode { node });
    }
    let mut mask: NodeMask = [0; _];
    mask[(node / libc::c_ulong::BITS) as usize] = 1 << (node % libc::c_ulong::BITS);
    Ok(mask)
}

fn check(result: libc::c_long, call: &'static str, node: u32) -> Result<(), BindError> {
    if result >= 0 {
        return Ok(());
    }
    Err(BindError::Refused { call, node, source: io::Error::last_os_error() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_one_bit() {
        let mask = mask_of(67).expect("a node kernels have");
        assert_eq!(mask[1], 1 << 3);
        assert_eq!(mask.iter().map(|word| word.count_ones()).sum::<u32>(), 1);
        assert!(matches!(mask_of(1024), Err(BindError::NoSuchNode { node: 1024 })));
    }

    #[test]
    fn refusals_say_what_to_do() {
        let error = BindError::Refused {
            call: "mbind",
            node: 3,
            source: io::Error::from_raw_os_error(libc::EPERM),
        };
        let message = error.to_string();
        assert!(message.starts_with("mbind for node 3: not permitted; containers need"));
    }
}
