//! Logistic regression on points that a hidden plane divides. Seeded, so that two runs with one seed are equal.

const FEATURES: usize = 12;
const SAMPLES: usize = 400;
/// Samples of one step.
pub(super) const BATCH: usize = 16;
const RATE: f64 = 0.05;

pub(super) struct Model {
    points: Vec<([f64; FEATURES], f64)>,
    weights: [f64; FEATURES],
}

impl Model {
    pub(super) fn new(seed: u64) -> Self {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let hidden: [f64; FEATURES] = std::array::from_fn(|_| dice.next());
        let points = (0..SAMPLES).map(|_| {
            let point: [f64; FEATURES] = std::array::from_fn(|_| dice.next());
            // Some labels are wrong, as in life.
            let side = dot(&hidden, &point) + dice.next() * 0.3 > 0.0;
            (point, f64::from(u8::from(side)))
        });
        Self { points: points.collect(), weights: [0.0; FEATURES] }
    }

    /// One batch of gradient descent.
    pub(super) fn step(&mut self, number: u64) {
        let mut gradient = [0.0; FEATURES];
        for index in 0..BATCH {
            let sample = (number as usize).wrapping_mul(BATCH).wrapping_add(index) % SAMPLES;
            let (point, label) = &self.points[sample];
            let error = sigmoid(dot(&self.weights, point)) - label;
            for (sum, value) in gradient.iter_mut().zip(point) {
                *sum += error * value;
            }
        }
        for (weight, sum) in self.weights.iter_mut().zip(gradient) {
            *weight -= RATE * sum / BATCH as f64;
        }
    }

    /// Loss and accuracy over everything.
    pub(super) fn quality(&self) -> (f64, f64) {
        let (mut loss, mut right) = (0.0, 0);
        for (point, label) in &self.points {
            let guess = sigmoid(dot(&self.weights, point)).clamp(1e-9, 1.0 - 1e-9);
            loss -= label * guess.ln() + (1.0 - label) * (1.0 - guess).ln();
            right += usize::from((guess > 0.5) == (*label > 0.5));
        }
        (loss / SAMPLES as f64, right as f64 / SAMPLES as f64)
    }

    pub(super) fn weights(&self) -> Vec<f64> {
        self.weights.to_vec()
    }

    pub(super) fn set_weights(&mut self, weights: &[f64]) {
        for (own, given) in self.weights.iter_mut().zip(weights) {
            *own = *given;
        }
    }
}

fn dot(left: &[f64; FEATURES], right: &[f64; FEATURES]) -> f64 {
    left.iter().zip(right).map(|(left, right)| left * right).sum()
}

fn sigmoid(value: f64) -> f64 {
    1.0 / (1.0 + (-value).exp())
}

/// Numbers between minus one and one.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_learns() {
        let mut model = Model::new(1);
        let (loss_before, _) = model.quality();
        (0..2000).for_each(|number| model.step(number));
        let (loss, accuracy) = model.quality();
        assert!(loss < loss_before * 0.8, "{loss_before} {loss}");
        assert!(accuracy > 0.85, "{accuracy}");
    }

    #[test]
    fn equal_seeds_give_equal_models() {
        let trained = |seed| {
            let mut model = Model::new(seed);
            (0..50).for_each(|number| model.step(number));
            model.weights()
        };
        assert_eq!(trained(7), trained(7));
        assert_ne!(trained(7), trained(8));
    }
}
