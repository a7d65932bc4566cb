//! A trace over replicas.
