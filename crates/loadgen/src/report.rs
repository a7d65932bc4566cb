//! Report of a run of conversations: per turn, in total, and side by side with others.
//!
//! The first turn of a conversation can only share a system prompt with others; what reuse
//! gains is seen from the second turn on. So rows go by turn, and [`compare`] shows both.
//!
//! All percentiles are nearest rank over single requests; hit rates are of tokens.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use headstart_core::stats::{HitCount, Summary};
use serde::Serialize;

use crate::observed::{ChatObservations, Ending, TurnSample};

/// Turns with a row of their own; later ones share one, because few conversations get there.
const SINGLE_TURNS: usize = 8;

/// Failures reported in words; the rest most often says the same.
const FAILURE_SAMPLES: usize = 5;

/// The figures of one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChatReport {
    /// Turns 1 to 8 and `9+`, those that occurred.
    pub turns: Vec<TurnRow>,
    /// All requests.
    pub all: TurnRow,
    /// Requests with a history: turn 2 and later.
    pub later: TurnRow,
    /// Conversations played.
    pub conversations: usize,
    /// Of these, ended early because their prompt grew too long.
    pub truncated: usize,
    /// Of these, not ended when the run's time was over.
    pub unfinished: usize,
    /// Of these, ended by an error.
    pub failed: usize,
    /// The first few errors.
    pub failures: Vec<String>,
    /// Duration of the run, seconds.
    pub wall_s: f64,
    /// Tokens of all prompts.
    pub prompt_tokens: u64,
    /// Of these, found in a cache: token hits.
    pub cached_tokens: u64,
    /// Tokens of all answers.
    pub output_tokens: u64,
    /// Tokens of all answers per second of the run.
    pub output_tokens_per_s: f64,
    /// Requests per replica, where the server names replicas.
    pub replicas: BTreeMap<String, usize>,
}

/// The figures of some requests.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TurnRow {
    /// Group of turns: `1` … `8`, `9+`, `2+`, `all`.
    pub turn: String,
    /// Answered requests.
    pub requests: usize,
    /// Mean prompt length, tokens.
    pub prompt_tokens_mean: f64,
    /// Mean of the prompt tokens found in a cache.
    pub cached_tokens_mean: f64,
    /// Cached prompt tokens / prompt tokens.
    pub hit_rate: f64,
    /// Median time to first token, milliseconds.
    pub ttft_ms_p50: f64,
    /// Its 90th percentile.
    pub ttft_ms_p90: f64,
    /// Its 99th percentile.
    pub ttft_ms_p99: f64,
}

impl TurnRow {
    fn of<'a>(turn: String, samples: impl Iterator<Item = &'a TurnSample>) -> Self {
        let mut tokens = HitCount::default();
        let mut ttft_ms = Vec::new();
        for sample in samples {
            tokens.record(sample.prompt_tokens as usize, sample.cached_tokens as usize);
            ttft_ms.push(sample.ttft.as_secs_f64() * 1e3);
        }
        let ttft_ms = Summary::of(&mut ttft_ms);
        let requests = ttft_ms.count;
        Self {
            turn,
            requests,
            prompt_tokens_mean: tokens.lookups as f64 / requests.max(1) as f64,
            cached_tokens_mean: tokens.hits as f64 / requests.max(1) as f64,
            hit_rate: tokens.rate(),
            ttft_ms_p50: ttft_ms.p50,
            ttft_ms_p90: ttft_ms.p90,
            ttft_ms_p99: ttft_ms.p99,
        }
    }
}

impl ChatReport {
    /// The figures of `observed`; all zero where nothing was answered.
    #[must_use]
    pub fn of(observed: &ChatObservations) -> Self {
        let ChatObservations { samples, endings, wall } = observed;
        let tokens =
            |of: fn(&TurnSample) -> u32| samples.iter().map(|s| u64::from(of(s))).sum::<u64>();
        let output_tokens = tokens(|sample| sample.output_tokens);
        let wall_s = wall.as_secs_f64();
        let mut replicas = BTreeMap::new();
        for replica in samples.iter().filter_map(|sample| sample.replica.as_ref()) {
            *replicas.entry(replica.clone()).or_insert(0) += 1;
        }
        let failures = endings.iter().filter_map(|ending| match ending {
            Ending::Failed(message) => Some(message.clone()),
            _ => None,
        });
        Self {
            turns: rows(samples),
            all: TurnRow::of("all".to_owned(), samples.iter()),
            later: TurnRow::of("2+".to_owned(), samples.iter().filter(|s| s.turn > 1)),
            conversations: endings.len(),
            truncated: count(endings, &Ending::Truncated),
            unfinished: count(endings, &Ending::Unfinished),
            failed: observed.failed(),
            failures: failures.take(FAILURE_SAMPLES).collect(),
            wall_s,
            prompt_tokens: tokens(|sample| sample.prompt_tokens),
            cached_tokens: tokens(|sample| sample.cached_tokens),
            output_tokens,
            // A run in which nothing was sent may have no duration.
            output_tokens_per_s: if wall_s > 0.0 { output_tokens as f64 / wall_s } else { 0.0 },
            replicas,
        }
    }

    /// A table of the turns and the totals below it.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let mut text = String::from(
            "| turn | requests | prompt tokens | cached tokens | hit rate \
             | TTFT p50, ms | p90 | p99 |\n|---|--:|--:|--:|--:|--:|--:|--:|\n",
        );
        for row in self.turns.iter().chain([&self.all]) {
            let _ = writeln!(
                text,
                "| {} | {} | {:.0} | {:.0} | {:.1} % | {} |",
                row.turn,
                row.requests,
                row.prompt_tokens_mean,
                row.cached_tokens_mean,
                row.hit_rate * 100.0,
                ttft_cells(row),
            );
        }
        text.push('\n');
        text.push_str(&self.totals());
        text
    }

    fn totals(&self) -> String {
        let mut text = format!(
            "{} conversations ({} truncated, {} failed) in {:.1} s, {:.1} output tokens/s\n",
            self.conversations, self.truncated, self.failed, self.wall_s, self.output_tokens_per_s,
        );
        if self.unfinished > 0 {
            let _ = writeln!(text, "{} not ended in the run's time", self.unfinished);
        }
        if !self.replicas.is_empty() {
            let counts: Vec<String> =
                self.replicas.iter().map(|(name, requests)| format!("{name} {requests}")).collect();
            let _ = writeln!(text, "\nRequests per replica: {}", counts.join(", "));
        }
        // First turns may have nothing in common, so only later turns without a hit are suspicious.
        if self.later.requests > 0 && self.all.cached_tokens_mean == 0.0 {
            text.push_str(
                "\nNo request reported cached tokens: nothing was reused, or the server does \
                 not fill `usage.prompt_tokens_details`.\n",
            );
        }
        for failure in &self.failures {
            let _ = write!(text, "\n- {failure}");
        }
        text
    }
}

/// One line per run, under the names given.
#[must_use]
pub fn compare(reports: &[(&str, &ChatReport)]) -> String {
    let mut text = String::from(
        "| run | hit rate | TTFT p50, ms | p90 | p99 \
         | turns ≥ 2: TTFT p50, ms | p90 | p99 | output tokens/s | failed |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for (name, report) in reports {
        let _ = writeln!(
            text,
            "| {name} | {:.1} % | {} | {} | {:.1} | {} |",
            report.all.hit_rate * 100.0,
            ttft_cells(&report.all),
            ttft_cells(&report.later),
            report.output_tokens_per_s,
            report.failed,
        );
    }
    text
}

fn count(endings: &[Ending], wanted: &Ending) -> usize {
    endings.iter().filter(|&ending| ending == wanted).count()
}

fn rows(samples: &[TurnSample]) -> Vec<TurnRow> {
    let single = (1..=SINGLE_TURNS).map(|turn| {
        let of_turn = samples.iter().filter(move |sample| sample.turn == turn);
        TurnRow::of(turn.to_string(), of_turn)
    });
    let rest = samples.iter().filter(|sample| sample.turn > SINGLE_TURNS);
    single
        .chain([TurnRow::of(format!("{}+", SINGLE_TURNS + 1), rest)])
        .filter(|row| row.requests > 0)
        .collect()
}

fn ttft_cells(row: &TurnRow) -> String {
    if row.requests == 0 {
        // A dash, because a zero would read as a very fast server.
        return "– | – | –".to_owned();
    }
    let cells = [row.ttft_ms_p50, row.ttft_ms_p90, row.ttft_ms_p99];
    cells.map(|ms| format!("{ms:.1}")).join(" | ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn sample(turn: usize, cached_tokens: u32, ttft_ms: u64) -> TurnSample {
        TurnSample {
            conversation: 0,
            turn,
            think: Duration::ZERO,
            sent: Duration::ZERO,
            prompt_tokens: 100,
            cached_tokens,
            output_tokens: 5,
            ttft: Duration::from_millis(ttft_ms),
            e2e: Duration::from_millis(2 * ttft_ms),
            replica: (turn > 1).then(|| "a".to_owned()),
        }
    }

    fn report() -> ChatReport {
        ChatReport::of(&ChatObservations {
            samples: vec![
                sample(1, 0, 40),
                sample(2, 60, 10),
                sample(9, 90, 20),
                sample(12, 90, 30),
            ],
            endings: vec![
                Ending::Completed,
                Ending::Truncated,
                Ending::Unfinished,
                Ending::Failed("why".into()),
            ],
            wall: Duration::from_secs(2),
        })
    }

    fn check(row: &TurnRow, turn: &str, requests: usize, hit_rate: f64, ttft_ms: [f64; 2]) {
        assert_eq!((row.turn.as_str(), row.requests), (turn, requests));
        assert_eq!(row.hit_rate, hit_rate);
        assert_eq!([row.ttft_ms_p50, row.ttft_ms_p99], ttft_ms);
    }

    #[test]
    fn rows_go_by_turn() {
        let report = report();
        assert_eq!(report.turns.len(), 3);
        check(&report.turns[0], "1", 1, 0.0, [40.0, 40.0]);
        check(&report.turns[1], "2", 1, 0.6, [10.0, 10.0]);
        check(&report.turns[2], "9+", 2, 0.9, [20.0, 30.0]);
        check(&report.all, "all", 4, 0.6, [20.0, 40.0]);
        check(&report.later, "2+", 3, 0.8, [20.0, 30.0]);
    }

    #[test]
    fn totals_count_conversations_and_tokens() {
        let report = report();
        assert_eq!((report.conversations, report.truncated), (4, 1));
        assert_eq!((report.unfinished, report.failed), (1, 1));
        assert_eq!((report.prompt_tokens, report.cached_tokens), (400, 240));
        assert_eq!((report.output_tokens, report.output_tokens_per_s), (20, 10.0));
        assert_eq!(report.replicas, BTreeMap::from([("a".to_owned(), 3)]));
    }

    #[test]
    fn markdown_shows_all_of_it() {
        let text = report().to_markdown();
        assert!(text.contains("| 2 | 1 | 100 | 60 | 60.0 % | 10.0 | 10.0 | 10.0 |"), "{text}");
        assert!(text.contains("4 conversations (1 truncated, 1 failed) in 2.0 s"), "{text}");
        assert!(text.contains("Requests per replica: a 3"), "{text}");
        assert!(text.contains("- why"), "{text}");
        let empty = ChatReport::of(&ChatObservations::default());
        assert!(empty.to_markdown().contains("| all | 0 | 0 | 0 | 0.0 % | – | – | – |"));
        let both = compare(&[("prefix", &report()), ("random", &empty)]);
        assert!(
            both.contains(
                "| prefix | 60.0 % | 20.0 | 40.0 | 40.0 | 20.0 | 30.0 | 30.0 | 10.0 | 1 |"
            ),
            "{both}"
        );
        assert_eq!(both.lines().count(), 4);
    }
}
