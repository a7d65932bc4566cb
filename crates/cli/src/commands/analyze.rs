//! `headstart analyze`.

mod analysis;
mod cost;
mod export;
mod findings;
mod fleet;
mod headlines;
mod logged;
mod memory;
mod patience;
mod traffic;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use headstart_trace::Arrivals;

use self::analysis::Setting;
use self::cost::Cost;
use self::fleet::Fleet;
use self::memory::Bounds;
use self::patience::Patience;
pub(crate) use self::traffic::{Counts, Source};
use self::traffic::{Reading, Renderings, Traffic};
use super::replay::capacity::{Capacity, Scale};
use crate::config::{UsageError, parsed};
use crate::kv_bytes::{KvBytes, KvDtype};
use crate::output;
use crate::report::analyze::{self as report, Analysis, thousands};

/// Replicas where nobody says how many there are.
const REPLICAS: usize = 4;

/// Most replicas: each is a cache of its own.
const REPLICAS_MAX: usize = 1024;

/// Why prompts were computed again, what that cost, and what would change it.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  headstart analyze requests.jsonl                  what is computed twice, and why
  headstart analyze litellm.jsonl.gz --replicas 8 --capacity 40GiB --model ./Qwen3-8B \\
    --tokenizer ./Qwen3-8B --gpu-hour 2.5 --html report.html
  headstart analyze monday.jsonl tuesday.jsonl --show-text
  headstart analyze conversation_trace.jsonl.zst --json
  headstart analyze requests.jsonl --export anonymous.jsonl.gz
  headstart demo                                    the same on a log that is made up

FILE is JSON, one object a line; plain, gzip or zstd; `-` is standard input:
  requests      OpenAI's and Anthropic's request bodies, alone, in OpenAI's batch files or in a
                proxy's `request`; logs of LiteLLM, Helicone, Langfuse, LangSmith; rendered
                prompts, {\"prompt\": \"…\"} or as token ids
  conversation  dialogues: `messages`, `turns` or ShareGPT's `conversations`
  mooncake, bailian, agent, canonical
                traces of block ids: Mooncake's, Qwen-Bailian's, kv-cache-tester's agent sessions,
                and what --export and `headstart convert` write
The first line tells which; --format overrules it. Azure's CSV has neither prompts nor block ids,
so there is nothing to find again. Request logs that have times are merged by time (few requests
without one come with the one before); otherwise each file begins when the one before it ends.

Of a request log everything stays on this machine, and no text is shown, nor written to --html,
unless --show-text asks for it. --export writes times, lengths and block ids in new numbers: no
text, no names, no hashes of either.

The waterfall is of a fleet of --replicas that hold --capacity each, where a request goes to the
one that holds most of it unless that has too much to do; random routing is told apart. Without
--capacity each holds what the engine of the cost model has memory for. Where the log says what
was cached, that counts as served, and of the rest only what was computed before is told: nobody
knows what that engine held. Everywhere a prompt's last token counts as computed, with its block.
Of block ids nobody can tell what is new from what changed in front.

Time is that of computing prompts: by the cost model, or fitted to the log's own times to the first
token. Money is --gpu-hour of that time, or --price-table by token: a computed token costs its
price, a served one saves what that price is above the price of a hit. Where the log counts its
prompt tokens itself, time, money and what a replica holds go by that count.")]
pub(crate) struct Analyze {
    /// Request logs, conversations or traces
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    options: Options,
    /// Also write the requests as an anonymous trace, which `replay` and `analyze` read
    #[arg(long, value_name = "FILE")]
    export: Option<PathBuf>,
    /// mooncake, bailian, agent, azure, conversation, requests or canonical [default: by the first
    /// line of each file]
    #[arg(long, value_name = "NAME", help_heading = "Reading")]
    format: Option<String>,
    /// Leave bad lines out and count them, instead of stopping at the first
    #[arg(long, help_heading = "Reading")]
    skip_bad: bool,
    /// Tokens per block [default: 512 mooncake, agent as it says, 16 otherwise]
    #[arg(long, value_name = "N", help_heading = "Reading")]
    block_tokens: Option<u32>,
    /// Draw the starts of agent sessions, this far apart on average
    #[arg(long, value_name = "SECONDS", help_heading = "Reading")]
    arrivals: Option<f64>,
}

/// What `demo` knows too.
#[derive(Args, Debug, Default)]
pub(crate) struct Options {
    /// Replicas that share the traffic [default: 4]
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = replicas)]
    replicas: Option<usize>,
    /// What one replica holds: 6000 or 6k (blocks), 160Ktok (tokens), 1% (of the distinct blocks),
    /// 40GiB (with --model or --kv-bytes) [default: as the cost model's engine]
    #[arg(long, value_name = "N")]
    capacity: Option<String>,
    /// Folder with a config.json, or the file: says how many bytes a token takes
    #[arg(long, value_name = "PATH")]
    model: Option<PathBuf>,
    /// Bytes of a token's keys and values, where there is no --model
    #[arg(long, value_name = "N", conflicts_with = "model")]
    kv_bytes: Option<u64>,
    /// How keys and values are stored: f32, f16, bf16, fp8 or int8 [default: as the model says]
    #[arg(long, value_name = "DTYPE", requires = "model")]
    kv_dtype: Option<String>,
    /// What the engine's steps cost, as `headstart calibrate` writes it [default: Llama 3.1 8B on
    /// one H100]
    #[arg(long, value_name = "FILE")]
    cost_model: Option<PathBuf>,
    /// What an hour of a replica costs, in dollars
    #[arg(
        long,
        value_name = "DOLLARS",
        conflicts_with = "price_table",
        allow_negative_numbers = true
    )]
    gpu_hour: Option<f64>,
    /// What tokens cost: a file as for `savings`, or builtin for relative prices
    #[arg(long, value_name = "FILE|builtin")]
    price_table: Option<String>,
    /// Folder of the tokenizer and chat template [default: the built-in toy's]
    #[arg(long, value_name = "FOLDER")]
    tokenizer: Option<PathBuf>,
    /// Show the text of examples, which is a part of somebody's prompt
    #[arg(long)]
    show_text: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Also write a page with plots, which opens without a network; `-` prints it instead of the
    /// text
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Reads, analyzes and tells.
pub(crate) fn run(analyze: &Analyze) -> Result<()> {
    check_outputs(analyze)?;
    let sources: Vec<_> = analyze.files.iter().cloned().map(Source::File).collect();
    let mut patience = Patience::new();
    let rendering = Renderings::of(analyze.options.tokenizer.as_deref())?;
    let traffic = Traffic::read(&sources, &analyze.reading(&rendering)?, &mut patience)?;
    if let Some(path) = &analyze.export {
        export::write(path, &traffic)?;
    }
    let analysis = analyze.options.analyze(&traffic, &mut patience)?;
    patience.is_over();
    analyze.options.tell(&analysis)
}

/// Reads `sources` as texts or traces, analyzes them and tells.
pub(crate) fn tell(options: &Options, sources: &[Source]) -> Result<()> {
    let mut patience = Patience::new();
    let rendering = Renderings::of(options.tokenizer.as_deref())?;
    let reading = Reading {
        format: None,
        skip_bad: false,
        block_tokens: None,
        arrivals: Arrivals::FileOrder,
        rendering: &rendering,
        held_bytes: Bounds::default().held_bytes,
    };
    let traffic = Traffic::read(sources, &reading, &mut patience)?;
    let analysis = options.analyze(&traffic, &mut patience)?;
    patience.is_over();
    options.tell(&analysis)
}

/// No file that is written is one that is read, and standard output is written once.
fn check_outputs(analyze: &Analyze) -> Result<()> {
    let is_stdout = |path: &Option<PathBuf>| path.as_deref().is_some_and(is_stdout_path);
    if is_stdout(&analyze.export) {
        let message = "--export -: standard output is for the report; name a file".to_owned();
        return Err(UsageError(message).into());
    }
    if analyze.options.json && is_stdout(&analyze.options.html) {
        let message = "--html - --json: both would go to standard output; name a file for the page";
        return Err(UsageError(message.to_owned()).into());
    }
    let outputs = [
        ("--html", &analyze.options.html),
        ("--export", &analyze.export),
    ];
    let given = outputs
        .iter()
        .filter_map(|(name, path)| Some((*name, path.as_deref()?)))
        .filter(|(_, path)| !is_stdout_path(path));
    let inputs: Vec<&Path> = analyze.files.iter().map(PathBuf::as_path).collect();
    output::files(&given.collect::<Vec<_>>(), &inputs)
}

/// How many replicas there are, as the command line says.
fn replicas(text: &str) -> Result<usize, String> {
    let replicas = text.parse().ok();
    replicas
        .filter(|replicas| (1..=REPLICAS_MAX).contains(replicas))
        .ok_or_else(|| format!("expected 1 to {REPLICAS_MAX}"))
}

/// `-`, which stands for standard output.
fn is_stdout_path(path: &Path) -> bool {
    path.as_os_str() == "-"
}

impl Analyze {
    fn reading<'r>(&self, rendering: &'r Renderings) -> Result<Reading<'r>> {
        let format = self.format.as_deref();
        let format = format.map(|name| parsed(name, "--format")).transpose()?;
        if self.block_tokens == Some(0) {
            let message = "--block-tokens 0: a block holds at least one token".to_owned();
            return Err(UsageError(message).into());
        }
        let arrivals = match self.arrivals.map(Duration::try_from_secs_f64) {
            None => Arrivals::FileOrder,
            Some(Ok(mean_gap)) if !mean_gap.is_zero() => Arrivals::Poisson { mean_gap, seed: 0 },
            Some(_) => {
                let message = "--arrivals: expected seconds above 0".to_owned();
                return Err(UsageError(message).into());
            }
        };
        Ok(Reading {
            format,
            skip_bad: self.skip_bad,
            block_tokens: self.block_tokens,
            arrivals,
            rendering,
            held_bytes: Bounds::default().held_bytes,
        })
    }
}

impl Options {
    /// Where the page goes.
    pub(crate) fn html(&self) -> Option<&Path> {
        self.html.as_deref()
    }

    /// What a demo needs where nobody says otherwise. Its texts are nobody's, so they are shown.
    pub(crate) fn settle(&mut self, page: &Path, capacity: &str) {
        self.html.get_or_insert_with(|| page.to_owned());
        self.capacity.get_or_insert_with(|| capacity.to_owned());
        self.show_text = true;
    }

    fn analyze(&self, traffic: &Traffic, patience: &mut Patience) -> Result<Analysis> {
        let (gpu_hour, prices) = (self.gpu_hour, self.price_table.as_deref());
        let cost = Cost::of(self.cost_model.as_deref(), gpu_hour, prices)?;
        let kv = self.kv_bytes()?;
        let replicas = self.replicas.unwrap_or(REPLICAS);
        let (capacity_blocks, capacity_from) = self.capacity(traffic, &cost, kv.as_ref())?;
        let setting = Setting {
            fleet: Fleet {
                replicas,
                capacity_blocks,
            },
            capacity_from,
            cost: &cost,
            kv: kv.as_ref(),
            show_text: self.show_text,
            bounds: Bounds::default(),
        };
        Ok(analysis::of(traffic, &setting, patience))
    }

    fn kv_bytes(&self) -> Result<Option<KvBytes>> {
        if let Some(per_token) = self.kv_bytes {
            let shape = "--kv-bytes".to_owned();
            return Ok(Some(KvBytes { per_token, shape }));
        }
        let dtype = self.kv_dtype.as_deref();
        let dtype = dtype
            .map(|name| parsed::<KvDtype>(name, "--kv-dtype"))
            .transpose()?;
        let model = self.model.as_deref();
        Ok(model
            .map(|path| KvBytes::of_model(path, dtype))
            .transpose()?)
    }

    /// Blocks of one replica, and who says so.
    fn capacity(
        &self,
        traffic: &Traffic,
        cost: &Cost,
        kv: Option<&KvBytes>,
    ) -> Result<(u64, String)> {
        let block_tokens = traffic.info.block_tokens;
        let counts = &traffic.counts;
        let Some(text) = &self.capacity else {
            let tokens = cost.engine().kv_tokens as f64;
            let blocks = tokens * counts.factor() / f64::from(block_tokens.max(1));
            let logged = match counts.differ() {
                true => format!(": {} of the log's tokens", thousands(tokens as u64)),
                false => String::new(),
            };
            let from = match self.cost_model {
                None => {
                    format!("what Llama 3.1 8B leaves on an H100{logged}; --capacity for yours")
                }
                Some(_) => format!("as the cost model says{logged}"),
            };
            return Ok(((blocks as u64).max(1), from));
        };
        let capacity: Capacity = parsed(text, "--capacity")?;
        let pieces = Bounds::default().limits.pieces;
        let scale = Scale {
            block_tokens,
            distinct_blocks: match capacity {
                Capacity::Percent(_) => traffic.distinct_blocks(pieces),
                _ => 0,
            },
            kv,
        };
        let blocks = capacity.blocks(&scale);
        let blocks = blocks.map_err(|error| UsageError(format!("--capacity {text}: {error}")))?;
        // Tokens and bytes are those of the log's model.
        let blocks = match capacity {
            Capacity::Tokens(_) | Capacity::Bytes(_) => (blocks as f64 * counts.factor()) as u64,
            Capacity::Blocks(_) | Capacity::Percent(_) => blocks,
        };
        Ok((blocks.max(1), format!("--capacity {text}")))
    }

    fn tell(&self, analysis: &Analysis) -> Result<()> {
        let page = || report::page(analysis);
        if let Some(file) = &self.html {
            if is_stdout_path(file) {
                return output::line(&page());
            }
            let cannot_write = || format!("cannot write {}", file.display());
            std::fs::write(file, page()).with_context(cannot_write)?;
        }
        output::line(&match self.json {
            true => report::json(analysis).to_string(),
            false => report::text(analysis),
        })
    }
}
