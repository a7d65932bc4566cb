//! Services of the command for a training: progress on the terminal, clocks, files.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use headstart_core::{Nanos, Progress};
use headstart_predict::training::{StageWork, TrainingHost, WriteContents};
use headstart_terminal::{self as output, TaskProgress};

/// The terminal, the system's clocks and its files.
pub(super) struct CommandHost {
    begin: Instant,
}

impl CommandHost {
    /// Starts the clock.
    pub(super) fn new() -> Self {
        Self { begin: Instant::now() }
    }
}

impl TrainingHost for CommandHost {
    fn begin(&self, stage: &'static str, work: StageWork) -> Box<dyn Progress> {
        Box::new(match work {
            StageWork::Bytes => TaskProgress::bytes(stage),
            StageWork::Steps(steps) => TaskProgress::steps(stage, steps),
        })
    }

    fn note(&self, text: &str) {
        output::note(text);
    }

    fn now(&self) -> Nanos {
        Nanos(0) + self.begin.elapsed()
    }

    fn unix_s(&self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.map_or(0, |now| now.as_secs())
    }

    fn replace(&self, path: &Path, write: &mut WriteContents<'_>) -> io::Result<()> {
        replace(path, write)
    }
}

/// Puts what `write` writes in the place of `path`: all of it, or nothing where something goes
/// wrong or the process is stopped.
pub(super) fn replace(path: &Path, write: &mut WriteContents<'_>) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    // The process id keeps two trainings of one model apart.
    name.push(format!(".{}.part", std::process::id()));
    let part = path.with_file_name(name);
    let written = File::create(&part).and_then(|mut file| {
        write(&mut file)?;
        // The data must be on the disk before the name points to it, or a crash leaves an empty
        // file.
        file.sync_all()?;
        fs::rename(&part, path)
    });
    if written.is_err() {
        // The caller gets the first error; a part file that stays is no worse.
        let _ = fs::remove_file(&part);
    }
    written
}
