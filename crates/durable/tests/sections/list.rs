//! The least persistent structure there is: a list of numbers, the newest first.

use terrace_durable::plain;
use terrace_durable::sections::{Offset, Result, Root, Tx};
use terrace_memory::Memory;

plain! {
    struct Link {
        value: u64,
        next: Offset<Link>,
    }
}

const HEAD: Root<Link> = Root::new(0);

pub fn push<M: Memory>(tx: &mut Tx<'_, M>, value: u64) -> Result<()> {
    let next = tx.root(HEAD)?;
    let link = tx.create(&Link { value, next })?;
    tx.set_root(HEAD, link)
}

/// The numbers, and the objects they lie in.
pub fn walk<M: Memory>(tx: &Tx<'_, M>) -> Result<(Vec<u64>, Vec<u64>)> {
    let (mut values, mut objects) = (Vec::new(), Vec::new());
    let mut at = tx.root(HEAD)?;
    while !at.is_null() {
        assert!(objects.len() < 1 << 20, "no ring");
        let link = tx.get(at)?;
        values.push(link.value);
        objects.push(at.at());
        at = link.next;
    }
    Ok((values, objects))
}

pub fn values<M: Memory>(tx: &Tx<'_, M>) -> Result<Vec<u64>> {
    Ok(walk(tx)?.0)
}
