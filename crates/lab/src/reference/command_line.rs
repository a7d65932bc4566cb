//! The commands and their help.

use std::fmt::Write;

use clap::Command;

/// Columns of the help texts.
const COLUMNS: usize = 80;

/// The page of all commands.
pub(super) fn page(command: Command) -> String {
    let mut command = command.term_width(COLUMNS);
    command.build();
    let mut page = super::heading("Command line");
    page += "What `--help` prints, command by command. `-h` prints a summary.\n\n";
    write_command(&mut page, &mut command);
    page.truncate(page.trim_end().len());
    page + "\n"
}

fn write_command(page: &mut String, command: &mut Command) {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let _ = writeln!(page, "## {name}\n");
    let help = command.render_long_help().to_string();
    let lines = help.trim().lines().map(str::trim_end);
    let _ = writeln!(page, "```text\n{}\n```\n", lines.collect::<Vec<_>>().join("\n"));
    let names: Vec<_> = command
        .get_subcommands()
        .filter(|one| !one.is_hide_set() && one.get_name() != "help")
        .map(|one| one.get_name().to_owned())
        .collect();
    for name in names {
        if let Some(subcommand) = command.find_subcommand_mut(&name) {
            write_command(page, subcommand);
        }
    }
}
