//! Asks a publisher for old batches, in a task of its own, so that live messages go on being
//! read meanwhile.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use zeromq::{DealerSocket, Socket, SocketOptions, SocketRecv, SocketSend, ZmqError};

use super::link::CONNECT_TIME_MAX;
use crate::events::wire::{self, Reply};

/// Longest wait for the next message of a replay. Publishers answer between two engine steps or
/// from a thread of their own.
const REPLY_TIME_MAX: Duration = Duration::from_secs(2);

/// Longest replay as a whole, which also bounds how long live batches wait: 10,000 batches take
/// well under a second on a local network.
const REPLAY_TIME_MAX: Duration = Duration::from_secs(30);

/// Replies read ahead of their use; each is at most one payload.
const REPLIES_MAX: usize = 64;

/// What a running replay says.
#[derive(Debug)]
pub(super) enum ReplayNews {
    /// A batch or the end.
    Reply(Reply),
    /// It broke off.
    Failed,
}

/// A replay on its way. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Replay {
    replies: mpsc::Receiver<Reply>,
    task: JoinHandle<()>,
}

impl Replay {
    /// Asks the router socket at `endpoint` for everything from batch `from` on.
    pub(super) fn start(endpoint: String, from: u64) -> Self {
        let (sender, replies) = mpsc::channel(REPLIES_MAX);
        let task = tokio::spawn(async move {
            let asked = timeout(REPLAY_TIME_MAX, ask(&endpoint, from, &sender)).await;
            match asked.unwrap_or(Err(ReplayError::Timeout)) {
                Ok(()) => {}
                Err(error) => tracing::debug!(endpoint, from, %error, "a replay broke off"),
            }
        });
        Self { replies, task }
    }

    /// What it says next. Cancelling loses nothing. After the end or a failure: failed.
    pub(super) async fn next(&mut self) -> ReplayNews {
        let reply = self.replies.recv().await;
        reply.map_or(ReplayNews::Failed, ReplayNews::Reply)
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Debug, thiserror::Error)]
enum ReplayError {
    #[error("no answer in time")]
    Timeout,
    #[error(transparent)]
    Socket(#[from] ZmqError),
}

/// Passes on replies up to the end; silently stops where nobody wants them any more.
async fn ask(endpoint: &str, from: u64, replies: &mpsc::Sender<Reply>) -> Result<(), ReplayError> {
    let mut options = SocketOptions::default();
    options.connect_timeout(CONNECT_TIME_MAX);
    let mut socket = DealerSocket::with_options(options);
    socket.connect(endpoint).await?;
    socket.send(wire::request(from)).await?;
    loop {
        let message = timeout(REPLY_TIME_MAX, socket.recv()).await;
        let message = message.map_err(|_| ReplayError::Timeout)??;
        match wire::parse_reply(message) {
            Ok(reply) => {
                let is_end = reply == Reply::End;
                if replies.send(reply).await.is_err() || is_end {
                    return Ok(());
                }
            }
            Err(error) => tracing::debug!(%error, "a reply was ignored"),
        }
    }
}
