//! Lines that hold an id and nothing else.

use serde_json::Value;

use super::{lines, system};

/// Drops them from the system prompt, and from the first line of a plain prompt.
pub(super) fn drop(request: &mut Value) -> bool {
    let mut changed = system::each_text(request, |said| lines::without(said.text, is_nonce));
    if let Some(Value::String(prompt)) = request.get_mut("prompt") {
        let first = prompt.find('\n').map_or(prompt.len(), |end| end + 1);
        // A prompt that is nothing but an id stays, because an empty prompt is another request.
        if is_nonce(prompt[..first].trim()) && first < prompt.len() {
            let rest = prompt[first..].trim_start_matches(['\r', '\n']);
            *prompt = rest.to_owned();
            changed = true;
        }
    }
    changed
}

/// Whether a line is known to say nothing to a model and to be new with every request.
fn is_nonce(line: &str) -> bool {
    is_billing_header(line) || is_request_id(line)
}

/// Claude Code's, as in `x-anthropic-billing-header: cc_version=2.1.100.7b4; cch=eb6c6;`.
fn is_billing_header(line: &str) -> bool {
    let rest = line.strip_prefix("x-anthropic-billing-header:");
    let mut fields = rest.into_iter().flat_map(|rest| rest.split(';').map(str::trim));
    rest.is_some_and(|rest| rest.contains('='))
        && fields.all(|field| {
            field.is_empty() || field.split_once('=').is_some_and(|(name, _)| is_word(name))
        })
}

/// Names of per-request ids. Session ids are not among them: they stay for a conversation.
const NAMES: [&str; 6] = ["request", "req", "trace", "correlation", "span", "x-request"];

/// As in `Request-ID: 0b6f…`: a name, `id`, and a UUID or eight digits and letters or more, in one
/// of two brackets or none.
fn is_request_id(line: &str) -> bool {
    // An opening bracket needs its closing one.
    let line = line.strip_prefix('[').map_or(Some(line), |rest| rest.strip_suffix(']'));
    let Some((name, id)) = line.and_then(|line| line.split_once([':', '='])) else {
        return false;
    };
    let name = name.trim().to_ascii_lowercase();
    let Some(name) = name.strip_suffix("id") else {
        return false;
    };
    let name = name.trim_end_matches(['-', '_', ' ']);
    NAMES.contains(&name) && is_id(id.trim())
}

/// Shortest id that is taken for one, characters: a trace id of 32 bits.
const SHORTEST_ID: usize = 8;

fn is_id(text: &str) -> bool {
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    // Letters alone may be a name.
    text.len() >= SHORTEST_ID && digits > 0 && is_word(text)
}

fn is_word(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !text.is_empty() && text.bytes().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::super::{Normalizer, check, check_system};
    use serde_json::json;

    const BILLING: &str =
        "x-anthropic-billing-header: cc_version=2.1.100.7b4; cc_entrypoint=cli; cch=eb6c6;";

    #[test]
    fn known_lines_go() {
        let check = |text: &str, expected: &str| check_system(Normalizer::Nonce, text, expected);
        check(&format!("{BILLING}\nYou are an agent."), "You are an agent.");
        check(&format!("{BILLING}\r\nYou are an agent."), "You are an agent.");
        check("Request-ID: 8d1e0b6f-3a52-4c1d-9a77-0123456789ab\n\nHello", "Hello");
        check("A\n\n[trace_id=9f3c21ab]\n\nB", "A\n\nB");
        check("A\nX-Request-Id : req_01HZX3\nB", "A\nB");
    }

    #[test]
    fn everything_else_stays() {
        let stays = |text: &str| check_system(Normalizer::Nonce, text, text);
        stays("Put the request id into your answer.");
        stays("Request-ID: {request_id}");
        stays("Request-ID: none");
        stays("Request ID: ask the customer for it");
        stays("Session-ID: 8d1e0b6f-3a52-4c1d");
        stays("Order id: 12345678");
        stays("x-anthropic-billing-header: what is that?");
        stays("The trace id: 9f3c21ab is the one to look at");
    }

    #[test]
    fn a_part_of_its_own_goes_as_a_whole() {
        let part = |text: &str| json!({"type": "text", "text": text});
        let request = |parts| json!({"messages": [{"role": "system", "content": parts}]});
        let two = request(json!([part(BILLING), part("You are an agent.")]));
        check(Normalizer::Nonce, two, request(json!([part("You are an agent.")])));
        let alone = request(json!([part(BILLING)]));
        check(Normalizer::Nonce, alone, request(json!([part("")])));
    }

    #[test]
    fn plain_prompts_lose_their_first_line_only() {
        let prompt = |text: &str| json!({"prompt": text});
        let id = "Request-ID: 3f2a9c41";
        check(Normalizer::Nonce, prompt(&format!("{id}\n\nHello")), prompt("Hello"));
        check(
            Normalizer::Nonce,
            prompt(&format!("Hello\n{id}\n")),
            prompt(&format!("Hello\n{id}\n")),
        );
        check(Normalizer::Nonce, prompt(id), prompt(id));
    }
}
