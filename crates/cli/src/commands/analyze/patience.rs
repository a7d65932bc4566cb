//! A progress bar for those who have waited for a while.

use std::io::Read;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Delay before the progress bar appears.
const PATIENCE: Duration = Duration::from_secs(2);

/// Requests between two looks at the clock.
const LOOK_EVERY: usize = 256;

/// A bar on standard error that shows itself after [`PATIENCE`]; nothing where that is no
/// terminal.
pub(crate) struct Patience {
    bar: ProgressBar,
    begin: Instant,
}

impl Patience {
    /// Begins to wait.
    pub(crate) fn new() -> Self {
        Self {
            bar: ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden()),
            begin: Instant::now(),
        }
    }

    /// `raw`, `bytes` long, whose bytes are counted as they are read.
    pub(crate) fn counted(&self, raw: impl Read + 'static, bytes: u64) -> Box<dyn Read> {
        self.bar.inc_length(bytes);
        Box::new(self.bar.wrap_read(raw))
    }

    /// Called at the `number`th request.
    pub(crate) fn look(&mut self, number: usize) {
        if number.is_multiple_of(LOOK_EVERY) && self.bar.is_hidden() {
            self.show_if_due();
        }
    }

    /// Tells what comes now.
    pub(crate) fn says(&mut self, what: &'static str) {
        self.bar.set_message(what);
        self.show_if_due();
    }

    /// Takes the bar away.
    pub(crate) fn is_over(&self) {
        self.bar.finish_and_clear();
    }

    fn show_if_due(&mut self) {
        if self.begin.elapsed() > PATIENCE && self.bar.is_hidden() {
            let template = "{wide_bar} {bytes}/{total_bytes} {elapsed} {msg}";
            let style = ProgressStyle::with_template(template);
            self.bar.set_style(style.expect("the template is valid"));
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }
}
