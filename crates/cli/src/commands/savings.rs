//! `headstart savings`: what a running server's caches have saved, by its metrics.
//!
//! Nothing that a server says reaches the terminal with control characters in it.

mod exposition;
mod ledger;

use std::io;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use headstart_loadgen::fetch;

use crate::commands::serve::runtime;
use crate::config::prices;
use crate::output;
use ledger::Ledger;

/// Longest metrics that are read: some thousand replicas, many times.
const METRICS_BYTES_MAX: usize = 64 << 20;

/// What a running server's caches have saved.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  headstart savings
  headstart savings http://10.0.0.1:8000 --price-table prices.toml
  curl -s http://10.0.0.1:8000/metrics > m.txt; headstart savings --metrics m.txt --json

prices.toml, what a million tokens cost, by the model's name in the API or \"*\" for any other:
  currency = \"EUR\"
  [models.\"*\"]
  cache_miss = 0.30      # prompt tokens that are computed
  cache_hit = 0.03       # prompt tokens that are found
  output = 0.60          # generated tokens

Without a table, money is what the server counted by its own (serve --price-table), if it has one.
Tokens are of prompts whose first token has come; before upstreams, of answers whose usage says how
much was cached. Seconds are what computing the tokens that were found would have added, where
replicas have learned that (with --context-cache); waiting for loads is not subtracted.")]
pub(crate) struct Savings {
    /// The server's address
    #[arg(value_name = "URL", default_value = "http://127.0.0.1:8000")]
    url: String,
    /// Metrics in a file instead, as its /metrics says them
    #[arg(long, value_name = "FILE", conflicts_with = "url")]
    metrics: Option<PathBuf>,
    /// What tokens cost: a file, or builtin for relative prices
    #[arg(long, value_name = "FILE|builtin")]
    price_table: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Reads the metrics and tells.
pub(crate) fn run(savings: &Savings) -> Result<()> {
    let prices = savings.price_table.as_deref().map(prices::read);
    let prices = prices.transpose()?;
    let (name, text) = match &savings.metrics {
        Some(path) => {
            let name = path.display().to_string();
            let text = std::fs::read_to_string(path);
            (
                name.clone(),
                text.with_context(|| format!("cannot read {name}"))?,
            )
        }
        None => (savings.url.clone(), fetched(&savings.url)?),
    };
    let Some(ledger) = Ledger::read(&text) else {
        bail!(
            "{name} does not say a Headstart server's metrics; name its address, or a file of \
               its /metrics"
        );
    };
    output::line(&match savings.json {
        true => ledger.json(prices.as_ref()).to_string(),
        false => ledger.text(prices.as_ref()),
    })
}

fn fetched(url: &str) -> Result<String> {
    let mut body = Vec::new();
    let got = fetch(url, "/metrics", None, |bytes| {
        if body.len() + bytes.len() > METRICS_BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        body.extend_from_slice(bytes);
        Ok(())
    });
    // It names its innermost cause itself.
    let got = runtime()?.block_on(got);
    got.map_err(|error| anyhow!("{error}"))?;
    Ok(String::from_utf8_lossy(&body).into_owned())
}
