//! A trace file, opened as the command line says: the same options wherever a trace is read.
//!
//! A command flattens [`TraceInput`], opens it, reads the requests, and afterwards tells the
//! user what [`remarks`] finds worth saying:
//!
//! ```text
//! let mut reader = input.open(&progress)?;
//! let requests: Vec<_> = reader.by_ref().collect::<Result<_, _>>()?;
//! remarks(&reader).iter().for_each(|remark| eprintln!("{remark}"));
//! ```

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use headstart_analysis::input as trace_file;
use headstart_analysis::rendering::Rendering;
use headstart_terminal::{Progress, TaskProgress};
use headstart_trace::format::conversation::{self, Conversation};
pub use headstart_trace::remarks;
use headstart_trace::sample::Sample;
use headstart_trace::{Arrivals, Format, Options, Reader};

use crate::config::parsed;
use crate::exit::{refuse, usage};

/// A trace and how to read it.
#[derive(Args, Clone, Debug, Default)]
pub struct TraceInput {
    /// Trace file, plain, gzip or zstd; `-` reads standard input
    file: PathBuf,
    /// Format of the trace [default: by the first line]
    ///
    /// mooncake, bailian, agent, azure, conversation, requests or canonical.
    #[arg(long, value_name = "NAME", help_heading = "Input")]
    format: Option<String>,
    /// Skip and count bad lines, instead of stopping at the first
    #[arg(long, help_heading = "Input")]
    skip_bad: bool,
    /// Draw session starts at random, with this mean gap
    ///
    /// For agent sessions and conversations.
    #[arg(long, value_name = "SECONDS", help_heading = "Input")]
    arrivals: Option<f64>,
    /// Seed of --arrivals [default: 0]
    #[arg(long, value_name = "SEED", requires = "arrivals")]
    #[arg(help_heading = "Input")]
    arrivals_seed: Option<u64>,
    /// Mean gap between turns, drawn with --arrivals [default: 100]
    #[arg(long, value_name = "SECONDS", requires = "arrivals")]
    #[arg(help_heading = "Input")]
    turn_gap: Option<f64>,
    /// Keep agent sessions that are marked as copies
    #[arg(long, help_heading = "Input")]
    keep_duplicates: bool,
    /// Do not infer missing sessions, turns and types
    #[arg(long, help_heading = "Input")]
    no_infer: bool,
    /// Tokens per block [default: by format]
    ///
    /// 512 for mooncake, the trace's own size for agent, 16 for other formats.
    #[arg(long, value_name = "N", help_heading = "Input")]
    block_tokens: Option<u32>,
    /// Folder of the tokenizer and chat template [default: toy's]
    ///
    /// For conversations and request logs. Token counts of the built-in toy are approximate.
    #[arg(long, value_name = "FOLDER", help_heading = "Input")]
    tokenizer: Option<PathBuf>,
}

impl TraceInput {
    /// The trace in `file`, with everything else as usual.
    pub fn of(file: &Path) -> Self {
        Self { file: file.to_owned(), ..Self::default() }
    }

    /// Returns the same input, with session starts drawn `mean_gap_s` seconds apart on average.
    pub fn spaced(self, mean_gap_s: f64, seed: u64) -> Self {
        Self { arrivals: Some(mean_gap_s), arrivals_seed: Some(seed), ..self }
    }

    /// Returns the path of the trace; `-` for standard input.
    pub fn path(&self) -> &Path {
        &self.file
    }

    /// Whether bad lines are skipped.
    pub(crate) fn skips_bad(&self) -> bool {
        self.skip_bad
    }

    /// The renderer and tokenizer in the folder of `--tokenizer`, if there is one.
    ///
    /// # Errors
    /// A usage error for a folder without a tokenizer.
    pub(crate) fn rendering(&self) -> Result<Option<Rendering>> {
        Ok(self.tokenizer.as_deref().map(|folder| Rendering::of(Some(folder))).transpose()?)
    }

    /// The trace's name in messages.
    pub fn name(&self) -> String {
        self.file.display().to_string()
    }

    /// The conversations that a trace of texts holds, which is read a second time.
    ///
    /// # Errors
    /// When the file cannot be read, as standard input cannot be a second time, or when a line is
    /// no conversation.
    pub(crate) fn conversations(&self) -> Result<Vec<Conversation>> {
        let cannot_open = || format!("cannot open the trace {}", self.name());
        let file = File::open(&self.file).with_context(cannot_open)?;
        Ok(conversation::read(self.name(), file, None)?)
    }

    /// Progress of reading this trace.
    pub fn progress(&self) -> TaskProgress {
        TaskProgress::bytes("reading the trace")
    }

    /// Opens the trace and counts the bytes that are read, which are those of the file as it is,
    /// compressed or not, with its size where that is known.
    ///
    /// # Errors
    /// Options that cannot be are usage errors.
    pub fn open(&self, progress: &TaskProgress) -> Result<Reader<'static>> {
        // Options are checked before the file is opened, so a mistake in them is reported first.
        let options = self.options()?;
        let (raw, bytes) = trace_file::opened(&self.file)?;
        if let Some(bytes) = bytes {
            progress.inc_length(bytes);
        }
        self.reader(progress.wrap_read(raw), options)
    }

    /// Opens the trace for a command whose progress is another one than that of reading.
    ///
    /// # Errors
    /// Options that cannot be are usage errors.
    pub(crate) fn open_uncounted(&self) -> Result<Reader<'static>> {
        let options = self.options()?;
        self.reader(trace_file::opened(&self.file)?.0, options)
    }

    fn reader(
        &self,
        raw: impl std::io::Read + 'static,
        options: Options<'static>,
    ) -> Result<Reader<'static>> {
        let reader = trace_file::reader(self.name(), raw, options)?;
        // The format is known only now, so options that do not go with it are refused here.
        self.refuse_foreign(reader.format())?;
        Ok(reader)
    }

    /// Options for texts go with formats that are text, gaps between turns with conversations.
    fn refuse_foreign(&self, format: Format) -> Result<()> {
        let for_text = [
            ("--tokenizer", self.tokenizer.is_some() && !format.is_text()),
            ("--turn-gap", self.turn_gap.is_some() && format != Format::Conversation),
        ];
        refuse(&for_text, |option| {
            format!("{option} is for conversations, and this trace is {format}")
        })
    }

    fn options(&self) -> Result<Options<'static>> {
        let format = self.format.as_deref();
        let format = format.map(|name| parsed(name, "--format")).transpose()?;
        Ok(Options {
            format,
            skip_bad: self.skip_bad,
            arrivals: match self.arrivals {
                None => Arrivals::FileOrder,
                Some(mean_gap) => Arrivals::Poisson {
                    mean_gap: duration("--arrivals", mean_gap)?,
                    seed: self.arrivals_seed.unwrap_or(0),
                },
            },
            turn_gap: match self.turn_gap {
                None => Options::default().turn_gap,
                Some(gap) => duration("--turn-gap", gap)?,
            },
            drop_duplicates: !self.keep_duplicates,
            block_tokens: self.block_tokens,
            infer: !self.no_infer,
            // The tokenizer of a folder is loaded now, so a wrong path fails before the trace is
            // read.
            tokenize: Some(trace_file::tokenizer(self.tokenizer.as_deref())?),
        })
    }
}

/// Seed for the choice of sessions; fixed, so that a larger scale keeps those of a smaller one.
pub(crate) const SCALE_SEED: u64 = 0;

/// The sessions that `--scale` keeps.
///
/// # Errors
/// A usage error for what is no share.
pub(crate) fn sample(scale: f64) -> Result<Sample> {
    let sample = Sample::new(scale, SCALE_SEED);
    sample.ok_or_else(|| usage(format!("--scale {scale}: expected a share above 0, up to 1")))
}

/// Seconds as the user gave them.
fn duration(option: &str, seconds: f64) -> Result<Duration> {
    match Duration::try_from_secs_f64(seconds) {
        // A gap of zero would start all sessions at once, which is no Poisson process.
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err(usage(format!("{option} {seconds}: expected seconds above 0"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        input: TraceInput,
    }

    /// Opens `text` under `args`; what the requests are, or a part of the error.
    fn check(name: &str, text: &str, args: &[&str], expected: Result<&str, &str>) {
        let file = std::env::temp_dir().join(format!("headstart-{}-{name}", std::process::id()));
        std::fs::write(&file, text).expect("writes");
        let path = file.display().to_string();
        let line = <Line as clap::Parser>::try_parse_from([&["input", &path], args].concat());
        let read = || -> Result<String> {
            let mut reader = line?.input.open_uncounted()?;
            let mut shown = String::new();
            for request in reader.by_ref() {
                let request = request?;
                let (blocks, turn) = (request.blocks.len(), request.turn);
                shown += &format!("{blocks} blocks, turn {turn}; ");
            }
            Ok(shown + &remarks(&reader).join("; "))
        };
        let got = read().map_err(|error| error.to_string());
        std::fs::remove_file(&file).expect("cleans up");
        match (&got, expected) {
            (Ok(got), Ok(part)) | (Err(got), Err(part)) => assert!(got.contains(part), "{got}"),
            (got, expected) => panic!("{got:?} against {expected:?}"),
        }
    }

    const MOONCAKE: &str = "{\"hash_ids\": [0, 1, 2]}\nno JSON\n{\"hash_ids\": [0, 1, 3, 4]}\n";

    const CHAT: &str = r#"{"turns": [{"role": "user", "text": "Tell me about the sea, the wind and \
        the weather of the north, and what people made of them in songs and in stories."},
        {"role": "assistant", "text": "They feared them."},
        {"role": "user", "text": "And today? What do people say of them now, who never sail?"}]}"#;

    #[test]
    fn options_reach_the_reader() {
        check("a", MOONCAKE, &[], Err("line 2"));
        let skip = ["--skip-bad"];
        check(
            "b",
            MOONCAKE,
            &skip,
            Ok("4 blocks, turn 2; inferred from shared prefixes: sessions, turns, types"),
        );
        check("c", MOONCAKE, &skip, Ok("; 1 bad line left out"));
        check(
            "n",
            "{\"input_length\": 1000, \"hash_ids\": [1, 2]}\n",
            &["--block-tokens", "16"],
            Ok("1 request with a prompt more than twice as long as its blocks"),
        );
        check("d", MOONCAKE, &["--skip-bad", "--no-infer"], Ok("4 blocks, turn 0; 1 bad"));
    }

    #[test]
    fn options_that_do_not_fit_are_refused() {
        check("e", MOONCAKE, &["--format", "parquet"], Err("known: mooncake"));
        check("f", MOONCAKE, &["--arrivals", "5"], Err("has arrival times"));
        check("g", MOONCAKE, &["--arrivals=-5"], Err("--arrivals"));
        check("h", MOONCAKE, &["--arrivals-seed", "5"], Err("--arrivals <SECONDS>"));
        check("i", MOONCAKE, &["--block-tokens", "0"], Err("at least one token"));
        check("j", MOONCAKE, &["--tokenizer", "./absent"], Err("--tokenizer ./absent"));
    }

    #[test]
    fn conversations_are_tokenized_by_the_toy() {
        let chat = CHAT.replace("\\\n", "").replace('\n', "");
        check("k", &chat, &["--block-tokens", "8"], Ok("turn 1; "));
        check("l", &chat, &["--arrivals", "5", "--turn-gap", "9"], Ok("turn 2; "));
        check("m", &chat, &["--arrivals", "5", "--turn-gap", "0"], Err("--turn-gap 0"));
    }
}
