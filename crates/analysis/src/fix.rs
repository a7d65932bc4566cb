//! Tokens that the fix of one mistake would save: the log, replayed as if its prompts had no such
//! mistake.
//!
//! A fixed prompt begins as its earlier neighbour does, up to the end of the change, and continues
//! as it did. Its later differences stay, so another mistake behind this one still costs. Both logs
//! are replayed with prefix-aware routing and without service times. Ends of blocks and evictions
//! count as they would; prompts that are computed at once do not.

use std::collections::HashMap;
use std::sync::OnceLock;

use headstart_core::TraceRequest;
use headstart_core::block::Namespace;
use headstart_sim::spread::{PlacementPolicy, SpreadConfig, SpreadFleet};
use headstart_trace::format::request_log::Chains;

use crate::findings::Pair;
use crate::fleet::UniformFleet;
use crate::rendering::Rendering;
use crate::traffic::LoggedTraffic;

/// Replays fixed logs beside the log as it is.
pub(crate) struct Fixes<'a> {
    traffic: &'a LoggedTraffic,
    rendering: Option<&'a Rendering>,
    settings: SpreadConfig,
    /// Tokens that a replay of the log as it is computes.
    before: OnceLock<u64>,
}

/// Tokens that a fleet computes of `requests`, each sent where most of it is held.
pub(crate) fn computed_tokens<'r>(
    settings: SpreadConfig,
    requests: impl Iterator<Item = &'r TraceRequest>,
) -> u64 {
    let mut spread = SpreadFleet::new(PlacementPolicy::LongestPrefix, settings);
    for request in requests {
        spread.serve(request);
    }
    spread.computed_tokens()
}

/// The beginning of a fixed prompt.
struct Front {
    text: String,
    /// Byte at which its own text continues.
    end: usize,
}

impl<'a> Fixes<'a> {
    pub(crate) fn of(
        traffic: &'a LoggedTraffic,
        fleet: UniformFleet,
        rendering: Option<&'a Rendering>,
    ) -> Self {
        let settings = fleet.spread(traffic.info.block_tokens);
        Self { traffic, rendering, settings, before: OnceLock::new() }
    }

    /// Fewer tokens that are computed if all `pairs` begin alike; nothing for prompts of token ids,
    /// whose text is not known.
    pub(crate) fn saved<'p>(&self, pairs: impl Iterator<Item = &'p Pair>) -> Option<u64> {
        let fixed = self.fixed(pairs)?;
        // The log as it is takes a whole replay, and all findings compare with the same one.
        let before = self.before.get_or_init(|| self.computed(&HashMap::new()));
        Some(before.saturating_sub(self.computed(&fixed)))
    }

    /// Tokens that a replay computes, with `fixed` requests in place of those with their index.
    fn computed(&self, fixed: &HashMap<usize, TraceRequest>) -> u64 {
        let requests = self.traffic.requests.iter().enumerate();
        let requests = requests.map(|(index, request)| fixed.get(&index).unwrap_or(request));
        computed_tokens(self.settings, requests)
    }

    /// The requests that change, by their index.
    fn fixed<'p>(
        &self,
        pairs: impl Iterator<Item = &'p Pair>,
    ) -> Option<HashMap<usize, TraceRequest>> {
        let rendering = self.rendering?;
        let chains = Chains::new(self.settings.block_tokens);
        let mut fronts: HashMap<usize, Front> = HashMap::new();
        let mut fixed = HashMap::new();
        for Pair { old, new, evidence } in pairs {
            let said = &self.traffic.said[*new];
            let before = &self.traffic.said[*old];
            // The text of a prompt of ids is its numbers, which the tokenizer would cut into other
            // tokens.
            if said.is_ids || before.is_ids {
                return None;
            }
            let (end, own_end) = (evidence.old.end, evidence.new.end);
            // The earlier prompt may be fixed as well: then this one begins as its fixed text does.
            // An earlier prompt whose change ends later is taken as it was sent.
            let front = match fronts.get(old).filter(|front| front.end <= end) {
                Some(front) => front.text.clone() + before.text.get(front.end..end)?,
                None => before.text.get(..end)?.to_owned(),
            };
            // Tokens may join across the end of the change, so the whole text is tokenized again.
            let tokens = rendering.tokens(&(front.clone() + said.text.get(own_end..)?));
            let tokens = tokens.ok()?;
            let namespace =
                Namespace { adapter: said.model.as_deref(), salt: said.cache_salt.as_deref() };
            // Session, turn and arrival stay: the fix changes the prompt and nothing else.
            let request = TraceRequest {
                blocks: chains.blocks(namespace, &tokens).ok()?,
                input_tokens: u32::try_from(tokens.len()).ok(),
                ..self.traffic.requests[*new].clone()
            };
            fixed.insert(*new, request);
            // Offsets of later pairs count in the text as it was sent, so the front says where that
            // continues.
            let (text, end) = (front, own_end);
            fronts.insert(*new, Front { text, end });
        }
        (!fixed.is_empty()).then_some(fixed)
    }
}
