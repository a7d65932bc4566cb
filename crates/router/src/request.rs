//! Requests to a router, and its decisions.

use std::time::Duration;

use headstart_core::block::{Medium, Namespace};
use headstart_core::{Nanos, ReplicaId, RouteKey, TokenId};

use crate::index::{PromptKeys, TierTokens};

/// One request to place: what the edge knows of it, and what a look-up adds.
#[derive(Clone, Copy, Debug, Default)]
pub struct RouteRequest<'a> {
    /// The prompt; `None` when it is not tokenized, then no overlap is known. With [`Self::text`],
    /// only the tokens in front.
    pub tokens: Option<&'a [TokenId]>,
    /// The images and other media in `tokens`, sorted by their start.
    pub media: &'a [Medium],
    /// Numbers that stand for the prompt's text, four bytes each, where not all tokens are known.
    pub text: Option<&'a [TokenId]>,
    /// A key for each message of the prompt, which covers all messages up to it. The router finds
    /// the conversation's last turn by them, whether or not tokens are known. Empty for a prompt
    /// without messages: its blocks then serve instead.
    pub messages: &'a [RouteKey],
    /// Namespace that separates the prompt from the same tokens in other requests.
    pub namespace: Namespace<'a>,
    /// The client's id of the conversation.
    pub session: Option<&'a str>,
    /// The longest time to the first token that the client wants; what [`crate::score::Cost`] meets
    /// at the least cost for others.
    pub slo_ttft: Option<Duration>,
    /// Keys of `tokens`, from [`crate::PrefixIndex::hash`]. `None`: the router computes them,
    /// which takes as long as the prompt is, with the router held.
    pub keys: Option<&'a PromptKeys>,
    /// Keys of `text`, from [`crate::Router::text_index`]. The router then goes by what it sent
    /// where. Keys of `tokens` where no replica reports events.
    pub text_keys: Option<&'a PromptKeys>,
    /// Replicas not to choose, such as those that have just failed this request.
    pub excluded: &'a [ReplicaId],
    /// When it is asked.
    pub now: Nanos,
}

impl RouteRequest<'_> {
    /// Length of the prompt, tokens: estimated where only its text is known, 0 when neither is.
    #[must_use]
    pub fn prompt_tokens(&self) -> usize {
        let exact = self.tokens.map_or(0, <[TokenId]>::len);
        exact.max(self.text_keys.map_or(0, PromptKeys::num_tokens))
    }

    /// Whether some of the prompt's tokens are unknown.
    #[must_use]
    pub fn lacks_tokens(&self) -> bool {
        self.text.is_some()
    }
}

/// A choice that was made and reserved.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The chosen replica.
    pub replica: ReplicaId,
    /// Leading prompt tokens that it is thought to hold, in any tier.
    pub overlap_tokens: usize,
    /// The same by tier.
    pub tier_tokens: TierTokens,
    /// Length of the prompt.
    pub prompt_tokens: usize,
    /// All that passed the filters, the chosen one among them, by ascending replica.
    pub candidates: Vec<Candidate>,
    /// Id of the request in the later calls about its progress.
    pub reservation: ReservationId,
}

/// One of those a choice was made among.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The replica.
    pub replica: ReplicaId,
    /// Leading prompt tokens that it is thought to hold, in any tier.
    pub overlap_tokens: usize,
    /// Prompt tokens in front: sent there and not yet computed.
    pub prefill_tokens: usize,
    /// The weighted sum of its scores; 0 where the strategy does not score.
    pub score: f64,
    /// Predicted time to the first token there, seconds, as [`crate::score::Cost`] predicts it.
    pub ttft_s: f64,
}

/// A request in flight. Never given out twice by one router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReservationId(pub u64);

/// No replica may serve the request now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoReplica {
    /// Replicas that there are.
    pub known: usize,
    /// Replicas that are down.
    pub down: usize,
}

impl std::fmt::Display for NoReplica {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { known, down } = self;
        let failed = known - down;
        write!(
            f,
            "no engine can take this request: {down} of {known} are down, {failed} failed it or do \
             not serve its model"
        )
    }
}

impl std::error::Error for NoReplica {}
