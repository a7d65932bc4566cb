//! Computation of the analysis.
//!
//! On two cores or more, one thread replays the fleet and another computes all that does not need
//! it. The results do not depend on the number of threads.

use std::collections::HashMap;

use headstart_core::figures::thousands;
use headstart_core::{Nanos, Progress};
use headstart_insight::{Bucket, BucketTokens};
use headstart_sim::knee;
use headstart_trace::characterize::{Characterization, Characterizer, Settings};
use headstart_trace::{Format, Provenance};

use crate::cost::{self, PerToken, PromptCostModel};
use crate::eviction::{self, EvictionComparison};
use crate::findings::{self, TextComparison};
use crate::fix::Fixes;
use crate::fleet::{self, FleetReplay, FleetReplayOutcome, RandomRoutingHits, UniformFleet};
use crate::headlines;
use crate::kv_bytes::KvBytes;
use crate::memory::{self, Bounds};
use crate::rendering::Rendering;
use crate::results::{Amount, Analysis, MemoryEstimate, Routing, UnnamedLoss, WaterfallStep};
use crate::served::ServedReason;
use crate::traffic::LoggedTraffic;

/// Seed of hashes and random draws.
const SEED: u64 = 9;

/// Parameters of an analysis.
pub struct AnalysisParameters<'s> {
    /// The fleet that is simulated.
    pub fleet: UniformFleet,
    /// Source of the capacity, for the reader.
    pub capacity_from: String,
    /// Prices of time and tokens.
    pub cost: &'s PromptCostModel,
    /// Size of a token's keys and values, if a model is named.
    pub kv: Option<&'s KvBytes>,
    /// Renderer of the prompts, if the inputs are texts.
    pub rendering: Option<&'s Rendering>,
    /// Puts texts into the examples.
    pub show_text: bool,
    /// Bounds of the memory.
    pub bounds: Bounds,
}

/// Results that do not need the fleet.
struct FleetIndependentResults {
    characterization: Characterization,
    random: RandomRoutingHits,
    order_free: Option<(u64, MemoryEstimate)>,
    compared: TextComparison,
}

/// Analyzes `traffic`.
pub fn of(
    traffic: &LoggedTraffic,
    setting: &AnalysisParameters<'_>,
    progress: &dyn Progress,
) -> Analysis {
    let (fleet, bounds) = (setting.fleet, &setting.bounds);
    let (beside, mut played, eviction) = computed(traffic, setting, progress);
    // The fit needs the replay's splits: a time to the first token depends on the computed tokens.
    let cost = setting.cost.fitted(traffic, &played.splits);
    let per_token = per_token(traffic, &played, &cost);
    // These sizes come before the findings below take the comparison apart.
    let mut kept = kept(traffic, &beside, &played, bounds);
    kept.push(eviction.kept);
    let fixes = Fixes::of(traffic, fleet, setting.rendering);
    let (findings, unnamed) = beside.compared.findings(
        &traffic.said,
        &mut played.splits,
        &per_token,
        &fixes,
        setting.show_text,
    );
    let characterization = beside.characterization;
    let mut analysis = Analysis {
        files: traffic.files.clone(),
        formats: traffic.formats.iter().map(ToString::to_string).collect(),
        info: traffic.info.clone(),
        remarks: traffic.remarks.clone(),
        span_s: traffic.span_s(),
        counts: traffic.counts,
        copies: traffic.copies,
        is_separate: is_separate(traffic, &characterization),
        peak_bytes: memory::peak_bytes(),
        replicas: fleet.replicas,
        capacity_blocks: fleet.capacity_blocks,
        capacity_from: setting.capacity_from.clone(),
        seconds_from: cost.seconds_from().to_owned(),
        currency: cost.currency().map(str::to_owned),
        money_from: cost.money_from(),
        own: played.own,
        kv: setting.kv.cloned(),
        waterfall: waterfall(&played.splits, &per_token),
        knee: bend(&characterization),
        routing: Routing {
            replicas: fleet.replicas,
            random_tokens: beside.random.tokens,
            draws: beside.random.draws,
            precise_tokens: played.found_tokens,
        },
        eviction: eviction.figures,
        order_free_tokens: beside.order_free.map(|(tokens, _)| tokens),
        findings,
        served: ServedReason::of(&traffic.said, arrivals(traffic).as_deref()),
        unnamed: unnamed.map(|index| unnamed_loss(traffic, index)),
        headlines: Vec::new(),
        characterization,
        kept,
    };
    // These remarks need the finished analysis: they depend on its buckets and its counts.
    analysis.remarks.extend(analysis.not_told_apart());
    if analysis.currency.is_some() {
        let unpriced = unpriced(&played.splits, &per_token);
        analysis.remarks.extend(unpriced);
    }
    // A bound that was met changes figures, so each one is a remark as well as a row on memory.
    let lost = analysis.kept.iter().filter_map(|kept| kept.lost.clone());
    analysis.remarks.extend(lost.collect::<Vec<_>>());
    // Headlines quote the other figures, so they come last.
    analysis.headlines = headlines::of(&analysis);
    analysis
}

/// Replays the fleet, and computes everything else beside it.
fn computed(
    traffic: &LoggedTraffic,
    setting: &AnalysisParameters<'_>,
    progress: &dyn Progress,
) -> (FleetIndependentResults, FleetReplayOutcome, EvictionComparison) {
    let (fleet, bounds) = (setting.fleet, &setting.bounds);
    let replay = FleetReplay { traffic, cost: setting.cost, bounds, seed: SEED };
    std::thread::scope(|scope| {
        // The replays need no result of the other computations, so they run beside them.
        let played = scope.spawn(|| fleet.play(replay, progress));
        let compared = || eviction::compared(traffic, fleet, bounds, progress);
        let compared = scope.spawn(compared);
        let beside = beside(traffic, setting, progress);
        // The computations of this thread are done; the replay may still show its own progress.
        progress.end();
        // A panic of a replay keeps its own message instead of one about a failed join.
        let played = played.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let compared = compared.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (beside, played, compared)
    })
}

/// The point of the size curve at which it bends.
fn bend(characterization: &Characterization) -> Option<usize> {
    let curve = characterization.curve.iter();
    let points = curve.map(|point| (point.capacity_blocks, point.block_hit_rate));
    knee::knee(&points.collect::<Vec<_>>())
}

fn beside(
    traffic: &LoggedTraffic,
    setting: &AnalysisParameters<'_>,
    progress: &dyn Progress,
) -> FleetIndependentResults {
    progress.phase("measuring reuse", None);
    let characterization = characterized(traffic, setting);
    let random = setting.fleet.random(traffic, SEED, progress);
    progress.phase("comparing texts", Some(traffic.said.len()));
    // Without texts no position but the prefix can match: the figure is absent, not zero.
    let has_texts = !traffic.said.is_empty();
    FleetIndependentResults {
        characterization,
        random,
        order_free: has_texts.then(|| fleet::order_free(traffic, &setting.bounds, SEED)),
        compared: findings::compared(&traffic.said, &setting.bounds, progress),
    }
}

fn kept(
    traffic: &LoggedTraffic,
    beside: &FleetIndependentResults,
    played: &FleetReplayOutcome,
    bounds: &Bounds,
) -> Vec<MemoryEstimate> {
    let mut kept = vec![memory::requests(traffic.held_bytes, bounds, traffic.left_out.clone())];
    kept.extend(played.kept.iter().cloned());
    kept.push(memory::characterization(&beside.characterization, bounds));
    kept.push(beside.random.kept.clone());
    if let Some((_, documents)) = &beside.order_free {
        kept.push(documents.clone());
        kept.push(memory::texts(beside.compared.words_max, beside.compared.num_forgotten, bounds));
    }
    kept
}

fn characterized(traffic: &LoggedTraffic, setting: &AnalysisParameters<'_>) -> Characterization {
    let block_tokens = traffic.info.block_tokens;
    let per_logged = traffic.counts.factor();
    // The model's bytes are per token of its own tokenizer; the figures here count other tokens.
    let kv_bytes_per_token = setting.kv.map(|kv| kv.per_token as f64 / per_logged);
    let device_tokens = setting.fleet.capacity_blocks as f64 * f64::from(block_tokens);
    let mut characterizer = Characterizer::new(Settings {
        block_tokens,
        kv_bytes_per_token,
        device_bytes: kv_bytes_per_token.map(|bytes| bytes * device_tokens),
        limits: setting.bounds.limits,
    });
    // Users become numbers in order of appearance: the characterizer does not hold their names.
    let mut users: HashMap<&str, u64> = HashMap::new();
    for (index, request) in traffic.requests.iter().enumerate() {
        let user = traffic.said.get(index).and_then(|said| said.user.as_deref());
        let next = users.len() as u64;
        let user = user.map(|user| *users.entry(user).or_insert(next));
        characterizer.add_of(request, user);
    }
    characterizer.finish()
}

fn per_token(
    traffic: &LoggedTraffic,
    played: &FleetReplayOutcome,
    cost: &PromptCostModel,
) -> Vec<PerToken> {
    let model = |index: usize| traffic.said.get(index).and_then(|said| said.model.as_deref());
    let splits = played.splits.iter().enumerate();
    let factor = traffic.counts.factor();
    let scale = |index: usize, split: &BucketTokens| {
        let said = traffic.said.get(index);
        said.map_or(1.0, |said| cost::scale(said, split, factor))
    };
    splits.map(|(index, split)| cost.per_token(split, model(index), scale(index, split))).collect()
}

/// The times of the requests, where the log has them.
fn arrivals(traffic: &LoggedTraffic) -> Option<Vec<Nanos>> {
    let times = || traffic.requests.iter().map(|request| request.arrival).collect();
    traffic.span_s().map(|_| times())
}

/// The request to look at where most is lost for no cause that has a name, and its file, where
/// `why` reads it.
fn unnamed_loss(traffic: &LoggedTraffic, index: usize) -> UnnamedLoss {
    let said = &traffic.said[index];
    let source = said.source as usize;
    // The advice is a command line with a file of requests; a generated log has no file.
    let is_log = traffic.formats.get(source) == Some(&Format::Requests)
        && traffic.is_file.get(source) == Some(&true);
    let file = traffic.files.get(source).filter(|_| is_log);
    UnnamedLoss { request: said.name.clone(), file: file.cloned() }
}

/// Whether no two sessions of a trace of ids share a block: then its ids may be numbered session
/// by session.
fn is_separate(traffic: &LoggedTraffic, characterization: &Characterization) -> bool {
    let origins = &characterization.origins;
    traffic.said.is_empty()
        && traffic.info.sessions == Provenance::Given
        && characterization.sessions.count > 1
        // A trace without any reuse would pass the last test for lack of hits.
        && origins.same_session > 0
        && origins.other_session + origins.unknown_session == 0
}

fn waterfall(splits: &[BucketTokens], per_token: &[PerToken]) -> Vec<WaterfallStep> {
    let mut steps = Bucket::ALL.map(|bucket| WaterfallStep { bucket, amount: Amount::default() });
    for (split, per_token) in splits.iter().zip(per_token) {
        // Each token of a request costs the average of its kind: computed or served.
        for (bucket, tokens) in split.iter() {
            let amount = per_token.amount(u64::from(tokens), bucket.is_served());
            let step = steps.iter_mut().find(|step| step.bucket == bucket);
            step.into_iter().for_each(|step| step.amount.add(&amount));
        }
    }
    steps.into()
}

/// Reports the number of prompt tokens without a price, if there are any.
fn unpriced(splits: &[BucketTokens], per_token: &[PerToken]) -> Option<String> {
    let all = splits.iter().zip(per_token);
    let without = all.filter(|(_, per_token)| !per_token.is_priced());
    let tokens: u64 = without.map(|(split, _)| split.total()).sum();
    (tokens > 0).then(|| {
        format!(
            "{} of the prompt tokens are for models without a price in --price-table: their sums \
             have no money; add the models, or a default as [models.\"*\"]",
            thousands(tokens)
        )
    })
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use headstart_insight::text;
    use headstart_trace::Arrivals;
    use headstart_trace::characterize::RecordLimits;

    use super::*;
    use crate::cost::{EngineSource, Money};
    use crate::results::EvictionHits;
    use crate::traffic::{LogReaderSettings, LogSource, Renderings};
    use headstart_core::NoProgress;

    fn analyzed(log: String, bounds: Bounds) -> Analysis {
        let rendering = Renderings::of(None).expect("the toy");
        let reading = LogReaderSettings {
            format: None,
            skip_bad: false,
            block_tokens: None,
            arrivals: Arrivals::FileOrder,
            rendering: &rendering,
            held_bytes: bounds.held_bytes,
        };
        let source = LogSource::Made("made", log.into_bytes());
        let traffic = LoggedTraffic::read(&[source], &reading, &NoProgress).expect("a log");
        let setting = AnalysisParameters {
            fleet: UniformFleet { replicas: 2, capacity_blocks: 1 << 12 },
            capacity_from: String::new(),
            cost: &PromptCostModel::new(EngineSource::DataSheet, Money::Unknown),
            kv: None,
            rendering: rendering.used(),
            show_text: false,
            bounds,
        };
        of(&traffic, &setting, &NoProgress)
    }

    fn check_bounds(analysis: &Analysis) {
        for kept in &analysis.kept {
            assert!(kept.bytes <= kept.bytes_max, "{kept:?}");
            let is_said = |lost| analysis.remarks.contains(lost);
            assert!(kept.lost.as_ref().is_none_or(is_said), "{kept:?}");
        }
    }

    fn lost(analysis: &Analysis) -> Vec<&str> {
        let lost = analysis.kept.iter().filter(|kept| kept.lost.is_some());
        lost.map(|kept| kept.what).collect()
    }

    /// Long prompts that are all different behind a short front.
    fn long_prompts(count: u64) -> String {
        let mut texts = String::new();
        for number in 0..count {
            let words = (0..300).map(|word| (number * 7919 + word * 104_729) % 9_973);
            let words: Vec<_> = words.map(|word| format!("w{word}")).collect();
            let _ = writeln!(texts, "{{\"prompt\": \"All begin so. {}\"}}", words.join(" "));
        }
        texts
    }

    #[test]
    fn a_cache_that_holds_everything_hits_the_same_under_both_policies() {
        let texts = long_prompts(40);
        let analysis = analyzed(format!("{texts}{texts}"), Bounds::default());
        let EvictionHits { lru_tokens, hazard_tokens, .. } = analysis.eviction;
        let ideal = analysis.characterization.ideal.hit_tokens;
        assert_eq!(lru_tokens, hazard_tokens);
        // The last token of a prompt is always computed, and a block with it.
        assert!(ideal > 1_000 && lru_tokens.abs_diff(ideal) < 40 * 16, "{lru_tokens} {ideal}");
        assert!(!analysis.headlines.iter().any(|line| line.contains("hazard")));
    }

    /// Every bound is met, and said.
    #[test]
    fn long_inputs_stay_within_their_bounds_which_are_said() {
        let texts = long_prompts(400);
        let small = Bounds {
            held_bytes: 2 << 20,
            blocks: 1 << 12,
            tokens: 1 << 15,
            fleet_blocks: 512,
            chunks: 1_000,
            texts: text::NeighbourLimits { sketches: 50, words: 500_000 },
            limits: RecordLimits { pieces: 1_000, sessions: 20, users: 20 },
        };
        let analysis = analyzed(texts.clone(), small);
        check_bounds(&analysis);
        let met = lost(&analysis);
        for what in [
            "requests and texts",
            "who held which block",
            "caches of the replicas",
            "reuse, sessions and users",
            "texts behind another prefix",
            "prompts to compare with",
        ] {
            assert!(met.contains(&what), "{what} is not among {met:?}");
        }
        let analysis = analyzed(texts, Bounds::default());
        check_bounds(&analysis);
        assert_eq!(lost(&analysis), [""; 0]);
    }

    /// Few prompts, but with more words than are remembered.
    #[test]
    fn words_of_few_prompts_meet_their_bound_which_is_said() {
        let bounds = |words| Bounds {
            texts: text::NeighbourLimits { words, ..text::NeighbourLimits::default() },
            ..Bounds::default()
        };
        let analysis = analyzed(long_prompts(20), bounds(2_000));
        check_bounds(&analysis);
        assert_eq!(lost(&analysis), ["prompts to compare with"]);
        let analysis = analyzed(long_prompts(20), bounds(100_000));
        check_bounds(&analysis);
        assert_eq!(lost(&analysis), [""; 0]);
        let texts = analysis.kept.iter().find(|part| part.what == "prompts to compare with");
        // At least each word, of which there are 300 in each prompt.
        assert!(texts.is_some_and(|part| part.bytes > 20 * 300 * 16), "{texts:?}");
    }

    /// A long trace of ids: more requests than are held.
    #[test]
    fn a_long_trace_is_cut_where_it_is_said() {
        let mut trace = String::new();
        for number in 0..20_000u64 {
            let (at, id) = (number * 90, number * 4 + 10);
            let _ = writeln!(
                trace,
                "{{\"timestamp\": {at}, \"input_length\": 2100, \"output_length\": 1, \
                 \"hash_ids\": [0, {id}, {}, {}]}}",
                id + 1,
                id + 2
            );
        }
        let bounds = Bounds { held_bytes: 2 << 20, ..Bounds::default() };
        let analysis = analyzed(trace, bounds);
        check_bounds(&analysis);
        assert_eq!(lost(&analysis), ["requests and texts"]);
        assert!(analysis.characterization.requests < 5_000);
        let first = &analysis.kept[0].lost;
        let said = first.as_ref().is_some_and(|remark| remark.starts_with("only the first 3"));
        assert!(said, "{first:?}");
    }
}
