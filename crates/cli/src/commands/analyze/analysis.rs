//! What there is to say of the traffic, computed.

use std::collections::HashMap;

use headstart_insight::documents::Documents;
use headstart_insight::{Bucket, Split};
use headstart_sim::knee;
use headstart_trace::characterize::{Characterization, Characterizer, Settings};

use super::cost::{Cost, PerToken};
use super::fleet::{Fleet, Played};
use super::patience::Patience;
use super::traffic::{HELD_BYTES_MAX, Traffic};
use crate::kv_bytes::KvBytes;
use crate::report::analyze::{Amount, Analysis, Routing, Step};

/// Fixes what is drawn by lot.
const SEED: u64 = 9;

/// What the analysis reckons with.
pub(crate) struct Setting<'s> {
    pub(crate) fleet: Fleet,
    /// Where the capacity comes from, for the reader.
    pub(crate) capacity_from: String,
    pub(crate) cost: &'s Cost,
    pub(crate) kv: Option<&'s KvBytes>,
}

/// Analyzes `traffic`.
pub(crate) fn of(traffic: &Traffic, setting: &Setting<'_>, patience: &mut Patience) -> Analysis {
    patience.says("characterizing");
    let characterization = characterized(traffic, setting);
    patience.says("playing");
    let played = setting.fleet.play(traffic, SEED);
    let per_token = per_token(traffic, &played, setting.cost);
    let precise = played.splits.iter().map(served).sum();
    let curve = &characterization.curve;
    let points: Vec<_> = curve
        .iter()
        .map(|it| (it.capacity_blocks, it.block_hit_rate))
        .collect();
    let mut analysis = Analysis {
        files: traffic.files.clone(),
        formats: traffic.formats.iter().map(ToString::to_string).collect(),
        info: traffic.info.clone(),
        remarks: traffic.remarks.clone(),
        span_s: traffic.span_s(),
        held_bytes: traffic.held_bytes as u64,
        held_bytes_max: HELD_BYTES_MAX as u64,
        replicas: setting.fleet.replicas,
        capacity_blocks: setting.fleet.capacity_blocks,
        capacity_from: setting.capacity_from.clone(),
        seconds_from: setting.cost.seconds_from().to_owned(),
        currency: setting.cost.currency().map(str::to_owned),
        said: played.said,
        kv: setting.kv.cloned(),
        waterfall: waterfall(&played.splits, &per_token),
        knee: knee::knee(&points),
        routing: Routing {
            replicas: setting.fleet.replicas,
            random_tokens: played.random_tokens,
            precise_tokens: precise,
        },
        order_free_tokens: None,
        findings: Vec::new(),
        headlines: Vec::new(),
        characterization,
    };
    patience.says("comparing");
    if !traffic.said.is_empty() {
        analysis.order_free_tokens = Some(order_free(traffic));
    }
    analysis.headlines = super::headlines::of(&analysis);
    analysis
}

fn characterized(traffic: &Traffic, setting: &Setting<'_>) -> Characterization {
    let block_tokens = traffic.info.block_tokens;
    let kv_bytes_per_token = setting.kv.map(|kv| kv.per_token as f64);
    let device_tokens = setting.fleet.capacity_blocks as f64 * f64::from(block_tokens);
    let mut characterizer = Characterizer::new(Settings {
        block_tokens,
        kv_bytes_per_token,
        device_bytes: kv_bytes_per_token.map(|bytes| bytes * device_tokens),
        ..Settings::default()
    });
    let mut users: HashMap<&str, u64> = HashMap::new();
    for (index, request) in traffic.requests.iter().enumerate() {
        let user = traffic
            .said
            .get(index)
            .and_then(|said| said.user.as_deref());
        let next = users.len() as u64;
        let user = user.map(|user| *users.entry(user).or_insert(next));
        characterizer.add_of(request, user);
    }
    characterizer.finish()
}

fn per_token(traffic: &Traffic, played: &Played, cost: &Cost) -> Vec<PerToken> {
    let model = |index: usize| {
        traffic
            .said
            .get(index)
            .and_then(|said| said.model.as_deref())
    };
    let splits = played.splits.iter().enumerate();
    splits
        .map(|(index, split)| cost.per_token(split, model(index)))
        .collect()
}

fn served(split: &Split) -> u64 {
    let served = split.iter().filter(|(bucket, _)| bucket.is_served());
    served.map(|(_, tokens)| u64::from(tokens)).sum()
}

fn waterfall(splits: &[Split], per_token: &[PerToken]) -> Vec<Step> {
    let mut steps: Vec<Step> = Bucket::ALL
        .map(|bucket| Step {
            bucket,
            amount: Amount::default(),
        })
        .into();
    for (split, per_token) in splits.iter().zip(per_token) {
        for step in &mut steps {
            let tokens = u64::from(split.get(step.bucket));
            if tokens > 0 {
                let amount = per_token.amount(tokens, step.bucket.is_served());
                step.amount.add(&amount);
            }
        }
    }
    steps
}

/// Prompt tokens behind the reusable prefix that an earlier prompt held somewhere.
fn order_free(traffic: &Traffic) -> u64 {
    let block_tokens = traffic.info.block_tokens;
    let mut documents = Documents::new(SEED);
    let mut seen = std::collections::HashSet::new();
    let mut total = 0;
    for (request, said) in traffic.requests.iter().zip(&traffic.said) {
        let known = request
            .blocks
            .iter()
            .take_while(|block| seen.contains(block))
            .count();
        seen.extend(request.blocks.iter());
        let prefix = known * block_tokens as usize;
        total += documents.add(&said.tokens, prefix);
    }
    total
}
