//! A trace's sessions as turns to learn from: how many, how long, how far apart. No text.
//!
//! Lengths are in tokens there and in characters here: one is taken as [`TOKEN_CHARS`] of the
//! other. A gap is from request to request, because a trace does not say when an answer ended.

use std::collections::HashMap;

use headstart_core::{Nanos, Progress, SessionId, TraceRequest};
use headstart_trace::{Options, Provenance, Reader, TraceError, remarks};

use super::TrainingError;
use super::input::TrainingFile;
use super::samples::Samples;
use crate::{ConversationOutcome, Label, Situation};

/// Characters of a token, about.
const TOKEN_CHARS: usize = 4;

/// Characters that stand for a prompt at most; longer ones count as this long.
const PROMPT_CHARS_MAX: usize = 1 << 20;

/// Requests of one trace.
const REQUESTS_MAX: usize = 1 << 22;

/// The share of gaps that a turn must be older than, when the trace ends, for its outcome to
/// count. All younger ones are left out, whatever followed: only those that went on at once
/// would be known among them.
const GAP_SHARE: f64 = 0.95;

/// One request of a session.
#[derive(Clone, Copy, Debug)]
struct SessionTurn {
    at: Nanos,
    input_tokens: Option<u32>,
    output_tokens: Option<u32>,
    /// As the trace counts, from 1; 0 where it does not.
    turn: u16,
}

/// Reads a trace; `number` tells its sessions from those of other files. Remarks.
///
/// # Errors
/// When it cannot be read, or tells no sessions.
pub(super) fn read(
    source: &TrainingFile,
    number: u64,
    limit: Option<usize>,
    samples: &mut Samples,
    progress: &dyn Progress,
) -> Result<Vec<String>, TrainingError> {
    let raw = source.open(progress)?;
    let mut reader = Reader::with_options(source.name(), raw, Options::default())?;
    let (sessions, end) = gather(source, reader.by_ref())?;
    let horizon = horizon(&sessions);
    // The horizon is taken of all sessions, also of those beyond the limit.
    let taken = &sessions[..limit.unwrap_or(usize::MAX).min(sessions.len())];
    for (index, turns) in taken.iter().enumerate() {
        // A trace has no first prompts, so each session is a group of its own.
        let name = super::corpus::number_of(&[&number.to_le_bytes(), &index.to_le_bytes()]);
        push(turns, name, end, horizon, samples)?;
    }
    let mut remarks = remarks(&reader);
    remarks.push(format!(
        "turns of the trace's last {:.0} s have an unknown outcome: the gap that {:.0} % of turns \
         keep",
        horizon.as_secs_f64(),
        100.0 * GAP_SHARE
    ));
    if reader.info().sessions == Provenance::Absent {
        return Err(TrainingError::Unsuitable(format!(
            "{} has no sessions, so training cannot tell which ones continue",
            source.name()
        )));
    }
    Ok(remarks)
}

/// The requests by session, in the order of their first ones, and the last arrival.
fn gather(
    source: &TrainingFile,
    requests: impl Iterator<Item = Result<TraceRequest, TraceError>>,
) -> Result<(Vec<Vec<SessionTurn>>, Nanos), TrainingError> {
    let mut places: HashMap<SessionId, usize> = HashMap::new();
    let mut sessions: Vec<Vec<SessionTurn>> = Vec::new();
    let mut end = Nanos(0);
    for (count, request) in requests.enumerate() {
        let request = request?;
        // A longer trace would fill memory, so it is refused instead of cut.
        if count >= REQUESTS_MAX {
            let message = format!("{} has more than {REQUESTS_MAX} requests", source.name());
            return Err(TrainingError::Unsuitable(message));
        }
        end = end.max(request.arrival);
        // A request without a session says nothing about continuing.
        let Some(session) = request.session else {
            continue;
        };
        let place = *places.entry(session).or_insert_with(|| {
            sessions.push(Vec::new());
            sessions.len() - 1
        });
        sessions[place].push(SessionTurn {
            at: request.arrival,
            input_tokens: request.input_tokens,
            output_tokens: request.output_tokens,
            turn: request.turn,
        });
    }
    Ok((sessions, end))
}

/// The gap that [`GAP_SHARE`] of the turns keep.
fn horizon(sessions: &[Vec<SessionTurn>]) -> std::time::Duration {
    let gaps = sessions.iter().flat_map(|turns| turns.windows(2));
    let mut gaps: Vec<_> = gaps.map(|pair| pair[1].at.since(pair[0].at)).collect();
    gaps.sort_unstable();
    // The index is clipped, because the share of few gaps may be their number.
    let at = (gaps.len() as f64 * GAP_SHARE) as usize;
    let gap = gaps.get(at.min(gaps.len().saturating_sub(1)));
    gap.copied().unwrap_or_default()
}

fn push(
    turns: &[SessionTurn],
    session: u64,
    end: Nanos,
    horizon: std::time::Duration,
    samples: &mut Samples,
) -> Result<(), TrainingError> {
    let mut situation = Situation::default();
    for (index, turn) in turns.iter().enumerate() {
        let before = index.checked_sub(1).map(|index| turns[index]);
        let chars = |tokens: u32| tokens as usize * TOKEN_CHARS;
        // A prompt contains the history, so the new part is the difference.
        let known = before
            .and_then(|before| Some(before.input_tokens?.saturating_add(before.output_tokens?)));
        let new = turn.input_tokens.unwrap_or(0).saturating_sub(known.unwrap_or(0));
        situation.prompts.push(" ".repeat(chars(new).min(PROMPT_CHARS_MAX)));
        situation.turn = match turn.turn {
            // A trace that counts its turns may have cut the first ones off.
            0 => u16::try_from(index + 1).unwrap_or(u16::MAX),
            turn => turn,
        };
        let answer = before.and_then(|before| before.output_tokens);
        situation.answer_chars =
            answer.map(|tokens| u32::try_from(chars(tokens)).unwrap_or(u32::MAX));
        situation.gap_s = before.map(|before| turn.at.since(before.at).as_secs_f32());
        let outcome = match turns.get(index + 1) {
            // The age decides before the outcome: a short gap would otherwise be known sooner than
            // a long one.
            _ if end.since(turn.at) < horizon => ConversationOutcome::Unknown,
            Some(_) => ConversationOutcome::Continued,
            None => ConversationOutcome::Ended,
        };
        let label = Label {
            outcome,
            turn: situation.turn,
            conversation: session,
            group: session,
            truth: None,
        };
        samples.push(&situation, label)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Definition, encoder};

    fn turn(at_s: u64, turn: u16) -> SessionTurn {
        SessionTurn {
            at: Nanos(at_s * 1_000_000_000),
            input_tokens: Some(100 * u32::from(turn)),
            output_tokens: Some(40),
            turn,
        }
    }

    #[test]
    fn what_is_younger_than_the_horizon_is_not_known_whatever_followed() {
        let encoder = encoder::ngram::NgramEncoder::new();
        let mut definition = Definition::new(&encoder);
        definition.behaviour = true;
        definition.text.window = 0;
        let mut samples = Samples::new(definition);
        let turns = [turn(0, 1), turn(50, 2), turn(95, 3), turn(97, 4)];
        let (end, horizon) = (Nanos(100_000_000_000), std::time::Duration::from_secs(10));
        push(&turns, 7, end, horizon, &mut samples).expect("few");
        push(&turns[..1], 8, end, horizon, &mut samples).expect("few");
        let outcomes: Vec<_> = samples.labels().iter().map(|label| label.outcome).collect();
        use ConversationOutcome::{Continued, Ended, Unknown};
        assert_eq!(outcomes, [Continued, Continued, Unknown, Unknown, Ended]);
        assert!(samples.texts().iter().all(String::is_empty));
    }

    #[test]
    fn the_horizon_is_the_gap_that_most_keep() {
        let far = |gap_s| vec![turn(0, 1), turn(gap_s, 2)];
        let sessions: Vec<_> = (1..=100).map(far).chain([vec![turn(9, 1)]]).collect();
        assert_eq!(horizon(&sessions).as_secs(), 96);
        assert_eq!(horizon(&[vec![turn(9, 1)]]).as_secs(), 0);
    }
}
