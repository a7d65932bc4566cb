//! `headstart trace planted`.

use std::io::{self, Write};
use std::path::PathBuf;

use crate::exit::usage;
use anyhow::{Result, bail};
use clap::Args;
use headstart_core::figures::counted;
use headstart_terminal::{self as output, Progress, TaskProgress};
use headstart_trace::format::conversation;
use headstart_trace::synth::planted::{Attainable, Generator};
use headstart_trace::synth::{Length, PlantedConfig};

/// Most conversations: some terabyte by default.
const CONVERSATIONS_MAX: u64 = 1_000_000_000;

/// Generate conversations whose words predict their end.
#[derive(Args, Debug)]
#[command(after_help = include_str!("planted.help.txt"))]
pub(crate) struct PlantedCommand {
    /// Output file; `-` is standard output, .gz compresses
    #[arg(short, long, alias = "out", value_name = "FILE")]
    #[arg(default_value = "-", help_heading = "Output")]
    output: PathBuf,
    /// Seed of the generator
    #[arg(long, value_name = "N", default_value_t = PlantedConfig::default().seed,
        help_heading = "Conversations")]
    seed: u64,
    /// Number of conversations
    #[arg(long, value_name = "N", default_value_t = PlantedConfig::default().conversations,
        help_heading = "Conversations")]
    conversations: u64,
    /// Strength of the signal in the words; 0 for no signal
    #[arg(long, value_name = "S", default_value_t = PlantedConfig::default().strength,
        help_heading = "Conversations")]
    strength: f64,
    /// Share of user turns with a next one
    #[arg(long, value_name = "SHARE", default_value_t = PlantedConfig::default().base,
        help_heading = "Conversations")]
    base: f64,
    /// Maximum user turns; longer conversations are cut and marked
    #[arg(long, value_name = "N", default_value_t = PlantedConfig::default().max_turns,
        help_heading = "Conversations")]
    max_turns: u32,
    /// Mean length of a prompt
    #[arg(long, value_name = "WORDS", default_value_t = PlantedConfig::default().prompt.mean,
        help_heading = "Texts")]
    prompt_words: f64,
    /// Mean length of an answer
    #[arg(long, value_name = "WORDS", default_value_t = PlantedConfig::default().answer.mean,
        help_heading = "Texts")]
    answer_words: f64,
    /// Number of system prompts; each conversation starts with one
    #[arg(long, value_name = "N", default_value_t = PlantedConfig::default().system_prompts,
        help_heading = "Texts")]
    system_prompts: usize,
    /// Mean length of a system prompt
    #[arg(long, value_name = "WORDS", default_value_t = PlantedConfig::default().system.mean,
        help_heading = "Texts")]
    system_words: f64,
}

/// Writes the conversations, and on standard error what they are.
pub(crate) fn run(planted: &PlantedCommand) -> Result<()> {
    output::check(&planted.output, None)?;
    let conversations = planted.conversations;
    // The size is checked before the generator, which accepts any number.
    if conversations > CONVERSATIONS_MAX {
        bail!(usage(format!("--conversations {conversations}: more than {CONVERSATIONS_MAX}")));
    }
    let parameters = parameters(planted);
    let generator = parameters.generate();
    let generator = generator.map_err(usage)?;
    let written = output::to(&planted.output, |out| Ok(write(generator, conversations, out)?))?;
    if let Some((turns, num_unknown)) = written {
        output::note(&summary(&parameters, &turns, num_unknown));
    }
    Ok(())
}

fn parameters(planted: &PlantedCommand) -> PlantedConfig {
    let defaults = PlantedConfig::default();
    let length = |default: Length, mean| Length { mean, ..default };
    PlantedConfig {
        conversations: planted.conversations,
        seed: planted.seed,
        strength: planted.strength,
        base: planted.base,
        max_turns: planted.max_turns,
        prompt: length(defaults.prompt, planted.prompt_words),
        answer: length(defaults.answer, planted.answer_words),
        system_prompts: planted.system_prompts,
        system: length(defaults.system, planted.system_words),
    }
}

/// Writes the conversations of `generator`. Returns the turns with a known outcome, and the number
/// of the others.
fn write(
    generator: Generator,
    expected: u64,
    out: &mut dyn Write,
) -> io::Result<(Attainable, u64)> {
    let progress = TaskProgress::steps("writing conversations", expected as usize);
    let (mut turns, mut num_unknown) = (Attainable::default(), 0);
    for (done, conversation) in (1..).zip(generator) {
        conversation::write(out, &conversation)?;
        for (&p, label) in conversation.truth.iter().zip(conversation.labels()) {
            // The last turn of a cut conversation has no known outcome.
            match label {
                Some(has_continued) => turns.add(p, has_continued),
                None => num_unknown += 1,
            }
        }
        progress.at(done);
    }
    progress.end();
    Ok((turns, num_unknown))
}

/// Summarizes the written conversations.
fn summary(parameters: &PlantedConfig, turns: &Attainable, num_unknown: u64) -> String {
    format!(
        "planted, seed {}: {}, {} ({num_unknown} of unknown outcome), {:.1} % of the known \
         continue; best attainable MCC {:.3}",
        parameters.seed,
        counted(parameters.conversations, "conversation"),
        counted(turns.turns() + num_unknown, "user turn"),
        100.0 * turns.share(),
        turns.best_mcc(),
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        planted: PlantedCommand,
    }

    fn parse(args: &str) -> PlantedCommand {
        let args = args.split(' ').filter(|arg| !arg.is_empty());
        let line = Line::try_parse_from(["planted"].into_iter().chain(args));
        line.expect("clap takes it").planted
    }

    #[test]
    fn without_options_it_is_the_librarys_default() {
        assert_eq!(parameters(&parse("")), PlantedConfig::default());
    }

    #[test]
    fn every_option_reaches_the_generator() {
        let args = "--seed 7 --conversations 3 --strength 0.5 --base 0.4 --max-turns 9 \
                    --prompt-words 11 --answer-words 12 --system-prompts 2 --system-words 13";
        let got = parameters(&parse(args));
        assert_eq!((got.seed, got.conversations, got.max_turns), (7, 3, 9));
        assert_eq!((got.strength, got.base, got.system_prompts), (0.5, 0.4, 2));
        let means = [got.prompt.mean, got.answer.mean, got.system.mean];
        assert_eq!(means, [11.0, 12.0, 13.0]);
    }

    fn check_bad(args: &str, part: &str) {
        let args = format!("{args} -o /dev/null");
        let error = run(&parse(&args)).expect_err(&args);
        assert!(error.is::<headstart_core::UsageError>(), "{args}: {error:#}");
        assert!(error.to_string().contains(part), "{args}: {error:#}");
    }

    #[test]
    fn what_cannot_be_is_a_usage_error() {
        check_bad("--strength=-1", "strength -1");
        check_bad("--strength NaN", "strength NaN");
        check_bad("--base 1", "base 1: expected a share");
        check_bad("--max-turns 0", "max_turns 0");
        check_bad("--prompt-words inf", "the mean must be finite");
        check_bad("--system-prompts 1001", "more than 1000 system prompts");
        check_bad("--conversations 1000000001", "more than 1000000000");
    }

    #[test]
    fn the_summary_counts_what_is_in_the_file() {
        let args = parse("--conversations 200 --max-turns 2 --answer-words 1");
        let generator = parameters(&args).generate().expect("valid");
        let mut out = Vec::new();
        let (turns, num_unknown) = write(generator, 200, &mut out).expect("memory takes it");
        let read = conversation::read("t", &out[..], None).expect("our own");
        let labels: Vec<bool> = read.iter().flat_map(|c| c.labels()).flatten().collect();
        assert_eq!(turns.turns(), labels.len() as u64);
        let all: usize = read.iter().map(|c| c.labels().len()).sum();
        assert_eq!(num_unknown, (all - labels.len()) as u64);
        let told = summary(&parameters(&args), &turns, num_unknown);
        let expected = format!("{all} user turns ({num_unknown} of unknown outcome)");
        assert!(num_unknown > 0 && told.contains(&expected), "{told}");
        let share = labels.iter().filter(|&&label| label).count() as f64 / labels.len() as f64;
        assert!((turns.share() - share).abs() < 1e-12);
        assert!(turns.best_mcc() > 0.3);
        assert!(read.iter().any(|c| c.is_truncated));
    }
}
