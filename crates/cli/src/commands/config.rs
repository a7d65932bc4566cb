//! `headstart config`: the settings of `serve`, as a file and as they are in effect.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{ArgMatches, Args, Subcommand};

use headstart_terminal as output;

use super::serve;
use crate::config::template::template;
use crate::config::{EffectiveSettings, ServeOptions, variables};

/// Default path of the written file.
const FILE: &str = "headstart.toml";

#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// Write a headstart.toml with a comment on each setting.
    #[command(after_help = "Examples:\n  headstart config init\n  headstart config init -o -")]
    Init(Init),
    /// Print the settings in effect, with the source of each.
    ///
    /// The output is TOML. The comment behind a setting is its source: default, file and line,
    /// environment variable or command line. Secrets are not shown. The command refuses what
    /// `serve` refuses, but opens no model, context cache or predictor.
    #[command(after_help = "Examples:
  headstart config show
  headstart config show --replicas 4 --json")]
    Show(Box<Show>),
}

#[derive(Args, Debug)]
pub(crate) struct Init {
    /// File to write; `-` prints it
    #[arg(short, long, value_name = "FILE", default_value = FILE)]
    output: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct Show {
    #[command(flatten)]
    options: ServeOptions,
    /// Configuration file [default: headstart.toml, if it exists]
    #[arg(long, env = "HEADSTART_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(config: Config, matches: &ArgMatches) -> Result<()> {
    match config {
        Config::Init(init) => write(&init),
        Config::Show(show) => {
            variables::warn();
            let settings =
                EffectiveSettings::resolve(show.options, show.config.as_deref(), matches)?;
            // The command must refuse what the server refuses, or the printed file could not be
            // used.
            serve::check(&settings.options).map_err(|error| settings.sources.named(error))?;
            if show.json {
                output::line(&settings.to_json()?.to_string())
            } else {
                output::line(settings.to_toml()?.trim_end())
            }
        }
    }
}

fn write(init: &Init) -> Result<()> {
    if init.output.as_os_str() == "-" {
        return output::line(template().trim_end());
    }
    let shown = init.output.display();
    // `create_new` leaves no moment in which another process's file could be overwritten.
    let file = std::fs::File::create_new(&init.output);
    let mut file = match file {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            bail!("{shown} exists; name another file with --output, or remove it")
        }
        file => file.with_context(|| format!("cannot create {shown}"))?,
    };
    file.write_all(template().as_bytes()).with_context(|| format!("cannot write {shown}"))?;
    output::line(&format!("wrote {shown}; `headstart serve` reads it in this folder"))
}
