//! Asks a publisher for old batches, in a task of its own, so that live messages go on being
//! read meanwhile.
//!
//! How long to wait for an answer is not decided here: the stream gives up by dropping it.

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use zeromq::{DealerSocket, Socket, SocketOptions, SocketRecv, SocketSend, ZmqError};

use super::cause::SocketProblem;
use super::link::CONNECT_TIME_MAX;
use super::probe;
use crate::wire::{self, Reply};

/// Replies read ahead of their use; each is at most one payload.
const REPLIES_MAX: usize = 64;

/// A replay on its way. Dropping it ends it.
#[derive(Debug)]
pub(super) struct ReplayTask {
    replies: mpsc::Receiver<Result<Reply, SocketProblem>>,
    task: JoinHandle<()>,
}

impl ReplayTask {
    /// Asks the router socket at `endpoint` for everything from batch `from` on.
    pub(super) fn start(endpoint: String, from: u64) -> Self {
        let (sender, replies) = mpsc::channel(REPLIES_MAX);
        let task = tokio::spawn(async move {
            if let Err(error) = ask(&endpoint, from, &sender).await {
                tracing::debug!(endpoint, from, %error, "a replay broke off");
                let cause = probe::cause_of(&error, &endpoint).await;
                // Without a receiver the cause is of no interest.
                let _ = sender.send(Err(cause)).await;
            }
        });
        Self { replies, task }
    }

    /// Waits for the next reply, or the reason why the replay broke off. Cancelling loses nothing.
    pub(super) async fn next(&mut self) -> Result<Reply, SocketProblem> {
        let next = self.replies.recv().await;
        next.unwrap_or(Err(SocketProblem::Unfinished))
    }
}

impl Drop for ReplayTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Passes on replies up to the end; stops silently once the receiver is gone.
async fn ask(
    endpoint: &str,
    from: u64,
    replies: &mpsc::Sender<Result<Reply, SocketProblem>>,
) -> Result<(), ZmqError> {
    let mut options = SocketOptions::default();
    options.connect_timeout(CONNECT_TIME_MAX);
    let mut socket = DealerSocket::with_options(options);
    socket.connect(endpoint).await?;
    socket.send(wire::request(from)).await?;
    loop {
        match wire::parse_reply(socket.recv().await?) {
            Ok(reply) => {
                let is_end = reply == Reply::End;
                // A full channel stops the reading, so a long replay cannot fill the memory.
                if replies.send(Ok(reply)).await.is_err() || is_end {
                    return Ok(());
                }
            }
            // One bad reply may be followed by good ones, and the stream limits the wait for them.
            Err(error) => tracing::debug!(%error, "a reply was ignored"),
        }
    }
}
