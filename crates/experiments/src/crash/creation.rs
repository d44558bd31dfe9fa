//! A pool made over an old one: a crash leaves the old one whole, none, or the new one, never a
//! mixture.

use super::Settings;
use crate::structures::{RedBlackTree, Structure};
use terrace_durable::sections::{EngineKind, Error, Options, Pool};
use terrace_machine::{Crashable, Explorer, Noted};

const MEMORY_BYTES: u64 = 64 << 10;
const KEYS: u64 = 9;

/// What may be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RootVersion {
    Old,
    Nothing,
    New,
}

fn options(engine: EngineKind) -> Options {
    Options::new(engine).pages(4, 2).log_bytes(4 << 10).journal_bytes(512)
}

fn look(memory: &Crashable, options: &Options) -> Result<RootVersion, String> {
    let pool = match Pool::open(memory.clone(), options) {
        Err(Error::NoPool { found: 0, .. }) => return Ok(RootVersion::Nothing),
        other => other.map_err(|e| e.to_string())?,
    };
    let (contents, objects) = pool
        .section(|tx| Ok::<_, Error>((RedBlackTree::contents(tx)?, RedBlackTree::objects(tx)?)))
        .map_err(|e| e.to_string())?;
    pool.check_reachable(objects)?;
    match contents.len() as u64 {
        0 => Ok(RootVersion::New),
        KEYS => Ok(RootVersion::Old),
        other => Err(format!("{other} keys, neither of the old pool nor of the new one")),
    }
}

pub(super) fn explorer(engine: EngineKind, settings: &Settings) -> Explorer<()> {
    explorer_telling(engine, settings, |_| {})
}

/// `tell` hears what each state was found to hold.
fn explorer_telling(
    engine: EngineKind,
    settings: &Settings,
    tell: impl Fn(RootVersion) + Send + Sync + 'static,
) -> Explorer<()> {
    Explorer::new(settings.domain, MEMORY_BYTES)
        .setup(move |memory| {
            let pool = Pool::create(memory.clone(), &options(engine)).expect("the old one");
            pool.section(RedBlackTree::create).expect("a tree");
            let toggle = |key| pool.section(|tx| RedBlackTree::toggle(tx, key, key));
            (0..KEYS).for_each(|key| toggle(key).expect("toggled"));
            pool.close();
        })
        .thread(move |memory, log| {
            Pool::create(memory.clone(), &options(engine)).expect("the new one");
            log.note(());
        })
        .recover(move |memory| {
            look(memory, &options(engine)).expect("the old pool, none or the new one");
        })
        .check(move |memory, notes: &[Noted<()>]| {
            let found = look(memory, &options(engine))?;
            tell(found);
            if found == RootVersion::New || notes.is_empty() {
                return Ok(());
            }
            Err(format!("{found:?} although the new pool was acknowledged"))
        })
        .crashes(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use terrace_memory::Domain;

    /// A test that only ever saw one outcome would prove little.
    #[test]
    fn the_states_hold_the_old_pool_and_none_and_the_new_one() {
        static SEEN: [[AtomicU64; 3]; 3] = [const { [const { AtomicU64::new(0) }; 3] }; 3];
        for (engine, seen) in EngineKind::ALL.into_iter().zip(&SEEN) {
            let settings = Settings { states: 300, seed: 1, domain: Domain::Adr };
            let tell = |found| {
                seen[found as usize].fetch_add(1, Relaxed);
            };
            explorer_telling(engine, &settings, tell).sampled(300, 1).assert_sound();
            assert!(seen.iter().all(|count| count.load(Relaxed) > 0), "{engine}: {seen:?}");
        }
    }
}
