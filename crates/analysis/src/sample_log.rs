//! A log to try `analyze` on: an hour of requests of four applications.
//!
//! | application | its requests | what is wrong with them |
//! |---|---|---|
//! | `desk` | an agent that calls tools, several steps a case | the time stands first |
//! | `library` | a question on five documents out of thirty | the documents' order changes |
//! | `shop` | chats with ten tools | the tools are shuffled for each request |
//! | `notes` | chats | nothing |

mod words;

use headstart_core::Rng;
use serde_json::{Value, json};

/// Cases, questions and chats that begin within the hour.
const DESK_CASES: usize = 60;
const LIBRARY_QUESTIONS: usize = 160;
const SHOP_CHATS: usize = 60;
const NOTES_CHATS: usize = 90;

/// Documents of the library, and how many of them a question brings along.
const DOCUMENTS: usize = 30;
const RETRIEVED: usize = 5;

const HOUR_S: f64 = 3_600.0;

/// The hour begins at 09:00 on a Monday, in seconds since 1970.
const START_S: f64 = 1_772_442_000.0;

/// A request of the sample log with its time.
struct DemoRequest {
    at_s: f64,
    body: Value,
}

/// One application as its requests need it.
struct Application {
    name: &'static str,
    system: String,
    tools: Vec<Value>,
}

/// The log, a JSON object a line, in order of time.
pub fn log(seed: u64) -> Vec<u8> {
    // One generator in a fixed order: the same seed gives the same log on every machine.
    let mut rng = Rng::new(seed);
    let mut sent = Vec::new();
    desk(&mut rng, &mut sent);
    library(&mut rng, &mut sent);
    shop(&mut rng, &mut sent);
    notes(&mut rng, &mut sent);
    // Applications are generated one after the other, so their requests are merged by time.
    sent.sort_by(|one, other| one.at_s.total_cmp(&other.at_s));
    let mut log = Vec::new();
    for (number, DemoRequest { at_s, mut body }) in sent.into_iter().enumerate() {
        // Ids follow the order of time, as in a real log.
        body["request_id"] = json!(format!("r{:04}", number + 1));
        body["created"] = json!((at_s * 1e3).round() / 1e3);
        log.extend_from_slice(body.to_string().as_bytes());
        log.push(b'\n');
    }
    log
}

impl Application {
    fn new(rng: &mut Rng, name: &'static str, sentences: usize, tools: usize) -> Self {
        let rules = words::text(rng, sentences);
        let tool = |rng: &mut Rng| {
            json!({"type": "function", "function": {
                "name": words::tool(rng),
                "description": words::text(rng, 2),
                "parameters": {"type": "object", "properties": {
                    "case": {"type": "string", "description": words::sentence(rng)},
                    "reason": {"type": "string"},
                }},
            }})
        };
        Self {
            name,
            system: format!("You are the assistant of {name}. Follow these rules. {rules}"),
            tools: (0..tools).map(|_| tool(rng)).collect(),
        }
    }

    fn body(&self, session: usize, user: usize, messages: &[Value], tools: &[Value]) -> Value {
        let mut body = json!({
            "model": "demo-8b",
            "user": format!("{}-user-{user}", self.name),
            "session_id": format!("{}-{session}", self.name),
            "messages": messages,
        });
        if !tools.is_empty() {
            body["tools"] = json!(tools);
        }
        body
    }
}

/// An agent: each step sends all that came before, behind a system prompt with the time.
fn desk(rng: &mut Rng, sent: &mut Vec<DemoRequest>) {
    let desk = Application::new(rng, "desk", 60, 8);
    for case in 0..DESK_CASES {
        let mut at_s = START_S + rng.next_f64() * HOUR_S;
        let mut history = vec![message("user", &words::question(rng))];
        let user = few(rng, 12);
        for step in 0..2 + rng.below(6) {
            // The time is in front of everything, so nothing after it is ever the same.
            let system = format!("Current time: {}.\n{}", clock(at_s), desk.system);
            let mut messages = vec![message("system", &system)];
            messages.extend(history.iter().cloned());
            let body = desk.body(case, user, &messages, &desk.tools);
            sent.push(DemoRequest { at_s, body });
            history.push(message("assistant", &words::text(rng, 3)));
            history.push(message("tool", &format!("step {step}: {}", words::text(rng, 8))));
            at_s += 4.0 + rng.next_f64() * 20.0;
        }
    }
}

/// Questions on documents, which come in the order of a search.
fn library(rng: &mut Rng, sent: &mut Vec<DemoRequest>) {
    let library = Application::new(rng, "library", 25, 0);
    let documents: Vec<_> = (0..DOCUMENTS)
        .map(|number| format!("Document {number}\n{}\n", words::text(rng, 22)))
        .collect();
    for question in 0..LIBRARY_QUESTIONS {
        // Questions are on topics, whose documents are found together.
        let topic = few(rng, DOCUMENTS - RETRIEVED);
        let mut found: Vec<_> = (topic..topic + RETRIEVED).collect();
        // The order of a search result changes with each question.
        rng.shuffle(&mut found);
        let found: Vec<_> = found.into_iter().map(|index| documents[index].as_str()).collect();
        let asked = format!("{}\nQuestion: {}", found.join("\n"), words::question(rng));
        let messages = [message("system", &library.system), message("user", &asked)];
        let body = library.body(question, few(rng, 40), &messages, &[]);
        let at_s = START_S + rng.next_f64() * HOUR_S;
        sent.push(DemoRequest { at_s, body });
    }
}

/// Chats whose client lists its tools in the order of a hash table.
fn shop(rng: &mut Rng, sent: &mut Vec<DemoRequest>) {
    let shop = Application::new(rng, "shop", 30, 10);
    for chat in 0..SHOP_CHATS {
        let user = few(rng, 50);
        turns(rng, &shop, [chat, user], sent, |rng, body| {
            let mut tools = shop.tools.clone();
            // The tools come before the conversation in the prompt, so all of it moves.
            rng.shuffle(&mut tools);
            body["tools"] = json!(tools);
        });
    }
}

/// Chats as they should be.
fn notes(rng: &mut Rng, sent: &mut Vec<DemoRequest>) {
    let notes = Application::new(rng, "notes", 30, 0);
    for chat in 0..NOTES_CHATS {
        let user = few(rng, 60);
        turns(rng, &notes, [chat, user], sent, |_, _| {});
    }
}

/// A chat of a few turns; `change` is made to each request.
fn turns(
    rng: &mut Rng,
    application: &Application,
    [session, user]: [usize; 2],
    sent: &mut Vec<DemoRequest>,
    change: impl Fn(&mut Rng, &mut Value),
) {
    let mut at_s = START_S + rng.next_f64() * HOUR_S;
    let mut messages = vec![message("system", &application.system)];
    loop {
        messages.push(message("user", &words::question(rng)));
        let mut body = application.body(session, user, &messages, &application.tools);
        change(rng, &mut body);
        sent.push(DemoRequest { at_s, body });
        messages.push(message("assistant", &words::text(rng, 6)));
        at_s += 20.0 + rng.next_f64() * 120.0;
        // On average a chat has two and a half turns.
        if rng.next_f64() < 0.4 {
            return;
        }
    }
}

fn message(role: &str, content: &str) -> Value {
    json!({"role": role, "content": content})
}

/// One of `count`, the first ones far more often.
fn few(rng: &mut Rng, count: usize) -> usize {
    let share = rng.next_f64();
    // The third power of a uniform number puts half of all draws into the first eighth.
    (share * share * share * count as f64) as usize
}

/// The time of day, to the second.
fn clock(at_s: f64) -> String {
    let second = (at_s - START_S) as u64 + 9 * 3_600;
    let (hours, minutes, seconds) = (second / 3_600, second / 60 % 60, second % 60);
    format!("Monday, 2 March 2026, {hours:02}:{minutes:02}:{seconds:02}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use headstart_trace::format::request_log::{LogOptions, read};

    use super::*;

    #[test]
    fn the_hour_is_a_log_in_order_of_time_and_the_same_for_a_seed() {
        let log = log(1);
        let requests = read("demo", &log[..], LogOptions::default()).expect("readable");
        let requests: Vec<_> = requests.collect::<Result<_, _>>().expect("every line is good");
        assert!(requests.len() > 500, "{}", requests.len());
        let times: Vec<_> = requests.iter().map(|request| request.arrival).collect();
        assert!(times.is_sorted() && times[0].is_some());
        let names: BTreeSet<_> = requests.iter().map(|request| request.name()).collect();
        assert_eq!(names.len(), requests.len());
        let models: BTreeSet<_> = requests.iter().map(|request| &request.model).collect();
        assert_eq!(models.len(), 1, "they share the caches");
        assert_eq!(super::log(1), log);
        assert_ne!(super::log(2), log);
    }

    #[test]
    fn the_clock_is_that_of_the_hour() {
        assert_eq!(clock(START_S + 3_725.5), "Monday, 2 March 2026, 10:02:05");
    }
}
