//! GFLOP/s of the strip kernel and of `gemm` by number of rows, over enough matrices that none
//! stays in a private cache.
//!
//! `cargo bench -p headstart-engine --bench kernels -- [f32|bf16]`

use std::error::Error;
use std::time::Instant;

use headstart_engine::cpu::linear::{Kernel, Linear, Write};
use headstart_engine::kv::{Dtype, Numbers};

const ROUNDS: usize = 7;

/// 24 matrices of 512 × 1,536: 75 MB in f32.
const MATRICES: usize = 24;
const K: usize = 512;
const N: usize = 1_536;

fn main() -> Result<(), Box<dyn Error>> {
    let dtype: Dtype = std::env::args().nth(1).as_deref().unwrap_or("f32").parse()?;
    let weights = |_| Linear::new(Numbers::from_f32(dtype, vec![0.5; K * N]), K, N, None);
    let matrices: Vec<Linear> = (0..MATRICES).map(weights).collect();
    println!("| rows | strips, GFLOP/s | gemm, GFLOP/s |\n|---|---|---|");
    for rows in [1, 2, 4, 8, 12, 16, 24, 32, 64] {
        let mut speeds = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for (speeds, kernel) in speeds.iter_mut().zip([Kernel::Strips, Kernel::Gemm]) {
                speeds.push(measure(&matrices, kernel, rows));
            }
        }
        let median = speeds.map(|mut speeds| {
            speeds.sort_by(f64::total_cmp);
            speeds[ROUNDS / 2]
        });
        println!("| {rows} | {:.0} | {:.0} |", median[0], median[1]);
    }
    Ok(())
}

fn measure(matrices: &[Linear], kernel: Kernel, rows: usize) -> f64 {
    let x = vec![0.25; rows * K];
    let mut y = vec![0.0; rows * N];
    let start = Instant::now();
    for matrix in matrices {
        matrix.apply_with(kernel, &x, &mut y, Write::Replace);
    }
    (2 * rows * K * N * MATRICES) as f64 / start.elapsed().as_secs_f64() / 1e9
}
