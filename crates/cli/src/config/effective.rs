//! All settings that a server would run with, each with its source: `headstart config show`.
//!
//! Settings that say nothing beside the others are left out, so that what is printed is a
//! configuration that `serve` takes.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Arg, ArgAction, ArgMatches, Args, Command};
use serde_json::json;
use toml::Value;

use headstart_terminal::COLUMNS;

use super::options::heading;
use super::sources::{Sources, key};
use super::{ServeOptions, parse, read};
use crate::exit::usage;

/// Columns in front of a source, where the setting is short.
const SETTING: usize = 44;

/// Settings that follow from the cost model of an emulated engine.
const OF_COST_MODEL: [&str; 4] =
    ["cache-blocks", "max-batched-tokens", "max-sequences", "max-waiting"];

/// A server's settings, resolved, and where each comes from.
pub(crate) struct EffectiveSettings {
    pub(crate) options: ServeOptions,
    pub(crate) sources: Sources,
    /// The file that was read.
    path: Option<PathBuf>,
    /// `[profiles]` and `[tenants]`, as the file has them.
    tables: toml::Table,
}

/// A setting that is in effect.
struct EffectiveSetting {
    key: String,
    /// As in the file, if it can be written so.
    value: Option<Value>,
    /// Words in place of a value.
    words: String,
    source: String,
}

impl EffectiveSettings {
    /// Resolves `given`, of `matches`, over the file at `path` or `headstart.toml`.
    ///
    /// # Errors
    /// When the file cannot be read or used, or options contradict each other.
    pub(crate) fn resolve(
        given: ServeOptions,
        path: Option<&Path>,
        matches: &ArgMatches,
    ) -> Result<Self> {
        let mut sources = Sources::given(matches);
        // The address is checked before the file is read: the contradiction is on the command line.
        sources.check_address()?;
        let found = read(path, matches)?;
        let Some((path, text)) = found else {
            return Ok(Self { options: given, sources, path: None, tables: toml::Table::new() });
        };
        let name = path.display().to_string();
        let wrong = |error| usage(format!("{name}: {error}"));
        let file = parse(&text).map_err(wrong)?;
        // Flags and variables are already in the map, and an entry there is not replaced.
        sources.add_file(&name, &text);
        let mut tables: toml::Table = toml::from_str(&text)?;
        // The section is printed setting by setting, with sources; the other tables as they are.
        tables.remove("serve");
        let options = ServeOptions::over(file, matches).with_context(|| name.clone())?;
        Ok(Self { options, sources, path: Some(path), tables })
    }

    /// As a configuration file: a line per setting, with its source as a comment.
    pub(crate) fn to_toml(&self) -> Result<String> {
        let mut text = "[serve]\n".to_owned();
        for setting in self.effective()? {
            text += &setting.line()?;
        }
        if let (Some(path), false) = (&self.path, self.tables.is_empty()) {
            text += &format!("\n# {}\n", path.display());
            text += &toml::to_string(&without_password(Value::Table(self.tables.clone())))?;
        }
        Ok(text)
    }

    /// The same for programs.
    pub(crate) fn to_json(&self) -> Result<serde_json::Value> {
        let mut serve = serde_json::Map::new();
        for EffectiveSetting { key, value, words, source } in self.effective()? {
            let mut fields = json!({"value": value, "source": source});
            if value.is_none() {
                fields["note"] = words.into();
            }
            serve.insert(key, fields);
        }
        let mut all = json!({"serve": serve});
        for (name, table) in &self.tables {
            all[name] = serde_json::to_value(without_password(table.clone()))?;
        }
        Ok(all)
    }

    fn effective(&self) -> Result<Vec<EffectiveSetting>> {
        let mut given = toml::Table::try_from(&self.options)?;
        let listen = self.options.listen_address();
        // Three settings give one address, and only the resolved one is printed.
        given.insert("listen".to_owned(), listen.to_string().into());
        let command = ServeOptions::augment_args(Command::new("serve"));
        let args = command.get_arguments().filter(|arg| is_setting(arg));
        Ok(args.filter_map(|arg| self.setting(arg, &given)).collect())
    }

    fn setting(&self, arg: &Arg, given: &toml::Table) -> Option<EffectiveSetting> {
        let key = key(arg.get_id().as_str());
        if let Some(source) = self.sources.of(&key) {
            let value = given.get(&key).cloned().map(without_password);
            return Some(EffectiveSetting {
                key,
                value,
                words: "set, not shown".to_owned(),
                source: source.to_string(),
            });
        }
        if !self.is_effective(&key, arg.get_help_heading().unwrap_or_default()) {
            return None;
        }
        let is_emulated =
            self.options.executor.as_deref().is_some_and(|executor| executor != "cpu");
        // The cost model sets these, so the defaults of the command line would be wrong here.
        let (value, words) = if is_emulated && OF_COST_MODEL.contains(&key.as_str()) {
            (None, "as the cost model says".to_owned())
        } else {
            default(arg)
        };
        Some(EffectiveSetting { key, value, words, source: "default".to_owned() })
    }

    /// Whether a setting says something beside those that are given.
    fn is_effective(&self, key: &str, of: &str) -> bool {
        // A setting without effect would make `serve` refuse the printed configuration.
        let options = &self.options;
        let has_engines = !options.upstream.is_empty();
        match key {
            "upstream" | "shadow" => true,
            "context-cache-gib"
            | "context-cache-hours"
            | "context-cache-tenant-gib"
            | "context-cache-dtype"
            | "importance"
            | "host-cache-gib" => !has_engines && options.context_cache.is_some(),
            "encoder" | "prediction-horizon" => {
                options.predictor.is_some() || options.prediction_log.is_some()
            }
            "cost-model" => has_engines,
            _ => match of {
                heading::UP => has_engines,
                heading::ENGINE | heading::CACHE | heading::CONTEXT | heading::PREDICT => {
                    !has_engines
                }
                _ => true,
            },
        }
    }
}

impl EffectiveSetting {
    fn line(&self) -> Result<String> {
        let (key, source) = (&self.key, &self.source);
        let setting = match &self.value {
            Some(value) => {
                toml::to_string(&toml::Table::from_iter([(key.clone(), value.clone())]))?
            }
            None => format!("# {key}: {}", self.words),
        };
        let setting = setting.trim_end();
        let line = format!("{setting:<SETTING$}  # {source}\n");
        // A long value would push its source out of the line, so the source comes first.
        Ok(if line.trim_end().chars().count() <= COLUMNS {
            line
        } else {
            format!("# {source}\n{setting}\n")
        })
    }
}

/// Whether a file has the option: host and port are flags, and a file has `listen` for both.
pub(super) fn is_setting(arg: &Arg) -> bool {
    !matches!(arg.get_id().as_str(), "host" | "port")
}

/// The help of an option, as a whole.
pub(super) fn help(arg: &Arg) -> String {
    let help = arg.get_long_help().or(arg.get_help());
    help.map(ToString::to_string).unwrap_or_default()
}

/// The default that the help of an option names.
pub(super) fn documented_default(arg: &Arg) -> Option<String> {
    let help = help(arg);
    let (default, _) = help.split_once("[default: ")?.1.split_once(']')?;
    Some(default.to_owned())
}

/// The name of an option's value in its help.
pub(super) fn value_name(arg: &Arg) -> &str {
    arg.get_value_names().and_then(|names| names.first()).map_or("", |name| name.as_str())
}

/// The default of a setting: as in the file, or in words.
fn default(arg: &Arg) -> (Option<Value>, String) {
    // A default in clap would hide the value of the file, so only the help text names it.
    let words = documented_default(arg).unwrap_or_else(|| "not set".to_owned());
    let value = match (arg.get_action(), value_name(arg)) {
        (ArgAction::SetTrue, _) => Some(false.into()),
        (ArgAction::Append, _) => Some(Value::Array(Vec::new())),
        (_, "N" | "MIB" | "PORT" | "NUMBER" | "SECONDS") => {
            words.parse::<i64>().ok().map(Value::Integer)
        }
        (_, "GIB" | "HOURS") => words.parse().ok().map(Value::Float),
        // Words such as "last part of --model" describe a default and are no value for a file.
        _ if words.contains(' ') || words == "none" => None,
        _ => Some(words.clone().into()),
    };
    (value, words)
}

/// The same without passwords in the addresses of its texts.
fn without_password(value: Value) -> Value {
    match value {
        Value::String(text) => hidden(&text).into(),
        Value::Array(values) => Value::Array(values.into_iter().map(without_password).collect()),
        Value::Table(table) => {
            let table = table.into_iter();
            let table = table.map(|(key, value)| (key, without_password(value)));
            Value::Table(table.collect())
        }
        other => other,
    }
}

/// Addresses, of which one text may have several, with `…` for user and password.
fn hidden(text: &str) -> String {
    let mut parts = text.split("://");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        shown += "://";
        // The last `@` ends the user's part: a password may contain others.
        match part.rsplit_once('@') {
            Some((_, host)) => shown += &format!("…@{host}"),
            None => shown += part,
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches;

    use super::*;

    fn settings(file: &str, args: &[&str]) -> Result<EffectiveSettings> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("f.toml");
        std::fs::write(&path, file).expect("writes");
        let command = ServeOptions::augment_args(Command::new("serve"));
        let command = command.arg(clap::arg!(--config <FILE>));
        let matches = command.try_get_matches_from([&["serve"], args].concat())?;
        let options = ServeOptions::from_arg_matches(&matches)?;
        EffectiveSettings::resolve(options, Some(&path), &matches)
    }

    fn shown(file: &str, args: &[&str]) -> String {
        let text = settings(file, args).and_then(|settings| settings.to_toml());
        text.expect("valid").replace("  ", " ").replace("  ", " ")
    }

    fn line(text: &str, key: &str) -> String {
        let start = format!("{key} = ");
        let comment = format!("# {key}: ");
        let is_it = |line: &&str| line.starts_with(&start) || line.starts_with(&comment);
        let line = text.lines().find(is_it).unwrap_or_default();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_setting_is_shown_with_its_source() {
        let file = "[serve]\nstrategy = \"load\"\nreplicas = 3\n[tenants.acme]\n\
            context-cache-gib = 2.0\n";
        let text = shown(file, &["--replicas", "4", "--index-secret", "77"]);
        assert_eq!(line(&text, "replicas"), "replicas = 4 # command line");
        assert!(
            line(&text, "strategy").ends_with("f.toml:2") || text.contains("f.toml:2\nstrategy")
        );
        assert_eq!(line(&text, "policy"), "policy = \"hazard\" # default");
        assert_eq!(line(&text, "listen"), "listen = \"127.0.0.1:8000\" # default");
        assert_eq!(line(&text, "api-key-file"), "# api-key-file: not set # default");
        let secret = "# index-secret: set, not shown # command line";
        assert_eq!(line(&text, "index-secret"), secret);
        assert!(!text.contains("77") && text.contains("[tenants.acme]"), "{text}");
        let text = shown("", &["--shared-index", "redis://me:secret@h:1"]);
        assert!(!text.contains("secret@") && text.contains("redis://…@h:1"), "{text}");
        let engine = "http://me:secret@h:1,kv=tcp://you:pass,key7@h:2";
        let text = shown("", &["--upstream", engine]);
        let expected = "http://…@h:1,kv=tcp://…@h:2";
        assert!(text.contains(expected) && !text.contains("key7"), "{text}");
    }

    /// The output is a file that the server accepts, with the same settings.
    #[test]
    fn what_is_shown_can_be_used() {
        for args in [
            &[][..],
            &["--upstream", "http://h:1", "--strategy", "cost"],
            &["--replicas", "1", "--policy", "sieve"],
        ] {
            let first = settings("", args).expect("valid");
            let text = first.to_toml().expect("valid");
            let second = settings(&text, &[]).expect(&text);
            let config = crate::commands::serve::config(&second.options);
            assert!(config.is_ok(), "{:?}\n{text}", config.err());
            let values = |settings: &EffectiveSettings| {
                let all = settings.effective().expect("valid");
                let number = |value| match value {
                    Some(Value::Integer(number)) => Some(Value::Float(number as f64)),
                    other => other,
                };
                let all = all.into_iter();
                all.map(|setting| (setting.key, number(setting.value))).collect::<Vec<_>>()
            };
            assert_eq!(values(&first), values(&second));
        }
    }

    #[test]
    fn host_and_port_replace_an_address_as_a_whole() {
        let file = "[serve]\nlisten = \"0.0.0.0:9000\"\n";
        let address = |args: &[&str]| {
            let settings = settings(file, args);
            settings.map(|settings| settings.options.listen_address().to_string())
        };
        assert_eq!(address(&[]).expect("valid"), "0.0.0.0:9000");
        assert_eq!(address(&["--port", "1"]).expect("valid"), "127.0.0.1:1");
        assert_eq!(address(&["--host", "::1"]).expect("valid"), "[::1]:8000");
        assert_eq!(address(&["--listen", "1"]).expect("valid"), "127.0.0.1:1");
        let both = address(&["--listen", "1", "--port", "2"]).expect_err("both");
        let said = both.to_string();
        assert!(said.contains("--listen and --port both set"), "{said}");
    }

    #[test]
    fn errors_name_the_file_that_sets_an_option() {
        let settings = settings("[serve]\ninsight = \"onn\"\n", &[]).expect("reads");
        let error = settings.options.insight().expect_err("unknown");
        let said = settings.sources.named(error).to_string();
        assert!(said.contains("f.toml:2 sets --insight)"), "{said}");
    }
}
