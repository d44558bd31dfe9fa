//! `snapkv-olda`: a neural network is asked within transactions (Miller, figures 3.3 and 3.4).
//!
//! The card-fraud benchmark of [`terrace_workload::fraud`] as a procedure: a block on the processor reads the payment
//! before, a device block asks the network, a block on the processor writes the payment and what was decided. The
//! device is the processor ([`Device::here`]), or threads that a trip leads to ([`Device::workers`]). The control does
//! the same in parts, as a store without such transactions would: then payments are decided on by another than the one
//! before them.

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::error::Error;
use crate::reproduce::measure::Samples;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_store::{Durability, Error as StoreError, Kind, Map, MapOptions, Moments, Range, Transaction};
use terrace_transact::device::{Device, Kernel, Resident};
use terrace_transact::{Procedure, ProcedureError};
use terrace_workload::fraud::{
    INPUTS, Network, OUTPUTS, Payment, Payments, Place, Training, answers, features,
};

pub(super) const ROW: Row = Row {
    id: "snapkv-olda",
    source: "Miller, figures 3.3 and 3.4",
    runs_on: "native; gpu: not built",
    must_show: "the abort rate falls with the number of users; a snapshot of 1,000 more records costs little, one of \
                10,000 does; every decision is on the payment before",
    run,
};

const CLIENTS: u64 = 4;
const USERS: [u64; 5] = [1, 10, 100, 1_000, 100_000];
/// Users where more records are read.
const MANY: u64 = 100_000;
/// More records that a payment's snapshot has.
const RECORDS: [u64; 4] = [0, 100, 1_000, 10_000];
/// Threads of the device that a trip leads to, and a device's memory.
const WORKERS: usize = 2;
const DEVICE_BYTES: u64 = 64 << 20;
/// Payments of the network's test.
const TESTED: usize = 20_000;

/// The last payment of a user: how many there were, and where it was.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Last {
    count: u64,
    place: Place,
}

impl Last {
    fn encode(self) -> Vec<u8> {
        [&self.count.to_le_bytes()[..], &self.place.encode()].concat()
    }

    fn decode(bytes: &[u8]) -> Option<Last> {
        let (count, place) = bytes.split_first_chunk()?;
        Some(Last { count: u64::from_le_bytes(*count), place: Place::decode(place)? })
    }
}

/// Keys of the three kinds of records.
fn last_of(user: u64) -> Vec<u8> {
    [b"last ", &user.to_be_bytes()[..]].concat()
}

fn paid(user: u64, number: u64) -> Vec<u8> {
    [b"paid ", &user.to_be_bytes()[..], &number.to_be_bytes()].concat()
}

fn older(number: u64) -> Vec<u8> {
    [b"older ", &number.to_be_bytes()[..]].concat()
}

/// Asks the network about a payment.
static ASK: Kernel = Kernel::new("ask", |launch| {
    let (weights, input) = (launch.read::<f32>(0), launch.read::<[f32; INPUTS]>(1));
    launch.write::<[f32; OUTPUTS]>(0)[0] = answers(weights, &input[0]);
});

/// How a payment is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// As a procedure, whose device is the processor.
    Here,
    /// As a procedure, whose device is so many threads.
    Workers,
    /// A transaction reads, the network is asked, another one writes.
    InParts,
}

/// A payment, and how many records more are read.
type Asked = (Payment, u64);

struct Bank<'n> {
    _dir: tempfile::TempDir,
    moments: Arc<Moments>,
    map: Map,
    network: &'n Network,
    pay: Procedure<Asked, ()>,
    way: Way,
}

impl<'n> Bank<'n> {
    fn open(network: &'n Network, way: Way) -> Result<Bank<'n>> {
        let dir = tempfile::tempdir().map_err(Error::system("make a directory"))?;
        let moments = Arc::<Moments>::default();
        let options = MapOptions {
            kind: Kind::Ordered,
            durability: Durability::None,
            writers: CLIENTS as usize,
            moments: Arc::clone(&moments),
            ..MapOptions::default()
        };
        let map = Map::open(dir.path(), options)?;
        let most = RECORDS[RECORDS.len() - 1];
        for (number, payment) in (0..most).zip(Payments::new(MANY, 9)) {
            map.put(&older(number), &payment.place.encode())?;
        }
        let device = match way {
            Way::Here | Way::InParts => Device::here(DEVICE_BYTES),
            Way::Workers => Device::workers(WORKERS, DEVICE_BYTES)?,
        };
        let weights = device.keep(network.weights())?;
        let pay = procedure(Arc::clone(&moments), map.clone(), device, weights);
        Ok(Bank { _dir: dir, moments, map, network, pay, way })
    }

    /// How often it was refused for another payment that came first, until it was done.
    fn pay(&self, asked: &Asked) -> Result<u64> {
        let mut refused = 0;
        loop {
            let paid = match self.way {
                Way::Here | Way::Workers => self.pay.try_call(asked),
                Way::InParts => self.pay_in_parts(&asked.0).map_err(ProcedureError::from),
            };
            match paid {
                Ok(()) => return Ok(refused),
                Err(ProcedureError::Store(StoreError::Conflict { .. })) => refused += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn pay_in_parts(&self, payment: &Payment) -> std::result::Result<(), StoreError> {
        let mut transaction: Transaction = self.moments.begin();
        let found = transaction.get(&self.map, &last_of(payment.user))?;
        let before = found.as_deref().and_then(Last::decode);
        let input = before.map(|before| features(before.place, payment.place));
        let is_suspect = input.is_some_and(|input| self.network.suspects(&input));
        let mut transaction = self.moments.begin();
        write(&mut transaction, &self.map, payment, before, is_suspect)?;
        transaction.commit()
    }

    /// Pays by all clients for so long; a payment that was refused is tried again.
    fn serve(&self, users: u64, records: u64, time: Duration) -> Result<Served> {
        let client = |seed: u64| -> Result<Served> {
            let (mut served, until) = (Served::default(), Instant::now() + time);
            for payment in Payments::new(users, 100 + seed) {
                let start = Instant::now();
                if start >= until {
                    break;
                }
                served.refused += self.pay(&(payment, records))?;
                served.took_us.push(start.elapsed().as_secs_f64() * 1e6);
            }
            Ok(served)
        };
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS).map(|seed| scope.spawn(move || client(seed))).collect();
            let mut all = Served::default();
            for client in clients {
                let served = client.join().expect("invariant: clients return what is wrong")?;
                all.refused += served.refused;
                all.took_us.extend(served.took_us);
            }
            let stats = self.pay.stats();
            all.synchronisations = stats.device_blocks;
            all.runs = stats.runs;
            all.took_us.sort_by(f64::total_cmp);
            all.seconds = time.as_secs_f64();
            Ok(all)
        })
    }

    /// Of what was served: payments that are lost, or were decided on by another than the one before.
    fn wrong(&self, served: &Served) -> Result<u64> {
        let mut counts = BTreeMap::new();
        let mut places: BTreeMap<Vec<u8>, (Place, bool)> = BTreeMap::new();
        self.map.snapshot().for_each(|key, value| {
            if key.starts_with(b"last ") {
                counts.insert(key[5..].to_vec(), Last::decode(value.bytes).map_or(0, |last| last.count));
            } else if key.starts_with(b"paid ")
                && let Some(place) = Place::decode(&value.bytes[..8])
            {
                places.insert(key[5..].to_vec(), (place, value.bytes[8] == 1));
            }
        })?;
        let mut wrong = (served.took_us.len() as u64).abs_diff(counts.values().sum());
        for (user, count) in counts {
            let mut before = None;
            for number in 0..count {
                let key = [&user[..], &number.to_be_bytes()].concat();
                let Some((place, is_suspect)) = places.get(&key) else {
                    wrong += 1;
                    continue;
                };
                let expected = before.is_some_and(|before| self.network.suspects(&features(before, *place)));
                wrong += u64::from(expected != *is_suspect);
                before = Some(*place);
            }
        }
        Ok(wrong)
    }
}

/// The payment as a procedure.
fn procedure(moments: Arc<Moments>, map: Map, device: Device, weights: Resident) -> Procedure<Asked, ()> {
    Procedure::new("pay", moments, device, move |call, (payment, records): &Asked| {
        let last = last_of(payment.user);
        let (from, to) = (older(0), older(*records));
        let more: [Range<'_>; 1] = [Range::from(&from[..]..&to[..])];
        let more = &more[..usize::from(*records > 0)];
        let found = call.snapshot(&map, &[&last], more)?;
        let before = found.iter().find(|(asked, ..)| *asked == 0);
        let before = before.and_then(|(_, _, value)| Last::decode(value));
        let input = before.map_or([0.0; INPUTS], |before| features(before.place, payment.place));
        let mut answer = [0.0; OUTPUTS];
        call.device(|block| {
            // Three copies, however many records there are.
            if *records > 0 {
                block.copy_in(&found.keys)?;
                block.copy_in(&found.values)?;
                let ends = found.index.iter().flat_map(|end| [end.asked, end.key_end, end.value_end]);
                block.copy_in(&ends.collect::<Vec<_>>())?;
            }
            let input = block.copy_in(&[input])?;
            let answers = block.alloc::<f32>(OUTPUTS)?;
            block.launch(&ASK, &[(&weights).into(), input.into()], &[answers.into()])?;
            block.copy_out(answers, &mut answer)
        })?;
        let [honest, fraud] = answer;
        let is_suspect = before.is_some() && fraud > honest;
        Ok::<(), ProcedureError>(write(call, &map, payment, before, is_suspect)?)
    })
}

/// Writes the payment, what was decided, and that it is its user's last one.
fn write(
    transaction: &mut Transaction,
    map: &Map,
    payment: &Payment,
    before: Option<Last>,
    is_suspect: bool,
) -> std::result::Result<(), StoreError> {
    let count = before.map_or(0, |before| before.count);
    let next = Last { count: count + 1, place: payment.place };
    let decided = [&payment.place.encode()[..], &[u8::from(is_suspect)]].concat();
    transaction.put(map, &last_of(payment.user), &next.encode())?;
    transaction.put(map, &paid(payment.user, count), &decided)
}

#[derive(Clone, Debug, Default)]
struct Served {
    refused: u64,
    /// Of the procedure.
    runs: u64,
    synchronisations: u64,
    /// Of each payment that was done, sorted.
    took_us: Vec<f64>,
    seconds: f64,
}

impl Served {
    fn refused_percent(&self) -> f64 {
        100.0 * self.refused as f64 / (self.refused + self.took_us.len() as u64).max(1) as f64
    }

    fn thousand_s(&self) -> f64 {
        self.took_us.len() as f64 / self.seconds / 1e3
    }

    fn percentile_us(&self, percent: usize) -> f64 {
        let at = self.took_us.len() * percent / 100;
        self.took_us.get(at.min(self.took_us.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
    }
}

/// Medians.
#[derive(Clone, Debug, Default)]
struct Counted {
    accuracy: f64,
    /// By number of users, in percent.
    refused: Vec<f64>,
    /// With the processor as the device, and with workers.
    here: Costs,
    workers: Costs,
    wrong: u64,
    wrong_in_parts: u64,
}

/// By number of records: medians.
#[derive(Clone, Debug, Default)]
struct Costs {
    thousand_s: Vec<f64>,
    p50_us: Vec<f64>,
    p99_us: Vec<f64>,
}

impl Costs {
    /// Throughput over that without more records.
    fn kept(&self, at: usize) -> f64 {
        self.thousand_s[at] / self.thousand_s[0]
    }

    /// Processor time of a payment with so many records, in us: all processors are busy.
    fn processor_us(&self, at: usize) -> f64 {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        (CLIENTS as usize).min(processors) as f64 * 1e3 / self.thousand_s[at]
    }

    /// What a record more costs of that.
    fn record_ns(&self) -> f64 {
        (self.processor_us(3) - self.processor_us(0)) * 1e3 / RECORDS[3] as f64
    }
}

fn run(run: &Run<'_>) -> Result<Outcome> {
    let time = Duration::from_millis(run.size(3_000, 300));
    let rounds = run.size(5, 3);
    (run.tell)("train the network");
    let network = Network::trained(&Training::default());
    let mut counted = Counted { accuracy: network.accuracy(TESTED, 77), ..Counted::default() };
    for users in USERS {
        (run.tell)(&format!("{users} users"));
        let mut refused = Samples::default();
        for _ in 0..rounds {
            let bank = Bank::open(&network, Way::Here)?;
            let served = bank.serve(users, 0, time)?;
            refused.push(served.refused_percent());
            counted.wrong += bank.wrong(&served)?;
        }
        counted.refused.push(refused.median());
    }
    let ways = [Way::Here, Way::Workers];
    let mut samples = ways.map(|_| RECORDS.map(|_| [(); 3].map(|()| Samples::default())));
    for round in 0..rounds {
        // In turn: what disturbs one disturbs all.
        for (way, samples) in ways.into_iter().zip(&mut samples) {
            for (records, samples) in RECORDS.into_iter().zip(samples) {
                (run.tell)(&format!("{records} more records, round {}, {way:?}", round + 1));
                let bank = Bank::open(&network, way)?;
                let served = bank.serve(MANY, records, time)?;
                samples[0].push(served.thousand_s());
                samples[1].push(served.percentile_us(50));
                samples[2].push(served.percentile_us(99));
                counted.wrong += bank.wrong(&served)?;
            }
        }
    }
    for (costs, samples) in [&mut counted.here, &mut counted.workers].into_iter().zip(samples) {
        for [thousand_s, p50_us, p99_us] in samples {
            costs.thousand_s.push(thousand_s.median());
            costs.p50_us.push(p50_us.median());
            costs.p99_us.push(p99_us.median());
        }
    }
    (run.tell)("in parts");
    let bank = Bank::open(&network, Way::InParts)?;
    let served = bank.serve(1, 0, time)?;
    counted.wrong_in_parts = bank.wrong(&served)?;
    let mut outcome = judge(&counted);
    outcome.size("clients", CLIENTS);
    outcome.size("threads of the device `workers`", WORKERS);
    outcome.size("run", format!("{} ms", time.as_millis()));
    outcome.size("repetitions", rounds);
    Ok(outcome)
}

fn judge(counted: &Counted) -> Outcome {
    let mut outcome = Outcome::default();
    let rises = counted.refused.windows(2).filter(|pair| pair[1] > pair[0]).count();
    let last = counted.refused.last().copied().unwrap_or(f64::NAN);
    let (here, workers) = (&counted.here, &counted.workers);
    outcome.checks.extend([
        Check::at_least("accuracy of the network on payments that it has not seen", "none told", counted.accuracy, 0.98),
        Check::at_most("numbers of users at which more is refused than with fewer", "0", rises as f64, 0.0).order(),
        Check::at_most("refused with 100,000 users, in percent", "falls", last, 1.0),
        Check::at_least("throughput with 100 more records over none, device here", "1", here.kept(1), 0.9),
        Check::at_least("the same, device of workers", "1", workers.kept(1), 0.9),
        Check::at_least("throughput with 1,000 more records over none, device here", "about 1", here.kept(2), 0.8),
        Check::at_least("the same, device of workers", "about 1", workers.kept(2), 0.8),
        Check::at_most("throughput with 10,000 more records over none, device of workers", "drops", workers.kept(3), 0.8).order(),
        Check::at_most("p99 with 10,000 more records, in ms", "20, of the industry", workers.p99_us[3] / 1e3, 20.0),
        Check::at_most("payments lost, or decided on by another than the one before", "0", counted.wrong as f64, 0.0).order(),
        Check::at_least("control: the same, done in parts", "none told", counted.wrong_in_parts as f64, 1.0).order(),
    ]);
    // A knee: what 1,000 records cost is little beside what 10,000 do.
    let knee = (workers.kept(2) - workers.kept(3)) / (1.0 - workers.kept(2));
    let what = "throughput lost from 1,000 more records to 10,000 over that lost up to 1,000, device of workers";
    outcome.checks.push(Check::at_least(what, "above 1", knee, 1.0).order());
    outcome.note = format!(
        "A payment takes {:.0} us of processor time where the device is the processor itself, and {:.0} us where a \
         trip leads to workers ({CLIENTS} clients, more than there may be processors). The paper's trip to a GPU and \
         back hides what a snapshot costs; here a record more costs {:.0} ns of processor time, which nothing hides. \
         The extra records are of one range, read page by page, and copied to the device as three vectors, which the \
         network does not look at. A payment that is refused is tried again at once. The paper does not say which \
         records meet: here each payment also writes its user's last one.",
        here.processor_us(0),
        workers.processor_us(0),
        here.record_ns(),
    );
    let title = "Payments refused by number of users";
    let figure = Figure::new(title, "users", "%", FigureKind::Lines).over(USERS.map(|users| users as f64));
    outcome.figures.push(figure.with("refused", counted.refused.iter().copied()));
    let records = RECORDS.map(|records| records as f64);
    let title = "Payments by records of their snapshot";
    let figure = Figure::new(title, "more records", "thousand a second", FigureKind::Lines).over(records);
    let figure = figure.with("device here", here.thousand_s.iter().copied());
    outcome.figures.push(figure.with("device of workers", workers.thousand_s.iter().copied()));
    let title = "Time of a payment by records of its snapshot";
    let figure = Figure::new(title, "more records", "us", FigureKind::Lines).over(records);
    let figure = figure.with("here, p50", here.p50_us.iter().copied());
    let figure = figure.with("here, p99", here.p99_us.iter().copied());
    let figure = figure.with("workers, p50", workers.p50_us.iter().copied());
    outcome.figures.push(figure.with("workers, p99", workers.p99_us.iter().copied()));
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_are_on_the_payment_before_and_in_parts_they_are_not() {
        let network = Network::trained(&Training { examples: 2_000, rounds: 2, ..Training::default() });
        let time = Duration::from_millis(300);
        for way in [Way::Here, Way::Workers] {
            let bank = Bank::open(&network, way).expect("a bank");
            let served = bank.serve(3, 10, time).expect("payments");
            assert!(served.took_us.len() > 100, "{} and {} refused", served.took_us.len(), served.refused);
            assert_eq!(bank.wrong(&served).expect("read"), 0);
            assert_eq!(served.synchronisations, served.runs);
        }
        let wrong = (0..20).any(|_| {
            let bank = Bank::open(&network, Way::InParts).expect("a bank");
            let served = bank.serve(1, 0, time).expect("payments");
            bank.wrong(&served).expect("read") > 0
        });
        assert!(wrong, "the control");
    }

    #[test]
    fn what_rises_or_costs_too_much_is_a_miss() {
        let costs = Costs {
            thousand_s: vec![100.0, 99.0, 90.0, 30.0],
            p50_us: vec![10.0, 11.0, 12.0, 40.0],
            p99_us: vec![20.0, 21.0, 22.0, 90.0],
        };
        let good = Counted {
            accuracy: 0.99,
            refused: vec![50.0, 10.0, 1.0, 0.1, 0.0],
            here: costs.clone(),
            workers: costs.clone(),
            wrong: 0,
            wrong_in_parts: 5,
        };
        let missed = |counted: &Counted| judge(counted).checks.iter().filter(|check| !check.pass).count();
        assert_eq!(missed(&good), 0);
        let rises = Counted { refused: vec![50.0, 10.0, 11.0, 0.1, 0.0], ..good.clone() };
        let slow = Costs { thousand_s: vec![100.0, 80.0, 50.0, 90.0], ..costs };
        let slow_here = Counted { here: slow.clone(), ..good.clone() };
        let slow_there = Counted { workers: slow, ..good.clone() };
        let wrong = Counted { wrong: 1, wrong_in_parts: 0, ..good };
        assert_eq!([&rises, &slow_here, &slow_there, &wrong].map(missed), [1, 2, 4, 2]);
    }
}
