//! `headstart --help`: the commands by what they are for.

use std::fmt::Write;

use clap::Command;

/// Headings and the commands below them, in this order.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Serve", &["serve", "vllm-args", "top", "index", "shadow", "savings"]),
    ("Understand", &["demo", "analyze", "why", "lint", "fix", "validate", "doctor"]),
    ("Plan", &["replay", "plan", "simulate", "calibrate", "bench", "trace", "train"]),
    ("Maintain", &["cache", "config", "completions"]),
];

/// The command with its commands in groups.
pub(crate) fn grouped(command: Command) -> Command {
    let styles = command.get_styles().clone();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let width = command.get_subcommands().map(|one| one.get_name().len());
    let width = width.max().unwrap_or(0);
    let mut commands = String::new();
    for (heading, names) in GROUPS {
        // Writing to a `String` cannot fail.
        let _ = writeln!(commands, "{header}{heading}:{header:#}");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(commands, "  {literal}{name:width$}{literal:#}  {about}");
        }
        commands.push('\n');
    }
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{commands}\
         {header}Options:{header:#}\n{{options}}{{after-help}}"
    );
    command.help_template(template)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory;

    use super::*;

    #[test]
    fn each_command_is_in_one_group() {
        let command = crate::Cli::command();
        let commands = command.get_subcommands().filter(|one| !one.is_hide_set());
        let known: BTreeSet<_> = commands.map(Command::get_name).collect();
        let shown: Vec<_> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        assert_eq!(shown.len(), known.len());
        assert_eq!(BTreeSet::from_iter(shown), known);
    }

    #[test]
    fn each_description_fits_a_line_and_begins_with_a_verb() {
        const VERBS: [&str; 16] = [
            "Analyze",
            "Calibrate",
            "Check",
            "Compare",
            "Convert",
            "Explain",
            "Find",
            "Inspect",
            "Measure",
            "Print",
            "Rewrite",
            "Serve",
            "Show",
            "Simulate",
            "Size",
            "Train",
        ];
        let command = crate::Cli::command();
        for command in command.get_subcommands().filter(|one| !one.is_hide_set()) {
            let about = command.get_about().expect("a description").to_string();
            let verb = about.split(' ').next().expect("a word");
            assert!(VERBS.contains(&verb), "{about}");
            assert!(about.len() <= 64, "{about}");
        }
    }
}
