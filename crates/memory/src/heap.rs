//! The heap of this process.

/// Gives memory that was freed back to the system, as far as the allocator can: GNU's keeps it otherwise, for
/// the next who asks. May take milliseconds.
pub fn give_back() {
    // SAFETY: no preconditions; the allocator locks what it looks at.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}
