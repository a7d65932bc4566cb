//! The study's experiment: traffic, the arms that are compared, and one run of one of them.
//!
//! An [`Arm`] is an eviction policy and who predicts for it. All arms of a seed meet the same
//! [`Traffic`]: the same conversations, starts and gaps, and the same noise.

use headstart_cache::policy::{self, PolicyError, Setting};
use headstart_core::{Probability, Rng};

use crate::chat::tokens::mix;
use crate::chat::{ChatOutcome, Conversation, Head, Pacing, Place, Replica, Run, Script};
use crate::noise::{Channel, NoisyOracle};
use crate::workload::{Gap, Seeds, TurnPrior, Workload};

/// Conversations open at once in the study: its N_conv.
pub const SLOTS: usize = 200;

/// Length of a run in the study, seconds.
pub const SECONDS: f64 = 1_200.0;

/// Mean gap in the study, seconds: its λ_chat.
pub const MEAN_GAP_S: f64 = 100.0;

/// What the study's predictor takes off the cache: 1 GB of the 40 GB that hold 160 K tokens.
pub const CHARGE_TOKENS: u32 = 4_000;

/// Turns that the study trains with; the turn count's shares are learnt from as many
/// conversations.
const TRAINED_ON: usize = 20_000;

/// Who says how likely a conversation goes on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Predictor {
    /// Nobody.
    Nobody,
    /// The turn count: shares learnt on conversations that are not in the run.
    TurnCount,
    /// A noisy oracle of a wanted quality.
    Noisy {
        /// How the truth becomes uncertain.
        channel: Channel,
        /// Its MCC at the best threshold.
        mcc: f64,
    },
    /// A model, asked beforehand; what it says came with the conversations.
    Model,
    /// The truth.
    Truth,
}

/// What is compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    /// An online policy, as [`policy::by_name`] takes it.
    pub policy: String,
    /// Who predicts for it.
    pub predictor: Predictor,
    /// Tokens that the predictor takes off the cache.
    pub charge_tokens: u32,
}

/// A recorded conversation, whose gaps are yet to be drawn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recorded {
    /// Its turns; their gaps are not read.
    pub conversation: Conversation,
    /// What a model says after each turn; `None` where nobody asked one.
    pub told: Vec<Option<Probability>>,
}

/// What all arms of a seed meet.
#[derive(Clone, Debug)]
pub struct Traffic {
    script: Script,
    /// Every turn and whether it goes on.
    cases: Vec<(Place, bool)>,
    prior: TurnPrior,
    /// What a model says, by place; empty without one.
    told: Vec<Vec<Option<Probability>>>,
    noise_seed: u64,
}

/// Seeds of one thing's parts, from its own.
fn parts(seed: u64) -> [u64; 3] {
    [1, 2, 3].map(|part| mix(mix(seed) ^ part))
}

impl Traffic {
    /// Conversations of a published data set, all behind the same `shared_tokens` (0 for none).
    /// `seeds.corpus` also fixes how predictors err, as that of a model is fixed by its corpus.
    #[must_use]
    pub fn of_workload(
        workload: Workload,
        shared_tokens: u32,
        gap: Gap,
        pacing: Pacing,
        seeds: Seeds,
    ) -> Self {
        let [corpus, training, noise_seed] = parts(seeds.corpus);
        let behind_head = move |mut conversation: Conversation| {
            if let (1.., Some(first)) = (shared_tokens, conversation.turns.first_mut()) {
                first.new_tokens = first.new_tokens.saturating_add(shared_tokens);
                conversation.head = Some(Head {
                    conversation: 0,
                    tokens: shared_tokens,
                });
            }
            conversation
        };
        let gaps = parts(seeds.gaps)[0];
        let source = workload.conversations(gap, Seeds { corpus, gaps });
        let source = source.map(behind_head);
        let script = Script::new(source, pacing);
        let (corpus, gaps) = (training, training);
        let training = workload.conversations(gap, Seeds { corpus, gaps });
        Self {
            cases: script.turns().collect(),
            script,
            prior: TurnPrior::learn(training.take(TRAINED_ON)),
            told: Vec::new(),
            noise_seed,
        }
    }

    /// A recorded run, as it went.
    #[must_use]
    pub fn of_script(script: Script, told: Vec<Vec<Option<Probability>>>, seed: u64) -> Self {
        let [.., noise_seed] = parts(seed);
        Self {
            cases: script.turns().collect(),
            prior: TurnPrior::learn(script.conversations().iter().cloned()),
            told,
            script,
            noise_seed,
        }
    }

    /// Recorded conversations, drawn with replacement, each draw a conversation of its own. The
    /// turn count learns from the same ones: ten shares cannot know single conversations.
    ///
    /// # Panics
    /// When `recorded` is empty.
    #[must_use]
    pub fn of_recorded(recorded: &[Recorded], gap: Gap, pacing: Pacing, seeds: Seeds) -> Self {
        let [drawn, _, noise_seed] = parts(seeds.corpus);
        let mut rng = Rng::new(drawn);
        let mut gaps = Rng::new(parts(seeds.gaps)[0]);
        let mut chosen = Vec::new();
        let source = std::iter::repeat_with(|| {
            let index = rng.below(recorded.len());
            let mut conversation = recorded[index].conversation.clone();
            for turn in &mut conversation.turns {
                turn.gap_s = gap.draw(&mut gaps);
            }
            if !conversation.turns.is_empty() {
                chosen.push(index);
            }
            conversation
        });
        let has_turns = recorded.iter().any(|it| !it.conversation.turns.is_empty());
        assert!(has_turns, "there is a conversation to draw");
        let script = Script::new(source, pacing);
        let told = chosen.iter().take(script.conversations().len());
        Self {
            cases: script.turns().collect(),
            prior: TurnPrior::learn(recorded.iter().map(|it| it.conversation.clone())),
            told: told.map(|&index| recorded[index].told.clone()).collect(),
            script,
            noise_seed,
        }
    }

    /// The conversations and their starts.
    #[must_use]
    pub fn script(&self) -> &Script {
        &self.script
    }

    /// Runs `arm` on `replica` with a cache of `capacity_tokens`.
    ///
    /// # Errors
    /// [`PolicyError`], when the policy or an option of it is not known.
    pub fn run(
        &self,
        arm: &Arm,
        replica: Replica,
        capacity_tokens: u32,
    ) -> Result<ChatOutcome, PolicyError> {
        let block_tokens = replica.scheduler.block_size as u32;
        let (spec, charged) = policy::split_charge(&arm.policy, block_tokens)?;
        let blocks = capacity_tokens.saturating_sub(arm.charge_tokens) / block_tokens;
        let capacity = (blocks as usize).saturating_sub(charged).max(1);
        let setting = Setting {
            capacity,
            block_tokens,
        };
        let policy = policy::by_name(&spec, setting)?;
        let predict = self.predictions(arm.predictor);
        Ok(Run::new(&self.script, replica, (capacity, policy), &*predict).finish())
    }

    fn predictions(&self, predictor: Predictor) -> Box<dyn Fn(Place) -> Option<Probability> + '_> {
        let goes_on = |place: Place| {
            let conversation = &self.script.conversations()[place.conversation];
            place.turn + 1 < conversation.turns.len()
        };
        match predictor {
            Predictor::Nobody => Box::new(|_| None),
            Predictor::TurnCount => Box::new(|place| Some(self.prior.predict(place.turn))),
            Predictor::Noisy { channel, mcc } => {
                let oracle = NoisyOracle::calibrated(channel, mcc, &self.cases, self.noise_seed);
                Box::new(move |place| Some(oracle.predict(place, goes_on(place))))
            }
            Predictor::Model => Box::new(|place| {
                let told = self.told.get(place.conversation)?;
                *told.get(place.turn)?
            }),
            Predictor::Truth => {
                Box::new(move |place| Probability::new(f64::from(u8::from(goes_on(place)))))
            }
        }
    }
}
