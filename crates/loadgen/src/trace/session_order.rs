//! Requests of one session, one after the other.

use std::collections::HashMap;

use headstart_core::SessionId;
use tokio::sync::oneshot;

/// The last request of each session.
#[derive(Debug, Default)]
pub(super) struct SessionOrder {
    last: HashMap<SessionId, oneshot::Receiver<()>>,
}

/// The place of a request in its session.
#[derive(Debug)]
pub(super) struct SessionTurn {
    before: Option<oneshot::Receiver<()>>,
    /// Its end, or its loss, lets the next request go.
    end: oneshot::Sender<()>,
}

impl SessionOrder {
    /// The next request of a session.
    pub(super) fn turn(&mut self, session: SessionId) -> SessionTurn {
        let (end, ended) = oneshot::channel();
        SessionTurn { before: self.last.insert(session, ended), end }
    }
}

impl SessionTurn {
    /// Waits for the request before. The next one waits until the returned value is dropped.
    pub(super) async fn taken(self) -> oneshot::Sender<()> {
        if let Some(before) = self.before {
            // It is an error that the other end is dropped, and that is what ends a request.
            let _ = before.await;
        }
        self.end
    }
}
