//! `headstart config`: the settings of `serve`, as a file and as they are in effect.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};

use crate::config::ServeOptions;
use crate::output;
use crate::reference::template;

/// Default path of the written file.
const FILE: &str = "headstart.toml";

#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// Write a headstart.toml with a comment on each setting.
    #[command(after_help = "Examples:\n  headstart config init\n  headstart config init -o -")]
    Init(Init),
    /// Print the settings in effect: flags, environment, headstart.toml.
    #[command(after_help = "Example:\n  headstart config show --replicas 4")]
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
}

pub(crate) fn run(config: Config) -> Result<()> {
    match config {
        Config::Init(init) => write(&init),
        Config::Show(show) => {
            let options = show.options.with_file(show.config.as_deref())?;
            let settings = options.in_effect()?;
            match settings.is_empty() {
                true => output::line("# all settings have their defaults"),
                false => output::line(settings.trim_end()),
            }
        }
    }
}

fn write(init: &Init) -> Result<()> {
    if init.output.as_os_str() == "-" {
        return output::line(template().trim_end());
    }
    let shown = init.output.display();
    let file = std::fs::File::create_new(&init.output);
    let mut file = match file {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            bail!("{shown} exists; name another file with --output, or remove it")
        }
        file => file.with_context(|| format!("cannot create {shown}"))?,
    };
    file.write_all(template().as_bytes())
        .with_context(|| format!("cannot write {shown}"))?;
    output::line(&format!(
        "wrote {shown}; `headstart serve` reads it in this folder"
    ))
}
