//! Templates render byte for byte as `transformers` renders them.
//!
//! `templates.json` holds templates, conversations and what `transformers` made of them, or the
//! words with which the template refused.

use headstart_prompt::{ChatTemplate, GenerationPrompt, PromptError, RenderInput, SpecialTokens};
use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Deserialize)]
struct Case {
    name: String,
    template: String,
    messages: Value,
    /// Arguments of `apply_chat_template`, and `date`, the day of the call.
    kwargs: Map<String, Value>,
    #[serde(flatten)]
    outcome: Outcome,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Expected(String),
    Error(String),
}

#[test]
fn templates_render_as_in_transformers() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("templates.json")).unwrap();
    assert!(cases.len() >= 30);
    cases.into_iter().for_each(check);
}

fn check(mut case: Case) {
    let mut text = |name: &str| Some(case.kwargs.remove(name)?.as_str().unwrap().to_owned());
    let special_tokens = SpecialTokens {
        bos: text("bos_token"),
        eos: text("eos_token"),
        ..SpecialTokens::default()
    };
    let now_unix_s = text("date").map_or(0, |date| noon_unix_s(&date));
    let generation_prompt = match case.kwargs.remove("add_generation_prompt") {
        Some(Value::Bool(true)) => GenerationPrompt::Add,
        _ => GenerationPrompt::Omit,
    };
    let tools = case.kwargs.remove("tools");
    let input = RenderInput {
        messages: &case.messages,
        tools: tools.as_ref(),
        generation_prompt,
        now_unix_s,
        extra: &case.kwargs,
    };
    let template = ChatTemplate::new(&case.template, special_tokens).unwrap();
    match (template.render(&input), case.outcome) {
        (Ok(text), Outcome::Expected(expected)) => assert_eq!(text, expected, "{}", case.name),
        (Err(PromptError::Refused(words)), Outcome::Error(expected)) => {
            assert_eq!(words, expected, "{}", case.name);
        }
        (rendered, _) => panic!("{}: {rendered:?}", case.name),
    }
}

fn noon_unix_s(date: &str) -> i64 {
    let date: jiff::civil::Date = date.parse().unwrap();
    let noon = date.at(12, 0, 0, 0).to_zoned(jiff::tz::TimeZone::UTC);
    noon.unwrap().timestamp().as_second()
}
