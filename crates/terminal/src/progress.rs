//! Progress of commands that take long, on standard error.
//!
//! On a terminal a bar with an estimate appears after [`AFTER`]. Elsewhere one line appears then,
//! and every [`EVERY`] another with the share and the estimate. Standard output has results only.
//!
//! With `HEADSTART_LOG_FORMAT=json` standard error is for programs, and nothing appears.
//!
//! For tests, `HEADSTART_PROGRESS_AFTER_MS` replaces [`AFTER`]: with 0 the bar appears at once.

use std::io::Read;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use indicatif::{HumanDuration, MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use headstart_core::Progress;

use crate::to_stderr;

/// Delay before progress appears: a command that ends sooner needs none.
const AFTER: Duration = Duration::from_secs(2);

/// Delay of progress that does not appear: longer than any command.
const NEVER: Duration = Duration::from_secs(365 * 86_400);

/// Time between two lines where standard error is no terminal.
const EVERY: Duration = Duration::from_secs(10);

/// Time between two drawings of a bar.
const TICK: Duration = Duration::from_millis(200);

/// Steps between two updates by [`Progress::at`].
const STEP: usize = 256;

/// All bars of the process, one below the other.
static BARS: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

/// Unit of a position.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ProgressUnit {
    Steps,
    Bytes,
}

/// Progress of one piece of work, until it is dropped. Clones count on the same bar.
#[derive(Clone)]
pub struct TaskProgress(Arc<SharedBar>);

struct SharedBar {
    bar: ProgressBar,
    unit: Mutex<ProgressUnit>,
    watcher: Mutex<Option<(Sender<()>, JoinHandle<()>)>>,
}

impl TaskProgress {
    /// Work of `length` steps.
    pub fn steps(what: impl Into<String>, length: usize) -> Self {
        Self::begin(what.into(), ProgressUnit::Steps, Some(length as u64))
    }

    /// Work on bytes, whose number may become known later.
    pub fn bytes(what: impl Into<String>) -> Self {
        Self::begin(what.into(), ProgressUnit::Bytes, None)
    }

    /// Work of unknown length.
    pub fn endless(what: impl Into<String>) -> Self {
        Self::begin(what.into(), ProgressUnit::Steps, None)
    }

    /// Says at once what begins, where there is no terminal: for work of minutes.
    pub fn announced(self) -> Self {
        // On a terminal the bar itself tells what began.
        if BARS.is_hidden() && !after().is_zero() && after() < NEVER {
            to_stderr(&(line(&self.0.bar) + "\n"));
        }
        self
    }

    fn begin(what: String, unit: ProgressUnit, length: Option<u64>) -> Self {
        // The bar is hidden until `AFTER` has passed: most commands end sooner.
        let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::hidden());
        let bar = bar.with_message(what);
        bar.set_style(style(unit, length.is_some()));
        let (end, ended) = mpsc::channel();
        let watched = bar.clone();
        // Tests ask for no delay, so the bar is there before the watcher thread runs.
        if after().is_zero() {
            show(&bar);
        }
        // Without a thread there is no progress to see, and no harm.
        let watcher = thread::Builder::new().spawn(move || watch(&watched, &ended));
        Self(Arc::new(SharedBar {
            bar,
            unit: Mutex::new(unit),
            watcher: Mutex::new(watcher.ok().map(|thread| (end, thread))),
        }))
    }

    /// Sets the number of steps that are done.
    pub fn set_position(&self, position: u64) {
        self.0.bar.set_position(position);
    }

    /// Counts the bytes that are read from `raw`.
    pub fn wrap_read<R: Read>(&self, raw: R) -> impl Read + use<R> {
        self.0.bar.wrap_read(raw)
    }

    fn unit(&self) -> MutexGuard<'_, ProgressUnit> {
        let unit = self.0.unit.lock();
        unit.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress for TaskProgress {
    fn beside(&self, what: &'static str, length: usize) -> Box<dyn Progress> {
        Box::new(Self::steps(what, length))
    }

    fn phase(&self, what: &'static str, length: Option<usize>) {
        let bar = &self.0.bar;
        *self.unit() = ProgressUnit::Steps;
        // The estimate of the remaining time must not count the phase before.
        bar.reset();
        bar.set_message(what);
        match length {
            Some(length) => bar.set_length(length as u64),
            None => bar.unset_length(),
        }
        bar.set_style(style(ProgressUnit::Steps, length.is_some()));
    }

    fn inc(&self, count: u64) {
        self.0.bar.inc(count);
    }

    fn at(&self, position: usize) {
        // Every 256th step is enough for a reader, and the others cost one test only.
        if position.is_multiple_of(STEP) {
            self.0.bar.set_position(position as u64);
        }
    }

    fn inc_length(&self, length: u64) {
        self.0.bar.inc_length(length);
        let unit = *self.unit();
        // The style depends on a known length: with one there is a bar instead of a spinner.
        self.0.bar.set_style(style(unit, true));
    }

    fn end(&self) {
        self.0.end();
    }
}

impl SharedBar {
    fn end(&self) {
        let watcher = self.watcher.lock().ok();
        // `take` makes the end idempotent: clones and the drop call it again.
        if let Some((end, thread)) = watcher.and_then(|mut watcher| watcher.take()) {
            // The dropped sender wakes the watcher at once, so a short command does not wait for a
            // tick.
            drop(end);
            // A panic there has been reported, and costs no result.
            let _ = thread.join();
            // After the join no other thread draws, so the line stays cleared.
            self.bar.finish_and_clear();
            BARS.remove(&self.bar);
        }
    }
}

impl Drop for SharedBar {
    fn drop(&mut self) {
        self.end();
    }
}

/// Writes something while no bar is on the terminal; bars come back below it.
pub(crate) fn beside<T>(write: impl FnOnce() -> T) -> T {
    BARS.suspend(write)
}

/// Delay before progress appears.
fn after() -> Duration {
    static DELAY: OnceLock<Duration> = OnceLock::new();
    *DELAY.get_or_init(|| {
        if std::env::var("HEADSTART_LOG_FORMAT").is_ok_and(|format| format == "json") {
            return NEVER;
        }
        let given = std::env::var("HEADSTART_PROGRESS_AFTER_MS").ok();
        let given = given.and_then(|text| text.parse().ok());
        given.map_or(AFTER, Duration::from_millis)
    })
}

/// Shows progress after a while, until the work has ended.
fn watch(bar: &ProgressBar, ended: &Receiver<()>) {
    // A closed channel means that the work ended; only a timeout means that it continues.
    let has_ended = |wait| ended.recv_timeout(wait) != Err(RecvTimeoutError::Timeout);
    if !after().is_zero() {
        if has_ended(after()) {
            return;
        }
        show(bar);
    }
    // Standard error is no terminal, so lines appear instead of a bar.
    if BARS.is_hidden() {
        while !has_ended(EVERY) {
            to_stderr(&(line(bar) + "\n"));
        }
    } else {
        while !has_ended(TICK) {
            bar.tick();
        }
    }
}

fn show(bar: &ProgressBar) {
    if BARS.is_hidden() {
        to_stderr(&(line(bar) + "\n"));
    } else {
        BARS.add(bar.clone()).tick();
    }
}

/// The bar in words.
fn line(bar: &ProgressBar) -> String {
    let (what, done) = (bar.message(), bar.position());
    match bar.length() {
        // Without any step done there is no speed to estimate from.
        Some(length) if done > 0 && length > 0 => format!(
            "{what}: {:.0} %, about {:#} left",
            (100.0 * done as f64 / length as f64).min(100.0),
            HumanDuration(bar.eta())
        ),
        _ if bar.elapsed() > AFTER => format!("{what}: {:#} so far", HumanDuration(bar.elapsed())),
        _ => what,
    }
}

fn style(unit: ProgressUnit, has_length: bool) -> ProgressStyle {
    let template = match (unit, has_length) {
        (ProgressUnit::Steps, true) => "{msg} {wide_bar} {human_pos}/{human_len} (eta {left})",
        (ProgressUnit::Bytes, true) => "{msg} {wide_bar} {bytes}/{total_bytes} (eta {left})",
        (ProgressUnit::Steps, false) => "{spinner} {msg} ({elapsed})",
        (ProgressUnit::Bytes, false) => "{spinner} {msg}: {bytes} ({elapsed})",
    };
    let style = ProgressStyle::with_template(template).expect("the template is valid");
    style.with_key("left", |state: &indicatif::ProgressState, out: &mut dyn std::fmt::Write| {
        // A failed write of a `String` does not exist.
        let _ = match state.pos() {
            0 => write!(out, "unknown"),
            _ => write!(out, "{:#}", HumanDuration(state.eta())),
        };
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_terminal_progress_is_a_line() {
        let bar = ProgressBar::hidden().with_message("replaying");
        assert_eq!(line(&bar), "replaying");
        bar.set_length(200);
        bar.set_position(50);
        let shown = line(&bar);
        assert!(shown.starts_with("replaying: 25 %, about "), "{shown}");
    }

    #[test]
    fn a_phase_has_its_own_count() {
        let progress = TaskProgress::bytes("reading");
        progress.inc_length(10);
        progress.inc(10);
        progress.phase("comparing", Some(3));
        progress.inc(1);
        let bar = &progress.0.bar;
        assert_eq!((bar.position(), bar.length()), (1, Some(3)));
        progress.phase("replaying", None);
        assert_eq!((bar.position(), bar.length()), (0, None));
    }
}
