//! Events whose names look ahead: what vLLM's own cache manager finds of a prompt is what the index
//! says it holds (`tools/kv_events/lookahead.py`).

use headstart_core::{Nanos, ReplicaId, TokenId};
use headstart_dst::index::ReferenceIndex;
use headstart_kv_events::decode_batch;
use headstart_router::index::{Overlaps, RunIndex, Update};
use headstart_router::{PrefixIndex, Prompt};

/// A message per line, or a prompt and how many tokens of it are found.
const LOG: &str = include_str!("../../../../data/kv-events/vllm-0.33.0-lookahead.log");

/// The messages.
pub(crate) fn messages() -> impl Iterator<Item = &'static str> {
    LOG.lines().filter(|line| !line.starts_with("found "))
}

#[test]
fn an_index_finds_what_the_engine_finds() {
    let replica = ReplicaId(0);
    let indices: [Box<dyn PrefixIndex>; 2] =
        [Box::new(RunIndex::new("m")), Box::new(ReferenceIndex::new("m"))];
    for index in &indices {
        let track = Update::Track { block_size: None };
        index.update(replica, track, Nanos(0));
    }
    let (mut asked, mut found_any) = (0, 0);
    for line in LOG.lines() {
        let Some(question) = line.strip_prefix("found ") else {
            let batch = decode_batch(&super::bytes_of(line)).expect("a batch");
            assert_eq!(batch.damage, headstart_router::stream::Damage::None);
            for index in &indices {
                index.update(replica, Update::Events(&batch.events), Nanos(0));
            }
            continue;
        };
        let mut numbers = question.split(' ').map(|number| number.parse().expect("a number"));
        let found: u32 = numbers.next().expect("a count");
        let tokens: Vec<TokenId> = numbers.collect();
        for index in &indices {
            let prompt = Prompt { tokens: &tokens, ..Prompt::default() };
            let mut overlaps = Overlaps::default();
            index.overlaps(&index.hash(prompt), Nanos(0), &mut overlaps);
            let overlap = overlaps.of(replica);
            assert_eq!(overlap.any_tier_tokens, found, "{tokens:?}");
        }
        asked += 1;
        found_any += usize::from(found > 0);
    }
    assert!(asked > 50 && found_any > 20, "{found_any} of {asked}");
}
