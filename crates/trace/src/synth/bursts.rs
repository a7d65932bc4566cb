//! API bursts: a program sends requests with one template, quickly one after the other, and
//! never uses the template again. Each request is a session of one turn.

use headstart_core::{Nanos, Rng, TraceRequest};

use super::draw::{Gap, Length, chance};
use super::limits::{check_context, check_rate};
use super::prompt::{Ids, SynthPrompt};
use super::setting::StreamSetting;
use super::stream::StreamSource;
use super::timeline::{Event, SessionTimeline};

/// A stream of bursts.
#[derive(Clone, Debug, PartialEq)]
pub struct Bursts {
    /// Bursts that start every second, on average.
    pub starts_per_s: f64,
    /// Mean number of requests of a burst, at least 1 (geometric).
    pub size: f64,
    /// Time between the requests of a burst.
    pub gap: Gap,
    /// Length of the part that the requests of a burst share.
    pub template: Length,
    /// Length of each request's own part.
    pub payload: Length,
    /// Each answer.
    pub answer: Length,
    /// No prompt is longer than this.
    pub context_tokens: u32,
}

impl Bursts {
    pub(super) fn check(&self) -> Result<(), String> {
        check_rate(self.starts_per_s)?;
        check_context(self.context_tokens)?;
        if !(1.0..=1e9).contains(&self.size) {
            let size = self.size;
            return Err(format!("a burst of {size} requests; 1 to 1e9 are possible"));
        }
        [self.template, self.payload, self.answer].iter().try_for_each(Length::check)?;
        self.gap.check()
    }
}

/// A running stream.
#[derive(Debug)]
pub(super) struct BurstSource {
    config: Bursts,
    request_type: u16,
    /// Running bursts: their templates.
    timeline: SessionTimeline<SynthPrompt>,
    rng: Rng,
}

impl BurstSource {
    pub(super) fn new(config: &Bursts, setting: &mut StreamSetting) -> Self {
        let mut rng = Rng::new(setting.seeds[0]);
        Self {
            request_type: setting.info.type_index("api"),
            timeline: SessionTimeline::new(config.starts_per_s, &mut rng),
            rng,
            config: config.clone(),
        }
    }
}

impl StreamSource for BurstSource {
    fn next_at(&self) -> Nanos {
        self.timeline.next_at()
    }

    fn step(&mut self, ids: &mut Ids) -> TraceRequest {
        let (now, template) = match self.timeline.next(&mut self.rng) {
            Event::Start(now) => (now, self.template(ids)),
            Event::Resume(now, template) => (now, template),
        };
        let limit = self.config.context_tokens;
        let mut prompt = template.clone();
        // The template takes at most half of the context.
        let room = limit - prompt.tokens();
        prompt.extend(self.config.payload.draw(&mut self.rng, room), ids);
        // With this chance of another one, a burst has `size` requests on average.
        if chance(&mut self.rng, 1.0 - 1.0 / self.config.size) {
            let gap_s = self.config.gap.draw(&mut self.rng);
            self.timeline.wait(now, gap_s, template);
        }
        TraceRequest {
            arrival: now,
            blocks: prompt.blocks(ids),
            input_tokens: Some(prompt.tokens()),
            output_tokens: Some(self.config.answer.draw(&mut self.rng, limit)),
            session: Some(ids.session()),
            turn: 1,
            request_type: self.request_type,
            ..TraceRequest::default()
        }
    }
}

impl BurstSource {
    fn template(&mut self, ids: &mut Ids) -> SynthPrompt {
        let mut template = SynthPrompt::default();
        let half = self.config.context_tokens / 2;
        template.extend(self.config.template.draw(&mut self.rng, half), ids);
        template
    }
}
