//! Three to five sentences that say what matters, each with its number.
//!
//! Each candidate says something only where its number is worth a sentence: [`MATERIAL`] of all
//! prompt tokens at least. The first [`MOST`] in this order are told: what is computed twice and
//! why, what routing, size and order would change, who makes the hits.

use headstart_insight::Bucket;
use headstart_trace::Provenance;

use crate::input::counted;
use crate::report::analyze::{Analysis, percent, thousands};

/// Most headlines.
const MOST: usize = 5;

/// What is less than this share of all prompt tokens is worth no sentence.
pub(crate) const MATERIAL: f64 = 0.02;

/// Of what was computed again, the least share that is told beside the largest.
const SECOND_MIN: f64 = 0.2;

/// Shares of fewer requests than this say little of any others.
const REQUESTS_MIN: u64 = 20;

/// The headlines, most important first.
pub(crate) fn of(analysis: &Analysis) -> Vec<String> {
    if analysis.characterization.requests < 2 {
        let said = "One request alone shares its prompt with nothing: a log of a day says what is \
                    computed twice.";
        return vec![said.to_owned()];
    }
    let candidates = [
        few_requests(analysis),
        copies(analysis),
        not_served(analysis),
        computed_again(analysis),
        unnamed(analysis),
        routing(analysis),
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
            "These are {} only: what is said of them is true, but says little of others.",
            counted(requests, "request")
        )
    })
}

fn copies(analysis: &Analysis) -> Option<String> {
    let (copies, all) = (analysis.copies, analysis.characterization.requests);
    (copies as f64 >= MATERIAL * all as f64).then(|| {
        format!(
            "{} of the {} requests are copies of another one, and each counts: unless they are \
             retries, what is said below is of traffic that there was not.",
            thousands(copies),
            thousands(all)
        )
    })
}

/// The log's own count of cached tokens, where a replay finds much more.
fn not_served(analysis: &Analysis) -> Option<String> {
    let own = &analysis.own;
    let share = |tokens: u64| tokens as f64 / own.prompt_tokens.max(1) as f64;
    let (served, replayed) = (share(own.served_tokens), share(own.replayed_tokens));
    let lost = own.replayed_tokens.saturating_sub(own.served_tokens);
    if own.requests == 0 || analysis.share(lost) < MATERIAL {
        return None;
    }
    let fleet = format!(
        "a replay on {} of {} tokens each finds {} of their tokens",
        counted(analysis.replicas as u64, "replica"),
        thousands(analysis.capacity_blocks * u64::from(analysis.info.block_tokens)),
        percent(replayed),
    );
    let requests = counted(own.requests, "request");
    Some(match own.served_tokens {
        0 => format!(
            "The engine served nothing from its cache: cached tokens are 0 in all {requests} that \
             have the count, while {fleet}. Its prefix cache is off, it does not report hits, or \
             requests went to where their prefix was not."
        ),
        _ => format!(
            "The log says that {} of the prompt tokens of {requests} were cached, while {fleet}. \
             What is missing was lost to room, to routing or to restarts: the log does not say \
             which.",
            percent(served),
        ),
    })
}

/// Whether tokens in it were computed although they, or their content, had been computed before.
fn is_again(bucket: Bucket) -> bool {
    !bucket.is_served() && !matches!(bucket, Bucket::BlockFloor | Bucket::NeverSeen)
}

/// All such tokens.
pub(crate) fn again(analysis: &Analysis) -> u64 {
    let steps = analysis.waterfall.iter();
    let again = steps.filter(|step| is_again(step.bucket));
    again.map(|step| step.amount.tokens).sum()
}

fn computed_again(analysis: &Analysis) -> Option<String> {
    let again = again(analysis);
    let computed = analysis.prompt_tokens() - analysis.served_tokens();
    if computed == 0 {
        return None;
    }
    if analysis.share(again) < MATERIAL {
        return Some(little(analysis, again));
    }
    let of_that = |tokens: u64| percent(tokens as f64 / again as f64);
    let mut text = format!(
        "{} of all prompt tokens were computed again ({} of what was computed)",
        percent(analysis.share(again)),
        percent(again as f64 / computed as f64),
    );
    let causes = causes(analysis);
    let is_told = |index: usize, tokens: u64| {
        index == 0 || (index == 1 && tokens as f64 >= SECOND_MIN * again as f64)
    };
    for (index, (tokens, words)) in causes.iter().enumerate() {
        if is_told(index, *tokens) {
            let joint = if index == 0 { ": " } else { ", " };
            text += &format!("{joint}{} of that {words}", of_that(*tokens));
        }
    }
    let named: u64 = analysis.findings.iter().map(|it| it.amount.tokens).sum();
    let first_is_named = causes.first().is_some_and(|(tokens, _)| {
        let mut findings = analysis.findings.iter();
        findings.any(|finding| finding.amount.tokens == *tokens)
    });
    if named > 0 && !first_is_named {
        text += &format!("; the causes that were found explain {}", of_that(named));
    }
    Some(text + ".")
}

/// What the tokens that were computed again were computed again for, most first: a named cause, or
/// a bucket of which no cause was found.
fn causes(analysis: &Analysis) -> Vec<(u64, String)> {
    let findings = analysis.findings.iter();
    let mut causes: Vec<_> = findings
        .map(|it| (it.amount.tokens, format!("for {}", it.title)))
        .collect();
    for step in analysis.waterfall.iter().filter(|it| is_again(it.bucket)) {
        causes.push(match step.bucket {
            Bucket::Diverged => (
                analysis.unnamed_tokens(),
                "known behind another prefix, for no cause that has a name".to_owned(),
            ),
            bucket => (
                step.amount.tokens,
                format!("because {}", because(analysis, bucket)),
            ),
        });
    }
    causes.retain(|(tokens, _)| *tokens > 0);
    causes.sort_by_key(|(tokens, _)| std::cmp::Reverse(*tokens));
    causes
}

/// A bucket's meaning as a clause.
fn because(analysis: &Analysis, bucket: Bucket) -> &'static str {
    match bucket {
        Bucket::LoadFailed => "loading failed or was too slow",
        Bucket::InFlight => "the same prefix was being computed when they came",
        Bucket::IndexWrong => "the engine did not serve what it had computed before",
        Bucket::HeldElsewhere => "another replica held them",
        Bucket::Reset => "a restart or a clear had lost them",
        Bucket::Evicted => "they had been evicted to make room",
        Bucket::Namespace => "they are known under another salt, adapter or model only",
        other => analysis.meaning(other),
    }
}

/// Where next to nothing was computed again.
fn little(analysis: &Analysis, again: u64) -> String {
    let share = |bucket| percent(analysis.share(analysis.tokens_in(bucket)));
    let new = match analysis.has_texts() {
        true => "new",
        false => "new, or changed in front, which ids do not tell apart",
    };
    format!(
        "Little is computed twice: {} of the prompt tokens are found, {} were computed again, {} \
         are {new}, and {} are ends of prompts, which are always computed.",
        percent(analysis.share(analysis.served_tokens())),
        percent(analysis.share(again)),
        share(Bucket::NeverSeen),
        share(Bucket::BlockFloor),
    )
}

/// What to do about a loss for which no cause was found.
fn unnamed(analysis: &Analysis) -> Option<String> {
    let tokens = analysis.unnamed_tokens();
    let unnamed = analysis.unnamed.as_ref()?;
    (analysis.share(tokens) >= MATERIAL).then(|| {
        let mut text = format!(
            "No cause was found for {} tokens that are known behind another prefix ({} of all); \
             of one request, most in {}",
            thousands(tokens),
            percent(analysis.share(tokens)),
            unnamed.request,
        );
        if let Some(file) = &unnamed.file {
            text += &format!(
                ": `headstart why {} {} --show-text` shows where it parts from an earlier one, \
                 and `headstart lint {} --show-text` where the others do",
                quoted(&unnamed.request),
                quoted(file),
                quoted(file)
            );
        }
        text + "."
    })
}

/// As a shell takes it for one word.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-:/".contains(letter);
    match !word.is_empty() && !word.starts_with('-') && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

fn routing(analysis: &Analysis) -> Option<String> {
    let routing = &analysis.routing;
    let lost = routing.precise_tokens.saturating_sub(routing.random_tokens);
    (routing.replicas > 1 && analysis.share(lost) >= MATERIAL).then(|| {
        format!(
            "One request after the other, random routing over {} replicas would find {} of the \
             prompt tokens in the mean, prefix-aware routing {}: {} of the hits would be lost.",
            routing.replicas,
            percent(analysis.share(routing.random_tokens)),
            percent(analysis.share(routing.precise_tokens)),
            percent(routing.lost_share()),
        )
    })
}

fn size(analysis: &Analysis) -> Option<String> {
    let curve = &analysis.characterization.curve;
    let ideal = analysis.characterization.ideal.hits;
    let reaching = |share: f64| {
        let enough = share * ideal as f64;
        curve.iter().find(|point| point.hits as f64 >= enough)
    };
    let (most, all) = (reaching(0.9)?, reaching(0.99)?);
    let times = all.capacity_blocks as f64 / most.capacity_blocks.max(1) as f64;
    let gain = all.token_hit_rate - most.token_hit_rate;
    (ideal > 0 && times >= 1.5 && gain >= MATERIAL).then(|| {
        format!(
            "One cache of {} tokens{} serves 90 % of what an infinite one would; 99 % takes \
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
            "Up to {} of the prompt tokens stood in an earlier prompt of the same model and salt, \
             but behind something else: what changes put last, a fixed order, or reuse without \
             order, could serve them.",
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
    (skew.owners >= 20 && few <= 0.2 && is_worth).then(|| {
        format!(
            "Half of all hits are of {} of the {} sessions{}.",
            percent(few),
            thousands(skew.owners),
            inferred(analysis),
        )
    })
}

/// What must be said of sessions that nobody named.
fn inferred(analysis: &Analysis) -> &'static str {
    match analysis.info.sessions {
        Provenance::Inferred => " (as inferred)",
        Provenance::Given | Provenance::Absent => "",
    }
}

fn others(analysis: &Analysis) -> Option<String> {
    let numbers = &analysis.characterization;
    let origins = &numbers.origins;
    let known = origins.same_session + origins.other_session;
    let share = origins.other_session as f64 / known.max(1) as f64;
    let of_all = share * numbers.ideal.block_hit_rate;
    (known > 0 && of_all >= MATERIAL).then(|| {
        format!(
            "{} of the hits are on what another session{} left: a cache per \
             session would compute them again.",
            percent(share),
            inferred(analysis),
        )
    })
}

fn never_again(analysis: &Analysis) -> Option<String> {
    let share = analysis.characterization.ideal.never_reused_share;
    (share >= 0.2).then(|| {
        format!(
            "{} of the different blocks come only once: they take room and serve nobody.",
            percent(share)
        )
    })
}
