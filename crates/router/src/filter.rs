//! First step of a choice: who may be chosen at all.

use crate::request::RouteRequest;
use crate::view::{Health, ReplicaView};

/// Rejects replicas.
pub trait Filter: Send {
    /// Whether `replica` may serve `request`.
    fn admits(&self, replica: &ReplicaView, request: &RouteRequest<'_>) -> bool;
}

/// Those that serve.
#[derive(Clone, Copy, Debug, Default)]
pub struct Healthy;

impl Filter for Healthy {
    fn admits(&self, replica: &ReplicaView, _request: &RouteRequest<'_>) -> bool {
        replica.health == Health::Healthy
    }
}

/// Those that the request does not rule out.
#[derive(Clone, Copy, Debug, Default)]
pub struct NotExcluded;

impl Filter for NotExcluded {
    fn admits(&self, replica: &ReplicaView, request: &RouteRequest<'_>) -> bool {
        !request.excluded.contains(&replica.replica)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::ReplicaId;

    fn check(filter: &dyn Filter, health: Health, excluded: &[ReplicaId], expected: bool) {
        let view = ReplicaView {
            health,
            ..ReplicaView::idle(ReplicaId(1))
        };
        let request = RouteRequest {
            excluded,
            ..RouteRequest::default()
        };
        assert_eq!(filter.admits(&view, &request), expected);
    }

    #[test]
    fn each_filter_rejects_for_its_own_reason() {
        check(&Healthy, Health::Healthy, &[ReplicaId(1)], true);
        check(&Healthy, Health::Down, &[], false);
        check(&NotExcluded, Health::Down, &[ReplicaId(2)], true);
        check(
            &NotExcluded,
            Health::Healthy,
            &[ReplicaId(2), ReplicaId(1)],
            false,
        );
    }
}
