//! Findings by the place in the prompt's form.

use std::collections::{BTreeMap, BTreeSet};

use headstart_core::fnv1a;
use headstart_insight::{Bucket, BucketTokens};

use super::scope::ChangeScopes;
use super::{ChangedPair, PLACES_COMPARED, TextComparison, shown_pair};
use crate::cost::PerToken;
use crate::logged::moved;
use crate::remedy::{ChangeSample, Remedy};
use crate::results::{Amount, FindingRow};
use crate::structure::{ChangeForm, ChangePlace, slice};
use crate::traffic::LoggedPrompt;

/// Most texts that alternate at one place, and fewest requests and bytes of each.
const VARIANTS_MAX: usize = 5;
const VARIANT_REQUESTS: usize = 8;
const VARIANT_BYTES: usize = 20;

impl TextComparison {
    /// The findings by place.
    pub(super) fn placed_rows(
        &self,
        said: &[LoggedPrompt],
        splits: &mut [BucketTokens],
        named: &mut [u32],
        per_token: &[PerToken],
        show_text: bool,
    ) -> Vec<FindingRow> {
        let mut places: BTreeMap<&ChangePlace, Vec<(&ChangedPair, u64)>> = BTreeMap::new();
        for (placed, tokens) in &self.placed {
            places.entry(&placed.place).or_default().push((&placed.pair, *tokens));
        }
        let scope = ChangeScopes::of(said);
        let mut rows = Vec::new();
        for (place, pairs) in places {
            let mut amount = Amount::default();
            let mut worst: Option<(u32, &ChangedPair)> = None;
            let mut requests = 0;
            for &(pair, tokens) in &pairs {
                let split = &mut splits[pair.new];
                let known = split.get(Bucket::Diverged);
                let most = u64::from(known + split.get(Bucket::NeverSeen));
                let tokens = tokens.min(most) as u32;
                if tokens == 0 {
                    continue;
                }
                *split =
                    moved(split, Bucket::NeverSeen, Bucket::Diverged, tokens.saturating_sub(known));
                named[pair.new] = tokens;
                amount.add(&per_token[pair.new].amount(u64::from(tokens), false));
                requests += 1;
                if worst.is_none_or(|(most, _)| tokens > most) {
                    worst = Some((tokens, pair));
                }
            }
            let Some((_, pair)) = worst else {
                continue;
            };
            let (cause, title) = told(place, &pairs, said, &scope);
            let step = pairs.len() / PLACES_COMPARED + 1;
            let samples = pairs.iter().step_by(step).map(|(pair, _)| ChangeSample {
                text: &said[pair.new].text,
                start: pair.new_bytes.start,
                end: pair.new_bytes.end,
            });
            rows.push(FindingRow {
                remedy: Remedy::of(cause, &samples.collect::<Vec<_>>()),
                cause: cause.to_owned(),
                title,
                fix: place.fix(),
                place: place.shown(),
                requests,
                amount,
                saved_tokens: None,
                example: Some(shown_pair(pair, said, show_text)),
            });
        }
        rows
    }
}

/// The cause and its description, by all that changed at the place.
fn told(
    place: &ChangePlace,
    pairs: &[(&ChangedPair, u64)],
    said: &[LoggedPrompt],
    scope: &ChangeScopes<'_>,
) -> (&'static str, String) {
    let is_text = matches!(place.form, ChangeForm::Section | ChangeForm::Value);
    if is_text && has_few_variants(pairs, said) {
        let title = format!("a few variants of a text that alternate: {}", place.title());
        return ("prompt-variants", title);
    }
    let is_of_prompt = is_text || place.form == ChangeForm::List;
    let is_scoped = is_of_prompt
        && scope.is_per_conversation(pairs.iter().map(|(pair, _)| (pair.old, pair.new)));
    let mut title = place.title();
    if is_scoped {
        title += ", another one for each conversation or user";
    }
    (place.cause(), title)
}

/// Whether the same few sentences come again and again.
fn has_few_variants(pairs: &[(&ChangedPair, u64)], said: &[LoggedPrompt]) -> bool {
    let mut texts: BTreeSet<u64> = BTreeSet::new();
    let mut bytes = 0;
    for (pair, _) in pairs {
        let new = slice(&said[pair.new].text, &pair.new_bytes);
        bytes += new.len();
        texts.insert(fnv1a(new.as_bytes()));
    }
    pairs.len() >= VARIANT_REQUESTS
        && texts.len() >= 2
        && texts.len() <= VARIANTS_MAX
        && texts.len() * 3 <= pairs.len()
        && bytes / pairs.len() >= VARIANT_BYTES
}
