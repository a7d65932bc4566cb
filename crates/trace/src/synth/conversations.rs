//! Conversations: each next prompt is the last one, its answer and a new question.
//!
//! A conversation has a type. Its (type, turn) class says how likely another turn is and how
//! long it takes to come; the type alone says how long questions and answers are. With a shared
//! [`Opening`] and few turns the same stream is *system prompts × users*.

use headstart_core::{BlockRuns, Nanos, Rng, SessionId, TraceRequest};

use super::classes::{Behaviours, Labeller};
use super::draw::{Gap, Length, chance, is_size, weighted};
use super::limits::{check_context, check_probability, check_rate};
use super::prompt::{Ids, Opening, Openings, SynthPrompt};
use super::setting::StreamSetting;
use super::stream::StreamSource;
use super::timeline::{Event, SessionTimeline};

/// A stream of conversations.
#[derive(Clone, Debug, PartialEq)]
pub struct Conversations {
    /// Conversations that start every second, on average.
    pub starts_per_s: f64,
    /// Their shared beginnings.
    pub opening: Opening,
    /// The mix of types.
    pub types: Vec<RequestType>,
    /// Time between turns, before the scale of the class.
    pub gap: Gap,
    /// When classes exchange their behaviour, as fractions of the run, in order.
    pub changes_at: Vec<f64>,
    /// Labels of the requests' classes.
    pub labels: Labels,
    /// A conversation ends when its next prompt would be longer than this.
    pub context_tokens: u32,
}

/// One type of conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestType {
    /// Its name in the trace.
    pub name: String,
    /// Share of the conversations, relative to the other types.
    pub weight: f64,
    /// The first question.
    pub question: Length,
    /// Each later question.
    pub follow_up: Length,
    /// Each answer.
    pub answer: Length,
    /// Probability that a later turn departs from the prompt before it, at a point drawn
    /// uniformly behind the opening: an edited question, a history cut or rewritten.
    pub rewrite: f64,
    /// Probability that a request is sent once more unchanged, a gap later and with the same
    /// turn: a regenerated answer, a client that retries.
    pub repeat: f64,
    /// Behaviour by turn; the last one holds for all later turns.
    pub steps: Vec<Step>,
}

/// Behaviour of the conversations of one (type, turn) class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Probability of another turn.
    pub p_next: f64,
    /// Factor on the time until then.
    pub gap_scale: f64,
}

/// Labels of the requests' classes, true or not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Labels {
    /// The truth.
    True,
    /// Random type and turn for each request: nothing can be learnt.
    Random,
    /// The truth until this fraction of the run; then each class carries another's label, always
    /// the same one: the order of the types is reversed, and so are turns 1 to 6 (a later turn
    /// says 1).
    Swapped {
        /// When, as a fraction of the run.
        at: f64,
    },
}

impl Conversations {
    /// Requests of one conversation on average, were there no context limit and no change.
    pub(super) fn requests_per_start(&self) -> f64 {
        let weight: f64 = self.types.iter().map(|kind| kind.weight).sum();
        let turns = |kind: &RequestType| kind.weight / weight * kind.mean_requests();
        self.types.iter().map(turns).sum()
    }

    pub(super) fn check(&self) -> Result<(), String> {
        check_rate(self.starts_per_s)?;
        check_context(self.context_tokens)?;
        self.opening.check()?;
        self.gap.check()?;
        for kind in &self.types {
            kind.check()?;
        }
        if !self.types.iter().any(|kind| kind.weight > 0.0) {
            return Err("conversations need a type with a positive weight".to_owned());
        }
        let in_run = |at: &f64| (0.0..=1.0).contains(at);
        let swap = match self.labels {
            Labels::Swapped { at } => at,
            Labels::True | Labels::Random => 0.0,
        };
        if !self.changes_at.is_sorted() || !self.changes_at.iter().chain([&swap]).all(in_run) {
            return Err("changes must be fractions of the run, 0 to 1, in order".to_owned());
        }
        Ok(())
    }
}

impl RequestType {
    fn mean_requests(&self) -> f64 {
        let last = self.steps.last().map_or(0.0, |step| step.p_next);
        // The last step holds for all later turns, so their number is geometric.
        let beyond = 1.0 / (1.0 - last);
        let firsts = &self.steps[..self.steps.len().saturating_sub(1)];
        let more = |turns: f64, step: &Step| 1.0 + step.p_next * turns;
        // Backwards, from the turns beyond the last step. Repeats are geometric as well.
        firsts.iter().rev().fold(beyond, more) / (1.0 - self.repeat)
    }

    fn check(&self) -> Result<(), String> {
        [self.question, self.follow_up, self.answer].iter().try_for_each(Length::check)?;
        check_probability("rewrite", self.rewrite)?;
        check_probability("repeat", self.repeat)?;
        let name = &self.name;
        if self.steps.is_empty() || !is_size(self.weight) {
            return Err(format!("type {name}: it needs a weight and one step"));
        }
        for step in &self.steps {
            check_probability("p_next", step.p_next)?;
            if !is_size(step.gap_scale) {
                return Err(format!("type {name}: gap_scale must not be negative"));
            }
        }
        Ok(())
    }
}

/// A running stream.
#[derive(Debug)]
pub(super) struct ConversationSource {
    config: Conversations,
    openings: Openings,
    behaviours: Behaviours,
    labeller: Labeller,
    timeline: SessionTimeline<OpenConversation>,
    rng: Rng,
}

/// An open conversation.
#[derive(Clone, Debug)]
struct OpenConversation {
    id: SessionId,
    /// Index of its type.
    kind: usize,
    turn: u16,
    prompt: SynthPrompt,
    /// Length of its opening, which is never rewritten.
    opening_tokens: u32,
    /// Tokens by which the next prompt is longer.
    growth: u32,
    /// The last request's blocks, when the next one is the same again.
    repeated: Option<BlockRuns>,
}

impl ConversationSource {
    pub(super) fn new(config: &Conversations, setting: &mut StreamSetting) -> Self {
        let mut rng = Rng::new(setting.seeds[0]);
        Self {
            openings: Openings::new(&config.opening, config.context_tokens),
            behaviours: Behaviours::new(config, setting),
            labeller: Labeller::new(config, setting),
            timeline: SessionTimeline::new(config.starts_per_s, &mut rng),
            rng,
            config: config.clone(),
        }
    }
}

impl StreamSource for ConversationSource {
    fn next_at(&self) -> Nanos {
        self.timeline.next_at()
    }

    fn step(&mut self, ids: &mut Ids) -> TraceRequest {
        let (now, mut session) = match self.timeline.next(&mut self.rng) {
            Event::Start(now) => (now, self.start(ids)),
            // A repeat sends the same prompt, so it must not grow.
            Event::Resume(now, session) if session.repeated.is_some() => (now, session),
            Event::Resume(now, session) => (now, self.resume(session, ids)),
        };
        let answer = self.config.types[session.kind].answer;
        let answer = answer.draw(&mut self.rng, self.config.context_tokens);
        let (request_type, turn) = self.labeller.label(now, session.kind, session.turn);
        let repeated = session.repeated.take();
        let request = TraceRequest {
            arrival: now,
            // `blocks` would give the partial last block of a repeat another id.
            blocks: repeated.unwrap_or_else(|| session.prompt.blocks(ids)),
            input_tokens: Some(session.prompt.tokens()),
            output_tokens: Some(answer),
            session: Some(session.id),
            turn,
            request_type,
            ..TraceRequest::default()
        };
        if chance(&mut self.rng, self.config.types[session.kind].repeat) {
            session.repeated = Some(request.blocks.clone());
            self.wait(now, session);
        } else {
            self.go_on(now, session, answer);
        }
        request
    }
}

impl ConversationSource {
    fn start(&mut self, ids: &mut Ids) -> OpenConversation {
        let weights = self.config.types.iter().map(|kind| kind.weight);
        let kind = weighted(&mut self.rng, weights);
        let mut prompt = self.openings.draw(&mut self.rng, ids);
        let opening_tokens = prompt.tokens();
        // An opening takes at most half of the context, see `Openings`.
        let room = self.config.context_tokens - opening_tokens;
        let question = self.config.types[kind].question;
        prompt.extend(question.draw(&mut self.rng, room), ids);
        OpenConversation {
            id: ids.session(),
            kind,
            turn: 1,
            prompt,
            opening_tokens,
            growth: 0,
            repeated: None,
        }
    }

    fn resume(&mut self, mut session: OpenConversation, ids: &mut Ids) -> OpenConversation {
        session.turn = session.turn.saturating_add(1);
        let before = session.prompt.tokens();
        if chance(&mut self.rng, self.config.types[session.kind].rewrite) {
            let history = (before - session.opening_tokens) as usize;
            // One more, as the end of the prompt is a valid point too.
            let kept = session.opening_tokens + self.rng.below(history + 1) as u32;
            session.prompt.truncate(kept, ids);
        }
        // The part that was rewritten is as long as before, with blocks of its own.
        let rewritten = before - session.prompt.tokens();
        session.prompt.extend(rewritten + session.growth, ids);
        session
    }

    /// Another turn, or the end.
    fn go_on(&mut self, now: Nanos, mut session: OpenConversation, answer: u32) {
        let step = self.behaviours.of(now, session.kind, session.turn);
        if !chance(&mut self.rng, step.p_next) {
            return;
        }
        let limit = self.config.context_tokens;
        let follow_up = self.config.types[session.kind].follow_up;
        session.growth = answer.saturating_add(follow_up.draw(&mut self.rng, limit));
        if session.prompt.tokens().saturating_add(session.growth) <= limit {
            self.wait(now, session);
        }
    }

    /// Lets `session` go on after a gap of its class.
    fn wait(&mut self, now: Nanos, session: OpenConversation) {
        let step = self.behaviours.of(now, session.kind, session.turn);
        let gap_s = self.config.gap.draw(&mut self.rng) * step.gap_scale;
        self.timeline.wait(now, gap_s, session);
    }
}
