//! Exit codes, the same for all commands: 0 success, 1 a check failed, 2 the command could not run.

use std::process::ExitCode;

/// The command ran, and its answer is no: findings of `lint`, damage that `cache verify` found.
#[derive(Debug)]
pub(crate) struct CheckFailure(pub(crate) String);

impl std::fmt::Display for CheckFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CheckFailure {}

/// The exit code of a command that ended with `error`.
pub(crate) fn code(error: &anyhow::Error) -> ExitCode {
    // The type survives any context that was added to the error on its way.
    let is_answer = error.downcast_ref::<CheckFailure>().is_some();
    ExitCode::from(if is_answer { 1 } else { 2 })
}

/// The error of arguments or a configuration that cannot be.
pub(crate) fn usage(message: impl std::fmt::Display) -> anyhow::Error {
    headstart_core::UsageError(message.to_string()).into()
}

/// Refuses the first of `options` that is given, with the message that `why` makes of its name.
pub(crate) fn refuse(options: &[(&str, bool)], why: impl Fn(&str) -> String) -> anyhow::Result<()> {
    match options.iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) => Err(usage(why(option))),
        None => Ok(()),
    }
}
