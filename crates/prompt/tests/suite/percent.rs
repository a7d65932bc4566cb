//! The operator `%` of templates does what Jinja2 makes of it.
//!
//! `percent.json` holds templates and Jinja2's texts, or nothing where Jinja2 fails
//! (`tools/reference/make_percent.py`).

use headstart_prompt::{ChatTemplate, GenerationPrompt, RenderInput, SpecialTokens};
use serde_json::{Map, Value, json};

#[test]
fn the_operator_renders_as_in_jinja2() {
    let cases: Vec<(String, Option<String>)> =
        serde_json::from_str(include_str!("percent.json")).unwrap();
    assert!(cases.len() >= 700);
    let messages = json!([{"role": "user", "content": "it's %s"}]);
    let extra =
        Map::from_iter([("n".to_owned(), Value::from(5)), ("s".to_owned(), Value::from("é%"))]);
    let render = |source: &str| {
        let template = ChatTemplate::new(source, SpecialTokens::default()).ok()?;
        let rendered = template.render(&RenderInput {
            messages: &messages,
            tools: None,
            generation_prompt: GenerationPrompt::Add,
            now_unix_s: 0,
            extra: &extra,
        });
        rendered.ok()
    };
    let differ = (cases.iter())
        .filter_map(|(source, expected)| {
            let text = render(source);
            (text != *expected)
                .then(|| format!("{source}\n  ours   {text:?}\n  Jinja2 {expected:?}"))
        })
        .collect::<Vec<_>>();
    assert!(differ.is_empty(), "{}: {}", differ.len(), differ.join("\n"));
}
