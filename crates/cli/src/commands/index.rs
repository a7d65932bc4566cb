//! `headstart index`: what a running server knows of its replicas' caches.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use headstart_loadgen::fetch;
use serde_json::Value;

use crate::commands::serve::runtime;
use crate::config::first_line;
use crate::output;

/// What a running server knows of its replicas' caches.
#[derive(Debug, Subcommand)]
pub(crate) enum Index {
    /// Sizes, counters, and the state of every replica's event stream.
    #[command(after_help = "Examples:
  headstart index show
  headstart index show --url http://10.0.0.1:8000 --json | jq .replicas")]
    Show {
        #[command(flatten)]
        server: Server,
        /// Print the server's JSON as it came
        #[arg(long)]
        json: bool,
    },
    /// Every block that it believes a replica to hold, as JSON lines.
    #[command(after_help = "Examples:
  headstart index dump | head
  headstart index dump --replica 3 -o replica-3.jsonl

A key names a block and all before it; equal keys on two replicas are equal blocks. Keys are
hashes: they tell nothing of a prompt. For a reader that is much slower than the server the
dump breaks off with an error; ask for one replica, or for a limit.")]
    Dump {
        #[command(flatten)]
        server: Server,
        /// Of this replica only
        #[arg(long, value_name = "ID")]
        replica: Option<u32>,
        /// At most so many
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
        /// Where to write; `-` is standard output
        #[arg(short, long, alias = "out", value_name = "FILE", default_value = "-")]
        output: PathBuf,
    },
}

/// Which server to ask.
#[derive(Args, Debug)]
pub(crate) struct Server {
    /// Its address
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8000")]
    url: String,
    /// File whose first line is its API key
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
}

impl Server {
    fn get(&self, path: &str, write: impl FnMut(&[u8]) -> io::Result<()>) -> Result<()> {
        let key = self.api_key_file.as_deref().map(first_line).transpose()?;
        let fetched = fetch(&self.url, path, key.as_deref(), write);
        Ok(runtime()?.block_on(fetched)?)
    }
}

/// Asks the server.
pub(crate) fn run(index: &Index) -> Result<()> {
    match index {
        Index::Show { server, json } => show(server, *json),
        Index::Dump {
            server,
            replica,
            limit,
            output,
        } => {
            let limits = [
                ("replica", replica.map(u64::from)),
                ("limit", limit.map(|n| n as u64)),
            ];
            let limits = limits
                .iter()
                .filter_map(|(name, n)| n.map(|n| format!("{name}={n}")));
            let query: Vec<String> = limits.collect();
            dump(
                server,
                &format!("/debug/index/entries?{}", query.join("&")),
                output,
            )
        }
    }
}

fn dump(server: &Server, path: &str, output: &std::path::Path) -> Result<()> {
    if output.as_os_str() == "-" {
        let mut stdout = io::stdout().lock();
        return match server.get(path, |bytes| stdout.write_all(bytes)) {
            // Whoever reads has enough.
            Err(error) if is_closed_pipe(&error) => Ok(()),
            done => done,
        };
    }
    output::files(&[("--output", output)], &[])?;
    let file = std::fs::File::create(output)
        .with_context(|| format!("cannot write {}", output.display()))?;
    let mut file = BufWriter::new(file);
    server.get(path, |bytes| file.write_all(bytes))?;
    file.flush()
        .with_context(|| format!("cannot write {}", output.display()))
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    match error.downcast_ref() {
        Some(headstart_loadgen::LoadError::Output(error)) => {
            error.kind() == io::ErrorKind::BrokenPipe
        }
        _ => false,
    }
}

fn show(server: &Server, json: bool) -> Result<()> {
    let mut body = Vec::new();
    server.get("/debug/index", |bytes| {
        body.extend_from_slice(bytes);
        Ok(())
    })?;
    if json {
        return output::line(&String::from_utf8_lossy(&body));
    }
    let index: Value = serde_json::from_slice(&body)
        .context("this is no answer of a Headstart server; is another one running there?")?;
    output::line(&table(&index))
}

/// For people: a line of totals, then a line per replica.
fn table(index: &Value) -> String {
    let count = |name: &str| index[name].as_u64().unwrap_or(0);
    let mib = count("bytes") as f64 / f64::from(1 << 20);
    let mut text = format!(
        "{} entries ({} doubtful), {} prompts assumed, {mib:.1} MiB\n\
         {} of {} prompt tokens were predicted to be cached\n\
         {} blocks wait, {} given up; {} removals of unknown blocks, {} evicted\n\n\
         | replica | health | stream | blocks by tier | doubtful | lost batches | \
         last event, s ago |\n\
         |--:|---|---|---|--:|--:|--:|",
        count("entries"),
        count("doubtful"),
        count("assumed_prompts"),
        count("predicted_cached_tokens"),
        count("prompt_tokens"),
        count("held_blocks"),
        count("orphans"),
        count("unknown_removals"),
        count("evicted"),
    );
    for replica in index["replicas"].as_array().into_iter().flatten() {
        text += &format!("\n{}", row(replica));
    }
    text
}

fn row(replica: &Value) -> String {
    let health = match replica["healthy"].as_bool() {
        Some(true) => "up",
        _ => "down",
    };
    let tiers = replica["blocks"].as_object().into_iter().flatten();
    let tiers: Vec<String> = tiers
        .map(|(tier, blocks)| format!("{tier} {blocks}"))
        .collect();
    let stream = &replica["stream"];
    let age = stream["last_event_age_s"]
        .as_f64()
        .map_or(String::new(), |age| format!("{age:.3}"));
    let rank = replica["rank"].as_u64();
    let rank = rank.map_or(String::new(), |rank| format!(" (rank {rank})"));
    format!(
        "| {}{rank} | {health} | {} | {} | {} | {} | {age} |",
        replica["replica"],
        stream["state"].as_str().unwrap_or("none"),
        if tiers.is_empty() {
            "none".to_owned()
        } else {
            tiers.join(", ")
        },
        replica["doubtful_blocks"],
        stream["lost_batches"].as_u64().unwrap_or(0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_told_at_a_glance() {
        let index = serde_json::json!({
            "entries": 12, "doubtful": 2, "assumed_prompts": 1, "bytes": 3 << 20,
            "predicted_cached_tokens": 64, "prompt_tokens": 100,
            "replicas": [
                {"replica": 0, "healthy": true, "blocks": {"device": 10, "host": 2},
                 "doubtful_blocks": 2,
                 "stream": {"state": "complete", "lost_batches": 3, "last_event_age_s": 0.0021}},
                {"replica": 1, "rank": 3, "healthy": false, "blocks": {}, "doubtful_blocks": 0,
                 "stream": null},
            ],
        });
        let text = table(&index);
        let first = "12 entries (2 doubtful), 1 prompts assumed, 3.0 MiB\n";
        assert!(text.starts_with(first), "{text}");
        let rows: Vec<&str> = text.lines().rev().take(2).collect();
        assert_eq!(
            rows[1],
            "| 0 | up | complete | device 10, host 2 | 2 | 3 | 0.002 |"
        );
        assert_eq!(rows[0], "| 1 (rank 3) | down | none | none | 0 | 0 |  |");
    }
}
