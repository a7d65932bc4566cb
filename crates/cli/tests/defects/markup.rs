//! Conversations as text, in the markup of several families of models.

use serde_json::Value;

/// Text around a message of each role, and before an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Markup {
    start: &'static str,
    system: (&'static str, &'static str),
    user: (&'static str, &'static str),
    assistant: (&'static str, &'static str),
}

pub(crate) const CHAT_ML: Markup = Markup {
    start: "",
    system: ("<|im_start|>system\n", "<|im_end|>\n"),
    user: ("<|im_start|>user\n", "<|im_end|>\n"),
    assistant: ("<|im_start|>assistant\n", "<|im_end|>\n"),
};

pub(crate) const LLAMA_3: Markup = Markup {
    start: "<|begin_of_text|>",
    system: ("<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>"),
    user: ("<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"),
    assistant: ("<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"),
};

pub(crate) const MISTRAL: Markup = Markup {
    start: "<s>",
    system: ("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
    user: ("[INST]", "[/INST]"),
    assistant: ("", "</s>"),
};

pub(crate) const GEMMA: Markup = Markup {
    start: "<bos>",
    system: ("<start_of_turn>system\n", "<end_of_turn>\n"),
    user: ("<start_of_turn>user\n", "<end_of_turn>\n"),
    assistant: ("<start_of_turn>model\n", "<end_of_turn>\n"),
};

pub(crate) const VICUNA: Markup = Markup {
    start: "",
    system: ("", "\n\n"),
    user: ("USER: ", "\n"),
    assistant: ("ASSISTANT: ", "</s>\n"),
};

pub(crate) const ALPACA: Markup = Markup {
    start: "",
    system: ("", "\n\n"),
    user: ("### Instruction:\n", "\n\n"),
    assistant: ("### Response:\n", "\n\n"),
};

pub(crate) const ZEPHYR: Markup = Markup {
    start: "",
    system: ("<|system|>\n", "</s>\n"),
    user: ("<|user|>\n", "</s>\n"),
    assistant: ("<|assistant|>\n", "</s>\n"),
};

impl Markup {
    /// All of its markers, in the order in which a prompt has them.
    pub(crate) fn pieces(&self) -> Vec<String> {
        let (system, user) = (self.system, self.user);
        let all = [self.start, system.0, system.1, user.0, user.1, self.assistant.0];
        let said = all.into_iter().map(|text| {
            let end = text.find(['>', ']']).map_or(text.len(), |at| at + 1);
            text[..end].trim().to_owned()
        });
        said.filter(|text| !text.is_empty()).collect()
    }
}

/// The conversation, up to where the answer begins.
pub(crate) fn render(messages: &[Value], markup: Markup) -> String {
    let mut text = markup.start.to_owned();
    for message in messages {
        let (before, after) = match message["role"].as_str() {
            Some("system") => markup.system,
            Some("user") => markup.user,
            Some("assistant") => markup.assistant,
            other => panic!("no markup for {other:?}"),
        };
        text.push_str(before);
        text.push_str(message["content"].as_str().expect("text"));
        text.push_str(after);
    }
    text.push_str(markup.assistant.0);
    text
}
