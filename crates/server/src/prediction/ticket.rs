//! State shared by a request and the question about it. The request's place, its end and the
//! model's answer meet under one lock, so that the number is sent at most once.

use std::sync::{Mutex, MutexGuard};

use headstart_core::{Probability, SeqId};

use crate::lock::lock;

/// One request's part of a question.
#[derive(Debug, Default)]
pub(super) struct PredictionTicket(Mutex<TicketState>);

#[derive(Debug, Default)]
struct TicketState {
    p: Option<Probability>,
    place: Option<(usize, SeqId)>,
    /// A replica was told, or it is too late for that.
    is_sent: bool,
    is_over: bool,
}

/// Destination of a predicted probability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Addressee {
    /// This sequence of this replica.
    Sequence(usize, SeqId),
    /// The request has no place yet and will take the number along.
    Request,
    /// No destination: the request is over.
    Nobody,
}

impl PredictionTicket {
    /// The model has answered.
    pub(super) fn answer(&self, p: Probability) -> Addressee {
        let mut state = self.state();
        state.p = Some(p);
        let addressee = match state.place {
            _ if state.is_over => Addressee::Nobody,
            Some((replica, seq)) => Addressee::Sequence(replica, seq),
            None => Addressee::Request,
        };
        state.is_sent = addressee != Addressee::Request;
        addressee
    }

    /// The model's number, if it has arrived.
    pub(super) fn answered(&self) -> Option<Probability> {
        self.state().p
    }

    /// The request was submitted to a replica. Returns the number that the caller must send there:
    /// of this call and [`answer`](Self::answer), the second one has it sent.
    pub(super) fn place(&self, replica: usize, seq: SeqId) -> Option<Probability> {
        let mut state = self.state();
        state.place = Some((replica, seq));
        let known = state.p.filter(|_| !state.is_sent);
        state.is_sent |= known.is_some();
        known
    }

    /// The request is over. Returns the number that came and was sent to no replica. One that comes
    /// later is for [`Addressee::Nobody`].
    pub(super) fn end(&self) -> Option<Probability> {
        let mut state = self.state();
        state.is_over = true;
        state.p.filter(|_| !state.is_sent)
    }

    fn state(&self) -> MutexGuard<'_, TicketState> {
        lock(&self.0)
    }
}
