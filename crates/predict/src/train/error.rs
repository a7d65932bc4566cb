//! Errors of learning the classifier.

use super::options::TrainOptions;

/// Why nothing can be learnt.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum TrainError {
    /// Rows and labels do not fit.
    #[error("{values} values are not {labels} rows of {width}; were they made by this definition?")]
    Shape {
        /// Values given.
        values: usize,
        /// Labels given.
        labels: usize,
        /// Values that a row has.
        width: usize,
    },
    /// A value that is not finite.
    #[error("row {row} holds a value that is not a finite number; leave it out or encode it again")]
    NotANumber {
        /// The row, from 0.
        row: usize,
    },
    /// Not enough to learn from.
    #[error(
        "the {part} part has {have} examples, {need} are needed in each, which takes some {} in \
         all (examples whose outcome is unknown do not count, and conversations with equal first \
         prompts stay on one side); give more conversations that begin differently",
        TrainOptions::EXAMPLES_MIN
    )]
    TooFew {
        /// train, validation or test.
        part: &'static str,
        /// Examples in it.
        have: usize,
        /// Examples that it takes.
        need: usize,
    },
    /// Nothing to tell apart.
    #[error(
        "all {have} examples of the {part} part {what}; conversations that end and such that go on \
         are both needed"
    )]
    OneClass {
        /// train, validation or test.
        part: &'static str,
        /// Examples in it.
        have: usize,
        /// The outcome that all of them share, in words.
        what: &'static str,
    },
    /// The weights ran away.
    #[error("the loss of epoch {epoch} is not a number; try a smaller learning rate")]
    Diverged {
        /// The epoch, from 1.
        epoch: usize,
    },
    /// Options out of range.
    #[error("{0}")]
    Options(&'static str),
}
