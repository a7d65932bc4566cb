//! The conformance suite finds what is wrong with a policy, and says on which seed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use headstart_cache::Policy;
use headstart_cache::policy::{Fifo, Lru, Newcomer};
use headstart_core::{Access, BlockHash, BlockId, Nanos};
use headstart_dst::policy::conformance::{policy, same_evictions};

/// Violations of the contract.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    NamesWhatIsHeld,
    DeclinesWithoutNewcomer,
    ForgetsWhatItSaid,
    ForgetsWhatIsOffered,
}

/// Evicts what was offered first, unless its fault shows.
struct Faulty {
    fault: Fault,
    offered: Vec<BlockId>,
    num_asked: usize,
}

impl Policy for Faulty {
    fn insert(&mut self, _: BlockId, _: BlockHash, _: &Access) {}

    fn release(&mut self, _: &[BlockId], _: &Access) {}

    fn offer(&mut self, block: BlockId) {
        let is_forgotten = self.fault == Fault::ForgetsWhatIsOffered && self.offered.len() == 5;
        if !is_forgotten {
            self.offered.push(block);
        }
    }

    fn withdraw(&mut self, block: BlockId) {
        if self.fault != Fault::NamesWhatIsHeld {
            self.offered.retain(|offered| *offered != block);
        }
    }

    fn victim(&mut self, _: Nanos, _: Option<&Newcomer>) -> Option<BlockId> {
        self.num_asked += 1;
        match self.fault {
            Fault::DeclinesWithoutNewcomer if self.offered.len() < 3 => None,
            Fault::ForgetsWhatItSaid if self.num_asked.is_multiple_of(2) => {
                self.offered.last().copied()
            }
            _ => self.offered.first().copied(),
        }
    }

    fn remove(&mut self, block: BlockId, _: BlockHash) {
        self.offered.retain(|offered| *offered != block);
    }

    fn forget(&mut self, _: BlockId, _: BlockHash) {}
}

fn message(run: impl FnOnce()) -> Option<String> {
    let panic = catch_unwind(AssertUnwindSafe(run)).err()?;
    let text = panic.downcast_ref::<String>();
    Some(text.expect("a panic with a text").clone())
}

fn check(fault: Fault, expected: Option<&str>) {
    let make =
        |_| -> Box<dyn Policy> { Box::new(Faulty { fault, offered: Vec::new(), num_asked: 0 }) };
    match (message(|| policy(make)), expected) {
        (Some(found), Some(expected)) => {
            assert!(found.contains(expected), "{fault:?}: {found}");
            assert!(found.contains("seed"), "{fault:?}: {found}");
        }
        (found, expected) => assert_eq!(found.as_deref(), expected, "{fault:?}"),
    }
}

#[test]
fn faults_are_found() {
    check(Fault::None, None);
    check(Fault::NamesWhatIsHeld, Some("is named but not offered"));
    check(Fault::DeclinesWithoutNewcomer, Some("but none is named"));
    check(Fault::ForgetsWhatItSaid, Some("asking changed the answer"));
    check(Fault::ForgetsWhatIsOffered, Some("but none is named"));
}

#[test]
fn different_policies_differ_and_the_story_is_short() {
    let found = message(|| {
        same_evictions(
            |load| Box::new(Lru::new(load.capacity)),
            |load| Box::new(Fifo::new(load.capacity)),
        );
    });
    let found = found.expect("LRU is not FIFO");
    for part in ["the policies differ at step", "seed", "instead of", "after"] {
        assert!(found.contains(part), "{found}");
    }
    assert!(found.lines().count() < 30, "{found}");
}
