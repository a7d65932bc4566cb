//! Three to five sentences that say what matters, each with its number.
//!
//! Each candidate says something only where its number is worth a sentence: [`MATERIAL`] of all
//! prompt tokens at least. The first five in this order are shown: what was recomputed and
//! why, what routing, size and order would change, which sessions make the hits.

use headstart_core::figures::{counted, percent, thousands};
use headstart_insight::Bucket;
use headstart_trace::Provenance;

use crate::results::{Analysis, EvictionHits};

/// Most headlines.
const MOST: usize = 5;

/// Least share of all prompt tokens that is worth a headline.
pub const MATERIAL: f64 = 0.02;

/// The least share of the recomputed tokens for which the second cause is shown.
const SECOND_MIN: f64 = 0.2;

/// Shares of fewer requests than this say little of any others.
const REQUESTS_MIN: u64 = 20;

/// The headlines, most important first.
pub(crate) fn of(analysis: &Analysis) -> Vec<String> {
    if analysis.characterization.requests < 2 {
        let said = "One request alone has no earlier prefix to share; analyze a log of several.";
        return vec![said.to_owned()];
    }
    let reason = analysis.served.sentence.clone();
    // Where nothing was served, that comes first, and the reason is one that fits.
    let (service, more) = match analysis.own.served_tokens {
        0 => (not_served(analysis), reason),
        _ if reason.is_some() => (reason, None),
        _ => (not_served(analysis), None),
    };
    let candidates = [
        // The order is the importance; the first five that have something to say are shown.
        few_requests(analysis),
        copies(analysis),
        service,
        more,
        computed_again(analysis),
        unnamed(analysis),
        routing(analysis),
        eviction(analysis),
        size(analysis),
        order(analysis),
        few_sessions(analysis),
        others(analysis),
        never_again(analysis),
    ];
    candidates.into_iter().flatten().take(MOST).collect()
}

fn few_requests(analysis: &Analysis) -> Option<String> {
    let requests = analysis.characterization.requests;
    (requests < REQUESTS_MIN).then(|| {
        format!(
            "Only {}: the shares below say little about other traffic.",
            counted(requests, "request")
        )
    })
}

fn copies(analysis: &Analysis) -> Option<String> {
    let (copies, all) = (analysis.copies, analysis.characterization.requests);
    (copies as f64 >= MATERIAL * all as f64).then(|| {
        let verb = match copies {
            1 => "is a copy",
            _ => "are copies",
        };
        format!(
            "{} of the {} {verb} of another one. If they are not retries, the log holds some \
             requests twice and the shares below are too high.",
            thousands(copies),
            counted(all, "request")
        )
    })
}

/// The log's own count of cached tokens, where a replay finds much more.
fn not_served(analysis: &Analysis) -> Option<String> {
    let own = &analysis.own;
    let share = |tokens: u64| tokens as f64 / own.prompt_tokens.max(1) as f64;
    let (served, replayed) = (share(own.served_tokens), share(own.replayed_tokens));
    let lost = own.replayed_tokens.saturating_sub(own.served_tokens);
    // The replay may find less than the log; only a shortfall of the engine is worth a sentence.
    if own.requests == 0 || analysis.share(lost) < MATERIAL {
        return None;
    }
    let fleet = format!("A replay on {} hits {}", analysis.fleet(), percent(replayed));
    let requests = counted(own.requests, "request");
    Some(match own.served_tokens {
        // No hit at all has other causes than too few: a cache that is off, or hits that are not
        // reported.
        0 => format!(
            "The engine served nothing from its cache: it reports 0 cached tokens in all \
             {requests}. {fleet}. Its prefix cache is off, it does not report hits, or requests \
             went to replicas without their prefix."
        ),
        _ => format!(
            "The log reports {} of the prompt tokens of {requests} as cached. {fleet}. The \
             difference was lost to capacity, routing or restarts; the log does not show which.",
            percent(served),
        ),
    })
}

/// Whether tokens in it were computed although they, or their content, had been computed before.
pub fn is_again(bucket: Bucket) -> bool {
    !bucket.is_served() && !matches!(bucket, Bucket::BlockFloor | Bucket::NeverSeen)
}

/// All such tokens.
fn again(analysis: &Analysis) -> u64 {
    let steps = analysis.waterfall.iter();
    let again = steps.filter(|step| is_again(step.bucket));
    again.map(|step| step.amount.tokens).sum()
}

fn computed_again(analysis: &Analysis) -> Option<String> {
    let again = again(analysis);
    // All tokens were served, so no sentence on recomputed ones is left to say.
    if analysis.prompt_tokens() == analysis.served_tokens() {
        return None;
    }
    if analysis.share(again) < MATERIAL {
        return Some(little(analysis, again));
    }
    let mut text = format!(
        "{} of the prompt tokens were recomputed although they had been computed before.",
        percent(analysis.share(again)),
    );
    let causes = causes(analysis);
    if let Some(first) = causes.first() {
        let share = percent(analysis.share(first.tokens));
        text += &format!(" Main cause: {} ({share} of all prompt tokens)", first.name);
        // A second cause that is small beside the first would only lengthen the sentence.
        let is_large = |cause: &&CauseTold| cause.tokens as f64 >= SECOND_MIN * again as f64;
        if let Some(second) = causes.get(1).filter(is_large) {
            let share = percent(analysis.share(second.tokens));
            text += &format!("; then {} ({share})", second.name);
        }
        text += ".";
    }
    let named: u64 = analysis.findings.iter().map(|finding| finding.amount.tokens).sum();
    // The first cause is a mistake already; the sentence would repeat it.
    let first_is_named = causes.first().is_some_and(|cause| cause.bucket.is_none());
    if named > 0 && !first_is_named {
        let share = percent(analysis.share(named));
        text += &format!(" Mistakes in prompts explain {share}.");
    }
    Some(text)
}

/// Why tokens were recomputed.
#[derive(Debug)]
pub struct CauseTold {
    /// Tokens that were recomputed.
    pub tokens: u64,
    /// The cause in words.
    pub name: String,
    /// Bucket of the tokens; `None` for a mistake in prompts.
    pub bucket: Option<Bucket>,
}

/// Why tokens were recomputed, most first: a named cause, or a bucket without one.
pub fn causes(analysis: &Analysis) -> Vec<CauseTold> {
    let findings = analysis.findings.iter();
    let mut causes: Vec<_> = findings
        .map(|finding| CauseTold {
            tokens: finding.amount.tokens,
            name: finding.title.clone(),
            bucket: None,
        })
        .collect();
    for step in analysis.waterfall.iter().filter(|step| is_again(step.bucket)) {
        let (tokens, name) = match step.bucket {
            // Findings explain a part of this bucket. The rest is the unnamed row, so no token
            // counts twice.
            Bucket::Diverged => {
                (analysis.unnamed_tokens(), "a different prefix, for an unknown reason")
            }
            bucket => (step.amount.tokens, because(analysis, bucket)),
        };
        causes.push(CauseTold { tokens, name: name.to_owned(), bucket: Some(step.bucket) });
    }
    // Buckets without tokens are in the waterfall too.
    causes.retain(|cause| cause.tokens > 0);
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.tokens));
    causes
}

/// A bucket as a cause.
fn because(analysis: &Analysis, bucket: Bucket) -> &'static str {
    match bucket {
        Bucket::LoadFailed => "stored KV that failed to load or loaded slowly",
        Bucket::InFlight => "requests that came while their prefix was being computed",
        Bucket::IndexWrong => "the engine did not serve what it had computed",
        Bucket::HeldElsewhere => "the prefix was cached on another replica",
        Bucket::Reset => "a restart or a cache reset",
        Bucket::Evicted => "eviction",
        Bucket::Namespace => match &analysis.served.namespace_fields[..] {
            ["cache_salt"] => "the prefix was cached under another `cache_salt`",
            ["model"] => "the prefix was cached for another `model`: an alias or an adapter",
            _ => "the prefix was cached for another tenant, adapter or model",
        },
        other => analysis.meaning(other),
    }
}

/// Describes traffic of which little is recomputed.
fn little(analysis: &Analysis, again: u64) -> String {
    let share = |bucket| percent(analysis.share(analysis.tokens_in(bucket)));
    let new = if analysis.has_texts() {
        "new"
    } else {
        "new or behind a changed prefix (block ids cannot tell which)"
    };
    format!(
        "Little is recomputed: {} of the prompt tokens hit the cache, {} were recomputed, {} are \
         {new}, and {} are ends of prompts, which are always computed.",
        percent(analysis.share(analysis.served_tokens())),
        percent(analysis.share(again)),
        share(Bucket::NeverSeen),
        share(Bucket::BlockFloor),
    )
}

/// Suggests how to find the cause of an unnamed loss.
fn unnamed(analysis: &Analysis) -> Option<String> {
    let tokens = analysis.unnamed_tokens();
    let unnamed = analysis.unnamed.as_ref()?;
    (analysis.share(tokens) >= MATERIAL).then(|| {
        let mut text = format!(
            "{} of the prompt tokens ({}) were seen before after a different prefix, and no cause \
             was found. Largest example: {}.",
            percent(analysis.share(tokens)),
            thousands(tokens),
            unnamed.request,
        );
        if let Some(file) = &unnamed.file {
            text += &format!(
                " `headstart why {} {} --show-text` shows the difference; `headstart lint {} \
                 --show-text` lists others.",
                quoted(&unnamed.request),
                quoted(file),
                quoted(file)
            );
        }
        text
    })
}

/// As a shell takes it for one word.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-:/".contains(letter);
    // A leading hyphen would be read as an option.
    if !word.is_empty() && !word.starts_with('-') && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

fn routing(analysis: &Analysis) -> Option<String> {
    let routing = &analysis.routing;
    let lost = routing.precise_tokens.saturating_sub(routing.random_tokens);
    (routing.replicas > 1 && analysis.share(lost) >= MATERIAL).then(|| {
        format!(
            "Hit rate on {}: {} with prefix-aware routing, {} with random routing.",
            counted(routing.replicas as u64, "replica"),
            percent(analysis.share(routing.precise_tokens)),
            percent(analysis.share(routing.random_tokens)),
        )
    })
}

/// The policy `hazard` beside LRU, where anything is evicted.
fn eviction(analysis: &Analysis) -> Option<String> {
    let EvictionHits { blocks, lru_tokens, hazard_tokens } = analysis.eviction;
    let ideal = &analysis.characterization.ideal;
    let is_evicted = blocks < ideal.distinct_blocks;
    (is_evicted && analysis.share(ideal.hit_tokens.saturating_sub(lru_tokens)) >= MATERIAL).then(
        || {
            format!(
                "Eviction in one cache as large as the fleet's: the policy `hazard` hits {} of \
                 the prompt tokens, LRU {}.",
                percent(analysis.share(hazard_tokens)),
                percent(analysis.share(lru_tokens)),
            )
        },
    )
}

fn size(analysis: &Analysis) -> Option<String> {
    let curve = &analysis.characterization.curve;
    let ideal = analysis.characterization.ideal.hits;
    let reaching = |share: f64| {
        let enough = share * ideal as f64;
        curve.iter().find(|point| point.hits as f64 >= enough)
    };
    // The headline compares 90 % and 99 % of the hits of an unlimited cache.
    let (most, all) = (reaching(0.9)?, reaching(0.99)?);
    let times = all.capacity_blocks as f64 / most.capacity_blocks.max(1) as f64;
    let gain = all.token_hit_rate - most.token_hit_rate;
    // The sentence is worth its place only if the last hits take much more memory.
    (ideal > 0 && times >= 1.5 && gain >= MATERIAL).then(|| {
        format!(
            "A cache of {} tokens{} reaches 90 % of the hits of an unlimited one; 99 % needs \
             {times:.1} times as much.",
            thousands(most.capacity_tokens),
            analysis.in_bytes(most.capacity_tokens),
        )
    })
}

fn order(analysis: &Analysis) -> Option<String> {
    let share = analysis.share(analysis.order_free_tokens?);
    (share >= MATERIAL).then(|| {
        format!(
            "{} of the prompt tokens were in an earlier prompt, after a different prefix. Parts \
             that change belong at the end of a prompt, after the parts that stay.",
            percent(share)
        )
    })
}

fn few_sessions(analysis: &Analysis) -> Option<String> {
    let numbers = &analysis.characterization;
    let skew = &numbers.session_skew;
    // From the poorest to the richest: where the upper half of the total begins.
    let (below, _) = skew.lorenz.iter().rev().find(|(_, total)| *total <= 0.5)?;
    let few = 1.0 - below;
    let is_worth = numbers.ideal.block_hit_rate >= MATERIAL;
    // A few of fewer than 20 sessions are no sign of skew.
    (skew.owners >= 20 && few <= 0.2 && is_worth).then(|| {
        format!(
            "{} of the {} sessions{} make half of all hits.",
            percent(few),
            thousands(skew.owners),
            inferred(analysis),
        )
    })
}

/// Marks sessions that were inferred.
fn inferred(analysis: &Analysis) -> &'static str {
    match analysis.info.sessions {
        Provenance::Inferred => " (inferred)",
        Provenance::Given | Provenance::Absent => "",
    }
}

fn others(analysis: &Analysis) -> Option<String> {
    let numbers = &analysis.characterization;
    let origins = &numbers.origins;
    // Hits of sessions that are not known are left out of the share.
    let known = origins.same_session + origins.other_session;
    let share = origins.other_session as f64 / known.max(1) as f64;
    let of_all = share * numbers.ideal.block_hit_rate;
    (known > 0 && of_all >= MATERIAL).then(|| {
        format!(
            "{} of the hits are on prefixes that another session{} computed; a cache per session \
             would lose them.",
            percent(share),
            inferred(analysis),
        )
    })
}

fn never_again(analysis: &Analysis) -> Option<String> {
    let share = analysis.characterization.ideal.never_reused_share;
    (share >= 0.2).then(|| {
        format!("{} of the distinct blocks are used once and never again.", percent(share))
    })
}
