//! Cost of a long prompt for the gateway, from the bytes of its body to the chosen replica.
//!
//! `cargo bench -p headstart-server --bench route [-- TOKENIZER_FOLDER]`
//!
//! Conversations of five turns with some 100,000 tokens at the end, each sent whole with every
//! turn, as clients do; 16 replicas, of which one holds what was said so far. Steps: JSON, template
//! and tokens (with what is known of the prefix), the names of the blocks, the choice.
//!
//! | row | request |
//! |---|---|
//! | fifth | the fifth turn |
//! | plain | the same without the dialect step: messages go to the template as they came |
//! | first | the fifth turn's text of a tenant that is new: nothing is known of it |
//! | agent | the fortieth turn of a conversation with 60 tools, calls and their results |
//!
//! One thread; medians.

use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use headstart_core::event::{CacheGroup, StoredBlocks};
use headstart_core::{BlockHash, CacheEvent, Nanos, ReplicaId, Rng, Tier, TokenId};
use headstart_prompt::{Api, ChatTemplate, Dialect, GenerationPrompt, PromptModel, RenderInput};
use headstart_router::index::Update;
use headstart_router::{Profile, Prompt, RouteRequest, Router, RouterConfig};
use headstart_server::message_keys::message_keys;
use headstart_server::metrics::Metrics;
use headstart_server::openai::response::ApiKind;
use headstart_server::prompt_tokens::PromptTokens;
use headstart_server::request_shape::RequestShape;
use serde_json::{Value, json};

/// Bytes of text by the fifth turn.
const TEXT_BYTES: usize = 400_000;
const TURNS: usize = 5;
const CONVERSATIONS: usize = 15;
const REPLICAS: u32 = 16;
const BLOCK_SIZE: u32 = 16;

/// Time of each step of one request.
#[derive(Clone, Copy, Default)]
struct Steps {
    json: Duration,
    tokens: Duration,
    hash: Duration,
    route: Duration,
    num_tokens: usize,
}

/// A template that prints tools and calls, as those of models for agents do.
fn template_with_tools(prompt: &PromptModel) -> ChatTemplate {
    let source = include_str!("../../prompt/tests/parity/templates/chatml-tools.jinja");
    ChatTemplate::new(source, prompt.special_tokens.clone()).expect("it compiles")
}

/// Preprocessing of a request before its template.
#[derive(Clone, Copy, PartialEq)]
enum Step {
    /// The engine's preprocessing.
    Dialect,
    /// Nothing.
    Plain,
}

struct Gateway {
    tokens: PromptTokens,
    router: Router,
    now: Nanos,
    next_hash: u64,
}

fn main() {
    let folder = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let prompt = match folder.map(PathBuf::from) {
        Some(folder) => PromptModel::from_dir(&folder).expect("a model's folder"),
        None => PromptModel::toy(),
    };
    let with_tools = PromptModel {
        tokenizer: prompt.tokenizer.clone(),
        template: Some(template_with_tools(&prompt)),
        named_templates: prompt.named_templates.clone(),
        special_tokens: prompt.special_tokens.clone(),
    };
    let prompt = Arc::new(prompt);
    let mut gateway = Gateway::new(prompt.clone());
    let mut plain_gateway = Gateway::new(prompt);
    let mut agent_gateway = Gateway::new(Arc::new(with_tools));
    let (mut fifth, mut plain, mut first) = (Vec::new(), Vec::new(), Vec::new());
    let mut agent = Vec::new();
    for conversation in 0..CONVERSATIONS {
        let replica = ReplicaId(conversation as u32 % REPLICAS);
        let bodies = bodies(conversation);
        for body in &bodies[..TURNS - 1] {
            gateway.request(body.as_bytes(), replica, Step::Dialect);
            plain_gateway.request(body.as_bytes(), replica, Step::Plain);
        }
        let last = bodies[TURNS - 1].as_bytes();
        plain.push(plain_gateway.request(last, replica, Step::Plain));
        fifth.push(gateway.request(last, replica, Step::Dialect));
        let turns = agent_bodies(conversation);
        let times = turns.iter();
        let times =
            times.map(|body| agent_gateway.request(body.as_bytes(), replica, Step::Dialect));
        agent.extend(times.last());
        // Another tenant's: the same text, and nothing of it is known.
        let mut alone: Value = serde_json::from_str(&bodies[TURNS - 1]).expect("our own JSON");
        alone["cache_salt"] = json!(format!("tenant {conversation}"));
        let alone = alone.to_string();
        first.push(gateway.request(alone.as_bytes(), replica, Step::Dialect));
    }
    println!(
        "| turn | prompt tokens | JSON, ms | template and tokens, ms | hash, ms | route, ms | \
         all, ms |\n|---|--:|--:|--:|--:|--:|--:|"
    );
    let rows = [("fifth", &fifth), ("plain", &plain), ("first", &first), ("agent", &agent)];
    for (name, steps) in rows {
        let median = |of: fn(&Steps) -> Duration| {
            let mut times: Vec<_> = steps.iter().map(of).collect();
            times.sort();
            times[times.len() / 2].as_secs_f64() * 1e3
        };
        println!(
            "| {name} | {} | {:.2} | {:.2} | {:.2} | {:.3} | {:.2} |",
            steps[0].num_tokens,
            median(|steps| steps.json),
            median(|steps| steps.tokens),
            median(|steps| steps.hash),
            median(|steps| steps.route),
            median(|steps| steps.json + steps.tokens + steps.hash + steps.route),
        );
    }
}

impl Gateway {
    fn new(prompt: Arc<PromptModel>) -> Self {
        let mut router = Router::new(RouterConfig {
            model: "m".to_owned(),
            profile: Profile::precise(),
            seed: 1,
        });
        for replica in 0..REPLICAS {
            router.add_replica(ReplicaId(replica), Some(BLOCK_SIZE), Nanos(0));
        }
        Self {
            tokens: PromptTokens::new(prompt, Metrics::new().index, None),
            router,
            now: Nanos(0),
            next_hash: 0,
        }
    }

    /// Routes one request; `holder` computes it, whichever replica was chosen.
    fn request(&mut self, body: &[u8], holder: ReplicaId, step: Step) -> Steps {
        let mut steps = Steps::default();
        let start = Instant::now();
        let text = std::str::from_utf8(black_box(body)).expect("our own JSON");
        let Ok(Value::Object(mut fields)) = headstart_prompt::read_json(text) else {
            panic!("our own JSON");
        };
        black_box(RequestShape::of(ApiKind::Chat, body));
        let raw = serde_json::from_str(text).expect("our own JSON");
        let messages = message_keys(&raw, "m", None);
        steps.json = start.elapsed();

        let start = Instant::now();
        let salt = fields.shift_remove("cache_salt");
        let salt = salt.as_ref().and_then(Value::as_str);
        let tokens = match step {
            Step::Dialect => {
                let dialect = Dialect::default();
                let tokens = self.tokens.request(dialect, Api::Chat, fields, salt);
                tokens.expect("a chat template")
            }
            Step::Plain => {
                let input = RenderInput {
                    messages: &fields["messages"],
                    tools: None,
                    generation_prompt: GenerationPrompt::Add,
                    now_unix_s: 0,
                    extra: &serde_json::Map::new(),
                };
                self.tokens.chat(&input, salt).expect("a chat template")
            }
        };
        steps.tokens = start.elapsed();
        steps.num_tokens = tokens.tokens.len();

        let start = Instant::now();
        let namespace = headstart_core::block::Namespace { adapter: None, salt };
        let tokens = &tokens.tokens[..];
        let keys = self.router.index().hash(Prompt { tokens, namespace, ..Prompt::default() });
        steps.hash = start.elapsed();

        let start = Instant::now();
        let request = RouteRequest {
            tokens: Some(tokens),
            keys: Some(&keys),
            messages: &messages,
            namespace,
            now: self.now,
            ..RouteRequest::default()
        };
        let decision = self.router.route(&request).expect("all are up");
        steps.route = start.elapsed();
        self.router.finish(decision.reservation, Nanos(0));
        self.compute(tokens, salt, holder);
        steps
    }

    /// The holder announces the prompt's blocks.
    fn compute(&mut self, tokens: &[TokenId], salt: Option<&str>, holder: ReplicaId) {
        // Later than any assumption.
        self.now.0 += 10_000_000_000;
        let num_blocks = tokens.len() / BLOCK_SIZE as usize;
        let first = self.next_hash;
        self.next_hash += num_blocks as u64;
        let stored = CacheEvent::Stored(StoredBlocks {
            blocks: (first..self.next_hash).map(BlockHash::from_u64).collect(),
            parent: None,
            tokens: tokens[..num_blocks * BLOCK_SIZE as usize].to_vec(),
            block_size: BLOCK_SIZE,
            extras: Vec::new(),
            group: CacheGroup::default(),
            tier: Tier::Device,
            salt: salt.map(Into::into),
            adapter: None,
        });
        let index = self.router.index();
        index.update(holder, Update::Events(&[stored]), self.now);
    }
}

/// The body of each turn of one conversation: words of no meaning, as long as English ones.
fn bodies(seed: usize) -> Vec<String> {
    let mut rng = Rng::new(seed as u64);
    let mut messages = Vec::new();
    let mut bodies = Vec::new();
    for _ in 0..TURNS {
        let said = text(&mut rng, TEXT_BYTES / TURNS * 3 / 4);
        messages.push(json!({"role": "user", "content": said}));
        bodies.push(json!({"model": "m", "messages": messages}).to_string());
        let answer = text(&mut rng, TEXT_BYTES / TURNS / 4);
        messages.push(json!({"role": "assistant", "content": answer}));
    }
    bodies
}

/// The body of each of 40 turns of an agent: a call of a tool, its result, a few words.
fn agent_bodies(seed: usize) -> Vec<String> {
    let mut rng = Rng::new(1000 + seed as u64);
    let tool = |number: usize| {
        let property =
            |name: &str| json!({"type": "string", "description": format!("The {name}.")});
        json!({"type": "function", "function": {
            "name": format!("tool_{number}"),
            "description": "Does one of sixty things, and says what came of it.",
            "strict": true,
            "parameters": {"type": "object", "required": ["path"], "properties": {
                "path": property("path"), "query": property("query"), "limit": {"type": "integer"},
            }},
        }})
    };
    let tools: Vec<_> = (0..60).map(tool).collect();
    let mut messages = vec![
        json!({"role": "system", "content": text(&mut rng, 8_000)}),
        json!({"role": "user", "content": text(&mut rng, 500)}),
    ];
    let mut bodies = Vec::new();
    for turn in 0..40 {
        let body = json!({"model": "m", "messages": messages, "tools": tools});
        bodies.push(body.to_string());
        let arguments = json!({"path": format!("src/{turn}.rs"), "limit": turn}).to_string();
        let function = json!({"name": format!("tool_{}", turn % 60), "arguments": arguments});
        let id = format!("call_{turn}");
        messages.push(json!({"role": "assistant", "content": null, "tool_calls": [
            {"id": id, "type": "function", "function": function},
        ]}));
        let result = text(&mut rng, 2_000);
        messages.push(json!({"role": "tool", "tool_call_id": id, "content": result}));
    }
    bodies
}

fn text(rng: &mut Rng, bytes: usize) -> String {
    const WORDS: [&str; 16] = [
        "the", "of", "value", "request", "a", "block", "in", "is", "cache", "to", "and", "server",
        "prefix", "token", "that", "memory",
    ];
    let mut text = String::with_capacity(bytes + 16);
    while text.len() < bytes {
        text.push_str(WORDS[rng.below(WORDS.len())]);
        let end = match rng.below(12) {
            0 => ".\n",
            1 => ", ",
            _ => " ",
        };
        text.push_str(end);
        if rng.below(20) == 0 {
            text.push_str(&rng.below(100_000).to_string());
            text.push(' ');
        }
    }
    text
}
