//! The distributions that scripts and noise are drawn from.

use headstart_core::Rng;

/// A standard normal. Marsaglia's polar method; its second value is not used.
pub(crate) fn normal(rng: &mut Rng) -> f64 {
    loop {
        let (x, y) = (2.0 * rng.next_f64() - 1.0, 2.0 * rng.next_f64() - 1.0);
        let square = x * x + y * y;
        if square > 0.0 && square < 1.0 {
            return x * (-2.0 * square.ln() / square).sqrt();
        }
    }
}

/// Exponential with mean 1.
pub(crate) fn exponential(rng: &mut Rng) -> f64 {
    -(1.0 - rng.next_f64()).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(draw: fn(&mut Rng) -> f64, mean: f64, variance: f64) {
        const DRAWS: usize = 100_000;
        let mut rng = Rng::new(3);
        let values: Vec<f64> = (0..DRAWS).map(|_| draw(&mut rng)).collect();
        let got = values.iter().sum::<f64>() / DRAWS as f64;
        let spread = values.iter().map(|it| (it - got).powi(2)).sum::<f64>() / DRAWS as f64;
        assert!((got - mean).abs() < 0.01, "{got}");
        assert!((spread - variance).abs() < 0.03, "{spread}");
    }

    #[test]
    fn they_have_their_mean_and_variance() {
        check(normal, 0.0, 1.0);
        check(exponential, 1.0, 1.0);
    }
}
