//! Traffic of a fleet: the ladder of a published run, or a trace.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use clap::Args;
use headstart_core::Rng;
use headstart_core::figures::counted;
use headstart_sim::fleet::{
    Crowd, FleetPreset, FleetWorkload, Ladder, TraceArrivals, TraceConversion,
};
use headstart_terminal as output;

use crate::exit::usage;
use crate::input::{TraceInput, remarks};
use headstart_report::fleet::RunParameters;

/// Length of an answer that the trace does not know, tokens.
const ANSWER_TOKENS: u32 = 200;

/// Most requests of a run: what they and their times take in memory is about 200 bytes each.
const REQUESTS_MAX: f64 = 5e7;

/// Default duration of a rung, seconds.
const RUNG_S: f64 = 60.0;

/// Default think time of users, seconds.
const THINK_S: f64 = 10.0;

/// Options of the traffic.
#[derive(Args, Debug)]
#[command(next_help_heading = "Traffic")]
pub(crate) struct SourceOptions {
    /// Trace, in place of a preset
    ///
    /// Plain, gzip or zstd, in any format that `headstart replay` reads.
    #[arg(long, value_name = "FILE", conflicts_with = "preset")]
    pub(crate) trace: Option<PathBuf>,
    /// Requests per second of the trace [default: recorded times]
    ///
    /// Arrivals are a Poisson process.
    #[arg(
        long,
        value_name = "RATE",
        requires = "trace",
        conflicts_with_all = ["preset", "rates", "users", "rung_seconds"]
    )]
    request_rate: Option<f64>,
    /// Duration with --request-rate [default: the trace, once]
    ///
    /// The trace repeats with new texts.
    #[arg(long, value_name = "HOURS", requires = "request_rate")]
    hours: Option<f64>,
    /// Speed of the trace, relative to the recorded times [default: 1]
    #[arg(
        long,
        value_name = "X",
        requires = "trace",
        conflicts_with_all = ["preset", "request_rate", "rates", "users", "rung_seconds"]
    )]
    speed: Option<f64>,
    /// Request rates, in place of the preset's
    ///
    /// The preset's first step runs before them and fills the caches. A rate that the preset lacks
    /// runs for 60 seconds.
    #[arg(long, value_name = "RATE[,RATE…]", value_delimiter = ',', conflicts_with = "trace")]
    rates: Vec<f64>,
    /// Duration of each rate except the first [default: as published]
    #[arg(long, value_name = "SECONDS", conflicts_with = "trace")]
    rung_seconds: Option<f64>,
    /// Numbers of users in a closed loop, in place of rates
    ///
    /// A user waits for the answer, thinks, and sends the next request.
    #[arg(
        long,
        value_name = "N[,N…]",
        value_delimiter = ',',
        conflicts_with_all = ["trace", "rates"]
    )]
    users: Vec<u32>,
    /// Mean think time of --users [default: 10]
    #[arg(
        long,
        value_name = "SECONDS",
        requires = "users",
        conflicts_with_all = ["trace", "rates"]
    )]
    think_time: Option<f64>,
}

impl SourceOptions {
    /// The requests, and what is to be told of them.
    ///
    /// # Errors
    /// When an option makes no sense or the trace cannot be read.
    pub(crate) fn workload(
        &self,
        preset: FleetPreset,
        seed: u64,
    ) -> Result<(FleetWorkload, RunParameters)> {
        match &self.trace {
            Some(file) => self.of_trace(file, seed),
            None => Ok((self.of_preset(preset, seed)?, self.asked(preset))),
        }
    }

    fn asked(&self, preset: FleetPreset) -> RunParameters {
        let asked = RunParameters::preset(preset);
        if self.users.is_empty() {
            return asked;
        }
        let think_s = self.think_time.unwrap_or(THINK_S);
        let users: Vec<String> = self.users.iter().map(u32::to_string).collect();
        asked.also(&format!(
            "after the warm-up a closed loop of {} with a think time of {think_s} s: the \
             requests/s of a step are users per second of think time, without the time of answers",
            match &users[..] {
                [_] => counted(self.users[0].into(), "user"),
                all => format!("{} users", all.join(", ")),
            }
        ))
    }

    fn of_preset(&self, preset: FleetPreset, seed: u64) -> Result<FleetWorkload> {
        let mut ladder = preset.ladder();
        if !self.users.is_empty() {
            return self.closed(&ladder, seed);
        }
        let lasts_s = above_0("--rung-seconds", self.rung_seconds)?;
        for &rate in &self.rates {
            above_0("--rates", Some(rate))?;
            // The first rung warms the caches and is no rate that the user compares.
            if ladder.rungs[1..].iter().all(|rung| rung.0 != rate) {
                // Behind the others, whose requests then stay the same.
                ladder.rungs.push((rate, RUNG_S));
            }
        }
        if let Some(seconds) = lasts_s {
            // The warm-up keeps its length, so that all runs begin with equal caches.
            let rungs = ladder.rungs[1..].iter_mut();
            rungs.for_each(|(_, lasts_s)| *lasts_s = seconds);
        }
        let requests: f64 = ladder.rungs.iter().map(|(rate, lasts)| rate * lasts).sum();
        // A request takes memory, and a large rate times a long rung is a product of two inputs.
        if requests > REQUESTS_MAX {
            bail!(usage(format!(
                "--rates and --rung-seconds: {requests:.0} requests, at most {REQUESTS_MAX}"
            )));
        }
        let mut workload = ladder.draw(&mut Rng::new(seed));
        // All rungs are drawn before some are dropped, so a rate has the same requests in every
        // run.
        if !self.rates.is_empty() {
            let mut at = 0..;
            let mut is_asked = |rate| at.next() == Some(0) || self.rates.contains(&rate);
            workload.rungs.retain(|rung| is_asked(rung.rate));
        }
        Ok(workload)
    }

    fn closed(&self, ladder: &Ladder, seed: u64) -> Result<FleetWorkload> {
        let think_s = above_0("--think-time", self.think_time)?.unwrap_or(THINK_S);
        let seconds = above_0("--rung-seconds", self.rung_seconds)?.unwrap_or(RUNG_S);
        let crowd = |&users: &u32| {
            // One request per user at least, however short the rung is.
            let requests = f64::from(users) * (seconds / think_s).max(1.0);
            if users == 0 || requests > REQUESTS_MAX {
                bail!(usage(format!(
                    "--users {users}: expected at least 1, with up to \
                    {REQUESTS_MAX:.0} requests"
                )));
            }
            Ok(Crowd { users, think_s, seconds })
        };
        let crowds = self.users.iter().map(crowd).collect::<Result<Vec<_>>>()?;
        Ok(ladder.draw_closed(&crowds, &mut Rng::new(seed)))
    }

    fn of_trace(&self, file: &Path, seed: u64) -> Result<(FleetWorkload, RunParameters)> {
        let input = TraceInput::of(file);
        let progress = input.progress();
        let mut reader = input.open(&progress)?;
        let trace = reader.by_ref().collect::<Result<Vec<_>, _>>()?;
        remarks(&reader).iter().for_each(|remark| output::note(remark));
        ensure!(!trace.is_empty(), usage(format!("{}: no requests in it", input.name())));
        let recorded = TraceConversion {
            block_tokens: reader.info().block_tokens,
            // The number of requests decides the duration, so the trace is read first.
            arrivals: self.arrivals(trace.len())?,
            answer_tokens: ANSWER_TOKENS,
        };
        let rung = recorded.rung(&trace, &mut Rng::new(seed));
        // A high rate and a short time can leave no request.
        ensure!(!rung.requests.is_empty(), usage("--hours: no request comes in so short a time"));
        let told = format!(
            "{}: {} in {:.0} s, {:.2} a second",
            input.name(),
            counted(rung.requests.len() as u64, "request"),
            rung.seconds,
            rung.rate
        );
        let workload = FleetWorkload { rungs: vec![rung] };
        Ok((workload, RunParameters::trace(input.name(), told)))
    }

    fn arrivals(&self, requests: usize) -> Result<TraceArrivals> {
        let Some(rate) = above_0("--request-rate", self.request_rate)? else {
            let speed = above_0("--speed", self.speed)?.unwrap_or(1.0);
            return Ok(TraceArrivals::Recorded { speed });
        };
        let hours = above_0("--hours", self.hours)?;
        let seconds = hours.map_or(requests as f64 / rate, |hours| hours * 3_600.0);
        if rate * seconds > REQUESTS_MAX {
            bail!(usage(format!(
                "--request-rate {rate} --hours: {:.0} requests; expected up to {REQUESTS_MAX:.0}",
                rate * seconds
            )));
        }
        Ok(TraceArrivals::Poisson { rate, seconds })
    }
}

fn above_0(option: &str, value: Option<f64>) -> Result<Option<f64>> {
    const MOST: f64 = 1e6;
    match value {
        Some(value) if !(value > 1.0 / MOST && value <= MOST) => {
            bail!(usage(format!("{option} {value}: expected a number above 1e-6, up to {MOST}")))
        }
        value => Ok(value),
    }
}
