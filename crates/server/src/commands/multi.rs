//! Several keys at once: MGET, MSET, MSETNX.

use super::{Context, Failure, Outcome};
use crate::resp::Args;
use terrace::Session;

/// Keys looked up at a time.
const CHUNK_KEYS: usize = 64;

/// MGET. Each value is one its key had during the command; writers of single keys on other loops
/// are not held off, those of several (MSET, EXEC...) are.
pub(super) fn mget(context: &mut Context<'_>, session: &mut Session, args: Args<'_>) -> Outcome {
    let out = &mut *context.out;
    out.array(args.len() - 1);
    let mut keys = args.from(1);
    let mut hits = 0;
    loop {
        let mut chunk: [&[u8]; CHUNK_KEYS] = [&[]; CHUNK_KEYS];
        let mut len = 0;
        for (place, key) in chunk.iter_mut().zip(keys.by_ref()) {
            *place = key;
            len += 1;
        }
        if len == 0 || out.overflowed() {
            break;
        }
        session.multi_get(&chunk[..len], |_, value| match value {
            Some(value) => {
                hits += 1;
                out.bulk(value.bytes);
            }
            None => out.null(),
        })?;
    }
    context.stats.key_hits.add(hits);
    context.stats.key_misses.add((args.len() as u64 - 1).saturating_sub(hits));
    Ok(())
}

/// The pairs of MSET, or the error for an odd one.
fn pairs<'a>(
    args: Args<'a>,
) -> Result<impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone, Failure> {
    if args.len().is_multiple_of(2) {
        let name = String::from_utf8_lossy(args.at(0)).to_ascii_lowercase();
        return Err(format!("ERR wrong number of arguments for '{name}' command").into());
    }
    Ok((1..args.len()).step_by(2).map(move |i| (args.at(i), args.at(i + 1))))
}

pub(super) fn mset(context: &mut Context<'_>, session: &mut Session, args: Args<'_>) -> Outcome {
    session.multi_put(pairs(args)?)?;
    context.out.ok();
    Ok(())
}

pub(super) fn msetnx(context: &mut Context<'_>, session: &mut Session, args: Args<'_>) -> Outcome {
    let pairs = pairs(args)?;
    for (key, _) in pairs.clone() {
        if session.get(key, |_| ())?.is_some() {
            context.out.integer(0);
            return Ok(());
        }
    }
    session.multi_put(pairs)?;
    context.out.integer(1);
    Ok(())
}
