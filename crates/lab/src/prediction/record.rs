//! A run that `bench chat --record` wrote, to be repeated in virtual time.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use crate::prediction::chat::{Head, Script, ScriptedConversation, ScriptedTurn};
use anyhow::{Context, Result, bail, ensure};
use headstart_core::{Nanos, Probability};
use serde::Deserialize;

/// The first field of a record's first line.
const KIND: &str = "headstart-chat";

/// Version of the format that is read.
const VERSION: u32 = 1;

/// Latest start and longest think time, seconds: 30 days.
const SECONDS_MAX: f64 = 30.0 * 86_400.0;

/// A run as it went, and what was predicted in it.
#[derive(Debug)]
pub(super) struct RecordedRun {
    pub(super) script: Script,
    /// Predictions per conversation and turn; empty if there are none.
    pub(super) told: Vec<Vec<Option<Probability>>>,
}

#[derive(Deserialize)]
struct RecordHeaderLine {
    record: String,
    version: u32,
}

#[derive(Deserialize)]
struct ConversationLine {
    conversation: usize,
    start_s: f64,
    shared: Option<SharedField>,
    turns: Vec<TurnField>,
}

#[derive(Deserialize)]
struct SharedField {
    conversation: usize,
    tokens: u32,
}

#[derive(Deserialize)]
struct TurnField {
    think_s: f64,
    new_tokens: u32,
    answer_tokens: u32,
    p: Option<f64>,
    e2e_s: f64,
    sent_s: f64,
}

/// Reads the run in `file`.
pub(super) fn read(file: &Path) -> Result<RecordedRun> {
    let name = file.display();
    let opened = File::open(file).with_context(|| format!("cannot read {name}"))?;
    let mut lines = BufReader::new(opened).lines();
    // The header comes first and names format and version, so a wrong file fails at once.
    let first = lines.next().with_context(|| format!("{name} is empty"))??;
    let header = serde_json::from_str::<RecordHeaderLine>(&first);
    match header {
        Ok(header) if header.record == KIND && header.version == VERSION => {}
        Ok(header) if header.record == KIND => bail!(
            "{name} has version {}, and only {VERSION} is read; record the run again",
            header.version
        ),
        _ => bail!("{name} is no record of `bench chat --record`"),
    }
    let mut parsed = Vec::new();
    for (number, line) in (2..).zip(lines) {
        let line = serde_json::from_str(&line?).with_context(|| format!("{name}, line {number}"));
        parsed.push(checked(line?).with_context(|| format!("{name}, line {number}"))?);
    }
    ensure!(!parsed.is_empty(), "{name} has no conversation");
    Ok(run(&parsed))
}

fn checked(line: ConversationLine) -> Result<ConversationLine> {
    let times = line.turns.iter().flat_map(|turn| [turn.think_s, turn.e2e_s, turn.sent_s]);
    // The range also excludes NaN and infinity, which no clock can hold.
    let is_time = |seconds: f64| (0.0..=SECONDS_MAX).contains(&seconds);
    ensure!(
        is_time(line.start_s) && times.into_iter().all(is_time),
        "times must be seconds, from 0 to {SECONDS_MAX}"
    );
    Ok(line)
}

fn run(lines: &[ConversationLine]) -> RecordedRun {
    // A conversation without turns sends nothing and would shift the indices below.
    let lines: Vec<_> = lines.iter().filter(|line| !line.turns.is_empty()).collect();
    let indices: HashMap<usize, usize> =
        lines.iter().enumerate().map(|(index, line)| (line.conversation, index)).collect();
    let started = lines.iter().map(|line| {
        let head = line.shared.as_ref().and_then(|shared| {
            // A head may name a conversation that was left out; then nothing is shared.
            Some(Head { conversation: *indices.get(&shared.conversation)?, tokens: shared.tokens })
        });
        let turns = turns(&line.turns);
        let start = Nanos::from_secs_f64(line.start_s);
        (start, ScriptedConversation { turns, head })
    });
    // The script ends with the last answer of the record.
    let ends = lines.iter().flat_map(|line| &line.turns);
    let end_s = ends.map(|turn| turn.sent_s + turn.e2e_s).fold(0.0, f64::max);
    let told = lines.iter().map(|line| {
        let told = line.turns.iter().map(|turn| Probability::new(turn.p?));
        told.collect::<Vec<_>>()
    });
    let told: Vec<_> = told.collect();
    // Without any prediction the record counts as one without a model.
    let is_told = told.iter().flatten().any(Option::is_some);
    RecordedRun {
        script: Script::recorded(started.collect(), end_s, SLACK_S),
        told: if is_told { told } else { Vec::new() },
    }
}

/// Behind the record's end, seconds: what the simulated engine may be slower by.
const SLACK_S: f64 = 600.0;

/// The gap of a turn is what the next one says it waited.
fn turns(fields: &[TurnField]) -> Vec<ScriptedTurn> {
    let gaps = fields.iter().skip(1).map(|next| next.think_s);
    // No gap follows the last turn.
    let gaps = gaps.chain([0.0]);
    fields
        .iter()
        .zip(gaps)
        .map(|(field, gap_s)| ScriptedTurn {
            // A turn has one token at least, whatever the record says.
            new_tokens: field.new_tokens.max(1),
            answer_tokens: field.answer_tokens.max(1),
            gap_s,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> ConversationLine {
        checked(serde_json::from_str(text).expect("JSON")).expect("valid")
    }

    #[test]
    fn a_record_becomes_a_script() {
        let lines = [
            r#"{"conversation":4,"start_s":0.5,"shared":null,"turns":[
                {"think_s":0,"prompt_tokens":61,"new_tokens":61,"answer_tokens":9,"p":0.25,
                 "cached_tokens":0,"sent_s":0.5,"ttft_s":0.1,"e2e_s":1},
                {"think_s":3.5,"prompt_tokens":75,"new_tokens":5,"answer_tokens":8,
                 "cached_tokens":64,"sent_s":5,"ttft_s":0.1,"e2e_s":2}]}"#,
            r#"{"conversation":7,"start_s":0.9,"shared":{"conversation":4,"tokens":33},"turns":[
                {"think_s":0,"prompt_tokens":50,"new_tokens":50,"answer_tokens":1,
                 "cached_tokens":32,"sent_s":0.9,"ttft_s":0.1,"e2e_s":1}]}"#,
        ];
        let run = run(&lines.map(line));
        let [first, second] = run.script.conversations() else {
            panic!("two conversations");
        };
        assert_eq!((first.turns[0].gap_s, first.turns[1].new_tokens), (3.5, 5));
        let head = Head { conversation: 0, tokens: 33 };
        assert_eq!((first.head, second.head), (None, Some(head)));
        assert_eq!((run.script.seconds(), run.script.end_s()), (7.0, 7.0 + SLACK_S));
        assert_eq!(run.told, [vec![Probability::new(0.25), None], vec![None]]);
    }

    #[test]
    fn times_that_cannot_be_are_refused() {
        let text = r#"{"conversation":4,"start_s":-1,"shared":null,"turns":[]}"#;
        let line: ConversationLine = serde_json::from_str(text).expect("JSON");
        assert!(checked(line).is_err());
    }
}
