//! `cargo x dist`: everything that a package needs, in `target/dist`.
//!
//! ```text
//! target/dist/
//! ├── headstart-VERSION-TARGET/      bin, man, completions, systemd unit, Containerfile, SBOM
//! ├── headstart-VERSION-TARGET.tar.gz
//! ├── headstart_llm-….whl            `pip install` of it gives the program and the package
//! └── SHA256SUMS
//! ```

mod sbom;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

use crate::cargo::Cargo;

/// Largest program, bytes.
const PROGRAM_BYTES_MAX: u64 = 45 << 20;

/// Files of the repository that go into the archive, and where.
const FILES: [(&str, &str); 5] = [
    ("README.md", "README.md"),
    ("LICENSE", "LICENSE"),
    ("CHANGELOG.md", "CHANGELOG.md"),
    ("packaging/headstart.service", "lib/systemd/system/headstart.service"),
    ("packaging/Containerfile", "Containerfile"),
];

/// Shells, and the names under which they look for completions.
const COMPLETIONS: [(&str, &str); 5] = [
    ("bash", "headstart.bash"),
    ("elvish", "headstart.elv"),
    ("fish", "headstart.fish"),
    ("powershell", "_headstart.ps1"),
    ("zsh", "_headstart"),
];

/// Makes the packages of the workspace at `root`.
pub(crate) fn run(root: &Path, cargo: &Cargo) -> Result<ExitCode> {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let dist = target.join("dist");
    if dist.exists() {
        fs::remove_dir_all(&dist).context("cannot empty target/dist")?;
    }
    let build = cargo.run(&["build", "--release", "--locked", "-p", "headstart"], &[])?;
    ensure!(build.success(), "the program does not build");
    let program = target.join("release/headstart");
    let size = fs::metadata(&program)?.len();
    println!("headstart: {:.1} MiB", size as f64 / f64::from(1 << 20));
    ensure!(size <= PROGRAM_BYTES_MAX, "the program has more than {PROGRAM_BYTES_MAX} bytes");
    let name = archive(root, cargo, &program, &dist)?;
    wheel(root, &target, &program, &dist)?;
    shell(&dist, "sha256sum *.tar.gz *.whl > SHA256SUMS")?;
    println!("made {name}.tar.gz, a wheel and SHA256SUMS in target/dist");
    Ok(ExitCode::SUCCESS)
}

/// The folder with all files, and the archive of it; its name.
fn archive(root: &Path, cargo: &Cargo, program: &Path, dist: &Path) -> Result<String> {
    let name = format!("headstart-{}-{}", env!("CARGO_PKG_VERSION"), triple()?);
    let folder = dist.join(&name);
    fs::create_dir_all(folder.join("bin"))?;
    fs::copy(program, folder.join("bin/headstart")).context("cannot copy the program")?;
    for (from, to) in FILES {
        let to = folder.join(to);
        fs::create_dir_all(to.parent().unwrap_or(&folder))?;
        fs::copy(root.join(from), &to).with_context(|| format!("cannot copy {from}"))?;
    }
    man_pages(cargo, &folder.join("share/man/man1"))?;
    completions(program, &folder.join("share/completions"))?;
    fs::write(folder.join("sbom.cdx.json"), sbom::of(root)?)?;
    shell(dist, &format!("tar --sort=name --owner=0 --group=0 -czf {name}.tar.gz {name}"))?;
    Ok(name)
}

/// The man pages, by the generator of the reference.
fn man_pages(cargo: &Cargo, folder: &Path) -> Result<()> {
    let folder = folder.to_str().context("the target folder's path is not UTF-8")?;
    let generator = [
        "run",
        "-q",
        "--release",
        "--locked",
        "-p",
        "headstart-lab",
        "--bin",
        "headstart-reference",
    ];
    let made = cargo.run(&[&generator[..], &["--", "--man", folder]].concat(), &[])?;
    ensure!(made.success(), "the man pages could not be made");
    Ok(())
}

/// The completions of all shells, by the program itself.
fn completions(program: &Path, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    for (shell, name) in COMPLETIONS {
        let script = Command::new(program).args(["completions", shell]).output()?;
        ensure!(script.status.success(), "the completions of {shell} could not be made");
        fs::write(folder.join(name), script.stdout)?;
    }
    Ok(())
}

/// The wheel of the Python package, with the program in it, by maturin from a virtual environment
/// below the target folder.
fn wheel(root: &Path, target: &Path, program: &Path, dist: &Path) -> Result<()> {
    let venv = target.join("maturin");
    let maturin = venv.join("bin/maturin");
    if !maturin.exists() {
        let (venv, pip) = (venv.display(), venv.join("bin/pip"));
        let fetch =
            format!("python3 -m venv '{venv}' && '{}' install -q 'maturin>=1.9,<2'", pip.display());
        shell(dist, &fetch).context("maturin cannot be installed")?;
    }
    let scripts = root.join("python/wheel.data/scripts");
    fs::create_dir_all(&scripts)?;
    fs::copy(program, scripts.join("headstart")).context("cannot copy the program")?;
    let status = Command::new(&maturin)
        .args(["build", "--release", "--locked"])
        .arg("--out")
        .arg(dist)
        .env("CARGO_TARGET_DIR", target)
        .current_dir(root.join("python"))
        .status()
        .context("maturin does not start")?;
    ensure!(status.success(), "the wheel could not be made");
    Ok(())
}

/// The target that rustc builds for.
fn triple() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("no rustc")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc does not name its host")
}

fn shell(folder: &Path, line: &str) -> Result<()> {
    let status = Command::new("sh").args(["-c", line]).current_dir(folder).status()?;
    ensure!(status.success(), "`{line}` failed");
    Ok(())
}
