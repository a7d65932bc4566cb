//! Reading less: without parts that would be read for next to nothing.
//!
//! A few tokens that no pack holds, spread over all units, force every unit to be read, and the
//! packs save nothing. Those tokens are rarely what matters: the tail of a top-k is nearly noise.
//! So parts may be left out whose tokens together hold at most a given share of the importance
//! that was selected; everything else is read as before.
//!
//! Source: ours. IMPRESS (FAST '25) reads a chunk for whatever token it holds; a top-k of tokens
//! bounds what is wanted, this bounds what it costs.

use std::collections::HashMap;

use headstart_core::transfer::PartName;

use super::reads::{Cover, Packed, Read, find, reads, split, unit_part};

/// The same as [`reads`], but parts that are not cached are left out, those that hold least
/// first, as long as what their tokens weigh together is at most `share` (0 to 1) of what all
/// tokens weigh. The reads name the tokens that are left: never less than that, and those that
/// lie in parts read anyway are kept.
///
/// `weigh` says how important a token is; infinite: never left out. What is no number, or
/// negative, weighs nothing. Never reads more uncached parts than [`reads`] where a token is in
/// one pack at most. O(tokens + parts · log parts) besides [`reads`] itself.
#[must_use]
pub fn reads_sparing(
    question: &Cover<'_>,
    tokens: &[u32],
    weigh: impl Fn(u32) -> f32,
    share: f64,
) -> Vec<Read> {
    let tokens = &tokens[tokens.partition_point(|&token| (token as usize) < question.skip)..];
    let packed = find(question, question.packs, tokens);
    let weights: Vec<f64> = tokens
        .iter()
        .map(|&token| f64::from(weigh(token).max(0.0)))
        .collect();
    let parts: Vec<Option<PartName>> = tokens
        .iter()
        .zip(&packed.places)
        .map(|(&token, place)| uncached_part(question, &packed, token, *place))
        .collect();
    let dropped = drop_least(&parts, &weights, share);
    let is_kept = |at: &usize| parts[*at].is_none_or(|part| !dropped.contains_key(&part));
    let (kept, left): (Vec<usize>, Vec<usize>) = (0..tokens.len()).partition(is_kept);
    let kept: Vec<u32> = kept.into_iter().map(|at| tokens[at]).collect();
    let mut reads = reads(question, &kept);
    let index: HashMap<PartName, usize> = reads
        .iter()
        .enumerate()
        .map(|(at, read)| (read.part, at))
        .collect();
    for at in left {
        let (unit, place) = split(tokens[at], question.unit_tokens);
        let of_unit = index
            .get(&unit_part(question, unit))
            .map(|read| (*read, place));
        let of_chunk = packed.places[at].and_then(|(chunk, place)| {
            let name = packed.chunks[chunk as usize].name;
            Some((*index.get(&name)?, place))
        });
        if let Some((read, place)) = of_unit.or(of_chunk) {
            reads[read].tokens.push((tokens[at], place));
        }
    }
    reads
        .iter_mut()
        .for_each(|read| read.tokens.sort_unstable());
    reads
}

/// What would have to be read for a token if packs go first; `None` where it is cached.
fn uncached_part(
    question: &Cover<'_>,
    packed: &Packed,
    token: u32,
    place: Option<(u32, u16)>,
) -> Option<PartName> {
    let unit = unit_part(question, split(token, question.unit_tokens).0);
    if (question.is_cached)(unit) {
        return None;
    }
    match place.map(|(chunk, _)| &packed.chunks[chunk as usize]) {
        Some(chunk) if chunk.is_cached => None,
        Some(chunk) => Some(chunk.name),
        None => Some(unit),
    }
}

/// The parts that weigh least, as many as weigh `share` of everything.
fn drop_least(parts: &[Option<PartName>], weights: &[f64], share: f64) -> HashMap<PartName, f64> {
    let mut by_part: HashMap<PartName, f64> = HashMap::new();
    for (part, weight) in parts.iter().zip(weights) {
        if let Some(part) = part {
            *by_part.entry(*part).or_default() += weight;
        }
    }
    let finite = weights.iter().filter(|weight| weight.is_finite());
    let mut budget = share.clamp(0.0, 1.0) * finite.sum::<f64>();
    let mut by_weight: Vec<(PartName, f64)> = by_part.into_iter().collect();
    by_weight.sort_by(|one, other| one.1.total_cmp(&other.1).then(one.0.cmp(&other.0)));
    let mut is_spared = |(_, weight): &(PartName, f64)| {
        budget -= weight;
        share > 0.0 && budget >= 0.0
    };
    by_weight
        .into_iter()
        .take_while(|part| is_spared(part))
        .collect()
}
