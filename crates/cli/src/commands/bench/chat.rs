//! `headstart bench chat`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use headstart_core::figures::counted;
use headstart_loadgen::{
    Answers, ApiClient, ChatBench, ChatRecord, ChatReport, ProbeReport, ReuseProbe, Starts, chat,
    compare, probe, read_conversations,
};
use headstart_server::RunningServer;
use headstart_terminal::{self as output, Progress, TaskProgress};
use headstart_trace::format::conversation::Conversation;
use serde_json::json;

use super::super::serve;
use super::continuation::Continuations;
use super::runs::{Runs, ServerRun};
use super::{BenchServer, recording};
use crate::config::{ServeOptions, parsed};
use crate::exit::usage;

/// Rounds of the reuse probe that `bench chat` ends with.
const PROBE_ROUNDS: usize = 20;

/// Longest duration that may be requested: a week. Longer runs end in some other system's timeout.
const DURATION_MAX: Duration = Duration::from_secs(7 * 86_400);

/// Play multi-turn conversations; compare strategies and policies.
#[derive(Args, Debug)]
#[command(after_help = include_str!("chat.help.txt"))]
pub(crate) struct ChatBenchCommand {
    /// Conversations as JSON lines, plain or zstd
    ///
    /// With `turns` (role, text) or OpenAI's `messages`.
    #[arg(required_unless_present = "probe_only")]
    file: Option<PathBuf>,
    /// Measure this running server
    #[arg(long, conflicts_with_all = ["strategies", "policies", "upstream"],
        help_heading = "Server")]
    url: Option<String>,
    #[command(flatten)]
    runs: Runs,
    /// Conversations to take from the file
    #[arg(long, default_value_t = 200, value_name = "N", help_heading = "Load")]
    conversations: usize,
    /// Concurrent conversations
    ///
    /// With spaced starts, as if answers took no time.
    #[arg(long, default_value_t = 8, value_name = "N", help_heading = "Load")]
    active: usize,
    /// Maximum tokens of an answer
    #[arg(long, default_value_t = 64, value_name = "N", help_heading = "Load")]
    max_tokens: u32,
    /// Maximum turns of a conversation
    #[arg(long, value_name = "N", help_heading = "Load")]
    max_turns: Option<usize>,
    /// Maximum prompt length, tokens
    ///
    /// A conversation ends before a prompt that is expected to be longer.
    #[arg(long, value_name = "N", help_heading = "Load")]
    max_prompt_tokens: Option<u32>,
    #[command(flatten)]
    users: UserTimingOptions,
    /// Write a record of each run, without text
    ///
    /// `headstart-lab prediction --record` repeats it. The second run goes to FILE with `.2`
    /// before its extension, and so on.
    #[arg(long, value_name = "FILE", conflicts_with = "probe_only")]
    #[arg(help_heading = "Output")]
    record: Option<PathBuf>,
    /// Continue with the recorded answers, not the generated ones
    #[arg(long, help_heading = "Load")]
    recorded_answers: bool,
    /// Run only the reuse probe
    #[arg(long, help_heading = "Reuse probe")]
    probe_only: bool,
    /// Rounds of the reuse probe; 0 skips it
    #[arg(long, default_value_t = PROBE_ROUNDS, value_name = "N", help_heading = "Reuse probe")]
    probe_rounds: usize,
    /// Print one JSON object
    #[arg(long, help_heading = "Output")]
    json: bool,
    #[command(flatten)]
    server: BenchServer,
}

/// When users write.
#[derive(Args, Debug)]
#[command(next_help_heading = "Load")]
struct UserTimingOptions {
    /// Time from an answer to the next request
    ///
    /// none, fixed:SECONDS, exp:MEAN_SECONDS or lognormal:MU,SIGMA.
    #[arg(long, default_value = "none", value_name = "DIST")]
    think: String,
    /// Starts of conversations: chained or spaced
    ///
    /// chained starts the next one when one ends. spaced derives the starts from the think times,
    /// independent of the server.
    #[arg(long, default_value = "chained", value_name = "MODE")]
    starts: String,
    /// Seed of the think times
    #[arg(long, default_value_t = 1, value_name = "N")]
    think_seed: u64,
    /// Time after which no request is sent
    #[arg(long, value_name = "SECONDS")]
    duration: Option<f64>,
}

/// Runs the benchmark.
pub(super) fn run(chat: &ChatBenchCommand) -> Result<()> {
    check(chat)?;
    serve::runtime()?.block_on(run_chat(chat))
}

fn check(chat: &ChatBenchCommand) -> Result<()> {
    let counts = [
        ("--active", chat.active),
        ("--conversations", chat.conversations),
        ("--max-tokens", chat.max_tokens as usize),
        ("--max-turns", chat.max_turns.unwrap_or(1)),
    ];
    for (name, number) in counts {
        ensure!(number != 0, usage(format!("{name} must be at least 1")));
    }
    // All options are checked before the first server starts, which takes seconds.
    chat.runs.check()?;
    bench_of(chat).map(drop)
}

/// Converts the options into a [`ChatBench`].
fn bench_of(chat: &ChatBenchCommand) -> Result<ChatBench> {
    let UserTimingOptions { think, starts, think_seed: seed, duration } = &chat.users;
    let starts = match &starts[..] {
        "chained" => Starts::Chained,
        "spaced" => Starts::Spaced,
        other => {
            bail!(usage(format!("--starts {other}: known are chained, spaced")));
        }
    };
    let duration = duration.map(|seconds| match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if duration <= DURATION_MAX => Ok(duration),
        _ => Err(usage(format!("--duration {seconds}: expected seconds, up to a week"))),
    });
    Ok(ChatBench {
        active: chat.active,
        starts,
        think: parsed(think, "--think")?,
        seed: *seed,
        duration: duration.transpose()?,
        max_tokens: chat.max_tokens,
        answers: if chat.recorded_answers { Answers::Recorded } else { Answers::Generated },
        max_turns: chat.max_turns,
        max_prompt_tokens: chat.max_prompt_tokens,
    })
}

async fn run_chat(chat: &ChatBenchCommand) -> Result<()> {
    // The records of a run of hours must not fail at the end.
    if let Some(record) = &chat.record {
        let inputs = [&chat.file, &chat.server.predictor];
        let inputs: Vec<&Path> = inputs.into_iter().filter_map(Option::as_deref).collect();
        recording::check(record, &inputs)?;
    }
    let conversations = match &chat.file {
        Some(file) if !chat.probe_only => read_conversations(file, Some(chat.conversations))?,
        _ => Vec::new(),
    };
    let config = bench_of(chat)?;
    let predictor = chat.server.predictor.as_deref();
    // Predictions are only for the record, and computing them takes time.
    let predicted = match predictor.filter(|_| chat.record.is_some()) {
        Some(file) => {
            let encoder = chat.server.encoder.as_deref();
            Continuations::of(file, encoder, &conversations, &config)?
        }
        None => Continuations::default(),
    };
    let bench = Bench { chat, conversations, config, predicted };
    let (reports, probed) = match &chat.url {
        Some(url) => bench.measure_url(url).await?,
        None => bench.measure_servers().await?,
    };
    print(chat, &reports, probed.as_ref())?;
    // The report comes first: it shows the failures that the error below counts.
    check_outcome(&reports)
}

fn print(
    chat: &ChatBenchCommand,
    reports: &[(String, ChatReport)],
    probed: Option<&ProbeReport>,
) -> Result<()> {
    if chat.json {
        let runs = reports.iter();
        let runs: Vec<_> =
            runs.map(|(name, report)| json!({"name": name, "report": report})).collect();
        return output::line(&json!({"runs": runs, "reuse_probe": probed}).to_string());
    }
    for (name, report) in reports {
        output::line(&output::fitted(&format!("{name}\n{}", report.to_markdown())))?;
    }
    if reports.len() > 1 {
        let reports: Vec<_> = reports.iter().map(|(name, report)| (&name[..], report)).collect();
        output::line(&output::fitted(&format!("Comparison\n{}", compare(&reports))))?;
    }
    if let Some(probed) = probed {
        output::line(&output::fitted(&format!("Reuse probe\n{}", probed.to_markdown())))?;
    }
    Ok(())
}

/// A benchmark with failed requests, or without any, is no result.
fn check_outcome(reports: &[(String, ChatReport)]) -> Result<()> {
    for (name, report) in reports {
        if report.failed > 0 {
            let first = report.failures.first().map_or("", String::as_str);
            bail!(
                "{name}: {} failed, the first: {first}",
                counted(report.failed as u64, "conversation")
            );
        }
        ensure!(report.all.requests > 0, "{name}: no request was answered; nothing was measured");
    }
    Ok(())
}

type ChatReports = (Vec<(String, ChatReport)>, Option<ProbeReport>);

/// The benchmark with all that its runs have in common.
struct Bench<'a> {
    chat: &'a ChatBenchCommand,
    conversations: Vec<Conversation>,
    config: ChatBench,
    predicted: Continuations,
}

impl Bench<'_> {
    async fn measure_url(&self, url: &str) -> Result<ChatReports> {
        let client = self.chat.server.client(url)?;
        let mut reports = Vec::new();
        if !self.chat.probe_only {
            reports.push((url.to_owned(), self.measure(1, url, &client).await?));
        }
        Ok((reports, probe_reuse(self.chat, &client).await?))
    }

    async fn measure_servers(&self) -> Result<ChatReports> {
        let mut reports = Vec::new();
        let runs = if self.chat.probe_only { Vec::new() } else { self.chat.runs.all() };
        for (number, run) in (1..).zip(runs) {
            // A fresh server, so that no run profits from another's cache.
            let (server, client) = start(&self.chat.server, &run).await?;
            let report = self.measure(number, &run.name, &client).await;
            // The server is stopped even if the run failed, so that the next one gets its memory.
            server.shutdown().await;
            reports.push((run.name, report?));
        }
        if self.chat.probe_rounds == 0 {
            return Ok((reports, None));
        }
        // The probe gets a server of its own: caches of the last run would change its misses.
        let (server, client) = start(&self.chat.server, &ServerRun::default()).await?;
        let probed = probe_reuse(self.chat, &client).await;
        server.shutdown().await;
        Ok((reports, probed?))
    }

    /// Run `number` (from 1), by the name of `run`.
    async fn measure(&self, number: usize, run: &str, client: &ApiClient) -> Result<ChatReport> {
        let conversations = &self.conversations;
        let bar = TaskProgress::steps(format!("measuring {run}"), conversations.len()).announced();
        let observed = chat::run(client, conversations, &self.config, |progress| {
            bar.set_position(progress.ended as u64);
        });
        let observed = observed.await;
        bar.end();
        if let Some(file) = &self.chat.record {
            let answers = self.config.answers;
            let predicted = |number, turn| self.predicted.get(number, turn);
            let record = ChatRecord::of(run, conversations, answers, &observed, predicted);
            recording::write(&record, file, number)?;
        }
        Ok(ChatReport::of(&observed))
    }
}

async fn start(server: &BenchServer, run: &ServerRun) -> Result<(RunningServer, ApiClient)> {
    let options = ServeOptions {
        strategy: run.strategy.clone(),
        policy: run.policy.clone(),
        ..server.options()
    };
    server.start(serve::config(&options)?).await
}

async fn probe_reuse(chat: &ChatBenchCommand, client: &ApiClient) -> Result<Option<ProbeReport>> {
    if chat.probe_rounds == 0 {
        return Ok(None);
    }
    let config = ReuseProbe { rounds: chat.probe_rounds, ..ReuseProbe::default() };
    let progress = TaskProgress::steps("probing the reuse of prefixes", chat.probe_rounds);
    let report = probe::run(client, &config, |done| progress.set_position(done as u64)).await;
    progress.end();
    Ok(Some(report.context("the reuse probe failed")?))
}
