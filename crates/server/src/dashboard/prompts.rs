//! Keys of the last prompts, kept until a snapshot takes them: all that a request pays for the
//! prefix tree. Keys are moved here, not copied, and cause no work until then.

use std::collections::VecDeque;
use std::sync::Mutex;

use headstart_core::Nanos;
use headstart_router::PromptKeys;

use crate::lock::lock;

/// Prompts that are kept: some of each second's of a busy gateway, hours of a quiet one's.
const PROMPTS_MAX: usize = 512;

/// Keys of these, 8 bytes each: 4 MiB.
const KEYS_MAX: usize = 1 << 19;

/// A prompt and when it came.
pub(super) type TimedPrompt = (PromptKeys, Nanos);

/// The last prompts.
#[derive(Debug, Default)]
pub(super) struct RecentPrompts(Mutex<PromptWindow>);

#[derive(Debug, Default)]
struct PromptWindow {
    prompts: VecDeque<TimedPrompt>,
    num_keys: usize,
    /// Prompts that went unseen.
    skipped: u64,
}

impl RecentPrompts {
    /// Takes the next one.
    pub(super) fn note(&self, keys: PromptKeys, now: Nanos) {
        let size = num_keys(&keys);
        // A prompt larger than the whole window would push out everything, and then itself.
        if size == 0 || size > KEYS_MAX {
            return;
        }
        let mut gone = Vec::new();
        let mut kept = lock(&self.0);
        kept.num_keys += size;
        kept.prompts.push_back((keys, now));
        while kept.prompts.len() > PROMPTS_MAX || kept.num_keys > KEYS_MAX {
            let Some(oldest) = kept.prompts.pop_front() else {
                break;
            };
            kept.num_keys -= num_keys(&oldest.0);
            kept.skipped += 1;
            gone.push(oldest);
        }
        // Their memory is freed without the lock.
        drop(kept);
        drop(gone);
    }

    /// Takes all of them away, and says how many went unseen since the last time.
    pub(super) fn take(&self) -> (VecDeque<TimedPrompt>, u64) {
        let mut kept = lock(&self.0);
        let PromptWindow { prompts, skipped, .. } = std::mem::take(&mut *kept);
        (prompts, skipped)
    }
}

fn num_keys(keys: &PromptKeys) -> usize {
    keys.chains().iter().map(|chain| chain.keys.len()).sum()
}

#[cfg(test)]
mod tests {
    use headstart_core::RouteKey;
    use headstart_core::block::BlockShape;
    use headstart_router::index::KeyChain;

    use super::*;

    fn prompt(blocks: usize) -> PromptKeys {
        let chain = KeyChain { shape: BlockShape::of_size(16), keys: vec![RouteKey(7); blocks] };
        PromptKeys::from_chains(blocks * 16, vec![chain])
    }

    #[test]
    fn prompts_and_keys_are_bounded_and_the_oldest_go() {
        let prompts = RecentPrompts::default();
        for second in 0..600 {
            prompts.note(prompt(2), Nanos(second));
        }
        prompts.note(prompt(0), Nanos(1000));
        prompts.note(prompt(KEYS_MAX + 1), Nanos(1000));
        let (taken, skipped) = prompts.take();
        assert_eq!((taken.len(), skipped), (PROMPTS_MAX, 88));
        assert_eq!(taken[0].1, Nanos(88));
        prompts.note(prompt(KEYS_MAX - 1), Nanos(1));
        prompts.note(prompt(2), Nanos(2));
        let (taken, skipped) = prompts.take();
        assert_eq!((taken.len(), skipped), (1, 1));
        assert_eq!(prompts.take().0.len(), 0);
    }
}
