//! A server that speaks S3, for the tests of object storage: `moto_server`, written in Python.
//!
//! Installed by pip into an environment of its own below `target`, so that nothing of the machine
//! changes. The tests look for it there, on the path, and where `HEADSTART_MOTO` says.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Service, runs};

const SERVER: &str = "moto_server";

/// Names the program, where it is somewhere else.
const VARIABLE: &str = "HEADSTART_MOTO";

/// Folder of its installation, below the repository's root.
const FOLDER: &str = "target/services/moto";

/// The major version whose conditional writes the tests were written with, and what its server
/// needs: half of `moto[server]`, which brings all of Amazon's other services.
const PACKAGES: [&str; 3] = ["moto[s3]>=5.1,<6", "flask", "flask-cors"];

/// Such a server.
pub(super) struct Moto {
    folder: PathBuf,
}

impl Moto {
    /// For the repository at `root`.
    pub(super) fn below(root: &Path) -> Self {
        let folder = root.join(FOLDER);
        Self { folder }
    }
}

impl Service for Moto {
    fn names(&self) -> String {
        SERVER.to_owned()
    }

    fn tests(&self) -> &'static str {
        "the test of object storage"
    }

    fn found(&self) -> Option<String> {
        let named = env::var_os(VARIABLE).map(PathBuf::from);
        let installed = self.folder.join("bin").join(SERVER);
        let mut places = named.into_iter().chain([SERVER.into(), installed]);
        let is_there = places.any(|place| runs(place, "--help"));
        is_there.then(|| SERVER.to_owned())
    }

    fn install(&self) -> Result<(), String> {
        let by_hand = format!("install moto[server] with pip by hand, or name it in {VARIABLE}");
        let mut make = Command::new("python3");
        make.args(["-m", "venv"]).arg(&self.folder);
        let mut fill = Command::new(self.folder.join("bin").join("python"));
        fill.args(["-m", "pip", "install", "--quiet"]).args(PACKAGES);
        for (line, command) in [("python3 -m venv", &mut make), ("pip install", &mut fill)] {
            match command.stdin(Stdio::null()).status() {
                Ok(status) if status.success() => {}
                Ok(status) => return Err(format!("`{line}` ended with {status}; {by_hand}")),
                Err(error) => return Err(format!("`{line}` did not start ({error}); {by_hand}")),
            }
        }
        Ok(())
    }
}
