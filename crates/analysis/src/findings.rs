//! The named causes of recomputed tokens, by the prompts' texts in order of time.

mod placed;
mod scope;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use headstart_core::{Progress, SessionId};
use headstart_insight::text::{Evidence, Finding, Findings, Loss, Neighbours};
use headstart_insight::{Bucket, BucketTokens, Cause};

use crate::attribution::{LastOfSessions, PlacedChange, is_plausible, placed_change};
use crate::cost::PerToken;
use crate::fix::Fixes;
use crate::fleet::namespace;
use crate::logged::moved;
use crate::memory::Bounds;
use crate::remedy::{ChangeSample, Remedy};
use crate::results::{Amount, CauseExample, FindingRow};
use crate::structure::ChangePlace;
use crate::traffic::LoggedPrompt;
use crate::walk::{sketcher, told_findings};
use scope::ChangeScopes;

/// Characters shown in front of a change.
const CONTEXT_CHARS: usize = 90;

/// Longest change that is shown in full, characters.
const CHANGE_CHARS: usize = 160;

/// Findings whose fix is replayed, those of most tokens.
const FIXES_MAX: usize = 8;

/// Two requests of which the second lost.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) old: usize,
    pub(crate) new: usize,
    pub(crate) evidence: Evidence,
}

/// Two requests that part at a place in the form of the prompt.
#[derive(Clone)]
struct PlacedPair {
    pair: ChangedPair,
    place: ChangePlace,
    /// The cause by kind of word, told where too few requests have the place.
    evidence: Option<Evidence>,
}

/// Two requests, and the bytes that changed.
#[derive(Clone)]
struct ChangedPair {
    old: usize,
    new: usize,
    old_bytes: Range<usize>,
    new_bytes: Range<usize>,
}

/// Comparison of the texts, before the fleet is replayed.
pub(crate) struct TextComparison {
    /// Requests whose text parts from an earlier one for a reason that has a name, in order, with
    /// the tokens behind that are the same.
    pairs: Vec<(Pair, u64)>,
    /// Those without such a reason that lost something, with the place of the change.
    placed: Vec<(PlacedPair, u64)>,
    /// Most words of prompts that were remembered at once.
    pub(crate) words_max: usize,
    /// Prompts that had to go, so that later ones were not compared with them.
    pub(crate) num_forgotten: u64,
}

/// Compares each text with the nearest of those before it.
pub(crate) fn compared(
    said: &[LoggedPrompt],
    bounds: &Bounds,
    progress: &dyn Progress,
) -> TextComparison {
    let sketcher = sketcher();
    let mut neighbours: Neighbours<usize> = Neighbours::new(bounds.texts);
    let (mut pairs, mut placed, mut words_max) = (Vec::new(), Vec::new(), 0);
    let mut last: LastOfSessions<SessionId, usize> = LastOfSessions::default();
    // Some tools give each request a session of its own.
    let sessions: HashSet<SessionId> = said.iter().filter_map(|one| one.session).collect();
    let has_sessions = sessions.len() < said.len();
    for (index, request) in said.iter().enumerate() {
        progress.at(index);
        let sketch = sketcher.sketch(&request.text);
        let space = namespace(request);
        let session = request.session.filter(|_| has_sessions);
        // The comparison comes before the insertion: otherwise a prompt is nearest to itself.
        let found = neighbours.tell(space, &sketch).and_then(|told| {
            let nearest = told.explanation.map(|explanation| (*told.near.name, explanation));
            last.better(session.as_ref(), &sketch, told.served_words, nearest)
        });
        if let Some((old, explanation)) = found {
            let before = &said[old];
            let tokens = tokens_in(request, explanation.divergence.lost_bytes);
            let is_same = before.session.zip(session).map(|(one, other)| one == other);
            let place = placed_change(
                (&before.text, &request.text),
                &explanation.divergence,
                explanation.evidence.as_ref(),
                is_same,
            );
            let evidence = explanation
                .evidence
                .filter(|evidence| is_plausible((&before.text, &request.text), evidence, is_same));
            match (evidence, place) {
                (evidence, Some(PlacedChange { place, old: old_bytes, new: new_bytes })) => {
                    let pair = ChangedPair { old, new: index, old_bytes, new_bytes };
                    placed.push((PlacedPair { pair, place, evidence }, tokens));
                }
                (Some(evidence), None) => pairs.push((Pair { old, new: index, evidence }, tokens)),
                // A difference without a cause is no finding; its tokens stay in the unnamed row.
                (None, None) => {}
            }
        }
        if let Some(session) = session {
            last.insert(session, index, sketch.clone());
        }
        neighbours.insert(space, index, sketch);
        words_max = words_max.max(neighbours.num_words());
    }
    let placed = frequent(placed, said.len(), &mut pairs);
    TextComparison { pairs, placed, words_max, num_forgotten: neighbours.num_forgotten() }
}

/// The pairs at places that enough requests have. The others are pairs by their evidence, if they
/// have some.
fn frequent(
    placed: Vec<(PlacedPair, u64)>,
    requests: usize,
    pairs: &mut Vec<(Pair, u64)>,
) -> Vec<(PlacedPair, u64)> {
    let mut counts: BTreeMap<ChangePlace, usize> = BTreeMap::new();
    for (placed, _) in &placed {
        *counts.entry(placed.place.clone()).or_default() += 1;
    }
    let least = REQUESTS_MIN.max(requests / PLACE_SHARE);
    let (kept, rare): (Vec<_>, Vec<_>) =
        placed.into_iter().partition(|(placed, _)| counts[&placed.place] >= least);
    for (rare, tokens) in rare {
        if let Some(evidence) = rare.evidence {
            pairs.push((Pair { old: rare.pair.old, new: rare.pair.new, evidence }, tokens));
        }
    }
    // The replay of a fix takes the pairs in the order of the log.
    pairs.sort_by_key(|(pair, _)| pair.new);
    kept
}

impl TextComparison {
    /// All findings, most tokens first, and the request that lost most for none of them;
    /// `per_token` says what each request's computed tokens cost.
    /// What stood in an earlier text behind a change that has a name is not new, whatever a
    /// memory of blocks says: it is [`Bucket::Diverged`] in `splits` from here on. No request
    /// loses more than was computed of it for want of the same prefix.
    pub(crate) fn findings(
        self,
        said: &[LoggedPrompt],
        splits: &mut [BucketTokens],
        per_token: &[PerToken],
        fixes: &Fixes<'_>,
        show_text: bool,
    ) -> (Vec<FindingRow>, Option<usize>) {
        let mut named = vec![0; splits.len()];
        let mut findings: Findings<Pair> = Findings::default();
        let mut costs: HashMap<Cause, Amount> = HashMap::new();
        for (pair, tokens) in &self.pairs {
            let split = &mut splits[pair.new];
            let known = split.get(Bucket::Diverged);
            // The text says that tokens were there before; the replay says how many were computed.
            let most = u64::from(known + split.get(Bucket::NeverSeen));
            let tokens = (*tokens).min(most) as u32;
            // In the replay these tokens are neither new nor diverged, so nothing was lost.
            if tokens == 0 {
                continue;
            }
            // The replay's memory of blocks may have forgotten the earlier text and call its tokens
            // new.
            let more = tokens.saturating_sub(known);
            *split = moved(split, Bucket::NeverSeen, Bucket::Diverged, more);
            named[pair.new] = tokens;
            let amount = per_token[pair.new].amount(u64::from(tokens), false);
            costs.entry(pair.evidence.cause).or_default().add(&amount);
            let loss = Loss::new(&pair.evidence, u64::from(tokens));
            // The pair is cloned only if it is the worst of its finding.
            findings.add(loss, || pair.clone());
        }
        let placed = self.placed_rows(said, splits, &mut named, per_token, show_text);
        let sorted = told_findings(findings, said.len() as u64);
        let rows = sorted.into_iter().enumerate();
        let scope = ChangeScopes::of(said);
        let rows = rows.map(|(rank, finding)| {
            let is_it = |pair: &&Pair| {
                (pair.evidence.cause, pair.evidence.place) == (finding.cause, finding.place)
            };
            let pairs = self.pairs.iter().map(|(pair, _)| pair).filter(is_it);
            let place = common_place(pairs.clone(), said);
            // Pairs of the whole log: those of one hour have more in common.
            let step = pairs.clone().count() / PLACES_COMPARED + 1;
            let samples = pairs.clone().step_by(step).map(|pair| ChangeSample {
                text: &said[pair.new].text,
                start: pair.evidence.new.start,
                end: pair.evidence.new.end,
            });
            let remedy = Remedy::of(finding.cause.name(), &samples.collect::<Vec<_>>());
            // A fix takes a replay of the whole log, so only the largest findings get one.
            let saved_tokens = if rank < FIXES_MAX { fixes.saved(pairs) } else { None };
            let requests = self.pairs.iter().map(|(pair, _)| pair).filter(is_it);
            let is_conversation = finding.cause == Cause::Nonce
                && scope.is_per_conversation(requests.map(|pair| (pair.old, pair.new)));
            let mut row =
                FindingRow { saved_tokens, place, remedy, ..row(finding, said, &costs, show_text) };
            if is_conversation {
                row.title = scope::CONVERSATION_ID.to_owned();
            }
            row
        });
        let mut rows: Vec<_> = rows.chain(placed).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.amount.tokens));
        (rows, most_unnamed(splits, &named))
    }
}

/// Pairs of a finding whose places are compared.
const PLACES_COMPARED: usize = 24;

/// The place that most pairs of a finding have: a label that several requests share is a word of
/// the template and no user's.
fn common_place<'p>(
    pairs: impl Iterator<Item = &'p Pair>,
    said: &[LoggedPrompt],
) -> Option<String> {
    let places: Vec<String> = pairs
        .take(PLACES_COMPARED)
        .filter_map(|pair| {
            let spans = (pair.evidence.old.clone(), pair.evidence.new.clone());
            let (old, new) = (&said[pair.old].text, &said[pair.new].text);
            let mut place = ChangePlace::of(old, new, &spans)?;
            // The order of keys is a property of the whole record.
            if pair.evidence.cause == Cause::JsonKeys {
                place = place.of_record(new, spans.1.start);
            }
            place.shown()
        })
        .collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for place in &places {
        *counts.entry(place).or_default() += 1;
    }
    let (place, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    (count >= REQUESTS_MIN && count * 2 > places.len()).then(|| place.to_owned())
}

/// Fewest requests that must have lost something at one place, and the same as a share of all: one
/// in this number.
const REQUESTS_MIN: usize = 3;
const PLACE_SHARE: usize = 20;

/// The first of the requests of which most tokens are known behind another prefix without a
/// `named` cause.
fn most_unnamed(splits: &[BucketTokens], named: &[u32]) -> Option<usize> {
    let unnamed = |index: usize| splits[index].get(Bucket::Diverged).saturating_sub(named[index]);
    // The reverse order makes the first of equals win: `max_by_key` returns the last one.
    let most = (0..named.len()).rev().max_by_key(|&index| unnamed(index))?;
    (unnamed(most) > 0).then_some(most)
}

/// Returns the tokens in `bytes` bytes of a prompt, by its average.
fn tokens_in(said: &LoggedPrompt, bytes: usize) -> u64 {
    let share = bytes as f64 / said.text.len().max(1) as f64;
    (said.tokens.len() as f64 * share).round() as u64
}

fn row(
    finding: Finding<Pair>,
    said: &[LoggedPrompt],
    costs: &HashMap<Cause, Amount>,
    show_text: bool,
) -> FindingRow {
    let cost = costs.get(&finding.cause).copied().unwrap_or_default();
    // Of a cause in several places each bears its share.
    let share = finding.tokens as f64 / cost.tokens.max(1) as f64;
    FindingRow {
        cause: finding.cause.name().to_owned(),
        title: finding.cause.title().to_owned(),
        fix: finding.cause.fix().to_owned(),
        requests: finding.requests,
        amount: Amount {
            tokens: finding.tokens,
            seconds: cost.seconds * share,
            money: cost.money.map(|money| money * share),
        },
        place: None,
        remedy: None,
        saved_tokens: None,
        example: Some(example(&finding.example, said, show_text)),
    }
}

fn example(pair: &Pair, said: &[LoggedPrompt], show_text: bool) -> CauseExample {
    let new_bytes = stands_now(&pair.evidence, said[pair.new].text.len());
    let old_bytes = pair.evidence.old.clone();
    let changed = ChangedPair { old: pair.old, new: pair.new, old_bytes, new_bytes };
    shown_pair(&changed, said, show_text)
}

fn shown_pair(pair: &ChangedPair, said: &[LoggedPrompt], show_text: bool) -> CauseExample {
    let (old, new) = (&said[pair.old], &said[pair.new]);
    // Offsets are bytes of the text; the token is where both lists of tokens part.
    let together = old.tokens.iter().zip(&new.tokens);
    let shown = |text: &str, span: &Range<usize>| {
        // A span that does not fit the text shows nothing instead of ending the analysis.
        show_text.then(|| shortened(text.get(span.clone()).unwrap_or_default()))
    };
    CauseExample {
        request: new.name.clone(),
        neighbour: old.name.clone(),
        token: together.take_while(|(one, other)| one == other).count() as u64,
        before: show_text.then(|| before(&new.text, pair.new_bytes.start)),
        old: shown(&old.text, &pair.old_bytes),
        new: shown(&new.text, &pair.new_bytes),
    }
}

/// Returns the bytes of the new text at the change, in a text of `len` bytes. For a trimmed
/// history, these include the text that moved up.
fn stands_now(evidence: &Evidence, len: usize) -> Range<usize> {
    let start = evidence.new.start;
    match evidence.cause {
        // The older prompt had more text in between, so all that follows has moved.
        Cause::Trimmed => start..len.max(start),
        _ => evidence.new.clone(),
    }
}

/// Returns the last `CONTEXT_CHARS` characters before a byte.
fn before(text: &str, byte: usize) -> String {
    let front = text.get(..byte).unwrap_or_default();
    // The nth character from the end, so that the cut is never inside a character.
    let start = front.char_indices().rev().nth(CONTEXT_CHARS - 1);
    front[start.map_or(0, |(start, _)| start)..].to_owned()
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(CHANGE_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_short_and_whole_characters() {
        let long = "ä".repeat(500);
        assert_eq!(shortened(&long).chars().count(), CHANGE_CHARS + 1);
        assert_eq!(shortened("short"), "short");
        assert_eq!(before(&long, 400).chars().count(), CONTEXT_CHARS);
        assert_eq!(before("abc", 2), "ab");
        assert_eq!(before("ä", 1), "", "no character ends there");
    }
}
