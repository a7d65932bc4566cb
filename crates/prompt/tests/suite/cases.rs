//! Requests that once were rendered otherwise than by vLLM, with its text and tokens.
//!
//! The cases lie beside the repository; where they are absent, the test says so and ends.

use std::path::Path;

use headstart_prompt::{Api, Dialect, PromptModel};
use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Deserialize)]
struct Case {
    id: String,
    template: String,
    request: Map<String, Value>,
    text: String,
    tokens: Vec<u32>,
}

#[test]
fn failed_requests_are_rendered_as_by_the_engine() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/cases");
    let Ok(cases) = std::fs::read_to_string(folder.join("render_cases.json")) else {
        eprintln!("skipped: there are no cases at {}", folder.display());
        return;
    };
    let cases: Vec<Case> = serde_json::from_str(&cases).unwrap();
    assert_eq!(cases.len(), 14);
    let mut wrong = Vec::new();
    for case in cases {
        let path = folder.join(format!("templates/{}/chat_template.jinja", case.template));
        let source = std::fs::read_to_string(path).unwrap();
        let mut model = PromptModel::toy();
        let special_tokens = Default::default();
        model.template =
            Some(headstart_prompt::ChatTemplate::new(&source, special_tokens).unwrap());
        let chat = model.chat_prompt(Dialect::default(), Api::Chat, case.request, 0);
        let tokens = chat.as_ref().map(|chat| model.tokenizer.encode(&chat.text, chat.special));
        let is_equal = matches!(&chat, Ok(chat) if chat.text == case.text)
            && matches!(tokens, Ok(Ok(tokens)) if tokens == case.tokens);
        if !is_equal {
            wrong.push(format!("{}: {chat:?} instead of {:?}", case.id, case.text));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
