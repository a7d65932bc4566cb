//! The same objects with their keys in another order.

use serde_json::{Map, Value, json};

use crate::clean;
use crate::defect::{Defect, insert_before};
use crate::log::{Form, Mark};
use crate::prose::Prose;

pub(super) fn defects() -> Vec<Defect> {
    let mut all = of_tools();
    all.extend(of_messages());
    all
}

fn of_tools() -> Vec<Defect> {
    vec![
        Defect::new(
            "json-keys",
            "every object of every tool",
            clean::agents(51),
            |request, prose| {
                let mut keys = Vec::new();
                for tool in request.tools() {
                    shuffle(tool, prose, &mut keys);
                }
                Mark::Order(keys)
            },
        ),
        Defect::new(
            "json-keys",
            "only type, properties and required",
            clean::desk(52),
            |request, prose| {
                let mut keys = Vec::new();
                for tool in request.tools() {
                    let schema = &mut tool["function"]["parameters"];
                    shuffle_one(schema, prose, &mut keys);
                }
                Mark::Order(keys)
            },
        ),
        Defect::new(
            "json-keys",
            "the parameters of some tools",
            clean::desk(53).written_as(Form::Batch),
            |request, prose| {
                let mut keys = Vec::new();
                for tool in request.tools() {
                    let schema = &mut tool["function"]["parameters"]["properties"];
                    shuffle_one(schema, prose, &mut keys);
                }
                Mark::Order(keys)
            },
        ),
    ]
}

fn of_messages() -> Vec<Defect> {
    vec![
        Defect::new(
            "json-keys",
            "arguments of earlier calls",
            clean::agents(54),
            |request, prose| {
                let mut keys = Vec::new();
                for message in request.messages() {
                    let Some(call) = message.get_mut("tool_calls") else {
                        continue;
                    };
                    rewrite(&mut call[0]["function"]["arguments"], prose, &mut keys);
                }
                Mark::Order(keys)
            },
        ),
        Defect::new("json-keys", "results of tools", clean::desk(55), |request, prose| {
            let mut keys = Vec::new();
            for message in request.messages() {
                if message["role"] == "tool" {
                    rewrite(&mut message["content"], prose, &mut keys);
                }
            }
            Mark::Order(keys)
        }),
        Defect::new(
            "json-keys",
            "settings in the system prompt",
            clean::long_chats(56),
            |request, prose| {
                let mut settings = json!({
                    "currency": "GBP", "week_starts": "Monday", "locale": "en-GB", "shops": 41,
                    "palette": ["wheat", "rye", "plum", "slate"], "max_rows": 7, "beta": false,
                    "contact": {"team": "finance", "floor": 2, "room": "the old oven"},
                });
                let mut keys = Vec::new();
                shuffle(&mut settings, prose, &mut keys);
                let told = format!("Settings of this workspace: {settings}\n\n");
                insert_before(request.system(), "Query first", &told);
                Mark::Order(keys)
            },
        ),
        Defect::new(
            "json-keys",
            "an indented profile in a text prompt",
            clean::few_shot(57),
            |request, prose| {
                let mut profile = json!({
                    "shop": "Fernhill Outdoor", "country": "GB", "boxes": 6, "strict": true,
                    "languages": ["en", "gd", "cy"], "escalate_to": "the duty manager",
                });
                let mut keys = Vec::new();
                shuffle(&mut profile, prose, &mut keys);
                let told = serde_json::to_string_pretty(&profile).expect("JSON");
                let prompt = request.body["prompt"].as_str().expect("text");
                request.body["prompt"] = format!("{told}\n\n{prompt}").into();
                Mark::Order(keys)
            },
        ),
    ]
}

/// Shuffles all objects in it, and notes the keys in their new order.
fn shuffle(value: &mut Value, prose: &mut Prose, keys: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, mut value) in shuffled(map, prose) {
                keys.push(key.clone());
                shuffle(&mut value, prose, keys);
                map.insert(key, value);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| shuffle(item, prose, keys)),
        _ => {}
    }
}

/// The same for this object only.
fn shuffle_one(value: &mut Value, prose: &mut Prose, keys: &mut Vec<String>) {
    let map = value.as_object_mut().expect("an object");
    for (key, value) in shuffled(map, prose) {
        keys.push(key.clone());
        map.insert(key, value);
    }
}

/// The same for a text that is JSON.
fn rewrite(text: &mut Value, prose: &mut Prose, keys: &mut Vec<String>) {
    let Some(Ok(mut value)) = text.as_str().map(serde_json::from_str::<Value>) else {
        return;
    };
    shuffle(&mut value, prose, keys);
    *text = value.to_string().into();
}

fn shuffled(map: &mut Map<String, Value>, prose: &mut Prose) -> Vec<(String, Value)> {
    let mut entries: Vec<_> = std::mem::take(map).into_iter().collect();
    prose.rng.shuffle(&mut entries);
    entries
}
