//! The members of a JSON object in another order. Whoever writes objects from unordered maps gets
//! another order each time the process starts, or each time.

use super::Spans;
use super::order::Block;
use crate::text::divergence::Aligned;

pub(super) fn find(aligned: &Aligned<'_>) -> Option<Spans> {
    let block = Block::find(aligned)?;
    block.is_members.then(|| block.spans())
}

#[cfg(test)]
mod tests {
    use crate::text::cause::testing::{check, found};
    use crate::text::testing::prose;

    #[test]
    fn keys_in_another_order_are_told_with_the_object() {
        let body = prose(1, 120);
        for (one, other) in [
            (
                r#"{"name": "Ann", "age": 30}"#,
                r#"{"age": 30, "name": "Ann"}"#,
            ),
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
            let (old, new) = (
                format!("Profile: {one}\n{body}"),
                format!("Profile: {other}\n{body}"),
            );
            check(&old, &new, Some(("json-keys", one, other)));
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
        assert_eq!(found(&old, &new).map(|it| it.0), Some("json-keys"));
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
