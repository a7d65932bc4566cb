//! From a chat request to the text of its prompt, as an engine makes it.

use std::borrow::Cow;

use headstart_core::TokenId;
use serde_json::{Map, Value};

use crate::dialect::{Api, Dialect, EngineConversation, NoExactTokens};
use crate::python_compat::{strip, strip_end};
use crate::{ChatTemplate, PromptError, PromptModel, RenderInput, SpecialTokensIn};

/// The text of a chat request's prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatText {
    /// The text to tokenize.
    pub text: String,
    /// Special tokens that the tokenizer adds.
    pub special: SpecialTokensIn,
    /// The answer's beginning, encoded apart; mostly empty.
    pub answer_begins: String,
    /// Part of the tokens that the engine keeps.
    pub kept: KeptTokens,
}

/// Part of a prompt's tokens that the engine keeps (`truncate_prompt_tokens`, `truncation_side`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptTokens {
    /// All of them.
    All,
    /// This many of the first ones.
    First(usize),
    /// This many of the last ones.
    Last(usize),
}

impl KeptTokens {
    /// Reads a request's fields. A limit of -1 is the engine's context: what exceeds that is not
    /// known here.
    fn of(request: &Map<String, Value>) -> Result<Self, NoExactTokens> {
        let limit = match request.get("truncate_prompt_tokens") {
            None | Some(Value::Null) => return Ok(Self::All),
            Some(limit) if *limit == -1 => return Ok(Self::All),
            Some(limit) => limit.as_u64().and_then(|limit| usize::try_from(limit).ok()),
        };
        let limit = limit.ok_or(NoExactTokens::Unsupported("truncate_prompt_tokens"))?;
        match request.get("truncation_side").and_then(Value::as_str) {
            Some("right") => Ok(Self::First(limit)),
            _ => Ok(Self::Last(limit)),
        }
    }

    /// Drops what is not kept.
    fn truncate(self, tokens: &mut Vec<TokenId>) {
        match self {
            Self::All => {}
            Self::First(limit) => tokens.truncate(limit),
            // A limit above the number of tokens keeps all of them.
            Self::Last(limit) => drop(tokens.drain(..tokens.len().saturating_sub(limit))),
        }
    }
}

/// Tag that `transformers` appends to a message to be continued, to find its end again.
const CONTINUE_TAG: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

/// Takes the place of a medium, to find it in the text; from a private-use area.
const MEDIUM_TAG: &str = "\u{f8ff}\u{f8fe}medium\u{f8ff}";

impl PromptModel {
    /// The text of the prompt that an engine makes of a chat request, given by its top-level
    /// fields. Costs a rendering; two where the request holds media.
    ///
    /// # Errors
    /// Why the text is not known here.
    pub fn chat_prompt(
        &self,
        dialect: Dialect,
        api: Api,
        mut request: Map<String, Value>,
        now_unix_s: i64,
    ) -> Result<ChatText, NoExactTokens> {
        // Only chat requests may bring a template of their own.
        if api != Api::Chat {
            request.shift_remove("chat_template");
        }
        // The template comes first: the engine reads messages into the form that it expects.
        let template = self.template_of(&mut request)?;
        if dialect == Dialect::Sglang {
            // It knows neither field.
            request
                .retain(|name, _| name != "truncate_prompt_tokens" && name != "add_special_tokens");
        }
        // Of the three APIs, responses alone have the tokenizer add its special tokens.
        let adds_special = match api {
            Api::Chat => request.get("add_special_tokens") == Some(&Value::Bool(true)),
            Api::Messages => false,
            Api::Responses => true,
        };
        let special =
            if adds_special { SpecialTokensIn::AddBosEos } else { SpecialTokensIn::ParseOnly };
        // The fields are read here, before `dialect.read` consumes the request.
        let kept = KeptTokens::of(&request)?;
        let mut conversation = dialect.read(request, api, &template)?;
        // Tokens of media are known to the engine only; the text in front of the first one is
        // exact.
        if let Some(index) = conversation.medium_in {
            let before = before_medium(&template, &mut conversation, index, now_unix_s)?;
            return Err(NoExactTokens::Media { before });
        }
        let text = if conversation.continues_last {
            continued(&template, &mut conversation, now_unix_s)?
        } else {
            render(&template, &conversation, now_unix_s)?
        };
        Ok(ChatText { text, special, answer_begins: conversation.answer_begins, kept })
    }

    /// Makes the tokens of `chat`'s text those of its prompt.
    ///
    /// # Errors
    /// As [`crate::Tokenizer::encode`].
    pub fn complete(&self, chat: &ChatText, tokens: &mut Vec<TokenId>) -> Result<(), PromptError> {
        if !chat.answer_begins.is_empty() {
            // SGLang encodes the beginning of an answer by itself and drops the BOS token that this
            // adds.
            let begun = (self.tokenizer).encode(&chat.answer_begins, SpecialTokensIn::AddBosEos)?;
            let bos = self.special_tokens.bos.as_deref();
            let bos = bos.and_then(|bos| self.tokenizer.token_id(bos));
            let skipped = usize::from(bos.is_some() && begun.first().copied() == bos);
            tokens.extend(&begun[skipped..]);
        }
        // Truncation comes last, because it counts all tokens of the prompt.
        chat.kept.truncate(tokens);
        Ok(())
    }

    /// The template that `transformers` picks: the request's own or the one it names, the one for
    /// tools where there are tools, or the default.
    fn template_of(
        &self,
        request: &mut Map<String, Value>,
    ) -> Result<Cow<'_, ChatTemplate>, NoExactTokens> {
        if let Some(Value::String(own)) = request.shift_remove("chat_template") {
            if let Some(named) = self.named_templates.get(&own) {
                return Ok(Cow::Borrowed(named));
            }
            let compiled = ChatTemplate::from_request(&own, self.special_tokens.clone());
            return compiled.map(Cow::Owned).map_err(|_| NoExactTokens::Malformed("chat_template"));
        }
        let has_tools = request.get("tools").is_some_and(|tools| !tools.is_null());
        let for_tools = self.named_templates.get("tool_use").filter(|_| has_tools);
        let template = for_tools.or(self.template.as_ref());
        template.map(Cow::Borrowed).ok_or(NoExactTokens::NoTemplate)
    }
}

fn render(
    template: &ChatTemplate,
    conversation: &EngineConversation,
    now_unix_s: i64,
) -> Result<String, NoExactTokens> {
    let input = RenderInput {
        messages: &conversation.messages,
        tools: conversation.tools.as_ref(),
        generation_prompt: conversation.generation_prompt,
        now_unix_s,
        extra: &conversation.variables,
    };
    template.render(&input).map_err(|error| match error {
        PromptError::Refused(words) => NoExactTokens::Refused(words),
        other => NoExactTokens::Failed(other.to_string()),
    })
}

/// The text up to the end of the last message's content.
///
/// Source: `transformers` 5.19, `utils/chat_template_utils.py`.
fn continued(
    template: &ChatTemplate,
    conversation: &mut EngineConversation,
    now_unix_s: i64,
) -> Result<String, NoExactTokens> {
    let malformed = || NoExactTokens::Malformed("continue_final_message");
    if !template.names_content {
        return Err(malformed());
    }
    let last = conversation.messages.as_array_mut().and_then(|all| all.last_mut());
    let content = match last.and_then(|message| message.get_mut("content")) {
        // Of several parts, the last text is the one to continue.
        Some(Value::Array(parts)) => (parts.iter_mut().rev()).find_map(|part| part.get_mut("text")),
        content => content,
    };
    let Some(Value::String(content)) = content else {
        return Err(malformed());
    };
    // The text is taken before the tag is appended, to check below that the template printed it.
    let text = strip(content).to_owned();
    content.push_str(CONTINUE_TAG);
    let mut rendered = render(template, conversation, now_unix_s)?;
    // A template may trim the content, and with it the last space of the tag.
    let tag = rendered.rfind(CONTINUE_TAG.trim_end());
    let (Some(tag), true) = (tag, rendered.contains(&text)) else {
        return Err(malformed());
    };
    let keeps_space = rendered[tag..].starts_with(CONTINUE_TAG);
    rendered.truncate(tag);
    // The template trimmed the content, so white space in front of the tag goes too.
    if !keeps_space {
        let length = strip_end(&rendered).len();
        rendered.truncate(length);
    }
    Ok(rendered)
}

/// The text in front of the first medium, which is in message `index`: where the texts with the
/// medium and with another text in its place part.
fn before_medium(
    template: &ChatTemplate,
    conversation: &mut EngineConversation,
    index: usize,
    now_unix_s: i64,
) -> Result<String, NoExactTokens> {
    let with_medium = render(template, conversation, now_unix_s)?;
    let content = &mut conversation.messages[index]["content"];
    let is_medium = |part: &&mut Value| part["type"] != "text";
    match content.as_array_mut().and_then(|parts| parts.iter_mut().find(is_medium)) {
        Some(part) => *part = serde_json::json!({"type": "text", "text": MEDIUM_TAG}),
        None => *content = MEDIUM_TAG.into(),
    }
    let with_tag = render(template, conversation, now_unix_s)?;
    // A template that does not print the tag shows no place; then no text is certain.
    let place = with_tag.find(MEDIUM_TAG).unwrap_or(0);
    let same = (with_tag.as_bytes()[..place].iter())
        .zip(with_medium.as_bytes())
        .take_while(|(a, b)| a == b)
        .count();
    // Bytes may agree into the middle of a character.
    let end = (0..=same).rev().find(|&end| with_tag.is_char_boundary(end));
    Ok(with_tag[..end.unwrap_or(0)].to_owned())
}
