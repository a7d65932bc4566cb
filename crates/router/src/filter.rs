//! First step of a choice: who may be chosen at all.

use crate::request::RouteRequest;
use crate::view::{Health, ReplicaView};

/// Rejects replicas.
pub trait Filter: Send {
    /// Whether `replica` may serve `request`.
    fn admits(&self, replica: &ReplicaView, request: &RouteRequest<'_>) -> bool;
}

/// Admits replicas that serve.
#[derive(Clone, Copy, Debug, Default)]
pub struct Healthy;

impl Filter for Healthy {
    fn admits(&self, replica: &ReplicaView, _request: &RouteRequest<'_>) -> bool {
        replica.health == Health::Healthy
    }
}

/// Admits replicas that the request does not exclude.
#[derive(Clone, Copy, Debug, Default)]
pub struct NotExcluded;

impl Filter for NotExcluded {
    fn admits(&self, replica: &ReplicaView, request: &RouteRequest<'_>) -> bool {
        !request.excluded.contains(&replica.replica)
    }
}

/// Admits replicas with free KV memory or an empty queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct SaturationFilter;

/// Share of the KV memory in use above which decoding soon takes a sequence's place from it.
/// llm-d's saturation detector uses 0.8; ours asks for a queue besides, so that a full cache alone
/// does not rule a replica out.
pub const SATURATED_KV_USAGE: f64 = 0.9;

impl Filter for SaturationFilter {
    fn admits(&self, replica: &ReplicaView, _request: &RouteRequest<'_>) -> bool {
        let is_full = replica.kv_usage.is_some_and(|usage| usage >= SATURATED_KV_USAGE);
        !(is_full && replica.queue_depth > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::ReplicaId;

    fn check(filter: &dyn Filter, health: Health, excluded: &[ReplicaId], expected: bool) {
        let view = ReplicaView { health, ..ReplicaView::idle(ReplicaId(1)) };
        let request = RouteRequest { excluded, ..RouteRequest::default() };
        assert_eq!(filter.admits(&view, &request), expected);
    }

    #[test]
    fn full_and_waited_for_is_saturated() {
        let admits = |kv_usage, queue_depth| {
            let view = ReplicaView { kv_usage, queue_depth, ..ReplicaView::idle(ReplicaId(1)) };
            SaturationFilter.admits(&view, &RouteRequest::default())
        };
        assert!(!admits(Some(0.95), 1));
        assert!(admits(Some(0.95), 0) && admits(Some(0.5), 9) && admits(None, 9));
    }

    #[test]
    fn each_filter_rejects_for_its_own_reason() {
        check(&Healthy, Health::Healthy, &[ReplicaId(1)], true);
        check(&Healthy, Health::Down, &[], false);
        check(&NotExcluded, Health::Down, &[ReplicaId(2)], true);
        check(&NotExcluded, Health::Healthy, &[ReplicaId(2), ReplicaId(1)], false);
    }
}
