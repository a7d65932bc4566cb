//! Options of training, and how many examples it takes.

/// Fewest examples that a part must have: below, batch statistics mean nothing.
pub(super) const FEWEST: usize = 32;

/// Options of training. The default is the published choice, except for the members.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrainOptions {
    /// Fixes weights, order and noise.
    pub seed: u64,
    /// Units of each of the two hidden layers.
    pub hidden: usize,
    /// Share of the hidden values that a step leaves out, below 1.
    pub dropout: f32,
    /// Examples per step.
    pub batch: usize,
    /// Rounds over the training part, at most.
    pub epochs: usize,
    /// Classifiers whose mean the model is; 1 as published. One more costs as much time again.
    pub members: usize,
    /// Adam's.
    pub learning_rate: f32,
}

impl TrainOptions {
    /// Examples of known outcome with which each part of the default shares gets its fewest, as
    /// long as conversations are short: the smallest part is 15 %, and none is cut.
    pub const EXAMPLES_MIN: usize = FEWEST * 15 / 2;
}

impl Default for TrainOptions {
    fn default() -> Self {
        Self {
            seed: 0,
            hidden: 128,
            dropout: 0.3,
            batch: 256,
            epochs: 20,
            members: 3,
            learning_rate: 5e-4,
        }
    }
}
