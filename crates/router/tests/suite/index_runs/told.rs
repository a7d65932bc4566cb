//! Changes that an update reports, block by block.

use std::collections::BTreeSet;

use headstart_core::event::BlockChange;

use super::*;

/// Blocks of a tree that come in any order, parents behind their children too, and go: what was
/// told adds up to what is held.
#[test]
fn what_is_told_adds_up_to_what_is_held() {
    let (mut rng, mut were_late) = (Rng::new(4), 0);
    for _ in 0..40 {
        let index = RunIndex::new("m");
        index.update(A, Update::Track { block_size: None }, START);
        let (mut told, mut held) = (BTreeSet::new(), BTreeSet::new());
        for _ in 0..200 {
            let block = 1 + rng.below(60) as u128;
            let tier = [Tier::Device, Tier::Host][rng.below(2)];
            let event = match rng.below(40) {
                0 => {
                    held.clear();
                    CacheEvent::Cleared
                }
                _ if held.remove(&(block, tier)) => CacheEvent::Removed {
                    blocks: vec![BlockHash(block.to_be_bytes())],
                    tier,
                    group: 0,
                },
                _ => {
                    held.insert((block, tier));
                    stored_in_tree(block, tier)
                }
            };
            let mut changes = Vec::new();
            index.update_and_tell(A, &[event], START, &mut changes);
            were_late += usize::from(changes.len() > 1);
            for change in changes {
                let is_news = match change {
                    BlockChange::Stored(key, tier) => told.insert((key, tier)),
                    BlockChange::Removed(key, tier) => told.remove(&(key, tier)),
                    BlockChange::Cleared => {
                        told.clear();
                        true
                    }
                };
                assert!(is_news, "{change:?} says nothing new");
            }
            let residents = residents(&index, START).into_iter();
            let residents: BTreeSet<_> = residents.map(|one| (one.key, one.tier)).collect();
            assert_eq!(told, residents);
        }
    }
    assert!(were_late > 100, "{were_late} blocks brought others");
}

/// The block `number` of a binary tree, whose root is 1.
fn stored_in_tree(number: u128, tier: Tier) -> CacheEvent {
    let parent = (number > 1).then(|| BlockHash((number / 2).to_be_bytes()));
    CacheEvent::Stored(StoredBlocks {
        blocks: vec![BlockHash(number.to_be_bytes())],
        parent,
        tokens: vec![number as TokenId, 7],
        block_size: 2,
        extras: Vec::new(),
        tier,
        group: CacheGroup::default(),
        salt: None,
        adapter: None,
    })
}
