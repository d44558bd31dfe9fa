//! Memory bound to node 0, which every machine has, and the refusals for nodes it has not.

use terrace_memory::binding::{BindError, Moved, bind_to_node, move_to_node, placement};

/// Anonymous memory of whole pages, unmapped when dropped.
struct Pages {
    start: *mut u8,
    bytes: usize,
}

impl Pages {
    fn new(bytes: usize) -> Self {
        // SAFETY: a fresh private mapping at an address the kernel chooses.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(start, libc::MAP_FAILED);
        Pages { start: start.cast(), bytes }
    }

    fn touch(&self, bytes: usize) {
        // SAFETY: the range lies in the mapping, which only this test uses.
        unsafe { self.start.write_bytes(7, bytes) };
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, once.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}

/// Whether the system lets this process place memory; containers and kernels without NUMA do not.
fn is_allowed(result: &Result<terrace_memory::binding::Placement, BindError>) -> bool {
    match result {
        Err(BindError::Refused { source, .. }) => {
            !matches!(source.raw_os_error(), Some(libc::EPERM | libc::ENOSYS))
        }
        _ => true,
    }
}

#[test]
fn pages_are_on_the_node_they_are_bound_to() {
    let page_bytes = rustix::param::page_size();
    let pages = Pages::new(1500 * page_bytes);
    pages.touch(1200 * page_bytes);
    let result = bind_to_node(pages.start, pages.bytes, 0);
    if !is_allowed(&result) {
        return;
    }
    let found = result.expect("node 0 is there");
    assert!(found.is_only_on(0));
    assert_eq!(found.pages_by_node.get(&0).copied().unwrap_or(0), 1200, "{found}");
    assert_eq!(found.pages_absent, 300);
    pages.touch(pages.bytes);
    let found = placement(pages.start, pages.bytes).expect("an answer");
    assert_eq!(found.to_string(), "1500 pages on node 0, 0 absent");
}

/// On a machine of one node nothing moves; the bench machine has more.
#[test]
fn pages_move_with_what_they_hold() {
    let page_bytes = rustix::param::page_size();
    let pages = Pages::new(40 * page_bytes);
    pages.touch(30 * page_bytes);
    match move_to_node(pages.start, pages.bytes, 0) {
        Err(BindError::Refused { .. }) => return,
        moved => assert_eq!(moved.expect("node 0 is there"), Moved::All),
    }
    // SAFETY: the range lies in the mapping, which only this test uses.
    let held = unsafe { std::slice::from_raw_parts(pages.start, 30 * page_bytes) };
    assert!(held.iter().all(|byte| *byte == 7));
    let found = placement(pages.start, pages.bytes).expect("an answer");
    assert_eq!(found.to_string(), "30 pages on node 0, 10 absent", "none was touched");
    let absent = move_to_node(pages.start, pages.bytes, 900).expect_err("there is no node 900");
    assert!(absent.to_string().contains("the node is not online"), "{absent}");
    assert!(matches!(
        move_to_node(pages.start.wrapping_add(1), page_bytes, 0),
        Err(BindError::NotPages { .. })
    ));
}

#[test]
fn nodes_that_are_not_there_are_refused() {
    let pages = Pages::new(rustix::param::page_size());
    let absent = bind_to_node(pages.start, pages.bytes, 900);
    if is_allowed(&absent) {
        let error = absent.expect_err("no machine here has node 900");
        assert!(
            error.to_string().starts_with("mbind for node 900: the node is not online"),
            "{error}"
        );
    }
    let beyond = bind_to_node(pages.start, pages.bytes, 5000);
    assert!(matches!(beyond, Err(BindError::NoSuchNode { node: 5000 })));
}

#[test]
fn ranges_that_are_not_pages_are_refused() {
    let pages = Pages::new(2 * rustix::param::page_size());
    let inside = pages.start.wrapping_add(8);
    assert!(matches!(bind_to_node(inside, 4096, 0), Err(BindError::NotPages { .. })));
    assert!(matches!(bind_to_node(pages.start, 0, 0), Err(BindError::NotPages { .. })));
    assert!(matches!(placement(inside, 4096), Err(BindError::NotPages { .. })));
}

#[test]
fn memory_that_is_not_mapped_is_refused() {
    let unmapped = {
        let pages = Pages::new(1 << 30);
        pages.start
    };
    let result = bind_to_node(unmapped, 1 << 30, 0);
    if is_allowed(&result) {
        assert!(matches!(result, Err(BindError::Refused { call: "mbind", .. })));
    }
}
