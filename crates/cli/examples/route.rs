//! A router, fed by one replica's events, chooses the replica of the next turn.
//!
//! `cargo run --example route`

use headstart_core::event::{CacheGroup, StoredBlocks};
use headstart_core::{BlockHash, CacheEvent, Nanos, ReplicaId, Tier};
use headstart_router::{NoReplica, Profile, RouteRequest, Router, RouterConfig};

fn main() -> Result<(), NoReplica> {
    let mut router =
        Router::new(RouterConfig { model: "m".to_owned(), profile: Profile::precise(), seed: 7 });
    for replica in 0..3 {
        router.add_replica(ReplicaId(replica), Some(16), Nanos(0));
    }
    // Replica 2 says that it computed the first 64 tokens of a conversation.
    let conversation: Vec<u32> = (0..80).collect();
    router.apply(
        ReplicaId(2),
        &[CacheEvent::Stored(StoredBlocks {
            blocks: (1..=4).map(BlockHash::from_u64).collect(),
            parent: None,
            tokens: conversation[..64].to_vec(),
            block_size: 16,
            extras: Vec::new(),
            group: CacheGroup::default(),
            tier: Tier::Device,
            salt: None,
            adapter: None,
        })],
        Nanos(0),
    );
    let request = RouteRequest {
        tokens: Some(&conversation),
        now: Nanos::from_secs_f64(1.0),
        ..RouteRequest::default()
    };
    let decision = router.route(&request)?;
    println!(
        "replica {} holds {} of {} prompt tokens",
        decision.replica, decision.overlap_tokens, decision.prompt_tokens
    );
    assert_eq!((decision.replica, decision.overlap_tokens), (ReplicaId(2), 64));
    router.finish(decision.reservation, request.now);
    Ok(())
}
