//! Flags, environment and `headstart.toml`, resolved once: what is given later in this list wins.
//!
//! 1. defaults  2. `headstart.toml` (or `--config FILE`)  3. `HEADSTART_…`  4. flags

pub(crate) mod ablations;
pub(crate) mod cost_model;
mod edge;
mod effective;
pub(crate) mod importance;
mod labels;
mod options;
pub(crate) mod prices;
mod profiles;
mod shadow;
mod sources;
pub(crate) mod template;
pub(crate) mod tenants;
pub(crate) mod toml_error;
mod upstreams;
pub(crate) mod variables;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::ArgMatches;
use clap::parser::ValueSource;
use headstart_analysis::kv_bytes::{KvBytes, KvDtype};
use headstart_core::EngineModel;
use headstart_insight::prices::PriceTable;
use headstart_router::Profile;
use headstart_server::UpstreamConfig;
use headstart_server::shadow::ShadowConfig;
use serde::Deserialize;

use self::cost_model::ReplicaCostModel;
pub(crate) use self::effective::EffectiveSettings;
use self::options::IndexSecret;
pub(crate) use self::options::ServeOptions;
use self::profiles::ProfileTable;
use self::tenants::TenantTable;
use crate::exit::usage;
use crate::listen::ListenAddress;

/// Default path of the configuration file.
const DEFAULT_FILE: &str = "headstart.toml";

/// A configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ConfigFile {
    serve: ServeOptions,
    profiles: BTreeMap<String, ProfileTable>,
    tenants: BTreeMap<String, TenantTable>,
}

impl ServeOptions {
    /// Returns the engine to emulate, if any.
    ///
    /// # Errors
    /// When the executor is unknown, or the file is not a cost model.
    pub(crate) fn emulated(&self) -> Result<Option<ReplicaCostModel>> {
        // A program that builds the engine in memory has no file to name.
        if self.emulated.is_some() {
            return Ok(self.emulated);
        }
        match self.executor.as_deref() {
            None | Some("cpu") => Ok(None),
            Some(text) => match text.strip_prefix("cost-model=") {
                Some(file) => cost_model::read(Path::new(file)).map(Some),
                None => {
                    bail!(usage(format!("--executor {text}: expected cpu or cost-model=FILE")))
                }
            },
        }
    }

    /// Reads the upstreams' engine model, if a file is given.
    ///
    /// # Errors
    /// When the file is no cost model.
    pub(crate) fn engine_model(&self) -> Result<Option<EngineModel>> {
        let read = |file: &PathBuf| Ok(cost_model::read(file)?.engine);
        self.cost_model.as_ref().map(read).transpose()
    }

    /// Returns the address to listen on: `--host` and `--port`, else `--listen`.
    pub(crate) fn listen_address(&self) -> SocketAddr {
        // The parts of the command line replace the address of the file as a whole.
        let named = ListenAddress::of(self.host, self.port);
        let ListenAddress(address) = named.or(self.listen).unwrap_or_default();
        address
    }

    /// The secret that the index's keys are made with.
    pub(crate) fn index_secret(&self) -> Result<Option<u64>> {
        // The secret must not reach a terminal or a log, so clap parses it without an error of its
        // own.
        let number = |secret: IndexSecret| {
            secret.0.context(
                "--index-secret (HEADSTART_INDEX_SECRET) is no whole number from 0 to 2^64 - 1; \
                 what was given is not repeated here",
            )
        };
        self.index_secret.map(number).transpose()
    }

    /// Whether requests are explained.
    ///
    /// # Errors
    /// When it is neither on nor off.
    pub(crate) fn insight(&self) -> Result<bool> {
        match self.insight.as_deref() {
            None | Some("on") => Ok(true),
            Some("off") => Ok(false),
            Some(other) => {
                bail!(usage(format!("--insight {other}: known are on, off")))
            }
        }
    }

    /// Reads the price table, if one is given.
    ///
    /// # Errors
    /// When the table cannot be read.
    pub(crate) fn prices(&self) -> Result<Option<PriceTable>> {
        self.price_table.as_deref().map(prices::read).transpose()
    }

    /// Parses the settings of shadow mode, if it is on.
    pub(crate) fn shadow(&self) -> Result<Option<ShadowConfig>> {
        self.shadow.as_deref().map(shadow::parse).transpose()
    }

    /// Finds the profile of the routing strategy.
    pub(crate) fn profile(&self) -> Result<Profile> {
        let name = self.strategy.as_deref().unwrap_or("precise");
        let found = Profile::find(name, &self.profiles);
        found.map_err(|error| usage(format!("--strategy: {error}")))
    }

    /// The key that clients must send.
    pub(crate) fn api_key(&self) -> Result<Option<String>> {
        let Some(path) = &self.api_key_file else {
            return Ok(None);
        };
        first_line(path).map(Some)
    }

    /// The upstreams named.
    pub(crate) fn upstreams(&self) -> Result<Vec<UpstreamConfig>> {
        upstreams::parse(&self.upstream)
    }
}

/// The key in a file: its first line.
pub(crate) fn first_line(path: &Path) -> Result<String> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    // Editors end a file with a line break, which is no part of the key.
    let key = text.lines().next().unwrap_or_default().trim();
    ensure!(!key.is_empty(), usage(format!("{}: the first line is empty", path.display())));
    Ok(key.to_owned())
}

/// Parses an option's text; what is wrong becomes a usage error with the option's name.
pub fn parsed<T>(text: &str, option: &str) -> Result<T>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|error| usage(format!("{option}: {error}")))
}

/// Size of a token's keys and values in the model at `model`, if one is named, of `--kv-dtype`.
pub(crate) fn kv_bytes(model: Option<&Path>, dtype: Option<&str>) -> Result<Option<KvBytes>> {
    let dtype = dtype.map(|name| parsed::<KvDtype>(name, "--kv-dtype")).transpose()?;
    Ok(model.map(|path| KvBytes::of_model(path, dtype)).transpose()?)
}

/// The configuration file, if there is one, and its text.
fn read(path: Option<&Path>, matches: &ArgMatches) -> Result<Option<(PathBuf, String)>> {
    let path = match path {
        Some(path) => path,
        // A missing default file is no error; a missing `--config FILE` is one, at the read below.
        None if Path::new(DEFAULT_FILE).exists() => Path::new(DEFAULT_FILE),
        None => return Ok(None),
    };
    // The error names the source, because the variable may be set without the user's knowledge.
    let by = match matches.value_source("config") {
        Some(ValueSource::EnvVariable) => "HEADSTART_CONFIG",
        Some(_) => "--config",
        None => DEFAULT_FILE,
    };
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("{by}: cannot read {}", path.display()))?;
    Ok(Some((path.to_owned(), text)))
}

/// The settings in a configuration's text.
///
/// # Errors
/// What is wrong with it, and where.
pub(crate) fn parse(text: &str) -> Result<ConfigFile, String> {
    let hint = "`headstart config init -o -` prints all keys";
    toml::from_str(text).map_err(|error| toml_error::explained(text, &error, hint))
}

#[cfg(test)]
mod tests {
    use clap::Args;

    use super::*;

    #[test]
    fn flags_win_over_the_file() {
        let file = parse("[serve]\nreplicas = 3\nstrategy = \"load\"\n").expect("reads");
        let command = ServeOptions::augment_args(clap::Command::new("serve"));
        let flags = command.get_matches_from(["serve", "--replicas", "1"]);
        let options = ServeOptions::over(file, &flags).expect("valid");
        assert_eq!((options.replicas, options.strategy.as_deref()), (Some(1), Some("load")));
    }
}
