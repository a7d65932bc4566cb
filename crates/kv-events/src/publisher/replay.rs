//! Sends old batches to subscribers that missed them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use zeromq::{RouterSocket, Socket, SocketRecv, SocketSend, ZmqMessage};

use super::ring::ReplayBuffer;
use crate::wire;

/// Longest time that one replay may take to send: a peer that reads more slowly is cut short, so
/// that it does not keep others waiting.
const REPLAY_SEND_TIME_MAX: Duration = Duration::from_secs(2);

/// Wait after a failed receive on the replay socket, so that a persistent failure does not spin.
const REPLAY_ERROR_PAUSE: Duration = Duration::from_millis(100);

/// Answers replay requests, one at a time, in a task of its own: a slow peer must not delay live
/// messages.
pub(super) struct ReplayServer {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl ReplayServer {
    /// Serves `ring` on a bound socket.
    pub(super) fn start(
        mut socket: RouterSocket,
        topic: Bytes,
        ring: Arc<Mutex<ReplayBuffer>>,
    ) -> Self {
        let (stop, mut stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            loop {
                tokio::select! {
                    request = socket.recv() => match request {
                        // One request at a time: a hostile peer can hold up other replays, but not
                        // live messages.
                        Ok(request) => answer(&mut socket, request, &topic, &ring).await,
                        Err(error) => {
                            tracing::debug!(%error, "the replay socket failed");
                            tokio::time::sleep(REPLAY_ERROR_PAUSE).await;
                        }
                    },
                    _ = &mut stopped => break,
                }
            }
            socket.unbind_all().await;
        });
        Self { stop, task }
    }

    /// Frees the port.
    pub(super) async fn stop(self) {
        // The receiver sees a dropped sender as an end.
        drop(self.stop);
        if let Err(error) = self.task.await {
            tracing::warn!(%error, "the replay task failed");
        }
    }
}

async fn answer(
    socket: &mut RouterSocket,
    request: ZmqMessage,
    topic: &Bytes,
    ring: &Mutex<ReplayBuffer>,
) {
    let (identity, start) = match wire::parse_request(request) {
        Ok(request) => request,
        Err(error) => {
            tracing::debug!(%error, "a replay request was ignored");
            return;
        }
    };
    // The lock ends here: the copies share their bytes, and sending must not stop the live task.
    let batches = ring.lock().expect("no panic in the ring").since(start);
    let send = async {
        for batch in batches {
            socket.send(wire::reply(identity.clone(), topic.clone(), batch)).await?;
        }
        // Sent even where there was no batch: the end tells the subscriber that older ones are
        // gone.
        socket.send(wire::end(identity.clone())).await
    };
    match tokio::time::timeout(REPLAY_SEND_TIME_MAX, send).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, start, "a replay was not sent"),
        // No end is sent, so the subscriber counts this replay as failed.
        Err(_) => tracing::debug!(start, "a replay took too long"),
    }
}
