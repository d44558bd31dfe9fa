//! The parser against arbitrary bytes and arbitrary packets.

use super::*;
use proptest::prelude::*;

const LIMITS: RequestLimits = RequestLimits {
    arguments_max: 16,
    bulk_bytes_max: 64,
    inline_bytes_max: 80,
    unauthenticated: false,
};

/// What a stream comes to: the requests in it, and how it ends.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    requests: Vec<Vec<Vec<u8>>>,
    error: Option<ProtocolError>,
    consumed: usize,
}

/// Feeds `stream` in pieces that end at `cuts`, the way a connection does: consumed bytes go, the
/// rest is shown again with more behind it.
fn parse(stream: &[u8], cuts: &[usize]) -> Outcome {
    let mut parser = Parser::default();
    let mut outcome = Outcome { requests: Vec::new(), error: None, consumed: 0 };
    for end in cuts.iter().copied().chain([stream.len()]) {
        loop {
            let window = &stream[outcome.consumed..end.max(outcome.consumed)];
            match parser.next(window, &LIMITS) {
                Step::Request(len) => {
                    assert!(len > 0 && len <= window.len());
                    let args = parser.args(window).from(0).map(<[u8]>::to_vec).collect();
                    outcome.requests.push(args);
                    outcome.consumed += len;
                }
                Step::Partial(missing) => {
                    assert!(missing > 0);
                    break;
                }
                Step::Bad(error) => {
                    outcome.error = Some(error);
                    return outcome;
                }
            }
        }
    }
    outcome
}

/// Bytes that are nearly the protocol.
fn nearly() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        5 => Just(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nhello\r\n".to_vec()),
        3 => Just(b"PING\r\n".to_vec()),
        2 => Just(b"set a \"b c\"\n".to_vec()),
        1 => Just(b"*".to_vec()),
        1 => Just(b"$".to_vec()),
        1 => Just(b"\r\n".to_vec()),
        1 => Just(b"*-1\r\n".to_vec()),
        1 => Just(b"*2\r\n$4\r\n".to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..12),
        1 => (0i64..200).prop_map(|n| format!("${n}\r\n").into_bytes()),
        1 => (-3i64..200).prop_map(|n| format!("*{n}\r\n").into_bytes()),
    ];
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes_are_survived(stream in proptest::collection::vec(any::<u8>(), 0..300)) {
        parse(&stream, &[]);
    }

    #[test]
    fn cuts_change_nothing(stream in nearly(), cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..20)) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.sort_unstable();
        prop_assert_eq!(parse(&stream, &[]), parse(&stream, &cuts));
    }

    #[test]
    fn requests_come_back_as_written(requests in proptest::collection::vec(
        proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..64), 1..16), 0..8)) {
        let mut stream = Vec::new();
        for request in &requests {
            stream.extend(format!("*{}\r\n", request.len()).bytes());
            for argument in request {
                stream.extend(format!("${}\r\n", argument.len()).bytes());
                stream.extend(argument);
                stream.extend(b"\r\n");
            }
        }
        let every_byte: Vec<usize> = (0..stream.len()).collect();
        let outcome = parse(&stream, &every_byte);
        prop_assert_eq!(outcome.consumed, stream.len());
        prop_assert_eq!(outcome.requests, requests);
        prop_assert_eq!(outcome.error, None);
    }
}

#[test]
fn limits_at_n_and_one_more() {
    let arguments = |n: usize| format!("*{n}\r\n{}", "$1\r\na\r\n".repeat(n)).into_bytes();
    assert_eq!(parse(&arguments(16), &[]).requests.len(), 1);
    assert_eq!(parse(&arguments(17), &[]).error, Some(ProtocolError::ArgumentCount));
    let bulk = |n: usize| format!("*1\r\n${n}\r\n{}\r\n", "a".repeat(n)).into_bytes();
    assert_eq!(parse(&bulk(64), &[]).requests.len(), 1);
    assert_eq!(parse(&bulk(65), &[]).error, Some(ProtocolError::BulkLength));
    let inline = |n: usize| format!("{}\r\n", "a".repeat(n - 1)).into_bytes();
    assert_eq!(parse(&inline(80), &[]).requests.len(), 1);
    assert_eq!(parse(&inline(81), &[]).error, Some(ProtocolError::InlineTooLong));
}

/// `cargo test --release -p terrace-server -- --ignored --nocapture set_costs`
#[test]
#[ignore = "a measurement"]
fn set_costs() {
    let request = b"*3\r\n$3\r\nSET\r\n$16\r\nkey:000000012345\r\n$64\r\n0123456789012345678901234567890123456789012345678901234567890123\r\n";
    let stream = request.repeat(64);
    let mut parser = Parser::default();
    let limits = RequestLimits { bulk_bytes_max: 512 << 20, ..LIMITS };
    for _ in 0..5 {
        let start = std::time::Instant::now();
        let mut bytes = 0;
        for _ in 0..20_000 {
            let mut at = 0;
            while let Step::Request(len) = parser.next(&stream[at..], &limits) {
                bytes += parser.args(&stream[at..]).at(2).len();
                at += len;
            }
        }
        let each = start.elapsed().as_nanos() as f64 / (20_000.0 * 64.0);
        println!("{each:.1} ns per SET ({bytes})");
    }
}
