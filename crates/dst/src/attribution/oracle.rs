//! The truth: who holds which block, who held it and how that ended, which tokens were written
//! where. Told by the engines' own effects and by the author; with unbounded memory, exact names
//! instead of hashes, and nothing of the attributor.

use std::collections::{HashMap, HashSet};

use headstart_core::TokenId;
use headstart_insight::Bucket;

use super::author::WrittenToken;

/// A block behind its whole prefix, in its namespace: equal number, equal block.
pub type Node = u64;

/// Reason why a copy was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// To make room.
    Evicted,
    /// With all else.
    Reset,
}

/// Nodes of a prompt's blocks.
#[derive(Clone, Debug)]
pub struct PromptNodes {
    /// In its namespace.
    pub nodes: Vec<Node>,
    /// In none.
    bare: Vec<Node>,
    namespace: u64,
}

/// A question to the oracle: a prompt as it is placed.
#[derive(Clone, Copy, Debug)]
pub struct OracleQuery<'a> {
    /// Its tokens.
    pub prompt: &'a [WrittenToken],
    /// Its blocks.
    pub named: &'a PromptNodes,
    /// The chosen replica.
    pub chosen: usize,
    /// Leading tokens that the router thought it to hold.
    pub predicted: usize,
    /// Tokens of a block.
    pub block_size: usize,
}

/// Knows everything.
#[derive(Debug, Default)]
pub struct Oracle {
    names: HashMap<(u64, Node, Vec<TokenId>), Node>,
    blocks: HashMap<Node, BlockHistory>,
    /// Namespaces in which a chain without its namespace was computed.
    sent_in: HashMap<Node, HashSet<u64>>,
    read: HashSet<u64>,
}

#[derive(Debug, Default)]
struct BlockHistory {
    /// Copies per replica: a block may be in two of its tiers.
    copies: HashMap<usize, u32>,
    /// Reason why the last copy was lost; `None` before that.
    last_end: Option<End>,
    /// Requests that compute it now, wherever.
    computing: u32,
    /// Per replica the requests that wait there with it in their prompts.
    waiting: HashMap<usize, u32>,
}

impl BlockHistory {
    /// Whether a replica computes it now, or has a request for it that waits for its turn: a
    /// gateway sees no difference between them.
    fn is_in_flight(&self) -> bool {
        let mut waiting = self.waiting.keys();
        // A request that waits where the block is already will compute nothing.
        self.computing > 0 || waiting.any(|replica| !self.copies.contains_key(replica))
    }
}

/// The number that stands for no namespace at all in the names of bare chains.
const NO_NAMESPACE: u64 = u64::MAX;

impl Oracle {
    /// Names the full blocks of `tokens`.
    pub fn name(
        &mut self,
        namespace: u64,
        tokens: &[WrittenToken],
        block_size: usize,
    ) -> PromptNodes {
        PromptNodes {
            nodes: self.chain(namespace, tokens, block_size),
            bare: self.chain(NO_NAMESPACE, tokens, block_size),
            namespace,
        }
    }

    fn chain(&mut self, namespace: u64, tokens: &[WrittenToken], block_size: usize) -> Vec<Node> {
        let mut parent = 0;
        let blocks = tokens.chunks_exact(block_size);
        let mut name = |block: &[WrittenToken]| {
            let tokens = block.iter().map(|written| written.token).collect();
            // Names are exact: the key holds the tokens themselves, so no two blocks can collide.
            let next = self.names.len() as Node + 1;
            parent = *self.names.entry((namespace, parent, tokens)).or_insert(next);
            parent
        };
        blocks.map(&mut name).collect()
    }

    /// A replica has a copy (one more).
    pub fn stored(&mut self, replica: usize, node: Node) {
        let block = self.blocks.entry(node).or_default();
        *block.copies.entry(replica).or_default() += 1;
    }

    /// A copy ended.
    ///
    /// # Panics
    /// When there was none.
    pub fn ended(&mut self, replica: usize, node: Node, end: End) {
        let block = self.blocks.get_mut(&node).expect("it was stored");
        let copies = block.copies.get_mut(&replica).expect("there was a copy");
        *copies -= 1;
        if *copies == 0 {
            block.copies.remove(&replica);
        }
        // Only the last copy's end counts: until then another replica holds the block.
        if block.copies.is_empty() {
            block.last_end = Some(end);
        }
    }

    /// A request with these blocks waits on a replica: what that does not hold it will compute.
    pub fn waits(&mut self, replica: usize, nodes: &[Node]) {
        for &node in nodes {
            let block = self.blocks.entry(node).or_default();
            *block.waiting.entry(replica).or_default() += 1;
        }
    }

    /// It waits no more.
    ///
    /// # Panics
    /// When it did not.
    pub fn waited(&mut self, replica: usize, nodes: &[Node]) {
        for node in nodes {
            let block = self.blocks.get_mut(node).expect("it was waited for");
            let waiting = block.waiting.get_mut(&replica).expect("a request waits");
            *waiting -= 1;
            if *waiting == 0 {
                block.waiting.remove(&replica);
            }
        }
    }

    /// A request computes a block from now on.
    pub fn computes(&mut self, node: Node) {
        self.blocks.entry(node).or_default().computing += 1;
    }

    /// It has computed it, or has given up.
    ///
    /// # Panics
    /// When it is not being computed.
    pub fn computed(&mut self, node: Node) {
        let block = self.blocks.get_mut(&node).expect("it is computed");
        block.computing -= 1;
    }

    /// A prompt's first `tokens` were computed: from now on they have been seen.
    pub fn read(
        &mut self,
        prompt: &[WrittenToken],
        named: &PromptNodes,
        tokens: usize,
        block_size: usize,
    ) {
        // The block of the last token is never cached whole, so it tells later prompts nothing.
        let read = tokens.min(floor(prompt.len(), block_size));
        let births = prompt[..read].iter().map(|written| written.birth);
        self.read.extend(births);
        for &node in &named.bare[..read / block_size] {
            let namespaces = self.sent_in.entry(node).or_default();
            namespaces.insert(named.namespace);
        }
    }

    /// Why each token of a prompt is computed, should its engine not serve it.
    #[must_use]
    pub fn why(&self, question: &OracleQuery<'_>) -> Vec<Bucket> {
        let floor = floor(question.prompt.len(), question.block_size);
        let held = self.held_elsewhere(question);
        let why = |(at, written): (usize, &WrittenToken)| {
            if at >= floor {
                return Bucket::BlockFloor;
            }
            let block = at / question.block_size;
            let known = self.blocks.get(&question.named.nodes[block]);
            if known.is_some_and(BlockHistory::is_in_flight) {
                return Bucket::InFlight;
            }
            // The router counted on these tokens, and this is asked for tokens that were not
            // served.
            if at < question.predicted {
                return Bucket::IndexWrong;
            }
            if block < held {
                return Bucket::HeldElsewhere;
            }
            match known.and_then(|block| block.last_end) {
                Some(End::Reset) => return Bucket::Reset,
                Some(End::Evicted) => return Bucket::Evicted,
                // It is there, and what is before it is not.
                None if known.is_some_and(|block| !block.copies.is_empty()) => {
                    return Bucket::Evicted;
                }
                None => {}
            }
            self.content(question, block, written)
        };
        question.prompt.iter().enumerate().map(why).collect()
    }

    fn content(&self, question: &OracleQuery<'_>, block: usize, written: &WrittenToken) -> Bucket {
        let sent_in = self.sent_in.get(&question.named.bare[block]);
        let is_own = |namespace: &u64| *namespace == question.named.namespace;
        if sent_in.is_some_and(|namespaces| !namespaces.iter().all(is_own)) {
            return Bucket::Namespace;
        }
        // Births tell a copy from a token that is equal by chance.
        if self.read.contains(&written.birth) { Bucket::Diverged } else { Bucket::NeverSeen }
    }

    /// The most leading blocks that another replica holds.
    fn held_elsewhere(&self, question: &OracleQuery<'_>) -> usize {
        // A replica without the first block holds no prefix, however many later blocks it has.
        let Some(&first) = question.named.nodes.first() else {
            return 0;
        };
        let Some(first) = self.blocks.get(&first) else {
            return 0;
        };
        let others = first.copies.keys();
        let others = others.filter(|&&replica| replica != question.chosen);
        let held = |replica: &usize| {
            let is_held = |node: &&Node| {
                let block = self.blocks.get(*node);
                block.is_some_and(|block| block.copies.contains_key(replica))
            };
            question.named.nodes.iter().take_while(is_held).count()
        };
        others.map(held).max().unwrap_or(0)
    }
}

/// Returns the start of the part that is always computed (the block of the last token), in tokens.
fn floor(prompt_tokens: usize, block_size: usize) -> usize {
    prompt_tokens.saturating_sub(1) / block_size * block_size
}
