//! The page on `headstart.toml`, with the file that `headstart config init` writes.

use std::fmt::Write;

use headstart::parts::template;

/// The page on configuration.
pub(super) fn page() -> String {
    let mut page = super::heading("Configuration");
    page += "`headstart serve` reads `headstart.toml` in the current folder, or the file that \
             `--config` names. Environment variables win over the file, and flags win over both; \
             `--host` and `--port` replace an address of either as a whole. The variable of \
             `--cache-blocks` is `HEADSTART_CACHE_BLOCKS`, and so on.\n\n\
             | command | does |\n|---|---|\n\
             | `headstart config init` | writes the file below to `headstart.toml` |\n\
             | `headstart config show` | prints all settings in effect, each with its source |\n\n";
    let _ = writeln!(page, "```toml\n{}\n```", template().trim_end());
    page
}
