//! What finds keys in an ordered map: the leaves of a tree, of one of several forms, or delta chains in logs.

use std::fmt;
use std::str::FromStr;
use terrace_index::tree::Form as LeafForm;

/// The form of an ordered map's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeForm {
    /// A B+-tree whose leaves are nodes, changed where they lie.
    Leaves(LeafForm),
    /// A B+-tree whose leaves are chains of deltas in parallel logs (btree-LS, Ni): kept, and written in
    /// order; a lookup reads several places instead of one node.
    Logs,
}

impl TreeForm {
    /// Every form.
    pub const ALL: [TreeForm; 7] = [
        TreeForm::Leaves(LeafForm::Sorted),
        TreeForm::Leaves(LeafForm::Unsorted),
        TreeForm::Leaves(LeafForm::WriteAhead),
        TreeForm::Leaves(LeafForm::FastFair),
        TreeForm::Leaves(LeafForm::PersistentUnsorted),
        TreeForm::Leaves(LeafForm::Rows),
        TreeForm::Logs,
    ];

    /// Its row of the table of forms: name in settings, whether it outlives its process, whether the product makes it.
    fn row(self) -> (&'static str, bool, bool) {
        match self {
            TreeForm::Leaves(form) => {
                let is_product = matches!(form, LeafForm::Rows | LeafForm::FastFair);
                (form.name(), form.is_persistent(), is_product)
            }
            TreeForm::Logs => ("btree-ls", true, true),
        }
    }

    /// What it is called in settings.
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// Whether it is to be found after a crash.
    pub fn is_persistent(self) -> bool {
        self.row().1
    }

    /// Whether the product makes indexes of this form. A persistent one of another form is rebuilt from the values when
    /// its map is opened without asking for it.
    pub fn is_product(self) -> bool {
        self.row().2
    }
}

impl From<LeafForm> for TreeForm {
    fn from(form: LeafForm) -> TreeForm {
        TreeForm::Leaves(form)
    }
}

impl fmt::Display for TreeForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for TreeForm {
    type Err = String;
    fn from_str(name: &str) -> Result<TreeForm, String> {
        let names = TreeForm::ALL.map(TreeForm::name).join(", ");
        let known = TreeForm::ALL.into_iter().find(|form| form.name() == name);
        known.ok_or_else(|| format!("\"{name}\" is no form of tree; there are {names}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_has_a_name_and_another_is_refused_with_the_names() {
        let forms = LeafForm::ALL.map(TreeForm::from);
        assert!(forms.into_iter().chain([TreeForm::Logs]).eq(TreeForm::ALL));
        for form in TreeForm::ALL {
            assert_eq!(form.name().parse(), Ok(form));
        }
        let refused = "btree-log".parse::<TreeForm>().expect_err("no form");
        assert!(refused.contains("fast-fair") && refused.contains("btree-ls"), "{refused}");
    }
}
