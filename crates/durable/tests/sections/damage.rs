//! Pools that are not what was asked for, and pools that no crash explains.

use super::list;
use super::memory::Words;
use terrace_durable::checksum::Crc;
use terrace_durable::sections::{EngineKind, Error, Options, Pool};
use terrace_memory::Domain;

fn options(engine: EngineKind) -> Options {
    Options::new(engine).pages(4, 2).log_bytes(4 << 10).journal_bytes(1 << 10).layout(7)
}

fn words(engine: EngineKind) -> Vec<u64> {
    let memory = Words::new(128 << 10, Domain::Adr);
    let pool = Pool::create(memory, &options(engine)).expect("a pool");
    for value in 0..20 {
        pool.section(|tx| list::push(tx, value)).expect("pushed");
    }
    pool.close().words()
}

fn open(words: Vec<u64>, domain: Domain, options: &Options) -> Result<Pool<Words>, Error> {
    Pool::open(Words::from(words, domain), options)
}

#[test]
fn another_parameter_is_refused_with_both_values() {
    for engine in EngineKind::ALL {
        let words = words(engine);
        let says = |error: Error, texts: [&str; 2]| {
            let text = error.to_string();
            assert!(texts.iter().all(|part| text.contains(part)), "{text}");
        };
        let other = EngineKind::ALL[engine as usize % 3];
        let wanted = options(other);
        let error = open(words.clone(), Domain::Adr, &wanted).expect_err("engine");
        says(error, [&engine.to_string(), &other.to_string()]);
        let wanted = options(engine).layout(8);
        says(open(words.clone(), Domain::Adr, &wanted).expect_err("layout"), ["layout 7", "was 8"]);
        let error = open(words.clone(), Domain::Eadr, &options(engine)).expect_err("domain");
        says(error, ["domain ADR", "eADR"]);
        let mut longer = words.clone();
        longer.resize(words.len() + 512, 0);
        let error = open(longer, Domain::Adr, &options(engine)).expect_err("size");
        says(error, ["131072", "135168"]);
        let shorter = words[..words.len() - 512].to_vec();
        let error = open(shorter, Domain::Adr, &options(engine)).expect_err("size");
        says(error, ["131072", "126976"]);
        let any = Options::any().layout(7);
        assert_eq!(open(words, Domain::Adr, &any).expect("any engine").engine(), engine);
    }
}

#[test]
fn memory_without_a_pool_is_refused() {
    let options = Options::any();
    let error = open(vec![0; 4096], Domain::Adr, &options).expect_err("nothing");
    assert!(matches!(error, Error::NoPool { found: 0, .. }), "{error}");
    let error = open(vec![!0; 4096], Domain::Adr, &options).expect_err("noise");
    assert!(matches!(error, Error::NoPool { .. }), "{error}");
    let error = open(vec![0; 8], Domain::Adr, &options).expect_err("tiny");
    assert!(matches!(error, Error::MemoryTooSmall { .. }), "{error}");
    for domain in [Domain::PageCache, Domain::None] {
        let error = Pool::create(Words::new(4096, domain), &options).expect_err("domain");
        assert!(matches!(error, Error::NotByteAddressable { .. }), "{error}");
    }
    for bytes in [0, 4096, 64 << 10] {
        let error = Pool::create(Words::new(bytes, Domain::Adr), &options).expect_err("small");
        let Error::MemoryTooSmall { needs_bytes, .. } = error else { panic!("{error}") };
        Pool::create(Words::new(needs_bytes as usize, Domain::Adr), &options).expect("enough");
    }
    for bad in
        [options.clone().pages(0, 1), options.clone().log_bytes(100), options.journal_bytes(64)]
    {
        let error = Pool::create(Words::new(1 << 20, Domain::Adr), &bad).expect_err("option");
        assert!(matches!(error, Error::BadOption { .. }), "{error}");
    }
}

#[test]
fn another_version_is_refused_with_both_values() {
    let mut words = words(EngineKind::Undo);
    for copy in [0, 256] {
        words[copy + 1] += 1;
        let bytes: Vec<u8> = words[copy..copy + 7].iter().flat_map(|w| w.to_le_bytes()).collect();
        words[copy + 7] = Crc::new(0x504f_4f4c).update(&bytes).finish().into();
    }
    let error = open(words, Domain::Adr, &options(EngineKind::Undo)).expect_err("version");
    assert!(error.to_string().contains("version 2, asked for was 1"), "{error}");
}

#[test]
fn a_damaged_head_is_named_and_its_copy_serves_read_only() {
    for engine in EngineKind::ALL {
        for word in 1..8 {
            let mut words = words(engine);
            words[word] ^= 1 << 17;
            let error = open(words.clone(), Domain::Adr, &options(engine)).expect_err("damaged");
            assert!(matches!(error, Error::Damaged { at: 0, .. }), "{error}");
            let memory = Words::from(words, Domain::Adr);
            let pool = Pool::open_read_only(memory, &options(engine)).expect("read-only");
            assert_eq!(pool.recovery().damage.len(), 1);
            let values = pool.section(|tx| list::values(tx)).expect("values");
            assert_eq!(values.len(), 20);
            let refused = pool.section(|tx| list::push(tx, 1));
            assert_eq!(refused, Err(Error::ReadOnly));
        }
    }
}

/// Any one bit of the journal of a pool that was closed: recovery refuses, or nothing is lost.
#[test]
fn a_flipped_bit_in_a_journal_loses_nothing_unnoticed() {
    for engine in EngineKind::ALL {
        let words = words(engine);
        let expected: Vec<u64> = (0..20).rev().collect();
        let (mut named, mut harmless) = (0, 0);
        // Everything between the head and the heap.
        for word in 512..512 + 1500 {
            let mut flipped = words.clone();
            flipped[word] ^= 1 << (word * 7 % 64);
            match open(flipped.clone(), Domain::Adr, &options(engine)) {
                Err(Error::Damaged { at, .. }) => {
                    assert!(at >= 4096, "{at}");
                    named += 1;
                    let memory = Words::from(flipped.clone(), Domain::Adr);
                    let pool = Pool::open_read_only(memory, &options(engine)).expect("the rest");
                    assert!(!pool.recovery().damage.is_empty());
                    assert_eq!(pool.memory().words(), flipped, "read-only changes nothing");
                }
                Err(other) => panic!("{engine} {word}: {other}"),
                Ok(pool) => {
                    harmless += 1;
                    // The metadata of the heap, where it begins among these words, is not journalled.
                    if let Ok(values) =
                        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                            pool.section(|tx| list::values(tx)).expect("values")
                        }))
                        && pool.check().is_ok()
                    {
                        assert_eq!(values, expected, "{word}");
                    }
                }
            }
        }
        println!("{engine}: {named} flips named, {harmless} harmless");
        assert!(named > 0, "{engine}");
    }
}

#[test]
fn an_interrupted_section_is_observed_but_not_changed_read_only() {
    for engine in EngineKind::ALL {
        let memory = Words::new(128 << 10, Domain::Eadr);
        let pool = Pool::create(memory, &options(engine)).expect("a pool");
        pool.section(|tx| list::push(tx, 1)).expect("pushed");
        let values = pool.section(|tx| list::values(tx)).expect("values");
        let mut interrupted = Vec::new();
        pool.section(|tx| {
            list::push(tx, 2)?;
            interrupted = pool.memory().words();
            Ok::<_, Error>(())
        })
        .expect("a section");
        let memory = Words::from(interrupted.clone(), Domain::Eadr);
        let seen = Pool::open_read_only(memory, &options(engine)).expect("opens");
        assert_eq!(seen.section(|tx| list::values(tx)).expect("values"), values);
        assert_eq!(seen.memory().words(), interrupted, "{engine}");
        assert_eq!(seen.recovery().rolled_back, u64::from(engine == EngineKind::Undo));
        assert_eq!(seen.maintain(), Err(Error::ReadOnly));
        let pool = Pool::open(seen.close(), &options(engine)).expect("opens for writing");
        assert_eq!(pool.section(|tx| list::values(tx)).expect("values"), values);
    }
}
