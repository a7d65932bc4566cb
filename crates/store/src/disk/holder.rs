//! The process that uses a folder.
//!
//! Asked of the system, not of the lock: to try the lock would keep out a server that starts at
//! that moment.

use std::fs;

/// The system's list of locks.
const LOCKS: &str = "/proc/locks";

/// User of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// No process uses it.
    Nobody,
    /// A process uses it; its id, if visible to this one.
    Process(Option<u32>),
    /// The system does not say.
    Unknown,
}

/// A file, as the system counts them.
#[derive(Clone, Copy)]
pub(super) struct FileNumber {
    /// The file system that it is on.
    pub(super) device: u64,
    /// Its number there.
    pub(super) number: u64,
}

/// Finds the process that holds the lock on a file.
pub(super) fn of_file(file: FileNumber) -> Holder {
    match fs::read_to_string(LOCKS) {
        Ok(locks) => of_list(&locks, file.device, file.number),
        Err(_) => Holder::Unknown,
    }
}

/// The same by a list whose lines are `1: FLOCK ADVISORY WRITE 15409 fe:00:10092688 0 EOF`.
fn of_list(locks: &str, device: u64, number: u64) -> Holder {
    let holders = locks.lines().filter_map(|line| holder(line, number));
    let wanted = (libc::major(device), libc::minor(device));
    let mut holders: Vec<_> = holders.collect();
    // Some file systems show processes another device than the list: then the number must do.
    holders.sort_by_key(|(on, _)| *on != Some(wanted));
    match holders.first() {
        Some((_, process)) => Holder::Process(*process),
        None => Holder::Nobody,
    }
}

/// The device and process of a lock, if it is one of this file's.
#[expect(clippy::type_complexity, reason = "a pair of what may be unknown, used once")]
fn holder(line: &str, number: u64) -> Option<(Option<(u32, u32)>, Option<u32>)> {
    let mut words = line.split_whitespace().skip(1);
    if words.next()? != "FLOCK" {
        return None;
    }
    // How binding, and of which kind.
    let mut words = words.skip(2);
    // The kernel shows 0 for a process in a PID namespace that is not visible here.
    let process = words.next()?.parse().ok().filter(|&process| process > 0);
    let mut file = words.next()?.split(':');
    let hexadecimal = |text: &str| u32::from_str_radix(text, 16).ok();
    let device = (hexadecimal(file.next()?), hexadecimal(file.next()?));
    let is_it = file.next()?.parse() == Ok(number);
    let device = device.0.zip(device.1);
    is_it.then_some((device, process))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "\
1: POSIX  ADVISORY  WRITE 99 fe:00:7 0 EOF
2: FLOCK  ADVISORY  WRITE 15409 fe:00:10092688 0 EOF
2: -> FLOCK  ADVISORY  WRITE 15410 fe:00:10092688 0 EOF
3: FLOCK  ADVISORY  WRITE 12 08:01:8 0 EOF
4: FLOCK  ADVISORY  WRITE 13 fe:00:8 0 EOF
5: FLOCK  ADVISORY  WRITE 0 fe:00:9 0 EOF
6: FLOCK  ADVISORY  WRITE 14 00:2d:10 0 EOF
nonsense
";

    #[test]
    fn a_lock_is_found_by_its_file() {
        let device = libc::makedev(0xfe, 0);
        for (number, right) in [
            (10_092_688, Holder::Process(Some(15_409))),
            (7, Holder::Nobody),
            (8, Holder::Process(Some(13))),
            (9, Holder::Process(None)),
            (10, Holder::Process(Some(14))),
            (11, Holder::Nobody),
        ] {
            assert_eq!(of_list(LIST, device, number), right, "{number}");
        }
    }
}
