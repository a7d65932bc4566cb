//! `headstart vllm-args`: the options that make vLLM use Headstart's tiers.

use std::borrow::Cow;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use headstart_cache::policy::{Setting, by_name};
use headstart_terminal as output;
use serde_json::{Value, json};

const GIB: f64 = (1_u64 << 30) as f64;

/// Distance of the replay endpoint's port from the events' port.
const REPLAY: u16 = 10;

/// Print the options of `vllm serve` for Headstart's tiers.
#[derive(Args, Debug)]
#[command(after_help = include_str!("vllm_args.help.txt"))]
pub(crate) struct VllmArgs {
    /// The model, as for `vllm serve`
    #[arg(default_value = "MODEL")]
    model: String,
    /// Host memory for KV, GiB, over all ranks of an engine
    #[arg(long, value_name = "GIB")]
    host_gib: f64,
    /// Eviction policy of host memory and disk
    #[arg(long, value_name = "NAME", default_value = "hazard")]
    policy: String,
    /// Folder for KV, with one folder for each engine in it, or the URL of object storage
    #[arg(long, value_name = "PLACE", requires = "disk_gib")]
    disk: Option<PathBuf>,
    /// Budget of each engine on the disk, GiB
    #[arg(long, value_name = "GIB", requires = "disk")]
    disk_gib: Option<f64>,
    /// A text for the weights, where MODEL is no folder: the commit on the hub
    #[arg(long, value_name = "TEXT", requires = "disk")]
    revision: Option<String>,
    /// Port of the KV events, for a gateway; the replay port is 10 above it
    #[arg(long, value_name = "PORT")]
    kv_events_port: Option<u16>,
    /// Print JSON: the values of the options
    #[arg(long)]
    json: bool,
}

/// Prints the options.
pub(crate) fn run(args: &VllmArgs) -> Result<()> {
    let mut options = vec![("--kv-transfer-config", args.transfer()?)];
    if let Some(port) = args.kv_events_port {
        options.push(("--kv-events-config", events(port)?));
    }
    if args.json {
        let values = options.into_iter().map(|(name, value)| (name.to_owned(), value));
        return output::line(&Value::Object(values.collect()).to_string());
    }
    let model = quoted(&args.model);
    let mut lines = vec![format!("vllm serve {model} --enable-prompt-tokens-details")];
    lines.extend(options.iter().map(|(name, value)| format!("  {name} '{value}'")));
    let mut text = lines.join(" \\\n");
    if let Some(port) = args.kv_events_port {
        let replay = port + REPLAY;
        text += &format!(
            "\n\n# The gateway in front of it:\nheadstart serve --strategy cost \\\n  --upstream \
             http://HOST:8000,kv=tcp://HOST:{port},replay=tcp://HOST:{replay},tokenizer={model}"
        );
    }
    if args.disk.is_some() && args.revision.is_none() {
        text += &format!(
            "\n\n# If {model} is not a folder of weights, add --revision with its commit on the \
             hub. Blocks belong\n# to weights, and vLLM does not start without that name."
        );
    }
    output::line(&text)
}

impl VllmArgs {
    /// The value of vLLM's `--kv-transfer-config`.
    fn transfer(&self) -> Result<Value> {
        let setting = Setting { capacity: 1, block_tokens: 16 };
        by_name(&self.policy, setting).context("--policy")?;
        let mut extra = json!({
            "spec_name": "HeadstartOffload",
            "spec_module_path": "headstart.vllm.offload",
            "cpu_bytes_to_use": bytes("--host-gib", self.host_gib)?,
            "eviction_policy": format!("headstart-{}", self.policy),
            "cache_policy_module_path": "headstart.vllm.policy",
            "self_describing_kv_events": self.kv_events_port.is_some(),
        });
        if let (Some(folder), Some(gib)) = (&self.disk, self.disk_gib) {
            bytes("--disk-gib", gib)?;
            let place = folder.to_str().context("--disk: the name is not UTF-8")?;
            let option = if place.contains("://") { "url" } else { "folder" };
            let mut tier = json!({
                "type": "HeadstartTier",
                "module_path": "headstart.vllm.tier",
                option: place,
                "budget_gib": gib,
                "policy": self.policy,
            });
            if let Some(revision) = &self.revision {
                tier["revision"] = json!(revision);
            }
            extra["secondary_tiers"] = json!([tier]);
        }
        let transfer = json!({
            "kv_connector": "OffloadingConnector",
            "kv_role": "kv_both",
            // A block that cannot be loaded is computed, and no request fails.
            "kv_load_failure_policy": "recompute",
            "kv_connector_extra_config": extra,
        });
        // The shell would end the argument there.
        if transfer.to_string().contains('\'') && !self.json {
            bail!("a quote in a name: use --json, and quote the value yourself");
        }
        Ok(transfer)
    }
}

fn bytes(option: &str, gib: f64) -> Result<u64> {
    // A value that is not finite is no size either.
    if !(gib * GIB >= 1.0 && gib * GIB <= u64::MAX as f64) {
        bail!("{option} {gib}: a size above 0, GiB");
    }
    Ok((gib * GIB) as u64)
}

/// A word of a POSIX shell.
fn quoted(word: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"@%+=:,./_-".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', r"'\''")).into()
}

/// The value of vLLM's `--kv-events-config`.
fn events(port: u16) -> Result<Value> {
    let replay = port.checked_add(REPLAY).filter(|_| port > 0);
    let replay = replay.with_context(|| format!("--kv-events-port {port}: from 1 to 65525"))?;
    Ok(json!({
        "enable_kv_cache_events": true,
        "publisher": "zmq",
        "endpoint": format!("tcp://*:{port}"),
        "replay_endpoint": format!("tcp://*:{replay}"),
    }))
}
