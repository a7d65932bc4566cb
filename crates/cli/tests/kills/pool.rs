//! Requests and what the right answers to them are.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use headstart_core::Rng;
use serde_json::{Value, json};

use crate::support::{PATIENCE, Served};

/// Turns of a conversation; each begins with all of those before it.
const TURNS: usize = 4;

/// Words of what conversations of one kind have in common, and of a turn. A word is two tokens, or
/// a little less.
const SYSTEM_WORDS: usize = 40;
const TURN_WORDS: usize = 30;

const WORDS: [&str; 24] = [
    "value", "time", "house", "river", "stone", "light", "green", "under", "water", "people",
    "often", "small", "great", "number", "point", "world", "school", "never", "every", "start",
    "city", "tree", "cross", "farm",
];

/// Salts of tenants whose caches must not be mixed up.
const SALTS: [Option<&str>; 3] = [None, Some("red"), Some("blue")];

/// A request without its salt.
pub(crate) struct Request {
    pub(crate) path: &'static str,
    pub(crate) body: Value,
    pub(crate) salt: Option<&'static str>,
    /// Answers of servers without hits: one, or several where rounding decides.
    pub(crate) expected: Vec<Value>,
}

/// Values of `--max-batched-tokens` for the expected answers. The rest of a found prefix is a piece
/// of another length, and sums of numbers in another order round otherwise. A word that is drawn
/// next to another one's edge may then be that one.
const PIECES: [&str; 4] = ["512", "128", "64", "16"];

/// All requests of a test, with their answers as computed by a server that finds nothing.
pub(crate) struct Pool {
    requests: Vec<Request>,
    /// Of requests that begin alike, how many stand one behind the other.
    turns: usize,
}

/// Counts of the clients' answers, and the wrong ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers {
    pub(crate) compared: usize,
    /// The server was killed before it had answered.
    pub(crate) cut_off: usize,
    pub(crate) prompt_tokens: u64,
    pub(crate) hit_tokens: u64,
    /// Answers with at least one token that was found.
    pub(crate) with_hits: usize,
    /// Answers for which what is stored was loaded in part.
    pub(crate) in_part: usize,
    pub(crate) wrong: Vec<String>,
}

impl Answers {
    pub(crate) fn add(&mut self, more: &Self) {
        self.compared += more.compared;
        self.cut_off += more.cut_off;
        self.prompt_tokens += more.prompt_tokens;
        self.hit_tokens += more.hit_tokens;
        self.with_hits += more.with_hits;
        self.in_part += more.in_part;
        self.wrong.extend_from_slice(&more.wrong);
    }

    pub(crate) fn check(&self, context: &str) {
        assert!(self.wrong.is_empty(), "{context}: {:#?}", self.wrong);
    }

    fn hear(&mut self, number: usize, answer: &Value, expected: &[Value]) {
        self.in_part += usize::from(answer["in_part"] == true);
        let usage = |field: &str| answer["usage"][field].as_u64().expect("a count");
        self.compared += 1;
        self.prompt_tokens += usage("prompt_tokens");
        let hit = usage("prompt_cache_hit_tokens");
        self.hit_tokens += hit;
        self.with_hits += usize::from(hit > 0);
        if !expected.contains(&answer["choices"]) {
            let got = &answer["choices"];
            let text = format!("request {number}, {hit} found: {got} instead of {expected:?}");
            self.wrong.push(text);
        }
    }
}

fn words(rng: &mut Rng, count: usize) -> String {
    let words: Vec<&str> = (0..count).map(|_| WORDS[rng.below(WORDS.len())]).collect();
    words.join(" ")
}

/// Conversations that begin alike by twos, of three tenants.
fn requests(conversations: usize, rng: &mut Rng) -> Vec<Request> {
    let systems = [(); 2].map(|()| words(rng, SYSTEM_WORDS));
    let mut requests = Vec::new();
    for conversation in 0..conversations {
        let system = &systems[conversation % 2];
        let mut messages = vec![json!({"role": "system", "content": system})];
        for turn in 0..TURNS {
            messages.push(json!({"role": "user", "content": words(rng, TURN_WORDS)}));
            // Greedy words of this model repeat themselves; drawn ones say more about numbers.
            let temperature = if turn % 2 == 0 { 1 } else { 0 };
            let body = json!({
                "model": "toy", "max_tokens": 6, "ignore_eos": true, "messages": messages,
                "temperature": temperature, "seed": conversation,
            });
            requests.push(Request {
                path: "/v1/chat/completions",
                body,
                salt: SALTS[conversation % SALTS.len()],
                expected: Vec::new(),
            });
            messages.push(json!({"role": "assistant", "content": words(rng, 10)}));
        }
    }
    requests
}

/// The answer, unless the server is gone before all of it came. It has a field more: whether what
/// is stored was loaded in part.
fn ask(address: &str, path: &str, lines: &str, body: &Value) -> Option<Value> {
    let mut socket = TcpStream::connect(address).ok()?;
    socket.set_read_timeout(Some(PATIENCE)).ok()?;
    let body = body.to_string();
    let head = format!("POST {path} HTTP/1.1\r\nhost: t\r\nconnection: close\r\n{lines}");
    let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    socket.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
    let mut body: Value = serde_json::from_str(body).ok()?;
    body["in_part"] = head.contains("\r\nx-headstart-importance: loaded=").into();
    Some(body)
}

impl Pool {
    /// Asks a server for all answers that has nothing to find: each request has a salt of its own.
    pub(crate) fn new(conversations: usize, seed: u64) -> Self {
        let requests = requests(conversations, &mut Rng::new(seed));
        let mut pool = Self::unanswered(requests, TURNS);
        for piece in PIECES {
            pool.learn(["--replicas", "2", "--max-batched-tokens", piece]);
        }
        let rounded = pool.requests.iter().filter(|request| request.expected.len() > 1);
        let rounded = rounded.count();
        println!("{rounded} of {} answers depend on rounding", pool.len());
        assert!(rounded * 20 <= pool.len(), "nearly all do not");
        pool
    }

    /// Requests of which it is not asked what the answers are.
    pub(crate) fn unanswered(requests: Vec<Request>, turns: usize) -> Self {
        Self { requests, turns }
    }

    /// Asks a server with nothing to find for all answers: each request has a salt of its own.
    pub(crate) fn learn<const N: usize>(&mut self, arguments: [&str; N]) {
        let server = Served::start(arguments);
        let answers = self.each(|number, request| {
            let mut body = request.body.clone();
            body["cache_salt"] = format!("only {number}").into();
            let mut answer = ask(&server.address, request.path, "", &body).expect("an answer");
            assert_eq!(answer["usage"]["prompt_cache_hit_tokens"], 0, "{answer}");
            answer["choices"].take()
        });
        for (request, answer) in self.requests.iter_mut().zip(answers) {
            if !request.expected.contains(&answer) {
                request.expected.push(answer);
            }
        }
    }

    /// Different answers to all requests together.
    pub(crate) fn num_answers(&self) -> usize {
        self.requests.iter().map(|request| request.expected.len()).sum()
    }

    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Does something with each request, some at once, and returns the results in order.
    fn each<T: Send>(&self, act: impl Fn(usize, &Request) -> T + Sync) -> Vec<T> {
        let next = AtomicUsize::new(0);
        let take = || {
            let numbers = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
            let numbers = numbers.take_while(|&number| number < self.requests.len());
            numbers.map(|number| (number, act(number, &self.requests[number]))).collect::<Vec<_>>()
        };
        let mut done: Vec<(usize, T)> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..crate::CLIENTS).map(|_| scope.spawn(take)).collect();
            let results = threads.into_iter().map(|thread| thread.join());
            results.flat_map(|done| done.expect("no panic")).collect()
        });
        done.sort_by_key(|(number, _)| *number);
        done.into_iter().map(|(_, result)| result).collect()
    }

    fn ask(&self, address: &str, number: usize, lines: &str) -> Option<Value> {
        let request = &self.requests[number];
        let mut body = request.body.clone();
        if let Some(salt) = request.salt {
            body["cache_salt"] = salt.into();
        }
        ask(address, request.path, lines, &body)
    }

    /// Asks for everything once.
    pub(crate) fn ask_all(&self, address: &str) -> Answers {
        let heard = self.each(|number, _| self.ask(address, number, "").expect("an answer"));
        let mut answers = Answers::default();
        for (number, answer) in heard.iter().enumerate() {
            answers.hear(number, answer, &self.requests[number].expected);
        }
        answers
    }

    /// Asks one thing after the other, some conversations more often than others, until the server
    /// is killed. Before that every request must be answered.
    pub(crate) fn ask_until(
        &self,
        address: &str,
        rng: &mut Rng,
        killed: &AtomicBool,
        answered: &AtomicUsize,
    ) -> Answers {
        let mut answers = Answers::default();
        while !killed.load(Ordering::SeqCst) {
            let share = rng.next_f64();
            let conversations = (self.len() / self.turns) as f64;
            let conversation = (share * share * conversations) as usize;
            let number = conversation * self.turns + rng.below(self.turns);
            // Who wants no part of it asks among those who do not care.
            let lines = match rng.below(8) {
                0 => "x-headstart-importance: off\r\n",
                _ => "",
            };
            match self.ask(address, number, lines) {
                Some(answer) => {
                    answers.hear(number, &answer, &self.requests[number].expected);
                    answered.fetch_add(1, Ordering::SeqCst);
                }
                None => {
                    assert!(killed.load(Ordering::SeqCst), "request {number} failed");
                    answers.cut_off += 1;
                }
            }
        }
        answers
    }
}
