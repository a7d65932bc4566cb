//! `cargo x docs`: writes the generated references, and renders the book where mdBook is there.

mod limits;

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

use crate::cargo::Cargo;

/// Folder of the generated pages.
const FOLDER: &str = "docs/reference";

/// Writes the references in the workspace at `root`.
pub(crate) fn run(root: &Path, cargo: &Cargo) -> Result<ExitCode> {
    let generator = ["run", "-q", "-p", "headstart-lab", "--bin", "headstart-reference"];
    let arguments = [&generator[..], &["--", "--docs", FOLDER]].concat();
    let written = cargo.run(&arguments, &[])?;
    ensure!(written.success(), "the references could not be written");
    let path = root.join(FOLDER).join(limits::FILE);
    std::fs::write(&path, limits::page(root)?).context("cannot write the page of limits")?;
    println!("wrote {FOLDER}");
    match Command::new("mdbook").arg("build").current_dir(root).status() {
        Ok(status) if status.success() => println!("the book is in target/book"),
        Ok(_) => return Ok(ExitCode::FAILURE),
        Err(_) => println!("SKIPPED: the book: no mdbook; `cargo install mdbook` fetches it"),
    }
    Ok(ExitCode::SUCCESS)
}
