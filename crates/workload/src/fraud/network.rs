//! The network that is asked about a payment: 5 inputs, 128 hidden units (ReLU), 2 outputs (sigmoid), trained on
//! payments that are drawn for it.

use super::{Payments, features, is_fraud};
use crate::random::Rng;

/// Numbers that it is told of a payment.
pub const INPUTS: usize = 5;
const HIDDEN: usize = 128;
/// How much it holds a payment for honest, and how much for fraud: 0 to 1 each.
pub const OUTPUTS: usize = 2;

/// Where each matrix begins among the weights.
const HIDDEN_BIAS: usize = HIDDEN * INPUTS;
const OUTPUT: usize = HIDDEN_BIAS + HIDDEN;
const OUTPUT_BIAS: usize = OUTPUT + OUTPUTS * HIDDEN;
const WEIGHTS: usize = OUTPUT_BIAS + OUTPUTS;

/// How a network is trained.
#[derive(Clone, Copy, Debug)]
pub struct Training {
    /// What all follows from.
    pub seed: u64,
    /// Pairs of payments that it learns from.
    pub examples: usize,
    /// How often it sees each.
    pub rounds: usize,
}

impl Default for Training {
    fn default() -> Training {
        Training { seed: 1, examples: 20_000, rounds: 8 }
    }
}

/// A dense network of single precision. Its weights are one vector, which a device has after one copy.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    weights: Vec<f32>,
}

impl Network {
    /// One that has learned nothing: small random weights.
    fn new(rng: &mut Rng) -> Network {
        let mut weights = vec![0.0; WEIGHTS];
        let mut fill = |range: std::ops::Range<usize>, inputs: usize| {
            let most = (6.0 / inputs as f32).sqrt();
            weights[range].iter_mut().for_each(|w| *w = most * (2.0 * rng.unit() as f32 - 1.0));
        };
        fill(0..HIDDEN_BIAS, INPUTS);
        fill(OUTPUT..OUTPUT_BIAS, HIDDEN);
        Network { weights }
    }

    /// One that has learned from drawn payments: the same for equal settings.
    ///
    /// ```
    /// use terrace_workload::fraud::{Network, Training};
    /// let network = Network::trained(&Training { examples: 100, rounds: 1, ..Training::default() });
    /// let [honest, fraud] = network.ask(&[0.1, 0.4, 0.4, 0.3, 0.3]);
    /// assert!((0.0..=1.0).contains(&honest) && (0.0..=1.0).contains(&fraud));
    /// ```
    pub fn trained(training: &Training) -> Network {
        let mut rng = Rng::new(training.seed);
        let mut network = Network::new(&mut rng);
        let examples = drawn(training.examples, &mut rng);
        let mut adam = Adam::new();
        const TOGETHER: usize = 32;
        for round in 0..training.rounds {
            // Smaller steps towards the end.
            let step = 0.004 * (1.0 - round as f32 / training.rounds as f32);
            for some in examples.chunks(TOGETHER) {
                let mut slopes = vec![0.0; WEIGHTS];
                some.iter().for_each(|(input, is)| network.add_slopes(input, *is, &mut slopes));
                adam.step(&mut network.weights, &slopes, some.len(), step);
            }
        }
        network
    }

    /// The weights, matrix by matrix: hidden units by inputs, their biases, outputs by hidden units, their biases.
    pub fn weights(&self) -> &[f32] {
        &self.weights
    }

    /// What it holds of one payment: for honest, for fraud. 896 multiplications.
    pub fn ask(&self, input: &[f32; INPUTS]) -> [f32; OUTPUTS] {
        answers(&self.weights, input)
    }

    /// Whether it holds a payment for fraud.
    pub fn suspects(&self, input: &[f32; INPUTS]) -> bool {
        let [honest, fraud] = self.ask(input);
        fraud > honest
    }

    /// Of how many of `count` payments, drawn by `seed`, it says what is so: 0 to 1.
    pub fn accuracy(&self, count: usize, seed: u64) -> f64 {
        let examples = drawn(count, &mut Rng::new(seed));
        let right = examples.iter().filter(|(input, is)| self.suspects(input) == *is).count();
        right as f64 / count.max(1) as f64
    }

    /// Adds how the loss (the cross-entropy of each output) of one example changes with each weight.
    fn add_slopes(&self, input: &[f32; INPUTS], is_fraud: bool, slopes: &mut [f32]) {
        let hidden = hidden(&self.weights, input);
        let outputs = outputs(&self.weights, &hidden);
        let wanted = [f32::from(!is_fraud), f32::from(is_fraud)];
        let mut of_hidden = [0.0; HIDDEN];
        for (output, (found, wanted)) in outputs.iter().zip(wanted).enumerate() {
            let error = found - wanted;
            let row = OUTPUT + output * HIDDEN;
            for (unit, active) in hidden.iter().enumerate() {
                slopes[row + unit] += error * active;
                of_hidden[unit] += error * self.weights[row + unit];
            }
            slopes[OUTPUT_BIAS + output] += error;
        }
        for (unit, error) in of_hidden.iter().enumerate().filter(|(unit, _)| hidden[*unit] > 0.0) {
            for (slope, input) in slopes[unit * INPUTS..].iter_mut().zip(input) {
                *slope += error * input;
            }
            slopes[HIDDEN_BIAS + unit] += error;
        }
    }

    /// The loss of one example.
    #[cfg(test)]
    fn loss(&self, input: &[f32; INPUTS], is_fraud: bool) -> f32 {
        let [honest, fraud] = self.ask(input);
        let (right, wrong) = if is_fraud { (fraud, honest) } else { (honest, fraud) };
        -right.ln() - (1.0 - wrong).ln()
    }
}

/// What a network with these weights ([`Network::weights`]) holds of one payment: for honest, for fraud.
///
/// ```
/// use terrace_workload::fraud::{Network, Training, answers};
/// let network = Network::trained(&Training { examples: 100, rounds: 1, ..Training::default() });
/// let payment = [0.1, 0.4, 0.4, 0.3, 0.3];
/// assert_eq!(answers(network.weights(), &payment), network.ask(&payment));
/// ```
///
/// # Panics
/// If they are not as many as a network has.
pub fn answers(weights: &[f32], input: &[f32; INPUTS]) -> [f32; OUTPUTS] {
    assert_eq!(weights.len(), WEIGHTS, "weights of the network");
    outputs(weights, &hidden(weights, input))
}

fn hidden(weights: &[f32], input: &[f32; INPUTS]) -> [f32; HIDDEN] {
    let rows = weights[..HIDDEN_BIAS].as_chunks::<INPUTS>().0;
    let mut hidden = [0.0; HIDDEN];
    for ((unit, row), bias) in hidden.iter_mut().zip(rows).zip(&weights[HIDDEN_BIAS..]) {
        let sum: f32 = row.iter().zip(input).map(|(weight, input)| weight * input).sum();
        *unit = (sum + bias).max(0.0);
    }
    hidden
}

fn outputs(weights: &[f32], hidden: &[f32; HIDDEN]) -> [f32; OUTPUTS] {
    let rows = weights[OUTPUT..OUTPUT_BIAS].as_chunks::<HIDDEN>().0;
    let mut outputs = [0.0; OUTPUTS];
    for ((output, row), bias) in outputs.iter_mut().zip(rows).zip(&weights[OUTPUT_BIAS..]) {
        let sum: f32 = row.iter().zip(hidden).map(|(weight, unit)| weight * unit).sum();
        *output = 1.0 / (1.0 + (-sum - bias).exp());
    }
    outputs
}

/// What is told of pairs of payments of one user, and which are fraud.
fn drawn(count: usize, rng: &mut Rng) -> Vec<([f32; INPUTS], bool)> {
    let mut payments = Payments::new(1, rng.bits());
    let pair = |number: usize| {
        let user = number as u64;
        let (before, now) = (payments.of(user).place, payments.of(user).place);
        (features(before, now), is_fraud(before, now))
    };
    (0..count).map(pair).collect()
}

/// The descent of Kingma and Ba (ICLR 2015), with their constants.
struct Adam {
    mean: Vec<f32>,
    square: Vec<f32>,
    steps: i32,
}

impl Adam {
    fn new() -> Adam {
        Adam { mean: vec![0.0; WEIGHTS], square: vec![0.0; WEIGHTS], steps: 0 }
    }

    fn step(&mut self, weights: &mut [f32], slopes: &[f32], examples: usize, step: f32) {
        const MEAN: f32 = 0.9;
        const SQUARE: f32 = 0.999;
        self.steps += 1;
        let unbiased =
            step * (1.0 - SQUARE.powi(self.steps)).sqrt() / (1.0 - MEAN.powi(self.steps));
        let moments = self.mean.iter_mut().zip(&mut self.square);
        for ((weight, slope), (mean, square)) in weights.iter_mut().zip(slopes).zip(moments) {
            let slope = slope / examples as f32;
            *mean = MEAN * *mean + (1.0 - MEAN) * slope;
            *square = SQUARE * *square + (1.0 - SQUARE) * slope * slope;
            *weight -= unbiased * *mean / (square.sqrt() + 1e-8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_are_those_of_the_loss() {
        let mut rng = Rng::new(5);
        let network = Network::new(&mut rng);
        for (input, is) in drawn(4, &mut rng) {
            let mut slopes = vec![0.0; WEIGHTS];
            network.add_slopes(&input, is, &mut slopes);
            for at in (0..WEIGHTS).step_by(17).chain([OUTPUT_BIAS, WEIGHTS - 1]) {
                const SIDE: f32 = 1e-2;
                let moved = |by: f32| {
                    let mut moved = network.clone();
                    moved.weights[at] += by;
                    moved.loss(&input, is)
                };
                let measured = (moved(SIDE) - moved(-SIDE)) / (2.0 * SIDE);
                assert!((measured - slopes[at]).abs() < 0.02, "{at}: {measured} {}", slopes[at]);
            }
        }
    }

    #[test]
    fn it_learns_what_is_fraud_and_the_same_each_time() {
        let training = Training::default();
        let network = Network::trained(&training);
        let accuracy = network.accuracy(10_000, 77);
        assert!(accuracy >= 0.98, "{accuracy} of payments that it has not seen");
        // One that saw nothing says no more than the share of honest payments.
        let untaught = Network::trained(&Training { rounds: 0, ..training });
        assert!(untaught.accuracy(10_000, 77) < 0.95, "{}", untaught.accuracy(10_000, 77));
        let few = Training { examples: 500, rounds: 2, ..training };
        assert_eq!(Network::trained(&few), Network::trained(&few));
        assert_ne!(Network::trained(&few), Network::trained(&Training { seed: 2, ..few }));
        assert_eq!(network.weights().len(), 1026);
    }
}
