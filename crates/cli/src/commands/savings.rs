//! `headstart savings`: what a running server's caches have saved, by its metrics.
//!
//! Nothing that a server says reaches the terminal with control characters in it.

mod ledger;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;

use headstart_terminal as output;

use crate::config::prices;
use crate::server::ServerOptions;
use ledger::ServerLedger;

/// Longest metrics that are read: some thousand replicas, many times.
const METRICS_BYTES_MAX: usize = 64 << 20;

/// Show what a running server's caches saved, in time and money.
#[derive(Args, Debug)]
#[command(after_help = include_str!("savings.help.txt"))]
pub(crate) struct Savings {
    #[command(flatten)]
    server: ServerOptions,
    /// Saved output of /metrics, in place of a server
    #[arg(long, value_name = "FILE")]
    metrics: Option<PathBuf>,
    /// Prices of tokens: a TOML file, or `builtin`
    ///
    /// `builtin` has relative prices.
    #[arg(long, value_name = "FILE|builtin")]
    price_table: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Reads the metrics and tells.
pub(crate) fn run(savings: &Savings) -> Result<()> {
    // A wrong table fails before the server is asked.
    let prices = savings.price_table.as_deref().map(prices::read);
    let prices = prices.transpose()?;
    let (name, text) = match &savings.metrics {
        Some(path) => {
            let name = path.display().to_string();
            let text = std::fs::read_to_string(path);
            (name.clone(), text.with_context(|| format!("cannot read {name}"))?)
        }
        None => (savings.server.url.clone(), fetched(&savings.server)?),
    };
    // Any server with Prometheus metrics answers here, so the names decide.
    let Some(ledger) = ServerLedger::read(&text) else {
        bail!(
            "{name} has no metrics of a Headstart server; name a server's address, or a file of \
               its /metrics"
        );
    };
    output::line(&if savings.json {
        ledger.json(prices.as_ref()).to_string()
    } else {
        let mut text = ledger.text(prices.as_ref());
        if let Some(meaning) = prices::explained(savings.price_table.as_deref()) {
            text += &format!("\n{meaning}");
        }
        output::fitted(&text)
    })
}

fn fetched(server: &ServerOptions) -> Result<String> {
    let body = server.document(&server.asked("/metrics"), METRICS_BYTES_MAX)?;
    Ok(String::from_utf8_lossy(&body).into_owned())
}
