//! Tools in one order.

use serde_json::Value;

/// Separator between a server's name and its tool's, by the custom of MCP clients.
const SERVER: &str = "__";

/// Sorts the tools by name, those of servers behind those of the client itself: a client's own are
/// there in each of its requests, servers come and go. Tools without a name stop it.
///
/// Two requests with different tools may share less than before: no order is the best one for all.
pub(super) fn sort(request: &mut Value) -> bool {
    let Some(tools) = request.get_mut("tools").and_then(Value::as_array_mut) else {
        return false;
    };
    let keys: Option<Vec<_>> = tools.iter().map(key).collect();
    if keys.is_none_or(|keys| keys.is_sorted()) {
        return false;
    }
    tools.sort_by(|a, b| key(a).cmp(&key(b)));
    true
}

fn key(tool: &Value) -> Option<(bool, &str)> {
    let function = tool.get("function").unwrap_or(tool);
    let name = function.get("name")?.as_str()?;
    Some((name.contains(SERVER), name))
}

#[cfg(test)]
mod tests {
    use super::super::{Normalizer, check};
    use serde_json::{Value, json};

    fn tools(names: &[&str]) -> Value {
        let tool = |name: &&str| json!({"type": "function", "function": {"name": name}});
        json!({"tools": names.iter().map(tool).collect::<Vec<_>>()})
    }

    #[test]
    fn tools_are_sorted_and_servers_come_last() {
        let check = |from: &[&str], to: &[&str]| check(Normalizer::Tools, tools(from), tools(to));
        check(&["run", "edit"], &["edit", "run"]);
        check(&["edit", "run"], &["edit", "run"]);
        check(&["web__open", "run", "db__query"], &["run", "db__query", "web__open"]);
        check(&[], &[]);
    }

    #[test]
    fn tools_of_one_name_keep_their_order() {
        let two = json!({"tools": [{"name": "b"}, {"name": "a", "v": 1}, {"name": "a", "v": 2}]});
        let sorted =
            json!({"tools": [{"name": "a", "v": 1}, {"name": "a", "v": 2}, {"name": "b"}]});
        check(Normalizer::Tools, two, sorted);
    }
}
