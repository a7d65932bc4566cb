//! Named causes of prompt divergence, found outside the request path and within a time budget.
//!
//! ```text
//! text ─ look: within the budget? ─► Sketch ─ with the request ─► queue ─► one thread: neighbours,
//!        (where it is tokenized)     (no text in it)                       explanation, sums
//! ```
//!
//! A text becomes a sketch of keyed hashes where it is tokenized, and is kept nowhere. Looking
//! costs time with each byte, and comparing costs more, so both share one budget of processor time:
//! a quiet gateway looks at all prompts, a busy one at some, and explains only those with enough
//! recomputed tokens. A cause is systematic, and shows in a sample.

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use headstart_insight::Cause;
use headstart_insight::text::{Evidence, NeighbourLimits, Neighbours, Sketch, Sketcher};

use crate::lock::lock;

/// Time for causes that a second brings when hardly anything is asked: 1 % of a core.
const EARNED: f64 = 0.01;

/// Requests per second at which that time halves; it shrinks further with load, to half a
/// millisecond at 1,000.
const BUSY: f64 = 50.0;

/// Most time that is saved up, seconds, where hardly anything is asked; less at the same ratio
/// where more is. So much there is at the start.
const SAVED: f64 = 0.5;

/// Seconds that a byte of text takes, and a prompt: what a sketch costs is paid in advance.
const LOOK: (f64, f64) = (1e-8, 5e-6);

/// Recomputed tokens, behind another front or in another namespace, that are worth explaining when
/// there is little time.
const WORTH: u32 = 64;

/// Sketches that wait to be explained; more are passed over.
const QUEUE: usize = 64;

/// Prompts that are remembered to compare with, and their words: some 50 MB at most.
const MEMORY: NeighbourLimits = NeighbourLimits { sketches: 2048, words: 2 << 20 };

/// Explanations that are remembered: as many as requests.
const TOLD: usize = 4096;

/// Names what made prompts part.
pub struct Causes {
    sketcher: Sketcher,
    purse: Arc<Mutex<Purse>>,
    queue: Option<SyncSender<CauseQuery>>,
    told: Arc<Mutex<CauseHistory>>,
}

/// Divergence of a request's prompt from its nearest earlier prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeighbourDivergence {
    /// The earlier request.
    pub neighbour: String,
    /// Offset of the first difference in its own text, bytes; `None` if it continues that prompt.
    pub byte: Option<usize>,
    /// Words behind that offset which were known and recomputed.
    pub lost_words: usize,
    /// The words that show why, where that has a name.
    pub evidence: Option<Evidence>,
}

/// Totals of one cause so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CauseSum {
    /// Requests, of those that were looked at.
    pub requests: u64,
    /// Words that were recomputed.
    pub lost_words: u64,
}

/// Totals of all causes so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CauseSums {
    /// Prompts that were looked at.
    pub looked_at: u64,
    /// Words that these recomputed behind a difference, whatever caused it.
    pub lost_words: u64,
    /// By cause, the dearest first.
    pub causes: Vec<(Cause, CauseSum)>,
}

#[derive(Default)]
struct CauseHistory {
    latest: VecDeque<(String, NeighbourDivergence)>,
    sums: BTreeMap<Cause, CauseSum>,
    looked_at: u64,
    lost_words: u64,
}

/// A prompt to be explained.
struct CauseQuery {
    namespace: u64,
    id: String,
    sketch: Sketch,
    is_worth: bool,
}

impl Causes {
    /// Starts the thread that explains. Without it nothing is looked at.
    #[must_use]
    pub fn start(secret: &[u8; 32]) -> Self {
        let told = Arc::new(Mutex::new(CauseHistory::default()));
        let purse = Arc::new(Mutex::new(Purse::new(Instant::now())));
        // Bounded, because prompts may come faster than one thread compares them.
        let (queue, questions) = sync_channel(QUEUE);
        let (teller, payer) = (told.clone(), purse.clone());
        let thread = std::thread::Builder::new().name("causes".to_owned());
        let started = thread.spawn(move || explain_all(&questions, &teller, &payer));
        Self {
            sketcher: Sketcher::new(secret),
            purse,
            queue: started.is_ok().then_some(queue),
            told,
        }
    }

    /// A sketch of a prompt's text, if there is time for it.
    #[must_use]
    #[inline(never)]
    pub fn look(&self, text: &str) -> Option<Sketch> {
        self.look_at(text.len(), || text)
    }

    /// Sketches a text of about `bytes` bytes, if there is time for it. Calls `text` only then.
    #[must_use]
    pub fn look_at<T: AsRef<str>>(&self, bytes: usize, text: impl FnOnce() -> T) -> Option<Sketch> {
        // Without the thread there is no reader, and a sketch would be made for nothing.
        self.queue.as_ref()?;
        // The time is paid under the lock and spent outside of it.
        let has_time = lock(&self.purse).takes(bytes, Instant::now());
        has_time.then(|| self.sketcher.sketch(text().as_ref()))
    }

    /// Queues a request's prompt for an explanation, compared with earlier ones of `namespace`;
    /// drops it if the queue is full. `lost`: its recomputed tokens, where known.
    pub fn explain(&self, namespace: u64, id: String, sketch: Sketch, lost: Option<u32>) {
        if let Some(queue) = &self.queue {
            let question = CauseQuery {
                namespace,
                id,
                sketch,
                is_worth: lost.is_none_or(|tokens| tokens >= WORTH),
            };
            // Waiting would hold up an answer.
            let _ = queue.try_send(question);
        }
    }

    /// Returns the divergence of a request's prompt, if it is still in memory.
    #[must_use]
    pub fn of(&self, id: &str) -> Option<NeighbourDivergence> {
        let told = lock(&self.told);
        // The latest first: a client may use an id twice.
        let found = told.latest.iter().rev().find(|(one, _)| one == id);
        found.map(|(_, parted)| parted.clone())
    }

    /// Prompts that were looked at, and what the causes came to, the dearest first.
    #[must_use]
    pub fn sums(&self) -> CauseSums {
        let told = lock(&self.told);
        let mut causes: Vec<_> = told.sums.iter().map(|(&cause, &sum)| (cause, sum)).collect();
        causes.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.lost_words));
        CauseSums { looked_at: told.looked_at, lost_words: told.lost_words, causes }
    }
}

#[inline(never)]
fn explain_all(questions: &Receiver<CauseQuery>, told: &Mutex<CauseHistory>, purse: &Mutex<Purse>) {
    let mut neighbours = Neighbours::new(MEMORY);
    while let Ok(question) = questions.recv() {
        let start = Instant::now();
        // Prompts that lost few tokens are explained only while at least half of the savings are
        // left.
        let has_time = question.is_worth || lock(purse).is_half_full();
        let parted = if has_time { explained(&neighbours, &question) } else { None };
        lock(told).add(&question.id, parted);
        // Inserted after the comparison, since a prompt would be its own nearest neighbour.
        neighbours.insert(question.namespace, question.id, question.sketch);
        // The true time, after the fact. The balance may fall below zero, and then nothing is
        // looked at for a while.
        lock(purse).pay(start.elapsed().as_secs_f64());
    }
}

fn explained(
    neighbours: &Neighbours<String>,
    question: &CauseQuery,
) -> Option<NeighbourDivergence> {
    let told = neighbours.tell(question.namespace, &question.sketch)?;
    let explanation = told.explanation.as_ref();
    let divergence = explanation.map(|explanation| &explanation.divergence);
    Some(NeighbourDivergence {
        neighbour: told.near.name.clone(),
        byte: divergence.map(|divergence| divergence.new_byte),
        lost_words: divergence.map_or(0, |divergence| divergence.lost_words),
        evidence: explanation.and_then(|explanation| explanation.evidence.clone()),
    })
}

impl CauseHistory {
    fn add(&mut self, id: &str, parted: Option<NeighbourDivergence>) {
        self.looked_at += 1;
        let Some(parted) = parted else {
            return;
        };
        self.lost_words += parted.lost_words as u64;
        if let Some(evidence) = &parted.evidence {
            let sum = self.sums.entry(evidence.cause).or_default();
            sum.requests += 1;
            sum.lost_words += parted.lost_words as u64;
        }
        if self.latest.len() == TOLD {
            self.latest.pop_front();
        }
        self.latest.push_back((id.to_owned(), parted));
    }
}

/// Processor time left for causes.
struct Purse {
    /// Below 0 when more was spent than there was.
    seconds: f64,
    at: Instant,
    /// When the second under way began, and its prompts; those of the last one.
    since: Instant,
    prompts: u32,
    per_s: f64,
}

impl Purse {
    fn new(now: Instant) -> Self {
        Self { seconds: SAVED, at: now, since: now, prompts: 0, per_s: 0.0 }
    }

    /// Pays for a look at a prompt of `bytes`, if there is enough time for it.
    fn takes(&mut self, bytes: usize, now: Instant) -> bool {
        self.earn(now);
        let cost = bytes as f64 * LOOK.0 + LOOK.1;
        let has_time = self.seconds >= cost;
        if has_time {
            self.pay(cost);
        }
        has_time
    }

    fn earn(&mut self, now: Instant) {
        let second = now.saturating_duration_since(self.since).as_secs_f64();
        if second >= 1.0 {
            self.per_s = f64::from(self.prompts) / second;
            (self.since, self.prompts) = (now, 0);
        }
        self.prompts += 1;
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = now;
        // A second that becomes busy counts as busy before it is over.
        let per_s = self.per_s.max(f64::from(self.prompts));
        let share = 1.0 / (1.0 + per_s / BUSY);
        // The cap shrinks with load as well, so a burst cannot spend the savings of a quiet minute.
        self.seconds = (self.seconds + passed * EARNED * share).min(SAVED * share);
    }

    fn pay(&mut self, seconds: f64) {
        self.seconds -= seconds;
    }

    fn is_half_full(&self) -> bool {
        self.seconds > SAVED / 2.0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Returns the seconds spent on prompts of 4,000 bytes that take five milliseconds each.
    fn spent(purse: &mut Purse, start: Instant, per_s: u64, seconds: u64) -> f64 {
        let times =
            (0..per_s * seconds).map(|at| start + Duration::from_micros(at * 1_000_000 / per_s));
        let mut looks = 0.0;
        for now in times {
            if purse.takes(4_000, now) {
                purse.pay(0.005);
                looks += 0.005 + 4_000.0 * LOOK.0 + LOOK.1;
            }
        }
        looks
    }

    #[test]
    fn a_busy_gateway_spends_little_and_a_quiet_one_what_it_takes() {
        let start = Instant::now();
        let later = |seconds| start + Duration::from_secs(seconds);
        let mut purse = Purse::new(start);
        let first = spent(&mut purse, start, 1_000, 100);
        assert!((0.05..SAVED + 0.05).contains(&first), "{first}: what is saved, then little");
        let then = spent(&mut purse, later(100), 1_000, 100);
        assert!((then - 0.05).abs() < 0.01, "{then}: half a millisecond a second");
        assert!(!purse.is_half_full());
        let quiet = spent(&mut purse, later(200), 1, 100);
        assert!((quiet - 0.505).abs() < 0.02, "{quiet}: all of one a second");
        let mut purse = Purse::new(start);
        assert!(!purse.takes(60_000_000, start), "longer than all there is");
        assert!(purse.takes(40_000_000, start) && !purse.takes(20_000_000, start));
    }

    /// With little time left, only prompts with enough recomputed tokens are explained.
    #[test]
    fn where_nothing_was_lost_nothing_is_explained_in_a_hurry() {
        let causes = Causes::start(&[7; 32]);
        let rules = "You answer questions about the harbour and its ferries, shortly. ".repeat(30);
        let text =
            |minute: u32| format!("Now it is 2026-03-04T10:0{minute}:00Z.\n{rules}\n{minute}?");
        let sketches: Vec<_> = (0..4).filter_map(|minute| causes.look(&text(minute))).collect();
        lock(&causes.purse).pay(SAVED);
        for ((id, lost), sketch) in
            [("a", 9), ("b", 0), ("c", WORTH), ("d", 0)].into_iter().zip(sketches)
        {
            causes.explain(1, id.to_owned(), sketch, Some(lost));
        }
        let start = Instant::now();
        while causes.sums().looked_at < 4 {
            assert!(start.elapsed() < Duration::from_secs(20), "never explained");
            std::thread::yield_now();
        }
        let told = ["a", "b", "c", "d"].map(|id| causes.of(id).is_some());
        assert_eq!(told, [false, false, true, false]);
    }

    #[test]
    fn a_clock_is_named_and_no_text_is_kept() {
        let causes = Causes::start(&[7; 32]);
        let rules = "You answer questions about the harbour and its ferries, shortly. ".repeat(30);
        for minute in 0..4 {
            let text =
                format!("Now it is 2026-03-04T10:0{minute}:00Z.\n{rules}\nQuestion {minute}?");
            let sketch = causes.look(&text).expect("there is time");
            causes.explain(1, format!("request-{minute}"), sketch, None);
        }
        let start = Instant::now();
        while causes.sums().looked_at < 4 {
            assert!(start.elapsed() < Duration::from_secs(20), "never explained");
            std::thread::yield_now();
        }
        let parted = causes.of("request-3").expect("it is remembered");
        assert_eq!(parted.evidence.as_ref().map(|found| found.cause), Some(Cause::Clock));
        assert!(parted.lost_words > 200, "{parted:?}");
        assert!(causes.of("request-0").is_none(), "nothing was before it");
        let sums = causes.sums();
        let (cause, sum) = sums.causes[0];
        assert_eq!((cause, sum.requests), (Cause::Clock, 3));
        assert_eq!(sums.lost_words, sum.lost_words, "nothing else made them part");
    }
}
