//! A BERT encoder in plain code, slow but easy to check.

use super::folder::{HEADS, HIDDEN, LAYERS, Tensors};

/// The definition, in f64, with plain loops.
pub(crate) struct Plain<'a> {
    pub(crate) tensors: &'a Tensors,
    pub(crate) activation: &'a str,
    pub(crate) first_token: bool,
}

impl Plain<'_> {
    fn get(&self, name: &str) -> Vec<f64> {
        self.tensors[name].1.iter().copied().map(f64::from).collect()
    }

    fn row(&self, table: &str, row: usize) -> Vec<f64> {
        let table = self.get(&format!("embeddings.{table}_embeddings.weight"));
        table[row * HIDDEN..(row + 1) * HIDDEN].to_vec()
    }

    fn dense(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let (weight, bias) =
            (self.get(&format!("{name}.weight")), self.get(&format!("{name}.bias")));
        let rows = weight.chunks(x.len()).zip(bias);
        rows.map(|(row, bias)| bias + row.iter().zip(x).map(|(w, x)| w * x).sum::<f64>()).collect()
    }

    fn norm(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let n = x.len() as f64;
        let mean = x.iter().sum::<f64>() / n;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
        let (weight, bias) =
            (self.get(&format!("{name}.weight")), self.get(&format!("{name}.bias")));
        (0..x.len())
            .map(|i| (x[i] - mean) / (variance + 1e-12).sqrt() * weight[i] + bias[i])
            .collect()
    }

    fn activate(&self, x: f64) -> f64 {
        let tanh = |c: f64| 0.5 * x * (1.0 + c.tanh());
        match self.activation {
            "relu" => x.max(0.0),
            "gelu_new" => tanh((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))),
            _ => 0.5 * x * (1.0 + erf(x / 2.0f64.sqrt())),
        }
    }

    fn attend(&self, name: &str, x: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let [q, k, v] = ["query", "key", "value"].map(|part| -> Vec<Vec<f64>> {
            x.iter().map(|x| self.dense(&format!("{name}.{part}"), x)).collect()
        });
        let dim = HIDDEN / HEADS;
        let mut out = vec![vec![0.0; HIDDEN]; x.len()];
        for (q, out) in q.iter().zip(&mut out) {
            for head in 0..HEADS {
                let dims = head * dim..(head + 1) * dim;
                let score = |k: &Vec<f64>| -> f64 {
                    let dot: f64 = dims.clone().map(|d| q[d] * k[d]).sum();
                    (dot / (dim as f64).sqrt()).exp()
                };
                let weights: Vec<f64> = k.iter().map(score).collect();
                let sum: f64 = weights.iter().sum();
                for d in dims.clone() {
                    out[d] = weights.iter().zip(&v).map(|(w, v)| w / sum * v[d]).sum();
                }
            }
        }
        out
    }

    pub(crate) fn encode(&self, ids: &[u32]) -> Vec<f64> {
        let add =
            |a: &[f64], b: &[f64]| -> Vec<f64> { a.iter().zip(b).map(|(a, b)| a + b).collect() };
        let embed = |(position, id): (usize, &u32)| {
            let sum = add(&self.row("word", *id as usize), &self.row("position", position));
            self.norm("embeddings.LayerNorm", &add(&sum, &self.row("token_type", 0)))
        };
        let mut x: Vec<Vec<f64>> = ids.iter().enumerate().map(embed).collect();
        for layer in 0..LAYERS {
            let name = |part: &str| format!("encoder.layer.{layer}.{part}");
            let mixed = self.attend(&name("attention.self"), &x);
            for (x, mixed) in x.iter_mut().zip(mixed) {
                let change = self.dense(&name("attention.output.dense"), &mixed);
                *x = self.norm(&name("attention.output.LayerNorm"), &add(x, &change));
                let mut wide = self.dense(&name("intermediate.dense"), x);
                wide.iter_mut().for_each(|x| *x = self.activate(*x));
                let change = self.dense(&name("output.dense"), &wide);
                *x = self.norm(&name("output.LayerNorm"), &add(x, &change));
            }
        }
        let pooled = if self.first_token { &x[..1] } else { &x[..] };
        let sum = pooled.iter().fold(vec![0.0; HIDDEN], |sum, x| add(&sum, x));
        let length = sum.iter().map(|x| x * x).sum::<f64>().sqrt();
        sum.iter().map(|x| x / length).collect()
    }
}

/// By its Taylor series; 1 beyond 5.
fn erf(x: f64) -> f64 {
    if x.abs() > 5.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}
