//! The source of each setting of a server, for `config show` and for errors.

use std::collections::BTreeMap;
use std::fmt;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command};
use toml::de::DeTable;

use headstart_core::UsageError;

use super::ServeOptions;

/// The source of a setting that is not a default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SettingSource {
    CommandLine,
    /// The environment variable of this name.
    Variable(String),
    File {
        name: String,
        line: usize,
    },
}

impl fmt::Display for SettingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CommandLine => f.write_str("command line"),
            Self::Variable(name) => f.write_str(name),
            Self::File { name, line } => write!(f, "{name}:{line}"),
        }
    }
}

/// The sources of settings, by key as in `headstart.toml`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources(BTreeMap<String, SettingSource>);

impl Sources {
    /// Of those that flags and the environment give.
    pub(crate) fn given(matches: &ArgMatches) -> Self {
        let source = |arg: &Arg| {
            let id = arg.get_id().as_str();
            let source = match matches.value_source(id)? {
                ValueSource::CommandLine => SettingSource::CommandLine,
                ValueSource::EnvVariable => {
                    SettingSource::Variable(arg.get_env()?.to_string_lossy().into_owned())
                }
                // Defaults have no source, and the file's settings are added later.
                _ => return None,
            };
            Some((key(id), source))
        };
        let command = ServeOptions::augment_args(Command::new("serve"));
        Self(command.get_arguments().filter_map(source).collect())
    }

    /// Adds those that only the file called `name` sets.
    pub(super) fn add_file(&mut self, name: &str, text: &str) {
        // The text was parsed before; this second parse keeps the positions of the keys.
        let Ok(document) = DeTable::parse(text) else {
            return;
        };
        let mut sections = document.get_ref().iter();
        let serve = sections.find(|(key, _)| key.get_ref() == "serve");
        let Some(serve) = serve.and_then(|(_, section)| section.get_ref().as_table()) else {
            return;
        };
        for (key, _) in serve.iter() {
            // The span counts bytes of this text, so the slice ends at the beginning of the key.
            let before = text.get(..key.span().start).unwrap_or_default();
            let source = SettingSource::File {
                name: name.to_owned(),
                line: before.matches('\n').count() + 1,
            };
            // Flags and variables win over the file, so an entry that exists stays.
            self.0.entry(key.get_ref().to_string()).or_insert(source);
        }
    }

    pub(crate) fn of(&self, key: &str) -> Option<&SettingSource> {
        self.0.get(key)
    }

    /// The address is `--host` and `--port`, where one of them is given: they replace an address of
    /// the environment or the file as a whole.
    ///
    /// # Errors
    /// When the same command line has `--listen`.
    pub(super) fn check_address(&mut self) -> Result<(), UsageError> {
        let parts = ["host", "port"].map(|name| self.0.remove(name).map(|_| format!("--{name}")));
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if parts.is_empty() {
            return Ok(());
        }
        let listen = self.0.insert("listen".to_owned(), SettingSource::CommandLine);
        // An address of a variable or a file gives way; one of the same command line contradicts.
        match listen {
            Some(SettingSource::CommandLine) => Err(UsageError(format!(
                "--listen and {} both set the address; give --listen HOST:PORT alone",
                parts.join(" and ")
            ))),
            _ => Ok(()),
        }
    }

    /// The same error with where the options that it names are set, if not on the command line.
    pub(crate) fn named(&self, error: anyhow::Error) -> anyhow::Error {
        let text = crate::with_causes(&error);
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
        let mut origins = Vec::new();
        // Messages name options as `--key`, so each word is tried as one.
        for key in text.split(|letter| !is_part(letter)) {
            let key = key.strip_prefix("--").unwrap_or_default();
            let source = self.of(key).filter(|&source| *source != SettingSource::CommandLine);
            let Some(source) = source else { continue };
            let origin = format!("{source} sets --{key}");
            if !origins.contains(&origin) {
                origins.push(origin);
            }
        }
        if origins.is_empty() {
            error
        } else {
            UsageError(format!("{text} ({})", origins.join(", "))).into()
        }
    }
}

/// A setting's name in the file.
pub(super) fn key(id: &str) -> String {
    id.replace('_', "-")
}
