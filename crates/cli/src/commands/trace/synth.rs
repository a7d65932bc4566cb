//! `headstart trace synth`.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use headstart_core::figures::{counted, thousands};
use headstart_terminal::{self as output, Progress, TaskProgress};
use headstart_trace::format::canonical::Writer;
use headstart_trace::synth::{Gap, PRESETS, Preset, RequestGenerator, SynthWorkload};

use super::sessions::SessionCounter;
use crate::exit::usage;

/// Requests between two updates of the progress.
const BAR_STEP: u64 = 256;

/// Longest --duration, days: the longest public traces cover weeks.
const DAYS_MAX: u64 = 31;

/// Most requests that are expected of a run: tens of gigabytes.
const REQUESTS_MAX: f64 = 1e8;

/// Most bytes of a file with gaps: a million numbers.
const GAPS_BYTES_MAX: u64 = 16 << 20;

/// Generate a trace from presets and a seed.
#[derive(Args, Debug)]
#[command(after_help = include_str!("synth.help.txt"))]
pub(crate) struct Synth {
    /// Presets; --list prints their names
    #[arg(value_name = "PRESET", required_unless_present = "list")]
    presets: Vec<String>,
    /// Print the presets and exit
    #[arg(long)]
    list: bool,
    /// Output file; `-` is standard output, .gz compresses
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    /// Seed of the generator
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Duration of the trace, seconds [default: the preset's]
    ///
    /// Of several presets, the maximum.
    #[arg(long, value_name = "SECONDS")]
    duration: Option<f64>,
    /// Maximum number of requests
    #[arg(long, value_name = "N")]
    requests: Option<u64>,
    /// Requests per second of all presets [default: the presets' sum]
    #[arg(long, value_name = "R")]
    rate: Option<f64>,
    /// Distribution of user gaps between turns [default: the preset's]
    ///
    /// `exponential[:MEAN_S]`, `lognormal[:MU,SIGMA]`, or `empirical:FILE` with one number of
    /// seconds per line. Gaps of tools and bursts keep their distribution, and request types keep
    /// their factors.
    #[arg(long, value_name = "GAPS")]
    gaps: Option<String>,
    /// Tokens per block
    #[arg(long, value_name = "N", default_value_t = 16)]
    block_tokens: u32,
}

/// Writes the trace, and on standard error what it is.
pub(crate) fn run(synth: &Synth) -> Result<()> {
    if synth.list {
        return list();
    }
    // The file is checked before the workload is built.
    output::check(&synth.output, None)?;
    let workload = workload(synth)?;
    let generator = workload.generate().map_err(usage)?;
    let written = output::to(&synth.output, |out| Ok(write(generator, &workload, out)?))?;
    let Some(written) = written else {
        return Ok(());
    };
    let (presets, seed) = (synth.presets.join(" + "), synth.seed);
    output::note(&format!("{presets}, seed {seed}: {written}"));
    Ok(())
}

fn list() -> Result<()> {
    PRESETS.iter().try_for_each(|preset| {
        let line = format!("{:<22} {}", preset.name, preset.about);
        let indent = " ".repeat(23);
        output::line(&output::wrapped(&line, &indent, output::COLUMNS))
    })
}

/// The presets as one workload, with what the flags change.
fn workload(synth: &Synth) -> Result<SynthWorkload> {
    let mut workloads = Vec::new();
    for name in &synth.presets {
        workloads.push(Preset::by_name(name).map_err(usage)?.workload());
    }
    let mut workload = SynthWorkload {
        seed: synth.seed,
        block_tokens: synth.block_tokens,
        // Several presets last as long as the longest one.
        duration: workloads.iter().filter_map(|w| w.duration).max(),
        requests: synth.requests,
        streams: workloads.into_iter().flat_map(|w| w.streams).collect(),
    };
    if let Some(gaps) = &synth.gaps {
        workload.set_gap(&gap(gaps)?);
    }
    // The flag replaces the duration of the presets.
    if let Some(seconds) = synth.duration {
        let duration = Duration::try_from_secs_f64(seconds);
        let bad = |error| usage(format!("--duration {seconds}: {error}"));
        workload.duration = Some(duration.map_err(bad)?);
    }
    // A rate wins; two of the three numbers give the third.
    match (synth.rate, synth.requests, synth.duration) {
        (Some(rate), ..) => workload.set_rate(rate),
        (None, Some(requests), Some(seconds)) => workload.set_rate(requests as f64 / seconds),
        (None, _, _) => {}
    }
    // With a number of requests the preset's duration would end the trace too soon.
    if synth.requests.is_some() && synth.duration.is_none() {
        workload.duration = None;
    }
    check_size(&workload)?;
    Ok(workload)
}

/// Refuses what would fill a disk, or never end.
fn check_size(workload: &SynthWorkload) -> Result<()> {
    let duration = workload.duration.unwrap_or_default();
    if duration > Duration::from_secs(DAYS_MAX * 86_400) {
        let seconds = duration.as_secs_f64();
        return Err(usage(format!(
            "--duration {seconds}: longer than {DAYS_MAX} days ({} s)",
            DAYS_MAX * 86_400
        )));
    }
    let most = workload.requests.map_or(f64::INFINITY, |most| most as f64);
    let in_time = workload.duration.map(|duration| duration.as_secs_f64());
    let in_time = in_time.map_or(f64::INFINITY, |s| s * workload.requests_per_s());
    // The generator stops at the first of both limits.
    let expected = most.min(in_time);
    if expected > REQUESTS_MAX {
        return Err(usage(format!(
            "some {expected:.0} requests are expected, more than {REQUESTS_MAX:.0}; give a \
             smaller --duration, --rate or --requests"
        )));
    }
    Ok(())
}

/// Reads `exponential[:MEAN_S]`, `lognormal[:MU,SIGMA]` or `empirical:FILE`.
fn gap(text: &str) -> Result<Gap> {
    let (name, rest) = text.split_once(':').unwrap_or((text, ""));
    let numbers: Option<Vec<f64>> = match rest {
        "" => Some(Vec::new()),
        rest => rest.split(',').map(|number| number.parse().ok()).collect(),
    };
    match (name, numbers.as_deref()) {
        ("exponential", Some([])) => Ok(Gap::exponential()),
        ("exponential", Some(&[mean_s])) => Ok(Gap::Exponential { mean_s }),
        ("lognormal", Some([])) => Ok(Gap::log_normal()),
        ("lognormal", Some(&[mu, sigma])) => Ok(Gap::LogNormal { mu, sigma }),
        ("empirical", _) if !rest.is_empty() => Ok(Gap::Empirical(read_gaps(Path::new(rest))?)),
        _ => Err(usage(format!(
            "--gaps {text}: expected exponential[:MEAN_S], lognormal[:MU,SIGMA] or empirical:FILE"
        ))),
    }
}

fn read_gaps(path: &Path) -> Result<Vec<f64>> {
    let name = path.display();
    let open = || format!("cannot read the gaps in {name}");
    let file = File::open(path).with_context(open)?;
    // A limit instead of the file's length, because the path may be a pipe.
    let text = io::read_to_string(io::Read::take(file, GAPS_BYTES_MAX)).with_context(open)?;
    let lines = text.lines().enumerate();
    // An empty line at the end is no number.
    let lines = lines.filter(|(_, line)| !line.trim().is_empty());
    let parse = |(index, line): (usize, &str)| {
        let line_number = index + 1;
        let bad = |_| usage(format!("{name}, line {line_number}: expected a number of seconds"));
        line.trim().parse().map_err(bad)
    };
    lines.map(parse).collect::<Result<_, _>>()
}

/// Counts of the written trace.
#[derive(Default)]
struct TraceCounts {
    requests: u64,
    prompt_tokens: u64,
    blocks: u64,
    distinct_blocks: u64,
    sessions: SessionCounter,
    last_s: f64,
}

fn write(
    generator: RequestGenerator,
    workload: &SynthWorkload,
    out: impl Write,
) -> io::Result<TraceCounts> {
    let mut writer = Writer::new(out, generator.info())?;
    let progress = progress(workload);
    let mut written = TraceCounts::default();
    for request in generator {
        writer.write(&request)?;
        written.requests += 1;
        written.prompt_tokens += u64::from(request.input_tokens.unwrap_or(0));
        written.blocks += request.blocks.len() as u64;
        // Blocks are numbered as they first appear.
        let ids = request.blocks.runs().iter();
        let behind_last = ids.map(|run| run.start + u64::from(run.count)).max();
        written.distinct_blocks = written.distinct_blocks.max(behind_last.unwrap_or(0));
        written.sessions.count(request.session);
        written.last_s = request.arrival.0 as f64 / 1e9;
        if written.requests.is_multiple_of(BAR_STEP) {
            progress.set_position(position(&written, workload));
        }
    }
    writer.finish()?;
    progress.end();
    Ok(written)
}

/// Counts requests, or else seconds of the trace.
fn progress(workload: &SynthWorkload) -> TaskProgress {
    match workload.requests {
        Some(requests) => TaskProgress::steps("writing requests", requests as usize),
        None => {
            let seconds = workload.nominal_duration().as_secs();
            TaskProgress::steps("writing, in seconds of the trace", seconds as usize)
        }
    }
}

fn position(written: &TraceCounts, workload: &SynthWorkload) -> u64 {
    // Without a number of requests the bar shows seconds.
    workload.requests.map_or(written.last_s as u64, |_| written.requests)
}

impl std::fmt::Display for TraceCounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { requests, prompt_tokens, blocks, distinct_blocks, sessions, last_s } = self;
        write!(
            f,
            "{} in {last_s:.0} s, {sessions}, {}, {} of which {} distinct",
            counted(*requests, "request"),
            counted(*prompt_tokens, "prompt token"),
            counted(*blocks, "block"),
            thousands(*distinct_blocks),
        )
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        synth: Synth,
    }

    fn parse(args: &str) -> Result<SynthWorkload> {
        let line = Line::try_parse_from(["synth"].into_iter().chain(args.split(' ')));
        workload(&line.expect("clap takes it").synth)
    }

    fn check(args: &str, duration_s: Option<u64>, requests: Option<u64>, rate: f64) {
        let workload = parse(args).expect("valid");
        let duration_s = duration_s.map(Duration::from_secs);
        assert_eq!((workload.duration, workload.requests), (duration_s, requests));
        let got = workload.requests_per_s();
        assert!((got / rate - 1.0).abs() < 1e-9, "{args}: {got}");
    }

    #[test]
    fn two_of_duration_requests_and_rate_fix_the_third() {
        check("chat", Some(3_600), None, 5.0);
        check("chat atc25-api", Some(7_200), None, 13.0);
        check("chat --rate 2", Some(3_600), None, 2.0);
        check("chat --duration 60", Some(60), None, 5.0);
        check("chat --requests 90", None, Some(90), 5.0);
        check("chat --requests 90 --duration 30", Some(30), Some(90), 3.0);
        check("chat --requests 90 --rate 2", None, Some(90), 2.0);
    }

    fn check_bad(args: &str, part: &str) {
        let error = parse(args).and_then(|workload| workload.generate().map_err(usage));
        let error = error.expect_err(args);
        assert!(error.is::<headstart_core::UsageError>(), "{args}: {error:#}");
        assert!(error.to_string().contains(part), "{args}: {error:#}");
    }

    #[test]
    fn what_cannot_be_is_a_usage_error() {
        check_bad("chatt", "atc25-exponential");
        check_bad("chat --gaps normal", "--gaps normal");
        check_bad("chat --gaps exponential:fast", "--gaps exponential:fast");
        check_bad("chat --gaps lognormal:1", "expected exponential[:MEAN_S]");
        check_bad("chat --gaps exponential:-3", "gap Exponential");
        check_bad("chat --duration=-1", "--duration -1");
        check_bad("chat --duration 2678401", "longer than 31 days");
        check_bad("chat --duration 1e12", "longer than 31 days");
        check_bad("chat --rate 1e9", "requests are expected");
        check_bad("chat --requests 100000001", "requests are expected");
        check_bad("chat --rate 0", "starts a second");
        check_bad("chat --requests 5 --duration 0", "starts a second");
        check_bad("chat --block-tokens 0", "at least one token");
    }
}
