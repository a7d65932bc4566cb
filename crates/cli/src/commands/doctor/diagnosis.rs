//! Diagnoses of a prefix cache, from an engine's answers, metrics and events. Pure: the same
//! findings give the same diagnoses.

use std::time::Duration;

use headstart_core::figures::{counted, thousands};
use headstart_loadgen::CachingProbe;

use super::events::SeenEvents;
use crate::engine::{EngineFacts, EngineKind, EnginePages};

/// Least time to the first token whose halving says something.
const TTFT_MIN: Duration = Duration::from_millis(20);

/// Share of a full memory or tier.
const FULL: f64 = 0.98;

/// Share of a repeated prompt that a working cache finds at least.
const FOUND_MIN: f64 = 0.5;

/// Findings of the examination.
pub(super) struct Examination {
    pub(super) model: String,
    pub(super) facts: EngineFacts,
    /// The engine's pages before and after the probe.
    pub(super) before: EnginePages,
    pub(super) after: EnginePages,
    pub(super) probe: CachingProbe,
    /// KV events, where an endpoint was given.
    pub(super) events: Option<SeenEvents>,
}

/// The outcome of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CheckOutcome {
    /// All is well.
    Passed,
    /// It works, and could work better.
    Warned,
    /// It does not work.
    Failed,
}

impl CheckOutcome {
    /// Its name for programs.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Warned => "warned",
            Self::Failed => "failed",
        }
    }
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Diagnosis {
    pub(super) name: &'static str,
    pub(super) verdict: CheckOutcome,
    pub(super) sentence: String,
    pub(super) fix: Option<String>,
}

/// All checks that apply to the engine.
pub(super) fn of(examined: &Examination) -> Vec<Diagnosis> {
    let checks = [steps, salts, memory, rate, lower_tier, tier, replicas, tokens, events];
    let others = checks.iter().filter_map(|check| check(examined));
    std::iter::once(caching(examined)).chain(others).collect()
}

fn passed(name: &'static str, sentence: String) -> Diagnosis {
    Diagnosis { name, verdict: CheckOutcome::Passed, sentence, fix: None }
}

fn warned(name: &'static str, sentence: String, fix: &str) -> Diagnosis {
    Diagnosis { name, verdict: CheckOutcome::Warned, sentence, fix: Some(fix.to_owned()) }
}

fn failed(name: &'static str, sentence: String, fix: &str) -> Diagnosis {
    Diagnosis { name, verdict: CheckOutcome::Failed, sentence, fix: Some(fix.to_owned()) }
}

/// Whether a repeated prompt is served from the cache.
fn caching(examined: &Examination) -> Diagnosis {
    const NAME: &str = "prefix caching";
    let Examination { probe, facts, before, after, .. } = examined;
    let prompt = thousands(u64::from(probe.prompt_tokens));
    if f64::from(probe.repeated) >= FOUND_MIN * f64::from(probe.prompt_tokens) {
        let found = thousands(u64::from(probe.repeated));
        let sentence = format!(
            "{found} of {prompt} tokens of a repeated prompt were cached; its first token came \
             after {:.0} ms, without the cache after {:.0} ms",
            1e3 * probe.ttft_repeated.as_secs_f64(),
            1e3 * probe.ttft_first.as_secs_f64(),
        );
        return passed(NAME, sentence);
    }
    let counters = after.counters().unwrap_or_default();
    let hits = counters.since(before.counters().unwrap_or_default()).hits;
    let is_faster = probe.ttft_first >= TTFT_MIN && probe.ttft_repeated * 2 < probe.ttft_first;
    if probe.repeated == 0 && (hits > 0 || is_faster) {
        let sentence = if hits > 0 {
            format!("the engine counts {} cached tokens and reports none", thousands(hits))
        } else {
            "a repeated prompt is answered in less than half the time, and no cached token is \
             reported"
                .to_owned()
        };
        let fix = match facts.kind {
            EngineKind::Sglang => "start SGLang with --enable-cache-report",
            _ => "start vLLM with --enable-prompt-tokens-details, so that answers say it",
        };
        return warned("reported hits", sentence, fix);
    }
    if facts.prefix_caching == Some(false) {
        let sentence = "the engine's own figures say that prefix caching is off".to_owned();
        let fix = match facts.kind {
            EngineKind::Sglang => "start SGLang without --disable-radix-cache",
            _ => "start vLLM with --enable-prefix-caching",
        };
        return failed(NAME, sentence, fix);
    }
    if let Some(size) = facts.block_size.filter(|&size| size > probe.prompt_tokens) {
        let sentence = format!(
            "a block has {} tokens and the prompt {prompt}: shorter prompts are never cached",
            thousands(u64::from(size))
        );
        let fix = "use a smaller block size; models with state-space layers force large blocks";
        return failed(NAME, sentence, fix);
    }
    if facts.caches > 1 && probe.repeated == 0 {
        let sentence = format!(
            "a repeated prompt of {prompt} tokens found nothing; {} caches are behind this address",
            facts.caches
        );
        let fix = "route by prefix, so that a repeated prompt returns to its replica";
        return failed(NAME, sentence, fix);
    }
    let found = thousands(u64::from(probe.repeated));
    let sentence = format!("only {found} of {prompt} tokens of a repeated prompt were cached");
    let fix = "check that prefix caching is on, that the model supports it (state-space and \
               sliding-window layers restrict it), and that its memory is not full";
    failed(NAME, sentence, fix)
}

/// The steps in which prefixes match.
fn steps(examined: &Examination) -> Option<Diagnosis> {
    const NAME: &str = "block size";
    let step = examined.probe.step();
    if step == 0 {
        return None;
    }
    let Some(size) = examined.facts.block_size.filter(|&size| size > 0) else {
        return Some(passed(NAME, format!("prefixes match in steps of {step} tokens")));
    };
    if step.is_multiple_of(size) {
        let cost = if step == size { String::new() } else { format!(", in steps of {step}") };
        return Some(passed(NAME, format!("{size} tokens{cost}")));
    }
    let sentence = format!("the engine says {size} tokens, and prefixes match in steps of {step}");
    Some(warned(NAME, sentence, "pass the measured size to `headstart validate --block-size`"))
}

/// Whether salts keep tenants apart.
fn salts(examined: &Examination) -> Option<Diagnosis> {
    const NAME: &str = "cache_salt";
    let CachingProbe { salted, repeated, .. } = examined.probe;
    if repeated == 0 {
        return None;
    }
    // The template's beginning may be cached for all; the prompt itself must not.
    if f64::from(salted) < FOUND_MIN * f64::from(repeated) {
        return Some(passed(NAME, "prompts under different salts share no cache".to_owned()));
    }
    let sentence = format!("{} tokens were found under another salt", thousands(u64::from(salted)));
    let fix = "the engine ignores `cache_salt`: tenants can measure what others asked; separate \
               them by engine";
    Some(warned(NAME, sentence, fix))
}

/// Whether the KV memory is large enough for its load.
fn memory(examined: &Examination) -> Option<Diagnosis> {
    const NAME: &str = "KV memory";
    let usage = examined.after.metric("vllm:kv_cache_usage_perc");
    let usage = usage.map(|usage| usage / examined.facts.caches.max(1) as f64);
    let preempted = examined.after.metric("vllm:num_preemptions_total").unwrap_or_default();
    let size = match (examined.facts.blocks, examined.facts.kv_tokens()) {
        (Some(blocks), Some(tokens)) => {
            format!("{} for {} tokens", counted(blocks as u64, "block"), thousands(tokens as u64))
        }
        _ => return None,
    };
    if preempted > 0.0 {
        let sentence =
            format!("{size}; {} since the start", counted(preempted as u64, "preemption"));
        let fix = "running requests fill the memory, so prefixes are evicted: lower \
                   --max-num-seqs, or give the KV cache more memory";
        return Some(warned(NAME, sentence, fix));
    }
    if usage.is_some_and(|usage| usage >= FULL) {
        let sentence = format!("{size}, all of them held by running requests");
        let fix = "lower --max-num-seqs, or give the KV cache more memory";
        return Some(warned(NAME, sentence, fix));
    }
    Some(passed(NAME, size))
}

/// The hit rate since the engine's start.
fn rate(examined: &Examination) -> Option<Diagnosis> {
    let counters = examined.before.counters().filter(|counters| counters.queries > 0)?;
    let rate = 100.0 * counters.hits as f64 / counters.queries as f64;
    let sentence =
        format!("{rate:.1} % of {} prompt tokens before this check", thousands(counters.queries));
    Some(passed("hit rate", sentence))
}

/// vLLM's own tier in host memory.
fn lower_tier(examined: &Examination) -> Option<Diagnosis> {
    const NAME: &str = "host memory tier";
    let queries = examined.after.metric("vllm:external_prefix_cache_queries_total")?;
    let hits = examined.after.metric("vllm:external_prefix_cache_hits_total").unwrap_or_default();
    if queries < 1.0 {
        return None;
    }
    let usage = examined.after.metric("vllm:kv_offload_cpu_cache_usage_perc");
    let sentence = format!(
        "{} of {} tokens that the device did not hold were found",
        thousands(hits as u64),
        thousands(queries as u64)
    );
    if hits < 1.0 && usage.is_some_and(|usage| usage >= FULL) {
        let fix = "the tier is full and finds nothing: give it more memory, or a policy that \
                   keeps prefixes (`headstart vllm-args`)";
        return Some(warned(NAME, sentence, fix));
    }
    Some(passed(NAME, sentence))
}

/// Headstart's tier inside vLLM.
fn tier(examined: &Examination) -> Option<Diagnosis> {
    const NAME: &str = "Headstart's tier";
    let up = examined.after.metric("headstart:tier_up")?;
    let resident = examined.after.metric("headstart:tier_resident_blocks").unwrap_or_default();
    let blocks = counted(resident as u64, "block");
    if up < 1.0 {
        let fix = "look at the engine's log: the folder or the object store does not answer";
        return Some(failed(NAME, format!("it is off; {blocks} are stored"), fix));
    }
    Some(passed(NAME, format!("it is on; {blocks} are stored")))
}

/// The replicas of a Headstart gateway and their streams of events.
fn replicas(examined: &Examination) -> Option<Diagnosis> {
    const NAME: &str = "replicas";
    let up = examined.after.values("headstart_replica_up");
    if up.is_empty() {
        return None;
    }
    let down = up.iter().filter(|(_, value)| *value < 1.0).count();
    let count = counted(up.len() as u64, "replica");
    if down > 0 {
        let fix = "`headstart top` names them; look at their logs";
        return Some(failed(NAME, format!("{down} of {count} take no requests"), fix));
    }
    let streams = examined.after.values("headstart_kv_stream_state");
    let is_off = |(labels, value): &(String, f64)| *value > 0.0 && labels != "complete";
    let off = streams.iter().filter(|stream| is_off(stream)).count();
    if off > 0 {
        let sentence = format!("{count}; the KV events of {off} are incomplete or absent");
        let fix = "start engines with KV events and name the endpoint in --upstream";
        return Some(warned(NAME, sentence, fix));
    }
    Some(passed(NAME, format!("{count}, all of them up")))
}

/// Whether a gateway makes the same tokens as its engines.
fn tokens(examined: &Examination) -> Option<Diagnosis> {
    const NAME: &str = "tokens";
    let checks = examined.after.values("headstart_prompt_drift_checks_total");
    let sum = |outcome: &str| {
        let equal = checks.iter().filter(|(label, _)| label == outcome);
        equal.map(|(_, value)| *value).sum::<f64>()
    };
    let differs = sum("differs");
    if differs > 0.0 {
        let sentence = format!(
            "{} of prompts had other tokens in the engine than in the gateway",
            counted(differs as u64, "comparison")
        );
        let fix = "name the engine's own tokenizer and chat template in --upstream (tokenizer=)";
        return Some(failed(NAME, sentence, fix));
    }
    let equal = sum("equal");
    let sentence =
        || format!("{} with the engines, all equal", counted(equal as u64, "comparison"));
    (equal > 0.0).then(|| passed(NAME, sentence()))
}

/// KV events of the probe's own requests.
fn events(examined: &Examination) -> Option<Diagnosis> {
    const NAME: &str = "KV events";
    let SeenEvents { stored_blocks, with_tokens, block_size } = examined.events?;
    if stored_blocks == 0 {
        let sentence = "no block was published within 5 s of the requests".to_owned();
        let fix = "start vLLM with --kv-events-config \
                   '{\"enable_kv_cache_events\":true,\"publisher\":\"zmq\",\
                   \"endpoint\":\"tcp://*:5557\"}', and check the address";
        return Some(failed(NAME, sentence, fix));
    }
    let count = counted(stored_blocks as u64, "block");
    if with_tokens == 0 {
        let sentence = format!("{count} were published without their tokens");
        let fix = "a router cannot know them: let the engine publish token ids";
        return Some(failed(NAME, sentence, fix));
    }
    if examined.facts.block_size.is_some_and(|size| size != block_size) {
        let sentence =
            format!("{count} of {block_size} tokens were published; the engine says another size");
        return Some(warned(NAME, sentence, "let routers use the size of the events"));
    }
    Some(passed(NAME, format!("{count} of {block_size} tokens were published")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const VLLM: &str = "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"100\",\
                        enable_prefix_caching=\"True\"} 1\n";

    /// An engine that works.
    fn well(metrics: &str) -> Examination {
        let after = EnginePages::of_metrics(metrics);
        Examination {
            model: "m".to_owned(),
            facts: after.facts(),
            before: EnginePages::default(),
            after,
            probe: CachingProbe {
                prompt_tokens: 1600,
                repeated: 1584,
                cut: vec![320, 800, 1168],
                ttft_first: Duration::from_millis(80),
                ttft_repeated: Duration::from_millis(20),
                ..CachingProbe::default()
            },
            events: None,
        }
    }

    fn without_hits(metrics: &str) -> Examination {
        let probe = CachingProbe {
            prompt_tokens: 1600,
            ttft_first: Duration::from_millis(80),
            ttft_repeated: Duration::from_millis(79),
            ..CachingProbe::default()
        };
        Examination { probe, ..well(metrics) }
    }

    #[track_caller]
    fn check(examined: &Examination, name: &str, verdict: CheckOutcome, part: &str) {
        let diagnoses = of(examined);
        let found = diagnoses.iter().find(|one| one.name == name).expect("a diagnosis");
        assert_eq!(found.verdict, verdict, "{found:?}");
        let words = format!("{} {}", found.sentence, found.fix.as_deref().unwrap_or_default());
        assert!(words.contains(part), "{words}");
        assert_eq!(found.fix.is_none(), verdict == CheckOutcome::Passed, "{found:?}");
    }

    #[test]
    fn an_engine_that_works_passes() {
        let examined = well(VLLM);
        assert!(of(&examined).iter().all(|one| one.verdict == CheckOutcome::Passed));
        check(&examined, "prefix caching", CheckOutcome::Passed, "1,584 of 1,600");
        check(&examined, "block size", CheckOutcome::Passed, "16 tokens");
        check(&examined, "KV memory", CheckOutcome::Passed, "1,600 tokens");
        check(&examined, "cache_salt", CheckOutcome::Passed, "share no cache");
    }

    #[test]
    fn a_cache_that_finds_nothing_has_a_reason() {
        let name = "prefix caching";
        check(&without_hits(VLLM), name, CheckOutcome::Failed, "state-space");
        let off = VLLM.replace("True", "False");
        check(&without_hits(&off), name, CheckOutcome::Failed, "--enable-prefix-caching");
        let large = VLLM.replace("\"16\"", "\"2096\"");
        check(&without_hits(&large), name, CheckOutcome::Failed, "2,096");
        let two = VLLM.repeat(2);
        check(&without_hits(&two), name, CheckOutcome::Failed, "2 caches");
        let sglang = Examination {
            facts: EngineFacts {
                kind: EngineKind::Sglang,
                prefix_caching: Some(false),
                ..EngineFacts::default()
            },
            ..without_hits("")
        };
        check(&sglang, name, CheckOutcome::Failed, "--disable-radix-cache");
    }

    #[test]
    fn hits_that_are_not_reported_are_no_failure() {
        let counted = format!("{VLLM}vllm:prefix_cache_hits_total 1584\n");
        let name = "reported hits";
        check(
            &without_hits(&counted),
            name,
            CheckOutcome::Warned,
            "--enable-prompt-tokens-details",
        );
        let mut faster = without_hits(VLLM);
        faster.probe.ttft_repeated = Duration::from_millis(30);
        check(&faster, name, CheckOutcome::Warned, "less than half the time");
    }

    #[test]
    fn each_obstacle_is_named() {
        let mut salted = well(VLLM);
        salted.probe.salted = 1584;
        check(&salted, "cache_salt", CheckOutcome::Warned, "1,584");
        let mut odd = well(VLLM);
        odd.probe.cut = vec![328];
        check(&odd, "block size", CheckOutcome::Warned, "steps of 8");
        let with = |metrics: &str| well(&format!("{VLLM}{metrics}"));
        let preempted = with("vllm:num_preemptions_total 7\n");
        check(&preempted, "KV memory", CheckOutcome::Warned, "7 preemptions");
        check(
            &with("vllm:kv_cache_usage_perc 1.0\n"),
            "KV memory",
            CheckOutcome::Warned,
            "all of them",
        );
        let full = "vllm:external_prefix_cache_queries_total 900\n\
                    vllm:kv_offload_cpu_cache_usage_perc 1.0\n";
        check(&with(full), "host memory tier", CheckOutcome::Warned, "full");
        check(&with("headstart:tier_up 0\n"), "Headstart's tier", CheckOutcome::Failed, "off");
        let down = "headstart_replica_up{replica=\"0\"} 1\nheadstart_replica_up{replica=\"1\"} 0\n";
        check(&with(down), "replicas", CheckOutcome::Failed, "1 of 2 replicas");
        let stream = "headstart_replica_up{replica=\"0\"} 1\n\
                      headstart_kv_stream_state{replica=\"0\",state=\"down\"} 1\n";
        check(&with(stream), "replicas", CheckOutcome::Warned, "events");
        let drift = "headstart_prompt_drift_checks_total{outcome=\"differs\"} 2\n";
        check(&with(drift), "tokens", CheckOutcome::Failed, "2 comparisons");
    }

    #[test]
    fn events_are_those_of_the_probe() {
        let seen = |events| Examination { events: Some(events), ..well(VLLM) };
        check(
            &seen(SeenEvents::default()),
            "KV events",
            CheckOutcome::Failed,
            "--kv-events-config",
        );
        let good = SeenEvents { stored_blocks: 9, with_tokens: 9, block_size: 16 };
        check(&seen(good), "KV events", CheckOutcome::Passed, "9 blocks of 16");
        let bare = SeenEvents { with_tokens: 0, ..good };
        check(&seen(bare), "KV events", CheckOutcome::Failed, "without their tokens");
        let other = SeenEvents { block_size: 64, ..good };
        check(&seen(other), "KV events", CheckOutcome::Warned, "64");
    }
}
