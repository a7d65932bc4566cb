//! Prompts as plain text.

use serde_json::json;

use super::Chat;
use super::chats::{library, subjects};
use crate::log::{Log, Request};
use crate::markup::{Markup, render};
use crate::prose::{OFFICE, Prose, SHOP};

const ANALYST: &str = include_str!("../text/analyst.txt");
const RESEARCH: &str = include_str!("../text/research.txt");

const LABELS: [&str; 6] = ["delivery", "returns", "repair", "payment", "advice", "complaint"];

/// Sorting of messages by eight examples, 130 times.
pub(crate) fn few_shot(seed: u64) -> Log {
    let mut prose = Prose::new(seed);
    let mut front = String::from(
        "Sort each message of a customer of an outdoor shop into one of these boxes: delivery, \
         returns, repair, payment, advice, complaint. Answer with the name of the box and nothing \
         else. If a message fits two boxes, take the one that somebody would look into first.\n\n",
    );
    front.push_str(&prose.handbook(SHOP, 300));
    front.push_str("\n\nExamples\n");
    for label in LABELS.into_iter().chain(["delivery", "advice"]) {
        let (question, more) = (prose.question(SHOP), prose.sentence(SHOP));
        front.push_str(&format!("\nMessage: {question} {more}\nBox: {label}\n"));
    }
    let mut requests = Vec::new();
    for conversation in 0..130 {
        let mut chat = Chat::new(&mut prose, conversation, 50, String::new());
        chat.send(&mut prose);
        let mut request = chat.asked.remove(0);
        let question = prose.question(SHOP);
        let prompt = format!("{front}\nMessage: {question}\nBox:");
        request.body = json!({"model": "served-model", "prompt": prompt, "max_tokens": 4});
        requests.push(request);
    }
    Log::new(requests)
}

/// Conversations that the client writes in `markup`.
pub(crate) fn spoken(seed: u64, markup: Markup) -> Log {
    let mut log = spoken_chats(seed);
    for request in &mut log.requests {
        as_text(request, markup);
    }
    log
}

/// The same before they are written as text.
pub(crate) fn spoken_chats(seed: u64) -> Log {
    let mut prose = Prose::new(seed);
    let system = format!("{ANALYST}\n{}", prose.handbook(OFFICE, 200));
    let mut requests = Vec::new();
    for conversation in 0..10 {
        let mut chat = Chat::new(&mut prose, conversation, 40, system.clone());
        for _ in 0..10 {
            chat.say("user", prose.question(OFFICE));
            chat.send(&mut prose);
            chat.say("assistant", prose.answer(OFFICE));
        }
        requests.extend(chat.asked);
    }
    Log::new(requests)
}

/// A request with messages as one with text.
pub(crate) fn as_text(request: &mut Request, markup: Markup) {
    let prompt = render(request.messages(), markup);
    request.body = json!({"model": "served-model", "prompt": prompt, "max_tokens": 800});
}

/// Questions about passages, as text.
pub(crate) fn text_passages(seed: u64) -> Log {
    let mut prose = Prose::new(seed);
    let library = library(&mut prose, 24);
    let subjects = subjects(&mut prose, 24, 10);
    let mut requests = Vec::new();
    for conversation in 0..80 {
        let mut chat = Chat::new(&mut prose, conversation, 50, String::new());
        chat.send(&mut prose);
        let mut request = chat.asked.remove(0);
        let mut prompt = format!("{RESEARCH}\n");
        for &document in &subjects[conversation % subjects.len()] {
            let (title, paragraph) = &library[document];
            prompt.push_str(&format!("{title}\n{paragraph}\n\n"));
        }
        prompt.push_str(&format!("Question: {}\nAnswer:", prose.question(OFFICE)));
        request.body = json!({"model": "served-model", "prompt": prompt, "max_tokens": 400});
        requests.push(request);
    }
    Log::new(requests)
}
