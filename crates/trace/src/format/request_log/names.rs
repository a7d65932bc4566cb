//! The names of fields in request logs. Of each list, the first field that can be read counts.
//!
//! A log with other names of the same fields needs them here; a new name of the prompt, also in
//! `BY_FIELDS` of [`format`](crate::format).

/// Fields in which a line may have the request's body: `input`, where it is an object, comes from
/// Langfuse's observations, `inputs` from LangSmith's runs.
pub(crate) const BODIES: &[&str] =
    &["body", "request", "request_body", "requestBody", "input", "inputs"];

/// Fields of a request's prompt, besides `messages` with `system`, `instructions` and `tools`.
pub(super) const PROMPTS: &[&str] = &["prompt", "input", "messages", "prompt_token_ids"];

/// Objects that may have the tools, where the body has none.
pub(super) const PARAMETERS: &[&str] =
    &["model_parameters", "modelParameters", "optional_params", "invocation_params"];

/// Fields of a request's time.
pub(super) const ARRIVALS: &[&str] = &[
    "timestamp",
    "created",
    "created_at",
    "startTime",
    "start_time",
    "time",
    "createdAt",
    "request_created_at",
];

/// Fields of a request's name.
pub(super) const IDS: &[&str] = &["request_id", "custom_id", "id"];

/// Fields of its user.
pub(super) const USERS: &[&str] = &["user", "user_id", "end_user", "userId", "request_user_id"];

/// Fields of its session.
pub(super) const SESSIONS: &[&str] =
    &["session_id", "conversation_id", "thread_id", "litellm_session_id", "sessionId"];

/// Fields that may decide which cache serves a request: settings of the call, and where it went.
pub(super) const SETTINGS: &[&str] = &[
    "model",
    "cache_salt",
    "prompt_cache_key",
    "api_key",
    "api_base",
    "model_id",
    "deployment",
    "region",
    "tool_choice",
    "thinking",
    "response_format",
    "reasoning_effort",
    "parallel_tool_calls",
];

/// The mark of a prefix in Anthropic's API.
pub(super) const CACHE_MARK: &str = "cache_control";

/// Fields of its time to first token, each with its unit in seconds.
pub(super) const TTFTS: &[(&str, f64)] =
    &[("ttft_ms", 1e-3), ("ttft_s", 1.0), ("ttft", 1.0), ("time_to_first_token", 1.0)];

/// Objects that hold the server's answer.
pub(super) const ANSWERS: &[&str] = &["response", "response_body", "responseBody"];

/// Prompt tokens in a `usage`: of OpenAI, of its Responses API and Anthropic, of Langfuse.
pub(super) const PROMPT_TOKENS: &[&str] = &["prompt_tokens", INPUT_TOKENS, "input"];

/// Prompt tokens; Anthropic's leave out those that were read from the cache or written to it.
pub(super) const INPUT_TOKENS: &str = "input_tokens";

/// Prompt tokens that Anthropic's servers read from the cache, and wrote to it.
pub(super) const CACHE_READ: &str = "cache_read_input_tokens";
pub(super) const CACHE_WRITTEN: &str = "cache_creation_input_tokens";

/// Objects in a `usage` that may have [`CACHED_TOKENS`].
pub(super) const DETAILS: &[&str] = &["prompt_tokens_details", "input_tokens_details"];

/// Prompt tokens that the cache served, in details or beside them.
pub(super) const CACHED_TOKENS: &str = "cached_tokens";

/// Tokens of the answer in a `usage`.
pub(super) const OUTPUT_TOKENS: &[&str] = &["completion_tokens", "output_tokens", "output"];

/// Fields that say how the answer ended, in it or in the first of its [`CHOICES`].
pub(super) const FINISHES: [&str; 2] = ["finish_reason", "stop_reason"];

/// The list of an answer's alternatives.
pub(super) const CHOICES: &str = "choices";

/// The fields that are read of a request, by their meaning.
#[must_use]
pub fn fields_read() -> Vec<(&'static str, Vec<String>)> {
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    let cached = DETAILS.iter().map(|details| format!("{details}.{CACHED_TOKENS}"));
    let cached = cached.chain(names(&[CACHED_TOKENS, CACHE_READ, CACHE_WRITTEN]));
    let usage = names(PROMPT_TOKENS).into_iter().chain(names(OUTPUT_TOKENS)).chain(cached);
    let ttft: Vec<_> = TTFTS.iter().map(|(name, _)| *name).collect();
    vec![
        ("the request's body, if it is nested", names(BODIES)),
        ("prompt", names(PROMPTS)),
        ("prompt, in addition", names(&["system", "instructions", "tools"])),
        ("time", names(ARRIVALS)),
        ("id", names(IDS)),
        ("model", names(&["model"])),
        ("tenant", names(&["cache_salt"])),
        ("user", names(USERS)),
        ("session", names(SESSIONS)),
        ("the server's answer", names(ANSWERS)),
        ("tokens, in `usage` or alone, also in the answer", usage.collect()),
        ("end of the answer, also in the first of `choices`", names(&FINISHES)),
        ("called tools, in the answer", names(&["choices", "output", "content"])),
        ("settings that may decide what is served", names(SETTINGS)),
        ("time to first token", [names(&ttft), names(&["completionStartTime"])].concat()),
    ]
}
