//! Causes of a publisher socket's failure, worded for the operator who has to fix it.
//!
//! It does not know sockets: causes are found in `probe`, `link` and `replay`, and told in
//! `notes`. Names of options are those of `serve --upstream`, whose addresses these are.

use std::fmt;

/// One of a publisher's two sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The socket that publishes events.
    Events,
    /// The socket that replays old batches.
    Replay,
}

/// A problem with one of these sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SocketProblem {
    /// The host has no address.
    Unresolved,
    /// No process listens at this port.
    Refused,
    /// The system says why there is no connection.
    Unreachable(String),
    /// An attempt to connect gets no answer.
    NoAnswer,
    /// A process listens and sends nothing.
    Mute,
    /// A process listens and speaks another protocol.
    NotZeroMq,
    /// ZeroMQ, but a kind of socket that does not fit ours.
    OtherSocket,
    /// The publisher ended a connection that had worked.
    Closed,
    /// ZeroMQ says why a connection is of no use.
    Broken(String),
    /// A replay brought batches that the live socket should have brought.
    Silent,
    /// A request for a replay got no answer.
    Unanswered,
    /// An answer began and did not come to its end.
    Unfinished,
}

impl Side {
    /// The option that sets its address.
    fn option(self) -> &'static str {
        match self {
            Self::Events => "kv=",
            Self::Replay => "replay=",
        }
    }

    /// Name of its address in the engines' `--kv-events-config`.
    fn setting(self) -> &'static str {
        match self {
            Self::Events => "`endpoint`",
            Self::Replay => "`replay_endpoint`",
        }
    }
}

impl fmt::Display for SocketProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unresolved => "the host name cannot be resolved",
            Self::Refused => "nothing listens at this port (connection refused)",
            Self::NoAnswer => "no answer to attempts to connect",
            Self::Mute => {
                "it accepts connections and sends nothing: it is not ZeroMQ, or the process hangs"
            }
            Self::NotZeroMq => "what listens there does not speak ZeroMQ",
            Self::OtherSocket => "a ZeroMQ socket of another kind answers there",
            Self::Closed => "the publisher closed the connection",
            Self::Silent => "it is silent while the replay address brings new batches",
            Self::Unanswered => "requests for missed batches get no answer",
            Self::Unfinished => "answers to requests for missed batches do not come to their end",
            Self::Unreachable(why) | Self::Broken(why) => why,
        })
    }
}

impl SocketProblem {
    /// Suggests a fix for the stream of data-parallel rank `rank`.
    pub(super) fn remedy(&self, side: Side, rank: Option<u32>) -> String {
        let (option, setting) = (side.option(), side.setting());
        let mut remedy = match self {
            Self::Unresolved => format!("correct the host in {option}"),
            Self::Refused | Self::Unreachable(_) | Self::NoAnswer => format!(
                "{option} is to name the engine's host and the port of {setting} in its \
                 --kv-events-config; is that set, and does a firewall let it through?"
            ),
            Self::Mute | Self::NotZeroMq => format!(
                "{option} is to name the port of {setting} in the engine's --kv-events-config, \
                 not its HTTP port"
            ),
            Self::OtherSocket => "kv= is where the engine publishes (`endpoint`), replay= where \
                                  it replays (`replay_endpoint`); are they swapped?"
                .to_owned(),
            Self::Closed | Self::Broken(_) => {
                "if it stays so, look into the engine's log; the gateway reconnects by itself"
                    .to_owned()
            }
            Self::Silent => {
                "do kv= and replay= name the same engine, and the same rank?".to_owned()
            }
            Self::Unanswered | Self::Unfinished => format!(
                "is {option} the engine's {setting}? Until it answers, what is missed stays unknown"
            ),
        };
        if let (Some(rank @ 1..), Self::Refused | Self::NoAnswer) = (rank, self) {
            remedy += &format!(
                " Rank {rank} is looked for at rank 0's port plus {rank}: is data-parallel-size \
                 right?"
            );
        }
        remedy
    }
}
