//! Calls and returns in their global order, as a list out of which operations are lifted while they
//! are taken, and into which they go back in the reverse order.

/// "No entry": before the head, and behind the last.
pub(super) const END: usize = usize::MAX;
/// The list's head. It stands for no operation.
pub(super) const HEAD: usize = 0;

/// A call or a return in the list.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub operation: usize,
    pub is_return: bool,
    /// In the global order.
    pub place: u64,
    before: usize,
    pub after: usize,
}

/// The entries of all operations, by their places.
pub(super) struct List {
    entries: Vec<Entry>,
    call_of: Vec<usize>,
    /// The entry of each operation's return; `END` where it has none.
    return_of: Vec<usize>,
}

impl List {
    /// A list of `operations`, each given by the places of its call and its return.
    pub fn new(operations: impl ExactSizeIterator<Item = (u64, Option<u64>)>) -> List {
        let mut call_of = vec![END; operations.len()];
        let mut return_of = call_of.clone();
        let mut places: Vec<(u64, usize, bool)> = Vec::with_capacity(operations.len() * 2);
        for (number, (called_at, returned_at)) in operations.enumerate() {
            places.push((called_at, number, false));
            places.extend(returned_at.map(|at| (at, number, true)));
        }
        places.sort_unstable();
        let head = Entry { operation: END, is_return: false, place: 0, before: END, after: END };
        let mut entries = vec![head];
        for (place, operation, is_return) in places {
            let at = entries.len();
            let of = if is_return { &mut return_of } else { &mut call_of };
            of[operation] = at;
            entries[at - 1].after = at;
            entries.push(Entry { operation, is_return, place, before: at - 1, after: END });
        }
        List { entries, call_of, return_of }
    }

    pub fn entry(&self, at: usize) -> Entry {
        self.entries[at]
    }

    /// The entry behind `at`, or `END`.
    pub fn after(&self, at: usize) -> usize {
        self.entries[at].after
    }

    /// Number of operations.
    pub fn operations(&self) -> usize {
        self.return_of.len()
    }

    /// The entry of an operation's call, lifted or not.
    pub fn call_of(&self, operation: usize) -> usize {
        self.call_of[operation]
    }

    /// The entry of an operation's return, lifted or not.
    pub fn return_of(&self, operation: usize) -> usize {
        self.return_of[operation]
    }

    /// Takes an operation out, given the entry of its call.
    pub fn lift(&mut self, call: usize) {
        self.unlink(call);
        let returned = self.return_of[self.entries[call].operation];
        if returned != END {
            self.unlink(returned);
        }
    }

    /// Undoes the last [`List::lift`] not yet undone.
    pub fn unlift(&mut self, call: usize) {
        let returned = self.return_of[self.entries[call].operation];
        if returned != END {
            self.relink(returned);
        }
        self.relink(call);
    }

    fn unlink(&mut self, at: usize) {
        let Entry { before, after, .. } = self.entries[at];
        self.entries[before].after = after;
        if after != END {
            self.entries[after].before = before;
        }
    }

    fn relink(&mut self, at: usize) {
        let Entry { before, after, .. } = self.entries[at];
        self.entries[before].after = at;
        if after != END {
            self.entries[after].before = at;
        }
    }
}
