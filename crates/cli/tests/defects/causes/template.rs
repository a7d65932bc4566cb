//! The same messages in other markup: a conversation whose requests go through clients, or servers,
//! that write it differently.

use crate::clean::{as_text, spoken_chats};
use crate::defect::Defect;
use crate::log::Mark;
use crate::markup::{ALPACA, CHAT_ML, GEMMA, LLAMA_3, MISTRAL, Markup, VICUNA, ZEPHYR};

pub(super) fn defects() -> Vec<Defect> {
    vec![
        defect("ChatML and Llama 3", 91, [CHAT_ML, LLAMA_3]),
        defect("ChatML and Mistral", 92, [CHAT_ML, MISTRAL]),
        defect("Gemma and Zephyr", 93, [GEMMA, ZEPHYR]),
        defect("Vicuna and Alpaca", 94, [VICUNA, ALPACA]),
        defect("Llama 3 and Mistral", 95, [LLAMA_3, MISTRAL]),
    ]
}

fn defect(name: &'static str, seed: u64, markups: [Markup; 2]) -> Defect {
    let chats = spoken_chats(seed);
    let mut log = chats.clone();
    for request in &mut log.requests {
        as_text(request, markups[0]);
    }
    let mut chats = chats.requests.into_iter();
    Defect::new("template", name, log, move |request, prose| {
        let mut chat = chats.next().expect("as many");
        let markup = markups[prose.rng.below(2)];
        as_text(&mut chat, markup);
        request.body = chat.body;
        Mark::Order(markup.pieces())
    })
}
