//! Requests of a trace, as one rung of a workload.
//!
//! A block of the trace is a segment of its own text, and what a prompt has beyond its blocks is
//! unique: prompts share what their blocks share. Answers are unique too, since a trace does not
//! say which blocks of the next prompt they became.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use headstart_core::{Access, Nanos, Rng, SessionId, TraceRequest};
use headstart_trace::synth::Gap;

use super::workload::{ANSWERS, Request, Rung, Segment};

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TraceArrivals {
    /// As recorded, `speed` times as fast.
    Recorded {
        /// 1 is as it was.
        speed: f64,
    },
    /// Independently, in the order of the trace; from its beginning again when it ends, with new
    /// texts.
    Poisson {
        /// Requests per second.
        rate: f64,
        /// For so long.
        seconds: f64,
    },
}

/// Conversion of a trace into requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TraceConversion {
    /// Tokens of a block of the trace; 0 where it has none.
    pub block_tokens: u32,
    /// When they are sent.
    pub arrivals: TraceArrivals,
    /// Length of an answer that the trace does not know, tokens.
    pub answer_tokens: u32,
}

impl TraceConversion {
    /// The requests of `trace`, which are in order of time and at least one. O(blocks).
    #[must_use]
    pub fn rung(&self, trace: &[TraceRequest], rng: &mut Rng) -> Rung {
        let mut maker = TraceRequestMaker {
            recorded: self,
            texts: HashMap::new(),
            next_text: 0,
            next_answer: ANSWERS,
        };
        match self.arrivals {
            TraceArrivals::Recorded { speed } => maker.as_recorded(trace, speed),
            TraceArrivals::Poisson { rate, seconds } => maker.drawn(trace, rate, seconds, rng),
        }
    }
}

/// Makes requests, and gives texts their numbers.
struct TraceRequestMaker<'a> {
    recorded: &'a TraceConversion,
    /// Of the blocks of this pass through the trace.
    texts: HashMap<u64, u64>,
    next_text: u64,
    next_answer: u64,
}

impl TraceRequestMaker<'_> {
    fn as_recorded(&mut self, trace: &[TraceRequest], speed: f64) -> Rung {
        // A trace may begin at any time, and a rung begins at 0.
        let first = trace.first().map_or(Nanos(0), |request| request.arrival);
        let at = |request: &TraceRequest| request.arrival.since(first).div_f64(speed);
        let requests: Vec<Request> =
            trace.iter().map(|request| self.request(request, at(request), 0)).collect();
        // As long as the mean gap beyond the last arrival, and no time at all for one request.
        let last_s = requests.last().and_then(|request| request.at).map_or(0.0, seconds);
        let gaps = requests.len().saturating_sub(1).max(1) as f64;
        let lasts_s = (last_s + last_s / gaps).max(SHORTEST_S);
        Rung { rate: requests.len() as f64 / lasts_s, seconds: lasts_s, requests }
    }

    fn drawn(&mut self, trace: &[TraceRequest], rate: f64, lasts_s: f64, rng: &mut Rng) -> Rung {
        // A hundredth more than the mean, so that a draw rarely grows the list.
        let mut requests = Vec::with_capacity((rate * lasts_s * 1.01) as usize);
        let gap = Gap::Exponential { mean_s: 1.0 / rate };
        let mut at_s = gap.draw(rng);
        'passes: for pass in 0.. {
            // A new pass has new texts, or everything would be cached from the first one.
            self.texts.clear();
            for request in trace {
                if at_s >= lasts_s {
                    break 'passes;
                }
                requests.push(self.request(request, Duration::from_secs_f64(at_s), pass));
                at_s += gap.draw(rng);
            }
        }
        Rung { rate, seconds: lasts_s, requests }
    }

    fn request(&mut self, request: &TraceRequest, at: Duration, pass: u64) -> Request {
        let answer = self.next_answer;
        self.next_answer += 1;
        let answer_tokens = request.output_tokens.unwrap_or(self.recorded.answer_tokens);
        Request {
            seq: Request::name(answer, 0),
            at: Some(at),
            prompt: self.prompt(request),
            answer_tokens: answer_tokens.max(1),
            access: Access {
                request_type: request.request_type,
                turn: request.turn,
                // Sessions of another pass are other sessions.
                session: request.session.map(|one| SessionId(one.0 ^ pass << SESSION_BITS)),
                finish: request.finish,
                tool: request.tool,
                ..Access::default()
            },
            next: None,
        }
    }

    fn prompt(&mut self, request: &TraceRequest) -> Arc<[Segment]> {
        let block_tokens = self.recorded.block_tokens;
        let in_blocks = request.blocks.len() as u64 * u64::from(block_tokens);
        // A prompt without tokens cannot be served.
        let length = request.input_tokens.map_or(in_blocks, u64::from).max(1);
        let mut segments = Vec::new();
        let mut left = length;
        for block in request.blocks.iter() {
            let tokens = left.min(u64::from(block_tokens));
            if tokens == 0 {
                break;
            }
            let next = self.next_text;
            let text = *self.texts.entry(block).or_insert(next);
            // The number is used up only if the block is new.
            self.next_text += u64::from(text == next);
            left -= tokens;
            segments.push(segment(text, tokens));
        }
        if left > 0 {
            // Beyond its blocks a prompt shares nothing, so the rest is a text of its own.
            segments.push(segment(self.next_text, left));
            self.next_text += 1;
        }
        segments.into()
    }
}

/// Bits that tell the sessions of one pass apart.
const SESSION_BITS: u32 = 40;

/// Least length of a rung, seconds.
const SHORTEST_S: f64 = 1e-3;

fn segment(text: u64, tokens: u64) -> Segment {
    Segment { text, tokens: u32::try_from(tokens).expect("prompts have less than 2³² tokens") }
}

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use headstart_core::FinishKind;

    use super::*;

    fn request(arrival_s: u64, blocks: &[u64], input: u32) -> TraceRequest {
        TraceRequest {
            arrival: Nanos(0) + Duration::from_secs(arrival_s),
            blocks: blocks.iter().copied().collect(),
            input_tokens: Some(input),
            output_tokens: None,
            session: None,
            turn: 0,
            request_type: 0,
            ..TraceRequest::default()
        }
    }

    fn recorded(arrivals: TraceArrivals) -> TraceConversion {
        TraceConversion { block_tokens: 16, arrivals, answer_tokens: 7 }
    }

    fn texts(request: &Request) -> Vec<(u64, u32)> {
        request.prompt.iter().map(|segment| (segment.text, segment.tokens)).collect()
    }

    #[test]
    fn prompts_share_what_their_blocks_share() {
        let trace =
            [request(5, &[900, 901], 40), request(9, &[900, 901, 902], 41), request(11, &[], 3)];
        let rung = recorded(TraceArrivals::Recorded { speed: 2.0 }).rung(&trace, &mut Rng::new(1));
        let found: Vec<_> = rung.requests.iter().map(texts).collect();
        assert_eq!(found[0], [(0, 16), (1, 16), (2, 8)]);
        assert_eq!(found[1], [(0, 16), (1, 16), (3, 9)]);
        assert_eq!(found[2], [(4, 3)]);
        let at: Vec<_> =
            rung.requests.iter().filter_map(|request| request.at).map(seconds).collect();
        assert_eq!(at, [0.0, 2.0, 3.0]);
        assert_eq!((rung.seconds, rung.requests[0].answer_tokens), (4.5, 7));
    }

    #[test]
    fn policies_hear_what_was_recorded() {
        let trace = [TraceRequest {
            session: Some(SessionId(3)),
            turn: 2,
            request_type: 5,
            finish: FinishKind::ToolCalls,
            ..request(0, &[1], 16)
        }];
        let rung = recorded(TraceArrivals::Recorded { speed: 1.0 }).rung(&trace, &mut Rng::new(1));
        let expected = Access {
            session: Some(SessionId(3)),
            turn: 2,
            request_type: 5,
            finish: FinishKind::ToolCalls,
            ..Access::default()
        };
        assert_eq!(rung.requests[0].access, expected);
    }

    #[test]
    fn a_second_pass_asks_what_nobody_has_asked() {
        let trace = [request(0, &[1], 16), request(1, &[1], 16)];
        let arrivals = TraceArrivals::Poisson { rate: 10.0, seconds: 1_000.0 };
        let rung = recorded(arrivals).rung(&trace, &mut Rng::new(1));
        let all: Vec<u64> = rung.requests.iter().map(|request| request.prompt[0].text).collect();
        assert!(all.iter().enumerate().all(|(at, &text)| text == at as u64 / 2));
        assert!((9_500..10_500).contains(&all.len()), "{}", all.len());
        assert!(rung.requests.iter().all(|request| request.at.map(seconds) < Some(1_000.0)));
    }
}
