//! The marks of prefixes (`cache_control`) among the messages of a request.

use serde_json::Value;

use super::names::CACHE_MARK;

/// Number of the block of content at which a position is cut off.
const BLOCKS_MAX: u64 = 0xffff;

/// The prefixes of its messages that a request marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheMarks {
    /// Blocks of content up to and with the last mark in the messages; 0 without one.
    pub last_block: u64,
    /// Whether a mark stands in the last message.
    pub has_last: bool,
    /// Whether one stands in an earlier message.
    pub has_earlier: bool,
}

impl CacheMarks {
    /// As one number, which is not zero.
    #[must_use]
    pub fn packed(self) -> u64 {
        1 | u64::from(self.has_last) << 1
            | u64::from(self.has_earlier) << 2
            | self.last_block.min(BLOCKS_MAX) << 8
    }

    /// The marks of such a number.
    #[must_use]
    pub fn unpacked(number: u64) -> Self {
        Self {
            last_block: number >> 8 & BLOCKS_MAX,
            has_last: number & 2 != 0,
            has_earlier: number & 4 != 0,
        }
    }
}

/// The marks in `messages`, as JSON.
pub(super) fn of(messages: &str) -> CacheMarks {
    let Ok(messages) = serde_json::from_str::<Vec<Value>>(messages) else {
        return CacheMarks::default();
    };
    let mut marks = CacheMarks::default();
    let mut blocks = 0;
    for (number, message) in messages.iter().enumerate() {
        let is_last = number + 1 == messages.len();
        let has_mark = |value: &Value| value.get(CACHE_MARK).is_some_and(|mark| !mark.is_null());
        let mut mark = |at: u64| {
            marks.last_block = at;
            marks.has_last |= is_last;
            marks.has_earlier |= !is_last;
        };
        match message.get("content").and_then(Value::as_array) {
            Some(content) => {
                for block in content {
                    blocks += 1;
                    if has_mark(block) {
                        mark(blocks);
                    }
                }
            }
            None => blocks += 1,
        }
        if has_mark(message) {
            mark(blocks);
        }
    }
    marks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_mark_and_its_message_are_found() {
        let text = r#"{"type": "text", "text": "a"}"#;
        let marked = r#"{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}"#;
        let message =
            |blocks: &[&str]| format!(r#"{{"role": "user", "content": [{}]}}"#, blocks.join(","));
        let found = |messages: &[String]| of(&format!("[{}]", messages.join(",")));
        let last = found(&[message(&[text, text]), message(&[text, marked])]);
        let expected = CacheMarks { last_block: 4, has_last: true, has_earlier: false };
        assert_eq!(last, expected);
        assert_eq!(CacheMarks::unpacked(last.packed()), last);
        let earlier = found(&[message(&[marked]), message(&[text])]);
        let expected = CacheMarks { last_block: 1, has_last: false, has_earlier: true };
        assert_eq!(earlier, expected);
        assert_eq!(of("no JSON"), CacheMarks::default());
        assert_eq!(CacheMarks::unpacked(1), CacheMarks::default());
    }
}
