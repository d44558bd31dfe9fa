//! The three forms of a ring by name.

use std::fmt;
use std::str::FromStr;

/// How a ring is made durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// By a transaction with an undo log around every push and pop: the paper's form for ADR, kept to compare
    /// with. In byte-addressable memory alone.
    Tx,
    /// By the order of its stores: the sequence word of a slot comes last.
    #[default]
    TxFree,
    /// Not at all.
    Volatile,
}

impl Form {
    /// All of them.
    pub const ALL: [Form; 3] = [Form::Tx, Form::TxFree, Form::Volatile];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Form::Tx => "tx",
            Form::TxFree => "tx-free",
            Form::Volatile => "volatile",
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Form {
    type Err = String;

    fn from_str(text: &str) -> Result<Form, String> {
        let found = Form::ALL.into_iter().find(|form| form.name() == text);
        found.ok_or_else(|| format!("`{text}` is none of tx, tx-free, volatile"))
    }
}
