//! `headstart bench chat`.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use headstart_loadgen::{
    Answers, ApiClient, ChatBench, ChatReport, ProbeReport, ReuseProbe, chat, compare, probe,
    read_conversations,
};
use headstart_server::RunningServer;
use headstart_trace::format::conversation::Conversation;
use serde_json::json;

use super::super::replay::progress;
use super::super::serve;
use super::BenchServer;
use crate::config::{ServeOptions, UsageError};
use crate::output;

/// Rounds of the reuse probe that `bench chat` ends with.
const PROBE_ROUNDS: usize = 20;

/// Multi-turn conversations, closed loop, one run per strategy.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  headstart bench chat conversations.jsonl.zst --conversations 200 --active 8 --cache-blocks 600
  headstart bench chat conversations.jsonl --strategy random,session,precise --json
  headstart bench chat --probe-only                     only the reuse probe, no file needed
  headstart bench chat conversations.jsonl --url http://127.0.0.1:8000 --served-model-name toy

Without --url it starts a server of its own for each strategy, as `headstart serve` would.
It ends with the reuse probe: turn 2 of fresh conversations (2,000 prompt tokens and more, a
tenth of them new), each also sent uncached, one request at a time.")]
pub(crate) struct Chat {
    /// Conversations as JSONL, plain or zstd, with `turns` (role, text) or OpenAI `messages`
    #[arg(required_unless_present = "probe_only")]
    file: Option<PathBuf>,
    /// Measure this server instead of starting some.
    #[arg(long, conflicts_with_all = ["strategies", "upstream"])]
    url: Option<String>,
    /// Strategies to compare, separated by commas.
    #[arg(
        long = "strategy",
        id = "strategies",
        value_name = "S[,S…]",
        value_delimiter = ',',
        default_value = "random,session,precise"
    )]
    strategies: Vec<String>,
    /// Conversations to take from the file.
    #[arg(long, default_value_t = 200, value_name = "N")]
    conversations: usize,
    /// Conversations at once.
    #[arg(long, default_value_t = 8, value_name = "N")]
    active: usize,
    /// Most tokens of an answer.
    #[arg(long, default_value_t = 64, value_name = "N")]
    max_tokens: u32,
    /// Most turns of a conversation.
    #[arg(long, value_name = "N")]
    max_turns: Option<usize>,
    /// Put the recorded answers in the history, not the generated ones.
    #[arg(long)]
    recorded_answers: bool,
    /// Only the reuse probe.
    #[arg(long)]
    probe_only: bool,
    /// Rounds of the reuse probe; 0 leaves it out.
    #[arg(long, default_value_t = PROBE_ROUNDS, value_name = "N")]
    probe_rounds: usize,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: BenchServer,
}

/// Runs the benchmark.
pub(super) fn run(chat: &Chat) -> Result<()> {
    check(chat)?;
    serve::runtime()?.block_on(run_chat(chat))
}

fn check(chat: &Chat) -> Result<()> {
    let counts = [
        ("--active", chat.active),
        ("--conversations", chat.conversations),
        ("--max-tokens", chat.max_tokens as usize),
        ("--max-turns", chat.max_turns.unwrap_or(1)),
    ];
    for (name, number) in counts {
        if number == 0 {
            return Err(UsageError(format!("{name} must be at least 1")).into());
        }
    }
    for strategy in &chat.strategies {
        crate::config::parsed::<headstart_router::Strategy>(strategy, "--strategy")?;
    }
    Ok(())
}

async fn run_chat(chat: &Chat) -> Result<()> {
    let conversations = match &chat.file {
        Some(file) if !chat.probe_only => read_conversations(file, Some(chat.conversations))?,
        _ => Vec::new(),
    };
    let (reports, probed) = match &chat.url {
        Some(url) => measure_url(chat, url, &conversations).await?,
        None => measure_strategies(chat, &conversations).await?,
    };
    if chat.json {
        let runs = reports.iter();
        let runs: Vec<_> = runs
            .map(|(name, report)| json!({"name": name, "report": report}))
            .collect();
        output::line(&json!({"runs": runs, "reuse_probe": probed}).to_string())?;
        return check_outcome(&reports);
    }
    for (name, report) in &reports {
        output::line(&format!("## {name}\n\n{}", report.to_markdown()))?;
    }
    if reports.len() > 1 {
        let reports: Vec<_> = reports
            .iter()
            .map(|(name, report)| (&name[..], report))
            .collect();
        output::line(&format!("## Side by side\n\n{}", compare(&reports)))?;
    }
    if let Some(probed) = probed {
        output::line(&format!("## Reuse probe\n\n{}", probed.to_markdown()))?;
    }
    check_outcome(&reports)
}

/// A benchmark with failed requests, or without any, is no result.
fn check_outcome(reports: &[(String, ChatReport)]) -> Result<()> {
    for (name, report) in reports {
        if report.failed > 0 {
            let first = report.failures.first().map_or("", String::as_str);
            bail!(
                "{name}: {} conversations failed, the first: {first}",
                report.failed
            );
        }
        ensure!(
            report.all.requests > 0,
            "{name}: no request was answered; nothing was measured"
        );
    }
    Ok(())
}

type Measured = (Vec<(String, ChatReport)>, Option<ProbeReport>);

async fn measure_url(chat: &Chat, url: &str, conversations: &[Conversation]) -> Result<Measured> {
    let client = chat.server.client(url)?;
    let mut reports = Vec::new();
    if !chat.probe_only {
        reports.push((url.to_owned(), measure(chat, &client, conversations).await));
    }
    Ok((reports, probe_reuse(chat, &client).await?))
}

async fn measure_strategies(chat: &Chat, conversations: &[Conversation]) -> Result<Measured> {
    let mut reports = Vec::new();
    let strategies = if chat.probe_only {
        &[][..]
    } else {
        &chat.strategies[..]
    };
    for strategy in strategies {
        eprintln!("strategy {strategy}");
        let (server, client) = start(&chat.server, strategy).await?;
        reports.push((
            strategy.clone(),
            measure(chat, &client, conversations).await,
        ));
        server.shutdown().await;
    }
    if chat.probe_rounds == 0 {
        return Ok((reports, None));
    }
    let (server, client) = start(&chat.server, "precise").await?;
    let probed = probe_reuse(chat, &client).await;
    server.shutdown().await;
    Ok((reports, probed?))
}

/// A fresh server, so that no run profits from another's cache.
async fn start(server: &BenchServer, strategy: &str) -> Result<(RunningServer, ApiClient)> {
    let options = ServeOptions {
        strategy: Some(strategy.to_owned()),
        ..server.options()
    };
    server.start(serve::config(&options)?).await
}

async fn measure(chat: &Chat, client: &ApiClient, conversations: &[Conversation]) -> ChatReport {
    let config = ChatBench {
        active: chat.active,
        max_tokens: chat.max_tokens,
        answers: if chat.recorded_answers {
            Answers::Recorded
        } else {
            Answers::Generated
        },
        max_turns: chat.max_turns,
        max_prompt_tokens: None,
    };
    let bar = progress(conversations.len() as u64);
    let report = chat::run(client, conversations, &config, |progress| {
        bar.set_position(progress.ended as u64);
    });
    let report = report.await;
    bar.finish_and_clear();
    report
}

async fn probe_reuse(chat: &Chat, client: &ApiClient) -> Result<Option<ProbeReport>> {
    if chat.probe_rounds == 0 {
        return Ok(None);
    }
    let config = ReuseProbe {
        rounds: chat.probe_rounds,
        ..ReuseProbe::default()
    };
    let bar = progress(chat.probe_rounds as u64);
    let report = probe::run(client, &config, |done| bar.set_position(done as u64)).await;
    bar.finish_and_clear();
    Ok(Some(report.context("the reuse probe failed")?))
}
