//! scratch
use headstart_prompt::*;
use serde_json::{Map, Value};
#[test]
fn diff() {
    let all: Value =
        serde_json::from_str(&std::fs::read_to_string("/tmp/hsp/cases.json").unwrap()).unwrap();
    let mut ctx = all["ctx"].as_object().unwrap().clone();
    let messages = ctx.remove("messages").unwrap();
    let tools = ctx.remove("tools").unwrap();
    ctx.remove("documents");
    ctx.remove("bos_token");
    ctx.remove("eos_token");
    let extra: Map<String, Value> = ctx;
    for case in all["cases"].as_array().unwrap() {
        let t = case["t"].as_str().unwrap();
        let sp = SpecialTokens {
            bos: Some("<s>".into()),
            eos: Some("</s>".into()),
            ..Default::default()
        };
        let got = std::panic::catch_unwind(|| {
            ChatTemplate::new(t, sp).and_then(|c| {
                c.render(&RenderInput {
                    messages: &messages,
                    tools: Some(&tools),
                    generation_prompt: GenerationPrompt::Add,
                    now_unix_s: 1_741_349_109,
                    extra: &extra,
                })
            })
        });
        let got = match got {
            Ok(Ok(x)) => Ok(x),
            Ok(Err(e)) => Err(e.to_string()),
            Err(_) => Err("PANIC".into()),
        };
        let exp = case.get("expected").and_then(Value::as_str);
        match (&got, exp) {
            (Ok(g), Some(e)) if g == e => {}
            (Err(_), None) => {}
            (Err(m), Some(e)) => println!(
                "FAIL {t:?}\n   exp {e:?}\n   err {}",
                m.replace("the chat template failed: ", "")
                    .replace(". Check roles, contents and tools of the request", "")
            ),
            (Ok(g), Some(e)) => println!("DIFF {t:?}\n   exp {e:?}\n   got {g:?}"),
            (Ok(g), None) => println!(
                "LENIENT {t:?} got {g:?} | py {}",
                case.get("error").or(case.get("syntax")).unwrap()
            ),
        }
    }
}
