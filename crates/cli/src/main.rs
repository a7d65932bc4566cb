//! The binary `headstart`.

use std::process::ExitCode;

fn main() -> ExitCode {
    headstart::run()
}
