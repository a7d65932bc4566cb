//! Sends a workload to a server, rung by rung, and collects what the simulator collects.
//!
//! Times run from when a request was due. Tokens inside a rung's window are counted as if they came
//! evenly between an answer's first and last one. Clients cannot see when a replica began with a
//! request, so service times stay unknown.

use std::cell::Cell;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::exit::usage;
use anyhow::{Result, bail};
use headstart_core::{Nanos, TokenId};
use headstart_loadgen::{ApiClient, LoadgenError, Pace, TraceObserved, TraceSample, fetch, trace};
use headstart_server::upstream::EngineLoad;
use headstart_sim::fleet::outcome::Mean;
use headstart_sim::fleet::workload::tokens_of;
use headstart_sim::fleet::{
    FleetOutcome, FleetWorkload, Request, Rung, RungObservations, ServedRequest, Slo,
};
use headstart_terminal as output;
use headstart_trace::materialize::TokenPrompt;

/// Time between two looks at the server's gauges.
const SCRAPE: Duration = Duration::from_millis(500);

/// Lateness worth a warning: requests that were sent so much after they were due.
const LATE: Duration = Duration::from_millis(100);

/// Whom to send requests to, and how.
pub(super) struct Driver<'a> {
    pub(super) client: &'a ApiClient,
    /// The same server, for its gauges.
    pub(super) url: &'a str,
    /// Token ids that prompts are made of.
    pub(super) vocabulary: Range<TokenId>,
    /// Makes prompts that no other run has asked.
    pub(super) salt: TokenId,
    /// Most requests under way.
    pub(super) concurrency: usize,
    /// Between two rungs.
    pub(super) pause: Duration,
}

/// Mean gauges per replica.
#[derive(Clone, Copy, Default)]
struct MeanGauges {
    waiting: Mean,
    running: Mean,
    kv_usage: Mean,
}

/// Refuses what cannot be sent at given times.
pub(super) fn check(workload: &FleetWorkload) -> Result<()> {
    let mut requests = workload.rungs.iter().flat_map(|rung| &rung.requests);
    if requests.all(|request| request.at.is_some()) {
        Ok(())
    } else {
        bail!(usage("requests that follow others' answers: use `headstart bench chat`"))
    }
}

impl Driver<'_> {
    /// Runs the rungs up to the first one without an answered request. Returns the outcome, and the
    /// reason for an early end, if any. Calls `on_answer` for each request that ended.
    pub(super) async fn run(
        &self,
        workload: &FleetWorkload,
        on_answer: &dyn Fn(),
    ) -> (FleetOutcome, Option<String>) {
        let (mut collected, mut failure) = (Vec::new(), None);
        for (at, rung) in workload.rungs.iter().enumerate() {
            // A server that answered nothing is not asked again.
            if failure.is_some() {
                collected.push(given_up(rung));
                continue;
            }
            if at > 0 {
                // The simulated fleet has the same pause between two rungs.
                tokio::time::sleep(self.pause).await;
            }
            match self.rung(rung, on_answer).await {
                Ok(it) => collected.push(it),
                Err(error) => {
                    failure = Some(format!("{} requests/s: {error:#}", rung.rate));
                    collected.push(given_up(rung));
                }
            }
        }
        let slo = Slo::default();
        (FleetOutcome::of(&collected, &workload.rungs, slo), failure)
    }

    async fn rung(&self, rung: &Rung, on_answer: &dyn Fn()) -> Result<RungObservations> {
        let prompts = rung.requests.iter().zip(0..);
        let prompts = prompts.map(|(request, number)| anyhow::Ok(self.prompt(request, number)));
        // An open loop: requests do not wait for earlier answers, as users do not.
        let pace = Pace::Open { speed: 1.0, concurrency: self.concurrency };
        let gauges = Arc::new(Mutex::new(MeanGauges::default()));
        let scraper = tokio::spawn(scrape(self.url.to_owned(), gauges.clone()));
        let told = Cell::new(0);
        // The callback expects one call per request, and the driver reports totals.
        let progress = |ended: usize| (told.replace(ended)..ended).for_each(|_| on_answer());
        let observed = trace::run(self.client, prompts, pace, progress).await;
        // The scraper would run forever: it ends only if the server has no metrics.
        scraper.abort();
        let observed = observed?;
        if let (true, Some((_, error))) = (observed.samples.is_empty(), observed.failures.first()) {
            bail!("no request was answered, the first: {error}");
        }
        warn_of_failures(rung, &observed);
        warn_of_lateness(rung, &observed);
        // A panic of the scraper leaves the means as they were.
        let gauges = *gauges.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(collected(rung, &observed, &gauges))
    }

    fn prompt(&self, request: &Request, number: u64) -> TokenPrompt {
        let Range { start, end } = self.vocabulary;
        let tokens = tokens_of(&request.prompt).into_iter();
        TokenPrompt {
            number,
            arrival: Nanos(0) + request.at.unwrap_or_default(),
            session: request.access.session,
            // The XOR with the salt keeps equal tokens equal, so prefixes stay shared within a run.
            tokens: tokens.map(|token| start + (token ^ self.salt) % (end - start)).collect(),
            output_tokens: request.answer_tokens,
            finish: request.access.finish,
            tool: request.access.tool,
            is_cut: false,
        }
    }
}

/// A rung of which nothing was answered.
fn given_up(rung: &Rung) -> RungObservations {
    RungObservations {
        failed: rung.requests.len(),
        seconds: rung.seconds,
        lasted_s: rung.seconds,
        ..RungObservations::default()
    }
}

fn collected(rung: &Rung, observed: &TraceObserved, gauges: &MeanGauges) -> RungObservations {
    // The run's clock starts with the first request.
    let first = rung.requests.first().and_then(|request| request.at);
    let first = first.unwrap_or_default();
    let served: Vec<ServedRequest> = observed
        .samples
        .iter()
        .map(|sample| served(sample, rung.requests[sample.number as usize].at.unwrap_or_default()))
        .collect();
    let window = Nanos(0) + Duration::from_secs_f64(rung.seconds);
    let refused = observed.failures.iter().filter(|(_, failure)| is_refusal(failure));
    let refused = refused.count();
    RungObservations {
        window_tokens: served.iter().map(|request| tokens_before(request, window)).sum(),
        refused,
        failed: observed.failures.len() - refused,
        waiting: gauges.waiting,
        running: gauges.running,
        kv_usage: gauges.kv_usage,
        seconds: rung.seconds,
        lasted_s: (first + observed.wall).as_secs_f64().max(rung.seconds),
        served,
        ..RungObservations::default()
    }
}

/// A request that was due at `due`, from the rung's start.
fn served(sample: &TraceSample, due: Duration) -> ServedRequest {
    let sent = Nanos(0) + due;
    ServedRequest {
        sent,
        started: None,
        // Latency counts from the due time, so a late request is charged for its lateness.
        first_token: sent + sample.late + sample.ttft,
        ended: sent + sample.late + sample.e2e,
        prompt_tokens: sample.prompt_tokens,
        cached_tokens: sample.cached_tokens,
        answer_tokens: sample.output_tokens,
        ..ServedRequest::default()
    }
}

/// Tokens of an answer that came until `end`.
fn tokens_before(served: &ServedRequest, end: Nanos) -> u64 {
    if served.ended <= end {
        // The answer ended within the window, so all its tokens count.
        return u64::from(served.answer_tokens);
    }
    if served.first_token > end {
        return 0;
    }
    let whole = served.ended.since(served.first_token).as_secs_f64();
    let inside = end.since(served.first_token).as_secs_f64();
    // The first token came at `first_token`; only the others are spread over the rest.
    let rest = f64::from(served.answer_tokens.saturating_sub(1));
    1 + (rest * inside / whole) as u64
}

/// Whether the server refused the request or could not be reached.
fn is_refusal(error: &LoadgenError) -> bool {
    matches!(error, LoadgenError::Refused { .. } | LoadgenError::Unreachable { .. })
}

fn warn_of_failures(rung: &Rung, observed: &TraceObserved) {
    if let Some((number, error)) = observed.failures.first() {
        output::note(&format!(
            "warning: {} requests/s: {} of {} failed, the first (number {number}): {error}",
            rung.rate,
            observed.failures.len(),
            rung.requests.len()
        ));
    }
}

fn warn_of_lateness(rung: &Rung, observed: &TraceObserved) {
    let late = observed.samples.iter().filter(|sample| sample.late > LATE).count();
    // One late request in a hundred changes the load little.
    if late * 100 > observed.samples.len() {
        output::note(&format!(
            "warning: {} requests/s: {late} of {} were sent more than {} ms late; their times run \
             from when they were due, but the load was lighter than meant",
            rung.rate,
            observed.samples.len(),
            LATE.as_millis()
        ));
    }
}

/// Looks at the gauges of the server at `url` again and again, as long as it shows any.
async fn scrape(url: String, gauges: Arc<Mutex<MeanGauges>>) {
    loop {
        let mut page = Vec::new();
        let write = |bytes: &[u8]| {
            page.extend_from_slice(bytes);
            Ok(())
        };
        // It has none, or not for us; any other error is a busy server, which is worth knowing of.
        if let Err(LoadgenError::Refused { .. }) = fetch(&url, "/metrics", None, write).await {
            return;
        }
        for load in EngineLoad::parse(&String::from_utf8_lossy(&page)).all(Nanos(0)) {
            let mut gauges = gauges.lock().unwrap_or_else(PoisonError::into_inner);
            gauges.waiting.note(f64::from(load.waiting));
            gauges.running.note(f64::from(load.running));
            // An absent gauge is not finite and would spoil the mean.
            if load.kv_usage.is_finite() {
                gauges.kv_usage.note(load.kv_usage);
            }
        }
        tokio::time::sleep(SCRAPE).await;
    }
}
