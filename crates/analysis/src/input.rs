//! Trace files: opening them, and tokens for their texts.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::rc::Rc;

use headstart_core::{TokenId, UsageError};
use headstart_prompt::{GenerationPrompt, PromptError, PromptModel, RenderInput, SpecialTokensIn};
use headstart_trace::format::conversation::{Text, Tokenize, Turn};
use headstart_trace::{Options, Reader};
use serde_json::json;

use crate::error::AnalysisError;
use crate::traffic::Renderings;

/// Opens the trace at `path`; `-` is standard input. Returns its bytes as they are, compressed or
/// not, and how many there are, where that is known.
///
/// # Errors
/// When the file cannot be opened.
pub fn opened(path: &Path) -> Result<(Box<dyn Read>, Option<u64>), AnalysisError> {
    if path.as_os_str() == "-" {
        return Ok((Box::new(std::io::stdin()), None));
    }
    let cannot_open = || AnalysisError::file(format!("cannot open the trace {}", path.display()));
    let file = File::open(path).map_err(cannot_open())?;
    let metadata = file.metadata().map_err(cannot_open())?;
    let bytes = metadata.is_file().then_some(metadata.len());
    Ok((Box::new(file), bytes))
}

/// Reads the trace `name` from `raw`.
///
/// # Errors
/// A usage error for options that do not go with the trace's format.
pub fn reader(
    name: String,
    raw: impl Read + 'static,
    options: Options<'static>,
) -> Result<Reader<'static>, AnalysisError> {
    Reader::with_options(name, raw, options).map_err(AnalysisError::of_trace)
}

/// Returns the tokenizing function for texts, by the model in `folder`, which is read now. The
/// toy's is built when the first text comes, because other formats have none.
///
/// # Errors
/// When the folder holds no tokenizer that can be read.
pub fn tokenizer(folder: Option<&Path>) -> Result<Rc<Tokenize<'static>>, UsageError> {
    // A folder that cannot be read fails here, before the first line of the trace is read.
    let renderings = Renderings::of(folder)?;
    // The trace reader holds the function for as long as it reads, so it owns its tokenizer.
    Ok(Rc::new(move |text: Text<'_>| {
        let rendering = renderings.get().map_err(|error| error.to_string())?;
        let tokens = match text {
            // Logged prompts have tools and parts, which only the rendering for logs puts into one
            // text.
            Text::Logged(prompt) => return rendering.tokens_of(prompt, &rendering.text(prompt)),
            Text::Answer(answer) => {
                let tokenizer = &rendering.model().tokenizer;
                // An answer continues a prompt, so no token for the beginning of a text comes
                // first.
                tokenizer.encode(answer, SpecialTokensIn::ParseOnly)
            }
            Text::Prompt(turns) => tokens(rendering.model(), turns),
        };
        tokens.map_err(|error| error.to_string())
    }))
}

fn tokens(model: &PromptModel, turns: &[Turn]) -> Result<Vec<TokenId>, PromptError> {
    // A base model has no template. The tokenizer adds the tokens that begin and end a text.
    if model.template.is_none() {
        return model.tokenizer.encode(&plain(turns), SpecialTokensIn::AddBosEos);
    }
    let messages = turns.iter().map(|turn| json!({"role": turn.role, "content": turn.text}));
    model.chat_tokens(&RenderInput {
        messages: &messages.collect(),
        tools: None,
        generation_prompt: GenerationPrompt::Add,
        // The same prompt on every day: templates that print the date print 1970.
        now_unix_s: 0,
        extra: &serde_json::Map::new(),
    })
}

/// A conversation for a model that knows no chats.
fn plain(turns: &[Turn]) -> String {
    let line = |turn: &Turn| format!("{:?}: {}\n", turn.role, turn.text);
    turns.iter().map(line).collect()
}
