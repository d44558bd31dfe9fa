//! What one instruction does to memory, to the order of accesses and to the stack of calls.

use iced_x86::{
    CpuidFeature, Decoder, DecoderOptions, FlowControl, InstructionInfoFactory, Mnemonic, OpAccess,
    Register,
};
use std::collections::BTreeSet;
use std::fmt;

/// What an instruction does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Instruction {
    /// Its bytes.
    pub bytes: u8,
    /// It reads memory.
    pub reads: bool,
    /// It writes memory.
    pub writes: bool,
    /// All its writes go where the stack pointer points: pushes, calls, spilled registers.
    pub spills: bool,
    /// It orders memory accesses: a fence, or atomic.
    pub is_fence: bool,
    /// It calls.
    pub is_call: bool,
    /// It returns.
    pub is_return: bool,
    /// It is a streaming store.
    pub streams: bool,
    /// The set of instructions that it belongs to, as a bit of [`InstructionSets`].
    sets: u32,
}

/// Decodes the instruction at the begin of `code`; none if these bytes are none.
///
/// # Examples
/// ```
/// use terrace_dirtbuster::decode;
/// let locked = decode(&[0xf0, 0x0f, 0xb1, 0x0f], 0x1000).unwrap(); // lock cmpxchg [rdi],ecx
/// assert!(locked.is_fence && locked.writes && !locked.spills);
/// let push = decode(&[0x55], 0x1000).unwrap();
/// assert!(push.spills && push.bytes == 1);
/// assert_eq!(decode(&[0x06], 0x1000), None); // no instruction of x86-64
/// ```
pub fn decode(code: &[u8], ip: u64) -> Option<Instruction> {
    let mut decoder = Decoder::with_ip(64, code, ip, DecoderOptions::NONE);
    let decoded = decoder.decode();
    if decoded.is_invalid() {
        return None;
    }
    let mut factory = InstructionInfoFactory::new();
    let mut found = Instruction { bytes: decoded.len() as u8, ..Instruction::default() };
    let mut elsewhere = false;
    for memory in factory.info(&decoded).used_memory() {
        let access = memory.access();
        let reads = matches!(
            access,
            OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        );
        let writes = matches!(
            access,
            OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        );
        found.reads |= reads;
        found.writes |= writes;
        elsewhere |= writes && memory.base() != Register::RSP;
    }
    found.spills = found.writes && !elsewhere;
    let fences =
        matches!(decoded.mnemonic(), Mnemonic::Mfence | Mnemonic::Sfence | Mnemonic::Lfence);
    let exchanges = decoded.mnemonic() == Mnemonic::Xchg && found.writes;
    found.is_fence = fences || exchanges || decoded.has_lock_prefix();
    found.streams = matches!(
        decoded.mnemonic(),
        Mnemonic::Movnti
            | Mnemonic::Movntdq
            | Mnemonic::Movntps
            | Mnemonic::Movntpd
            | Mnemonic::Vmovntdq
            | Mnemonic::Vmovntps
            | Mnemonic::Vmovntpd
    );
    found.is_call = matches!(decoded.flow_control(), FlowControl::Call | FlowControl::IndirectCall);
    found.is_return = decoded.flow_control() == FlowControl::Return;
    for feature in decoded.cpuid_features() {
        found.sets |= InstructionSets::bit(*feature);
    }
    Some(found)
}

/// The sets of instructions that a trace or a run of samples showed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InstructionSets(u32);

const SETS: &[(&str, &[CpuidFeature])] = &[
    ("SSE2", &[CpuidFeature::SSE, CpuidFeature::SSE2]),
    ("SSE3", &[CpuidFeature::SSE3, CpuidFeature::SSSE3]),
    ("SSE4", &[CpuidFeature::SSE4_1, CpuidFeature::SSE4_2]),
    ("AVX", &[CpuidFeature::AVX]),
    ("AVX2", &[CpuidFeature::AVX2]),
    ("FMA", &[CpuidFeature::FMA]),
    ("BMI", &[CpuidFeature::BMI1, CpuidFeature::BMI2]),
    (
        "AVX-512",
        &[
            CpuidFeature::AVX512F,
            CpuidFeature::AVX512VL,
            CpuidFeature::AVX512BW,
            CpuidFeature::AVX512DQ,
        ],
    ),
    ("RTM", &[CpuidFeature::RTM]),
];

impl InstructionSets {
    fn bit(feature: CpuidFeature) -> u32 {
        SETS.iter().position(|(_, of)| of.contains(&feature)).map_or(0, |at| 1 << at)
    }

    /// Adds those of an instruction.
    ///
    /// # Examples
    /// ```
    /// use terrace_dirtbuster::{InstructionSets, decode};
    /// let mut seen = InstructionSets::default();
    /// seen.add(&decode(&[0xc5, 0xfe, 0x7f, 0x07], 0).unwrap()); // vmovdqu [rdi],ymm0
    /// assert_eq!(seen.to_string(), "x86-64, AVX");
    /// ```
    pub fn add(&mut self, instruction: &Instruction) {
        self.0 |= instruction.sets;
    }
}

impl fmt::Display for InstructionSets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: BTreeSet<usize> = (0..SETS.len()).filter(|at| self.0 & 1 << at != 0).collect();
        f.write_str("x86-64")?;
        names.into_iter().try_for_each(|at| write!(f, ", {}", SETS[at].0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_stores_and_calls_are_told_apart() {
        let of = |code: &[u8]| decode(code, 0x1000).expect("an instruction");
        for fence in
            [&[0x0f, 0xae, 0xf0][..], &[0x0f, 0xae, 0xf8], &[0x87, 0x07], &[0xf0, 0xff, 0x07]]
        {
            assert!(of(fence).is_fence, "{fence:x?}");
        }
        assert!(!of(&[0x87, 0xc1]).is_fence, "an exchange of registers");
        let store = of(&[0x48, 0x89, 0x07]);
        assert!(store.writes && !store.reads && !store.spills && !store.is_fence);
        let spill = of(&[0x48, 0x89, 0x44, 0x24, 0x08]);
        assert!(spill.spills);
        let copy = of(&[0xf3, 0xa4]);
        assert!(copy.reads && copy.writes && !copy.spills);
        assert!(of(&[0xe8, 0, 0, 0, 0]).is_call && of(&[0xc3]).is_return);
        let load_address = of(&[0x48, 0x8d, 0x07]);
        assert!(!load_address.reads && !load_address.writes);
        let streams = of(&[0x0f, 0xc3, 0x07]);
        assert!(streams.streams && streams.writes);
    }
}
