//! The members of a JSON object in another order. Programs that write unordered maps change the
//! order with each start, or each time. YAML's mappings and lines of `key: value` are the same
//! mistake.

use super::WordSpans;
use super::order::ReorderedSpan;
use super::tool_order::is_tools;
use crate::text::divergence::PromptAlignment;
use crate::text::word::Word;

/// Keys that lines must have to be told from sentences.
const KEYS: usize = 3;

/// Most words of a line with a key; documents have longer ones.
const LINE_WORDS: usize = 12;

pub(super) fn find(aligned: &PromptAlignment<'_>) -> Option<WordSpans> {
    let block = ReorderedSpan::find(aligned)?;
    // Members of a tool's schema are JSON keys too, so tools are asked about lines only.
    if block.is_members {
        return Some(block.spans());
    }
    let spans = block.spans();
    (is_mapping(&aligned.new[spans.new.clone()]) && !is_tools(aligned, &spans)).then_some(spans)
}

/// Whether `words` are lines of `key: value`, or of `key=value`.
fn is_mapping(words: &[Word]) -> bool {
    let mut keys = 0;
    for (at, word) in words.iter().enumerate().skip(1) {
        // `skip(1)` leaves a word in front of each.
        let before = &words[at - 1];
        let is_key = before.class.is_letters() && before.end() == word.start;
        let next = words.get(at + 1);
        // `key: value` has a space after its sign; `12:30` and URLs have none.
        let is_apart = next.is_none_or(|next| next.start > word.end());
        keys += usize::from(is_key && (word.is(b'=') || (word.is(b':') && is_apart)));
    }
    let is_other = |word: &Word| word.is(b'{') || word.is(b'<') || word.class.is_tag();
    keys >= KEYS && words.len() <= keys * LINE_WORDS && !words.iter().any(is_other)
}

#[cfg(test)]
mod tests {
    use crate::text::cause::testing::{check, found};
    use crate::text::testing::prose;

    #[test]
    fn keys_in_another_order_are_told_with_the_object() {
        let body = prose(1, 120);
        for (one, other) in [
            (r#"{"name": "Ann", "age": 30}"#, r#"{"age": 30, "name": "Ann"}"#),
            ("{'name': 'Ann', 'age': 30}", "{'age': 30, 'name': 'Ann'}"),
            (
                r#"{"id": 1, "where": {"city": "Oslo", "zip": [1, 2]}}"#,
                r#"{"where": {"zip": [1, 2], "city": "Oslo"}, "id": 1}"#,
            ),
            (
                "{\n  \"a\": 1,\n  \"b\": 2,\n  \"c\": 3\n}",
                "{\n  \"c\": 3,\n  \"a\": 1,\n  \"b\": 2\n}",
            ),
        ] {
            let (old, new) =
                (format!("Profile: {one}\n{body}"), format!("Profile: {other}\n{body}"));
            check(&old, &new, Some(("json-keys", one, other)));
        }
    }

    #[test]
    fn an_object_ends_in_each_prompt_where_it_closes() {
        let member = |name: &str, seed: u64| {
            let text = prose(seed, 60).trim().replace('\n', " ");
            format!("\"{name}\": \"{text}\"")
        };
        let (first, second, third) = (member("first", 1), member("second", 2), member("third", 3));
        let short = format!("{{{first}, {second}}}");
        let long = format!("{{{second}, {first}, {third}}}");
        for end in ["", " Answer the question with care."] {
            let (old, new) = (format!("Settings: {short}{end}"), format!("Settings: {long}{end}"));
            check(&old, &new, Some(("json-keys", &short, &long)));
            check(&new, &old, Some(("json-keys", &long, &short)));
        }
    }

    #[test]
    fn keys_inside_of_tools_are_no_tool_order() {
        let tool = |first: &str, second: &str| {
            format!(
                "<tools>\n{{\"type\": \"function\", \"function\": {{{first}, {second}, \
                 \"parameters\": {{\"type\": \"object\", \"properties\": {{}}}}}}}}\n</tools>\n"
            )
        };
        let (name, text) = (r#""name": "search""#, r#""description": "Finds pages.""#);
        let (old, new) = (tool(name, text), tool(text, name));
        let body = prose(2, 120);
        let (old, new) = (old + &body, new + &body);
        assert_eq!(found(&old, &new).map(|cause| cause.0), Some("json-keys"));
    }

    #[test]
    fn lines_with_keys_are_told_too() {
        let body = prose(4, 120);
        for sign in [": ", "="] {
            let text = |order: [usize; 4]| {
                let lines = order.map(|at| {
                    let key = ["tone", "max_lines", "region", "greeting"][at];
                    format!("  {key}{sign}{}\n", ["plain", "4", "north", "Good day to you"][at])
                });
                format!("settings\n{}{body}", lines.concat())
            };
            let (old, new) = (text([0, 1, 2, 3]), text([0, 3, 1, 2]));
            assert_eq!(found(&old, &new).map(|cause| cause.0), Some("json-keys"), "{old}");
        }
        // Sentences, be there a colon in them.
        let (one, other) = ("Note: be kind. ", "Always: be short and to the point, as you can. ");
        let (old, new) = (format!("{one}{other}{body}"), format!("{other}{one}{body}"));
        assert_ne!(found(&old, &new).map(|cause| cause.0), Some("json-keys"));
    }

    #[test]
    fn another_value_is_another_object() {
        let body = prose(3, 120);
        let old = format!("{{\"name\": \"Ann\", \"age\": 30}}\n{body}");
        let new = format!("{{\"name\": \"Bob\", \"age\": 41}}\n{body}");
        check(&old, &new, None);
        let old = format!("Is it far? {body}");
        let new = format!("It is far? {body}");
        check(&old, &new, None);
    }
}
