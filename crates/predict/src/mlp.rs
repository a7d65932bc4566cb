//! The classifier: three layers to one log-odds.
//!
//! ```text
//! row [width] ─► linear ─► ReLU ─► linear ─► ReLU ─► linear ─► log-odds
//!                 128               128               1
//! ```
//!
//! Several that speak together stand side by side: 384, 384, 1, and nothing between the three.
//!
//! Source: Yang et al., "Learned Prefix Caching", NeurIPS 2025: hidden 128, batch normalisation,
//! ReLU, dropout 0.3. Their two outputs under a softmax are one under a sigmoid. What
//! normalisation and the scaling of the input do at inference is a linear map, so it is folded
//! into the layers and this is all that is left of them.

pub(crate) mod adam;
pub(crate) mod network;

use crate::kernel::{AccumulationMode, LeftOperand, product};

/// A trained classifier.
#[derive(Clone, Debug, PartialEq)]
pub struct Mlp {
    pub(crate) layers: [DenseLayer; 3],
}

/// `y = x · weight + bias`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DenseLayer {
    pub(crate) weight: Vec<f32>, // [inputs, outputs]
    pub(crate) bias: Vec<f32>,   // [outputs]
}

impl DenseLayer {
    pub(crate) fn inputs(&self) -> usize {
        self.weight.len() / self.bias.len()
    }

    /// `[rows, inputs]` to `[rows, outputs]`.
    pub(crate) fn forward(&self, x: &[f32]) -> Vec<f32> {
        let outputs = self.bias.len();
        // The product adds to what is there, so the bias costs no pass of its own.
        let mut y = self.bias.repeat(x.len() / self.inputs());
        let x = LeftOperand::rows(x, self.inputs());
        product(x, &self.weight, &mut y, outputs, AccumulationMode::Add);
        y
    }
}

impl Mlp {
    /// The mean of the log-odds of `members`, as one classifier: their hidden values side by side,
    /// and nothing between those of different ones.
    ///
    /// # Panics
    /// When `members` is empty, or their widths differ.
    pub(crate) fn mean(members: &[Self]) -> Self {
        let width = members[0].width();
        assert!(members.iter().all(|member| member.width() == width), "of one width");
        let layers = |index: usize| members.iter().map(move |member| &member.layers[index]);
        let share = 1.0 / members.len() as f32;
        let mut last = DenseLayer {
            weight: layers(2).flat_map(|layer| &layer.weight).copied().collect(),
            bias: vec![layers(2).map(|layer| layer.bias[0]).sum()],
        };
        // The mean is folded into the last layer, so several members cost one pass.
        let scaled = last.weight.iter_mut().chain(&mut last.bias);
        scaled.for_each(|value| *value *= share);
        Self { layers: [beside(layers(0), Inputs::Shared), beside(layers(1), Inputs::Apart), last] }
    }

    /// Values of a row.
    #[must_use]
    pub fn width(&self) -> usize {
        self.layers[0].inputs()
    }

    /// The log-odds of each of `rows`, which are `[n, width]`. Some tens of microseconds a row;
    /// not a number where a row's value is not.
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

/// Whether layers that stand side by side read the same values.
#[derive(Clone, Copy, PartialEq)]
enum Inputs {
    Shared,
    Apart,
}

/// One layer that gives what each of `layers` gives, one after the other.
fn beside<'a>(layers: impl Iterator<Item = &'a DenseLayer> + Clone, inputs: Inputs) -> DenseLayer {
    let outputs: usize = layers.clone().map(|layer| layer.bias.len()).sum();
    let rows = layers.clone().map(DenseLayer::inputs);
    let rows = match inputs {
        Inputs::Shared => rows.max().unwrap_or(0),
        Inputs::Apart => rows.sum(),
    };
    // Zeros keep the members apart: none reads another's hidden values.
    let mut weight = vec![0.0; rows * outputs];
    let (mut row, mut column) = (0, 0);
    for layer in layers.clone() {
        let own = layer.bias.len();
        for (index, values) in layer.weight.chunks_exact(own).enumerate() {
            weight[(row + index) * outputs + column..][..own].copy_from_slice(values);
        }
        column += own;
        if inputs == Inputs::Apart {
            row += layer.inputs();
        }
    }
    DenseLayer { weight, bias: layers.flat_map(|layer| &layer.bias).copied().collect() }
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

#[cfg(test)]
mod tests {
    use headstart_core::Rng;

    use super::*;

    #[test]
    fn a_mean_says_what_its_members_say_on_average() {
        let mut rng = Rng::new(4);
        let mut values = |count: usize| -> Vec<f32> {
            (0..count).map(|_| rng.next_f64() as f32 - 0.5).collect()
        };
        let members = [3, 5, 2].map(|hidden| {
            let sizes = [(4, hidden), (hidden, hidden + 1), (hidden + 1, 1)];
            let layers = sizes.map(|(inputs, outputs)| DenseLayer {
                weight: values(inputs * outputs),
                bias: values(outputs),
            });
            Mlp { layers }
        });
        let rows = values(4 * 7);
        let said = members.each_ref().map(|member| member.log_odds(&rows));
        for (row, got) in Mlp::mean(&members).log_odds(&rows).into_iter().enumerate() {
            let expected = said.iter().map(|said| said[row]).sum::<f32>() / 3.0;
            assert!((got - expected).abs() < 1e-5, "{got} {expected}");
        }
        assert_eq!(Mlp::mean(&members[..1]), members[0]);
    }
}
