//! What this processor can do to memory.
//!
//! The instructions that move and keep data differ between processors of one family: some write a
//! line back and keep it (`clwb`), some only evict it (`clflushopt`, `clflush`), some can push a
//! line towards a shared cache (`cldemote`) or store 64 bytes at once (`movdir64b`). Executing an
//! absent one ends the process, and the standard library detects only the subset that compilers
//! generate, so the rest is asked from CPUID here, once per process.
//!
//! The same set can be read from the words of `/proc/cpuinfo` ([`Features::from_words`]): that is
//! how a topology taken on another machine, or a fixture in a test, tells its features. Only
//! [`Features::detect`] may decide what is executed.

use std::fmt;
use std::sync::OnceLock;

use serde::Serialize;

macro_rules! features {
    ($($(#[$doc:meta])* $field:ident = $word:literal,)*) => {
        /// Which instructions a processor has. `Default` has none and lines of 0 bytes.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct Features {
            /// Bytes that one write-back, flush or demote acts on; 0 where the processor does not
            /// say.
            pub line_bytes: u16,
            $($(#[$doc])* pub $field: bool,)*
        }

        impl Features {
            /// Every feature with the word `/proc/cpuinfo` uses for it.
            fn table(&self) -> impl Iterator<Item = (&'static str, bool)> {
                [$(($word, self.$field),)*].into_iter()
            }

            /// Reads the features from the words of `/proc/cpuinfo`; words it does not know are
            /// passed over.
            pub fn from_words<'a>(
                words: impl IntoIterator<Item = &'a str>,
                line_bytes: u16,
            ) -> Self {
                let mut found = Features { line_bytes, ..Features::default() };
                for word in words {
                    match word {
                        $($word => found.$field = true,)*
                        _ => {}
                    }
                }
                found
            }
        }
    };
}

features! {
    /// Evicts a line, serialised with the other `clflush` of the thread.
    clflush = "clflush",
    /// Evicts a line without that serialisation.
    clflushopt = "clflushopt",
    /// Writes a line back and may keep it in the cache.
    clwb = "clwb",
    /// Hints that a line should move to a more distant, shared cache.
    cldemote = "cldemote",
    /// Stores 4 or 8 bytes past the caches.
    movdiri = "movdiri",
    /// Stores 64 bytes past the caches as one write.
    movdir64b = "movdir64b",
    /// Submits a 64-byte command to a shared device queue.
    enqcmd = "enqcmd",
    /// Prefetches a line in a state ready for writing.
    prefetchw = "3dnowprefetch",
    /// 32-byte vectors, with the operating system's consent.
    avx2 = "avx2",
    /// 64-byte vectors, with the operating system's consent.
    avx512f = "avx512f",
    /// CRC-32C and string compare instructions.
    sse4_2 = "sse4_2",
    /// Carry-less multiplication of one pair.
    pclmulqdq = "pclmulqdq",
    /// Carry-less multiplication of several pairs.
    vpclmulqdq = "vpclmulqdq",
    /// `rep movsb` is fast for long copies.
    erms = "erms",
    /// `rep movsb` is fast for short copies.
    fsrm = "fsrm",
    /// Restricted transactional memory.
    rtm = "rtm",
    /// Waiting on an address in user mode (`umonitor`, `umwait`, `tpause`).
    waitpkg = "waitpkg",
    /// Runs under a hypervisor: measured latencies include its work.
    hypervisor = "hypervisor",
}

impl Features {
    /// The features of the processor this runs on; asked once, then a copy of the answer.
    ///
    /// # Cost
    /// The first call executes CPUID, which under a hypervisor takes microseconds; later ones load
    /// a few bytes.
    pub fn detect() -> Self {
        static FOUND: OnceLock<Features> = OnceLock::new();
        *FOUND.get_or_init(ask)
    }

    /// Words of the features present, in the fixed order of this module.
    pub fn words(&self) -> impl Iterator<Item = &'static str> {
        self.table().filter(|(_, present)| *present).map(|(word, _)| word)
    }

    /// The best instruction for making a store durable where the caches are not: the word of the
    /// first present of `clwb`, `clflushopt`, `clflush`.
    pub fn write_back_word(&self) -> Option<&'static str> {
        [(self.clwb, "clwb"), (self.clflushopt, "clflushopt"), (self.clflush, "clflush")]
            .into_iter()
            .find_map(|(present, word)| present.then_some(word))
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-byte lines", self.line_bytes)?;
        for word in self.words() {
            write!(f, " {word}")?;
        }
        Ok(())
    }
}

#[cfg(target_arch = "x86_64")]
fn ask() -> Features {
    use std::arch::is_x86_feature_detected as detected;

    let bit = |register: u32, position: u32| register & (1 << position) != 0;
    let identity = leaf(1, 0);
    let extended = leaf(7, 0);
    Features {
        // CPUID counts the line in units of 8 bytes.
        line_bytes: ((identity.ebx >> 8) & 0xff) as u16 * 8,
        clflush: bit(identity.edx, 19),
        hypervisor: bit(identity.ecx, 31),
        erms: bit(extended.ebx, 9),
        rtm: bit(extended.ebx, 11),
        clflushopt: bit(extended.ebx, 23),
        clwb: bit(extended.ebx, 24),
        waitpkg: bit(extended.ecx, 5),
        cldemote: bit(extended.ecx, 25),
        movdiri: bit(extended.ecx, 27),
        movdir64b: bit(extended.ecx, 28),
        enqcmd: bit(extended.ecx, 29),
        fsrm: bit(extended.edx, 4),
        prefetchw: bit(leaf(0x8000_0001, 0).ecx, 8),
        avx2: detected!("avx2"),
        avx512f: detected!("avx512f"),
        sse4_2: detected!("sse4.2"),
        pclmulqdq: detected!("pclmulqdq"),
        vpclmulqdq: detected!("vpclmulqdq"),
    }
}

/// One CPUID leaf, or all zeros where the processor has no such leaf.
#[cfg(target_arch = "x86_64")]
#[allow(unused_unsafe)] // `__cpuid_count` became safe after the oldest compiler this crate accepts.
fn leaf(leaf: u32, sub_leaf: u32) -> std::arch::x86_64::CpuidResult {
    use std::arch::x86_64::{__cpuid, __cpuid_count, CpuidResult};

    // SAFETY: CPUID exists on every x86-64 processor and only writes the registers it returns.
    let last = unsafe { __cpuid(leaf & 0x8000_0000) }.eax;
    if leaf > last {
        return CpuidResult { eax: 0, ebx: 0, ecx: 0, edx: 0 };
    }
    // SAFETY: as above; the leaf is one the processor says it has.
    unsafe { __cpuid_count(leaf, sub_leaf) }
}

/// Other processors: none of the instructions named here; regions there rely on the kernel.
#[cfg(not(target_arch = "x86_64"))]
fn ask() -> Features {
    Features::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_a_round_trip() {
        let text = "fpu clflush clwb avx512f sse4_2 some_future_word";
        let features = Features::from_words(text.split(' '), 64);
        let words: Vec<_> = features.words().collect();
        assert_eq!(words, ["clflush", "clwb", "avx512f", "sse4_2"]);
        assert_eq!(Features::from_words(words, 64), features);
        assert_eq!(features.to_string(), "64-byte lines clflush clwb avx512f sse4_2");
    }

    #[test]
    fn best_write_back_is_the_one_that_may_keep_the_line() {
        let best = |words: &str| Features::from_words(words.split(' '), 64).write_back_word();
        assert_eq!(best("clflush clflushopt clwb"), Some("clwb"));
        assert_eq!(best("clflush clflushopt"), Some("clflushopt"));
        assert_eq!(best("clflush"), Some("clflush"));
        assert_eq!(best("avx2"), None);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn cpuid_and_the_kernel_agree() {
        let Ok(text) = std::fs::read_to_string("/proc/cpuinfo") else {
            return;
        };
        let Some(flags) = text.lines().find(|line| line.starts_with("flags")) else {
            return;
        };
        let kernel = Features::from_words(flags.split_whitespace(), 64);
        let cpuid = Features::detect();
        assert_eq!(cpuid.line_bytes, 64);
        // The kernel may hide what the processor has (a boot option), never the reverse.
        for word in kernel.words() {
            assert!(
                cpuid.words().any(|found| found == word),
                "{word} is in /proc/cpuinfo but not found by CPUID"
            );
        }
    }
}
