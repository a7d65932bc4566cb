//! Quality by the number of conversations learnt from.

use std::ops::ControlFlow;

use serde::Serialize;

use crate::report::Scores;
use crate::train::{TrainError, TrainOptions, train};
use crate::{Dataset, DatasetSplit};

/// A point of a learning curve.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LearningCurvePoint {
    /// Conversations learnt from.
    pub conversations: usize,
    /// Their examples.
    pub samples: usize,
    /// On the test part.
    pub scores: Scores,
}

/// Trains on 1/2^steps, …, 1/2 and all of the training conversations, a smaller part contained
/// in a larger one. Parts too small to learn from are left out.
///
/// # Errors
/// As [`train`] on the whole.
pub fn learning_curve(
    data: &Dataset,
    split: &DatasetSplit,
    options: &TrainOptions,
    steps: u32,
    observer: &mut dyn FnMut(&LearningCurvePoint) -> ControlFlow<()>,
) -> Result<Vec<LearningCurvePoint>, TrainError> {
    let mut points = Vec::new();
    for step in (0..=steps).rev() {
        let part = split.part_of_training(&data.labels, 0.5f64.powi(step as i32));
        let trained = train(data, &part, options, 0, &mut |_| ControlFlow::Continue(()));
        let trained = match trained {
            // A small part may lack examples. The whole must not, so its error ends the curve.
            Err(TrainError::TooFew { .. } | TrainError::OneClass { .. }) if step > 0 => continue,
            trained => trained?,
        };
        let point = LearningCurvePoint {
            conversations: trained.report.parts.train.conversations,
            samples: trained.report.parts.train.samples,
            scores: trained.report.model,
        };
        let flow = observer(&point);
        points.push(point);
        if flow.is_break() {
            break;
        }
    }
    Ok(points)
}
