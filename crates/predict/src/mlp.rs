//! The classifier: three layers to one log-odds.
//!
//! ```text
//! row [width] ─► linear ─► ReLU ─► linear ─► ReLU ─► linear ─► log-odds
//!                 128               128               1
//! ```
//!
//! Source: Yang et al., "Learned Prefix Caching", NeurIPS 2025: hidden 128, batch normalisation,
//! ReLU, dropout 0.3. Their two outputs under a softmax are one under a sigmoid. What
//! normalisation and the scaling of the input do at inference is a linear map, so it is folded
//! into the layers and this is all that is left of them.

pub(crate) mod adam;
pub(crate) mod network;

use crate::kernel::{Left, Write, product};

/// A trained classifier.
#[derive(Clone, Debug, PartialEq)]
pub struct Mlp {
    pub(crate) layers: [Linear; 3],
}

/// `y = x · weight + bias`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Linear {
    pub(crate) weight: Vec<f32>, // [inputs, outputs]
    pub(crate) bias: Vec<f32>,   // [outputs]
}

impl Linear {
    pub(crate) fn inputs(&self) -> usize {
        self.weight.len() / self.bias.len()
    }

    /// `[rows, inputs]` to `[rows, outputs]`.
    pub(crate) fn forward(&self, x: &[f32]) -> Vec<f32> {
        let outputs = self.bias.len();
        let mut y = self.bias.repeat(x.len() / self.inputs());
        let x = Left::rows(x, self.inputs());
        product(x, &self.weight, &mut y, outputs, Write::Add);
        y
    }
}

impl Mlp {
    /// Values of a row.
    #[must_use]
    pub fn width(&self) -> usize {
        self.layers[0].inputs()
    }

    /// The log-odds of each of `rows`, which are `[n, width]`. Some microseconds a row; not a
    /// number where a row's value is not.
    ///
    /// # Panics
    /// When `rows` are not whole rows.
    #[must_use]
    pub fn log_odds(&self, rows: &[f32]) -> Vec<f32> {
        assert!(rows.len().is_multiple_of(self.width()), "whole rows");
        let mut hidden = self.layers[0].forward(rows);
        relu(&mut hidden);
        hidden = self.layers[1].forward(&hidden);
        relu(&mut hidden);
        self.layers[2].forward(&hidden)
    }
}

/// Keeps what is not a number, so that it is seen at the end.
pub(crate) fn relu(values: &mut [f32]) {
    for value in values {
        if *value < 0.0 {
            *value = 0.0;
        }
    }
}

/// `1 / (1 + e^-x)`.
pub(crate) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}
