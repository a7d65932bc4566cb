//! The stable prefix: what at least nine in ten prompts begin with.
//!
//! Prompts with a common prefix are adjacent when sorted. So the longest one of nine in ten is the
//! longest that the first and the last of that number of neighbours share.

use crate::prompt::PromptBody;

/// Bytes of each prompt that are looked at.
const FRONT_BYTES_MAX: usize = 1 << 18;

/// Prompts that are looked at: the first ones.
const PROMPTS_MAX: usize = 4096;

/// Bytes of all fronts together; further prompts are not looked at.
const BYTES_MAX: usize = 1 << 28;

/// The fronts of prompts.
#[derive(Default)]
pub(super) struct Stable {
    fronts: Vec<PromptBody>,
    bytes: usize,
}

impl Stable {
    pub(super) fn add(&mut self, body: &PromptBody) {
        let front = match body {
            PromptBody::Text(_) => body.cut(0..FRONT_BYTES_MAX),
            // Both limits are in bytes; an id has four.
            PromptBody::Ids(_) => body.cut(0..FRONT_BYTES_MAX / size_of::<u32>()),
        };
        let bytes = front.bytes().len();
        // A front that is too large is skipped, and smaller ones after it may still find room.
        if self.fronts.len() < PROMPTS_MAX && self.bytes + bytes <= BYTES_MAX {
            self.bytes += bytes;
            self.fronts.push(front);
        }
    }

    /// The longest beginning that at least nine in ten have; of equally long ones the first in
    /// order.
    pub(super) fn prefix(mut self) -> PromptBody {
        self.fronts.sort_unstable();
        // Integers instead of 0.9: the least number that is at least nine tenths.
        let needed = (self.fronts.len() * 9).div_ceil(10).max(1);
        let windows = self.fronts.windows(needed);
        // Sorted neighbours share least between the first and the last, so one comparison per
        // window is enough.
        let common = windows.map(|window| (window[0].common(&window[needed - 1]), &window[0]));
        // Reversed, because `max_by_key` returns the last of equals and the first is wanted.
        let longest = common.rev().max_by_key(|(len, _)| *len);
        match longest {
            Some((len, front)) => front.cut(0..len),
            None => PromptBody::Text(String::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(bodies: &[PromptBody]) -> PromptBody {
        let mut stable = Stable::default();
        bodies.iter().for_each(|body| stable.add(body));
        stable.prefix()
    }

    fn check(texts: &[&str], expected: &str) {
        let text = |text: &&str| PromptBody::Text((*text).to_owned());
        let bodies: Vec<PromptBody> = texts.iter().map(text).collect();
        assert_eq!(prefix(&bodies), text(&expected));
    }

    #[test]
    fn nine_in_ten_begin_with_it() {
        check(&["rules: a", "rules: b"], "rules: ");
        check(&["rules: a"], "rules: a");
        check(&["rules: a", "other"], "");
        let mut texts = vec!["stable and more"; 9];
        texts.push("stray");
        check(&texts, "stable and more");
        texts.push("stray");
        check(&texts, "st");
        check(&["né", "nè"], "n");
        check(&[], "");
    }

    #[test]
    fn token_ids_have_one_too() {
        let ids = |ids: &[u32]| PromptBody::Ids(ids.to_vec());
        let both = [ids(&[7, 300_000, 8]), ids(&[7, 300_000, 9])];
        assert_eq!(prefix(&both), ids(&[7, 300_000]));
        let text = PromptBody::Text("7 300000".to_owned());
        assert_eq!(prefix(&[ids(&[7]), text]).len(), 0);
    }
}
