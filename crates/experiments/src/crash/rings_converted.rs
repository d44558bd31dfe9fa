//! A ring of the first version under crashes while recovery makes it one of the second: whenever that is cut off, the
//! next opening finds the elements that were there, in their order.

use super::exhaustive::Explored;
use super::rings::{Note, element};
use super::{Control, Settings};
use terrace_lockfree::ring::{Step, Steps};
use terrace_lockfree::{Form, Ring, RingOptions};
use terrace_machine::{Crashable, Explorer, Noted};
use terrace_memory::Part;

const OPTIONS: RingOptions =
    RingOptions { form: Form::Tx, slots: 6, slot_bytes: 128, write_back: false };
/// Elements that were pushed, of which the first was popped.
const PUSHED: u64 = 5;

type Crashed = Ring<Part<Crashable>, Part<Crashable>>;

fn places(memory: &Crashable) -> (Part<Crashable>, Part<Crashable>) {
    let (bytes, turns) = (OPTIONS.bytes(), OPTIONS.turn_bytes().next_multiple_of(64));
    (Part::new(memory.clone(), 0, bytes), Part::new(memory.clone(), bytes, turns))
}

fn open(memory: &Crashable, steps: Steps) -> Result<Crashed, String> {
    let (slots, turns) = places(memory);
    let opened = Ring::open_with(slots, turns, Form::Tx, false, steps);
    opened.map(|(ring, _)| ring).map_err(|error| error.to_string())
}

fn with(steps: Steps, domain: terrace_memory::Domain) -> Explorer<Note> {
    let bytes = OPTIONS.bytes() + OPTIONS.turn_bytes().next_multiple_of(64);
    Explorer::new(domain, bytes)
        .setup(|memory| {
            let (slots, turns) = places(memory);
            let mut ring = Ring::create(slots, turns, OPTIONS).expect("a ring");
            for number in 0..PUSHED {
                ring.try_push(&element(number, 40)).expect("room");
            }
            ring.try_pop().expect("an element");
            ring.make_first();
        })
        .thread(move |memory, _| drop(open(memory, steps).expect("the ring")))
        .recover(move |memory| drop(open(memory, steps)))
        .check(move |memory, _: &[Noted<Note>]| {
            let ring = open(memory, steps)?;
            let found: Vec<_> = std::iter::from_fn(|| ring.try_pop()).collect();
            let wanted: Vec<_> = (1..PUSHED).map(|number| element(number, 40)).collect();
            if found == wanted { Ok(()) } else { Err(format!("{} elements", found.len())) }
        })
        .crashes(2)
}

pub(super) fn explorer(settings: &Settings) -> Explorer<Note> {
    with(Steps::ALL, settings.domain)
}

/// The version is stored before all else.
pub(super) fn controls(
    test: &str,
    settings: &Settings,
    tell: &mut dyn FnMut(&Control),
) -> Vec<Control> {
    let steps = Steps::ALL.without(&[Step::VersionLast]);
    let explore = |s: &Settings| with(steps, s.domain).left_out(s);
    let control = Control::of("VersionLast", Step::VersionLast.meaning(), test, settings, explore);
    tell(&control);
    vec![control]
}
