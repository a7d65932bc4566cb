//! Three to five sentences that say what matters, each with its number.
//!
//! Each candidate says something only where its number is worth a sentence. The first
//! [`MOST`] in this order are told: what is computed twice, what routing, size and order would
//! change, who makes the hits.

use headstart_insight::Bucket;

use crate::input::counted;
use crate::report::analyze::{Analysis, percent, thousands};

/// Most headlines.
const MOST: usize = 5;

/// A share below this is worth no sentence.
const SHARE_MIN: f64 = 0.02;

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
        not_served(analysis),
        computed_again(analysis),
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

/// The log's own count of cached tokens, where a replay finds much more.
fn not_served(analysis: &Analysis) -> Option<String> {
    let own = &analysis.own;
    let share = |tokens: u64| tokens as f64 / own.prompt_tokens.max(1) as f64;
    let (served, replayed) = (share(own.served_tokens), share(own.replayed_tokens));
    if own.requests == 0 || replayed - served < SHARE_MIN {
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

/// Tokens that were computed although they, or their content, had been computed before.
pub(crate) fn again(analysis: &Analysis) -> u64 {
    let is_new = |bucket: Bucket| {
        bucket.is_served() || matches!(bucket, Bucket::BlockFloor | Bucket::NeverSeen)
    };
    let again = analysis
        .waterfall
        .iter()
        .filter(|step| !is_new(step.bucket));
    again.map(|step| step.amount.tokens).sum()
}

fn computed_again(analysis: &Analysis) -> Option<String> {
    let (total, served) = (analysis.prompt_tokens(), analysis.served_tokens());
    let floor = analysis.tokens_in(Bucket::BlockFloor);
    let computed = total - served - floor;
    let again = again(analysis);
    if computed == 0 {
        return None;
    }
    let share = again as f64 / computed as f64;
    if share < SHARE_MIN {
        let found = percent(served as f64 / total as f64);
        let new = match analysis.has_texts() {
            true => "is new",
            false => "is new, or changed in front (ids do not tell which)",
        };
        return Some(format!(
            "All but {} of what is computed {new}: {found} of the prompt tokens are found, and \
             this fleet leaves little that could be.",
            percent(share),
        ));
    }
    let mut text = format!(
        "{} of the prompt tokens that are computed had been computed before",
        percent(share)
    );
    let of_that = |tokens: u64| percent(tokens as f64 / again as f64);
    let finding = analysis.findings.first();
    if let Some(finding) = finding.filter(|it| it.amount.tokens > 0) {
        let tokens = finding.amount.tokens;
        text += &format!("; {} is behind {} of that", finding.title, of_that(tokens));
    } else if let Some(step) = largest_loss(analysis) {
        let meaning = analysis.meaning(step.bucket);
        text += &format!("; {} of that: {meaning}", of_that(step.amount.tokens));
    }
    Some(text + ".")
}

fn largest_loss(analysis: &Analysis) -> Option<&crate::report::analyze::Step> {
    let losses = analysis.waterfall.iter().filter(|step| {
        let bucket = step.bucket;
        !bucket.is_served() && !matches!(bucket, Bucket::BlockFloor | Bucket::NeverSeen)
    });
    losses
        .max_by_key(|step| step.amount.tokens)
        .filter(|step| step.amount.tokens > 0)
}

fn routing(analysis: &Analysis) -> Option<String> {
    let routing = &analysis.routing;
    let lost = routing.lost_share();
    (routing.replicas > 1 && lost >= SHARE_MIN).then(|| {
        format!(
            "Random routing over {} replicas would lose {} of the hits that prefix-aware routing \
             gets: {} instead of {} of the prompt tokens would be found, in the mean.",
            routing.replicas,
            percent(lost),
            percent(routing.random_tokens as f64 / analysis.prompt_tokens().max(1) as f64),
            percent(routing.precise_tokens as f64 / analysis.prompt_tokens().max(1) as f64),
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
    (ideal > 0 && times >= 1.5).then(|| {
        format!(
            "A cache of {} tokens{} serves 90 % of what an infinite one would; 99 % takes \
             {times:.1} times as much.",
            thousands(most.capacity_tokens),
            analysis.in_bytes(most.capacity_tokens),
        )
    })
}

fn order(analysis: &Analysis) -> Option<String> {
    let share = analysis.order_free_tokens? as f64 / analysis.prompt_tokens().max(1) as f64;
    (share >= SHARE_MIN).then(|| {
        format!(
            "Up to {} of the prompt tokens stood in an earlier prompt of the same model and salt, \
             but behind something else: a fixed order, or reuse without order, could serve them.",
            percent(share)
        )
    })
}

fn few_sessions(analysis: &Analysis) -> Option<String> {
    let skew = &analysis.characterization.session_skew;
    // From the poorest to the richest: where the upper half of the total begins.
    let (below, _) = skew.lorenz.iter().rev().find(|(_, total)| *total <= 0.5)?;
    let few = 1.0 - below;
    (skew.owners >= 20 && few <= 0.2).then(|| {
        format!(
            "Half of all hits are of {} of the {} sessions.",
            percent(few),
            thousands(skew.owners)
        )
    })
}

fn others(analysis: &Analysis) -> Option<String> {
    let origins = &analysis.characterization.origins;
    let known = origins.same_session + origins.other_session;
    let share = origins.other_session as f64 / known.max(1) as f64;
    (known > 0 && share >= SHARE_MIN).then(|| {
        format!(
            "{} of the hits are on what another session left: shared instructions and tools, \
             which a cache per session would compute again.",
            percent(share)
        )
    })
}

fn never_again(analysis: &Analysis) -> Option<String> {
    let share = analysis.characterization.ideal.never_reused_share;
    (share >= 0.2).then(|| {
        format!(
            "{} of the blocks are never used again: they take room and serve nobody.",
            percent(share)
        )
    })
}
