//! Adam: a step along each parameter's mean gradient, measured in its mean size.
//!
//! Source: Kingma and Ba, "Adam: a method for stochastic optimization", ICLR 2015, with its
//! constants; decay of the weights apart from the gradient as in Loshchilov and Hutter, "Decoupled
//! weight decay regularization", ICLR 2019.

const BETA_1: f32 = 0.9;
const BETA_2: f32 = 0.999;
const EPSILON: f32 = 1e-8;

/// Rates that scale a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OptimizerRates {
    /// Learning rate.
    pub(crate) learning: f32,
    /// Share of a weight that a step takes away, times the learning rate.
    pub(crate) decay: f32,
}

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

    /// The `step`-th step, from 1.
    pub(crate) fn step(
        &mut self,
        values: &mut [f32],
        gradient: &[f32],
        step: i32,
        rate: OptimizerRates,
    ) {
        // The means start at 0, so early ones are too small by this factor.
        let size = rate.learning / (1.0 - BETA_1.powi(step));
        let unbias = 1.0 / (1.0 - BETA_2.powi(step));
        let keep = 1.0 - rate.learning * rate.decay;
        let means = self.mean.iter_mut().zip(&mut self.square);
        for ((value, gradient), (mean, square)) in values.iter_mut().zip(gradient).zip(means) {
            *mean = BETA_1 * *mean + (1.0 - BETA_1) * gradient;
            *square = BETA_2 * *square + (1.0 - BETA_2) * gradient * gradient;
            *value = *value * keep - size * *mean / ((*square * unbias).sqrt() + EPSILON);
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
                let rate = OptimizerRates { learning: 0.01, decay: 0.0 };
                adam.step(&mut value, &[gradient], step, rate);
            }
            let expected = 1.0 - 0.1 * gradient.signum();
            assert!((value[0] - expected).abs() < 1e-4, "{value:?}");
        }
    }

    #[test]
    fn weights_without_a_gradient_decay() {
        let mut value = [1.0];
        let rate = OptimizerRates { learning: 0.1, decay: 0.5 };
        Adam::new(1).step(&mut value, &[0.0], 1, rate);
        assert!((value[0] - 0.95).abs() < 1e-6);
    }
}
