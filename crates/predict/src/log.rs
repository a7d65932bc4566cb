//! The gateway's opt-in log of outcomes: what a classifier can be trained on, and no text.
//!
//! ```text
//! {"headstart_outcomes":1,"definition":{…}}                                       once
//! {"conversation":7,"turn":2,"outcome":"continued","said":0.61,"row":"3c00b266…"}  per message
//! ```
//!
//! One JSON object per line, so that a line cut off by a crash costs that line only. A row is its
//! values as 16-bit floats in hexadecimal. Nothing is written that was not computed by the encoder
//! or counted. Vectors are no text, but they are made from it: with the encoder, guesses of a short
//! prompt can be tested against them, so the file is to be guarded like a log.
//!
//! First prompts are not named in it. Reading takes conversations whose first rows are equal for
//! ones that began with the same prompt.

use std::collections::HashMap;
use std::io::{self, BufRead, Read};

use half::f16;
use headstart_core::Probability;
use serde::{Deserialize, Serialize};

use crate::{ConversationOutcome, Dataset, Definition, Label};

const VERSION: u32 = 1;
/// Longest line that is read, bytes: a row of some 65,000 values.
const MAX_LINE_BYTES: u64 = 1 << 18;

/// Why a log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The file cannot be read on.
    #[error("reading the outcome log: {0}")]
    Read(#[from] io::Error),
    /// Some other file.
    #[error("this is not an outcome log: its first line is not the header that `serve` writes")]
    Foreign,
    /// From a version that does not exist yet.
    #[error("the outcome log has format {0}, this program reads {VERSION}; use a newer one")]
    Version(u32),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HeaderLine {
    headstart_outcomes: u32,
    definition: Definition,
}

/// The first line of a log whose rows are made by `definition`, with its line feed.
#[must_use]
pub fn header_line(definition: &Definition) -> String {
    let header = HeaderLine { headstart_outcomes: VERSION, definition: definition.clone() };
    line(&header)
}

/// Outcome of a conversation after one message.
#[derive(Clone, Debug, PartialEq)]
pub struct OutcomeRecord {
    /// Tells conversations apart within a log: a count or a random number, nothing made from
    /// text.
    pub conversation: u64,
    /// Number of the user message, from 1.
    pub turn: u16,
    /// The outcome.
    pub outcome: ConversationOutcome,
    /// The predicted probability of a continuation, if there was one.
    pub said: Option<Probability>,
    /// The row, by the header's definition.
    pub row: Vec<f32>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordLine {
    conversation: u64,
    turn: u16,
    outcome: ConversationOutcome,
    said: Option<f32>,
    row: String,
}

impl OutcomeRecord {
    /// As a line, with its line feed.
    #[must_use]
    pub fn line(&self) -> String {
        line(&RecordLine {
            conversation: self.conversation,
            turn: self.turn,
            outcome: self.outcome,
            said: self.said.map(|said| said.value() as f32),
            row: to_hex(&self.row),
        })
    }

    /// From a line, whose row has `width` values.
    ///
    /// # Errors
    /// What is wrong with it, and what was expected.
    pub fn parse(line: &str, width: usize) -> Result<Self, String> {
        let line: RecordLine =
            serde_json::from_str(line).map_err(|error| format!("not a record ({error})"))?;
        let row = from_hex(&line.row).filter(|row| row.len() == width);
        let row = row.ok_or_else(|| {
            format!("`row` is not {width} values of four hexadecimal digits each")
        })?;
        // A value too large for 16 bits was written as infinity.
        if !row.iter().all(|value| value.is_finite()) {
            return Err("`row` holds a value that is not a finite number".to_owned());
        }
        let is_share = |said: &f32| (0.0..=1.0).contains(said);
        if let Some(said) = line.said.filter(|said| !is_share(said)) {
            return Err(format!("`said` is {said}; expected a probability, 0 to 1"));
        }
        Ok(Self {
            conversation: line.conversation,
            turn: line.turn,
            outcome: line.outcome,
            said: line.said.and_then(|said| Probability::new(f64::from(said))),
            row,
        })
    }
}

/// Contents of a log.
#[derive(Clone, Debug, PartialEq)]
pub struct Log {
    /// Rows and outcomes, to learn from.
    pub dataset: Dataset,
    /// The prediction logged with each row.
    pub said: Vec<Option<Probability>>,
    /// Lines that are no record and were passed over.
    pub skipped: usize,
    /// The first of them: its number from 1, the header's, and what is wrong with it.
    pub first_skipped: Option<(usize, String)>,
    /// Whether there was more than the limit.
    pub truncated: bool,
}

/// Reads a log, at most `limit` records of it; a record takes some `4 · width` bytes.
///
/// # Errors
/// When it cannot be read or is no log. A line that is damaged is counted, not an error.
pub fn read(mut source: impl BufRead, limit: usize) -> Result<Log, LogError> {
    let definition = match next_line(&mut source)? {
        Some(Some(line)) => definition(&line)?,
        _ => return Err(LogError::Foreign),
    };
    let width = definition.width();
    let mut log = Log {
        dataset: Dataset { definition, values: Vec::new(), labels: Vec::new() },
        said: Vec::new(),
        skipped: 0,
        first_skipped: None,
        truncated: false,
    };
    while let Some(line) = next_line(&mut source)? {
        let record = match line {
            Some(line) => OutcomeRecord::parse(&line, width),
            None => Err("too long, or not UTF-8".to_owned()),
        };
        let record = match record {
            Ok(record) => record,
            Err(wrong) => {
                // The header is line 1, and every record so far was kept or skipped.
                let number = log.said.len() + log.skipped + 2;
                log.first_skipped.get_or_insert((number, wrong));
                log.skipped += 1;
                continue;
            }
        };
        // Checked after parsing, so that only a further record counts as cut off.
        if log.said.len() == limit {
            log.truncated = true;
            break;
        }
        log.push(record);
    }
    log.find_groups();
    Ok(log)
}

impl Log {
    fn push(&mut self, record: OutcomeRecord) {
        self.dataset.labels.push(Label {
            outcome: record.outcome,
            turn: record.turn,
            conversation: record.conversation,
            group: 0,
            truth: None,
        });
        self.dataset.values.extend(record.row);
        self.said.push(record.said);
    }

    /// Conversations whose first rows are equal bit for bit began with the same prompt.
    fn find_groups(&mut self) {
        let mut first_rows: HashMap<u64, [u8; 32]> = HashMap::new();
        for (at, label) in self.dataset.labels.iter().enumerate() {
            // Only the first row is made from the first prompt alone.
            if label.turn == 1 {
                let bytes = self.dataset.row(at).iter().flat_map(|x| x.to_le_bytes());
                let bytes: Vec<u8> = bytes.collect();
                first_rows.insert(label.conversation, *blake3::hash(&bytes).as_bytes());
            }
        }
        let mut groups: HashMap<[u8; 32], u64> = HashMap::new();
        for label in &mut self.dataset.labels {
            let first = first_rows.get(&label.conversation);
            label.group = match first {
                Some(first) => *groups.entry(*first).or_insert(label.conversation),
                None => label.conversation,
            };
        }
    }
}

fn definition(line: &str) -> Result<Definition, LogError> {
    let value: serde_json::Value = serde_json::from_str(line).map_err(|_| LogError::Foreign)?;
    let version = value.get("headstart_outcomes").and_then(|v| v.as_u64());
    match version {
        None => Err(LogError::Foreign),
        // The version first: a newer header may have fields that we do not know.
        Some(version) if version != u64::from(VERSION) => {
            Err(LogError::Version(u32::try_from(version).unwrap_or(u32::MAX)))
        }
        Some(_) => {
            let header: HeaderLine =
                serde_json::from_value(value).map_err(|_| LogError::Foreign)?;
            // A row must fit a line.
            let fits = (header.definition.dims as u64) < MAX_LINE_BYTES / 16;
            fits.then_some(header.definition).ok_or(LogError::Foreign)
        }
    }
}

/// The next line; `None` at the end, an inner `None` where it is too long or no UTF-8.
fn next_line(source: &mut impl BufRead) -> io::Result<Option<Option<String>>> {
    let mut bytes = Vec::new();
    let mut limited = source.by_ref().take(MAX_LINE_BYTES);
    if limited.read_until(b'\n', &mut bytes)? == 0 {
        return Ok(None);
    }
    // The rest of the line would pass for lines of its own.
    if bytes.last() != Some(&b'\n') && bytes.len() as u64 == MAX_LINE_BYTES {
        source.skip_until(b'\n')?;
        return Ok(Some(None));
    }
    Ok(Some(String::from_utf8(bytes).ok()))
}

fn line(value: &impl Serialize) -> String {
    let mut line = serde_json::to_string(value).expect("numbers and strings only");
    line.push('\n');
    line
}

fn to_hex(row: &[f32]) -> String {
    let digits = |value: &f32| format!("{:04x}", f16::from_f32(*value).to_bits());
    row.iter().map(digits).collect()
}

fn from_hex(digits: &str) -> Option<Vec<f32>> {
    let (values, rest) = digits.as_bytes().as_chunks::<4>();
    let value = |digits: &[u8; 4]| {
        let digits = str::from_utf8(digits).ok()?;
        let bits = u16::from_str_radix(digits, 16).ok()?;
        Some(f16::from_bits(bits).to_f32())
    };
    let values: Option<Vec<f32>> = values.iter().map(value).collect();
    values.filter(|_| rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::tests::four;
    use crate::encoder::ngram::NgramEncoder;
    use crate::{Encoder, Situation};
    use headstart_core::Rng;

    fn record(conversation: u64, turn: u16, first: f32) -> OutcomeRecord {
        OutcomeRecord {
            conversation,
            turn,
            outcome: ConversationOutcome::Continued,
            said: Probability::new(0.25),
            row: vec![first, -0.5, 0.25, 0.0, f32::from(turn)],
        }
    }

    fn file(records: &[OutcomeRecord]) -> String {
        let lines = records.iter().map(OutcomeRecord::line);
        std::iter::once(header_line(&four())).chain(lines).collect()
    }

    fn read_all(text: impl AsRef<[u8]>) -> Result<Log, LogError> {
        read(text.as_ref(), 1000)
    }

    #[test]
    fn what_is_written_is_read() {
        let mut ended = record(9, 2, 0.125);
        (ended.outcome, ended.said) = (ConversationOutcome::Ended, None);
        let log = read_all(file(&[record(7, 1, 1.0), ended])).expect("a log");
        assert_eq!(log.dataset.definition, four());
        assert_eq!(log.dataset.row(1), [0.125, -0.5, 0.25, 0.0, 2.0]);
        assert_eq!(log.said, [Probability::new(0.25), None]);
        assert_eq!((log.skipped, log.truncated), (0, false));
        let outcomes: Vec<ConversationOutcome> =
            log.dataset.labels.iter().map(|l| l.outcome).collect();
        assert_eq!(outcomes, [ConversationOutcome::Continued, ConversationOutcome::Ended]);
        let limited = read(file(&[record(7, 1, 1.0), record(7, 2, 1.0)]).as_bytes(), 1);
        let limited = limited.expect("a log");
        assert_eq!((limited.said.len(), limited.truncated), (1, true));
    }

    #[test]
    fn conversations_with_equal_first_rows_are_one_group() {
        let records = [
            record(1, 1, 0.5),
            record(2, 1, 0.5),
            record(2, 2, 0.75),
            record(3, 1, 0.25),
            record(4, 2, 0.5),
        ];
        let log = read_all(file(&records)).expect("a log");
        let groups: Vec<u64> = log.dataset.labels.iter().map(|l| l.group).collect();
        assert_eq!(groups, [1, 1, 1, 3, 4]);
    }

    #[test]
    fn damaged_lines_are_counted_and_other_files_refused() {
        let good = file(&[record(1, 1, 0.5)]);
        let mut other_width = record(1, 2, 0.5);
        other_width.row.pop();
        let mut infinite = record(1, 2, 0.5);
        infinite.row[0] = f32::INFINITY;
        let bad = [other_width.line(), infinite.line(), "{}\n".to_owned(), "{\"conver".to_owned()];
        let log = read_all(good.clone() + &bad.concat()).expect("a log");
        assert_eq!((log.said.len(), log.skipped), (1, 4));
        let check = |line: &str, part: &str| {
            let error = OutcomeRecord::parse(line, 5).expect_err(line);
            assert!(error.contains(part), "{error} lacks {part}");
        };
        let line = record(1, 2, 0.5).line();
        check(&line.replace("\"turn\":2", "\"turn\":99999999999"), "99999999999");
        check(&line.replace("0.25", "7.5"), "`said` is 7.5");
        check(&infinite.line(), "not a finite number");
        check(&other_width.line(), "not 5 values");
        let (number, wrong) = log.first_skipped.expect("the first");
        assert!(number == 3 && wrong.contains("not 5 values"), "{wrong}");
        let long =
            good + &"x".repeat(3 * MAX_LINE_BYTES as usize) + "\n" + &record(2, 1, 0.5).line();
        let log = read_all(long).expect("a log");
        assert_eq!((log.said.len(), log.skipped), (2, 1));

        for foreign in ["", "\n", "{}", "[1]", "{\"headstart_outcomes\":1}", "\u{0}"] {
            assert!(matches!(read_all(foreign), Err(LogError::Foreign)), "{foreign:?}");
        }
        let newer = header_line(&four()).replace(":1,", ":2,");
        assert!(matches!(read_all(newer), Err(LogError::Version(2))));
    }

    #[test]
    fn random_damage_never_panics() {
        let records: Vec<OutcomeRecord> = (0..4).map(|at| record(at, 1, 0.5)).collect();
        let good = file(&records).into_bytes();
        let mut rng = Rng::new(6);
        for _ in 0..5000 {
            let mut damaged = good.clone();
            for _ in 0..=rng.below(4) {
                let at = rng.below(damaged.len());
                damaged[at] = rng.next_u64() as u8;
            }
            damaged.truncate(damaged.len() - rng.below(3) * rng.below(100));
            if let Ok(log) = read_all(&damaged) {
                assert_eq!(log.dataset.labels.len(), log.said.len());
            }
        }
    }

    #[test]
    fn no_word_of_a_prompt_or_answer_is_in_it() {
        let encoder = NgramEncoder::new();
        let mut definition = Definition::new(&encoder);
        definition.behaviour = true;
        definition.text.answers = true;
        let situation = Situation {
            prompts: vec!["my password is swordfish".to_owned(), "xylophone?".to_owned()],
            answers: vec!["wherefore".to_owned()],
            turn: 2,
            ..Situation::default()
        };
        let mut record = record(1, 2, 0.0);
        record.row = definition.rows(&encoder, &[situation]);
        let text = header_line(&definition) + &record.line();
        for word in ["password", "swordfish", "xylophone", "wherefore", "next user query"] {
            assert!(!text.contains(word), "{word}");
        }
        // Nothing but the fields that are declared, and in them numbers and one fixed word.
        let line: serde_json::Value = serde_json::from_str(&record.line()).expect("an object");
        let keys: Vec<&String> = line.as_object().expect("an object").keys().collect();
        assert_eq!(keys, ["conversation", "turn", "outcome", "said", "row"]);
        let row = line["row"].as_str().expect("a row");
        assert_eq!(row.len(), 4 * (2 * encoder.dims() + 8));
        assert!(row.bytes().all(|digit| digit.is_ascii_hexdigit()));
    }
}
