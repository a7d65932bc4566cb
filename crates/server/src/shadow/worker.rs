//! The thread that plays what requests told it, in order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use headstart_core::stats::HitCount;
use headstart_core::{BlockHash, Nanos, RouteHasher, RouteIdentity};

use super::arm::{ShadowArm, ShadowPrompt};
use super::{HOUR_S, QUEUE, ShadowHits, ShadowState};

/// Requests that run in an arm; beyond it the one that came first is taken to be over. More than
/// a fleet of a few replicas has, and a limit where the end of a request was not told.
const RUNNING_MAX: usize = 4096;

/// Bytes of the prompts that run; beyond it, too, those that came first are taken to be over.
const RUNNING_BYTES_MAX: usize = 256 << 20;

/// Event of a request.
pub(super) enum Message {
    /// A prompt whose blocks have no names yet.
    Arrived {
        prompt: ShadowPrompt,
        now: Nanos,
    },
    Began {
        id: u64,
        now: Nanos,
    },
    Found {
        prompt_tokens: usize,
        cached_tokens: usize,
    },
    Ended {
        id: u64,
    },
}

impl Message {
    /// Of its prompt; other messages are as small as their place in the queue.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Arrived { prompt, .. } => {
                let names = [&prompt.salt, &prompt.session].into_iter().flatten();
                size_of_val(&prompt.tokens[..]) + names.map(|name| name.len()).sum::<usize>()
            }
            _ => 0,
        }
    }
}

/// Plays messages until all senders are gone.
pub(super) fn play(
    arms: Vec<ShadowArm>,
    block_size: usize,
    messages: &Receiver<Message>,
    state: &Arc<ShadowState>,
) {
    let mut stage = ShadowStage::new(arms, block_size);
    while let Ok(message) = messages.recv() {
        // Requests that ended late arrived before that: within the next `QUEUE` messages.
        let late = std::mem::take(&mut *state.late_ends());
        // The report is read once a second or so: it is written when there is nothing else to do,
        // and now and then where there always is.
        for message in std::iter::once(message).chain(messages.try_iter().take(QUEUE)) {
            state.taken(&message);
            stage.take(message);
        }
        late.into_iter().for_each(|id| stage.end(id));
        stage.tell(state);
    }
}

/// All arms, and what they share.
struct ShadowStage {
    arms: Vec<ShadowArm>,
    hasher: RouteHasher,
    /// Requests and the bytes of their prompts.
    running: VecDeque<(u64, usize)>,
    running_bytes: usize,
    first: Option<Nanos>,
    now: Nanos,
    requests: u64,
    upstream: HitCount,
}

impl ShadowStage {
    fn new(arms: Vec<ShadowArm>, block_size: usize) -> Self {
        let hasher =
            RouteHasher::new(&RouteIdentity { model: "shadow", block_size: block_size as u32 });
        Self {
            arms,
            hasher,
            running: VecDeque::new(),
            running_bytes: 0,
            first: None,
            now: Nanos(0),
            requests: 0,
            upstream: HitCount::default(),
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Arrived { mut prompt, now } => {
                // Threads read the clock before they queue, so a message may be older than the one
                // before it.
                self.now = now.max(self.now);
                let keys = self.hasher.chain(prompt.namespace(), &prompt.tokens);
                prompt.chain = keys.iter().map(|key| BlockHash::from_u64(key.0)).collect();
                self.arrive(&prompt);
            }
            Message::Began { id, now } => {
                self.now = now.max(self.now);
                let now = self.now;
                self.arms.iter_mut().for_each(|arm| arm.begin(id, now));
            }
            Message::Found { prompt_tokens, cached_tokens } => {
                self.upstream.record(prompt_tokens, cached_tokens);
            }
            Message::Ended { id } => self.end(id),
        }
    }

    fn arrive(&mut self, played: &ShadowPrompt) {
        let bytes = size_of_val(&played.tokens[..]);
        while let Some(&(first, _)) = self.running.front()
            && (self.running.len() >= RUNNING_MAX || self.running_bytes + bytes > RUNNING_BYTES_MAX)
        {
            self.end(first);
        }
        self.first.get_or_insert(self.now);
        self.running_bytes += bytes;
        self.running.push_back((played.id, bytes));
        self.requests += 1;
        let now = self.now;
        self.arms.iter_mut().for_each(|arm| arm.arrive(played, now));
    }

    fn end(&mut self, id: u64) {
        let at = self.running.iter().position(|&(running, _)| running == id);
        if let Some((_, bytes)) = at.and_then(|at| self.running.remove(at)) {
            self.running_bytes -= bytes;
        }
        let now = self.now;
        self.arms.iter_mut().for_each(|arm| arm.end(id, now));
    }

    fn tell(&self, state: &ShadowState) {
        let arms = self.arms.iter().map(ShadowArm::report).collect();
        let mut report = state.lock();
        report.requests = self.requests;
        report.running = self.running.len();
        let first = self.first.unwrap_or(self.now);
        report.seconds = self.now.since(first).as_secs_f64();
        report.share_of_hour = (report.seconds / HOUR_S).min(1.0);
        report.upstream = ShadowHits::of(self.upstream);
        report.arms = arms;
    }
}

#[cfg(test)]
mod tests {
    use headstart_core::{Rng, TokenId};

    use super::*;
    use crate::shadow::{ShadowConfig, arms};

    fn prompt(id: u64, tokens: &[TokenId]) -> ShadowPrompt {
        ShadowPrompt { id, tokens: tokens.into(), chain: Arc::default(), salt: None, session: None }
    }

    /// Conversations of four prompts each, each the front of the next, in turns.
    fn conversations(config: &ShadowConfig, mut each: impl FnMut(&mut ShadowStage)) -> ShadowStage {
        let mut stage = ShadowStage::new(arms(config), config.block_size);
        let mut rng = Rng::new(7);
        let mut texts: Vec<Vec<TokenId>> = vec![Vec::new(); 12];
        let mut id = 0;
        for turn in 0..4 {
            for text in &mut texts {
                text.extend((0..100).map(|_| rng.below(1000) as TokenId));
                let now = Nanos(id * 1_000_000_000);
                stage.take(Message::Arrived { prompt: prompt(id, text), now });
                stage.take(Message::Began { id, now });
                stage.take(Message::Ended { id });
                each(&mut stage);
                id += 1;
            }
            assert!(turn < 4);
        }
        stage
    }

    fn rate(stage: &ShadowStage, strategy: &str, blocks: usize) -> f64 {
        let mut reports = stage.arms.iter().map(ShadowArm::report);
        let found = reports.find(|report| report.strategy == strategy && report.blocks == blocks);
        found.and_then(|report| report.found.hit_rate).expect("it was played")
    }

    #[test]
    fn precise_finds_what_chance_does_not_and_more_room_finds_more() {
        let config = ShadowConfig { replicas: 4, blocks: 100, block_size: 16 };
        let stage = conversations(&config, |stage| {
            stage.arms.iter().for_each(ShadowArm::check);
        });
        // Turns of 100, 200, 300 and 400 tokens, in whole blocks of the turn before.
        let all = f64::from(96 + 192 + 288) / f64::from(100 + 200 + 300 + 400);
        assert!((rate(&stage, "precise", 400) - all).abs() < 1e-9);
        assert!(rate(&stage, "precise", 100) > 1.5 * rate(&stage, "random", 100));
        assert!(rate(&stage, "precise", 50) < rate(&stage, "precise", 200));
    }

    #[test]
    fn requests_whose_end_is_never_told_are_ended() {
        let config = ShadowConfig { replicas: 2, blocks: 64, block_size: 16 };
        let mut stage = ShadowStage::new(arms(&config), 16);
        for id in 0..RUNNING_MAX as u64 + 50 {
            let tokens: Vec<TokenId> = (0..40).map(|at| (id * 40 + at) as TokenId).collect();
            stage.take(Message::Arrived { prompt: prompt(id, &tokens), now: Nanos(id) });
        }
        assert_eq!(stage.running.len(), RUNNING_MAX);
        stage.arms.iter().for_each(ShadowArm::check);
    }
}
