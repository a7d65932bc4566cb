//! The events of a request on a replica, from the engine to the request's task.

use std::collections::HashMap;

use headstart_core::SeqId;
use headstart_engine::{Output, Submit};
use tokio::sync::mpsc;

/// Event of a request that its replica reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaEvent {
    /// It was not taken.
    Refused(Submit),
    /// It runs, and its engine says this of it.
    Output(Output),
}

/// The requests on a replica, and where their events go.
pub(super) type Clients = HashMap<SeqId, mpsc::Sender<ReplicaEvent>>;

pub(super) fn tell(output: Output, clients: &mut Clients) {
    let seq = output.seq();
    if let Some(client) = clients.get(&seq) {
        // A closed channel is an abandoned request: cancelled before the next step.
        let _ = client.try_send(ReplicaEvent::Output(output));
    }
    // The last token ends the request. Without its sender the client's stream ends as well.
    if matches!(output, Output::Token { finish: Some(_), .. }) {
        clients.remove(&seq);
    }
}
