//! The architecture's table of crates, as data: who may use whom, and how pure each must be.
//!
//! `docs/architecture.md` explains the table; this is the copy that is enforced. A new crate is a
//! row here and a row there.

/// Access of a crate's own code to the outside world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purity {
    /// No clock, file, socket, thread, randomness, log or JSON: decisions only.
    Pure,
    /// May read the files it is given, and otherwise only computes.
    Computes,
    /// Lives at the edge.
    Edge,
}

/// One row.
#[derive(Debug)]
pub(super) struct CrateRow {
    /// The folder under `crates/`, or `xtask`.
    pub(super) folder: &'static str,
    /// Tests may use anything on a lower layer.
    pub(super) layer: u8,
    pub(super) purity: Purity,
    /// The folders of the crates it may use.
    pub(super) uses: &'static [&'static str],
}

/// All crates.
static CRATES: [CrateRow; 25] = {
    use Purity::{Computes, Edge, Pure};
    [
        row("core", 0, Pure, &[]),
        row("page", 0, Edge, &[]),
        row("terminal", 1, Edge, &["core"]),
        row("cache", 1, Pure, &["core"]),
        row("selective", 1, Pure, &["core", "cache"]),
        row("scheduler", 1, Pure, &["core", "cache", "selective"]),
        row("router", 1, Pure, &["core"]),
        row("trace", 1, Pure, &["core"]),
        row("insight", 1, Pure, &["core", "cache"]),
        row("prompt", 2, Computes, &["core"]),
        row("store", 2, Edge, &["core"]),
        row("predict", 2, Computes, &["core", "trace"]),
        row("kv-events", 2, Edge, &["core", "router"]),
        row("index-sync", 2, Edge, &["core", "router", "kv-events"]),
        row("engine", 2, Computes, &["core", "cache", "selective", "scheduler"]),
        row("sim", 3, Pure, &["core", "cache", "scheduler", "router", "trace", "insight"]),
        row("analysis", 3, Computes, &["core", "cache", "trace", "insight", "prompt", "sim"]),
        row("dst", 3, Pure, &["core", "cache", "router", "insight"]),
        row(
            "server",
            3,
            Edge,
            &[
                "core",
                "cache",
                "selective",
                "router",
                "prompt",
                "insight",
                "engine",
                "kv-events",
                "index-sync",
                "page",
            ],
        ),
        row("loadgen", 3, Edge, &["core", "trace"]),
        row(
            "report",
            4,
            Edge,
            &[
                "core", "cache", "trace", "insight", "predict", "sim", "analysis", "terminal",
                "page",
            ],
        ),
        row("cli", 5, Edge, EVERYTHING_BELOW_CLI),
        row(
            "lab",
            6,
            Edge,
            &[
                "core",
                "cache",
                "selective",
                "scheduler",
                "trace",
                "prompt",
                "engine",
                "store",
                "predict",
                "sim",
                "server",
                "terminal",
                "page",
                "cli",
            ],
        ),
        row(
            "python",
            5,
            Edge,
            &[
                "core",
                "cache",
                "router",
                "trace",
                "predict",
                "store",
                "kv-events",
                "sim",
                "analysis",
            ],
        ),
        row("xtask", 0, Edge, &[]),
    ]
};

const EVERYTHING_BELOW_CLI: &[&str] = &[
    "core",
    "cache",
    "selective",
    "scheduler",
    "router",
    "trace",
    "insight",
    "prompt",
    "store",
    "predict",
    "engine",
    "kv-events",
    "index-sync",
    "sim",
    "analysis",
    "server",
    "loadgen",
    "terminal",
    "page",
    "report",
];

const fn row(
    folder: &'static str,
    layer: u8,
    purity: Purity,
    uses: &'static [&'static str],
) -> CrateRow {
    CrateRow { folder, layer, purity, uses }
}

/// The row of a crate's folder.
pub(super) fn crate_row(folder: &str) -> Option<&'static CrateRow> {
    CRATES.iter().find(|row| row.folder == folder)
}

/// The folder of the crate that a file belongs to, and the file's path inside of it.
pub(super) fn split_crate(path: &str) -> Option<(&str, &str)> {
    match path.strip_prefix("crates/") {
        Some(rest) => rest.split_once('/'),
        None => path.strip_prefix("xtask/").map(|rest| ("xtask", rest)),
    }
}

/// The folder of the crate that a file belongs to.
pub(crate) fn crate_of(path: &str) -> Option<&str> {
    split_crate(path).map(|(folder, _)| folder)
}

/// The package in a crate's folder.
pub(crate) fn package_name(folder: &str) -> String {
    match folder {
        "cli" => "headstart".to_owned(),
        "xtask" => "xtask".to_owned(),
        folder => format!("headstart-{folder}"),
    }
}

/// The folder of a package of this workspace; the inverse of [`package_name`].
pub(super) fn folder_of_package(package: &str) -> Option<&str> {
    match package {
        "headstart" => Some("cli"),
        "xtask" => Some("xtask"),
        package => package.strip_prefix("headstart-"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, expected: Option<(&str, &str)>) {
        assert_eq!(split_crate(path), expected);
    }

    #[test]
    fn paths_split_into_crate_and_file() {
        check("crates/core/src/ids.rs", Some(("core", "src/ids.rs")));
        check("xtask/src/main.rs", Some(("xtask", "src/main.rs")));
        check("examples/route.rs", None);
    }

    #[test]
    fn packages_and_folders_are_inverse() {
        for row in &CRATES {
            assert_eq!(folder_of_package(&package_name(row.folder)), Some(row.folder));
        }
    }

    #[test]
    fn arrows_point_down_or_along() {
        for row in &CRATES {
            for used in row.uses {
                let used = crate_row(used).expect("every used crate has a row");
                assert!(used.layer <= row.layer, "{} uses {}", row.folder, used.folder);
                assert!(!used.uses.contains(&row.folder), "{} uses itself", row.folder);
            }
        }
    }
}
