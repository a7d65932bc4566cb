//! Training data of the classifier: rows, each with the outcome of its conversation.

use headstart_core::{Probability, Rng};
use serde::{Deserialize, Serialize};

use crate::Definition;
use crate::prior::TurnPrior;
use crate::train::error::TrainError;

/// Outcome of a conversation after a prompt and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConversationOutcome {
    /// Another user message followed.
    Continued,
    /// None did.
    Ended,
    /// The record ends here, the conversation may not: a censored observation. Neither trained
    /// nor evaluated on.
    Unknown,
}

impl ConversationOutcome {
    /// Whether it continued, where that is known.
    #[must_use]
    pub fn continued(self) -> Option<bool> {
        match self {
            Self::Continued => Some(true),
            Self::Ended => Some(false),
            Self::Unknown => None,
        }
    }
}

/// A moment of a conversation, but for its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// Outcome of the conversation.
    pub outcome: ConversationOutcome,
    /// Number of the user message, from 1.
    pub turn: u16,
    /// Identity of the conversation: its examples stay on one side of a split.
    pub conversation: u64,
    /// Conversations with the same first prompt share it, and stay on one side too.
    pub group: u64,
    /// The probability with which a generator drew the outcome, where there is one.
    pub truth: Option<Probability>,
}

/// Rows and their labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    /// Definition of the rows.
    pub definition: Definition,
    /// `[labels, definition.width()]`.
    pub values: Vec<f32>,
    /// One for each row.
    pub labels: Vec<Label>,
}

impl Dataset {
    /// From rows that exist already.
    ///
    /// # Errors
    /// When their number does not fit the labels, or a value is not finite.
    pub fn new(
        definition: Definition,
        values: Vec<f32>,
        labels: Vec<Label>,
    ) -> Result<Self, TrainError> {
        let width = definition.width();
        // A row cut off in the middle would move all rows after it into wrong columns.
        if values.len() != labels.len() * width {
            return Err(TrainError::Shape { values: values.len(), labels: labels.len(), width });
        }
        if let Some(at) = values.iter().position(|value| !value.is_finite()) {
            return Err(TrainError::NotANumber { row: at / width });
        }
        Ok(Self { definition, values, labels })
    }

    /// The row at `index`.
    #[must_use]
    pub fn row(&self, index: usize) -> &[f32] {
        let width = self.definition.width();
        &self.values[index * width..][..width]
    }

    /// A copy with the known outcomes shuffled among the rows that have one: skill that remains on
    /// it is an error of the pipeline.
    #[must_use]
    pub fn shuffled(&self, seed: u64) -> Self {
        // Unknown outcomes keep their rows, so the parts of a split stay as they were.
        let known = |label: &Label| label.outcome != ConversationOutcome::Unknown;
        let labels = self.labels.iter().filter(|label| known(label));
        let mut outcomes: Vec<ConversationOutcome> = labels.map(|label| label.outcome).collect();
        Rng::new(seed).shuffle(&mut outcomes);
        let mut shuffled = self.clone();
        let targets = shuffled.labels.iter_mut().filter(|label| known(label));
        for (label, outcome) in targets.zip(outcomes) {
            label.outcome = outcome;
            // The true probability belonged to the old outcome.
            label.truth = None;
        }
        shuffled
    }

    /// Names the data: hexadecimal BLAKE3 of definition, rows and labels.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let mut hash = blake3::Hasher::new();
        hash.update(format!("{:?}", self.definition).as_bytes());
        for (row, label) in self.values.chunks(self.definition.width()).zip(&self.labels) {
            for value in row {
                hash.update(&value.to_le_bytes());
            }
            hash.update(&[label.outcome as u8]);
            hash.update(&label.turn.to_le_bytes());
            hash.update(&label.conversation.to_le_bytes());
            hash.update(&label.group.to_le_bytes());
        }
        hash.finalize().to_hex().to_string()
    }
}

/// The share of conversations that go on after each turn, in these examples.
#[must_use]
pub fn turn_prior(data: &Dataset, part: &[usize]) -> TurnPrior {
    let mut prior = TurnPrior::new();
    for label in part.iter().map(|&at| &data.labels[at]) {
        if let Some(continued) = label.outcome.continued() {
            prior.observe(label.turn, continued);
        }
    }
    prior
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::features::Parts;
    use crate::text::TextOptions;

    /// A definition whose rows are four numbers and the turn.
    pub(crate) fn four() -> Definition {
        Definition {
            encoder: "four".to_owned(),
            dims: 4,
            text: TextOptions::default(),
            parts: Parts::Joined,
            behaviour: false,
            turn_cap: 20,
        }
    }

    /// Two turns of each conversation; the first number tells the outcome with probability
    /// `strength`, the others tell nothing.
    pub(crate) fn planted(conversations: u64, strength: f64, seed: u64) -> Dataset {
        let mut rng = Rng::new(seed);
        let (mut values, mut labels) = (Vec::new(), Vec::new());
        for at in 0..2 * conversations {
            let continued = rng.below(3) > 0;
            let told = if rng.next_f64() < strength { continued } else { rng.below(3) > 0 };
            let noise = [(); 3].map(|()| rng.next_f64() as f32);
            let turn = 1 + (at % 2) as u16;
            values.extend([
                f32::from(u8::from(told)),
                noise[0],
                noise[1],
                noise[2],
                f32::from(turn),
            ]);
            labels.push(Label {
                outcome: if continued {
                    ConversationOutcome::Continued
                } else {
                    ConversationOutcome::Ended
                },
                turn,
                conversation: at / 2,
                group: at / 2,
                truth: None,
            });
        }
        Dataset::new(four(), values, labels).expect("rows and labels fit")
    }

    #[test]
    fn rows_that_do_not_fit_or_are_no_numbers_are_refused() {
        let good = planted(2, 1.0, 1);
        let mut short = good.values.clone();
        short.pop();
        let refused = |values| {
            let labels = good.labels.clone();
            Dataset::new(four(), values, labels).expect_err("must be refused").to_string()
        };
        assert!(refused(short).contains("19 values are not 4 rows of 5"));
        let mut nan = good.values.clone();
        nan[12] = f32::NAN;
        assert!(refused(nan).contains("row 2"));
    }

    #[test]
    fn shuffling_deals_the_same_outcomes_anew() {
        let mut data = planted(500, 1.0, 1);
        data.labels[3].outcome = ConversationOutcome::Unknown;
        let shuffled = data.shuffled(5);
        let count = |data: &Dataset, outcome| {
            data.labels.iter().filter(|label| label.outcome == outcome).count()
        };
        for outcome in [
            ConversationOutcome::Continued,
            ConversationOutcome::Ended,
            ConversationOutcome::Unknown,
        ] {
            assert_eq!(count(&data, outcome), count(&shuffled, outcome));
        }
        assert_eq!(shuffled.labels[3].outcome, ConversationOutcome::Unknown);
        let kept = data.labels.iter().zip(&shuffled.labels).filter(|(a, b)| a == b).count();
        // Two thirds continue, so 5/9 stay the same by chance.
        assert!((480..640).contains(&kept), "{kept}");
    }

    #[test]
    fn the_fingerprint_names_rows_labels_and_definition() {
        let data = planted(3, 1.0, 1);
        let changed = |change: fn(&mut Dataset)| {
            let mut other = data.clone();
            change(&mut other);
            other.fingerprint() != data.fingerprint()
        };
        assert!(!changed(|_| ()));
        assert!(changed(|data| data.values[7] += 1.0));
        assert!(changed(|data| data.labels[0].turn = 9));
        assert!(changed(|data| data.labels[0].outcome = ConversationOutcome::Unknown));
        assert!(changed(|data| data.definition.encoder = "five".to_owned()));
    }
}
