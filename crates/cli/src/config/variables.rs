//! Environment variables that look like settings and are none.

use clap::Command;

use headstart_terminal as output;

use crate::near;

/// Begins the names of settings.
const PREFIX: &str = "HEADSTART_";

/// Variables that no option reads.
const OTHERS: [&str; 3] = ["LOG", "LOG_FORMAT", "PROGRESS_AFTER_MS"];

/// Variables that users expect beside `HEADSTART_LISTEN`, which sets both.
const OF_LISTEN: [&str; 2] = ["HOST", "PORT"];

/// Kubernetes describes a service called `headstart` in such variables, and in `HEADSTART_PORT`.
const OF_SERVICES: [&str; 2] = ["SERVICE_", "PORT_"];

/// Names each variable of the environment that is no setting, on standard error.
pub(crate) fn warn() {
    let known = known();
    for (name, value) in std::env::vars_os() {
        // A value that is no UTF-8 can still have a misspelled name.
        let value = value.to_string_lossy();
        if let Some(warning) = name.to_str().and_then(|name| warning(name, &value, &known)) {
            output::note(&warning);
        }
    }
}

/// The known variables, without the prefix.
fn known() -> Vec<String> {
    let mut known: Vec<String> = OTHERS.map(str::to_owned).into();
    add(&crate::command(), &mut known);
    known
}

fn add(command: &Command, known: &mut Vec<String>) {
    let variables = command.get_arguments().filter_map(|arg| arg.get_env());
    let names = variables.filter_map(|name| name.to_str()?.strip_prefix(PREFIX));
    known.extend(names.map(str::to_owned));
    for command in command.get_subcommands() {
        add(command, known);
    }
}

fn warning(name: &str, value: &str, known: &[String]) -> Option<String> {
    let rest = name.strip_prefix(PREFIX)?;
    let is_of_service = OF_SERVICES.iter().any(|start| rest.starts_with(start));
    // Kubernetes also sets `HEADSTART_PORT`, to a URL, for a service called `headstart`.
    if known.iter().any(|name| name == rest) || is_of_service || value.contains("://") {
        return None;
    }
    let names = known.iter().map(String::as_str).chain(OF_LISTEN);
    let meant = match near::nearest(rest, names) {
        // `HOST` and `PORT` are no settings themselves: one variable sets both.
        Some(name) if OF_LISTEN.contains(&name) => Some("LISTEN"),
        other => other,
    };
    Some(match meant {
        Some(meant) => format!("{name} is not a setting; did you mean {PREFIX}{meant}?"),
        None => format!("{name} is not a setting; `headstart config show` lists the settings"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_is_no_setting_is_named_with_the_nearest_one() {
        let check = |name: &str, value: &str, expected: Option<&str>| {
            let warning = warning(name, value, &known());
            match expected {
                Some(part) => assert!(warning.is_some_and(|text| text.contains(part)), "{name}"),
                None => assert_eq!(warning, None, "{name}"),
            }
        };
        check("HEADSTART_PROT", "9", Some("did you mean HEADSTART_LISTEN?"));
        check("HEADSTART_PORT", "9", Some("did you mean HEADSTART_LISTEN?"));
        check("HEADSTART_REPLICA", "9", Some("HEADSTART_REPLICAS?"));
        check("HEADSTART_TEMPERATURE", "9", Some("config show"));
        check("HEADSTART_REPLICAS", "9", None);
        check("HEADSTART_CONFIG", "x", None);
        check("HEADSTART_URL", "x", None);
        check("HEADSTART_LOG", "info", None);
        check("HEADSTART_SERVICE_HOST", "10.0.0.1", None);
        check("HEADSTART_PORT", "tcp://10.0.0.1:8000", None);
        check("HOME", "x", None);
    }
}
