//! The prompts of a request log, as the tokens that the engine makes of them.

use std::ops::ControlFlow;
use std::path::Path;

use anyhow::Result;
use headstart_analysis::logs;
use headstart_analysis::rendering::Rendering;
use headstart_core::{TokenId, TraceRequest};
use headstart_loadgen::{ApiClient, LoadgenError};
use headstart_trace::format::request_log::{LoggedRequest, PromptPart};
use serde_json::{Map, Value, json};
use tokio::runtime::Runtime;

/// One prompt of the file.
pub(super) struct ValidatedPrompt {
    pub(super) name: String,
    pub(super) tokens: Vec<TokenId>,
    pub(super) output_tokens: u32,
    pub(super) salt: Option<String>,
    /// Its session, turn and times, where the file has them.
    pub(super) request: TraceRequest,
}

/// Source of the tokens of a log's prompts.
pub(super) enum PromptTokenSource<'a> {
    /// The engine itself.
    Engine(&'a ApiClient, &'a Runtime),
    /// A tokenizer of this machine.
    Local(Box<Rendering>),
}

impl PromptTokenSource<'_> {
    fn of(&self, prompt: &PromptPart) -> Result<Vec<TokenId>, String> {
        match self {
            Self::Local(rendering) => rendering.tokens_of(prompt, &rendering.text(prompt)),
            Self::Engine(client, runtime) => {
                let call = match prompt {
                    PromptPart::Tokens(ids) => return Ok(ids.clone()),
                    PromptPart::Text(text) => fields([("prompt", text.clone().into())]),
                    PromptPart::Chat { messages, tools } => {
                        let mut call = fields([
                            ("messages", messages.clone()),
                            ("add_generation_prompt", true.into()),
                        ]);
                        call.extend(
                            tools.clone().map(|tools| ("tools".to_owned(), of_openai(tools))),
                        );
                        call
                    }
                };
                runtime.block_on(client.tokenize(call)).map_err(|error| match error {
                    LoadgenError::Refused { status: 404 | 405 | 501, .. } => {
                        "the engine has no /tokenize; pass --tokenizer FOLDER".to_owned()
                    }
                    error => error.to_string(),
                })
            }
        }
    }
}

/// Tools in OpenAI's shape, which `/tokenize` takes; Anthropic's has no `function`.
fn of_openai(mut tools: Value) -> Value {
    for tool in tools.as_array_mut().into_iter().flatten() {
        if tool.get("function").is_none() && tool.get("name").is_some() {
            let mut function = tool.take();
            if let Some(function) = function.as_object_mut() {
                let schema = function.remove("input_schema");
                function.extend(schema.map(|schema| ("parameters".to_owned(), schema)));
                function.remove("cache_control");
            }
            *tool = json!({"type": "function", "function": function});
        }
    }
    tools
}

fn fields<const N: usize>(fields: [(&str, Value); N]) -> Map<String, Value> {
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Hands each prompt of the log at `path` to `take`, or the reason why it has no tokens.
///
/// # Errors
/// As [`logs::each`], and those of `take`, which end the walk.
pub(super) fn of_log(
    path: &Path,
    skip_bad: bool,
    tokens: &PromptTokenSource<'_>,
    mut take: impl FnMut(Result<ValidatedPrompt, String>) -> Result<ControlFlow<()>>,
) -> Result<()> {
    let mut failed = None;
    logs::each(path, skip_bad, &headstart_core::NoProgress, |logged| {
        let prompt = tokens.of(&logged.prompt).map(|tokens| of_logged(logged, tokens));
        take(prompt).unwrap_or_else(|error| {
            failed = Some(error);
            ControlFlow::Break(())
        })
    })?;
    failed.map_or(Ok(()), Err)
}

fn of_logged(logged: &LoggedRequest, tokens: Vec<TokenId>) -> ValidatedPrompt {
    ValidatedPrompt {
        name: logged.name(),
        tokens,
        output_tokens: 1,
        salt: logged.cache_salt.clone(),
        request: TraceRequest {
            arrival: logged.arrival.unwrap_or_default(),
            finish: logged.finish,
            tool: logged.tool,
            ..TraceRequest::default()
        },
    }
}
