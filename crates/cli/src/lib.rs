//! `headstart`: give every LLM request a head start.
//!
//! The command line assembles: it reads configuration, injects what the crates need of one
//! another, and reports. It decides nothing. It is a library because `headstart-lab` assembles
//! the same parts.

mod banner;
mod commands;
mod config;
mod engine;
mod exit;
mod exposition;
mod help;
mod input;
mod listen;
mod machine;
mod model;
mod near;
mod parallel;
mod predictor;
mod prompts;
mod server;
mod tiers;

/// Parts of the command line that `headstart-lab` assembles as well.
pub mod parts {
    pub use crate::config::ablations::policy as policy_option;
    pub use crate::config::parsed;
    pub use crate::config::template::template;
    pub use crate::input::{TraceInput, remarks};
    pub use crate::model::{ServableModel, load as load_model};
    pub use crate::parallel::{parallel, threads};
    pub use crate::predictor::read_model;
    pub use crate::tiers::{DISK, UNIT_TOKENS, exactness, tier, unknown_engine};
}

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use headstart_core::shown::visible;

/// Route LLM requests by cached prefix, and explain cache misses.
#[derive(Debug, Parser)]
#[command(name = "headstart", version = env!("HEADSTART_VERSION"), propagate_version = true)]
#[command(after_help = include_str!("headstart.help.txt"))]
struct Cli {
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Serve the OpenAI and Anthropic APIs, or route to engines.
    Serve(Box<commands::serve::Serve>),
    /// Analyze a generated sample log: no input, no network.
    Demo(Box<commands::demo::Demo>),
    /// Explain why prompts of a log were recomputed, and the cost.
    Analyze(Box<commands::analyze::Analyze>),
    /// Compare eviction policies and cache sizes on a trace.
    Replay(commands::replay::ReplayCommand),
    /// Simulate a fleet, host memory, or prediction, in virtual time.
    #[command(subcommand)]
    Simulate(commands::simulate::Simulate),
    /// Size a host-memory or disk KV cache for a trace.
    Plan(Box<commands::plan::PlanCommand>),
    /// Convert and generate traces.
    #[command(subcommand)]
    Trace(commands::trace::TraceCommand),
    /// Train a model that predicts whether a conversation continues.
    Train(commands::train::Train),
    /// Measure a server with conversations, traces or a fleet.
    #[command(subcommand)]
    Bench(commands::bench::BenchCommand),
    /// Calibrate a cost model on an engine, or derive one.
    Calibrate(Box<commands::calibrate::Calibrate>),
    /// Show what a running server knows of its replicas' caches.
    #[command(subcommand)]
    Index(commands::index::IndexCommand),
    /// Show what shadow fleets would have hit (`serve --shadow`).
    Shadow(commands::shadow::ShadowCommand),
    /// Inspect and clean a context cache (`serve --context-cache`).
    #[command(subcommand)]
    Cache(commands::cache::CacheCommand),
    /// Show a running server: hit rate, losses, replicas, requests.
    Top(commands::top::Top),
    /// Show what a running server's caches saved, in time and money.
    Savings(commands::savings::Savings),
    /// Print the options of `vllm serve` for Headstart's tiers.
    VllmArgs(commands::vllm_args::VllmArgs),
    /// Explain why one request's prompt was recomputed.
    Why(commands::why::WhyCommand),
    /// Find what breaks prefix caching in your prompts (for CI).
    Lint(commands::lint::Lint),
    /// Rewrite a log so that prompts share prefixes; measure the gain.
    Fix(commands::fix::Fix),
    /// Compare the hits that a live engine reports with predicted ones.
    Validate(Box<commands::validate::Validate>),
    /// Check whether prefix caching works on an engine.
    Doctor(commands::doctor::Doctor),
    /// Show the configuration, or write a commented headstart.toml.
    #[command(subcommand)]
    Config(commands::config::Config),
    /// Print shell completions.
    #[command(after_help = "Example:\n  headstart completions bash > headstart.bash")]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// The whole command line.
#[must_use]
pub fn command() -> clap::Command {
    // Environment variables are named once per command, in its last lines.
    let hidden = |command: clap::Command| command.mut_args(|arg| arg.hide_env(true));
    let command = help::grouped(Cli::command()).max_term_width(headstart_terminal::COLUMNS);
    command.mut_subcommand("serve", hidden)
}

/// Runs the command line of this process.
pub fn run() -> ExitCode {
    headstart_terminal::colour::start();
    let matches = command().try_get_matches().unwrap_or_else(|error| refuse(&with_variable(error)));
    let mut leaf = &matches;
    while let Some((_, matches)) = leaf.subcommand() {
        leaf = matches;
    }
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| refuse(&error));
    let outcome = match cli.command {
        CliCommand::Serve(serve) => commands::serve::run(*serve, leaf),
        CliCommand::Demo(demo) => commands::demo::run(*demo),
        CliCommand::Analyze(analyze) => commands::analyze::run(&analyze),
        CliCommand::Replay(replay) => commands::replay::run(&replay),
        CliCommand::Simulate(simulate) => commands::simulate::run(&simulate),
        CliCommand::Plan(plan) => commands::plan::run(&plan),
        CliCommand::Trace(trace) => commands::trace::run(&trace),
        CliCommand::Train(train) => commands::train::run(&train),
        CliCommand::Bench(bench) => commands::bench::run(bench),
        CliCommand::Calibrate(calibrate) => commands::calibrate::run(&calibrate),
        CliCommand::Index(index) => commands::index::run(&index),
        CliCommand::Shadow(shadow) => commands::shadow::run(&shadow),
        CliCommand::Cache(cache) => commands::cache::run(&cache),
        CliCommand::Top(top) => commands::top::run(&top),
        CliCommand::Savings(savings) => commands::savings::run(&savings),
        CliCommand::VllmArgs(args) => commands::vllm_args::run(&args),
        CliCommand::Why(why) => commands::why::run(&why),
        CliCommand::Lint(lint) => commands::lint::run(&lint),
        CliCommand::Doctor(doctor) => commands::doctor::run(&doctor),
        CliCommand::Fix(fix) => commands::fix::run(&fix),
        CliCommand::Validate(validate) => commands::validate::run(&validate),
        CliCommand::Config(config) => commands::config::run(config, leaf),
        CliCommand::Completions { shell } => completions(shell),
    };
    ended(outcome)
}

/// Returns the exit code of a command, after an error on standard error.
pub fn ended(outcome: anyhow::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The suggestion needs the causes: the list of known names may be in one of them.
            // Names of files and words of servers are strangers' texts.
            let said = visible(&with_causes(&error));
            let text = format!("error: {}", near::suggested(said));
            headstart_terminal::to_stderr(&(headstart_terminal::for_stderr(&text) + "\n"));
            exit::code(&error)
        }
    }
}

/// Ends with an error of the command line, or with the help that was asked for.
fn refuse(error: &clap::Error) -> ! {
    // Help goes to standard output as it is; a pipe gets lines that are not broken.
    if !error.use_stderr() || !std::io::stderr().is_terminal() {
        error.exit();
    }
    headstart_terminal::to_stderr(&headstart_terminal::for_stderr(
        &error.render().ansi().to_string(),
    ));
    std::process::exit(error.exit_code());
}

/// The same error, where a value comes from an environment variable, with that one's name.
fn with_variable(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(arg)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let (arg, command) = (arg.clone(), Cli::command());
    // Clap names an option with its value name, as in `--port <PORT>`.
    let option = arg.split([' ', '=', '[']).next().unwrap_or_default();
    let line = std::env::args_os().skip(1);
    let line: Vec<String> = line.map(|word| word.to_string_lossy().into_owned()).collect();
    let mut leaf = &command;
    for word in &line {
        // Words that are no command leave the search where it is: they are options or values.
        leaf = leaf.find_subcommand(word).unwrap_or(leaf);
    }
    let is_it = |arg: &&clap::Arg| {
        let long = arg.get_long().map(|long| format!("--{long}"));
        long.as_deref() == Some(option)
    };
    let variable = leaf.get_arguments().find(is_it).and_then(clap::Arg::get_env);
    let is_given = |word: &String| word.split('=').next() == Some(option);
    if let Some(variable) = variable.filter(|name| std::env::var_os(name).is_some())
        // A flag wins over its variable, so with both given the flag has the wrong value.
        && !line.iter().any(is_given)
    {
        let named = format!("{arg} ({})", variable.to_string_lossy());
        error.insert(ContextKind::InvalidArg, ContextValue::String(named));
    }
    error
}

fn completions(shell: clap_complete::Shell) -> anyhow::Result<()> {
    // Generated into memory first: a closed pipe would make the generator panic.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "headstart", &mut script);
    headstart_terminal::line(String::from_utf8_lossy(&script).trim_end())
}

/// The error and its causes, without those that it names itself.
fn with_causes(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        // Some errors repeat their cause in their own text.
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
