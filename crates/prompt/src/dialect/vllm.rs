//! vLLM's way from a chat request to what its template sees.
//!
//! | field | what vLLM does |
//! |---|---|
//! | `messages` | see `messages`: typed objects, parsed arguments, joined or kept parts |
//! | `tools` | typed objects in declared order; an absent description becomes `null` |
//! | `chat_template_kwargs` | variables of the template, without those that are `null` or `auto` |
//! | `reasoning_effort` | a variable; also sets `enable_thinking`, unless the request does |
//! | `documents` | a variable |
//! | `tool_choice` | nothing: `none` leaves the tools in the prompt, by default |
//!
//! Source: vLLM 0.30, 0.31 and 0.32, `entrypoints/openai/chat_completion/protocol.py` and
//! `renderers`. Options of the server that change prompts (`--chat-template-content-format`,
//! `--default-chat-template-kwargs`, `--exclude-tools-when-tool-choice-none`) are not known here:
//! comparing tokens with the engine finds them.

mod anthropic;
mod messages;
mod responses;

use serde_json::{Map, Value, json};

use self::messages::{FirstOfCall, Reading};
use super::{
    Api, EngineConversation, NoExactTokens, boolean, function_tool, object, read_messages, refuse,
    set, take,
};
use crate::{ChatTemplate, GenerationPrompt, RenderInput};

/// A release of vLLM, as far as prompts tell releases apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VllmVersion {
    /// The first number.
    pub major: u32,
    /// The second number.
    pub minor: u32,
}

impl VllmVersion {
    /// The newest release whose prompts were captured.
    pub const NEWEST: Self = Self::new(0, 32);

    const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// Reads what `GET /version` answers, such as `0.32.0` or `0.31.1.dev3+cpu`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split('.').map(str::parse);
        match (numbers.next()?, numbers.next()?) {
            (Ok(major), Ok(minor)) => Some(Self::new(major, minor)),
            _ => None,
        }
    }

    /// Whether it drops the line that Claude Code puts in front of its system prompt, and that
    /// changes with each request.
    fn drops_billing_header(self) -> bool {
        self >= Self::new(0, 32)
    }

    /// Whether `/v1/messages` makes an effort of `thinking: disabled`.
    fn maps_disabled_thinking(self) -> bool {
        self >= Self::new(0, 31)
    }

    /// Whether `/v1/responses` shows custom tools and their calls to the model.
    fn has_custom_tools(self) -> bool {
        self >= Self::new(0, 32)
    }
}

/// As [`super::Dialect::read`].
pub(super) fn read(
    request: Map<String, Value>,
    api: Api,
    template: &ChatTemplate,
    version: VllmVersion,
) -> Result<EngineConversation, NoExactTokens> {
    let (request, first_of_call) = match api {
        Api::Chat => (request, FirstOfCall::Arguments),
        Api::Messages => {
            let is_disabled =
                version.maps_disabled_thinking() && anthropic::disables_thinking(&request);
            let probed = anthropic::TemplateProperties {
                takes_system: template.takes_inline_system,
                effort_when_disabled: is_disabled
                    .then(|| template.effort_when_disabled(|| effort_when_disabled(template))),
            };
            (anthropic::to_chat(request, probed)?, FirstOfCall::Arguments)
        }
        Api::Responses => (responses::to_chat(request, version)?, FirstOfCall::Name),
    };
    let reading = Reading { template, version, first_of_call };
    read_chat(request, reading)
}

fn read_chat(
    mut request: Map<String, Value>,
    reading: Reading<'_>,
) -> Result<EngineConversation, NoExactTokens> {
    // Both change how media become tokens, which only the engine computes.
    refuse(&mut request, &["mm_processor_kwargs", "media_io_kwargs"])?;
    let read = |message, has_media: &mut bool| messages::read(message, reading, has_media);
    let (mut conversation, medium_in) = read_messages(&mut request, read)?;
    let has_moved =
        !reading.template.names_developer && messages::make_system_of_developer(&mut conversation);
    if has_moved && medium_in.is_some() {
        // Nothing in front of a medium is sure.
        return Err(NoExactTokens::Media { before: String::new() });
    }
    let is_true = |value: Option<Value>| value.and_then(|value| value.as_bool());
    let continues_last = is_true(take(&mut request, "continue_final_message")).unwrap_or(false);
    let adds_prompt = is_true(take(&mut request, "add_generation_prompt")).unwrap_or(true);
    // The two contradict each other, and vLLM refuses them.
    if continues_last && adds_prompt {
        return Err(NoExactTokens::Malformed("continue_final_message"));
    }
    let tools = take(&mut request, "tools").map(tools).transpose()?;
    let mut variables = variables(&mut request)?;
    Ok(EngineConversation {
        messages: Value::Array(conversation),
        // A request's own variable of that name wins.
        tools: variables.shift_remove("tools").or(tools),
        generation_prompt: if adds_prompt { GenerationPrompt::Add } else { GenerationPrompt::Omit },
        continues_last,
        answer_begins: String::new(),
        variables,
        medium_in,
    })
}

/// `low` where the template refuses or ignores the effort `none`, as vLLM probes it.
fn effort_when_disabled(template: &ChatTemplate) -> &'static str {
    let render = |effort: &str| {
        let messages = json!([{"role": "user", "content": "Hi"}]);
        let request = json!({"messages": messages, "reasoning_effort": effort});
        let reading = Reading {
            template,
            // Releases differ in nothing that this request has.
            version: VllmVersion::NEWEST,
            first_of_call: FirstOfCall::Arguments,
        };
        let conversation = read_chat(object(request, "messages").ok()?, reading).ok()?;
        let rendered = template.render(&RenderInput {
            messages: &conversation.messages,
            tools: None,
            generation_prompt: GenerationPrompt::Add,
            // All renderings have the same time, so any time serves.
            now_unix_s: 0,
            extra: &conversation.variables,
        });
        rendered.ok()
    };
    let efforts = ["low", "medium", "high", "xhigh", "max"];
    match render("none") {
        // A template that knows the effort prints another text for it than for each other one.
        Some(text) if efforts.iter().all(|effort| render(effort).as_ref() != Some(&text)) => "none",
        _ => "low",
    }
}

fn variables(request: &mut Map<String, Value>) -> Result<Map<String, Value>, NoExactTokens> {
    let mut variables = match take(request, "chat_template_kwargs") {
        None => Map::new(),
        variables => object(variables, "chat_template_kwargs")?,
    };
    // The request's fields and the server decide these, whatever the variables say.
    let decided = ["add_generation_prompt", "continue_final_message", "chat_template", "tokenize"];
    for name in decided {
        variables.shift_remove(name);
    }
    if let Some(effort) = take(request, "reasoning_effort") {
        if !variables.contains_key("enable_thinking") {
            set(&mut variables, "enable_thinking", Value::from(effort != "none"));
        }
        set(&mut variables, "reasoning_effort", effort);
    }
    set(&mut variables, "documents", take(request, "documents"));
    variables.retain(|_, value| !value.is_null() && value != "auto");
    Ok(variables)
}

/// Tools as vLLM's models write them: declared fields only, in their order.
fn tools(tools: Value) -> Result<Value, NoExactTokens> {
    match tools {
        Value::Array(tools) if !tools.is_empty() => tools.into_iter().map(tool).collect(),
        _ => Err(NoExactTokens::Malformed("tools")),
    }
}

fn tool(tool: Value) -> Result<Value, NoExactTokens> {
    let mut tool = object(tool, "tools")?;
    let mut function = object(take(&mut tool, "function"), "tools")?;
    let defers = take(&mut tool, "defer_loading");
    let mut written = Map::new();
    for name in ["name", "description", "parameters"] {
        set(&mut written, name, take(&mut function, name).unwrap_or(Value::Null));
    }
    if !written["name"].is_string() {
        return Err(NoExactTokens::Malformed("tools"));
    }
    set(&mut written, "strict", take(&mut function, "strict").map(boolean));
    let defers_itself = take(&mut function, "defer_loading").or_else(|| defers.clone());
    set(&mut written, "defer_loading", defers_itself.map(boolean));
    let mut tool = function_tool(written);
    set(&mut tool, "defer_loading", defers.map(boolean));
    Ok(tool.into())
}
