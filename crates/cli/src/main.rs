//! `headstart`: give every LLM request a head start.
//!
//! The binary assembles: it reads configuration, injects what the crates need of one another,
//! and reports. It decides nothing.

mod banner;
mod commands;
mod config;
mod input;
mod kv_bytes;
mod logged;
mod model;
mod output;
mod predictor;
mod prompts;
mod report;
mod server;
mod situations;
mod tiers;

use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

/// Give every LLM request a head start: prefix caching, cache-aware routing, replay.
#[derive(Debug, Parser)]
#[command(name = "headstart", version, propagate_version = true)]
#[command(after_help = "Examples:
  headstart demo                                    what there is to see, without any input
  headstart analyze requests.jsonl                  why prompts were computed again
  headstart serve                                   two replicas of the built-in toy, port 8000
  headstart serve --model ./Qwen3-0.6B              a Hugging Face folder, on the CPU
  headstart serve --upstream http://10.0.0.7:8000   a gateway before a running engine
  headstart replay trace.jsonl.zst --capacity 1000,20000
  headstart bench chat conversations.jsonl.zst --strategy random,precise

Exit codes: 0 done, 1 failed, 2 wrong arguments or configuration.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve an OpenAI-compatible API.
    Serve(Box<commands::serve::Serve>),
    /// What `analyze` says of a log that is made up: no input, no network.
    Demo(Box<commands::demo::Demo>),
    /// Why prompts were computed again, what that cost, and what would change it.
    Analyze(Box<commands::analyze::Analyze>),
    /// What a policy would have hit on a recorded trace.
    Replay(commands::replay::Replay),
    /// Fleets strategy by strategy, or one replica policy by policy, in virtual time.
    Simulate(Box<commands::simulate::Simulate>),
    /// How many times device memory a trace is worth, on host and disk.
    Plan(Box<commands::plan::Plan>),
    /// Convert, synthesize and materialize traces.
    #[command(subcommand)]
    Trace(commands::trace::Trace),
    /// Train the classifier that predicts whether a conversation goes on.
    Train(commands::train::Train),
    /// Measure a server.
    #[command(subcommand)]
    Bench(commands::bench::Bench),
    /// What an engine's steps cost, measured or derived: for simulate, bench fleet and emulators.
    Calibrate(Box<commands::calibrate::Calibrate>),
    /// What a running server knows of its replicas' caches.
    #[command(subcommand)]
    Index(commands::index::Index),
    /// What other strategies and sizes would have found (`serve --shadow`).
    Shadow(commands::shadow::Shadow),
    /// Look at a context cache (`serve --context-cache`) and look after it.
    #[command(subcommand)]
    Cache(commands::cache::Cache),
    /// A running server in the terminal: hit rate, losses, replicas, prefixes, requests.
    Top(commands::top::Top),
    /// What a running server's caches have saved: tokens, seconds, money.
    Savings(commands::savings::Savings),
    /// Why a request's prompt was computed again: the nearest earlier prompt, and where they part.
    Why(commands::why::Why),
    /// What in an application's prompts breaks the prefix that they could share; for CI.
    Lint(commands::lint::Lint),
    /// Print shell completions.
    #[command(after_help = "Example:\n  headstart completions bash > headstart.bash")]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

fn main() -> ExitCode {
    let matches = Cli::command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let outcome = match cli.command {
        Command::Serve(serve) => commands::serve::run(*serve),
        Command::Demo(demo) => commands::demo::run(*demo),
        Command::Analyze(analyze) => commands::analyze::run(&analyze),
        Command::Replay(replay) => commands::replay::run(&replay),
        Command::Simulate(simulate) => commands::simulate::run(&simulate, &given(&matches)),
        Command::Plan(plan) => commands::plan::run(&plan),
        Command::Trace(trace) => commands::trace::run(&trace),
        Command::Train(train) => commands::train::run(&train),
        Command::Bench(bench) => commands::bench::run(bench),
        Command::Calibrate(calibrate) => commands::calibrate::run(&calibrate),
        Command::Index(index) => commands::index::run(&index),
        Command::Shadow(shadow) => commands::shadow::run(&shadow),
        Command::Cache(cache) => commands::cache::run(&cache),
        Command::Top(top) => commands::top::run(&top),
        Command::Savings(savings) => commands::savings::run(&savings),
        Command::Why(why) => commands::why::run(&why),
        Command::Lint(lint) => commands::lint::run(&lint),
        Command::Completions { shell } => completions(shell),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", with_causes(&error));
            let is_usage = error.downcast_ref::<config::UsageError>().is_some();
            ExitCode::from(if is_usage { 2 } else { 1 })
        }
    }
}

/// The ids of the options that the subcommand was given; groups of them have ids too, and are none.
fn given(matches: &clap::ArgMatches) -> Vec<&str> {
    let Some((name, matches)) = matches.subcommand() else {
        return Vec::new();
    };
    let command = Cli::command();
    let is_option = |id: &str| {
        let mut options = command.find_subcommand(name).into_iter();
        options.any(|it| it.get_arguments().any(|option| option.get_id() == id))
    };
    let is_given =
        |id: &&str| is_option(id) && matches.value_source(id) == Some(ValueSource::CommandLine);
    matches
        .ids()
        .map(clap::Id::as_str)
        .filter(is_given)
        .collect()
}

fn completions(shell: clap_complete::Shell) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "headstart", &mut script);
    output::line(String::from_utf8_lossy(&script).trim_end())
}

/// The error and its causes, without those that it names itself.
fn with_causes(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
