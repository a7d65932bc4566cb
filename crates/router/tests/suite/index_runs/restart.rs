//! An engine restarts, and no block size is in use for a while.

use headstart_core::{CacheEvent, TokenId};
use headstart_router::PrefixIndex;
use headstart_router::index::Update;

use super::{A, Pair, START, prompt, store};

/// Insight compares prompts after a restart with those before it, by their keys.
#[test]
fn prompts_keep_their_names_while_no_block_size_is_in_use() {
    let pair = Pair::new(&[A]);
    let tokens: &[TokenId] = &[1, 2, 3];
    assert!(pair.index.hash(prompt(tokens)).chains().is_empty());
    pair.event(A, store(1, tokens, 0));
    let before = pair.index.hash(prompt(tokens));
    assert!(before.chains().len() == 1 && before.are_in_use());
    for update in
        [Update::Events(&[CacheEvent::Cleared]), Update::Forget, Update::Track { block_size: None }]
    {
        pair.update(A, update, START);
        let after = pair.index.hash(prompt(tokens));
        assert!(after.chains() == before.chains() && !after.are_in_use());
        assert_eq!(pair.reference.hash(prompt(tokens)), after);
        pair.check(&[tokens], START);
    }
}
