//! Load of an engine: the seconds of prefill that arrive per second.
//!
//! A load of 1 is what an engine without a cache could just compute, if requests came evenly. The
//! study does not say how it scaled its traces to three models; with one load for all, each engine
//! is as busy as the others.

use headstart_core::cost::Work;
use headstart_core::{EngineModel, TraceRequest};
use headstart_trace::characterize::prompt_tokens;

/// Mean seconds that a request's whole prompt takes, steps shared with others; 0 without requests.
#[must_use]
pub(crate) fn prefill_s(requests: &[TraceRequest], engine: &EngineModel, block_tokens: u32) -> f64 {
    let base_s = engine.base_s(Work::default()) - engine.cost.weights_s;
    let seconds = requests.iter().map(|request| {
        let tokens = prompt_tokens(request, block_tokens);
        engine.prefill_s(0, tokens as usize, base_s)
    });
    seconds.sum::<f64>() / requests.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_sim::wild::WildModel;

    #[test]
    fn a_request_takes_its_tokens_and_its_share_of_steps() {
        let engine = WildModel::ALL[0].engine();
        let request = |input_tokens| TraceRequest {
            input_tokens,
            blocks: (0..128).collect(),
            ..TraceRequest::default()
        };
        let one = prefill_s(&[request(Some(2_048))], &engine, 16);
        // 2,048 tokens at 122 µs, a step of 5 ms, and attention.
        assert!((0.255..0.27).contains(&one), "{one}");
        assert_eq!(one, prefill_s(&[request(None)], &engine, 16));
        let both = [request(Some(2_048)), request(Some(0))];
        assert_eq!(prefill_s(&both, &engine, 16), one / 2.0);
        assert_eq!(prefill_s(&[], &engine, 16), 0.0);
    }
}
