//! The signal that a turn's intent gives about the next turn.
//!
//! ```text
//! p(another turn) = sigmoid(bias + strength · (score + MEMORY · score before + TILT · turns))
//! ```
//!
//! The score is that of the intent plus that of the side remark; `turns` are those before, up to
//! [`TILT_TURNS`]. An intent belongs to a visitor, who wants one thing and leaves, or to a worker,
//! who comes back. The user's role mostly stays the same from turn to turn ([`STAY`]), so the
//! prompts of a conversation speak with one voice; within that, intents and remarks are drawn
//! independently, with other weights for the first turn, which does not say goodbye. The bias is
//! solved so that the given share of all turns is continued.

use headstart_core::Rng;

use crate::synth::draw::{chance, weighted};
use crate::synth::math::{exp, ln};

/// Weight of the previous turn's score, relative to this one's: the gain of a window over prompts.
const MEMORY: f64 = 0.2;

/// Probability that a visitor stays one at the next turn, and so for those at work.
const STAY: f64 = 0.85;

/// Share of the conversations that a visitor begins.
const VISITORS: f64 = 0.5;

/// Score that each earlier turn adds: long conversations are a little likelier to go on.
const TILT: f64 = 0.05;

/// Turns that count for the tilt.
const TILT_TURNS: u32 = 6;

/// Halvings of the bracket in which the bias is sought: down to the last bits of an `f64`.
const HALVINGS: u32 = 60;

/// Half that bracket, in log-odds. Beyond it a probability is 0 or 1.
const BIAS_MAX: f64 = 60.0;

/// The intent of a user in one turn; never written to the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Intent {
    /// Thanks, goodbye.
    Closing,
    /// A fact to look up.
    Fact,
    /// One small task on given text.
    Chore,
    /// The last request of a user who is about to leave.
    LastThing,
    /// A subject to learn about.
    Exploring,
    /// A decision to talk over.
    Advice,
    /// Something that does not work.
    Debugging,
    /// Changes to a draft.
    Drafting,
    /// A large piece of work that begins.
    Project,
    /// A game, an interview, a lesson in turns.
    Game,
}

/// An intent's list of templates, its score, and its weights at the first turn and at later ones.
type IntentRow = (&'static str, f64, [f64; 2]);

/// In the order of [`Intent`].
const INTENTS: [IntentRow; 10] = [
    ("closing", -1.9, [0.0, 3.0]),
    ("fact", -1.7, [10.0, 8.0]),
    ("chore", -1.7, [9.0, 8.0]),
    ("last thing", -1.9, [4.0, 5.0]),
    ("exploring", 1.1, [11.0, 10.0]),
    ("advice", 1.1, [9.0, 8.0]),
    ("debugging", 1.2, [12.0, 13.0]),
    ("drafting", 1.3, [5.0, 15.0]),
    ("project", 1.3, [11.0, 4.0]),
    ("game", 1.3, [6.0, 6.0]),
];

impl Intent {
    pub(super) const ALL: [Self; 10] = [
        Self::Closing,
        Self::Fact,
        Self::Chore,
        Self::LastThing,
        Self::Exploring,
        Self::Advice,
        Self::Debugging,
        Self::Drafting,
        Self::Project,
        Self::Game,
    ];

    fn row(self) -> &'static IntentRow {
        &INTENTS[self as usize]
    }

    /// The list of its templates.
    pub(super) fn templates(self) -> &'static str {
        self.row().0
    }

    /// In log-odds at strength 1.
    fn score(self) -> f64 {
        self.row().1
    }

    fn is_visit(self) -> bool {
        matches!(self, Self::Closing | Self::LastThing | Self::Fact | Self::Chore)
    }

    /// Returns its weight in the draw, among the intents of visitors or of those at work.
    fn weight(self, is_first: bool) -> f64 {
        let [first, later] = self.row().2;
        if is_first { first } else { later }
    }
}

/// The hint of a side remark about the next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cue {
    /// Nothing is said.
    Silent,
    /// More will come.
    More,
    /// This was it.
    Done,
}

impl Cue {
    const ALL: [Self; 3] = [Self::Silent, Self::More, Self::Done];

    /// The list of its templates; none where nothing is said.
    pub(super) fn templates(self) -> Option<&'static str> {
        match self {
            Self::Silent => None,
            Self::More => Some("more"),
            Self::Done => Some("done"),
        }
    }

    fn score(self) -> f64 {
        match self {
            Self::Silent => 0.0,
            Self::More => 0.2,
            Self::Done => -0.2,
        }
    }

    /// Most say what they are up to; hardly anybody the contrary, and never with a goodbye.
    fn weight(self, intent: Intent) -> f64 {
        match (self, intent) {
            (Self::Silent, _) => 4.0,
            (Self::More, Intent::Closing | Intent::LastThing) => 0.0,
            (Self::More, intent) if intent.is_visit() => 1.0,
            (Self::Done, intent) if !intent.is_visit() => 1.0,
            (Self::More | Self::Done, _) => 95.0,
        }
    }
}

/// The hidden state of one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TurnState {
    pub(super) intent: Intent,
    pub(super) cue: Cue,
}

impl TurnState {
    /// The state of a turn behind one in state `before`, or of a first turn.
    pub(super) fn draw(before: Option<Self>, rng: &mut Rng) -> Self {
        let is_visit = chance(rng, visits(before));
        // The weights of the other kind become 0, so one draw covers all intents.
        let weights = Intent::ALL.iter().map(|&intent| {
            let weight = intent.weight(before.is_none());
            if intent.is_visit() == is_visit { weight } else { 0.0 }
        });
        let intent = Intent::ALL[weighted(rng, weights)];
        let weights = Cue::ALL.iter().map(|cue| cue.weight(intent));
        let cue = Cue::ALL[weighted(rng, weights)];
        Self { intent, cue }
    }

    fn score(self) -> f64 {
        self.intent.score() + self.cue.score()
    }

    /// Every state with its probability, as [`Self::draw`] draws it.
    fn all(before: Option<Self>) -> impl Iterator<Item = (Self, f64)> {
        let sum = |is_visit: bool| {
            let of_kind = Intent::ALL.iter().filter(|intent| intent.is_visit() == is_visit);
            of_kind.map(|intent| intent.weight(before.is_none())).sum::<f64>()
        };
        let visits = visits(before);
        // Indexed by `is_visit`.
        let per_weight = [(1.0 - visits) / sum(false), visits / sum(true)];
        Intent::ALL.into_iter().flat_map(move |intent| {
            let of_cues: f64 = Cue::ALL.iter().map(|cue| cue.weight(intent)).sum();
            let share = per_weight[usize::from(intent.is_visit())];
            let share = share * intent.weight(before.is_none()) / of_cues;
            Cue::ALL.into_iter().map(move |cue| (Self { intent, cue }, share * cue.weight(intent)))
        })
    }
}

/// Probability that a turn behind `before` is a visitor's.
fn visits(before: Option<TurnState>) -> f64 {
    match before {
        None => VISITORS,
        Some(before) if before.intent.is_visit() => STAY,
        Some(_) => 1.0 - STAY,
    }
}

/// From states to probabilities.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signal {
    strength: f64,
    bias: f64,
}

impl Signal {
    /// With the bias at which `base` of all turns go on, in conversations of at most `max_turns`.
    pub(super) fn new(strength: f64, base: f64, max_turns: u32) -> Self {
        let mut signal = Self { strength, bias: ln(base / (1.0 - base)) };
        // Without a signal each probability is the base itself.
        if strength == 0.0 {
            return signal;
        }
        let (mut low, mut high) = (-BIAS_MAX, BIAS_MAX);
        for _ in 0..HALVINGS {
            signal.bias = 0.5 * (low + high);
            // The share grows with the bias, so the bracket can be halved.
            if signal.share(max_turns) < base {
                low = signal.bias;
            } else {
                high = signal.bias;
            }
        }
        signal
    }

    /// Probability that a turn in state `now` is followed by another; `before` is the state of
    /// the turn before it, and `turn` counts from 1.
    pub(super) fn p(&self, now: TurnState, before: Option<TurnState>, turn: u32) -> f64 {
        let memory = before.map_or(0.0, |before| MEMORY * before.score());
        let tilt = TILT * f64::from((turn - 1).min(TILT_TURNS));
        let score = now.score() + memory + tilt;
        1.0 / (1.0 + exp(-self.bias - self.strength * score))
    }

    /// Share of the turns that go on, exactly: conversations are followed turn by turn, as the
    /// mass of those whose last turn was in each state.
    fn share(&self, max_turns: u32) -> f64 {
        let mut went_on: Vec<(Option<TurnState>, f64)> = vec![(None, 1.0)];
        let (mut turns, mut continued) = (0.0, 0.0);
        for turn in 1..=max_turns {
            // In the order of `all`, so that masses are added by position.
            let states = TurnState::all(None).map(|(state, _)| (Some(state), 0.0));
            let mut next: Vec<_> = states.collect();
            for &(before, mass) in &went_on {
                for (next, (state, share)) in next.iter_mut().zip(TurnState::all(before)) {
                    next.1 += mass * share * self.p(state, before, turn);
                }
            }
            turns += went_on.iter().map(|(_, mass)| mass).sum::<f64>();
            continued += next.iter().map(|(_, mass)| mass).sum::<f64>();
            went_on = next;
        }
        continued / turns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bias_gives_the_share_asked_for() {
        for (strength, base, max_turns) in
            [(0.0, 0.3, 9), (1.0, 0.55, 20), (3.0, 0.1, 1), (8.0, 0.9, 30)]
        {
            let share = Signal::new(strength, base, max_turns).share(max_turns);
            assert!((share - base).abs() < 1e-6, "{strength} {base}: {share}");
        }
    }

    #[test]
    fn states_are_drawn_as_often_as_their_shares_say() {
        let visit = TurnState { intent: Intent::Chore, cue: Cue::Done };
        for before in [None, Some(visit)] {
            let sum: f64 = TurnState::all(before).map(|(_, share)| share).sum();
            assert!((sum - 1.0).abs() < 1e-12, "{sum}");
            let mut rng = Rng::new(9);
            let drawn: Vec<TurnState> =
                (0..20_000).map(|_| TurnState::draw(before, &mut rng)).collect();
            for (state, share) in TurnState::all(before) {
                let got = drawn.iter().filter(|&&turn| turn == state).count() as f64 / 20_000.0;
                assert!((got - share).abs() < 0.012, "{state:?}: {got} {share}");
            }
        }
    }

    #[test]
    fn intents_cues_and_the_turn_before_all_move_p() {
        let signal = Signal::new(1.0, 0.5, 10);
        let state = |intent, cue| TurnState { intent, cue };
        let plain = state(Intent::Chore, Cue::Silent);
        let p = signal.p(plain, None, 1);
        assert!(signal.p(state(Intent::Game, Cue::Silent), None, 1) > p);
        assert!(signal.p(state(Intent::Chore, Cue::More), None, 1) > p);
        assert!(signal.p(state(Intent::Chore, Cue::Done), None, 1) < p);
        let project = state(Intent::Project, Cue::Silent);
        assert!(signal.p(plain, Some(project), 2) > signal.p(plain, Some(plain), 2));
        assert!(signal.p(plain, Some(plain), 5) > signal.p(plain, Some(plain), 2));
    }
}
