//! The tests of the workspace: built by cargo, run several test binaries at a time.
//!
//! Cargo runs one test binary after the other. Many tests here wait: for a server to start, for a
//! lease to end, for a time limit. Beside another binary's computation that time costs nothing.
//! Output is printed whole when a binary ends; CI reads the closing lines that each one prints.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::Outcome;
use crate::cargo::Cargo;

/// Longest time of one test binary.
const TIMEOUT: Duration = Duration::from_secs(900);

/// Pause between two looks at a running binary.
const LOOK: Duration = Duration::from_millis(20);

/// Binaries that run for minutes: they start first, so that none of them runs alone at the end.
const LONG: [&str; 6] =
    ["cli suite", "shared_index", "engine suite", "defects", "kills", "store suite"];

/// A built test binary.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TestBinary {
    /// As in cargo's output: package and target.
    name: String,
    program: PathBuf,
    /// The package's folder, in which cargo runs its tests.
    folder: PathBuf,
}

impl TestBinary {
    /// The file with its output: beside the program.
    fn log(&self) -> PathBuf {
        self.program.with_added_extension("log")
    }
}

/// Builds all tests, runs them, and then those in the documentation.
pub(super) fn run(cargo: &Cargo, variables: &[(&str, &str)]) -> Result<Outcome> {
    let build = ["test", "--workspace", "--locked", "--no-run"];
    let messages = ["--message-format", "json-render-diagnostics"];
    let (status, built) = cargo.output(&[&build[..], &messages].concat())?;
    if !status.success() {
        return Ok(Outcome::Failed(format!("`cargo {}` ended with {status}", build.join(" "))));
    }
    let mut binaries = binaries(&built)?;
    binaries.sort_by_key(|binary| !LONG.iter().any(|long| binary.name.ends_with(long)));
    let count = binaries.len();
    let mut failed = run_all(binaries, variables)?;
    let status = cargo.run(&["test", "--workspace", "--locked", "--doc"], variables)?;
    if !status.success() {
        failed.push("documentation".to_owned());
    }
    Ok(if failed.is_empty() {
        Outcome::Passed(format!("test binaries: {count}"))
    } else {
        Outcome::Failed(failed.join(", "))
    })
}

/// Reads the test binaries from cargo's messages, one JSON object per line.
fn binaries(messages: &str) -> Result<Vec<TestBinary>> {
    let mut binaries = Vec::new();
    for line in messages.lines() {
        let message: Value = serde_json::from_str(line).context("cargo's messages")?;
        let is_test = message["profile"]["test"] == true;
        let Some(program) = message["executable"].as_str().filter(|_| is_test) else {
            continue;
        };
        let manifest = Path::new(message["manifest_path"].as_str().context("a manifest's path")?);
        let folder = manifest.parent().context("a manifest lies in a folder")?;
        let package = folder.file_name().unwrap_or_default().to_string_lossy();
        let target = message["target"]["name"].as_str().context("a target's name")?;
        binaries.push(TestBinary {
            name: format!("{package} {target}"),
            program: PathBuf::from(program),
            folder: folder.to_owned(),
        });
    }
    Ok(binaries)
}

/// Runs as many binaries at a time as there are cores, and returns the names of those that failed.
fn run_all(binaries: Vec<TestBinary>, variables: &[(&str, &str)]) -> Result<Vec<String>> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let queue = Mutex::new(VecDeque::from(binaries));
    let failed = Mutex::new(Vec::new());
    let take = || -> Result<()> {
        loop {
            let next = queue.lock().expect("no holder panics").pop_front();
            let Some(binary) = next else {
                return Ok(());
            };
            if !run_one(&binary, variables)? {
                failed.lock().expect("no holder panics").push(binary.name);
            }
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(take)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("it does not panic"))
    })?;
    Ok(failed.into_inner().expect("no holder panics"))
}

/// Runs a binary, prints its output, and returns whether its tests passed.
fn run_one(binary: &TestBinary, variables: &[(&str, &str)]) -> Result<bool> {
    // A file, where a pipe would be read until the last process that inherited it has ended.
    let log = binary.log();
    let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = Command::new(&binary.program);
    command
        .current_dir(&binary.folder)
        .env("CARGO_MANIFEST_DIR", &binary.folder)
        .envs(variables.iter().copied())
        .stdout(file.try_clone()?)
        .stderr(file);
    let started = Instant::now();
    let mut child = command.spawn().with_context(|| format!("{} did not start", binary.name))?;
    let passed = ended(&mut child)?;
    let took_s = started.elapsed().as_secs();
    let text = fs::read(&log).with_context(|| format!("cannot read {}", log.display()))?;
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "     Running {} ({took_s} s)", binary.name)?;
    stdout.write_all(&text)?;
    if passed.is_none() {
        writeln!(stdout, "{} was killed after {} s", binary.name, TIMEOUT.as_secs())?;
    }
    Ok(passed == Some(true))
}

/// Waits for the end of a process. Returns `None` where it had to be killed.
fn ended(child: &mut Child) -> Result<Option<bool>> {
    let started = Instant::now();
    while started.elapsed() < TIMEOUT {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.success()));
        }
        thread::sleep(LOOK);
    }
    child.kill()?;
    if child.wait()?.success() {
        bail!("a killed process ended well");
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_binaries_are_found_in_cargos_messages() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","manifest_path":"/w/crates/core/Cargo.toml","#,
            r#""target":{"name":"headstart_core"},"profile":{"test":false},"executable":null}"#,
            "\n",
            r#"{"reason":"compiler-artifact","manifest_path":"/w/crates/cli/Cargo.toml","#,
            r#""target":{"name":"headstart"},"profile":{"test":false},"#,
            r#""executable":"/t/headstart"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","manifest_path":"/w/crates/cli/Cargo.toml","#,
            r#""target":{"name":"kills"},"profile":{"test":true},"executable":"/t/deps/kills-1"}"#,
            "\n",
            r#"{"reason":"build-finished","success":true}"#,
        );
        let expected = TestBinary {
            name: "cli kills".to_owned(),
            program: PathBuf::from("/t/deps/kills-1"),
            folder: PathBuf::from("/w/crates/cli"),
        };
        assert_eq!(binaries(messages).expect("reads"), [expected]);
        assert!(binaries("no JSON").is_err());
    }
}
