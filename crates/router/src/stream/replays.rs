//! When a replay is asked for, which one runs, and when it is given up.
//!
//! A replay costs the publisher a scan of its buffer, in a thread that also serves its engine.
//! So one runs at a time, and those that follow each other closely are spread out: the first two
//! at once, then with doubling pauses, until it has been calm for a while.

use std::time::Duration;

use headstart_core::Nanos;

/// Longest wait for the next reply, the first one included: a publisher answers between two
/// engine steps or from a thread of its own.
pub const REPLY_TIME_MAX: Duration = Duration::from_secs(2);

/// Longest replay as a whole: 10,000 batches take well under a second on a local network.
pub const REPLAY_TIME_MAX: Duration = Duration::from_secs(30);

/// Most replays in a row that bring nothing on before what is missing is given up: with the
/// pauses between them some three seconds of refused connections.
pub const REPLAY_TRIES_MAX: u32 = 6;

/// First pause between two replays that follow each other, from the third on.
pub const RETRY_PAUSE_MIN: Duration = Duration::from_millis(200);

/// Longest such pause.
pub const RETRY_PAUSE_MAX: Duration = Duration::from_secs(3);

/// Time without a replay after which the next one is asked for at once again.
pub const CALM_TIME: Duration = Duration::from_secs(10);

/// Replies that certainly find a place in the publisher's socket: ZeroMQ's default limit of unsent
/// messages, beyond which a ROUTER socket drops without a word. A hole within this number of
/// replies is final; one among later replies is asked for once more.
pub const REPLIES_SAFE: u64 = 1000;

/// Names one replay, so that late replies of an earlier one are not mistaken for its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReplayId(pub u64);

/// A replay on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct ActiveReplay {
    pub(super) id: ReplayId,
    /// The first batch asked for.
    pub(super) from: u64,
    /// The next expected batch when it was asked for.
    pub(super) next: u64,
    /// Whether the first batch asked for was here: the same publisher still has it, or later ones.
    pub(super) is_known: bool,
    pub(super) asked: Nanos,
    /// When it said something last.
    pub(super) heard: Nanos,
    pub(super) replies: u64,
    /// The last batch that it brought.
    pub(super) last: Option<u64>,
    /// Whether any of them was new, and of use.
    pub(super) has_news: bool,
    /// Nothing should be missing; if something is, the live socket is dead.
    pub(super) is_check: bool,
}

/// The replays of one stream.
#[derive(Debug, Default)]
pub(super) struct Replays {
    running: Option<ActiveReplay>,
    /// When the next one may be asked for, if one is wanted.
    wanted: Option<Nanos>,
    num_asked: u64,
    last_asked: Option<Nanos>,
    /// Asked for since it was calm.
    in_a_row: u32,
    /// Ended or failed in a row without bringing the stream on while something was missing.
    fruitless: u32,
}

impl Replays {
    /// One is needed: it is started as soon as [`Self::start`] may.
    pub(super) fn want(&mut self, now: Nanos) {
        // One at a time. `Follower::finish` asks again if something is still missing afterwards.
        if self.is_busy() {
            return;
        }
        let last = self.last_asked;
        if last.is_none_or(|last| now >= last + CALM_TIME) {
            self.in_a_row = 0;
        }
        // Counted from the last question and not from now: waiting since then counts as pause.
        let earliest = last.map(|last| last + pause(self.in_a_row));
        self.wanted = Some(earliest.unwrap_or(now).max(now));
    }

    /// Starts the replay that is wanted, if it is time.
    pub(super) fn start(&mut self, now: Nanos, from: u64, next: u64) -> Option<&mut ActiveReplay> {
        self.wanted.take_if(|wanted| *wanted <= now)?;
        self.num_asked += 1;
        // Counted where it starts, since a wanted replay may be stopped before.
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.last_asked = Some(now);
        Some(self.running.insert(ActiveReplay {
            id: ReplayId(self.num_asked),
            next,
            is_known: false,
            from,
            asked: now,
            heard: now,
            replies: 0,
            last: None,
            has_news: false,
            is_check: false,
        }))
    }

    /// The running one, if it is `id`.
    pub(super) fn running(&mut self, id: ReplayId) -> Option<&mut ActiveReplay> {
        self.running.as_mut().filter(|running| running.id == id)
    }

    /// The running one, whichever it is.
    pub(super) fn any_running(&mut self) -> Option<&mut ActiveReplay> {
        self.running.as_mut()
    }

    pub(super) fn id(&self) -> Option<ReplayId> {
        self.running.map(|running| running.id)
    }

    /// Takes the running one away if it is `id`: it ended or failed.
    pub(super) fn take(&mut self, id: ReplayId) -> Option<ActiveReplay> {
        self.running.take_if(|running| running.id == id)
    }

    /// The running one, if it has been silent or has been running for too long.
    pub(super) fn overdue(&self, now: Nanos) -> Option<ReplayId> {
        let running = self.running.filter(|running| running.limit() <= now)?;
        Some(running.id)
    }

    /// No replay runs any more, and none is wanted.
    pub(super) fn stop(&mut self) {
        self.running = None;
        self.wanted = None;
    }

    /// Drops the wanted replay, and the running one if it has no replies.
    pub(super) fn stop_unanswered(&mut self) {
        self.wanted = None;
        self.running = self.running.filter(|running| running.replies > 0);
    }

    /// Takes note of whether a replay that is over brought the stream on.
    pub(super) fn judge(&mut self, is_fruitless: bool) {
        self.fruitless = if is_fruitless { self.fruitless.saturating_add(1) } else { 0 };
    }

    /// Whether enough of them were fruitless.
    pub(super) fn is_hopeless(&self) -> bool {
        self.fruitless >= REPLAY_TRIES_MAX
    }

    /// Whether one runs or is wanted.
    pub(super) fn is_busy(&self) -> bool {
        self.running.is_some() || self.wanted.is_some()
    }

    /// When something is to be done.
    pub(super) fn due(&self) -> Option<Nanos> {
        let limit = self.running.map(|running| running.limit());
        self.wanted.into_iter().chain(limit).min()
    }

    pub(super) fn num_asked(&self) -> u64 {
        self.num_asked
    }
}

impl ActiveReplay {
    fn limit(&self) -> Nanos {
        (self.heard + REPLY_TIME_MAX).min(self.asked + REPLAY_TIME_MAX)
    }
}

fn pause(in_a_row: u32) -> Duration {
    match in_a_row.checked_sub(2) {
        None => Duration::ZERO,
        Some(doublings) => {
            // The longest pause is reached long before; the bound keeps the product in range.
            let factor = 1u32.checked_shl(doublings.min(16)).unwrap_or(u32::MAX);
            (RETRY_PAUSE_MIN * factor).min(RETRY_PAUSE_MAX)
        }
    }
}
