//! Intervals of figures, by drawing conversations with replacement.
//!
//! Turns of one conversation depend on each other, so that a conversation is drawn with all of
//! them.
//!
//! Source: Efron, "Bootstrap methods: another look at the jackknife", Annals of Statistics 7, 1979.

use std::collections::HashMap;

use headstart_core::Rng;

use crate::metrics::Confusion;

/// Right and wrong predictions of `N` predictors, by conversation.
#[derive(Debug, Default)]
pub(crate) struct ConversationCounts<const N: usize> {
    places: HashMap<u64, usize>,
    conversations: Vec<[Confusion; N]>,
}

impl<const N: usize> ConversationCounts<N> {
    /// The counts of a conversation, one for each predictor.
    pub(crate) fn of(&mut self, conversation: u64) -> &mut [Confusion; N] {
        let place = *self.places.entry(conversation).or_insert_with(|| {
            self.conversations.push([Confusion::default(); N]);
            self.conversations.len() - 1
        });
        &mut self.conversations[place]
    }

    /// The sums over all conversations.
    pub(crate) fn sums(&self) -> [Confusion; N] {
        sums(&self.conversations)
    }

    /// The middle 95 % of `figure` over `draws` of as many conversations as there are; `None` where
    /// there are none. `seed` fixes the draws.
    pub(crate) fn interval(
        &self,
        draws: usize,
        seed: u64,
        figure: impl Fn([Confusion; N]) -> f64,
    ) -> Option<(f64, f64)> {
        let count = self.conversations.len();
        // Drawing from nothing would panic.
        if count == 0 {
            return None;
        }
        let mut rng = Rng::new(seed);
        let mut draw = || {
            let picked = std::iter::repeat_with(|| &self.conversations[rng.below(count)]);
            figure(sums(picked.take(count)))
        };
        let mut figures: Vec<f64> = (0..draws).map(|_| draw()).collect();
        figures.sort_by(f64::total_cmp);
        // A fortieth of the draws, 2.5 %, lies beyond each end.
        let tail = draws / 40;
        Some((figures[tail], figures[draws - 1 - tail]))
    }
}

fn sums<'a, const N: usize>(
    conversations: impl IntoIterator<Item = &'a [Confusion; N]>,
) -> [Confusion; N] {
    let mut sums = [Confusion::default(); N];
    for conversation in conversations {
        for (sum, one) in sums.iter_mut().zip(conversation) {
            sum.add(one);
        }
    }
    sums
}
