//! `headstart doctor`: whether prefix caching works on an engine, and what holds it back.

mod diagnosis;
mod events;

use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use headstart_core::figures::counted;
use headstart_loadgen::{ApiClient, CachingProbe};
use headstart_terminal::{self as output, TaskProgress, colour};
use serde_json::{Value, json};

use crate::commands::serve::runtime;
use crate::config::first_line;
use crate::engine::EnginePages;
use crate::exit::CheckFailure;
use crate::server::ServerOptions;
use diagnosis::{CheckOutcome, Diagnosis, Examination};
use events::EventWatch;

/// Time for one answer: a prompt of some thousand tokens on a busy CPU.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Check whether prefix caching works on an engine.
#[derive(Args, Debug)]
#[command(after_help = include_str!("doctor.help.txt"))]
pub(crate) struct Doctor {
    #[command(flatten)]
    server: ServerOptions,
    /// Model to ask for [default: the engine's first]
    #[arg(long, value_name = "NAME")]
    served_model_name: Option<String>,
    /// Address of the engine's KV events, such as tcp://10.0.0.7:5557
    #[arg(long, value_name = "ENDPOINT")]
    kv_events: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Examines the engine and tells.
pub(crate) fn run(doctor: &Doctor) -> Result<()> {
    let examination = runtime()?.block_on(examined(doctor))?;
    let diagnoses = diagnosis::of(&examination);
    output::line(&if doctor.json {
        shown_json(&examination, &diagnoses).to_string()
    } else {
        output::fitted(&shown_text(&doctor.server.url, &examination, &diagnoses))
    })?;
    let failed: Vec<_> =
        diagnoses.iter().filter(|one| one.verdict == CheckOutcome::Failed).collect();
    match failed.first() {
        None => Ok(()),
        Some(first) => {
            let checks = counted(failed.len() as u64, "check");
            bail!(CheckFailure(format!("{checks} failed: {}", first.name)))
        }
    }
}

async fn examined(doctor: &Doctor) -> Result<Examination> {
    let key = doctor.server.api_key_file.as_deref().map(first_line).transpose()?;
    let url = &doctor.server.url;
    let progress = TaskProgress::endless(format!("asking {url}"));
    let before = EnginePages::read(url, key.as_deref()).await?;
    let facts = before.facts();
    let model = doctor.served_model_name.clone().or_else(|| facts.model.clone());
    let model = model
        .context("no model in /v1/models: no engine answers there, or pass --served-model-name")?;
    let client = ApiClient::new(url, &model, key.as_deref())?;
    let client = client.with_request_timeout(REQUEST_TIMEOUT);
    let watch = match &doctor.kv_events {
        Some(endpoint) => Some(EventWatch::start(endpoint).await),
        None => None,
    };
    let probe = CachingProbe::run(&client).await?;
    let events = match watch {
        Some(watch) => Some(watch.finish().await),
        None => None,
    };
    let after = EnginePages::read(url, key.as_deref()).await?;
    drop(progress);
    Ok(Examination { model, facts: after.facts(), before, after, probe, events })
}

fn shown_text(url: &str, examined: &Examination, diagnoses: &[Diagnosis]) -> String {
    let mut text = format!("{} at {url}, model {}", examined.facts.kind.name(), examined.model);
    for one in diagnoses {
        let mark = match one.verdict {
            CheckOutcome::Passed => colour::hit("ok    "),
            CheckOutcome::Warned => colour::loss("warn  "),
            CheckOutcome::Failed => colour::loss("FAILED"),
        };
        text += &format!("\n\n{mark}  {}: {}", one.name, one.sentence);
        if let Some(fix) = &one.fix {
            text += &format!("\n        {} {fix}", colour::fix("fix:"));
        }
    }
    let count = |verdict| diagnoses.iter().filter(|one| one.verdict == verdict).count();
    text += &format!(
        "\n\n{} passed, {} warned, {} failed.",
        count(CheckOutcome::Passed),
        count(CheckOutcome::Warned),
        count(CheckOutcome::Failed)
    );
    text
}

fn shown_json(examined: &Examination, diagnoses: &[Diagnosis]) -> Value {
    let Examination { model, facts, probe, events, .. } = examined;
    json!({
        "engine": facts.kind.name(),
        "model": model,
        "block_size": facts.block_size,
        "cache_blocks": facts.blocks,
        "caches": facts.caches,
        "probe": {
            "prompt_tokens": probe.prompt_tokens,
            "first": probe.first,
            "repeated": probe.repeated,
            "salted": probe.salted,
            "cut": probe.cut,
            "step": probe.step(),
            "ttft_first_s": probe.ttft_first.as_secs_f64(),
            "ttft_repeated_s": probe.ttft_repeated.as_secs_f64(),
        },
        "events": events.as_ref().map(|events| json!({
            "stored_blocks": events.stored_blocks,
            "block_size": events.block_size,
        })),
        "checks": diagnoses.iter().map(|one| json!({
            "name": one.name,
            "verdict": one.verdict.name(),
            "sentence": one.sentence,
            "fix": one.fix,
        })).collect::<Vec<_>>(),
    })
}
