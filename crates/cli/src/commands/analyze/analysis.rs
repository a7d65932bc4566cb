//! What there is to say of the traffic, computed.

use std::collections::HashMap;

use headstart_insight::{Bucket, Split};
use headstart_sim::knee;
use headstart_trace::characterize::{Characterization, Characterizer, Settings};

use super::cost::{Cost, PerToken};
use super::findings;
use super::fleet::{Fleet, Played};
use super::patience::Patience;
use super::traffic::{HELD_BYTES_MAX, Traffic};
use crate::kv_bytes::KvBytes;
use crate::report::analyze::{Amount, Analysis, Step};

/// Fixes what is drawn by lot.
const SEED: u64 = 9;

/// What the analysis reckons with.
pub(crate) struct Setting<'s> {
    pub(crate) fleet: Fleet,
    /// Where the capacity comes from, for the reader.
    pub(crate) capacity_from: String,
    pub(crate) cost: &'s Cost,
    pub(crate) kv: Option<&'s KvBytes>,
    pub(crate) show_text: bool,
}

/// Analyzes `traffic`.
pub(crate) fn of(traffic: &Traffic, setting: &Setting<'_>, patience: &mut Patience) -> Analysis {
    patience.says("characterizing");
    let characterization = characterized(traffic, setting);
    patience.says("playing");
    let played = setting.fleet.play(traffic, SEED, patience);
    let cost = setting.cost.fitted(traffic, &played.splits);
    let per_token = per_token(traffic, &played, &cost);
    patience.says("comparing texts");
    let findings = findings::of(&traffic.said, &per_token, setting.show_text, patience);
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
        seconds_from: cost.seconds_from().to_owned(),
        currency: cost.currency().map(str::to_owned),
        said: played.said,
        kv: setting.kv.cloned(),
        waterfall: waterfall(&played.splits, &per_token),
        knee: knee::knee(&points),
        routing: played.routing,
        order_free_tokens: (!traffic.said.is_empty()).then_some(played.order_free_tokens),
        findings,
        headlines: Vec::new(),
        characterization,
    };
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
