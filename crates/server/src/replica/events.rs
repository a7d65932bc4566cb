//! The events of a request on a replica, from the engine to the request's task.

use std::collections::HashMap;

use headstart_core::{SeqId, Tier, TokenId};
use headstart_engine::{FinishReason, Output, Submit};
use tokio::sync::mpsc;

/// Event of a request that its replica reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaEvent {
    /// It was not taken.
    Refused(Submit),
    /// It runs, with this number of its prompt tokens cached.
    Started {
        /// Prompt tokens.
        cached_tokens: usize,
    },
    /// Prompt tokens were loaded from a lower tier.
    Loaded {
        /// Prompt tokens.
        tokens: usize,
        /// The tier.
        from: Tier,
    },
    /// Only a part of its stored prefix was loaded.
    Partly {
        /// Bytes that were loaded.
        loaded_bytes: u64,
        /// Bytes of all of it.
        whole_bytes: u64,
    },
    /// A token.
    Token {
        /// The token.
        token: TokenId,
        /// Set on the last.
        finish: Option<FinishReason>,
    },
}

pub(super) fn tell(output: Output, clients: &mut HashMap<SeqId, mpsc::Sender<ReplicaEvent>>) {
    let (seq, event, is_last) = match output {
        Output::Started { seq, cached_tokens } => {
            (seq, ReplicaEvent::Started { cached_tokens }, false)
        }
        Output::Loaded { seq, tokens, from } => (seq, ReplicaEvent::Loaded { tokens, from }, false),
        Output::Partly { seq, loaded_bytes, whole_bytes, .. } => {
            let event = ReplicaEvent::Partly { loaded_bytes, whole_bytes };
            (seq, event, false)
        }
        Output::Token { seq, token, finish } => {
            (seq, ReplicaEvent::Token { token, finish }, finish.is_some())
        }
    };
    if let Some(client) = clients.get(&seq) {
        // A closed channel is an abandoned request: cancelled before the next step.
        let _ = client.try_send(event);
    }
    // The last token ends the request. Without its sender the client's stream ends as well.
    if is_last {
        clients.remove(&seq);
    }
}
