//! The same tools in another order, as lists from MCP servers come. Found also where not all tools
//! are the same, if some changed places.

use super::WordSpans;
use super::order::{ReorderedSpan, shuffled};
use crate::text::divergence::{PromptAlignment, count};
use crate::text::word::{Class, Word};

/// Words in front among which a list of tools is announced.
const ANNOUNCED_WORDS: usize = 16;

/// The same for a list in JSON, which may begin with more of its own.
const ANNOUNCED_JSON_WORDS: usize = 64;

/// The same where the first tools stayed in their places.
const ANNOUNCED_FAR_WORDS: usize = 512;

/// The same for what reads like definitions of tools by itself.
const ANNOUNCED_FARTHEST_WORDS: usize = 1 << 12;

/// Quotation marks that JSON has at least.
const JSON_QUOTES: usize = 8;

/// Words between a word that announces a list and the sign that ends the announcement.
const ANNOUNCEMENT_WORDS: usize = 6;

/// Words between the sign of a heading and such a word in it.
const HEADING_WORDS: usize = 4;

/// Names of functions that definitions of tools have at least.
const NAMES: usize = 2;

/// Words of signatures and schemas that they have at least, unless they have arguments.
const TYPES: usize = 2;

/// Fences that two files of code have.
const FENCES: usize = 4;

/// Tools that only changed places.
pub(super) fn find(aligned: &PromptAlignment<'_>) -> Option<WordSpans> {
    let block = ReorderedSpan::find(aligned).filter(|block| block.moved_whole(aligned))?;
    Some(block.spans()).filter(|spans| is_tools(aligned, spans))
}

/// Tools of which some changed places, and others are not the same.
pub(super) fn find_some(aligned: &PromptAlignment<'_>) -> Option<WordSpans> {
    shuffled(aligned).filter(|spans| is_tools(aligned, spans))
}

/// Whether what moved in the newer prompt reads like definitions of tools: JSON with a word that
/// only those have, names with arguments, or a list that is announced as one.
pub(super) fn is_tools(aligned: &PromptAlignment<'_>, spans: &WordSpans) -> bool {
    let moved = &aligned.new[spans.new.clone()];
    let front = &aligned.new[..spans.new.start];
    let announced = |words: usize| announces(&front[front.len().saturating_sub(words)..]);
    let quotes = moved.iter().filter(|word| word.is(b'"') || word.is(b'\''));
    let is_json = moved.iter().any(|word| word.is(b'{')) && quotes.count() >= JSON_QUOTES;
    let is_label = |class| class == Class::ToolLabel;
    if is_json {
        return count(moved, is_label) > 0 || announced(ANNOUNCED_JSON_WORDS);
    }
    if fences(moved) >= FENCES {
        // Files of code have functions and types too.
        return count(moved, |class| class == Class::ToolTag) >= TYPES;
    }
    // The more the text reads like tools by itself, the farther its announcement may be.
    let near = match reads_like_tools(moved) {
        true => ANNOUNCED_FARTHEST_WORDS,
        false if has_messages(front) => ANNOUNCED_WORDS,
        false => ANNOUNCED_FAR_WORDS,
    };
    announced(near) || count(moved, |class| class == Class::ToolTag) >= TYPES
}

/// Fences of code.
fn fences(words: &[Word]) -> usize {
    let fences = words.windows(3).filter(|signs| signs.iter().all(|sign| sign.is(b'`')));
    fences.count()
}

/// Whether a message begins right in front, so that a list in front of it is another one.
fn has_messages(front: &[Word]) -> bool {
    let near = &front[front.len().saturating_sub(ANNOUNCED_FAR_WORDS)..];
    count(near, |class| class == Class::Role) > 1
}

/// Whether `words` have names of functions with arguments or types.
fn reads_like_tools(words: &[Word]) -> bool {
    let calls = words.windows(2).filter(|pair| {
        pair[0].class == Class::Identifier && pair[1].is(b'(') && pair[0].end() == pair[1].start
    });
    let is_type = |class| matches!(class, Class::TypeLabel | Class::ToolLabel | Class::ToolTag);
    count(words, |class| class == Class::Identifier) >= NAMES
        && (calls.count() >= NAMES || count(words, is_type) >= TYPES)
}

/// Whether the last list that is announced in `front` is one of tools, and not of documents.
fn announces(front: &[Word]) -> bool {
    // The nearest announcement decides: earlier ones belong to other lists.
    let labels = (0..front.len()).rev().filter_map(|at| match front[at].class {
        Class::ToolTag => Some(true),
        Class::ToolLabel => is_announcement(front, at).then_some(true),
        Class::DocumentLabel => is_announcement(front, at).then_some(false),
        _ => None,
    });
    labels.into_iter().next().unwrap_or(false)
}

/// Whether a label is a heading, or a sentence ends behind it: `the following tools:`.
fn is_announcement(words: &[Word], at: usize) -> bool {
    let before = &words[at.saturating_sub(HEADING_WORDS)..at];
    let touches = before.last().is_some_and(|word| b"*<[_".iter().any(|sign| word.is(*sign)));
    let is_heading = touches || before.iter().any(|word| word.is(b'#'));
    let behind = &words[at + 1..words.len().min(at + 1 + ANNOUNCEMENT_WORDS)];
    let mut ends = behind.iter().map(|word| b":.{[=>".iter().any(|sign| word.is(*sign)));
    is_heading || at + 1 == words.len() || ends.any(|is_end| is_end)
}

#[cfg(test)]
mod tests {
    use crate::Cause;
    use crate::text::cause::testing::{check, found};
    use crate::text::explain;
    use crate::text::testing::{prose, sketch};

    /// A tool's name and what it says, as a prompt shows them.
    type Form = fn(&str, &str) -> String;

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
        let (old, new) = (format!("{front}{one}{two}{body}"), format!("{front}{two}{one}{body}"));
        assert_eq!(found(&old, &new).map(|cause| cause.0), Some("tool-order"));
        let (old, new) = (old.replace(front, "Read:\n"), new.replace(front, "Read:\n"));
        assert_eq!(found(&old, &new).map(|cause| cause.0), Some("document-order"));
    }

    /// Lists as prompts have them that are written by hand or by libraries.
    #[test]
    fn tools_in_markup_and_signatures_are_told() {
        let body = prose(6, 120);
        let forms: [(&str, Form); 6] = [
            ("# Tools\n\n", |name, says| {
                format!("## {name}\n\n{says}\n\n- `path` (string)\n- `max_rows` (integer)\n\n")
            }),
            ("<tools>\n", |name, says| {
                format!("<tool>\n<name>{name}</name>\n<summary>{says}</summary>\n</tool>\n")
            }),
            ("Answer with the following tools:\n\n", |name, says| {
                format!("{name}(path, max_rows) - {says}\n")
            }),
            ("## functions\n\nnamespace functions {\n\n", |name, says| {
                format!(
                    "// {says}\ntype {name} = (_: {{\npath: string,\nn?: number,\n}}) => any;\n"
                )
            }),
            ("Available tools:\n", |name, says| format!("* **{name}**: {says}\n")),
            ("## The available actions\n", |name, says| {
                format!("* {} - {says}\n", name.replace('_', " "))
            }),
        ];
        for (front, tool) in forms {
            let text = |order: [usize; 4]| {
                let tools = order.map(|at| {
                    let says = prose(at as u64 + 40, 14).trim().replace('\n', " ");
                    tool(NAMES[at], &says)
                });
                format!("You help.\n{front}{}\n{body}", tools.concat())
            };
            for order in [[2, 0, 3, 1], [0, 1, 3, 2]] {
                let (old, new) = (text([0, 1, 2, 3]), text(order));
                let told = found(&old, &new).map(|cause| cause.0);
                assert_eq!(told, Some("tool-order"), "{old}");
            }
        }
    }

    #[test]
    fn documents_of_code_are_no_tools() {
        let body = prose(7, 120);
        let file = |at: usize| {
            let says = prose(at as u64 + 60, 20).trim().replace('\n', " ");
            format!("def {}(path, max_rows):\n    # {says}\n    return open_it(path)\n", NAMES[at])
        };
        for front in [
            "# Tools\n\n- find_text(path)\n\n# Sources\n\n",
            "You may use the tools that you know. Retrieved files, most like first.\n",
            "",
        ] {
            let text = |order: [usize; 4]| {
                format!("You help.\n{front}{}\n{body}", order.map(file).concat())
            };
            let (old, new) = (text([0, 1, 2, 3]), text([2, 0, 3, 1]));
            let told = found(&old, &new).map(|cause| cause.0);
            assert_eq!(told, Some("document-order"), "{old}");
        }
    }

    #[test]
    fn another_order_of_partly_other_tools_is_told() {
        let body = prose(3, 120);
        let text = |names: [&str; 4]| {
            format!("<tools>\n{}\n</tools>\n{body}", names.map(openai).join("\n"))
        };
        let old = text(["get_weather", "search_web", "read_file", "send_mail"]);
        let new = text(["read_file", "get_weather", "search_web", "open_door"]);
        assert_eq!(found(&old, &new).map(|cause| cause.0), Some("tool-order"));
    }

    #[test]
    fn a_time_right_in_front_of_moved_tools_is_told_with_both_causes() {
        let body = prose(5, 120);
        let text = |time: &str, order| {
            format!("It is {time}.\n<tools>\n{}\n</tools>\n{body}", tools(order, "\n"))
        };
        let (old, new) = (text("17:35", [0, 1, 2, 3]), text("17:36", [2, 0, 3, 1]));
        let (old, new) = (sketch(&old), sketch(&new));
        let evidence = explain(&old, &new, 0).and_then(|explanation| explanation.evidence);
        let evidence = evidence.expect("a cause");
        assert_eq!(evidence.cause, Cause::Clock);
        assert_eq!(evidence.also, Some(Cause::ToolOrder));
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
