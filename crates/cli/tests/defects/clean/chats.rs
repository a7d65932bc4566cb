//! Conversations with people.

use serde_json::json;

use super::Chat;
use crate::log::{Log, Request, rfc3339};
use crate::prose::{OFFICE, Prose, SHOP};
use crate::tools::desk_tools;

const SUPPORT: &str = include_str!("../text/support.txt");
const ANALYST: &str = include_str!("../text/analyst.txt");
const CLINIC: &str = include_str!("../text/clinic.txt");
const RESEARCH: &str = include_str!("../text/research.txt");

/// A help desk: six tools, eight hundred words of instructions, results as JSON.
pub(crate) fn desk(seed: u64) -> Log {
    let mut prose = Prose::new(seed);
    let system = format!("{SUPPORT}\n{}", prose.handbook(SHOP, 300));
    let mut requests = Vec::new();
    for conversation in 0..14 {
        let mut chat = Chat::new(&mut prose, conversation, 40, system.clone());
        chat.tools = desk_tools();
        for turn in 0..7 {
            chat.say("user", prose.question(SHOP));
            chat.send(&mut prose);
            if turn % 2 == 0 {
                look_up(&mut chat, &mut prose);
                chat.send_after(&mut prose, 2, 3);
            }
            chat.say("assistant", prose.answer(SHOP));
        }
        requests.extend(chat.asked);
    }
    Log::new(requests)
}

fn look_up(chat: &mut Chat, prose: &mut Prose) {
    let number = format!("FO-{}", 100_000 + prose.rng.below(899_999));
    let arguments = json!({"number": number, "postcode": "KW15 1DH", "article": "tent"});
    let result = json!({
        "number": number,
        "placed_at": rfc3339(chat.at_s - 86_400 * (1 + prose.rng.below(9) as u64)),
        "state": prose.pick(&["packed", "in transit", "delivered", "returned"]),
        "lines": [
            {"article": "two-person tent", "amount": 189.5, "note": prose.sentence(SHOP)},
            {"article": "spare burner", "amount": 24.0, "note": prose.sentence(SHOP)},
        ],
        "tracking_code": prose.hex(10),
    });
    chat.call(prose, "find_order", &arguments, result.to_string());
}

/// Some people who stay: up to sixteen questions, no tools.
pub(crate) fn long_chats(seed: u64) -> Log {
    let mut prose = Prose::new(seed);
    let system = format!("{ANALYST}\n{}", prose.handbook(OFFICE, 200));
    let mut requests = Vec::new();
    for conversation in 0..9 {
        let mut chat = Chat::new(&mut prose, conversation, 50, system.clone());
        for _ in 0..16 {
            chat.say("user", prose.question(OFFICE));
            chat.send(&mut prose);
            chat.say("assistant", prose.answer(OFFICE));
        }
        requests.extend(chat.asked);
    }
    Log::new(requests)
}

/// Many people, each with an id behind the common instructions, whose messages carry the time at
/// which they were written and keep it.
pub(crate) fn owners(seed: u64) -> Log {
    let mut prose = Prose::new(seed);
    let notes = prose.handbook(OFFICE, 250);
    let mut requests = Vec::new();
    for conversation in 0..22 {
        let (id, animal) = (prose.uuid(), prose.pick(&["Biscuit", "Ada", "Moss", "Herr Schmidt"]));
        let owner = format!("\n\n## The owner\n\nAccount {id}; the animal's name is {animal}.");
        let system = format!("{CLINIC}\n{notes}{owner}");
        let mut chat = Chat::new(&mut prose, conversation, 50, system);
        chat.user = format!("owner-{conversation}");
        for _ in 0..2 + prose.rng.below(6) {
            let (hour, minute, _) = crate::log::time(chat.at_s + 15);
            let text = format!("[{hour:02}:{minute:02}] {}", prose.question(OFFICE));
            chat.say("user", text);
            chat.send(&mut prose);
            chat.say("assistant", prose.answer(OFFICE));
        }
        requests.extend(chat.asked);
    }
    Log::new(requests)
}

/// A model that thinks, and a client that keeps what it thought. The day, which does not change,
/// stands in the instructions.
pub(crate) fn reasoning(seed: u64) -> Log {
    let mut prose = Prose::new(seed);
    let notes = prose.handbook(OFFICE, 200);
    let system = format!("{ANALYST}\nToday is Monday, 3 March 2025.\n\n{notes}");
    let mut requests = Vec::new();
    for conversation in 0..10 {
        let mut chat = Chat::new(&mut prose, conversation, 50, system.clone());
        for _ in 0..9 {
            chat.say("user", prose.question(OFFICE));
            chat.send(&mut prose);
            let thought = prose.thought(OFFICE);
            let answer = prose.answer(OFFICE);
            chat.say("assistant", format!("<think>\n{thought}\n</think>\n\n{answer}"));
        }
        requests.extend(chat.asked);
    }
    Log::new(requests)
}

/// Passages of a handbook: a title and a paragraph each.
pub(crate) fn library(prose: &mut Prose, documents: usize) -> Vec<(String, String)> {
    let document = |number: usize, prose: &mut Prose| {
        let mut subject = prose.question(OFFICE);
        subject.truncate(subject.find('?').unwrap_or(subject.len()));
        let title = format!("Passage {}: {subject}", 100 + number);
        let sentences = 6 + prose.rng.below(6);
        (title, prose.paragraph(OFFICE, sentences))
    };
    (0..documents).map(|number| document(number, prose)).collect()
}

/// Draws the passages of each subject: some of all, in the order of their numbers.
pub(crate) fn subjects(prose: &mut Prose, documents: usize, count: usize) -> Vec<Vec<usize>> {
    let subject = |prose: &mut Prose| {
        let mut all: Vec<usize> = (0..documents).collect();
        prose.rng.shuffle(&mut all);
        all.truncate(5 + prose.rng.below(3));
        all.sort_unstable();
        all
    };
    (0..count).map(|_| subject(prose)).collect()
}

/// Questions about a dozen subjects, each with its passages before the question.
pub(crate) fn passages(seed: u64) -> Log {
    let mut prose = Prose::new(seed);
    let library = library(&mut prose, 40);
    let subjects = subjects(&mut prose, 40, 12);
    let mut requests: Vec<Request> = Vec::new();
    for conversation in 0..96 {
        let mut chat = Chat::new(&mut prose, conversation, 50, RESEARCH.to_owned());
        let mut text = String::from("<passages>\n");
        for &document in &subjects[conversation % subjects.len()] {
            let (title, paragraph) = &library[document];
            text.push_str(&format!("### {title}\n{paragraph}\n\n"));
        }
        text.push_str(&format!("</passages>\n\nQuestion: {}", prose.question(OFFICE)));
        chat.say("user", text);
        chat.send(&mut prose);
        if prose.rng.below(3) == 0 {
            chat.say("assistant", prose.answer(OFFICE));
            chat.say("user", prose.question(OFFICE));
            chat.send(&mut prose);
        }
        requests.extend(chat.asked);
    }
    Log::new(requests)
}
