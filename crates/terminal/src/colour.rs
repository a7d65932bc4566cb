//! Colours of results on a terminal. Elsewhere text stays as it is.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether standard output shows colours; off until [`start`].
static IS_ON: AtomicBool = AtomicBool::new(false);

/// Looks at standard output and the environment, once.
pub fn start() {
    // One flag and no other data depend on it, so no ordering is needed.
    IS_ON.store(io::stdout().is_terminal() && are_wanted(), Relaxed);
}

/// Whether the environment wants colours, as <https://no-color.org> has it.
pub fn are_wanted() -> bool {
    let variable = |name| std::env::var_os(name).unwrap_or_default();
    variable("NO_COLOR").is_empty() && variable("TERM") != "dumb"
}

/// `text` as a heading.
pub fn heading(text: &str) -> String {
    styled("1", text)
}

/// `text` about cached tokens.
pub fn hit(text: &str) -> String {
    styled("32", text)
}

/// `text` about recomputed tokens.
pub fn loss(text: &str) -> String {
    styled("31", text)
}

/// `text` about a fix.
pub fn fix(text: &str) -> String {
    styled("36", text)
}

fn styled(code: &str, text: &str) -> String {
    if IS_ON.load(Relaxed) && !text.is_empty() {
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    } else {
        text.to_owned()
    }
}
