//! Limits of the parameters that several kinds of streams have.

pub(super) fn check_rate(starts_per_s: f64) -> Result<(), String> {
    let ok = (1e-9..=1e9).contains(&starts_per_s);
    ok.then_some(()).ok_or(format!("{starts_per_s} starts a second; 1e-9 to 1e9 are possible"))
}

pub(super) fn check_context(tokens: u32) -> Result<(), String> {
    let ok = (64..=1 << 24).contains(&tokens);
    ok.then_some(()).ok_or(format!("a context of {tokens} tokens; 64 to 16,777,216 are possible"))
}

/// Below 1, or a session would have no end.
pub(super) fn check_probability(name: &str, p: f64) -> Result<(), String> {
    let ok = (0.0..=0.999).contains(&p);
    ok.then_some(()).ok_or(format!("{name} is {p}; probabilities from 0 to 0.999 are possible"))
}
