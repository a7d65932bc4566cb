//! Commands that can take more than two seconds show progress on a terminal.

use crate::support;

/// Shows progress at once.
pub(crate) const AT_ONCE: (&str, &str) = ("HEADSTART_PROGRESS_AFTER_MS", "0");

/// Commands that are always short, with the reason.
const SHORT: &[(&str, &str)] = &[
    ("config init", "prints a template"),
    ("config show", "reads one small file"),
    ("completions", "prints a script"),
    ("vllm-args", "prints a command"),
];

/// Commands whose length is unknown, or is that of one answer, and which show the time only.
const WITHOUT_ESTIMATE: &[&str] = &[
    "doctor",
    "index show",
    "index dump",
    "shadow",
    "top",
    "savings",
    "serve",
    "cache ls",
    "cache stat",
    "cache gc",
    "cache purge",
];

/// The part of the progress that a command's output on a terminal lacks.
pub(crate) fn missing(name: &str, args: &str, text: &str) -> Option<&'static str> {
    if SHORT.iter().any(|(short, _)| *short == name) || args.contains("--derive") {
        return None;
    }
    // `validate` knows the number of its requests.
    let has_length = name == "validate" || !args.contains("--url");
    let has_estimate = !WITHOUT_ESTIMATE.contains(&name) && has_length;
    let part = if has_estimate { "(eta " } else { "(0s)" };
    (!text.contains(part)).then_some(part)
}

#[test]
fn without_a_terminal_progress_is_lines_on_standard_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let planted = ["trace", "planted", "--conversations", "300"];
    let output = |after: &str| {
        let mut command = support::headstart(planted);
        command.env(AT_ONCE.0, after).current_dir(folder.path());
        command.output().expect("the binary runs")
    };
    let (shown, silent) = (output("0"), output("3600000"));
    let complaint = support::text(&shown.stderr);
    assert!(complaint.starts_with("writing conversations\n"), "{complaint}");
    assert!(!support::text(&silent.stderr).contains("writing conversations"));
    assert_eq!(shown.stdout, silent.stdout, "progress never goes there");
}
