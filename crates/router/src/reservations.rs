//! The requests in flight, by reservation: whom each occupies and how far it is.
//!
//! Reservations are never given out twice, and a call about one that has ended has no effect:
//! clients hang up and replicas vanish at any time, so ends come twice or too late.

use std::collections::BTreeMap;

use headstart_core::ReplicaId;

use crate::load::{InFlight, Phase};
use crate::lookup::StableMap;
use crate::request::ReservationId;

/// All live reservations of one router.
#[derive(Debug, Default)]
pub(crate) struct Reservations {
    live: StableMap<ReservationId, RequestReservation>,
    next: u64,
}

/// One request's place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RequestReservation {
    pub(crate) replica: ReplicaId,
    pub(crate) phase: Phase,
    /// Prompt tokens that were thought to be cached there.
    pub(crate) overlap_tokens: usize,
    /// Whether that follows from exact tokens.
    pub(crate) is_exact: bool,
    /// Estimated seconds of work for its prompt.
    pub(crate) work_s: f64,
}

impl Reservations {
    pub(crate) fn open(&mut self, reservation: RequestReservation) -> ReservationId {
        let id = ReservationId(self.next);
        self.next += 1;
        self.live.insert(id, reservation);
        id
    }

    /// Its prompt is computed. Returns how it was before; none if it has ended or that was said.
    pub(crate) fn advance(&mut self, id: ReservationId) -> Option<RequestReservation> {
        let live = self.live.get_mut(&id)?;
        let before = *live;
        let Phase::Prefill { tokens } = before.phase else {
            return None;
        };
        // A decode reads the cached part of the prompt as well.
        live.phase = Phase::Decode { tokens: tokens + before.overlap_tokens };
        Some(before)
    }

    /// Ends it. Returns how it was; none if it had ended.
    pub(crate) fn close(&mut self, id: ReservationId) -> Option<RequestReservation> {
        self.live.remove(&id)
    }

    /// Ends all that occupy `replica`. O(requests in flight).
    pub(crate) fn close_all(&mut self, replica: ReplicaId) {
        self.live.retain(|_, live| live.replica != replica);
    }

    pub(crate) fn len(&self) -> usize {
        self.live.len()
    }

    /// Recomputes the requests in flight of each occupied replica. O(requests in flight).
    pub(crate) fn sums(&self) -> BTreeMap<ReplicaId, InFlight> {
        let mut sums: BTreeMap<ReplicaId, InFlight> = BTreeMap::new();
        for live in self.live.values() {
            sums.entry(live.replica).or_default().enter(live.phase);
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPENED: RequestReservation = RequestReservation {
        replica: ReplicaId(1),
        phase: Phase::Prefill { tokens: 5 },
        overlap_tokens: 3,
        is_exact: true,
        work_s: 0.5,
    };

    #[test]
    fn an_end_comes_once() {
        let mut reservations = Reservations::default();
        let id = reservations.open(OPENED);
        assert_eq!(reservations.advance(id), Some(OPENED));
        assert_eq!(reservations.advance(id), None);
        let decoding = RequestReservation { phase: Phase::Decode { tokens: 8 }, ..OPENED };
        assert_eq!(reservations.close(id), Some(decoding));
        assert_eq!(reservations.close(id), None);
        assert_eq!(reservations.advance(id), None);
        assert_ne!(reservations.open(OPENED), id);
    }
}
