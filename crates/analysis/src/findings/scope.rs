//! Whether a change comes with each conversation, and not with each request.

use crate::structure::has_answer;
use crate::traffic::LoggedPrompt;

/// The title of an id that is another one in each conversation.
pub(super) const CONVERSATION_ID: &str =
    "a conversation id in front of shared text: another one in each conversation";

/// At least one in this many requests must be a later one of its conversation.
const LATER_SHARE: usize = 4;

/// Pairs that may be within a conversation: one in this number.
const WITHIN_SHARE: usize = 10;

/// Tells changes within conversations from those between them.
pub(super) struct ChangeScopes<'s> {
    said: &'s [LoggedPrompt],
    /// Whether conversations have several requests, so that both could be seen.
    has_turns: bool,
}

impl<'s> ChangeScopes<'s> {
    pub(super) fn of(said: &'s [LoggedPrompt]) -> Self {
        let later = said.iter().filter(|request| has_answer(&request.text)).count();
        Self { said, has_turns: later * LATER_SHARE >= said.len().max(1) }
    }

    /// Whether nearly all `pairs` of an older and a newer request are of two conversations.
    pub(super) fn is_per_conversation(&self, pairs: impl Iterator<Item = (usize, usize)>) -> bool {
        let (mut within, mut count) = (0, 0);
        for (_, new) in pairs {
            count += 1;
            // The first request of a conversation has no answer yet; a later one that parts has
            // a value of its own.
            within += usize::from(has_answer(&self.said[new].text));
        }
        self.has_turns && count > 0 && within * WITHIN_SHARE <= count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(turns: usize) -> LoggedPrompt {
        let turn = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nhello<|im_end|>\n";
        LoggedPrompt {
            text: format!("{}<|im_start|>user\nhi<|im_end|>\n", turn.repeat(turns)),
            ..LoggedPrompt::default()
        }
    }

    #[test]
    fn changes_in_first_requests_are_of_conversations() {
        let said: Vec<_> = (0..12).map(|number| request(number % 3)).collect();
        let scopes = ChangeScopes::of(&said);
        let of = |turn: usize| (1..4).map(move |number| (number * 3 - 3 + turn, number * 3 + turn));
        assert!(scopes.is_per_conversation(of(0)));
        assert!(!scopes.is_per_conversation(of(0).chain(of(1).take(1))));
        let said: Vec<_> = (0..12).map(|_| request(0)).collect();
        // Each conversation has one request, so the log cannot tell both apart.
        assert!(!ChangeScopes::of(&said).is_per_conversation([(0, 1)].into_iter()));
    }
}
