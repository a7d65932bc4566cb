//! Requests of the parity shapes with random damage: each becomes a prompt or an error, in every
//! dialect and API.

use std::collections::BTreeMap;
use std::path::PathBuf;

use headstart_core::Rng;
use headstart_prompt::{Api, ChatTemplate, Dialect, PromptModel, VllmVersion};
use serde_json::{Map, Value, json};

/// Damaged requests for each dialect and API.
const REQUESTS: usize = 4_000;

/// Values that stand where others belong.
fn strange(rng: &mut Rng) -> Value {
    let values = json!([
        null, true, false, 0, -1, 1e300, 18446744073709551615_u64, "", "a text", "{", "[1]",
        [], [null], [[]], {}, {"": null}, {"type": "text"}, {"type": 7}, {"role": "assistant"}
    ]);
    let values = values.as_array().unwrap();
    values[rng.below(values.len())].clone()
}

/// Replaces, removes or doubles a random part of `value`.
fn damage(value: &mut Value, rng: &mut Rng) {
    let is_leaf = match value {
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => true,
    };
    if is_leaf || rng.below(8) == 0 {
        *value = strange(rng);
        return;
    }
    match value {
        Value::Array(list) => {
            let at = rng.below(list.len());
            match rng.below(6) {
                0 => drop(list.remove(at)),
                1 => list.push(list[at].clone()),
                _ => damage(&mut list[at], rng),
            }
        }
        Value::Object(fields) => {
            let names: Vec<String> = fields.keys().cloned().collect();
            let name = &names[rng.below(names.len())];
            match rng.below(6) {
                0 => drop(fields.shift_remove(name)),
                _ => damage(&mut fields[name], rng),
            }
        }
        _ => {}
    }
}

#[test]
fn damaged_requests_never_panic() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/parity");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let template = |name: &str| {
        let source = read(&format!("templates/{name}.jinja"));
        ChatTemplate::new(&source, PromptModel::toy().special_tokens).unwrap()
    };
    let mut models = ["chatml-tools", "parts-macro"].map(|name| {
        let mut model = PromptModel::toy();
        model.template = Some(template(name));
        model
    });
    models[1].named_templates = BTreeMap::from([("tool_use".to_owned(), template("chatml-tools"))]);
    let newest = Dialect::default();
    let oldest = Dialect::Vllm(VllmVersion { major: 0, minor: 30 });
    let (mut rendered, mut refused) = (0, 0);
    for (dialect, api, file) in [
        (newest, Api::Chat, "shapes.json"),
        (oldest, Api::Chat, "shapes.json"),
        (Dialect::Sglang, Api::Chat, "shapes.json"),
        (newest, Api::Messages, "messages-shapes.json"),
        (newest, Api::Responses, "responses-shapes.json"),
        (Dialect::Sglang, Api::Messages, "messages-shapes.json"),
    ] {
        let shapes: Map<String, Value> = serde_json::from_str(&read(file)).unwrap();
        let shapes: Vec<&Value> = shapes.values().collect();
        let mut rng = Rng::new(34);
        for _ in 0..REQUESTS {
            let mut request = shapes[rng.below(shapes.len())].clone();
            for _ in 0..=rng.below(3) {
                damage(&mut request, &mut rng);
            }
            let Value::Object(request) = request else {
                continue;
            };
            let model = &models[rng.below(2)];
            match model.chat_prompt(dialect, api, request, 0) {
                Ok(_) => rendered += 1,
                Err(_) => refused += 1,
            }
        }
    }
    assert!(rendered > REQUESTS / 2 && refused > REQUESTS / 2, "{rendered}, {refused}");
}
