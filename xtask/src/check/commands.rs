//! Runs the commands that the README and the guide show, as they are printed.
//!
//! Each document gets an empty folder with `data` of the repository and a folder of prompts. Its
//! commands run in order, in blocks marked `bash`. A server stays up until the end of its document,
//! on a free port, which takes the place of port 8000 in later commands.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use super::{Outcome, binary};
use crate::cargo::Cargo;

/// Commands that do not run here, by a part of them, and why.
const SKIPPED: [(&str, &str); 26] = [
    ("git clone", "fetches"),
    ("cargo ", "is cargo's own"),
    ("vllm ", "needs vLLM"),
    ("lmcache ", "needs LMCache"),
    ("VENV/", "is a pattern"),
    ("--upstream", "needs an engine"),
    ("--listen", "names a port"),
    ("s3://", "needs an object store"),
    ("redis://", "needs Redis"),
    ("Qwen/", "fetches a model"),
    ("FOLDER", "is a pattern"),
    ("HOST", "is a pattern"),
    ("YOUR_", "is a pattern"),
    ("headstart top", "runs until it is stopped"),
    ("headstart shadow", "needs an engine"),
    ("headstart index", "needs an engine"),
    ("--kv-events tcp", "needs an engine with KV events"),
    ("--normalize", "needs an engine"),
    ("--predictor model.hsp", "needs a trained model"),
    ("chatcmpl-", "is a pattern"),
    ("/debug/", "needs a server with requests"),
    ("calibrate --url", "is a pattern"),
    ("headstart cache ", "needs a cache with records"),
    ("bench fleet", "takes minutes"),
    ("simulate fleet", "takes minutes"),
    ("headstart train", "takes minutes"),
];

/// Longest time of one command.
const TIMEOUT: &str = "180";

/// Time in which a server is ready.
const START: Duration = Duration::from_secs(60);

/// Runs every command that can run here and stops at the first that fails.
pub(super) fn run(root: &Path, cargo: &Cargo) -> Result<Outcome> {
    if let Some(failed) = binary::build(cargo)? {
        return Ok(failed);
    }
    let program = binary::path()?;
    let (mut run, mut skipped) = (0, 0);
    for document in documents(root)? {
        let text = fs::read_to_string(&document)
            .with_context(|| format!("cannot read {}", document.display()))?;
        let mut place = Place::new(root, &program)?;
        for command in commands(&text) {
            if SKIPPED.iter().any(|(part, _)| command.contains(part)) {
                skipped += 1;
                continue;
            }
            run += 1;
            if let Err(error) = place.run(&command) {
                let name = document.strip_prefix(root).unwrap_or(&document).display();
                return Ok(Outcome::Failed(format!("{name}: `{command}`: {error:#}")));
            }
        }
    }
    Ok(Outcome::Passed(format!(
        "commands of the README and the guide: {run} run, {skipped} need more than this machine"
    )))
}

/// The README and the pages of the guide.
fn documents(root: &Path) -> Result<Vec<PathBuf>> {
    let guide = fs::read_dir(root.join("docs/guide")).context("there is no docs/guide")?;
    let mut pages = guide.map(|page| Ok(page?.path())).collect::<Result<Vec<_>>>()?;
    pages.sort();
    pages.insert(0, root.join("README.md"));
    Ok(pages)
}

/// The commands in a document's blocks of `bash`: lines that end in a backslash are joined, and so
/// are those of a here-document.
fn commands(text: &str) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    let (mut is_block, mut is_open) = (false, false);
    let mut here_ends: Option<String> = None;
    for line in text.lines() {
        match line {
            "```bash" => is_block = true,
            _ if line.starts_with("```") => (is_block, is_open) = (false, false),
            _ if is_block => {
                match commands.last_mut().filter(|_| is_open) {
                    Some(last) => *last = format!("{last}\n{line}"),
                    None => commands.push(line.to_owned()),
                }
                if let Some((_, end)) = line.split_once("<<'") {
                    here_ends = end.split('\'').next().map(str::to_owned);
                } else if here_ends.as_deref() == Some(line) {
                    here_ends = None;
                }
                is_open = line.ends_with('\\') || here_ends.is_some();
            }
            _ => {}
        }
    }
    commands
}

/// Environment that the commands of one document run in.
struct Place {
    folder: PathBuf,
    /// The folder of the program, in front of the others.
    path: String,
    servers: Vec<Child>,
    /// Of the latest server.
    address: Option<String>,
}

impl Place {
    fn new(root: &Path, program: &Path) -> Result<Self> {
        let folder =
            std::env::temp_dir().join(format!("headstart-commands-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("prompts"))?;
        fs::write(folder.join("prompts/support.txt"), "You answer questions about orders.\n")?;
        std::os::unix::fs::symlink(root.join("data"), folder.join("data"))?;
        let programs = program.parent().unwrap_or(root).display().to_string();
        let path = std::env::var("PATH").unwrap_or_default();
        Ok(Self { folder, path: format!("{programs}:{path}"), servers: Vec::new(), address: None })
    }

    fn run(&mut self, command: &str) -> Result<()> {
        let command = match &self.address {
            Some(address) => command.replace("127.0.0.1:8000", address),
            None => command.to_owned(),
        };
        if command.starts_with("headstart serve") {
            self.serve(&command)
        } else {
            self.shell(&command)
        }
    }

    fn bash(&self, command: &str) -> Command {
        let mut bash = Command::new("timeout");
        bash.args([TIMEOUT, "bash", "-euo", "pipefail", "-c", command])
            .current_dir(&self.folder)
            .env("PATH", &self.path)
            .env("HEADSTART_LISTEN", "127.0.0.1:0")
            .env("HEADSTART_LOG", "error")
            .stdin(Stdio::null());
        if let Some(address) = &self.address {
            bash.env("HEADSTART_URL", format!("http://{address}"));
        }
        bash
    }

    fn shell(&self, command: &str) -> Result<()> {
        let output = self.bash(command).output().context("no bash or timeout")?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        let last = complaint.trim().lines().last().unwrap_or_default();
        anyhow::ensure!(output.status.success(), "{}: {last}", output.status);
        Ok(())
    }

    /// Starts a server and waits until it names its address.
    fn serve(&mut self, command: &str) -> Result<()> {
        let mut child = self
            .bash(&format!("exec {command}"))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("no bash or timeout")?;
        let stdout = child.stdout.take().context("no standard output")?;
        self.servers.push(child);
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            let read = BufReader::new(stdout).read_line(&mut line);
            let _ = send.send(read.map(|_| line));
        });
        let line = receive.recv_timeout(START).context("the server is not ready")??;
        let address = line.split_once("http://").and_then(|(_, rest)| rest.split('/').next());
        let address = address.with_context(|| format!("no address in {line:?}"))?;
        self.address = Some(address.to_owned());
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for server in &mut self.servers {
            // `timeout` passes the signal on; a kill would leave the server.
            let _ = Command::new("kill").arg(server.id().to_string()).status();
            let _ = server.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_those_of_bash_blocks() {
        let text =
            "```bash\na b \\\n  c\nd\n```\n```text\nx\n```\n```bash\ncat <<'E'\ny\nE\nz\n```\n";
        assert_eq!(commands(text), ["a b \\\n  c", "d", "cat <<'E'\ny\nE", "z"]);
    }

    #[test]
    fn every_reason_to_skip_is_one() {
        assert!(SKIPPED.iter().all(|(part, why)| !part.is_empty() && !why.is_empty()));
    }
}
