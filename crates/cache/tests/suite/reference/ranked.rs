//! Policies that evict the block of least worth, as one would explain them: a list of all
//! residents with everything that is known of each, searched from end to end.

use std::collections::HashMap;

use headstart_cache::Policy;
use headstart_cache::policy::Newcomer;
use headstart_core::{Access, BlockHash, BlockId, Nanos, TraceRequest};

/// A resident block and what a worth may depend on.
#[derive(Clone, Debug)]
pub(crate) struct Resident {
    /// Its slot.
    pub(crate) block: BlockId,
    /// Its name.
    pub(crate) hash: BlockHash,
    /// Number of the insertion that made it resident.
    pub(crate) inserted: u64,
    /// Number of its last release; 0 if never released.
    pub(crate) released: u64,
    /// Position in the request that used it last.
    pub(crate) depth: usize,
    /// Blocks that that request held.
    pub(crate) chain_len: usize,
    /// Its last use; the one that inserted it when there was none since.
    pub(crate) access: Access,
    /// The requests that have used it since its insertion; one that repeats it counts once.
    pub(crate) users: Vec<u32>,
    /// Per user: the number of the release, and the share of the block that mattered.
    pub(crate) shares: Vec<(u64, f64)>,
    /// GDSF's clock, the largest worth evicted so far: at its last use or, for the first one,
    /// before room was made for it.
    pub(crate) clock: f64,
    /// T-LRU's Q at its last use: by how many blocks a returning conversation grows.
    pub(crate) growth: f64,
    is_offered: bool,
}

/// Worth of a resident block at a time; the lowest goes first. Ties go to the least recently
/// released block, then to the lower slot.
pub(crate) type Worth = Box<dyn Fn(&Resident, Nanos) -> f64 + Send>;

/// Whether a newcomer that will have the first worth when it has been used is declined, where the
/// least resident has the second.
type Declines = fn(f64, f64) -> bool;

/// The policy of one [`Worth`].
pub(crate) struct RankedPolicy {
    residents: Vec<Resident>,
    worth: Worth,
    declines: Declines,
    /// The newcomer declined by the call before; asked again at once, it has not come again.
    declined: Option<(BlockHash, Access)>,
    /// The newcomer that room was made for, and the clock before that.
    admitted: Option<(BlockHash, f64)>,
    num_inserted: u64,
    num_released: u64,
    /// Calls that release, however many blocks each.
    num_requests: u64,
    clock: f64,
    growth: f64,
}

impl RankedPolicy {
    /// Evicts the least of `worth`, which must not change between an insertion or a release
    /// and the next but by time.
    #[must_use]
    pub(crate) fn new(worth: Worth) -> Self {
        Self {
            residents: Vec::new(),
            worth,
            declines: |_, _| false,
            declined: None,
            admitted: None,
            num_inserted: 0,
            num_released: 0,
            num_requests: 0,
            clock: 0.0,
            growth: 0.0,
        }
    }

    /// All alike: the least recently released goes first.
    #[must_use]
    pub(crate) fn lru() -> Self {
        Self::new(Box::new(|_, _| 0.0))
    }

    /// The earliest inserted goes first.
    #[must_use]
    pub(crate) fn fifo() -> Self {
        Self::new(Box::new(|resident, _| resident.inserted as f64))
    }

    /// First evicts the block that the fewest requests have used.
    #[must_use]
    pub(crate) fn lfu() -> Self {
        Self::new(Box::new(|resident, _| resident.users.len() as f64))
    }

    /// First evicts the block that mattered least to all of its users together.
    #[must_use]
    pub(crate) fn importance() -> Self {
        Self::new(Box::new(|resident, _| resident.shares.iter().map(|(_, share)| share).sum()))
    }

    /// The same; a use counts twice as much as one `half_life` releases before.
    #[must_use]
    pub(crate) fn fading_importance(half_life: f64) -> Self {
        Self::new(Box::new(move |resident, _| {
            let worth = |(at, share): &(u64, f64)| share * (*at as f64 / half_life).exp2();
            resident.shares.iter().map(worth).sum()
        }))
    }

    /// Clock + frequency · cost; a block at a depth of `doubling_blocks` costs twice the first.
    /// A newcomer that is worth less than every candidate counts as evicted at once.
    #[must_use]
    pub(crate) fn gdsf(doubling_blocks: f64) -> Self {
        Self {
            declines: |newcomer, least| newcomer < least,
            ..Self::gdsf_admitting_all(doubling_blocks)
        }
    }

    /// The same; every newcomer is admitted.
    #[must_use]
    pub(crate) fn gdsf_admitting_all(doubling_blocks: f64) -> Self {
        Self::new(Box::new(move |resident, _| {
            let cost = 1.0 + resident.depth as f64 / doubling_blocks;
            resident.clock + resident.users.len() as f64 * cost
        }))
    }

    /// First evicts blocks beyond the first L + Q - ξ of their conversation.
    #[must_use]
    pub(crate) fn tlru(allowance_blocks: f64) -> Self {
        Self::new(Box::new(move |resident, _| {
            let needed = resident.chain_len as f64 + resident.growth - allowance_blocks;
            let is_surplus = resident.depth >= needed.max(0.0) as usize;
            f64::from(!(is_surplus && resident.released > 0))
        }))
    }

    /// First evicts blocks that no request asks for, then the one with the farthest next use.
    #[must_use]
    pub(crate) fn belady(requests: &[TraceRequest]) -> Self {
        let next_use = next_use(requests);
        Self::new(Box::new(move |resident, _| {
            let next = next_use(resident.hash, resident.access.request);
            next.map_or(f64::NEG_INFINITY, |next| -f64::from(next))
        }))
    }

    /// The same; what would be the next victim, or is never asked for, is not admitted.
    #[must_use]
    pub(crate) fn belady_with_bypass(requests: &[TraceRequest]) -> Self {
        Self {
            declines: |newcomer, least| newcomer < least || newcomer == f64::NEG_INFINITY,
            ..Self::belady(requests)
        }
    }

    /// First evicts blocks used only by conversations that had ended at the block's last use.
    #[must_use]
    pub(crate) fn continuation_oracle(requests: &[TraceRequest]) -> Self {
        let sessions: Vec<_> = requests.iter().map(|request| request.session).collect();
        Self::new(Box::new(move |resident, _| {
            let goes_on = |user: &u32| {
                let session = sessions[*user as usize];
                let now = resident.access.request.max(*user) as usize;
                session.is_some() && sessions[now + 1..].contains(&session)
            };
            f64::from(resident.users.iter().any(goes_on))
        }))
    }

    fn find(&mut self, block: BlockId) -> &mut Resident {
        let found = self.residents.iter_mut().find(|one| one.block == block);
        found.expect("only what is resident is released, offered or withdrawn")
    }

    fn newcomer(&self, block: BlockId, hash: BlockHash, access: &Access) -> Resident {
        Resident {
            block,
            hash,
            inserted: self.num_inserted + 1,
            released: 0,
            depth: access.offset as usize,
            chain_len: 0,
            access: *access,
            users: Vec::new(),
            shares: Vec::new(),
            clock: self.clock,
            growth: self.growth,
            is_offered: false,
        }
    }

    /// The candidate that goes first, with its worth.
    fn least(&self, now: Nanos) -> Option<(f64, &Resident)> {
        let candidates = self.residents.iter().filter(|resident| resident.is_offered);
        let worths = candidates.map(|resident| ((self.worth)(resident, now), resident));
        worths.min_by(|(worth, one), (other_worth, other)| {
            let order = worth.total_cmp(other_worth);
            order.then((one.released, one.block).cmp(&(other.released, other.block)))
        })
    }

    /// A conversation of which a block was used before has grown by the rest; the newest growth
    /// weighs 1/64.
    fn learn_growth(&mut self, blocks: &[BlockId]) {
        let is_known = |&&block: &&BlockId| {
            let mut residents = self.residents.iter();
            residents.any(|resident| resident.block == block && resident.released > 0)
        };
        let num_known = blocks.iter().take_while(is_known).count();
        if num_known > 0 {
            let grown = (blocks.len() - num_known) as f64;
            self.growth += 1.0 / 64.0 * (grown - self.growth);
        }
    }
}

impl Policy for RankedPolicy {
    fn insert(&mut self, block: BlockId, hash: BlockHash, access: &Access) {
        self.declined = None;
        let mut newcomer = self.newcomer(block, hash, access);
        if let Some((_, clock)) = self.admitted.take().filter(|admitted| admitted.0 == hash) {
            newcomer.clock = clock;
        }
        self.num_inserted += 1;
        self.residents.push(newcomer);
    }

    fn release(&mut self, blocks: &[BlockId], access: &Access) {
        self.declined = None;
        self.learn_growth(blocks);
        self.num_requests += 1;
        let (clock, growth, request) = (self.clock, self.growth, self.num_requests);
        for (depth, &block) in blocks.iter().enumerate().rev() {
            self.num_released += 1;
            let released = self.num_released;
            let resident = self.find(block);
            resident.released = released;
            resident.depth = depth;
            resident.chain_len = blocks.len();
            resident.access = *access;
            resident.growth = growth;
            // The first use keeps the clock at which room was made for it.
            if !resident.users.is_empty() {
                resident.clock = clock;
            }
            // A request counts once for a block, at its last place in the chain.
            if !blocks[depth + 1..].contains(&block) {
                resident.users.push(access.request);
                let share = access.importance.map_or(1.0, f64::from);
                resident.shares.push((request, share));
            }
        }
    }

    fn offer(&mut self, block: BlockId) {
        self.declined = None;
        self.find(block).is_offered = true;
    }

    fn withdraw(&mut self, block: BlockId) {
        self.declined = None;
        self.find(block).is_offered = false;
    }

    fn victim(&mut self, now: Nanos, newcomer: Option<&Newcomer>) -> Option<BlockId> {
        let (least, resident) = self.least(now)?;
        let victim = resident.block;
        if let Some(Newcomer { hash, access }) = newcomer {
            if self.declined == Some((*hash, *access)) {
                return None;
            }
            let mut newcomer = self.newcomer(victim, *hash, access);
            // It is judged as it will be after this use.
            newcomer.users.push(access.request);
            let worth = (self.worth)(&newcomer, now);
            if (self.declines)(worth, least) {
                self.declined = Some((*hash, *access));
                self.clock = self.clock.max(worth);
                return None;
            }
            self.admitted = Some((*hash, self.clock));
        }
        Some(victim)
    }

    fn remove(&mut self, block: BlockId, _: BlockHash) {
        self.declined = None;
        let index = self.residents.iter().position(|one| one.block == block);
        let gone = self.residents.remove(index.expect("only what is resident is evicted"));
        self.clock = self.clock.max((self.worth)(&gone, gone.access.now));
    }

    fn forget(&mut self, block: BlockId, _: BlockHash) {
        self.declined = None;
        self.residents.retain(|one| one.block != block);
    }
}

/// The first request behind another that asks for a block.
fn next_use(requests: &[TraceRequest]) -> impl Fn(BlockHash, u32) -> Option<u32> + Send + use<> {
    let mut asking: HashMap<BlockHash, Vec<u32>> = HashMap::new();
    for (index, request) in (0u32..).zip(requests) {
        for id in request.blocks.iter() {
            asking.entry(BlockHash::from_u64(id)).or_default().push(index);
        }
    }
    move |hash, request| {
        let mut asking = asking.get(&hash)?.iter().copied();
        asking.find(|&asking| asking > request)
    }
}
