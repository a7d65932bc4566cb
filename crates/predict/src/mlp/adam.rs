//! Adam: a step along each parameter's mean gradient, measured in its mean size.
//!
//! Source: Kingma and Ba, "Adam: a method for stochastic optimization", ICLR 2015, with its
//! constants.

const BETA_1: f32 = 0.9;
const BETA_2: f32 = 0.999;
const EPSILON: f32 = 1e-8;

/// The running means of one tensor's gradient.
#[derive(Clone, Debug)]
pub(crate) struct Adam {
    mean: Vec<f32>,
    square: Vec<f32>,
}

impl Adam {
    pub(crate) fn new(len: usize) -> Self {
        Self { mean: vec![0.0; len], square: vec![0.0; len] }
    }

    /// The `step`-th step, from 1, at a learning rate.
    pub(crate) fn step(&mut self, values: &mut [f32], gradient: &[f32], step: i32, rate: f32) {
        // The means start at 0, so early ones are too small by this factor.
        let size = rate / (1.0 - BETA_1.powi(step));
        let unbias = 1.0 / (1.0 - BETA_2.powi(step));
        let means = self.mean.iter_mut().zip(&mut self.square);
        for ((value, gradient), (mean, square)) in values.iter_mut().zip(gradient).zip(means) {
            *mean = BETA_1 * *mean + (1.0 - BETA_1) * gradient;
            *square = BETA_2 * *square + (1.0 - BETA_2) * gradient * gradient;
            *value -= size * *mean / ((*square * unbias).sqrt() + EPSILON);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand from the paper's algorithm 1: with a constant gradient each step is the rate.
    #[test]
    fn a_constant_gradient_moves_by_the_learning_rate_whatever_its_size() {
        for gradient in [1e-3f32, 7.0, -7.0] {
            let mut adam = Adam::new(1);
            let mut value = [1.0];
            for step in 1..=10 {
                adam.step(&mut value, &[gradient], step, 0.01);
            }
            let expected = 1.0 - 0.1 * gradient.signum();
            assert!((value[0] - expected).abs() < 1e-4, "{value:?}");
        }
    }
}
