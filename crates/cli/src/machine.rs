//! This machine, as far as it limits what options may ask for.

/// Physical memory, where the system says.
pub(crate) fn memory_bytes() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    // The line has the form `MemTotal:  16384 kB`.
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: usize = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    kib.checked_mul(1024)
}
