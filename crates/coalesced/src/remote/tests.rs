use super::*;

#[test]
fn turns_are_taken_once() {
    let memory = Remote::new(1 << 10, Atomicity::Line, Network::default(), 1).expect("a server");
    memory.take_turns(1, Schedule::Clock);
    memory.context().load(8);
    assert_eq!(memory.ended_round_trips(), 1);
    // Its clients had gone, and the second one's first access said that it had come before.
    memory.take_turns(1, Schedule::Clock);
    memory.context().load(8);
    assert_eq!((memory.steps(), memory.ended_round_trips()), (1, 2));
}

#[test]
fn a_network_of_any_times_does_not_overflow() {
    let network = Network {
        servers: 1,
        round_trip_ns: u64::MAX,
        request_ns: u64::MAX,
        kilobyte_ns: u64::MAX,
    };
    let memory = Remote::new(1 << 10, Atomicity::Word, network, 1).expect("a server");
    let mut context = memory.context();
    for tries in [0, 100] {
        context.get(8, &mut [0; 20], Regime::ElementWise, Method::CopyPointer);
        context.pause(tries);
    }
    assert_eq!(context.clock_ns(), u64::MAX);
}

#[test]
fn a_memory_needs_a_server_and_a_transaction_a_word() {
    let network = Network { servers: 0, ..Network::default() };
    let memory = Remote::new(1 << 10, Atomicity::Word, network, 1);
    assert_eq!(memory.err(), Some(Error::NoServers));
    assert_eq!(crate::Counted::new(crate::Native::new(8), 0).err(), Some(Error::NoWords));
}
