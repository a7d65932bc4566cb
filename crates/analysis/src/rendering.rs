//! Requests of a log as one text each, and that text as tokens: the same wherever logs are read.
//!
//! With a model's folder, its chat template and its tokenizer: what its engine would have seen.
//! Without, the built-in toy's: other markup and other tokens, but the same text in the same
//! order, so prefixes part at the same places; lengths are approximate.
//!
//! What a template of strings cannot take is brought into its form: parts become lines of one text,
//! a missing content an empty one, and for the toy what its template does not print stands in the
//! content: thoughts (`reasoning_content`) in front of it, calls of tools behind it as JSON. A
//! request that a template still refuses is rendered plainly (a line with the tools as they were
//! sent, then `role: content`) and counted.

use std::cell::Cell;
use std::path::Path;

use headstart_core::figures::counted;
use headstart_core::{TokenId, UsageError};
use headstart_prompt::{GenerationPrompt, PrefixTokens, PromptModel, RenderInput, SpecialTokensIn};
use headstart_trace::format::request_log::PromptPart;
use serde_json::{Map, Value, json};

/// Memory for beginnings of prompts whose tokens are known.
const KNOWN_TOKENS_BYTES: usize = 64 << 20;

/// A text that tokenizers cut in other places or into other tokens.
const PROBE: &str = "You're uncommonly helpful: 1,234.5 naïve 東京 <|im_start|>\n\tfn main() {}";

/// Roles that the toy's template knows.
const TOY_ROLES: [&str; 4] = ["system", "user", "assistant", "tool"];

/// Renderer and tokenizer of logged prompts.
pub struct Rendering {
    model: PromptModel,
    tokens: PrefixTokens,
    is_toy: bool,
    /// Whether a text was tokenized: prompts of token ids are taken as they are.
    has_tokenized: Cell<bool>,
    refused: Cell<u64>,
}

impl Rendering {
    /// By the model in `folder`, or by the toy.
    ///
    /// # Errors
    /// A usage error when the folder holds no tokenizer that can be read.
    pub fn of(folder: Option<&Path>) -> Result<Self, UsageError> {
        let model = match folder {
            None => PromptModel::toy(),
            Some(folder) => PromptModel::from_dir(folder).map_err(|error| {
                UsageError(format!("--tokenizer {}: {error}", folder.display()))
            })?,
        };
        // The key sets processes apart that share what they know; this one shares nothing.
        let tokens = PrefixTokens::new(model.tokenizer.clone(), KNOWN_TOKENS_BYTES, [0; 32]);
        Ok(Self {
            model,
            tokens,
            is_toy: folder.is_none(),
            has_tokenized: Cell::new(false),
            refused: Cell::new(0),
        })
    }

    /// The tokenizer and template themselves.
    pub fn model(&self) -> &PromptModel {
        &self.model
    }

    /// The whole prompt as the model would read it, special tokens spelled out.
    pub fn text(&self, prompt: &PromptPart) -> String {
        let (messages, tools) = match prompt {
            // A prompt that came as text is final: no template applies to it.
            PromptPart::Text(text) => return text.clone(),
            PromptPart::Tokens(ids) => return numbers(ids),
            PromptPart::Chat { messages, tools } => (messages, tools.as_ref()),
        };
        // The template may fail on parts and on missing contents, so they are texts before it runs.
        let messages = flat(messages, self.is_toy);
        let rendered = self.model.chat_text(&RenderInput {
            messages: &messages,
            // An empty list would make some templates print their text about tools.
            tools: tools.filter(|tools| **tools != json!([])),
            generation_prompt: GenerationPrompt::Add,
            // The same prompt on every day: templates that print the date print 1970.
            now_unix_s: 0,
            extra: &Map::new(),
        });
        rendered.unwrap_or_else(|_| {
            // One odd request must not end the analysis of a log; the count becomes a remark.
            self.refused.set(self.refused.get() + 1);
            plain(&messages, tools)
        })
    }

    /// The tokens of a prompt that was rendered to `text`: its own, where it came as tokens.
    ///
    /// # Errors
    /// Why the tokenizer has none for it.
    pub fn tokens_of(&self, prompt: &PromptPart, text: &str) -> Result<Vec<TokenId>, String> {
        match prompt {
            PromptPart::Tokens(ids) => Ok(ids.clone()),
            _ => self.tokens(text),
        }
    }

    /// The tokens of a rendered prompt.
    ///
    /// # Errors
    /// Why the tokenizer has none for it.
    pub fn tokens(&self, text: &str) -> Result<Vec<TokenId>, String> {
        // The remark on approximate lengths depends on it; a tokenizer's name alone does not set
        // it.
        self.has_tokenized.set(true);
        self.encode(text)
    }

    fn encode(&self, text: &str) -> Result<Vec<TokenId>, String> {
        // Special tokens are spelled out in the text, so they are parsed and none is added.
        let tokens = self.tokens.encode(text, SpecialTokensIn::ParseOnly);
        tokens.map_err(|error| error.to_string())
    }

    /// Tells tokenizers apart: a hash of how many tokens one has and of how it cuts a text.
    pub fn tokenizer_id(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&(self.model.tokenizer.vocab_size() as u64).to_le_bytes());
        // Models of a family may have vocabularies of one size, so the cuts of a text count as
        // well.
        for token in self.encode(PROBE).unwrap_or_default() {
            hasher.update(&token.to_le_bytes());
        }
        let hash = hasher.finalize().to_hex();
        let name = if self.is_toy { "toy" } else { "model" };
        format!("{name}-{}", &hash[..16])
    }

    /// Describes problems with the prompts rendered so far, one sentence each.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.is_toy && self.has_tokenized.get() {
            remarks.push(
                "tokens are the built-in toy's, so lengths are approximate; --tokenizer FOLDER \
                 reads your model's"
                    .to_owned(),
            );
        }
        if self.refused.get() > 0 {
            remarks.push(format!(
                "{} that the chat template refused, rendered plainly",
                counted(self.refused.get(), "request")
            ));
        }
        remarks
    }
}

/// Token ids as a text, in which what differs can be found.
fn numbers(ids: &[TokenId]) -> String {
    let numbers: Vec<String> = ids.iter().map(TokenId::to_string).collect();
    numbers.join(" ")
}

/// `messages` with texts for contents; `for_toy` with its roles and with calls in the text.
fn flat(messages: &Value, for_toy: bool) -> Value {
    let list = messages.as_array().map_or(&[][..], Vec::as_slice);
    list.iter().map(|message| flat_message(message, for_toy)).collect()
}

fn flat_message(message: &Value, for_toy: bool) -> Value {
    // A message that is no object is still part of the prompt, so its JSON takes its place.
    let Some(fields) = message.as_object() else {
        return json!({"role": "user", "content": message.to_string()});
    };
    let mut fields = fields.clone();
    let mut content = fields.get("content").map_or_else(String::new, text_of);
    // A model's own template prints thoughts and calls where it wants them; the toy's prints none.
    if for_toy {
        let thoughts = ["reasoning_content", "reasoning"].map(|name| fields.get(name));
        let thoughts = thoughts.into_iter().flatten().find_map(Value::as_str);
        if let Some(thoughts) = thoughts.filter(|thoughts| !thoughts.is_empty()) {
            content = format!("<think>\n{thoughts}\n</think>\n\n{content}");
        }
        if let Some(calls) = fields.get("tool_calls").filter(|calls| !calls.is_null()) {
            content = format!("{content}\n{calls}");
        }
        let role = fields.get("role").and_then(Value::as_str).unwrap_or("user");
        let role = match role {
            known if TOY_ROLES.contains(&known) => known,
            "developer" => "system",
            "function" => "tool",
            _ => "user",
        };
        // The toy's template prints no other field.
        fields = Map::from_iter([("role".to_owned(), role.into())]);
    }
    fields.insert("content".to_owned(), content.into());
    Value::Object(fields)
}

/// Parts as lines of one text, as gateways send them to templates that take strings. What is no
/// text stands as its JSON: an image of the same address is the same prompt.
fn text_of(content: &Value) -> String {
    match content {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            // Parts of other kinds keep their JSON, so equal parts give equal texts.
            let text = |part: &Value| match (part["text"].as_str(), part["thinking"].as_str()) {
                (Some(text), _) => text.to_owned(),
                (None, Some(thoughts)) => format!("<think>\n{thoughts}\n</think>"),
                (None, None) => part.to_string(),
            };
            parts.iter().map(text).collect::<Vec<_>>().join("\n")
        }
        other => other.to_string(),
    }
}

/// For a template that refuses, or a model that has none.
fn plain(messages: &Value, tools: Option<&Value>) -> String {
    let mut text = tools.map_or_else(String::new, |tools| format!("tools: {tools}\n"));
    for message in messages.as_array().into_iter().flatten() {
        let role = message["role"].as_str().unwrap_or("user");
        text += &format!("{role}: {}\n", message["content"].as_str().unwrap_or_default());
    }
    text + "assistant:"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(messages: Value, tools: Option<Value>, expected: &str) {
        let rendering = Rendering::of(None).expect("the toy");
        let text = rendering.text(&PromptPart::Chat { messages, tools });
        assert_eq!(text, expected);
        assert_eq!(rendering.refused.get(), 0);
    }

    #[test]
    fn what_clients_send_goes_through_the_toys_template() {
        let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
        check(
            json!([{"role": "developer", "content": "s"}, {"role": "user", "content": parts}]),
            None,
            "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\na\nb<|im_end|>\n\
             <|im_start|>assistant\n",
        );
        check(
            json!([{"role": "assistant", "content": null, "tool_calls": [{"b": 1, "a": 2}]}]),
            Some(json!([])),
            "<|im_start|>assistant\n\n[{\"b\":1,\"a\":2}]<|im_end|>\n<|im_start|>assistant\n",
        );
    }

    #[test]
    fn thoughts_are_part_of_the_text() {
        let block = json!([{"type": "thinking", "thinking": "b", "signature": "c"}]);
        check(
            json!([
                {"role": "assistant", "reasoning_content": "a", "content": "x"},
                {"role": "assistant", "content": block},
            ]),
            None,
            "<|im_start|>assistant\n<think>\na\n</think>\n\nx<|im_end|>\n\
             <|im_start|>assistant\n<think>\nb\n</think><|im_end|>\n<|im_start|>assistant\n",
        );
    }

    #[test]
    fn tools_are_part_of_the_text_in_the_order_sent() {
        check(
            json!([{"role": "user", "content": "x"}]),
            Some(json!([{"name": "b"}, {"name": "a", "args": {"z": 1, "y": 2}}])),
            "<|im_start|>system\nYou may call these tools:\n[{\"name\": \"b\"}, {\"name\": \"a\", \
             \"args\": {\"z\": 1, \"y\": 2}}]<|im_end|>\n<|im_start|>user\nx<|im_end|>\n\
             <|im_start|>assistant\n",
        );
    }

    #[test]
    fn a_plain_form_holds_everything_that_was_sent() {
        let messages = flat(&json!([{"role": "odd", "content": "x"}, "stray"]), false);
        let tools = json!([{"b": 1, "a": 2}]);
        let expected = "tools: [{\"b\":1,\"a\":2}]\nodd: x\nuser: \"stray\"\nassistant:";
        assert_eq!(plain(&messages, Some(&tools)), expected);
    }

    #[test]
    fn the_toys_tokens_are_said_to_be_approximate() {
        let rendering = Rendering::of(None).expect("the toy");
        assert!(rendering.remarks().is_empty(), "nothing was tokenized");
        let text = rendering.text(&PromptPart::Text("as it stands".to_owned()));
        assert_eq!(text, "as it stands");
        let ids = PromptPart::Tokens(vec![7, 300_000]);
        let own = rendering.tokens_of(&ids, "7 300000").expect("its own");
        assert_eq!(own, [7, 300_000]);
        assert!(rendering.remarks().is_empty(), "nothing was tokenized");
        assert!(!rendering.tokens(&text).expect("tokens").is_empty());
        assert!(rendering.remarks()[0].contains("approximate"));
        assert_eq!(rendering.tokenizer_id(), Rendering::of(None).expect("the toy").tokenizer_id());
        let absent = Rendering::of(Some(Path::new("./absent"))).err().expect("no folder");
        assert!(absent.to_string().contains("--tokenizer ./absent"), "{absent}");
    }
}
