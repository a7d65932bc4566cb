//! Prints a request to `headstart serve --model needle-mha` (or `needle-gqa`, `needle-small`): a
//! document and a question about it as `/v1/completions` takes it; the answer goes to standard
//! error. Questions about one document share all but the last few tokens.
//!
//! `cargo run -p headstart-engine --example needle_prompt -- [MODEL [TOKENS [DOC [QUESTION]]]]`

use headstart_core::Rng;
use headstart_engine::model::constructed::tasks::{Document, Size};
use headstart_engine::model::constructed::words::Symbol;

/// Tokens of a question.
const QUESTION: usize = 24;

fn main() {
    let argument = |nth| std::env::args().nth(nth);
    let number = |nth, default: u64| argument(nth).and_then(|n| n.parse().ok()).unwrap_or(default);
    let model = argument(1).unwrap_or_else(|| "needle-small".to_owned());
    let (tokens, document, question) = (number(2, 1_000), number(3, 0), number(4, 0));
    let size = Size::of(tokens as usize);
    let document = Document::new(&mut Rng::new(document), size, Symbol::Loud);
    let question = document.ask_value(&mut Rng::new(question), QUESTION);
    let prompt = [document.tokens, question.tokens].concat();
    println!(r#"{{"model": "{model}", "max_tokens": 1, "temperature": 0, "prompt": {prompt:?}}}"#);
    eprintln!("the answer is token {}", question.answer);
}
