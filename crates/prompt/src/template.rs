//! Chat templates: a conversation as the exact text that the model was trained on.
//!
//! The reference is `transformers`, which renders these templates with Jinja2 in a sandbox; a
//! difference of one space is a different prompt, to the model and to every prefix cache. What
//! it sets up, and what stands for it here:
//!
//! | there | here |
//! |---|---|
//! | `trim_blocks`, `lstrip_blocks`, loop controls | the same of minijinja |
//! | methods of Python's `str`, `dict`, `list`; its `str(float)` | `python_compat` |
//! | `tojson` by `json.dumps` | `json_dumps` |
//! | `format % values` | `python_operators` |
//! | `raise_exception(message)` | [`PromptError::Refused`] |
//! | `strftime_now(format)`, local time | [`RenderInput::now_unix_s`], in UTC |
//! | `{% generation %}`, marks of the trained part | `{% with %}`: a scope, no output |
//! | line breaks of any kind | made `\n` before compiling |
//!
//! A template is compiled once and rendered from any number of threads.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use jiff::fmt::strtime;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Kwargs;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value};

use crate::dialect::ContentFormat;
use crate::python_number::printed;
use crate::python_surrogate::holds_half;
use crate::python_value::value_of;
use crate::size_limit::LimitedText;
use crate::{PromptError, json_dumps, python_compat, python_operators};

/// A compiled chat template.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    special_tokens: SpecialTokens,
    /// The shape in which vLLM hands it a message's content.
    pub(crate) vllm_content_format: ContentFormat,
    /// The shape in which SGLang hands it a message's content.
    pub(crate) sglang_content_format: ContentFormat,
    /// Whether its source names the role `developer`.
    pub(crate) names_developer: bool,
    /// Whether its source mentions `content`.
    pub(crate) names_content: bool,
    /// Whether it renders system messages behind the first message, as vLLM probes it.
    pub(crate) takes_inline_system: bool,
    effort_when_disabled: OnceLock<&'static str>,
}

/// Texts of the model's special tokens, which templates print.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecialTokens {
    /// Beginning of a sequence.
    pub bos: Option<String>,
    /// End of a sequence, or of an answer.
    pub eos: Option<String>,
    /// Stands for what the vocabulary lacks.
    pub unk: Option<String>,
    /// Fills up batches.
    pub pad: Option<String>,
}

/// One conversation to render.
#[derive(Clone, Copy, Debug)]
pub struct RenderInput<'a> {
    /// The messages: an array of objects with `role`, `content` and what else the client sent.
    pub messages: &'a serde_json::Value,
    /// The tools that the model may call: an array.
    pub tools: Option<&'a serde_json::Value>,
    /// The ending of the text, with or without the opening of the model's answer.
    pub generation_prompt: GenerationPrompt,
    /// The time that templates print, seconds since 1970.
    pub now_unix_s: i64,
    /// Further variables of the template (`chat_template_kwargs`). They may replace special
    /// tokens, as in `transformers`, but none of the fields above.
    pub extra: &'a serde_json::Map<String, serde_json::Value>,
}

/// Whether the text ends with the opening of the model's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GenerationPrompt {
    /// Yes: the model is to answer.
    Add,
    /// No: the conversation as it stands.
    Omit,
}

impl ChatTemplate {
    /// Compiles `source`.
    ///
    /// # Errors
    /// [`PromptError::TemplateSyntax`].
    pub fn new(source: &str, special_tokens: SpecialTokens) -> Result<Self, PromptError> {
        Self::in_environment(environment(), source, special_tokens)
    }

    /// Compiles a template that came with a request, which may run for 20 million steps. What it
    /// writes is bounded; what it collects in variables is not, so its sender must be trusted.
    ///
    /// # Errors
    /// [`PromptError::TemplateSyntax`].
    pub fn from_request(source: &str, special_tokens: SpecialTokens) -> Result<Self, PromptError> {
        let mut environment = environment();
        // The client wrote this template, and a loop in it must end.
        environment.set_fuel(Some(REQUEST_FUEL));
        Self::in_environment(environment, source, special_tokens)
    }

    fn in_environment(
        mut environment: Environment<'static>,
        source: &str,
        special_tokens: SpecialTokens,
    ) -> Result<Self, PromptError> {
        let source = source.replace("\r\n", "\n").replace('\r', "\n");
        // As it came: the probe does not know tags for generated parts.
        let takes_inline_system = takes_inline_system(&source);
        let source = scope_generation_tags(&source);
        let vllm_content_format = ContentFormat::detect_as_vllm(&source);
        let sglang_content_format = ContentFormat::detect_as_sglang(&source);
        let names_developer =
            ["\"developer\"", "'developer'"].iter().any(|name| source.contains(name));
        let names_content = source.contains("content");
        environment
            .add_template_owned(NAME, python_operators::as_filters(source))
            .map_err(|error| PromptError::TemplateSyntax { reason: error.to_string() })?;
        Ok(Self {
            environment,
            special_tokens,
            vllm_content_format,
            sglang_content_format,
            names_developer,
            names_content,
            takes_inline_system,
            effort_when_disabled: OnceLock::new(),
        })
    }

    /// The effort that vLLM gives a request that disables thinking; found by `probe`, once.
    pub(crate) fn effort_when_disabled(
        &self,
        probe: impl FnOnce() -> &'static str,
    ) -> &'static str {
        self.effort_when_disabled.get_or_init(probe)
    }

    /// The conversation as text, special tokens spelled out.
    ///
    /// # Errors
    /// [`PromptError::Refused`] when the template objects to the conversation,
    /// [`PromptError::Render`] when it fails on it.
    pub fn render(&self, input: &RenderInput<'_>) -> Result<String, PromptError> {
        // minijinja 3.0.5 panics on an empty list's `[::-1]`, which a request can bring about.
        let rendered = catch_unwind(AssertUnwindSafe(|| {
            let template = self.environment.get_template(NAME)?;
            let mut text = LimitedText::default();
            template.render_captured_to(Value::from(self.variables(input)), &mut text)?;
            Ok(text.into_string())
        }));
        let error = match rendered {
            Ok(Ok(text)) if holds_half(&text) => {
                // No engine can encode half of a pair, so there are no tokens to predict.
                return Err(PromptError::Render {
                    reason: "the text holds half of a surrogate pair".to_owned(),
                });
            }
            // Marks of numbers are taken out last, after all filters saw them.
            Ok(Ok(text)) => return Ok(printed(text)),
            Ok(Err(error)) => error,
            Err(_) => Error::new(ErrorKind::InvalidOperation, "the template engine panicked"),
        };
        Err(match refusal(&error) {
            Some(message) => PromptError::Refused(message),
            None => PromptError::Render { reason: reason(&error) },
        })
    }

    /// Returns the template's variables; later ones replace earlier ones of the same name.
    fn variables(&self, input: &RenderInput<'_>) -> BTreeMap<String, Value> {
        let mut variables = self.special_tokens.variables();
        // `transformers` always defines it, as it does `tools`.
        variables.insert("documents".to_owned(), Value::from(()));
        variables.extend((input.extra.iter()).map(|(name, value)| (name.clone(), value_of(value))));
        let now_unix_s = input.now_unix_s;
        let adds_prompt = input.generation_prompt == GenerationPrompt::Add;
        let fixed = [
            ("messages", value_of(input.messages)),
            ("tools", input.tools.map_or(Value::from(()), value_of)),
            ("add_generation_prompt", Value::from(adds_prompt)),
            (
                "strftime_now",
                Value::from_function(move |format: &str| strftime(format, now_unix_s)),
            ),
        ];
        variables.extend(fixed.map(|(name, value)| (name.to_owned(), value)));
        variables
    }
}

impl SpecialTokens {
    /// Returns the model's special tokens, by the names that templates use.
    fn variables(&self) -> BTreeMap<String, Value> {
        let named = [
            ("bos_token", &self.bos),
            ("eos_token", &self.eos),
            ("unk_token", &self.unk),
            ("pad_token", &self.pad),
        ];
        let present = |(name, text): (&str, &Option<String>)| {
            Some((name.to_owned(), Value::from(text.as_deref()?)))
        };
        named.into_iter().filter_map(present).collect()
    }
}

/// The name of the only template of an environment. No suffix: nothing is escaped.
const NAME: &str = "chat_template";

/// Steps that a template from a request may take: some hundred times what a long conversation
/// needs, and less than a second of a core.
const REQUEST_FUEL: u64 = 20_000_000;

/// Returns the syntax of Jinja2's lexer as `transformers` sets it up.
pub(crate) fn syntax() -> SyntaxConfig {
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    syntax.expect("the default delimiters are valid")
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_syntax(syntax());
    // A prompt is no HTML.
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    // As by Jinja2's default, an undefined value prints as nothing.
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    python_compat::install(&mut environment);
    python_operators::install(&mut environment);
    // Debug information would carry pieces of the prompt into errors.
    environment.set_debug(false);
    environment
        .add_filter("tojson", |value: &Value, options: Kwargs| json_dumps::tojson(value, &options));
    environment.add_function("raise_exception", raise_exception);
    environment
}

/// Whether a template renders a conversation with a system message in its middle, with nothing but
/// Jinja's own functions: vLLM tries that at its start, and hoists such messages if it fails.
fn takes_inline_system(source: &str) -> bool {
    let mut environment = Environment::new();
    environment.set_syntax(syntax());
    // The template may come from a request, so the probe needs a limit as well.
    environment.set_fuel(Some(REQUEST_FUEL));
    python_compat::install(&mut environment);
    let message = |role: &str| serde_json::json!({"role": role, "content": "t"});
    let messages = ["system", "user", "system", "user"].map(message);
    let variables = BTreeMap::from([
        ("messages", value_of(&messages.as_slice().into())),
        ("add_generation_prompt", Value::from(false)),
    ]);
    let render = || {
        let template = environment.template_from_str(source)?;
        template.render_captured_to(Value::from(variables), LimitedText::default()).map(drop)
    };
    matches!(catch_unwind(AssertUnwindSafe(render)), Ok(Ok(_)))
}

/// Puts `with` for each `generation` tag, so that its whitespace control stays in force.
///
/// Reads tags only, not the grammar: the same words in a string of the template change too.
pub(crate) fn scope_generation_tags(source: &str) -> String {
    let mut output = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start + 2);
        let inner = tag.trim_start_matches(['-', '+']).trim_start();
        let end = inner.find(|c: char| c != '_' && !c.is_ascii_alphanumeric());
        let (word, after) = inner.split_at(end.unwrap_or(inner.len()));
        // Only a tag with nothing but the word counts.
        let closes = after.trim_start().trim_start_matches(['-', '+']).starts_with("%}");
        let scope = match word {
            "generation" if closes => "with",
            "endgeneration" if closes => "endwith",
            _ => word,
        };
        output.push_str(before);
        output.push_str(&tag[..tag.len() - inner.len()]);
        output.push_str(scope);
        rest = after;
    }
    output + rest
}

/// A template's own words, carried through the engine as the source of its error.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refusal(String);

fn raise_exception(message: &Value) -> Result<Value, Error> {
    let error = Error::new(ErrorKind::InvalidOperation, "raise_exception was called");
    Err(error.with_source(Refusal(message.to_string())))
}

fn refusal(error: &Error) -> Option<String> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    // The engine wraps errors, so the refusal may be any of the causes.
    while let Some(error) = cause {
        if let Some(Refusal(message)) = error.downcast_ref() {
            return Some(message.clone());
        }
        cause = error.source();
    }
    None
}

/// The failure as a text. Where the output failed, minijinja's own words do not say why.
fn reason(error: &Error) -> String {
    let cause = std::error::Error::source(error);
    match cause.filter(|cause| cause.is::<std::io::Error>()) {
        Some(cause) => cause.to_string(),
        None => error.to_string(),
    }
}

fn strftime(format: &str, now_unix_s: i64) -> Result<String, Error> {
    // `%c`, `%x` and `%X` as in the C locale, which is what servers run in.
    let locale = strtime::Config::new().custom(strtime::PosixCustom::new());
    jiff::Timestamp::from_second(now_unix_s)
        .map(|now| now.to_zoned(jiff::tz::TimeZone::UTC))
        .and_then(|now| strtime::BrokenDownTime::from(&now).to_string_with_config(&locale, format))
        .map_err(|error| Error::new(ErrorKind::InvalidOperation, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn render(source: &str, messages: &serde_json::Value) -> Result<String, PromptError> {
        let template = ChatTemplate::new(source, SpecialTokens::default())?;
        template.render(&RenderInput {
            messages,
            tools: None,
            generation_prompt: GenerationPrompt::Add,
            now_unix_s: 1_741_305_600, // 2025-03-07
            extra: &serde_json::Map::new(),
        })
    }

    fn check(source: &str, messages: &serde_json::Value, expected: &str) {
        assert_eq!(render(source, messages).unwrap(), expected, "{source}");
    }

    #[test]
    fn blocks_lose_their_line_and_the_source_its_last_break() {
        let source = "a\r\n  {% if true %}\r\n  b\n  {%- endif %}\n{# c #}\nd\n\n";
        check(source, &json!([]), "a\n  bd\n");
    }

    #[test]
    fn generation_tags_scope_and_keep_their_whitespace_control() {
        let source = "x\n{%- generation -%}\n y {%+ endgeneration %}\nz{% generations %}";
        let scoped = "x\n{%- with -%}\n y {%+ endwith %}\nz{% generations %}";
        assert_eq!(scope_generation_tags(source), scoped);
        check("a {%- generation %}\n b {% endgeneration -%} c", &json!([]), "a b c");
    }

    #[test]
    fn dates_are_those_of_the_request() {
        check("{{ strftime_now('%d %b %Y, %-d') }}", &json!([]), "07 Mar 2025, 7");
        check("{{ strftime_now('%c, %x') }}", &json!([]), "Fri Mar  7 00:00:00 2025, 03/07/25");
    }

    #[test]
    fn methods_win_over_keys_of_the_same_name() {
        let messages = json!([{"items": 1, "type": "array"}]);
        let source = "{% for k, v in messages[0].items() %}{{ k }}={{ v }} {% endfor %}";
        check(source, &messages, "items=1 type=array ");
    }

    #[test]
    fn what_was_not_sent_is_none_or_undefined() {
        let source = "{{ tools is none }} {{ documents is none }} {{ bos_token is defined }} \
                      [{{ bos_token }}]";
        check(source, &json!([]), "True True False []");
    }

    #[test]
    fn refusals_carry_the_templates_words() {
        let source =
            "{% macro m() %}{{ raise_exception('no ' ~ messages[0]) }}{% endmacro %}{{ m() }}";
        let error = render(source, &json!(["way"])).unwrap_err();
        assert!(matches!(&error, PromptError::Refused(words) if words == "no way"), "{error}");
    }

    #[test]
    fn faults_are_told_apart() {
        let fault = render("{{ messages[0].role.name }}", &json!([]));
        assert!(matches!(fault, Err(PromptError::Render { .. })), "{fault:?}");
        let panic = render("{% for m in messages[::-1] %}{% endfor %}", &json!([]));
        assert!(matches!(panic, Err(PromptError::Render { .. })), "{panic:?}");
        let syntax = render("{% if %}", &json!([]));
        assert!(matches!(syntax, Err(PromptError::TemplateSyntax { .. })), "{syntax:?}");
    }

    #[test]
    fn one_template_serves_many_threads() {
        fn is_shared<T: Send + Sync>() {}
        is_shared::<ChatTemplate>();
    }
}
