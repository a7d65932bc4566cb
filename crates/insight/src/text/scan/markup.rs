//! Tags and the special tokens of chat templates.

use std::collections::HashSet;
use std::sync::LazyLock;

use super::{letters, lexicon};
use crate::text::word::Class;

/// Longest tag, bytes.
const TAG_BYTES_MAX: usize = 64;

/// Figures of an id in a tag's name.
const ID_DIGITS: usize = 4;

/// The same for hexadecimal digits that are all letters.
const HEX_LETTERS: usize = 6;

/// Markers in square brackets; others are text.
static BRACKETED: TagNames = LazyLock::new(|| {
    names(
        "INST SYSTEM_PROMPT AVAILABLE_TOOLS TOOL_CALLS TOOL_RESULTS TOOL_CONTENT \
     ARGS gMASK BOS EOS CLS SEP",
    )
});

/// Markers that stand where a message begins.
static TURNS: TagNames = LazyLock::new(|| names("INST USER ASSISTANT SYSTEM BOT HUMAN"));

/// Markers that begin like no others do.
const ODD: [&str; 5] = ["<<SYS>>", "<</SYS>>", "]~b]", "]~!b[", "[e~["];

/// TagNames of tags around definitions of tools.
static TOOLS: TagNames = LazyLock::new(|| {
    names(
        "tool tools tool_name tool_description tool_definition tool_definitions \
     tool_list functions function available_tools available_functions parameter \
     parameters param params arg args arguments apis api actions plugins skills \
     commands",
    )
});

/// Tags without bars that are special tokens.
static SPECIAL: TagNames = LazyLock::new(|| {
    names(
        "s bos eos pad sep cls unk eot eod sop start_of_turn end_of_turn \
     start_of_role end_of_role end_of_text im_start im_end turn SPECIAL_10 \
     SPECIAL_11 SPECIAL_12",
    )
});

/// Labels in front of thoughts.
static THOUGHT_LABELS: TagNames =
    LazyLock::new(|| names("thought thoughts thinking reasoning scratchpad rationale"));

/// Tags around thoughts.
static THOUGHTS: TagNames = LazyLock::new(|| {
    names(
        "think thinking thought thoughts reasoning reasoning_content scratchpad \
     reflection rationale inner_monologue cot analysis seed:think \
     antml:thinking",
    )
});

/// TagNames of tags, for look-ups.
type TagNames = LazyLock<HashSet<&'static [u8]>>;

/// The names of a list with spaces between them.
fn names(list: &'static str) -> HashSet<&'static [u8]> {
    list.split(' ').map(str::as_bytes).collect()
}

/// A tag at the start of `rest`, which begins with `<` or `[`; its length and class.
pub(super) fn scan(rest: &[u8]) -> Option<(usize, Class)> {
    // Many open brackets without an end would otherwise each cost a walk over the rest.
    let rest = &rest[..rest.len().min(TAG_BYTES_MAX)];
    let mut odd = ODD.iter().map(|marker| marker.as_bytes());
    if let Some(marker) = odd.find(|marker| rest.starts_with(marker)) {
        return Some((marker.len(), Class::Marker));
    }
    match rest {
        [b'[', ..] => bracketed(rest),
        [b'<', b'<', ..] | [b']', ..] => None,
        _ => angled(rest),
    }
}

/// Markup between two triangles, `◁think▷`, at the start of `rest`; its length and class.
pub(super) fn triangles(rest: &[u8]) -> Option<(usize, Class)> {
    const OPEN: &[u8] = "◁".as_bytes();
    const CLOSE: &[u8] = "▷".as_bytes();
    let inside = rest[..rest.len().min(TAG_BYTES_MAX)].strip_prefix(OPEN)?;
    let end = inside.windows(CLOSE.len()).position(|bytes| bytes == CLOSE)?;
    Some((OPEN.len() + end + CLOSE.len(), special(&inside[..end])))
}

/// Whether a word in quotation marks, behind `front`, is the value of a field that tells who
/// speaks: `"role": "user"`.
pub(super) fn names_role(front: &[u8], next: Option<u8>) -> bool {
    let Some((quote @ (b'"' | b'\''), front)) = front.split_last() else {
        return false;
    };
    // JSON inside of a JSON string has escaped quotation marks.
    let front = front.strip_suffix(b"\\").unwrap_or(front).trim_ascii_end();
    let Some(field) = front.strip_suffix(b":") else {
        return false;
    };
    let is_sign = |byte: &u8| byte == quote || *byte == b'\\' || *byte == b' ';
    let end = field.iter().rposition(|byte| !is_sign(byte)).map_or(0, |at| at + 1);
    let names: [&[u8]; 3] = [b"role", b"from", b"speaker"];
    let is_field = names.iter().any(|name| field[..end].ends_with(name));
    is_field && (next == Some(*quote) || next == Some(b'\\'))
}

/// Whether `marker` opens a channel, whose name follows.
pub(super) fn is_channel(marker: &[u8]) -> bool {
    marker == b"<|channel|>" || marker == b"<|channel>"
}

/// Whether a channel of that name is for thoughts.
pub(super) fn names_thoughts(word: &[u8]) -> bool {
    // Called for every word of a prompt: a comparison, not a look-up.
    matches!(
        word,
        b"analysis"
            | b"thought"
            | b"thoughts"
            | b"thinking"
            | b"redacted_thinking"
            | b"reasoning"
            | b"reasoning_content"
    )
}

fn bracketed(rest: &[u8]) -> Option<(usize, Class)> {
    let end = rest.iter().position(|byte| *byte == b']')?;
    let (is_close, name) = opened(&rest[1..end]);
    let is_barred = name.len() > 2 && name.starts_with(b"|") && name.ends_with(b"|");
    let class = if is_barred && !name.iter().any(u8::is_ascii_whitespace) {
        special(name)
    } else if TURNS.contains(name) {
        Class::Role
    } else if BRACKETED.contains(name) {
        Class::Marker
    } else if matches!(name, b"THINK" | b"think") {
        thought(is_close)
    } else {
        return None;
    };
    Some((end + 1, class))
}

fn angled(rest: &[u8]) -> Option<(usize, Class)> {
    const BAR: &str = "｜";
    let end = rest.iter().position(|byte| *byte == b'>')?;
    let inside = &rest[1..end];
    let starts = |bar: &str| inside.starts_with(bar.as_bytes());
    let ends = |bar: &str| inside.ends_with(bar.as_bytes());
    if inside.len() > 1 && (starts("|") || ends("|") || (starts(BAR) && ends(BAR))) {
        // A special token has no white space; text between two comparison signs has.
        let is_whole = !inside.iter().any(u8::is_ascii_whitespace);
        return is_whole.then(|| (end + 1, special(inside)));
    }
    let (is_close, name) = opened(inside);
    let is_in_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"_:.-/".contains(byte);
    if !name.first().is_some_and(u8::is_ascii_alphabetic) || !name.iter().all(is_in_name) {
        return None;
    }
    if holds_id(name) {
        // `<data-8f3a2b1c>`: a fence of the client's own, whose id is a word like others.
        return None;
    }
    let class = if is_thoughts(name) {
        thought(is_close)
    } else if SPECIAL.contains(name) || is_numbered(name) {
        Class::Marker
    } else if TOOLS.contains(name) {
        Class::ToolTag
    } else {
        Class::Tag
    };
    Some((end + 1, class))
}

/// Whether a part of a tag's name is an id.
fn holds_id(name: &[u8]) -> bool {
    let mut parts = name.split(|byte| !byte.is_ascii_alphanumeric());
    let is_id = |part: &[u8]| {
        let traits = letters::TRAITS;
        let all = part.iter().fold(0, |all, byte| all | traits[usize::from(*byte)]);
        let class = letters::class(part, all);
        class.is_random() || (class == Class::Number && part.len() >= ID_DIGITS)
    };
    let first = parts.next().is_some_and(is_id);
    // A tag may be called `facade`: hexadecimal letters count as an id in later parts only.
    first || parts.any(|part| is_id(part) || is_hex_letters(part))
}

/// Whether a word may be a hexadecimal number without figures.
fn is_hex_letters(part: &[u8]) -> bool {
    part.len() >= HEX_LETTERS && part.iter().all(u8::is_ascii_hexdigit)
}

/// Whether a tag is one of the tokens that a model has in reserve: `<extra_id_0>`.
fn is_numbered(name: &[u8]) -> bool {
    let front = name.trim_ascii_end();
    let digits = front.iter().rev().take_while(|byte| byte.is_ascii_digit());
    let front = &front[..front.len() - digits.count()];
    front.len() < name.len() && matches!(front, b"extra_id_" | b"reserved_" | b"unused")
}

/// Whether a tag of that name stands around thoughts.
fn is_thoughts(name: &[u8]) -> bool {
    let name = name.to_ascii_lowercase();
    let begins = |word: &[u8]| name.windows(word.len()).any(|part| part == word);
    THOUGHTS.contains(&name[..]) || begins(b"thinking") || begins(b"thought")
}

/// Whether a word at the start of a line, with a colon behind it, begins a thought in plain text.
pub(super) fn announces_thoughts(word: &[u8]) -> bool {
    THOUGHT_LABELS.contains(&word.to_ascii_lowercase()[..])
}

/// A special token with bars: thoughts have some of their own.
fn special(inside: &[u8]) -> Class {
    let name = String::from_utf8_lossy(inside).to_ascii_lowercase();
    if name.contains("think") || name.contains("thought") {
        return thought(name.contains("end") || name.contains('/'));
    }
    let bare = name.trim_matches(|letter: char| !letter.is_ascii_alphabetic());
    match lexicon::class(bare.as_bytes()) {
        Some(Class::Role) => Class::Role,
        _ => Class::Marker,
    }
}

fn thought(is_close: bool) -> Class {
    if is_close { Class::ThinkClose } else { Class::ThinkOpen }
}

/// Whether a tag closes, and its name.
fn opened(inside: &[u8]) -> (bool, &[u8]) {
    match inside {
        [b'/', name @ ..] => (true, name),
        name => (false, name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_thoughts_and_tags() {
        let check = |tags: &[&str], class: Option<Class>| {
            for tag in tags {
                let expected = class.map(|class| (tag.len(), class));
                let text = format!("{tag} and <more> [INST]");
                assert_eq!(scan(text.as_bytes()), expected, "{tag}");
            }
        };
        let markers = [
            "<|im_start|>",
            "<|eot_id|>",
            "<|start_header_id|>",
            "<｜begin▁of▁sentence｜>",
            "[|endofturn|]",
            "<extra_id_1>",
            "]~b]",
            "<start_of_turn>",
            "<s>",
            "</s>",
            "<<SYS>>",
            "<</SYS>>",
            "<|channel>",
            "<channel|>",
        ];
        check(&markers, Some(Class::Marker));
        check(&["<｜User｜>", "<|assistant|>", "[INST]", "[/INST]", "[|user|]"], Some(Class::Role));
        assert_eq!(triangles("◁think▷".as_bytes()), Some((11, Class::ThinkOpen)));
        assert_eq!(triangles("◁/think▷ so".as_bytes()), Some((12, Class::ThinkClose)));
        assert_eq!(triangles("◁ and no more".as_bytes()), None);
        let open = [
            "<antThinking>",
            "<think>",
            "<Thinking>",
            "<reasoning>",
            "[THINK]",
            "<|begin_of_thought|>",
        ];
        check(&open, Some(Class::ThinkOpen));
        check(&["</think>", "[/THINK]", "<|END_THINKING|>"], Some(Class::ThinkClose));
        check(
            &["<document>", "<tool_call>", "<tool_response>", "<a.b>", "<first--name>"],
            Some(Class::Tag),
        );
        check(&["<tool>", "</tools>", "<tool_description>", "<arg>"], Some(Class::ToolTag));
        check(
            &[
                "[1]",
                "[TODO]",
                "<data-8f3a2b1c>",
                "</data-483920>",
                "< 3",
                "<a href=x>",
                "<>",
                "<|a b|>",
                "<3>",
            ],
            None,
        );
    }
}
