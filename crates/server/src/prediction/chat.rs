//! Text and prefixes of a chat request's conversation, with a name for each prefix.
//!
//! A prefix that ends with a user message is what an earlier request of the same conversation may
//! have ended with. Its name is a keyed hash over roles and contents, chained message by message,
//! 128 bits. The key is drawn when the process starts, so a name says nothing about the text to
//! anybody who does not hold it; names never leave the process.

use std::collections::VecDeque;

use headstart_index_sync::random_key;
use serde_json::Value;

use super::Reads;

/// User messages before the current one among which a known request is looked for: turns that
/// another server answered in between.
const LOOK_BACK: usize = 8;

/// A prefix of a conversation that ends with a user message.
pub(super) type PrefixKey = [u8; 16];

/// One chat request's conversation. Reading costs time by the length of the text.
#[derive(Clone, Debug, PartialEq)]
pub struct Chat {
    /// The latest prefixes, oldest first; the last is the whole request.
    pub(super) keys: Vec<PrefixKey>,
    /// 1-based index of the last user message.
    pub(super) turn: u16,
    pub(super) said: Said,
}

/// Text of a conversation, as far as a predictor reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// The user's prompts, oldest first, the current one last.
    pub prompts: Vec<String>,
    /// The last answer to each prompt but the current one, if the predictor reads answers. Empty
    /// strings stand for missing answers.
    pub answers: Vec<String>,
    /// Length of the latest answer, characters, where there is one.
    pub answer_chars: Option<u32>,
}

impl Said {
    /// Bytes of text.
    pub(super) fn bytes(&self) -> usize {
        let texts = self.prompts.iter().chain(&self.answers);
        texts.map(String::len).sum()
    }
}

/// Names prefixes; another one per process.
pub(super) struct Namer([u8; 32]);

impl Namer {
    /// With a random key.
    pub(super) fn random() -> Self {
        Self(random_key())
    }

    /// Derives the name of `before` followed by `parts`; other parts give other names.
    fn name(&self, before: &PrefixKey, parts: [&str; 2]) -> PrefixKey {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(before);
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        let mut key = PrefixKey::default();
        hasher.finalize_xof().fill(&mut key);
        key
    }
}

/// Owner of a conversation, as far as the request tells. The same words in another scope belong to
/// another conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scope {
    /// The tenant's salt.
    pub(crate) salt: Option<String>,
    /// The session or the end user.
    pub(crate) session: Option<String>,
}

impl Chat {
    /// Reads `messages`: an array of objects whose contents are text. `None`: no user speaks.
    pub(super) fn read(
        messages: &Value,
        scope: &Scope,
        reads: Reads,
        namer: &Namer,
    ) -> Option<Self> {
        let (salt, session) = (scope.salt.as_deref(), scope.session.as_deref());
        let scope = [salt.unwrap_or_default(), session.unwrap_or_default()];
        let mut key = namer.name(&PrefixKey::default(), scope);
        let mut keys = VecDeque::new();
        let mut turn = 0u16;
        for message in messages.as_array()? {
            let (role, content) = role_and_content(message);
            key = namer.name(&key, [role, content]);
            if role == "user" {
                turn = turn.saturating_add(1);
                keys.push_back(key);
                if keys.len() > LOOK_BACK + 1 {
                    keys.pop_front();
                }
            }
        }
        (turn > 0).then(|| Self { keys: keys.into(), turn, said: said(messages, reads) })
    }
}

fn role_and_content(message: &Value) -> (&str, &str) {
    let text = |name: &str| message[name].as_str().unwrap_or_default();
    (text("role"), text("content"))
}

/// The latest prompts and what was answered between them, from the last user message backwards.
fn said(messages: &Value, reads: Reads) -> Said {
    let mut said = Said::default();
    let mut answer: Option<&str> = None;
    let messages = messages.as_array().map_or(&[][..], Vec::as_slice);
    for (role, content) in messages.iter().map(role_and_content).rev() {
        match role {
            "user" => {
                // What stands before the first prompt answers nothing, so only now it is an answer.
                if said.prompts.len() == 1 {
                    let chars = answer.map(|answer| answer.chars().count());
                    said.answer_chars = chars.map(|count| u32::try_from(count).unwrap_or(u32::MAX));
                }
                if said.prompts.len() == reads.prompts {
                    break;
                }
                let answer = answer.take();
                if reads.answers && !said.prompts.is_empty() {
                    said.answers.push(answer.unwrap_or_default().to_owned());
                }
                said.prompts.push(content.to_owned());
            }
            "assistant" if !said.prompts.is_empty() => {
                answer = answer.or(Some(content));
            }
            _ => {}
        }
    }
    said.prompts.reverse();
    said.answers.reverse();
    said
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ALL: Reads = Reads { prompts: 9, answers: true };

    /// Messages from words such as `u:hello` and `a:hi`.
    fn messages(words: &[&str]) -> Value {
        let message = |word: &&str| {
            let (role, content) = word.split_once(':').expect("a role");
            let role = match role {
                "u" => "user",
                "a" => "assistant",
                _ => "system",
            };
            json!({"role": role, "content": content})
        };
        words.iter().map(message).collect()
    }

    fn read(words: &[&str], namer: &Namer) -> Chat {
        let chat = Chat::read(&messages(words), &Scope::default(), ALL, namer);
        chat.expect("a user speaks")
    }

    #[test]
    fn a_request_is_named_by_a_prefix_of_its_continuation_only() {
        let namer = Namer::random();
        let first = read(&["s:be kind", "u:hello"], &namer);
        let own = first.keys[0];
        let check = |words: &[&str], expected: bool| {
            let other = read(words, &namer);
            assert_eq!(other.keys.contains(&own), expected, "{words:?}");
        };
        check(&["s:be kind", "u:hello"], true);
        check(&["s:be kind", "u:hello", "a:hi", "u:more"], true);
        check(&["s:be kind", "u:hello", "a:other", "u:more"], true);
        check(&["u:hello"], false);
        check(&["s:be kin", "u:dhello"], false);
        check(&["s:be kind", "s:hello", "u:x"], false);
        check(&["s:be kind", "u:hellos"], false);
    }

    #[test]
    fn another_tenant_user_or_process_has_other_names() {
        let namer = Namer::random();
        let name = |salt: &str, session: &str, namer: &Namer| {
            let scope = Scope { salt: Some(salt.to_owned()), session: Some(session.to_owned()) };
            let chat = Chat::read(&messages(&["u:hello"]), &scope, ALL, namer);
            chat.expect("a user speaks").keys
        };
        assert_eq!(name("a", "b", &namer), name("a", "b", &namer));
        assert_ne!(name("a", "b", &namer), name("ab", "", &namer));
        assert_ne!(name("a", "b", &namer), name("a", "c", &namer));
        assert_ne!(name("a", "b", &namer), name("a", "b", &Namer::random()));
    }

    fn check_said(words: &[&str], reads: (usize, bool), expected: (&[&str], &[&str], Option<u32>)) {
        let (prompts, answers) = reads;
        let said = said(&messages(words), Reads { prompts, answers });
        let (prompts, answers, answer_chars) = expected;
        assert_eq!(
            (said.prompts, said.answers, said.answer_chars),
            (
                prompts.iter().map(ToString::to_string).collect(),
                answers.iter().map(ToString::to_string).collect(),
                answer_chars
            ),
            "{words:?} {reads:?}"
        );
    }

    #[test]
    fn as_much_is_said_as_is_read() {
        let three = &["s:x", "u:one", "a:é1", "u:two", "a:é22", "u:three"];
        check_said(three, (1, false), (&["three"], &[], Some(3)));
        check_said(three, (2, true), (&["two", "three"], &["é22"], Some(3)));
        let all: &[&str] = &["one", "two", "three"];
        check_said(three, (9, true), (all, &["é1", "é22"], Some(3)));
        check_said(three, (0, true), (&[], &[], None));
        check_said(
            &["u:one", "u:two", "a:x", "a:y", "u:three"],
            (9, true),
            (all, &["", "y"], Some(1)),
        );
        check_said(&["u:one"], (9, true), (&["one"], &[], None));
        check_said(&["a:hi", "u:one", "a:pre"], (9, true), (&["one"], &[], None));
        let pair = &["u:one", "a:pre", "u:two", "u:three"];
        check_said(pair, (1, false), (&["three"], &[], None));
    }

    #[test]
    fn turns_are_counted_and_prefixes_limited() {
        let namer = Namer::random();
        let many: Vec<_> = (0..20).flat_map(|_| ["u:x", "a:y"]).collect();
        let chat = read(&many, &namer);
        assert_eq!((chat.turn, chat.keys.len()), (20, LOOK_BACK + 1));
        let silent = messages(&["s:x"]);
        assert_eq!(Chat::read(&silent, &Scope::default(), ALL, &namer), None);
    }
}
