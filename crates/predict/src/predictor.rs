//! A model with its encoder: from situations to probabilities.

use std::sync::Arc;

use headstart_core::Probability;

use crate::model::{ContinuationModel, ModelError};
use crate::{Encoder, Situation};

/// Answers whether conversations go on. Keeps no state: the same situation, the same answer.
#[derive(Clone)]
pub struct Predictor {
    model: Arc<ContinuationModel>,
    encoder: Arc<dyn Encoder>,
}

impl Predictor {
    /// Unites the two.
    ///
    /// # Errors
    /// [`ModelError::OtherEncoder`] when the model was trained with another one.
    pub fn new(
        model: Arc<ContinuationModel>,
        encoder: Arc<dyn Encoder>,
    ) -> Result<Self, ModelError> {
        let ContinuationModel { definition, .. } = &*model;
        // A model file may name the right encoder and another width.
        if definition.encoder != encoder.identity() || definition.dims != encoder.dims() {
            return Err(ModelError::OtherEncoder {
                model: definition.encoder.clone(),
                given: encoder.identity().to_owned(),
            });
        }
        Ok(Self { model, encoder })
    }

    /// The probability that another user message follows, for each; `None` where the model says
    /// what is no number. Costs the encoder's time, and some tens of microseconds each.
    #[must_use]
    pub fn predict(&self, situations: &[Situation]) -> Vec<Option<Probability>> {
        self.predict_rows(&self.rows(situations))
    }

    /// The row of a situation, for the log.
    #[must_use]
    pub fn features(&self, situation: &Situation) -> Vec<f32> {
        self.rows(std::slice::from_ref(situation))
    }

    /// The rows of situations, one after another.
    #[must_use]
    pub fn rows(&self, situations: &[Situation]) -> Vec<f32> {
        self.model.definition.rows(&*self.encoder, situations)
    }

    /// As [`Self::predict`], from [`Self::rows`].
    ///
    /// # Panics
    /// When `rows` are not whole rows.
    #[must_use]
    pub fn predict_rows(&self, rows: &[f32]) -> Vec<Option<Probability>> {
        self.model.predict_rows(rows)
    }

    /// The model.
    #[must_use]
    pub fn model(&self) -> &ContinuationModel {
        &self.model
    }

    /// The encoder.
    #[must_use]
    pub fn encoder(&self) -> &Arc<dyn Encoder> {
        &self.encoder
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::tests::{four, planted};
    use crate::{DatasetSplit, SplitShares, TrainOptions, train};
    use std::ops::ControlFlow;

    /// Four values from the text's first character; NaN for an empty text.
    struct Four(&'static str);

    impl Encoder for Four {
        fn identity(&self) -> &str {
            self.0
        }

        fn dims(&self) -> usize {
            4
        }

        fn encode(&self, texts: &[&str]) -> Vec<f32> {
            let of = |text: &&str| match text.chars().next() {
                Some(c) => [f32::from(u8::from(c == 'y')), 0.5, 0.5, 0.5],
                None => [f32::NAN; 4],
            };
            texts.iter().flat_map(of).collect()
        }
    }

    #[test]
    fn it_says_what_was_learnt_refuses_another_encoder_and_admits_what_is_no_number() {
        let data = planted(400, 0.9, 3);
        assert_eq!(data.definition, four());
        let split = DatasetSplit::new(&data.labels, SplitShares::default(), 1);
        let options = TrainOptions { hidden: 8, batch: 32, ..TrainOptions::default() };
        let trained = train(&data, &split, &options, 0, &mut |_| ControlFlow::Continue(()));
        let model = Arc::new(trained.expect("enough to learn from").model);
        let refused = Predictor::new(model.clone(), Arc::new(Four("five"))).err();
        let refused = refused.expect("another encoder").to_string();
        assert!(refused.contains("`four`") && refused.contains("`five`"), "{refused}");

        let predictor = Predictor::new(model, Arc::new(Four("four"))).expect("the model's own");
        let situation = |prompt: &str| Situation {
            prompts: vec![prompt.to_owned()],
            turn: 1,
            ..Situation::default()
        };
        let situations = ["yes", "no", ""].map(situation);
        let said = predictor.predict(&situations);
        assert!(said[0] > said[1] && said[1].is_some(), "{said:?}");
        assert_eq!(said[2], None);
        assert_eq!(predictor.predict_rows(&predictor.features(&situations[0])), said[..1]);
    }
}
