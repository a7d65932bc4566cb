//! A cache under a random load: leases that come, grow, commit and go in any order.

use headstart_cache::{Admit, Commit, Effect, Grow, Lease, Policy, PrefixCache};
use headstart_core::{Access, BlockHash, BlockId, FinishKind, Rng, ToolClass};

use super::Workload;

/// Leases at once.
const MOST_HOLDERS: usize = 5;

/// One cache and its users. The choices follow from the workload and from what the cache
/// answered, so two caches that answer alike are driven alike.
pub(super) struct CacheLoad<'a> {
    pub(super) cache: PrefixCache,
    pub(super) holders: Vec<LeaseHolder>,
    workload: &'a Workload,
    rng: Rng,
    next_request: usize,
}

/// One running request.
pub(super) struct LeaseHolder {
    request: usize,
    chain: Vec<BlockHash>,
    pub(super) lease: Lease,
}

/// One step: the call with its answer, and the effects that it caused.
#[derive(PartialEq)]
pub(super) struct LoadStep {
    pub(super) call: Call,
    pub(super) effects: Vec<Effect>,
}

/// One call and its answer. Holders are numbered by their place in the list.
#[derive(Debug, PartialEq)]
pub(super) enum Call {
    Served {
        request: usize,
        matched: usize,
        held: usize,
    },
    Acquired {
        request: usize,
        matched: usize,
    },
    Grew {
        holder: usize,
        count: usize,
        answer: Grow,
    },
    Committed {
        holder: usize,
        answer: Commit,
    },
    Admitted {
        holder: usize,
        answer: Admit,
    },
    Released {
        holder: usize,
    },
    GivenBack {
        holder: usize,
    },
    Dropped {
        holder: usize,
    },
    Cleared,
    /// The choice did not apply.
    Nothing,
}

/// Short enough to read twenty of them: `+3e9@4` for block 0x3e9 stored in slot 4.
impl std::fmt::Debug for LoadStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.call)?;
        for effect in &self.effects {
            let (sign, block, hash) = match effect {
                Effect::Stored { block, hash } => ('+', block, hash),
                Effect::Evicted { block, hash } => ('-', block, hash),
            };
            write!(f, " {sign}{:x}@{}", u128::from_be_bytes(hash.0), block.0)?;
        }
        Ok(())
    }
}

impl<'a> CacheLoad<'a> {
    pub(super) fn new(workload: &'a Workload, seed: u64, policy: Box<dyn Policy>) -> Self {
        Self {
            cache: PrefixCache::new(workload.capacity, policy),
            holders: Vec::new(),
            workload,
            rng: Rng::new(seed),
            next_request: 0,
        }
    }

    /// The next step; `None` when all requests have ended.
    pub(super) fn step(&mut self) -> Option<LoadStep> {
        let is_over = self.next_request == self.workload.requests.len();
        if is_over && self.holders.is_empty() {
            return None;
        }
        let call = if self.workload.is_serial { self.serve() } else { self.any_call(is_over) };
        let effects = self.cache.drain_effects().collect();
        Some(LoadStep { call, effects })
    }

    /// Blocks that leases hold as resident.
    pub(super) fn held(&self) -> impl Iterator<Item = BlockId> + '_ {
        let leases = self.holders.iter().map(|holder| &holder.lease);
        leases.flat_map(|lease| lease.blocks()[..lease.committed()].iter().copied())
    }

    /// A whole request, as in replay.
    fn serve(&mut self) -> Call {
        let mut holder = self.begin();
        let LeaseHolder { request, chain, lease } = &mut holder;
        let (request, matched) = (*request, lease.matched());
        while let Some(&hash) = chain.get(lease.committed()) {
            let access = access(self.workload, request, lease.committed());
            if self.cache.admit(lease, hash, &access) == Admit::Declined {
                break;
            }
        }
        let held = lease.committed();
        let access = access(self.workload, request, 0);
        self.cache.release(holder.lease, &access);
        Call::Served { request, matched, held }
    }

    fn any_call(&mut self, is_over: bool) -> Call {
        if self.rng.below(200) == 0 {
            let now = access(self.workload, self.next_request.max(1) - 1, 0).now;
            self.cache.clear(now);
            return Call::Cleared;
        }
        let num_holders = self.holders.len();
        let may_begin = !is_over && num_holders < MOST_HOLDERS;
        if num_holders == 0 || (may_begin && self.rng.below(6) == 0) {
            if is_over {
                return Call::Nothing;
            }
            let holder = self.begin();
            let (request, matched) = (holder.request, holder.lease.matched());
            self.holders.push(holder);
            return Call::Acquired { request, matched };
        }
        let holder = self.rng.below(num_holders);
        match self.rng.below(16) {
            0..=5 => self.admit(holder),
            6..=8 => self.grow(holder),
            9..=12 => self.commit(holder),
            _ => self.end(holder),
        }
    }

    fn begin(&mut self) -> LeaseHolder {
        let request = self.next_request;
        self.next_request += 1;
        let chain = self.workload.chain(request);
        let lease = self.cache.acquire(&chain);
        LeaseHolder { request, chain, lease }
    }

    /// Admits what is missing, a few blocks at most.
    fn admit(&mut self, holder: usize) -> Call {
        let LeaseHolder { request, chain, lease } = &mut self.holders[holder];
        if lease.committed() < lease.blocks().len() {
            return Call::Nothing;
        }
        let mut answer = Admit::Adopted;
        for _ in 0..=self.rng.below(5) {
            let Some(&hash) = chain.get(lease.committed()) else {
                break;
            };
            let access = access(self.workload, *request, lease.committed());
            answer = self.cache.admit(lease, hash, &access);
            if answer == Admit::Declined {
                break;
            }
        }
        Call::Admitted { holder, answer }
    }

    fn grow(&mut self, holder: usize) -> Call {
        let LeaseHolder { request, chain, lease } = &mut self.holders[holder];
        let count = self.rng.below(4).min(chain.len() - lease.blocks().len());
        let now = access(self.workload, *request, 0).now;
        let answer = self.cache.grow(lease, count, now);
        Call::Grew { holder, count, answer }
    }

    fn commit(&mut self, holder: usize) -> Call {
        let LeaseHolder { request, chain, lease } = &mut self.holders[holder];
        if lease.committed() == lease.blocks().len() {
            return Call::Nothing;
        }
        let access = access(self.workload, *request, lease.committed());
        let answer = self.cache.commit(lease, chain[lease.committed()], &access);
        Call::Committed { holder, answer }
    }

    /// Mostly a release; one lease in four is not used.
    fn end(&mut self, holder: usize) -> Call {
        let LeaseHolder { request, lease, .. } = self.holders.swap_remove(holder);
        match self.rng.below(8) {
            0 => {
                self.cache.give_back(lease);
                Call::GivenBack { holder }
            }
            1 => {
                drop(lease);
                Call::Dropped { holder }
            }
            _ => {
                self.cache.release(lease, &access(self.workload, request, 0));
                Call::Released { holder }
            }
        }
    }
}

fn access(workload: &Workload, request: usize, offset: usize) -> Access {
    let asked = &workload.requests[request];
    Access {
        now: asked.arrival,
        request_type: asked.request_type,
        turn: asked.turn,
        offset: offset as u32,
        session: asked.session,
        finish: FinishKind::ALL[request % FinishKind::ALL.len()],
        // Of half of them tools are known.
        tool: ToolClass::from_number((request * 29 % 8) as u8 / 4).unwrap_or_default(),
        output_tokens: Some((request * 53 % 997) as u32),
        started: None,
        request: request as u32,
        p_continue: asked.p_continue,
        // Two requests of three say how much mattered.
        importance: (!request.is_multiple_of(3)).then_some((request * 37 % 101) as f32 / 100.0),
    }
}
