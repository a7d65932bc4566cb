//! Agents: a task, then many short steps of tool call and result, then a long pause of the user.
//!
//! Forks begin off a prefix of the running prompt and have sessions of their own: a *retry* from
//! an earlier point of it, or a *sub-agent* that shares only the opening.

use headstart_core::{FinishKind, Nanos, Rng, SessionId, ToolClass, TraceRequest};

use super::draw::{Gap, Length, chance};
use super::limits::{check_context, check_probability, check_rate};
use super::prompt::{Ids, Opening, Openings, SynthPrompt};
use super::setting::StreamSetting;
use super::stream::StreamSource;
use super::timeline::{Event, SessionTimeline};

/// A stream of agent sessions.
#[derive(Clone, Debug, PartialEq)]
pub struct Agents {
    /// Sessions that start every second, on average; forks not counted.
    pub starts_per_s: f64,
    /// System prompt and tools, and what is known of the project.
    pub opening: Opening,
    /// Length of the user's request.
    pub task: Length,
    /// Length of a tool's result.
    pub tool_result: Length,
    /// Length of the model's answer in one step.
    pub answer: Length,
    /// Probability that another tool step follows a step.
    pub p_step: f64,
    /// Probability that the user asks for more when the steps have ended.
    pub p_turn: f64,
    /// Probability that a step of the main session starts a fork.
    pub p_fork: f64,
    /// Share of the forks that are retries; the others are sub-agents.
    pub retries: f64,
    /// Run time of a tool.
    pub tool_gap: Gap,
    /// Tools with run times of their own; without any all tools are alike, and have no names.
    pub tools: Vec<AgentTool>,
    /// Time until the user's next request.
    pub user_gap: Gap,
    /// A session ends when its next prompt would be longer than this.
    pub context_tokens: u32,
}

/// A tool that agents call.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentTool {
    /// Its name.
    pub name: &'static str,
    /// Relative frequency of its calls.
    pub weight: f64,
    /// Its run time, or the time until a person agrees.
    pub gap: Gap,
}

impl Agents {
    /// Requests of one session and its forks on average, were there no context limit.
    pub(super) fn requests_per_start(&self) -> f64 {
        // Steps of a turn and turns of a session are geometric.
        let steps = 1.0 / (1.0 - self.p_step);
        let main = steps / (1.0 - self.p_turn);
        // A fork has the steps of one turn.
        main * (1.0 + self.p_fork * steps)
    }

    pub(super) fn check(&self) -> Result<(), String> {
        check_rate(self.starts_per_s)?;
        check_context(self.context_tokens)?;
        check_probability("p_step", self.p_step)?;
        check_probability("p_turn", self.p_turn)?;
        check_probability("p_fork", self.p_fork)?;
        check_probability("retries", self.retries)?;
        self.opening.check()?;
        [self.task, self.tool_result, self.answer].iter().try_for_each(Length::check)?;
        self.tool_gap.check()?;
        self.tools.iter().try_for_each(|tool| tool.gap.check())?;
        self.user_gap.check()
    }
}

/// The trace's indices of the three types.
#[derive(Clone, Copy, Debug)]
struct AgentTypes {
    /// A user message.
    agent: u16,
    /// A tool result in the main session.
    tool: u16,
    /// Any request of a fork.
    fork: u16,
}

/// A running stream.
#[derive(Debug)]
pub(super) struct AgentSource {
    config: Agents,
    types: AgentTypes,
    openings: Openings,
    timeline: SessionTimeline<AgentSession>,
    rng: Rng,
}

/// An open session.
#[derive(Clone, Debug)]
struct AgentSession {
    id: SessionId,
    turn: u16,
    prompt: SynthPrompt,
    opening_tokens: u32,
    /// Tokens by which the next prompt is longer.
    growth: u32,
    is_fork: bool,
    /// Whether the next request brings a user message.
    user_is_next: bool,
    /// The tool that runs, by its place in the list.
    tool: Option<usize>,
}

impl AgentSource {
    pub(super) fn new(config: &Agents, setting: &mut StreamSetting) -> Self {
        let mut rng = Rng::new(setting.seeds[0]);
        Self {
            types: AgentTypes {
                agent: setting.info.type_index("agent"),
                tool: setting.info.type_index("tool"),
                fork: setting.info.type_index("fork"),
            },
            openings: Openings::new(&config.opening, config.context_tokens),
            timeline: SessionTimeline::new(config.starts_per_s, &mut rng),
            rng,
            config: config.clone(),
        }
    }
}

impl StreamSource for AgentSource {
    fn next_at(&self) -> Nanos {
        self.timeline.next_at()
    }

    fn step(&mut self, ids: &mut Ids) -> TraceRequest {
        let (now, mut session) = match self.timeline.next(&mut self.rng) {
            Event::Start(now) => (now, self.start(ids)),
            Event::Resume(now, session) => (now, session),
        };
        session.prompt.extend(session.growth, ids);
        let limit = self.config.context_tokens;
        let answer = self.config.answer.draw(&mut self.rng, limit);
        let mut request = TraceRequest {
            arrival: now,
            blocks: session.prompt.blocks(ids),
            input_tokens: Some(session.prompt.tokens()),
            output_tokens: Some(answer),
            session: Some(session.id),
            turn: session.turn,
            request_type: self.types.of(&session),
            ..TraceRequest::default()
        };
        // Before the session continues, because the fork leaves this request's prompt.
        if !session.is_fork && chance(&mut self.rng, self.config.p_fork) {
            self.fork(now, &session, ids);
        }
        (request.finish, request.tool) = self.go_on(now, session, answer);
        request
    }
}

impl AgentSource {
    fn start(&mut self, ids: &mut Ids) -> AgentSession {
        let prompt = self.openings.draw(&mut self.rng, ids);
        let opening_tokens = prompt.tokens();
        // An opening takes at most half of the context, see `Openings`.
        let room = self.config.context_tokens - opening_tokens;
        AgentSession {
            id: ids.session(),
            turn: 1,
            opening_tokens,
            growth: self.config.task.draw(&mut self.rng, room),
            prompt,
            is_fork: false,
            user_is_next: true,
            tool: None,
        }
    }

    /// A session off a prefix of `main`, which starts after one tool pause.
    fn fork(&mut self, now: Nanos, main: &AgentSession, ids: &mut Ids) {
        let mut fork = main.clone();
        fork.id = ids.session();
        fork.is_fork = true;
        fork.tool = None;
        let mut kept = main.opening_tokens;
        if chance(&mut self.rng, self.config.retries) {
            let history = (main.prompt.tokens() - kept) as usize;
            // One more, as the end of the prompt is a valid point too.
            kept += self.rng.below(history + 1) as u32;
        } else {
            fork.turn = 1;
        }
        fork.prompt.truncate(kept, ids);
        let task = self.config.task;
        self.wait(now, task, 0, fork);
    }

    /// Continues a session after a request: another step, the user after a while, or nothing.
    /// Returns how the request's answer ended, and the tool that it calls.
    fn go_on(
        &mut self,
        now: Nanos,
        mut session: AgentSession,
        answer: u32,
    ) -> (FinishKind, ToolClass) {
        session.user_is_next = !chance(&mut self.rng, self.config.p_step);
        if !session.user_is_next {
            let tool = self.tool();
            session.tool = tool;
            let tool_result = self.config.tool_result;
            self.wait(now, tool_result, answer, session);
            let names = tool.map(|tool| self.config.tools[tool].name);
            return (FinishKind::ToolCalls, ToolClass::of_names(names));
        }
        session.tool = None;
        if !session.is_fork && chance(&mut self.rng, self.config.p_turn) {
            session.turn = session.turn.saturating_add(1);
            let task = self.config.task;
            self.wait(now, task, answer, session);
        }
        (FinishKind::Stop, ToolClass::default())
    }

    /// Draws the next tool, by its place.
    fn tool(&mut self) -> Option<usize> {
        let tools = &self.config.tools;
        let total: f64 = tools.iter().map(|tool| tool.weight).sum();
        if tools.is_empty() {
            return None;
        }
        let mut left = self.rng.next_f64() * total;
        let is_it = |tool: &AgentTool| {
            left -= tool.weight;
            left < 0.0
        };
        // Rounding may leave a little at the end.
        Some(tools.iter().position(is_it).unwrap_or(tools.len() - 1))
    }

    /// Lets `session` go on with `answer` and an `addition`, if that fits the context.
    fn wait(&mut self, now: Nanos, addition: Length, answer: u32, mut session: AgentSession) {
        let limit = self.config.context_tokens;
        session.growth = answer.saturating_add(addition.draw(&mut self.rng, limit));
        if session.prompt.tokens().saturating_add(session.growth) > limit {
            return;
        }
        // No user waits for a fork, so its requests follow like those of tools.
        let user_is_next = session.user_is_next && !session.is_fork;
        let gap = match session.tool {
            _ if user_is_next => &self.config.user_gap,
            Some(tool) => &self.config.tools[tool].gap,
            None => &self.config.tool_gap,
        };
        let gap_s = gap.draw(&mut self.rng);
        self.timeline.wait(now, gap_s, session);
    }
}

impl AgentTypes {
    fn of(&self, session: &AgentSession) -> u16 {
        match session {
            // Before the user's arm: a fork has one type for all its requests.
            AgentSession { is_fork: true, .. } => self.fork,
            AgentSession { user_is_next: true, .. } => self.agent,
            AgentSession { .. } => self.tool,
        }
    }
}
