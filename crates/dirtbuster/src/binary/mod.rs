//! Everything that reads programs: their symbols and lines, their instructions, what kind of file they are.

mod decode;
mod file;
mod program;
mod symbols;

pub use decode::{Instruction, InstructionSets, decode};
pub use program::{Program, ProgramError};
pub use symbols::Symbols;
