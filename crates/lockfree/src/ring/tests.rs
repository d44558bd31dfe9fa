use super::*;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_machine::Counted;
use terrace_memory::Domain;
use terrace_memory::{Backing, Region};

mod damage;

fn options(form: Form, slots: u64, slot_bytes: u64) -> RingOptions {
    RingOptions { form, slots, slot_bytes, write_back: false }
}

/// Memory that outlives its ring, and turns.
struct Place {
    memory: Region,
    turns: Region,
}

impl Place {
    fn of(options: &RingOptions, domain: Domain) -> Place {
        let region = |bytes: u64| {
            let region = Region::reserve(bytes, Backing::Anonymous).expect("memory");
            region.commit(0, region.len()).expect("memory");
            region
        };
        let memory = region(options.bytes()).declared(domain);
        Place { memory, turns: region(options.turn_bytes()) }
    }

    fn create(&self, options: RingOptions) -> Ring<Native> {
        Ring::create(self.memory.native(), self.turns.native(), options).expect("a ring")
    }

    fn open(&self, form: Form) -> Result<(Ring<Native>, Recovery), OpenError> {
        Ring::open(self.memory.native(), self.turns.native(), form, false)
    }
}

fn element(number: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|i| (number * 131 + i * 7) as u8).collect()
}

#[test]
fn a_ring_agrees_with_a_queue_for_every_form_length_and_batch() {
    for form in [Form::Volatile, Form::TxFree, Form::Tx] {
        let options = options(form, 13, 64);
        let place = Place::of(&options, Domain::Adr);
        let ring = place.create(options);
        let mut model = VecDeque::new();
        let mut popped = Popped::new();
        for number in 0..3_000u64 {
            let count = (number % 3) as usize;
            let elements: Vec<_> = (0..count)
                .map(|i| element(number, (number as usize * 13 + i * 50) % 190))
                .collect();
            let borrowed: Vec<&[u8]> = elements.iter().map(Vec::as_slice).collect();
            match ring.try_push_all(&borrowed) {
                Ok(_) => model.extend(elements),
                Err(e) => assert_eq!(e, PushError::Full, "{number}"),
            }
            popped.clear();
            let taken = ring.try_pop_many((number % 4) as usize, &mut popped);
            assert_eq!(taken, popped.len());
            let wanted: Vec<Vec<u8>> = model.drain(..taken).collect();
            assert_eq!(popped.iter().collect::<Vec<_>>(), wanted, "{form:?} {number}");
            assert!(taken > 0 || model.is_empty() || number % 4 == 0, "{form:?} {number}");
        }
        drop(ring);
        if form != Form::Volatile {
            let (ring, found) = place.open(form).expect("the ring");
            assert_eq!((found.elements, found.void), (model.len() as u64, 0));
            let left: Vec<_> = std::iter::from_fn(|| ring.try_pop()).collect();
            assert_eq!(left, Vec::from(model));
        }
    }
}

#[test]
fn an_element_that_does_not_fit_is_refused_with_the_limit() {
    let options = options(Form::TxFree, 4, 64);
    let place = Place::of(&options, Domain::Eadr);
    let ring = place.create(options);
    assert_eq!(options.longest_element(), 192);
    let refused = ring.try_push(&[0; 193]);
    assert_eq!(refused, Err(PushError::TooLong { bytes: 193, most: 192 }));
    let refused = ring.try_push_all(&[&[0; 100], &[0; 100]]);
    assert_eq!(refused, Err(PushError::TooMany { slots: 6, most: 4 }));
    assert_eq!(ring.try_push(&[1; 192]), Ok(4));
    assert_eq!(ring.try_push(&[]), Err(PushError::Full));
    assert_eq!(ring.try_pop(), Some(vec![1; 192]));
    assert_eq!(ring.try_push(&[]), Ok(5));
    assert_eq!(ring.try_pop(), Some(vec![]));
    assert_eq!(ring.try_pop(), None);
    drop(ring);
    for (slots, slot_bytes, field) in
        [(1, 64, "slots"), (4, 100, "slot_bytes"), (4, 65536, "slot_bytes")]
    {
        let options = RingOptions { slots, slot_bytes, ..options };
        let refused = Ring::create(place.memory.native(), place.turns.native(), options);
        let refused = refused.expect_err("refused");
        assert!(
            matches!(&refused, OpenError::BadOption { field: f, .. } if *f == field),
            "{refused}"
        );
    }
    let large = RingOptions { slots: 1 << 20, ..options };
    let refused = Ring::create(place.memory.native(), place.turns.native(), large).err();
    assert!(matches!(refused, Some(OpenError::TooSmall { what: "memory", .. })), "{refused:?}");
}

#[test]
fn damage_after_an_orderly_end_is_named() {
    let options = options(Form::TxFree, 8, 64);
    let place = Place::of(&options, Domain::Adr);
    let ring = place.create(options);
    for n in 0..3 {
        ring.try_push(&element(n, 30)).expect("room");
    }
    ring.close();
    let at = ring.at(1) + HEADER_BYTES;
    drop(ring);
    let memory = place.memory.native();
    // SAFETY: a byte of a slot; the ring is gone.
    unsafe { memory.write(at + 3, &[0xff]) };
    let refused = place.open(Form::TxFree).expect_err("damage");
    assert_eq!(
        refused,
        OpenError::Damaged {
            at: at - HEADER_BYTES,
            what: "position 1 should be whole, and is not".into()
        }
    );
    // SAFETY: as above; the mark.
    unsafe { memory.store(MAGIC_AT, 1) };
    assert_eq!(place.open(Form::TxFree).err(), Some(OpenError::NoRing));
    // SAFETY: as above.
    unsafe {
        memory.store(MAGIC_AT, MAGICS[1]);
        memory.store(SLOTS_AT, 7);
    }
    let refused = place.open(Form::TxFree).err();
    assert!(matches!(refused, Some(OpenError::Damaged { at: CHECK_AT, .. })), "{refused:?}");
}

/// Producers push numbered elements in batches, consumers pop them: each once, each producer's in order.
fn race(form: Form, producers: u64, consumers: usize, each: u64) {
    let options = options(form, 64, 128);
    let place = Place::of(&options, Domain::Eadr);
    let ring = Arc::new(place.create(options));
    let left = Arc::new(AtomicU64::new(producers * each));
    let consume = || {
        let (ring, left) = (Arc::clone(&ring), Arc::clone(&left));
        std::thread::spawn(move || {
            let (mut seen, mut popped) = (Vec::new(), Popped::new());
            while left.load(Ordering::Relaxed) > 0 {
                popped.clear();
                let taken = ring.try_pop_many(3, &mut popped);
                left.fetch_sub(taken as u64, Ordering::Relaxed);
                for found in popped.iter() {
                    let word =
                        |at: usize| u64::from_le_bytes(found[at..at + 8].try_into().expect("8"));
                    assert!(found[16..].iter().all(|b| u64::from(*b) == word(8) % 251), "whole");
                    seen.push((word(0), word(8)));
                }
                if taken == 0 {
                    std::thread::yield_now();
                }
            }
            seen
        })
    };
    let takers: Vec<_> = (0..consumers).map(|_| consume()).collect();
    let makers: Vec<_> = (0..producers)
        .map(|producer| {
            let ring = Arc::clone(&ring);
            std::thread::spawn(move || {
                let of = |n: u64| {
                    let mut bytes = vec![(n % 251) as u8; 16 + (n % 300) as usize];
                    bytes[..8].copy_from_slice(&producer.to_le_bytes());
                    bytes[8..16].copy_from_slice(&n.to_le_bytes());
                    bytes
                };
                for n in (0..each).step_by(2) {
                    let (a, b) = (of(n), of(n + 1));
                    while ring.try_push_all(&[&a, &b]).is_err() {
                        std::thread::yield_now();
                    }
                }
            })
        })
        .collect();
    makers.into_iter().for_each(|maker| maker.join().expect("a producer"));
    let mut all = HashMap::<(u64, u64), usize>::new();
    for taker in takers {
        let mut last = HashMap::new();
        for (producer, n) in taker.join().expect("a consumer") {
            *all.entry((producer, n)).or_default() += 1;
            let before = last.insert(producer, n);
            assert!(before.is_none_or(|before| before < n), "{producer}: {n} after {before:?}");
        }
    }
    assert_eq!(all.len() as u64, producers * each);
    assert!(all.values().all(|times| *times == 1));
    assert_eq!(ring.used_slots(), 0);
}

#[test]
fn threads_lose_nothing_double_nothing_and_keep_each_producers_order() {
    for form in [Form::Volatile, Form::TxFree, Form::Tx] {
        race(form, 1, 1, 20_000);
        race(form, 3, 3, 6_000);
    }
}

/// Budgets of persistence, of one element of 4 KiB.
#[test]
fn a_push_and_a_pop_cost_what_they_are_said_to() {
    let payload = 4096;
    for (form, domain, push_fences, pop_fences) in [
        (Form::Volatile, Domain::Adr, 0, 0),
        (Form::TxFree, Domain::Adr, 1, 1),
        (Form::TxFree, Domain::Eadr, 1, 1),
        (Form::Tx, Domain::Adr, 3, 3),
        (Form::Tx, Domain::Eadr, 3, 3),
    ] {
        let options = options(form, 8, 4160);
        let place = Place::of(&options, domain);
        let memory = Counted::new(place.memory.native());
        let ring = Ring::create(memory.clone(), place.turns.native(), options).expect("a ring");
        let bytes = element(1, payload);
        let push = memory.measure(|| ring.try_push(&bytes).expect("room"));
        let pop = memory.measure(|| ring.try_pop().expect("an element"));
        assert_eq!((push.fences, pop.fences), (push_fences, pop_fences), "{form:?} {domain}");
        let written = push.bytes_written + pop.bytes_written;
        if form == Form::TxFree {
            assert_eq!(written, payload as u64 + 24, "1.006 times the payload");
        }
        let lines = match (form, domain) {
            (Form::TxFree, Domain::Adr) => (65, 1),
            (Form::Tx, Domain::Adr) => (65 + 2, 1 + 2),
            _ => (0, 0),
        };
        assert_eq!((push.write_backs, pop.write_backs), lines, "{form:?} {domain}");
    }
}
