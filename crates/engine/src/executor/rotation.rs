//! Rotary position embedding.
//!
//! Source: Su et al., "RoFormer"; the half-split pairing (dimension i with i + dim / 2) of the
//! Hugging Face checkpoints; Llama 3.1's wavelength scaling.

use crate::ModelConfig;
use crate::config::Llama3Rope;

/// Cosines and sines of a batch's positions; shared by all layers and heads.
#[derive(Debug)]
pub struct Rotation {
    half: usize,
    turns: Vec<(f32, f32)>, // [rows, half]
}

impl Rotation {
    /// For rows at these positions.
    #[must_use]
    pub fn of_positions(config: &ModelConfig, positions: impl Iterator<Item = usize>) -> Self {
        let frequencies = frequencies(config);
        let turns = positions.flat_map(|position| {
            frequencies.iter().map(move |frequency| {
                // The angle is rounded to f32, as in the checkpoints' own code.
                let (sin, cos) = f64::from(position as f32 * frequency).sin_cos();
                (cos as f32, sin as f32)
            })
        });
        Self { half: config.head_dim / 2, turns: turns.collect() }
    }

    /// Rotates the consecutive heads in `heads` to the position of `row`.
    pub fn apply(&self, row: usize, heads: &mut [f32]) {
        let turns = &self.turns[row * self.half..(row + 1) * self.half];
        for head in heads.chunks_exact_mut(2 * self.half) {
            let (low, high) = head.split_at_mut(self.half);
            for ((x, y), (cos, sin)) in low.iter_mut().zip(high).zip(turns) {
                (*x, *y) = (*x * cos - *y * sin, *y * cos + *x * sin);
            }
        }
    }
}

fn frequencies(config: &ModelConfig) -> Vec<f32> {
    let dim = config.head_dim;
    let plain = (0..dim / 2).map(|i| 1.0 / config.rope.theta.powf((2 * i) as f32 / dim as f32));
    match config.rope.llama3 {
        None => plain.collect(),
        Some(scaling) => plain.map(|frequency| stretch(frequency, &scaling)).collect(),
    }
}

fn stretch(frequency: f32, scaling: &Llama3Rope) -> f32 {
    let wavelength = 2.0 * std::f32::consts::PI / frequency;
    // Turns within the first training context. A small number means a long wavelength.
    let turns = scaling.original_context / wavelength;
    if turns < scaling.low {
        frequency / scaling.factor
    } else if turns > scaling.high {
        frequency
    } else {
        let kept = (turns - scaling.low) / (scaling.high - scaling.low);
        (1.0 - kept) * frequency / scaling.factor + kept * frequency
    }
}
