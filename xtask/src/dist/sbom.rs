//! The bill of materials: every crate in the program, in CycloneDX's JSON.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The bill of materials of the program.
///
/// # Errors
/// When cargo cannot list the crates.
pub(super) fn of(root: &Path) -> Result<String> {
    let arguments = [
        "tree",
        "-p",
        "headstart",
        "-e",
        "normal",
        "--prefix",
        "none",
        "--locked",
        "-f",
        "{p}|{l}",
    ];
    let output =
        Command::new("cargo").args(arguments).current_dir(root).output().context("no cargo")?;
    ensure!(output.status.success(), "cargo tree failed");
    Ok(document(&String::from_utf8_lossy(&output.stdout)))
}

/// The document of crates in lines such as `serde v1.0.1 (proc-macro)|MIT OR Apache-2.0`.
fn document(tree: &str) -> String {
    let mut components: Vec<String> = tree.lines().filter_map(component).collect();
    components.sort();
    components.dedup();
    format!(
        "{{\n\"bomFormat\": \"CycloneDX\",\n\"specVersion\": \"1.5\",\n\"version\": 1,\n\
         \"components\": [\n{}\n]\n}}\n",
        components.join(",\n")
    )
}

fn component(line: &str) -> Option<String> {
    let (package, license) = line.split_once('|')?;
    let mut words = package.split(' ');
    let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
    // A star marks a crate that was listed before.
    let license = license.trim_end_matches(" (*)").replace('/', " OR ");
    Some(format!(
        "{{\"type\": \"library\", \"name\": \"{name}\", \"version\": \"{version}\", \
         \"purl\": \"pkg:cargo/{name}@{version}\", \
         \"licenses\": [{{\"expression\": \"{license}\"}}]}}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_are_listed_once() {
        let tree = "headstart v0.1.0 (/x)|Apache-2.0\nserde v1.0.1|MIT OR Apache-2.0\n\
                    serde v1.0.1|MIT OR Apache-2.0 (*)\nold v0.1.0|MIT/Apache-2.0";
        let document = document(tree);
        assert_eq!(document.matches("\"library\"").count(), 3, "{document}");
        assert!(document.contains("pkg:cargo/serde@1.0.1"), "{document}");
        assert!(!document.contains("MIT/"), "{document}");
    }
}
