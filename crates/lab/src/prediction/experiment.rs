//! The study's experiment: traffic, the arms that are compared, and one run of one of them.
//!
//! An [`Arm`] is an eviction policy and who predicts for it. All arms of a seed meet the same
//! [`Traffic`]: the same conversations, starts and gaps, and the same noise.

use headstart_cache::policy::{self, PolicyError, Setting};
use headstart_core::{Probability, Rng};
use headstart_trace::characterize::stack::mix;
use headstart_trace::synth::Gap;

use crate::prediction::chat::{
    ChatOutcome, ChatRun, Head, Pacing, Place, Replica, Script, ScriptedConversation,
};
use crate::prediction::noise::{NoiseChannel, NoisyOracle};
use crate::prediction::workload::{ChatWorkload, Seeds};

/// Conversations open at once in the study: its N_conv.
pub(crate) const SLOTS: usize = 200;

/// Length of a run in the study, seconds.
pub(crate) const SECONDS: f64 = 1_200.0;

/// Tokens that the study's predictor takes off the cache: 1 GB of the 40 GB that hold 160 K tokens.
pub(crate) const CHARGE_TOKENS: u32 = 4_000;

/// Turns that the study trains with; the turn count's shares are learnt from as many
/// conversations.
const TRAINED_ON: usize = 20_000;

/// Source of the probabilities that conversations go on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum PredictionSource {
    /// No predictions.
    Nobody,
    /// The turn count: shares learnt on conversations that are not in the run.
    TurnCount,
    /// A noisy oracle of a wanted quality.
    Noisy {
        /// Kind of noise that makes the truth uncertain.
        channel: NoiseChannel,
        /// Its MCC at the best threshold.
        mcc: f64,
    },
    /// A model, asked beforehand; what it says came with the conversations.
    Model,
    /// The truth.
    Truth,
}

/// One side of the comparison: a policy and its predictor.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Arm {
    /// An online policy, as [`policy::by_name`] takes it.
    pub(crate) policy: String,
    /// Source of the predictions for the policy.
    pub(crate) predictor: PredictionSource,
    /// Tokens that the predictor takes off the cache.
    pub(crate) charge_tokens: u32,
}

/// A recorded conversation, whose gaps are yet to be drawn.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct UntimedConversation {
    /// Its turns; their gaps are not read.
    pub(crate) conversation: ScriptedConversation,
    /// A model's prediction after each turn; `None` where no model was asked.
    pub(crate) told: Vec<Option<Probability>>,
}

/// Traffic common to all arms of a seed.
#[derive(Clone, Debug)]
pub(crate) struct Traffic {
    script: Script,
    /// Every turn, and whether the conversation continues after it.
    cases: Vec<(Place, bool)>,
    /// By turn, from 1; the last one holds for all later ones.
    turn_shares: Vec<Probability>,
    /// A model's predictions, by conversation and turn; empty without a model.
    told: Vec<Vec<Option<Probability>>>,
    noise_seed: u64,
}

/// Learns from turns (their numbers, from 1, and whether another one followed) the share of
/// conversations that continue: by turn, from 1, the last one for all later turns.
pub(crate) type LearnTurns = dyn Fn(&mut dyn Iterator<Item = (u16, bool)>) -> Vec<Probability>;

/// Seeds of one thing's parts, from its own.
fn parts(seed: u64) -> [u64; 3] {
    [1, 2, 3].map(|part| mix(mix(seed) ^ part))
}

impl Traffic {
    /// Conversations of a published data set, all behind the same `shared_tokens` (0 for none).
    /// `seeds.corpus` also fixes how predictors err, as that of a model is fixed by its corpus. The
    /// turn count learns from conversations that are not in the run.
    #[must_use]
    pub(crate) fn of_workload(
        workload: ChatWorkload,
        shared_tokens: u32,
        gap: &Gap,
        pacing: Pacing,
        seeds: Seeds,
        learn: &LearnTurns,
    ) -> Self {
        let [corpus, training, noise_seed] = parts(seeds.corpus);
        // A shared system prompt: the head of the first conversation, in all of them.
        let behind_head = move |mut conversation: ScriptedConversation| {
            if let (1.., Some(first)) = (shared_tokens, conversation.turns.first_mut()) {
                first.new_tokens = first.new_tokens.saturating_add(shared_tokens);
                conversation.head = Some(Head { conversation: 0, tokens: shared_tokens });
            }
            conversation
        };
        let gaps = parts(seeds.gaps)[0];
        let source = workload.conversations(gap, Seeds { corpus, gaps });
        let source = source.map(behind_head);
        let script = Script::new(source, pacing);
        // Another corpus, so that the turn count does not learn from the conversations of the run.
        let (corpus, gaps) = (training, training);
        let training = workload.conversations(gap, Seeds { corpus, gaps });
        Self {
            cases: script.turns().collect(),
            script,
            turn_shares: learn(
                &mut training.take(TRAINED_ON).flat_map(|conversation| outcomes(&conversation)),
            ),
            told: Vec::new(),
            noise_seed,
        }
    }

    /// A recorded run, as it went.
    #[must_use]
    pub(crate) fn of_script(
        script: Script,
        told: Vec<Vec<Option<Probability>>>,
        seed: u64,
        learn: &LearnTurns,
    ) -> Self {
        let [.., noise_seed] = parts(seed);
        Self {
            cases: script.turns().collect(),
            turn_shares: learn(&mut script.conversations().iter().flat_map(outcomes)),
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
    pub(crate) fn of_recorded(
        recorded: &[UntimedConversation],
        gap: &Gap,
        pacing: Pacing,
        seeds: Seeds,
        learn: &LearnTurns,
    ) -> Self {
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
            // `Script` skips conversations without turns, so only the others have a number there.
            if !conversation.turns.is_empty() {
                chosen.push(index);
            }
            conversation
        });
        let has_turns = recorded.iter().any(|recording| !recording.conversation.turns.is_empty());
        assert!(has_turns, "there is a conversation to draw");
        let script = Script::new(source, pacing);
        // The script draws one conversation more than it keeps, to see that it starts too late.
        let told = chosen.iter().take(script.conversations().len());
        Self {
            cases: script.turns().collect(),
            turn_shares: learn(
                &mut recorded.iter().flat_map(|recording| outcomes(&recording.conversation)),
            ),
            told: told.map(|&index| recorded[index].told.clone()).collect(),
            script,
            noise_seed,
        }
    }

    /// The conversations and their starts.
    #[must_use]
    pub(crate) fn script(&self) -> &Script {
        &self.script
    }

    /// Runs `arm` on `replica` with a cache of `capacity_tokens`.
    ///
    /// # Errors
    /// [`PolicyError`], when the policy or an option of it is not known.
    pub(crate) fn run(
        &self,
        arm: &Arm,
        replica: Replica,
        capacity_tokens: u32,
    ) -> Result<ChatOutcome, PolicyError> {
        let block_tokens = replica.scheduler.block_size as u32;
        let (spec, charged) = policy::split_charge(&arm.policy, block_tokens)?;
        // The predictor's memory comes off the cache, as in the study.
        let blocks = capacity_tokens.saturating_sub(arm.charge_tokens) / block_tokens;
        // A cache must hold a block, whatever is taken off.
        let capacity = (blocks as usize).saturating_sub(charged).max(1);
        let setting = Setting { capacity, block_tokens };
        let policy = policy::by_name(&spec, setting)?;
        let predict = self.predictions(arm.predictor);
        Ok(ChatRun::new(&self.script, replica, capacity, policy, &*predict).finish())
    }

    fn predictions(
        &self,
        predictor: PredictionSource,
    ) -> Box<dyn Fn(Place) -> Option<Probability> + '_> {
        let goes_on = |place: Place| {
            let conversation = &self.script.conversations()[place.conversation];
            place.turn + 1 < conversation.turns.len()
        };
        match predictor {
            PredictionSource::Nobody => Box::new(|_| None),
            PredictionSource::TurnCount => Box::new(|place| {
                // Without a share for any turn there is nothing to predict with.
                let last = self.turn_shares.len().checked_sub(1)?;
                Some(self.turn_shares[place.turn.min(last)])
            }),
            PredictionSource::Noisy { channel, mcc } => {
                // Calibrated on the turns of the run itself, so its MCC there is the wanted one.
                let oracle = NoisyOracle::calibrated(channel, mcc, &self.cases, self.noise_seed);
                Box::new(move |place| Some(oracle.predict(place, goes_on(place))))
            }
            PredictionSource::Model => Box::new(|place| {
                let told = self.told.get(place.conversation)?;
                *told.get(place.turn)?
            }),
            PredictionSource::Truth => {
                Box::new(move |place| Probability::new(f64::from(u8::from(goes_on(place)))))
            }
        }
    }
}

/// The turns of a conversation, from 1, and whether another one follows.
fn outcomes(conversation: &ScriptedConversation) -> impl Iterator<Item = (u16, bool)> + use<> {
    let length = conversation.turns.len();
    (1..=length).map(move |turn| (u16::try_from(turn).unwrap_or(u16::MAX), turn < length))
}
