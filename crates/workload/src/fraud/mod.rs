//! The card-fraud benchmark: transactions that ask a small neural network before they commit (Miller, section 3.5).
//!
//! Users pay by card, each near one of four places. A payment is to be refused if it is too far from the one before: a
//! database reads that, a [`Network`] is asked, and what was decided is written, all in one transaction. How often two
//! payments of a user meet follows from the number of users.
//!
//! The paper tells the spread of payments, the limit and the shape of the network; the four places, the scales of the
//! inputs and the training are ours.

mod network;

pub use network::{INPUTS, Network, OUTPUTS, Training, answers};

use crate::random::{Rng, mix};

/// Two payments of a user that are further apart are held to be of two people, in kilometres.
pub const FAR_KM: f32 = 300.0;
/// Radius of the earth, in kilometres.
const EARTH_KM: f32 = 6371.0;
/// Where users live: latitude and longitude in degrees.
const HOMES: [Place; 4] = [
    Place { latitude: 40.7, longitude: -74.0 },
    Place { latitude: 41.9, longitude: -87.6 },
    Place { latitude: 34.1, longitude: -118.2 },
    Place { latitude: 29.8, longitude: -95.4 },
];

/// A place on the earth, in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    /// Degrees north.
    pub latitude: f32,
    /// Degrees east.
    pub longitude: f32,
}

impl Place {
    /// How a store keeps it.
    ///
    /// ```
    /// use terrace_workload::fraud::Place;
    /// let place = Place { latitude: 40.7, longitude: -74.0 };
    /// assert_eq!(Place::decode(&place.encode()), Some(place));
    /// ```
    pub fn encode(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&self.latitude.to_le_bytes());
        bytes[4..].copy_from_slice(&self.longitude.to_le_bytes());
        bytes
    }

    /// What [`Place::encode`] made; nothing of other bytes.
    pub fn decode(bytes: &[u8]) -> Option<Place> {
        let (latitude, longitude) = bytes.split_first_chunk::<4>()?;
        let longitude = longitude.try_into().ok()?;
        let (latitude, longitude) = (f32::from_le_bytes(*latitude), f32::from_le_bytes(longitude));
        Some(Place { latitude, longitude })
    }

    /// The distance along the surface, in kilometres.
    ///
    /// ```
    /// use terrace_workload::fraud::Place;
    /// let paris = Place { latitude: 48.86, longitude: 2.35 };
    /// let london = Place { latitude: 51.51, longitude: -0.13 };
    /// assert!((340.0..348.0).contains(&paris.km_to(london)));
    /// ```
    pub fn km_to(self, other: Place) -> f32 {
        let radians = |place: Place| (place.latitude.to_radians(), place.longitude.to_radians());
        let ((north, east), (other_north, other_east)) = (radians(self), radians(other));
        let half = |one: f32, other: f32| ((one - other) / 2.0).sin().powi(2);
        let chord =
            half(north, other_north) + north.cos() * other_north.cos() * half(east, other_east);
        2.0 * EARTH_KM * chord.sqrt().min(1.0).asin()
    }
}

/// Whether a payment at `now` is to be refused after one at `before`: what the network is to learn.
pub fn is_fraud(before: Place, now: Place) -> bool {
    before.km_to(now) > FAR_KM
}

/// What the network is told of a payment and the one before: their distance and both places, each about 1 in size.
pub fn features(before: Place, now: Place) -> [f32; INPUTS] {
    let scaled = |place: Place| (place.latitude / 90.0, place.longitude / 180.0);
    let ((north, east), (now_north, now_east)) = (scaled(before), scaled(now));
    [before.km_to(now) / FAR_KM, north, now_north, east, now_east]
}

/// A payment by card.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Payment {
    /// Who pays.
    pub user: u64,
    /// Its number, of this source of payments.
    pub number: u64,
    /// Where.
    pub place: Place,
}

/// A source of payments.
#[derive(Clone, Debug)]
pub struct Payments {
    users: u64,
    next: u64,
    rng: Rng,
}

impl Payments {
    /// Payments of so many users (one at least), each as likely as any other. All follow from `seed`.
    ///
    /// ```
    /// use terrace_workload::fraud::Payments;
    /// let paid: Vec<_> = Payments::new(10, 1).take(3).collect();
    /// assert!(paid.iter().all(|payment| payment.user < 10));
    /// assert_eq!(paid, Payments::new(10, 1).take(3).collect::<Vec<_>>());
    /// ```
    pub fn new(users: u64, seed: u64) -> Payments {
        Payments { users: users.max(1), next: 0, rng: Rng::new(seed) }
    }

    /// A payment of this user.
    pub fn of(&mut self, user: u64) -> Payment {
        let home = HOMES[(mix(user) % 4) as usize];
        let (north, east) = normal(&mut self.rng);
        let place = Place { latitude: home.latitude + north, longitude: home.longitude + east };
        self.next += 1;
        Payment { user, number: self.next - 1, place }
    }
}

impl Iterator for Payments {
    type Item = Payment;

    fn next(&mut self) -> Option<Payment> {
        let user = self.rng.below(self.users);
        Some(self.of(user))
    }
}

/// Two independent numbers of the normal distribution, by Box and Muller.
fn normal(rng: &mut Rng) -> (f32, f32) {
    let (radius, turn) = (1.0 - rng.unit(), rng.unit() * std::f64::consts::TAU);
    let radius = (-2.0 * radius.ln()).sqrt();
    ((radius * turn.cos()) as f32, (radius * turn.sin()) as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payments_are_spread_as_told_and_some_are_fraud() {
        const COUNT: usize = 40_000;
        let paid: Vec<Payment> = Payments::new(1000, 3).take(COUNT).collect();
        let (mut sum, mut squares, mut homes) = (0.0, 0.0, [0; 4]);
        for payment in &paid {
            let home = (mix(payment.user) % 4) as usize;
            homes[home] += 1;
            let away = f64::from(payment.place.latitude - HOMES[home].latitude);
            (sum, squares) = (sum + away, squares + away * away);
        }
        let (mean, variance) = (sum / COUNT as f64, squares / COUNT as f64);
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
        assert!(homes.iter().all(|count| (7_000..13_000).contains(count)), "{homes:?}");
        let mut source = Payments::new(4, 4);
        let is_fraud = |user| is_fraud(source.of(user).place, source.of(user).place);
        let fraud = (0..COUNT as u64).map(is_fraud).filter(|is_fraud| *is_fraud).count();
        // Two normal distances in each direction, of a hundred kilometres and less: an eighth is beyond the limit.
        assert!((0.05..0.2).contains(&(fraud as f64 / COUNT as f64)), "{fraud}");
    }
}
