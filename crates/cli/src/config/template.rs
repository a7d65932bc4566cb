//! `headstart.toml`, with a comment on every setting.

use std::fmt::Write;

use clap::{Arg, ArgAction, Args, Command};

use super::effective::{documented_default, help, is_setting, value_name};
use super::options::ServeOptions;

/// Columns of the comments.
const COLUMNS: usize = 80;

/// Example tables of the file besides `[serve]`.
const TABLES: &str = r#"
# A routing strategy of your own, for `strategy = "mine"`.
# [profiles.mine]
# index = "events"
# prefer = ["unsaturated"]
# weights = { prefix = 5, queue = 1, kv-free = 1 }
# picker = "best"

# Limits of one tenant: requests with this cache_salt.
# [tenants.acme]
# context-cache-gib = 2.0
# context-cache-hours = 12.0
"#;

/// A configuration file in which every setting is a comment.
pub fn template() -> String {
    let mut text = "# Settings of `headstart serve`. To change one, remove the `# ` in front.\n\n\
                    [serve]\n"
        .to_owned();
    let command = ServeOptions::augment_args(Command::new("serve"));
    let mut heading = None;
    for arg in command.get_arguments().filter(|arg| is_setting(arg)) {
        if heading != arg.get_help_heading() {
            heading = arg.get_help_heading();
            let _ = writeln!(text, "\n## {}", heading.unwrap_or_default());
        }
        let _ = writeln!(text);
        for paragraph in help(arg).split("\n\n") {
            comment(&mut text, paragraph);
        }
        let _ = writeln!(text, "# {} = {}", arg.get_id().as_str().replace('_', "-"), sample(arg));
    }
    text + TABLES
}

fn comment(text: &mut String, paragraph: &str) {
    let mut line = "#".to_owned();
    for word in paragraph.split_whitespace() {
        if line.len() + 1 + word.len() > COLUMNS {
            let _ = writeln!(text, "{line}");
            "#".clone_into(&mut line);
        }
        line.push(' ');
        line.push_str(word);
    }
    let _ = writeln!(text, "{line}");
}

/// The default of a setting, or a value of its type.
fn sample(arg: &Arg) -> String {
    let (default, name) = (documented_default(arg), value_name(arg));
    let default = default.as_deref();
    match (arg.get_action(), name) {
        (ArgAction::SetTrue, _) => "false".to_owned(),
        (ArgAction::Append, _) => "[]".to_owned(),
        (_, "N" | "MIB" | "PORT" | "NUMBER" | "SECONDS") => {
            let number = default.filter(|default| default.parse::<u64>().is_ok());
            number.unwrap_or("1000").to_owned()
        }
        (_, "GIB" | "HOURS") => {
            let number = default.and_then(|default| default.parse().ok());
            format!("{:?}", number.unwrap_or(1.0f64))
        }
        _ => {
            let word = default.filter(|default| !default.contains(' ') && *default != "none");
            format!("{:?}", word.unwrap_or(name))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_of_the_template_is_one_that_the_file_may_have() {
        let template = template();
        let lines = template.lines().map(|line| line.strip_prefix("# ").unwrap_or(line));
        let is_value = |line: &str| {
            let name = line.split_once(" = ").map(|(name, _)| name);
            name.is_some_and(|name| !name.contains(' '))
        };
        let is_table = |line: &str| line.starts_with('[') && !line.contains(' ');
        let settings: Vec<&str> = lines.filter(|line| is_value(line) || is_table(line)).collect();
        let count = settings.iter().filter(|line| is_value(line)).count();
        let settings = settings.join("\n");
        let file = crate::config::parse(&settings);
        assert!(file.is_ok(), "{:?}\n{settings}", file.err());
        assert!(count >= 45, "{count} settings");
    }
}
