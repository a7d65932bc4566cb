//! The machine of the measurements.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

/// Facts that figures depend on.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    /// The processor's name.
    pub(crate) cpu: String,
    /// Processors that this process may use.
    pub(crate) cpus: usize,
    /// Memory, MiB.
    pub(crate) memory_mib: u64,
    /// The kernel's version.
    pub(crate) kernel: String,
    /// The file system that the folder is on, and how it is mounted.
    pub(crate) file_system: String,
    /// fio's version; nothing where it takes no part.
    pub(crate) fio: Option<String>,
}

impl Machine {
    /// Of this machine and the file system of `dir`.
    pub(crate) fn of(dir: &Path, fio: Option<String>) -> Result<Self> {
        let cpus = std::thread::available_parallelism()?.get();
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
        Ok(Self {
            cpu: field("/proc/cpuinfo", "model name").unwrap_or_default(),
            cpus,
            memory_mib: memory_mib().unwrap_or_default(),
            kernel: kernel.trim().to_owned(),
            file_system: file_system(dir)?,
            fio,
        })
    }
}

/// Returns the text behind the colon of the first line with the key `name`.
fn field(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    let found = fields.find(|(key, _)| key.trim() == name)?;
    Some(found.1.trim().to_owned())
}

fn memory_mib() -> Option<u64> {
    let text = field("/proc/meminfo", "MemTotal")?;
    let kib: u64 = text.split_whitespace().next()?.parse().ok()?;
    Some(kib / 1024)
}

/// Type and options of the mount that `dir` lies on.
fn file_system(dir: &Path) -> Result<String> {
    let dir = dir.canonicalize()?;
    let text = fs::read_to_string("/proc/self/mountinfo")?;
    let mounts = text.lines().filter_map(mount);
    let above = mounts.filter(|(point, _)| dir.starts_with(point));
    // Of two mounts on one point the later one is what is seen.
    let nearest = above.max_by_key(|(point, _)| point.len());
    Ok(nearest.context("the folder is on no mount")?.1)
}

/// Returns the mount point of a line of `mountinfo`, and the file system with its options.
fn mount(line: &str) -> Option<(&str, String)> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(4);
    let (point, options) = (before.next()?, before.next()?);
    let kind = after.split(' ').next()?;
    Some((point, format!("{kind} ({options})")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read() {
        let line = "36 35 98:0 / /mnt/disk rw,noatime master:1 - ext4 /dev/root rw,errors=continue";
        let found = mount(line).expect("it is a mount");
        assert_eq!(found, ("/mnt/disk", "ext4 (rw,noatime)".to_owned()));
        assert_eq!(mount("36 35 98:0 /"), None);
    }
}
