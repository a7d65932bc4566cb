//! `headstart top`: a running server in a terminal, once a second.
//!
//! | module | does |
//! |---|---|
//! | `frame` | a snapshot as lines of a given width and height; pure |
//! | `line` | pieces of text with their styles, cut to a width |
//! | `terminal` | the terminal: keys, its size, and giving it back as it was |

mod frame;
mod line;
mod terminal;

use std::io::IsTerminal;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use headstart_server::dashboard::Snapshot;
use headstart_terminal::{self as output, colour};

use crate::exit::usage;
use crate::server::ServerOptions;
use frame::Frame;
use terminal::{KeyPress, Terminal};

/// Time between two frames.
const PERIOD: Duration = Duration::from_secs(1);

/// An answer that is older is said to be.
const LATE: Duration = Duration::from_secs(3);

/// Keys and answers that wait to be looked at.
const EVENTS: usize = 64;

/// Columns of a terminal that does not say how many it has.
const COLUMNS: usize = 100;

/// Show a running server: hit rate, losses, replicas, requests.
#[derive(Args, Debug)]
#[command(after_help = include_str!("top.help.txt"))]
pub(crate) struct Top {
    #[command(flatten)]
    server: ServerOptions,
    /// Print one frame and exit
    #[arg(long)]
    once: bool,
    /// Print one snapshot as JSON and exit
    #[arg(long, conflicts_with = "once")]
    json: bool,
}

/// Shows it.
pub(crate) fn run(top: &Top) -> Result<()> {
    // JSON needs no terminal, so it goes before the check.
    if top.json {
        return output::line(&top.server.snapshot()?.to_string());
    }
    let is_terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if top.once {
        // A pipe or a file gets uncut lines.
        let columns = terminal::size().map_or(usize::MAX, |(columns, _)| columns);
        let frame = Frame {
            columns,
            rows: usize::MAX,
            has_colours: std::io::stdout().is_terminal() && colour::are_wanted(),
        };
        return output::line(&frame.of(&snapshot(&top.server)?).join("\n"));
    }
    // Escape codes in a file or a pipe would be no frames.
    if !is_terminal {
        bail!(usage(
            "standard output is not a terminal; use --once for one frame, or --json \
                       for the figures"
        ));
    }
    watch(&top.server)
}

fn snapshot(server: &ServerOptions) -> Result<Snapshot> {
    let is_known = serde_json::from_value(server.snapshot()?);
    is_known.map_err(|error| {
        anyhow::anyhow!(
            "{} has a different snapshot format ({error}): is it a different version? Look at its \
             page in a browser instead",
            server.url
        )
    })
}

/// A key press or an answer of the server.
enum TopEvent {
    Pressed(KeyPress),
    /// The server answered, or did not.
    Told(Result<Box<Snapshot>>),
}

/// Latest state of the server.
struct LatestSnapshot {
    last: Box<Snapshot>,
    told_at: Instant,
    trouble: Option<String>,
}

impl LatestSnapshot {
    /// Records a late answer as trouble, unless there already is some.
    fn note_lateness(&mut self) {
        // An error that was reported already says more than its lateness.
        if self.trouble.is_none() && self.told_at.elapsed() > LATE {
            self.trouble = Some("it does not answer".to_owned());
        }
    }
}

/// Frame after frame until a key ends it. The server is asked on a thread of its own, which ends
/// with the process: whatever it does, keys are obeyed at once.
fn watch(server: &ServerOptions) -> Result<()> {
    // What is wrong from the start is said as by any command.
    let seen = LatestSnapshot {
        last: Box::new(snapshot(server)?),
        told_at: Instant::now(),
        trouble: None,
    };
    let (sender, events) = sync_channel(EVENTS);
    // A channel of one slot: several key presses ask the server once.
    let (wake, woken) = sync_channel(1);
    let (asked, answers) = (server.clone(), sender.clone());
    std::thread::spawn(move || {
        // A timeout asks again after a period; a wake-up asks at once.
        while woken.recv_timeout(PERIOD) != Err(RecvTimeoutError::Disconnected) {
            if answers.send(TopEvent::Told(snapshot(&asked).map(Box::new))).is_err() {
                return;
            }
        }
    });
    // The terminal is taken after the first answer, so an error is printed on a normal screen.
    let mut terminal = Terminal::take(move |key| sender.send(TopEvent::Pressed(key)).is_ok())?;
    follow(seen, &events, &wake, |seen| {
        let (columns, rows) = terminal::size().unwrap_or((COLUMNS, 24));
        let frame = Frame { columns, rows, has_colours: colour::are_wanted() };
        terminal.draw(&match &seen.trouble {
            None => frame.of(&seen.last),
            Some(error) => frame.stale(&seen.last, seen.told_at.elapsed(), error),
        })
    })
}

/// Draws whenever something happened, and once a second; any key but those that end it asks the
/// server now. Before each frame it is looked whether an answer is overdue, so that keys, however
/// many, never hide that.
fn follow(
    mut seen: LatestSnapshot,
    events: &Receiver<TopEvent>,
    wake: &SyncSender<()>,
    mut draw: impl FnMut(&LatestSnapshot) -> Result<()>,
) -> Result<()> {
    loop {
        // Lateness is checked before each frame, because events may arrive more often than the
        // timeout.
        seen.note_lateness();
        draw(&seen)?;
        match events.recv_timeout(PERIOD) {
            Ok(TopEvent::Pressed(KeyPress::Quit)) | Err(RecvTimeoutError::Disconnected) => {
                return Ok(());
            }
            // Where it is being asked already, that will do.
            Ok(TopEvent::Pressed(KeyPress::Other)) => drop(wake.try_send(())),
            Ok(TopEvent::Told(Ok(next))) => {
                // An answer clears the trouble of the one before.
                (seen.last, seen.told_at, seen.trouble) = (next, Instant::now(), None);
            }
            Ok(TopEvent::Told(Err(error))) => seen.trouble = Some(error.to_string()),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Draws frames until the events end, and returns the trouble in each.
    fn frames(told_at: Instant, events: Vec<TopEvent>) -> Vec<Option<String>> {
        let (sender, received) = sync_channel(EVENTS);
        events.into_iter().for_each(|event| sender.send(event).expect("it fits"));
        let (wake, _woken) = sync_channel(1);
        let seen = LatestSnapshot { last: Box::default(), told_at, trouble: None };
        let mut drawn = Vec::new();
        let followed = follow(seen, &received, &wake, |seen| {
            drawn.push(seen.trouble.clone());
            Ok(())
        });
        followed.expect("nothing fails");
        // The sender lives to here: nothing but a key has ended it.
        drop(sender);
        drawn
    }

    #[test]
    fn a_key_ends_it_though_the_server_never_answers() {
        let quit = || TopEvent::Pressed(KeyPress::Quit);
        assert_eq!(frames(Instant::now(), vec![quit()]), [None]);
        let pressed =
            vec![TopEvent::Pressed(KeyPress::Other), TopEvent::Pressed(KeyPress::Other), quit()];
        assert_eq!(frames(Instant::now(), pressed).len(), 3);
    }

    #[test]
    fn a_late_answer_is_told_however_many_keys_are_pressed() {
        let long_ago = Instant::now().checked_sub(2 * LATE);
        let long_ago = long_ago.expect("the machine is up for longer");
        let late = || Some("it does not answer".to_owned());
        let pressed = vec![TopEvent::Pressed(KeyPress::Other), TopEvent::Pressed(KeyPress::Quit)];
        assert_eq!(frames(long_ago, pressed), [late(), late()]);
        let told = vec![
            TopEvent::Pressed(KeyPress::Other),
            TopEvent::Told(Ok(Box::default())),
            TopEvent::Pressed(KeyPress::Quit),
        ];
        assert_eq!(frames(long_ago, told), [late(), late(), None]);
    }

    #[test]
    fn trouble_is_shown_until_an_answer_comes() {
        let told = vec![
            TopEvent::Told(Err(anyhow::anyhow!("gone"))),
            TopEvent::Told(Ok(Box::default())),
            TopEvent::Pressed(KeyPress::Quit),
        ];
        let expected = [None, Some("gone".to_owned()), None];
        assert_eq!(frames(Instant::now(), told), expected);
    }
}
