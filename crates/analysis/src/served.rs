//! Reasons why an engine did not serve prefixes that it had computed, by the log's own counts.
//!
//! Each reason is a rule of a cache: one for each value of a field, one with a lifetime, one with a
//! least length. The log is played through each of them without a limit of memory. The rule that
//! comes nearest to the cached tokens of the log is the reason, if it explains most of the tokens
//! that a cache without rules would have served in addition.

mod marks;

use std::collections::HashMap;
use std::time::Duration;

use headstart_core::figures::counted;
use headstart_core::{Nanos, TokenId};

use crate::structure::first_message;
use crate::traffic::LoggedPrompt;

/// Tokens of a block.
const BLOCK: usize = 16;

/// Requests that are played, from the first one.
const REQUESTS_MAX: usize = 4_000;

/// Blocks of all these requests: each rule costs a look-up and an insertion for each of them.
const BLOCKS_MAX: usize = 1 << 19;

/// Fewest requests with counts.
const REQUESTS_MIN: usize = 20;

/// Least share of the prompt tokens that a reason must cost.
const SHARE_MIN: f64 = 0.05;

/// Largest error of a reason, as a share of the error without any.
const ERROR_MAX: f64 = 0.35;

/// Lifetimes that providers and operators use.
const LIFETIMES: [(Duration, &str); 5] = [
    (Duration::from_secs(60), "1 minute"),
    (Duration::from_secs(300), "5 minutes"),
    (Duration::from_secs(600), "10 minutes"),
    (Duration::from_secs(1800), "30 minutes"),
    (Duration::from_secs(3600), "1 hour"),
];

/// Times within which a prefix is still being computed.
const BURSTS: [(Duration, &str); 3] = [
    (Duration::from_millis(300), "0.3 seconds"),
    (Duration::from_secs(2), "2 seconds"),
    (Duration::from_secs(10), "10 seconds"),
];

/// Fields that part caches behind the tools and the system messages, at some providers.
const MESSAGE_FIELDS: [&str; 4] =
    ["tool_choice", "thinking", "parallel_tool_calls", "reasoning_effort"];

/// The shortest lifetime that providers document.
const LIFETIME_KNOWN: Duration = Duration::from_secs(300);

/// Rules whose errors differ by this share of the error without any are equally good.
const NEAR: f64 = 0.02;

/// Least lengths of a cached prefix, tokens.
const MINIMUMS: [u64; 3] = [1024, 2048, 4096];

/// The mark of Anthropic's API, without which nothing is cached.
const MARK: &str = "cache_control";

/// A rule of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CacheRule {
    /// A cache for each value of the field.
    Field(&'static str),
    /// The same for what stands behind tools and system messages.
    MessageField(&'static str),
    /// A block is served only this long after it was first sent.
    Ready(Duration, &'static str),
    /// A block is forgotten this long after its last use.
    Lifetime(Duration, &'static str),
    /// A shorter prefix is not served.
    Minimum(u64),
}

/// Statement of a log's own counts and fields on the caches that served it.
#[derive(Clone, Debug, Default)]
pub struct ServedReason {
    /// Why computed prefixes were not served, in a sentence; `None` where the counts show no
    /// reason.
    pub sentence: Option<String>,
    /// The fields by which every engine keeps caches apart, those with several values.
    pub namespace_fields: Vec<&'static str>,
}

impl ServedReason {
    /// Of a log's requests; `arrivals` are their times, where the log has them.
    pub(crate) fn of(said: &[LoggedPrompt], arrivals: Option<&[Nanos]>) -> Self {
        Self { sentence: reason(said, arrivals), namespace_fields: namespace_fields(said) }
    }
}

fn reason(said: &[LoggedPrompt], arrivals: Option<&[Nanos]>) -> Option<String> {
    let mut blocks = 0;
    let fits = |request: &&LoggedPrompt| {
        blocks += request.tokens.len() / BLOCK;
        blocks <= BLOCKS_MAX
    };
    let count = said.iter().take(REQUESTS_MAX).take_while(fits).count();
    let said = &said[..count];
    let with_counts = said.iter().filter(|request| request.cached.is_some()).count();
    if with_counts < REQUESTS_MIN {
        return None;
    }
    let chains: Vec<Vec<u64>> = said.iter().map(|request| chain(&request.tokens)).collect();
    let played = |rule| played(said, &chains, arrivals, rule);
    let base = played(None);
    if base.unserved < SHARE_MIN * base.prompt {
        return None;
    }
    if let Some(sentence) = marks::misplaced(said, &chains) {
        return Some(sentence);
    }
    let names = fields(said);
    let mut rules: Vec<CacheRule> = names.iter().copied().map(CacheRule::Field).collect();
    let of_messages = names.into_iter().filter(|name| MESSAGE_FIELDS.contains(name));
    rules.extend(of_messages.map(CacheRule::MessageField));
    if arrivals.is_some() {
        rules.extend(BURSTS.map(|(time, name)| CacheRule::Ready(time, name)));
        rules.extend(LIFETIMES.map(|(time, name)| CacheRule::Lifetime(time, name)));
    }
    rules.extend(MINIMUMS.map(CacheRule::Minimum));
    let mut tried: Vec<(CacheRule, PlayedLog)> =
        rules.into_iter().map(|rule| (rule, played(Some(rule)))).collect();
    // Without a served prefix beyond it, any least length and any lifetime would do: then only
    // those that providers document count.
    tried.retain(|(rule, log)| match rule {
        CacheRule::Minimum(least) => log.is_served || *least == MINIMUMS[0],
        CacheRule::Lifetime(time, _) => log.is_served || *time >= LIFETIME_KNOWN,
        CacheRule::Ready(..) => log.is_late,
        _ => true,
    });
    let best = tried.iter().map(|(_, log)| log.error).min_by(f64::total_cmp)?;
    if best > ERROR_MAX * base.error {
        return None;
    }
    // A field that decides is more than a coincidence of times.
    let is_near = |log: &PlayedLog| log.error <= best + NEAR * base.error;
    let is_field =
        |rule: &CacheRule| matches!(rule, CacheRule::Field(_) | CacheRule::MessageField(_));
    let near = || tried.iter().filter(|(_, log)| is_near(log));
    let field = near().find(|(rule, _)| is_field(rule));
    let lifetime = |rule: &CacheRule| matches!(rule, CacheRule::Lifetime(..));
    // Of a cache that served nothing it is only known that all pauses were longer.
    let longest = near().rev().find(|(rule, log)| lifetime(rule) && !log.is_served);
    let (rule, log) = field.or(longest).or_else(|| near().next())?;
    let lost = format!("{:.0} % of the prompt tokens", 100.0 * base.unserved / base.prompt);
    Some(sentence(said, *rule, log.is_served, &lost))
}

fn sentence(said: &[LoggedPrompt], rule: CacheRule, is_served: bool, lost: &str) -> String {
    match (rule, is_served) {
        (CacheRule::Field(name), true) => format!(
            "The engine served a prefix only to requests with the same `{name}`: the log has {}, \
             each with a cache of its own. That costs {lost}. Give requests that share prefixes \
             one `{name}`.",
            counted(values(said, name) as u64, "value")
        ),
        (CacheRule::Field(name), false) => format!(
            "One reason fits: requests that share prefixes have no `{name}` in \
             common: a cache for each value has nothing to serve. That costs {lost}. Give them one \
             `{name}`."
        ),
        (CacheRule::MessageField(name), _) => format!(
            "The engine served messages only to requests with the same `{name}`: the log has {}, \
             and with each other one the messages are recomputed. That costs {lost}. Keep \
             `{name}` the same within a conversation.",
            counted(values(said, name) as u64, "value")
        ),
        (CacheRule::Ready(_, name), _) => format!(
            "Requests with the same prefix were sent at once, within {name}, before the first one \
             had filled the cache. That costs {lost}. Send one request first, and the others once \
             its answer begins."
        ),
        (CacheRule::Lifetime(_, name), true) => format!(
            "A prefix was served only within about {name} of its last use: longer pauses cost \
             {lost}. Ask for a longer lifetime, or send a request before the cache expires."
        ),
        (CacheRule::Lifetime(_, name), false) => format!(
            "One reason fits: no prefix came again within {name}, and caches of \
             providers expire after such pauses. That costs {lost}. Ask for a longer lifetime, or \
             send a request before the cache expires."
        ),
        (CacheRule::Minimum(tokens), true) => format!(
            "No prefix shorter than {tokens} tokens was served, which costs {lost}: the cache has \
             a minimum. Put more of what stays the same in front."
        ),
        (CacheRule::Minimum(tokens), false) => format!(
            "One reason fits: no shared prefix reaches {tokens} tokens, and most \
             providers cache nothing shorter. That costs {lost}. Put more of what stays the same \
             in front."
        ),
    }
}

fn namespace_fields(said: &[LoggedPrompt]) -> Vec<&'static str> {
    let differs = |name: &&str| {
        said.first().is_some_and(|first| {
            let first = value(first, name);
            said.iter().any(|request| value(request, name) != first)
        })
    };
    ["cache_salt", "model"].into_iter().filter(differs).collect()
}

/// Sums over the requests with counts.
#[derive(Debug, Default)]
struct PlayedLog {
    prompt: f64,
    /// Tokens that the rule's cache has and the engine did not serve.
    unserved: f64,
    /// Difference to what the engine served, without its sign.
    error: f64,
    /// Whether the engine served a prefix that the rule's cache has.
    is_served: bool,
    /// Whether a later request found nothing, neither by the rule nor in the log.
    is_late: bool,
}

fn played(
    said: &[LoggedPrompt],
    chains: &[Vec<u64>],
    arrivals: Option<&[Nanos]>,
    rule: Option<CacheRule>,
) -> PlayedLog {
    // The times of each block's first and last use.
    let mut seen: HashMap<(u64, u64), (Nanos, Nanos)> = HashMap::new();
    let mut sums = PlayedLog::default();
    for (index, (request, chain)) in said.iter().zip(chains).enumerate() {
        let now = arrivals.and_then(|times| times.get(index)).copied().unwrap_or_default();
        let part = match rule {
            Some(CacheRule::Field(name) | CacheRule::MessageField(name)) => {
                value(request, name).unwrap_or_default()
            }
            _ => 0,
        };
        let shared = match rule {
            Some(CacheRule::MessageField(_)) => instruction_blocks(request, chain.len()),
            _ => 0,
        };
        let lives = |(first, last): &(Nanos, Nanos)| match rule {
            Some(CacheRule::Lifetime(time, _)) => now.since(*last) <= time,
            Some(CacheRule::Ready(time, _)) => now.since(*first) >= time,
            _ => true,
        };
        let keys = chain.iter().enumerate();
        let keys = keys.map(|(at, &name)| (if at < shared { 0 } else { part }, name));
        let blocks = keys.clone().take_while(|key| seen.get(key).is_some_and(lives));
        let found = blocks.count() * BLOCK;
        for key in keys {
            seen.entry(key).or_insert((now, now)).1 = now;
        }
        let Some((prompt, cached)) = request.cached else {
            continue;
        };
        // The log's tokens are another tokenizer's.
        let scale = f64::from(prompt) / request.tokens.len().max(1) as f64;
        let mut found = found as f64 * scale;
        if let Some(CacheRule::Minimum(least)) = rule
            && found < least as f64
        {
            found = 0.0;
        }
        sums.is_served |= found > 0.0 && cached > 0;
        sums.is_late |= found < 1.0 && cached == 0 && index > 0;
        let cached = f64::from(cached);
        sums.prompt += f64::from(prompt);
        sums.unserved += (found - cached).max(0.0);
        sums.error += (found - cached).abs();
    }
    sums
}

/// Blocks in front of the first message that is not the system's.
fn instruction_blocks(request: &LoggedPrompt, blocks: usize) -> usize {
    let text = &request.text;
    let end = first_message(text).unwrap_or(text.len());
    blocks * end / text.len().max(1)
}

/// Fields with at least two values.
fn fields(said: &[LoggedPrompt]) -> Vec<&'static str> {
    let mut names: Vec<&'static str> = Vec::new();
    for (name, _) in said.iter().flat_map(|request| &request.settings) {
        if !names.contains(name) && *name != MARK && values(said, name) > 1 {
            names.push(name);
        }
    }
    names
}

fn values(said: &[LoggedPrompt], name: &str) -> usize {
    let mut values: Vec<u64> =
        said.iter().map(|request| value(request, name).unwrap_or_default()).collect();
    values.sort_unstable();
    values.dedup();
    values.len()
}

fn value(request: &LoggedPrompt, name: &str) -> Option<u64> {
    request.settings.iter().find(|(field, _)| *field == name).map(|(_, value)| *value)
}

/// A name of each whole block with all before it.
fn chain(tokens: &[TokenId]) -> Vec<u64> {
    let mut name = 0xcbf2_9ce4_8422_2325_u64;
    let blocks = tokens.chunks_exact(BLOCK).map(|block| {
        for token in block {
            name = (name ^ u64::from(*token)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
        }
        name
    });
    blocks.collect()
}

#[cfg(test)]
mod tests {
    use headstart_trace::format::request_log::CacheMarks;

    use super::*;

    /// Requests a minute apart with the same 2,048 tokens in front of their own 64.
    fn log(
        cached: impl Fn(usize) -> u32,
        settings: impl Fn(usize) -> Vec<(&'static str, u64)>,
    ) -> Vec<LoggedPrompt> {
        let request = |index: usize| LoggedPrompt {
            tokens: (0..2048).chain((0..64).map(|at| 5_000 + 100 * index as u32 + at)).collect(),
            cached: Some((2112, cached(index))),
            settings: settings(index),
            ..LoggedPrompt::default()
        };
        (0..40).map(request).collect()
    }

    fn minutes(step: impl Fn(usize) -> u64) -> Vec<Nanos> {
        let mut now = 0;
        (0..40)
            .map(|index| {
                now += step(index) * 60_000_000_000;
                Nanos(now)
            })
            .collect()
    }

    fn check(said: &[LoggedPrompt], arrivals: &[Nanos], expected: Option<&str>) {
        let told = reason(said, Some(arrivals));
        match expected {
            Some(part) => {
                assert!(told.as_ref().is_some_and(|told| told.contains(part)), "{told:?}");
            }
            None => assert_eq!(told, None),
        }
    }

    #[test]
    fn the_field_that_decides_is_named() {
        // Each value has a cache of its own: nothing else explains these counts.
        let each = |index: usize| vec![("api_base", index as u64 % 4), ("tool_choice", 7)];
        let said = log(|index| if index < 4 { 0 } else { 2048 }, each);
        check(&said, &minutes(|_| 1), Some("same `api_base`: the log has 4 values"));
        let unique = |index: usize| vec![("prompt_cache_key", index as u64)];
        check(&log(|_| 0, unique), &minutes(|_| 1), Some("no `prompt_cache_key` in common"));
        let turns = |index: usize| vec![("thinking", index as u64 / 2)];
        let said = log(|index| if index.is_multiple_of(2) { 0 } else { 2048 }, turns);
        check(&said, &minutes(|_| 1), Some("same `thinking`"));
    }

    #[test]
    fn a_lifetime_is_told_by_the_pauses() {
        let pause = |index: usize| if index.is_multiple_of(2) { 20 } else { 2 };
        let said = log(|index| if index.is_multiple_of(2) { 0 } else { 2048 }, |_| Vec::new());
        check(&said, &minutes(pause), Some("within about 5 minutes"));
    }

    #[test]
    fn a_minimum_is_told_where_nothing_shorter_is_served() {
        let mut said = log(|_| 0, |_| Vec::new());
        for request in &mut said {
            request.tokens.drain(..1_500);
            request.cached = Some((612, 0));
        }
        check(&said, &minutes(|_| 1), Some("no shared prefix reaches 1024 tokens"));
    }

    #[test]
    fn an_api_that_needs_marks_is_told_of_them() {
        let mut said = log(|_| 0, |_| Vec::new());
        said.iter_mut().for_each(|request| request.model = Some("claude-x".to_owned()));
        check(&said, &minutes(|_| 1), Some("`cache_control`"));
        said[7].settings.push((MARK, 1));
        // A mark somewhere, and prefixes long enough: the counts show no reason.
        check(&said, &minutes(|_| 1), None);
    }

    #[test]
    fn a_burst_is_told_by_requests_at_once() {
        // Ten groups of four: each group begins with another prefix, within a tenth of a second.
        let mut said = log(|_| 0, |_| Vec::new());
        let mut arrivals = Vec::new();
        for (index, request) in said.iter_mut().enumerate() {
            let group = index as u64 / 4;
            request.tokens.iter_mut().for_each(|token| *token += 10_000 * group as u32);
            arrivals.push(Nanos(group * 60_000_000_000 + index as u64 % 4 * 30_000_000));
        }
        check(&said, &arrivals, Some("were sent at once, within 0.3 seconds"));
        // Served all the same: then nothing is lost.
        for (index, request) in said.iter_mut().enumerate() {
            request.cached = Some((2112, if index.is_multiple_of(4) { 0 } else { 2048 }));
        }
        check(&said, &arrivals, None);
    }

    #[test]
    fn a_field_may_part_the_messages_only() {
        let choice = |index: usize| vec![("tool_choice", index as u64 % 2)];
        // The system's half is served to all; the messages only to the same choice, of which the
        // request before has another and the history is that of two before.
        let mut said = log(|index| if index == 0 { 0 } else { 1024 }, choice);
        for (index, request) in said.iter_mut().enumerate() {
            let half = "x".repeat(1_000);
            request.text = format!("{half}<|im_start|>user\n{half}");
            // Pairs share their messages, and differ in the field.
            let pair = index as u32 / 2;
            request.tokens[1024..].iter_mut().for_each(|token| *token += 10_000 * (pair + 1));
        }
        check(&said, &minutes(|_| 1), Some("served messages only to requests with the same"));
    }

    #[test]
    fn marks_at_the_wrong_place_are_told() {
        let packed = |marks: CacheMarks| move |_: usize| vec![(MARK, marks.packed())];
        let last = CacheMarks { last_block: 3, has_last: true, has_earlier: false };
        check(&log(|_| 0, packed(last)), &minutes(|_| 1), Some("on the last message"));
        let both = CacheMarks { has_earlier: true, ..last };
        check(&log(|_| 0, packed(both)), &minutes(|_| 1), None);
        // All continue the first request, whose mark is at block 10.
        let at = |block: u64| {
            move |index: usize| {
                let last_block = if index == 0 { 10 } else { block };
                vec![(MARK, CacheMarks { last_block, ..both }.packed())]
            }
        };
        check(&log(|_| 0, at(31)), &minutes(|_| 1), Some("look-back"));
        check(&log(|_| 0, at(30)), &minutes(|_| 1), None);
    }

    #[test]
    fn what_was_served_needs_no_reason() {
        let said = log(|index| if index == 0 { 0 } else { 2048 }, |_| Vec::new());
        check(&said, &minutes(|_| 1), None);
    }
}
