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
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use headstart_server::dashboard::Snapshot;

use crate::config::UsageError;
use crate::output;
use crate::server::Server;
use frame::Frame;
use terminal::{Key, Terminal};

/// Where a server tells all this.
const PATH: &str = "/dashboard/snapshot";

/// Longest snapshot that is read: some 100 KB, and room for thousands of replicas.
const SNAPSHOT_BYTES_MAX: usize = 16 << 20;

/// Time between two frames.
const PERIOD: Duration = Duration::from_secs(1);

/// Columns of a frame that is printed where there is no terminal to ask.
const COLUMNS: usize = 100;

/// A running server in the terminal: hit rate, losses, replicas, prefixes, requests.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  headstart top
  headstart top --url http://10.0.0.1:8000 --api-key-file key
  headstart top --once
  headstart top --json | jq .waterfall

q or Ctrl-C quits. The same is to be seen in a browser, at the server's address.")]
pub(crate) struct Top {
    #[command(flatten)]
    server: Server,
    /// Print one frame and end
    #[arg(long)]
    once: bool,
    /// Print one snapshot as JSON and end
    #[arg(long, conflicts_with = "once")]
    json: bool,
}

/// Shows it.
pub(crate) fn run(top: &Top) -> Result<()> {
    if top.json {
        let told = top.server.json(PATH, SNAPSHOT_BYTES_MAX)?;
        return output::line(&told.to_string());
    }
    let is_terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if top.once {
        let columns = terminal::size().map_or(COLUMNS, |(columns, _)| columns);
        let frame = Frame {
            columns,
            rows: usize::MAX,
            has_colours: std::io::stdout().is_terminal() && has_colours(),
        };
        return output::line(&frame.of(&snapshot(&top.server)?).join("\n"));
    }
    if !is_terminal {
        let message = "this is no terminal: --once prints one frame, --json the figures";
        return Err(UsageError(message.to_owned()).into());
    }
    watch(&top.server)
}

fn snapshot(server: &Server) -> Result<Snapshot> {
    let told = server.json(PATH, SNAPSHOT_BYTES_MAX)?;
    let is_known = serde_json::from_value(told);
    is_known.map_err(|error| {
        anyhow::anyhow!(
            "{} tells its figures in another form ({error}): is it of another version? Look at its \
             page in a browser instead",
            server.url
        )
    })
}

/// Whether the environment wants colours, as <https://no-color.org> has it.
fn has_colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Frame after frame until a key ends it.
fn watch(server: &Server) -> Result<()> {
    // What is wrong from the start is said as by any command.
    let mut last = snapshot(server)?;
    let mut told_at = Instant::now();
    let mut trouble: Option<String> = None;
    let mut terminal = Terminal::take()?;
    loop {
        let (columns, rows) = terminal::size().unwrap_or((COLUMNS, 24));
        let frame = Frame {
            columns,
            rows,
            has_colours: has_colours(),
        };
        let lines = match &trouble {
            None => frame.of(&last),
            Some(error) => frame.stale(&last, told_at.elapsed(), error),
        };
        terminal.draw(&lines)?;
        match terminal.key(PERIOD) {
            Some(Key::Quit) => return Ok(()),
            Some(Key::Other) | None => {}
        }
        match snapshot(server) {
            Ok(next) => {
                (last, told_at, trouble) = (next, Instant::now(), None);
            }
            Err(error) => trouble = Some(error.to_string()),
        }
    }
}
