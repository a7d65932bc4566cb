//! The same tools in another order, as lists from MCP servers come. Found also where not all tools
//! are the same, if some changed places.

use super::Spans;
use super::order::{Block, is_tools, shuffled};
use crate::text::divergence::Aligned;

pub(super) fn find(aligned: &Aligned<'_>) -> Option<Spans> {
    let whole = Block::find(aligned).filter(|block| block.moved_whole(aligned));
    let spans = match whole {
        Some(block) => block.spans(),
        None => shuffled(aligned)?,
    };
    is_tools(aligned, &spans).then_some(spans)
}

#[cfg(test)]
mod tests {
    use crate::text::cause::testing::{check, found};
    use crate::text::testing::prose;

    const NAMES: [&str; 4] = ["get_weather", "search_web", "read_file", "send_mail"];

    /// One tool as OpenAI's API has it.
    fn openai(name: &str) -> String {
        let says = prose(name.len() as u64, 12).trim().replace('\n', " ");
        format!(
            r#"{{"type": "function", "function": {{"name": "{name}", "description": "{says}", "#
        ) + &format!(
            r#""parameters": {{"type": "object", "properties": {{"{name}_input": {{"type": "#
        ) + &format!(r#""string"}}}}, "required": ["{name}_input"]}}}}}}"#)
    }

    fn tools(order: [usize; 4], between: &str) -> String {
        order.map(|at| openai(NAMES[at])).join(between)
    }

    #[test]
    fn tools_in_another_order_are_told() {
        let body = prose(1, 120);
        for (open, between, close) in [
            ("# Tools\n<tools>\n", "\n", "\n</tools>\n"),
            ("Tools: [", ", ", "]\n"),
            ("[AVAILABLE_TOOLS][", ",", "][/AVAILABLE_TOOLS]"),
        ] {
            let text = |order| format!("You help.\n{open}{}{close}{body}", tools(order, between));
            let (old, new) = (text([0, 1, 2, 3]), text([2, 0, 3, 1]));
            let (cause, one, other) = found(&old, &new).expect("a cause");
            assert_eq!(cause, "tool-order", "{open}");
            assert!(one.starts_with(&openai(NAMES[0])), "{one}");
            assert!(other.starts_with(&openai(NAMES[2])), "{other}");
            assert!(one.ends_with("}}") && other.ends_with("}}"), "{one}");
        }
    }

    #[test]
    fn tools_that_mcp_servers_list_are_told() {
        let tool = |name: &str, says: &str| {
            format!(
                "{{\"name\":\"{name}\",\"description\":\"{says}\",\"input_schema\":{{\"type\":\
                 \"object\",\"properties\":{{\"path\":{{\"type\":\"string\"}}}}}}}}"
            )
        };
        let (one, two) = (
            tool("mcp__fs__read", "Reads a file from the disk of the user"),
            tool("mcp__git__log", "Shows what was committed, newest first"),
        );
        let body = prose(2, 150);
        let old = format!("[{one},{two}]\n{body}");
        let new = format!("[{two},{one}]\n{body}");
        let (first, second) = (format!("{one},{two}"), format!("{two},{one}"));
        check(&old, &new, Some(("tool-order", &first, &second)));
    }

    #[test]
    fn tools_in_plain_words_are_told_where_they_are_announced() {
        let body = prose(5, 120);
        let tool = |name: &str, seed: u64| format!("- {name}(text): {}", prose(seed, 24));
        let (one, two) = (tool("find", 6), tool("send", 7));
        let front = "You can use these tools:\n";
        let (old, new) = (
            format!("{front}{one}{two}{body}"),
            format!("{front}{two}{one}{body}"),
        );
        assert_eq!(found(&old, &new).map(|it| it.0), Some("tool-order"));
        let (old, new) = (old.replace(front, "Read:\n"), new.replace(front, "Read:\n"));
        assert_eq!(found(&old, &new).map(|it| it.0), Some("document-order"));
    }

    #[test]
    fn another_order_of_partly_other_tools_is_told() {
        let body = prose(3, 120);
        let text = |names: [&str; 4]| {
            format!(
                "<tools>\n{}\n</tools>\n{body}",
                names.map(openai).join("\n")
            )
        };
        let old = text(["get_weather", "search_web", "read_file", "send_mail"]);
        let new = text(["read_file", "get_weather", "search_web", "open_door"]);
        assert_eq!(found(&old, &new).map(|it| it.0), Some("tool-order"));
    }

    #[test]
    fn one_tool_more_is_no_other_order() {
        let body = prose(4, 120);
        let text = |tools: &str| format!("<tools>\n{tools}\n</tools>\n{body}");
        let old = text(&tools([0, 1, 2, 3], "\n"));
        let new = text(&[0, 2, 3].map(|at| openai(NAMES[at])).join("\n"));
        check(&old, &new, None);
        check(&new, &old, None);
    }
}
