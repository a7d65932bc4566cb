//! The terminal: its size, its keys one by one, and giving it back as it was, whatever happens.

use std::io::{Read, Write};

use anyhow::{Context, Result};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::signal::unix::{SignalKind, signal};

/// A screen of its own, without a cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";

/// The screen that was there before.
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// Ctrl-C and Ctrl-D, as bytes.
const INTERRUPT: u8 = 3;
const END: u8 = 4;

/// A key press.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyPress {
    /// To end.
    Quit,
    /// To see the next frame now.
    Other,
}

/// The terminal while it is ours.
pub(super) struct Terminal {
    before: Termios,
}

/// Columns and rows; none where there is no terminal.
pub(super) fn size() -> Option<(usize, usize)> {
    let size = tcgetwinsize(std::io::stdout()).ok()?;
    // Some terminals report a size of zero.
    let (columns, rows) = (usize::from(size.ws_col), usize::from(size.ws_row));
    (columns > 0 && rows > 0).then_some((columns, rows))
}

impl Terminal {
    /// Takes the terminal: keys are not shown and come one by one to `press`, which says whether to
    /// continue.
    ///
    /// # Errors
    /// When there is no terminal, or it cannot be set.
    pub(super) fn take(press: impl Fn(KeyPress) -> bool + Clone + Send + 'static) -> Result<Self> {
        let stdin = std::io::stdin();
        let before = tcgetattr(&stdin).context("cannot read the terminal settings")?;
        let mut ours = before.clone();
        // Signals are off: Ctrl-C comes as a byte, so that the screen is given back first.
        ours.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        tcsetattr(&stdin, OptionalActions::Now, &ours).context("cannot set the terminal")?;
        // The guard exists before anything else can fail, so the settings always return.
        let terminal = Self { before };
        listen(press);
        write(ENTER)?;
        Ok(terminal)
    }

    /// Shows a frame in place of the last one.
    pub(super) fn draw(&mut self, lines: &[String]) -> Result<()> {
        // The cursor goes home and lines are overwritten: clearing the screen would flicker.
        let mut frame = "\x1b[H".to_owned();
        for (at, line) in lines.iter().enumerate() {
            // Each line clears its rest, where a longer one was before.
            frame.extend([if at > 0 { "\r\n" } else { "" }, line, "\x1b[K"]);
        }
        // Rows of a taller frame before this one are cleared as well.
        frame.push_str("\x1b[J");
        write(&frame)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Nothing can be done about a terminal that is gone.
        let _ = write(LEAVE);
        // The settings are restored even if the screen could not be.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.before);
    }
}

fn write(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(text.as_bytes());
    written.and_then(|()| stdout.flush()).context("cannot write to the terminal")
}

/// Keys and signals that end it, from threads that end with the process.
fn listen(press: impl Fn(KeyPress) -> bool + Clone + Send + 'static) {
    let signals = press.clone();
    std::thread::spawn(move || {
        for byte in std::io::stdin().lock().bytes().map_while(Result::ok) {
            if !press(key(byte)) {
                return;
            }
        }
        // Standard input has ended: no key can come any more.
        press(KeyPress::Quit);
    });
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        // Without a runtime only keys end the program.
        let Ok(runtime) = runtime else { return };
        runtime.block_on(async {
            let kinds = (signal(SignalKind::terminate()), signal(SignalKind::hangup()));
            if let (Ok(mut terminate), Ok(mut hang_up)) = kinds {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = hang_up.recv() => {}
                }
                // The answer does not matter here: this thread ends either way.
                signals(KeyPress::Quit);
            }
        });
    });
}

fn key(byte: u8) -> KeyPress {
    match byte {
        b'q' | b'Q' | INTERRUPT | END => KeyPress::Quit,
        _ => KeyPress::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q_and_ctrl_c_quit() {
        let keys = [b'q', b'Q', 3, 4, b' ', b'j'].map(key);
        let expected = [
            KeyPress::Quit,
            KeyPress::Quit,
            KeyPress::Quit,
            KeyPress::Quit,
            KeyPress::Other,
            KeyPress::Other,
        ];
        assert_eq!(keys, expected);
    }
}
