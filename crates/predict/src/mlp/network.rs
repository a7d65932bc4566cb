//! The classifier while it learns: forward with noise, backward, fold.
//!
//! ```text
//! x ─► scale ─► linear ─► normalise ─► ReLU ─► drop ─► (again) ─► linear ─► log-odds ─► loss
//! ```
//!
//! Source: batch normalisation as in Ioffe and Szegedy, ICML 2015; dropout as in Srivastava et
//! al., JMLR 2014 (survivors scaled up, so that inference needs nothing).
//!
//! Invariant: [`TrainingNetwork::fold`] gives what [`TrainingNetwork::evaluate`] gives, but for
//! rounding.

use headstart_core::Rng;

use super::adam::Adam;
use super::{DenseLayer, Mlp, sigmoid};
use crate::kernel::{AccumulationMode, LeftOperand, product};

/// Keeps the division by a standard deviation finite.
const EPSILON: f32 = 1e-5;
/// Weight of a batch in the running statistics, once there were enough of them.
const MOMENTUM: f32 = 0.1;

/// Sizes and noise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NetworkShape {
    pub(crate) width: usize,
    pub(crate) hidden: usize,
    /// Share of the hidden values that a training step leaves out.
    pub(crate) dropout: f32,
}

/// `scaled = (x - mean) · scale`, per column; a column that never varied has scale 0.
#[derive(Clone, Debug)]
pub(crate) struct Scaling {
    pub(crate) mean: Vec<f32>,
    pub(crate) scale: Vec<f32>,
}

/// A batch: rows that are scaled already, whether each continued, and what its error weighs.
pub(crate) struct ExampleBatch<'a> {
    pub(crate) rows: &'a [f32], // [n, width]
    pub(crate) targets: &'a [bool],
    /// Of an ended one, of a continued one.
    pub(crate) class_weights: [f32; 2],
}

/// The classifier while it learns: its layers with their optimizers.
#[derive(Clone, Debug)]
pub(crate) struct TrainingNetwork {
    shape: NetworkShape,
    hidden: [HiddenLayer; 2],
    output: DenseLayer,
    output_adam: [Adam; 2],
    steps: i32,
}

/// A hidden layer.
#[derive(Clone, Debug)]
struct HiddenLayer {
    linear: DenseLayer,
    gain: Vec<f32>,
    shift: Vec<f32>,
    running_mean: Vec<f32>,
    running_variance: Vec<f32>,
    adam: [Adam; 4],
}

/// Values of a hidden layer's forward pass that its backward pass needs.
struct Trace {
    normal: Vec<f32>,    // [n, hidden], before gain and shift
    deviation: Vec<f32>, // [hidden], 1 / standard deviation
    output: Vec<f32>,    // [n, hidden], behind ReLU and drop
    /// Factor of each value after the normalisation: 0 or `1 / (1 - dropout)`.
    mask: Vec<f32>, // [n, hidden]
}

/// A linear layer's gradient, and the same for gain and shift.
struct Gradient {
    weight: Vec<f32>,
    bias: Vec<f32>,
}

impl TrainingNetwork {
    /// Fresh weights, uniform within `1 / sqrt(inputs)` as PyTorch's linear layers have them.
    pub(crate) fn new(shape: NetworkShape, rng: &mut Rng) -> Self {
        let hidden = shape.hidden;
        Self {
            shape,
            hidden: [
                HiddenLayer::new(shape.width, hidden, rng),
                HiddenLayer::new(hidden, hidden, rng),
            ],
            output: fresh(hidden, 1, rng),
            output_adam: [Adam::new(hidden), Adam::new(1)],
            steps: 0,
        }
    }

    /// One step; the loss before it.
    pub(crate) fn step(&mut self, batch: &ExampleBatch<'_>, rate: f32, rng: &mut Rng) -> f64 {
        let n = batch.targets.len();
        let masks = [(); 2].map(|()| drop_mask(n * self.shape.hidden, self.shape.dropout, rng));
        let (loss, gradients, output) = self.gradients(batch, masks, Statistics::Update);
        self.steps += 1;
        let step = self.steps;
        for (layer, [linear, normal]) in self.hidden.iter_mut().zip(gradients) {
            let [weight, bias, gain, shift] = &mut layer.adam;
            weight.step(&mut layer.linear.weight, &linear.weight, step, rate);
            bias.step(&mut layer.linear.bias, &linear.bias, step, rate);
            gain.step(&mut layer.gain, &normal.weight, step, rate);
            shift.step(&mut layer.shift, &normal.bias, step, rate);
        }
        let [weight, bias] = &mut self.output_adam;
        weight.step(&mut self.output.weight, &output.weight, step, rate);
        bias.step(&mut self.output.bias, &output.bias, step, rate);
        loss
    }

    /// The loss, the gradients of the hidden layers (linear, normalisation) and of the last one.
    fn gradients(
        &mut self,
        batch: &ExampleBatch<'_>,
        masks: [Vec<f32>; 2],
        statistics: Statistics,
    ) -> (f64, [[Gradient; 2]; 2], Gradient) {
        let [first_mask, second_mask] = masks;
        let [first, second] = &mut self.hidden;
        let first_trace = first.forward(batch.rows, first_mask, statistics);
        let second_trace = second.forward(&first_trace.output, second_mask, statistics);
        let log_odds = self.output.forward(&second_trace.output);
        let (loss, mut slope) = loss_and_slope(&log_odds, batch);

        let output = linear_gradient(&second_trace.output, &slope, 1);
        slope = input_slope(&self.output, &slope);
        let second_gradients = second.backward(&first_trace.output, &second_trace, &mut slope);
        slope = input_slope(&second.linear, &slope);
        let first_gradients = first.backward(batch.rows, &first_trace, &mut slope);
        (loss, [first_gradients, second_gradients], output)
    }

    /// The weighted loss on `batch` without noise, by the running statistics.
    pub(crate) fn evaluate(&self, batch: &ExampleBatch<'_>) -> f64 {
        // Evaluated as it will be used, so the checkpoint is chosen by the folded network.
        let mlp = self.fold_layers();
        loss_and_slope(&mlp.log_odds(batch.rows), batch).0
    }

    /// Folds the normalisation and `scaling` into the weights, for inference on unscaled rows.
    pub(crate) fn fold(&self, scaling: &Scaling) -> Mlp {
        let mut mlp = self.fold_layers();
        let DenseLayer { weight, bias } = &mut mlp.layers[0];
        let columns = weight.chunks_exact_mut(bias.len());
        for ((column, mean), scale) in columns.zip(&scaling.mean).zip(&scaling.scale) {
            for (weight, bias) in column.iter_mut().zip(bias.iter_mut()) {
                *weight *= scale;
                *bias -= *weight * mean;
            }
        }
        mlp
    }

    fn fold_layers(&self) -> Mlp {
        let [first, second] = &self.hidden;
        Mlp { layers: [first.fold(), second.fold(), self.output.clone()] }
    }
}

/// Whether a forward pass is remembered for inference.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Statistics {
    Update,
    #[cfg(test)]
    Keep,
}

impl HiddenLayer {
    fn new(inputs: usize, outputs: usize, rng: &mut Rng) -> Self {
        Self {
            linear: fresh(inputs, outputs, rng),
            gain: vec![1.0; outputs],
            shift: vec![0.0; outputs],
            running_mean: vec![0.0; outputs],
            running_variance: vec![1.0; outputs],
            adam: [inputs * outputs, outputs, outputs, outputs].map(Adam::new),
        }
    }

    fn forward(&mut self, x: &[f32], mut mask: Vec<f32>, statistics: Statistics) -> Trace {
        let outputs = self.gain.len();
        let mut normal = self.linear.forward(x);
        let (mean, variance) = moments(&normal, outputs);
        if statistics == Statistics::Update {
            self.remember(&mean, &variance, normal.len() / outputs);
        }
        let deviation: Vec<f32> = variance.iter().map(|v| 1.0 / (v + EPSILON).sqrt()).collect();
        let mut output = vec![0.0; normal.len()];
        for (at, normal) in normal.iter_mut().enumerate() {
            let unit = at % outputs;
            *normal = (*normal - mean[unit]) * deviation[unit];
            let value = *normal * self.gain[unit] + self.shift[unit];
            // The mask holds ReLU's zeros as well, so the way back needs one factor per value.
            if value <= 0.0 {
                mask[at] = 0.0;
            }
            output[at] = value * mask[at];
        }
        Trace { normal, deviation, output, mask }
    }

    /// Into the running statistics, with Bessel's correction as PyTorch has it.
    fn remember(&mut self, mean: &[f32], variance: &[f32], n: usize) {
        // A batch of one has no variance to correct.
        let unbias = n as f32 / (n.max(2) - 1) as f32;
        let running = self.running_mean.iter_mut().zip(&mut self.running_variance);
        for ((running_mean, running_variance), (mean, variance)) in
            running.zip(mean.iter().zip(variance))
        {
            *running_mean += MOMENTUM * (mean - *running_mean);
            *running_variance += MOMENTUM * (variance * unbias - *running_variance);
        }
    }

    /// The gradients of the linear layer and of the normalisation. `slope` is the loss's by the
    /// output, and becomes that by the linear layer's output.
    fn backward(&self, x: &[f32], trace: &Trace, slope: &mut [f32]) -> [Gradient; 2] {
        let outputs = self.gain.len();
        let rows = slope.len() / outputs;
        let (mut gain, mut shift) = (vec![0.0; outputs], vec![0.0; outputs]);
        for (at, slope) in slope.iter_mut().enumerate() {
            *slope *= trace.mask[at];
            gain[at % outputs] += *slope * trace.normal[at];
            shift[at % outputs] += *slope;
        }
        // Through the batch's mean and variance as well.
        for (at, slope) in slope.iter_mut().enumerate() {
            let unit = at % outputs;
            let mean = (shift[unit] + trace.normal[at] * gain[unit]) / rows as f32;
            *slope = self.gain[unit] * trace.deviation[unit] * (*slope - mean);
        }
        let normal = Gradient { weight: gain, bias: shift };
        [linear_gradient(x, slope, outputs), normal]
    }

    fn fold(&self) -> DenseLayer {
        let mut linear = self.linear.clone();
        let outputs = self.gain.len();
        let scale = |unit: usize| self.gain[unit] / (self.running_variance[unit] + EPSILON).sqrt();
        for (at, weight) in linear.weight.iter_mut().enumerate() {
            *weight *= scale(at % outputs);
        }
        for (unit, bias) in linear.bias.iter_mut().enumerate() {
            *bias = (*bias - self.running_mean[unit]) * scale(unit) + self.shift[unit];
        }
        linear
    }
}

fn fresh(inputs: usize, outputs: usize, rng: &mut Rng) -> DenseLayer {
    let bound = 1.0 / (inputs as f64).sqrt();
    let mut draw = |len: usize| -> Vec<f32> {
        let draw = (0..len).map(|_| (bound * (2.0 * rng.next_f64() - 1.0)) as f32);
        draw.collect()
    };
    DenseLayer { weight: draw(inputs * outputs), bias: draw(outputs) }
}

/// 0 with probability `dropout`, otherwise what keeps the mean.
fn drop_mask(len: usize, dropout: f32, rng: &mut Rng) -> Vec<f32> {
    let kept = 1.0 / (1.0 - dropout);
    // Four lots of sixteen bits from each draw.
    let bound = (f64::from(dropout) * 65_536.0) as u64;
    let mut mask = Vec::with_capacity(len + 3);
    while mask.len() < len {
        let bits = rng.next_u64();
        let lots = [0, 16, 32, 48].map(|shift| (bits >> shift) & 0xffff);
        mask.extend(lots.map(|lot| if lot < bound { 0.0 } else { kept }));
    }
    mask.truncate(len);
    mask
}

/// Mean and variance of each of `units` columns.
fn moments(values: &[f32], units: usize) -> (Vec<f32>, Vec<f32>) {
    let rows = (values.len() / units) as f32;
    let mut mean = vec![0.0; units];
    let mut variance = vec![0.0; units];
    for row in values.chunks_exact(units) {
        mean.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
    }
    mean.iter_mut().for_each(|sum| *sum /= rows);
    for row in values.chunks_exact(units) {
        for ((sum, value), mean) in variance.iter_mut().zip(row).zip(&mean) {
            *sum += (value - mean) * (value - mean);
        }
    }
    variance.iter_mut().for_each(|sum| *sum /= rows);
    (mean, variance)
}

/// The weighted mean of the cross-entropy, and its slope by each log-odds.
fn loss_and_slope(log_odds: &[f32], batch: &ExampleBatch<'_>) -> (f64, Vec<f32>) {
    let weight = |&target: &bool| f64::from(batch.class_weights[usize::from(target)]);
    let total: f64 = batch.targets.iter().map(weight).sum();
    let mut loss = 0.0;
    let mut slope = Vec::with_capacity(log_odds.len());
    for (&x, target) in log_odds.iter().zip(batch.targets) {
        let (x, y) = (f64::from(x), f64::from(u8::from(*target)));
        let share = weight(target) / total;
        // ln(1 + e^x) - x · y, without overflow.
        loss += share * (x.max(0.0) - x * y + (-x.abs()).exp().ln_1p());
        slope.push((share * (sigmoid(x) - y)) as f32);
    }
    (loss, slope)
}

/// Of `y = x · weight + bias`, by the slope of `y`.
fn linear_gradient(x: &[f32], slope: &[f32], outputs: usize) -> Gradient {
    let rows = slope.len() / outputs;
    let inputs = x.len() / rows;
    let mut weight = vec![0.0; inputs * outputs];
    let x = LeftOperand::columns(x, inputs);
    product(x, slope, &mut weight, outputs, AccumulationMode::Replace);
    let mut bias = vec![0.0; outputs];
    for slope in slope.chunks_exact(outputs) {
        bias.iter_mut().zip(slope).for_each(|(sum, slope)| *sum += slope);
    }
    Gradient { weight, bias }
}

/// The slope by the input of a linear layer, from that by its output.
fn input_slope(linear: &DenseLayer, slope: &[f32]) -> Vec<f32> {
    let (inputs, outputs) = (linear.inputs(), linear.bias.len());
    // The kernel reads its right side row by row.
    let transposed: Vec<f32> = (0..outputs)
        .flat_map(|column| linear.weight.iter().skip(column).step_by(outputs))
        .copied()
        .collect();
    let mut result = vec![0.0; slope.len() / outputs * inputs];
    let slope = LeftOperand::rows(slope, outputs);
    product(slope, &transposed, &mut result, inputs, AccumulationMode::Replace);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: NetworkShape = NetworkShape { width: 5, hidden: 4, dropout: 0.3 };

    fn random(rng: &mut Rng, len: usize) -> Vec<f32> {
        (0..len).map(|_| 2.0 * rng.next_f64() as f32 - 1.0).collect()
    }

    /// Every parameter, in one order.
    fn parameters(network: &mut TrainingNetwork) -> Vec<&mut Vec<f32>> {
        let mut all = Vec::new();
        for layer in &mut network.hidden {
            all.push(&mut layer.linear.weight);
            all.push(&mut layer.linear.bias);
            all.push(&mut layer.gain);
            all.push(&mut layer.shift);
        }
        all.push(&mut network.output.weight);
        all.push(&mut network.output.bias);
        all
    }

    #[test]
    fn the_backward_pass_is_the_slope_of_the_forward_pass() {
        for seed in 0..5 {
            let mut rng = Rng::new(seed);
            let mut network = TrainingNetwork::new(SHAPE, &mut rng);
            let rows = random(&mut rng, 12 * SHAPE.width);
            let targets: Vec<bool> = (0..12).map(|_| rng.below(3) == 0).collect();
            let batch = ExampleBatch { rows: &rows, targets: &targets, class_weights: [1.5, 3.0] };
            let masks = [(); 2].map(|()| drop_mask(12 * SHAPE.hidden, 0.3, &mut rng));
            let loss = |network: &mut TrainingNetwork| {
                network.gradients(&batch, masks.clone(), Statistics::Keep)
            };
            let (_, hidden, output) = loss(&mut network);
            let gradients = hidden.into_iter().flatten().chain([output]);
            let gradients: Vec<Vec<f32>> = gradients.flat_map(|g| [g.weight, g.bias]).collect();
            for (tensor, gradient) in gradients.iter().enumerate() {
                for (at, &got) in gradient.iter().enumerate() {
                    let at_offset = |offset: f32| {
                        let mut network = network.clone();
                        parameters(&mut network)[tensor][at] += offset;
                        loss(&mut network).0
                    };
                    let slope = (at_offset(2e-3) - at_offset(-2e-3)) / 4e-3;
                    let got = f64::from(got);
                    let near = (slope - got).abs() < 1e-3 + 0.02 * slope.abs();
                    assert!(near, "seed {seed}, tensor {tensor}[{at}]: {slope} {got}");
                }
            }
        }
    }

    #[test]
    fn folding_keeps_what_the_running_statistics_give() {
        let mut rng = Rng::new(9);
        let mut network = TrainingNetwork::new(SHAPE, &mut rng);
        let raw = random(&mut rng, 64 * SHAPE.width);
        let scaling =
            Scaling { mean: vec![0.3, -0.2, 0.0, 1.0, 0.5], scale: vec![2.0, 0.5, 0.0, 1.0, 3.0] };
        let scale = |(at, value): (usize, &f32)| {
            (value - scaling.mean[at % SHAPE.width]) * scaling.scale[at % SHAPE.width]
        };
        let rows: Vec<f32> = raw.iter().enumerate().map(scale).collect();
        let targets: Vec<bool> = (0..64).map(|_| rng.below(2) == 0).collect();
        let batch = ExampleBatch { rows: &rows, targets: &targets, class_weights: [1.0, 1.0] };
        for _ in 0..50 {
            network.step(&batch, 0.01, &mut rng);
        }
        // By the definition: normalise with the running statistics, layer by layer.
        let mut x = rows.clone();
        for layer in &network.hidden {
            x = layer.linear.forward(&x);
            for (at, value) in x.iter_mut().enumerate() {
                let unit = at % SHAPE.hidden;
                let deviation = (layer.running_variance[unit] + EPSILON).sqrt();
                let normal = (*value - layer.running_mean[unit]) / deviation;
                *value = (normal * layer.gain[unit] + layer.shift[unit]).max(0.0);
            }
        }
        let expected = network.output.forward(&x);
        let folded = network.fold(&scaling).log_odds(&raw);
        for (got, expected) in folded.iter().zip(&expected) {
            assert!((got - expected).abs() < 1e-4, "{got} {expected}");
        }
        let direct = loss_and_slope(&expected, &batch).0;
        assert!((network.evaluate(&batch) - direct).abs() < 1e-4);
    }

    #[test]
    fn a_step_reduces_the_loss_on_its_own_batch() {
        let mut rng = Rng::new(2);
        let shape = NetworkShape { dropout: 0.0, ..SHAPE };
        let mut network = TrainingNetwork::new(shape, &mut rng);
        let rows = random(&mut rng, 100 * SHAPE.width);
        let targets: Vec<bool> = rows.chunks(SHAPE.width).map(|row| row[0] > 0.0).collect();
        let batch = ExampleBatch { rows: &rows, targets: &targets, class_weights: [1.0, 1.0] };
        let losses: Vec<f64> = (0..300).map(|_| network.step(&batch, 0.01, &mut rng)).collect();
        assert!(losses[299] < 0.1 && losses[0] > 0.5, "{losses:?}");
    }
}
