//! What made prompts part that could have shared more, by name: beside the requests, within a
//! budget.
//!
//! ```text
//! text ─ look: within the budget? ─► Sketch ─ with the request ─► queue ─► one thread: neighbours,
//!        (where it is tokenized)     (no text in it)                       explanation, sums
//! ```
//!
//! A text becomes a sketch of keyed hashes where it is tokenized, and is kept nowhere. Looking costs
//! time with each byte, so a busy gateway looks at some prompts and passes the others over: a cause is
//! systematic, and shows in a sample. A quiet one looks at all of them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use headstart_insight::Cause;
use headstart_insight::text::{Limits, Neighbours, Sketch, Sketcher};

/// Prompts a second that are looked at in the long run, and at once after a pause: some 15 ms of
/// work a second.
const PROMPTS: (f64, f64) = (10.0, 200.0);

/// Bytes of text a second, likewise: another 15 ms.
const BYTES: (f64, f64) = (2e6, 16e6);

/// Sketches that wait to be explained; more are passed over.
const QUEUE: usize = 64;

/// Prompts that are remembered to compare with, and their words: some 50 MB at most.
const MEMORY: Limits = Limits {
    sketches: 2048,
    words: 2 << 20,
};

/// Explanations that are remembered: as many as requests.
const TOLD: usize = 4096;

/// Names what made prompts part.
pub struct Causes {
    sketcher: Sketcher,
    budget: Mutex<Budget>,
    queue: Option<SyncSender<Question>>,
    told: Arc<Mutex<Told>>,
}

/// How a request's prompt differs from the earlier one that came nearest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parted {
    /// The earlier request.
    pub neighbour: String,
    /// Where its own text differs first, bytes; none where it goes on from that one.
    pub byte: Option<usize>,
    /// Words behind that which were known and computed again.
    pub lost_words: usize,
    /// Why, where it has a name.
    pub cause: Option<Cause>,
}

/// What a cause came to so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CauseSum {
    /// Requests, of those that were looked at.
    pub requests: u64,
    /// Words that were computed again.
    pub lost_words: u64,
}

#[derive(Default)]
struct Told {
    latest: VecDeque<(String, Parted)>,
    sums: BTreeMap<Cause, CauseSum>,
    looked_at: u64,
}

/// A prompt to be explained.
struct Question {
    namespace: u64,
    id: String,
    sketch: Sketch,
}

impl Causes {
    /// Starts the thread that explains. Without it nothing is looked at.
    #[must_use]
    pub fn start(secret: &[u8; 32]) -> Self {
        let told = Arc::new(Mutex::new(Told::default()));
        let (queue, questions) = sync_channel(QUEUE);
        let teller = told.clone();
        let thread = std::thread::Builder::new().name("causes".to_owned());
        let started = thread.spawn(move || explain_all(&questions, &teller));
        Self {
            sketcher: Sketcher::new(secret),
            budget: Mutex::new(Budget::new(Instant::now())),
            queue: started.is_ok().then_some(queue),
            told,
        }
    }

    /// A sketch of a prompt's text, if there is time for it.
    #[must_use]
    pub fn look(&self, text: &str) -> Option<Sketch> {
        self.queue.as_ref()?;
        let has_time = lock(&self.budget).takes(text.len(), Instant::now());
        has_time.then(|| self.sketcher.sketch(text))
    }

    /// Explains a request's prompt soon, compared with those of `namespace` before it.
    pub fn explain(&self, namespace: u64, id: String, sketch: Sketch) {
        if let Some(queue) = &self.queue {
            let question = Question {
                namespace,
                id,
                sketch,
            };
            // Waiting would hold up an answer.
            let _ = queue.try_send(question);
        }
    }

    /// How a request's prompt differs, while that is remembered.
    #[must_use]
    pub fn of(&self, id: &str) -> Option<Parted> {
        let told = lock(&self.told);
        let found = told.latest.iter().rev().find(|(one, _)| one == id);
        found.map(|(_, parted)| parted.clone())
    }

    /// Prompts that were looked at, and what the causes came to, the dearest first.
    #[must_use]
    pub fn sums(&self) -> (u64, Vec<(Cause, CauseSum)>) {
        let told = lock(&self.told);
        let mut sums: Vec<_> = told
            .sums
            .iter()
            .map(|(&cause, &sum)| (cause, sum))
            .collect();
        sums.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.lost_words));
        (told.looked_at, sums)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn explain_all(questions: &Receiver<Question>, told: &Mutex<Told>) {
    let mut neighbours = Neighbours::new(MEMORY);
    while let Ok(question) = questions.recv() {
        let parted = explained(&neighbours, &question);
        lock(told).add(&question.id, parted);
        neighbours.insert(question.namespace, question.id, question.sketch);
    }
}

fn explained(neighbours: &Neighbours<String>, question: &Question) -> Option<Parted> {
    let told = neighbours.tell(question.namespace, &question.sketch)?;
    let explanation = told.explanation.as_ref();
    let divergence = explanation.map(|it| &it.divergence);
    Some(Parted {
        neighbour: told.near.name.clone(),
        byte: divergence.map(|it| it.new_byte),
        lost_words: divergence.map_or(0, |it| it.lost_words),
        cause: explanation.and_then(|it| Some(it.evidence.as_ref()?.cause)),
    })
}

impl Told {
    fn add(&mut self, id: &str, parted: Option<Parted>) {
        self.looked_at += 1;
        let Some(parted) = parted else {
            return;
        };
        if let Some(cause) = parted.cause {
            let sum = self.sums.entry(cause).or_default();
            sum.requests += 1;
            sum.lost_words += parted.lost_words as u64;
        }
        if self.latest.len() == TOLD {
            self.latest.pop_front();
        }
        self.latest.push_back((id.to_owned(), parted));
    }
}

/// What is left of the time for looking.
struct Budget {
    prompts: f64,
    bytes: f64,
    at: Instant,
}

impl Budget {
    fn new(now: Instant) -> Self {
        Self {
            prompts: PROMPTS.1,
            bytes: BYTES.1,
            at: now,
        }
    }

    /// Takes a prompt of so many bytes, if there is enough left for it.
    fn takes(&mut self, bytes: usize, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = now;
        self.prompts = (self.prompts + passed * PROMPTS.0).min(PROMPTS.1);
        self.bytes = (self.bytes + passed * BYTES.0).min(BYTES.1);
        let has_time = self.prompts >= 1.0 && self.bytes >= bytes as f64;
        if has_time {
            self.prompts -= 1.0;
            self.bytes -= bytes as f64;
        }
        has_time
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_busy_gateway_looks_at_some_prompts() {
        let start = Instant::now();
        let mut budget = Budget::new(start);
        let mut looks = |from: u64, seconds: u64| {
            let each = |ms| start + Duration::from_millis(ms);
            let times = (from * 1000..(from + seconds) * 1000).map(each);
            times.filter(|&at| budget.takes(4000, at)).count()
        };
        assert_eq!(looks(0, 10), 200 + 99, "at once, then ten a second");
        assert!((99..=101).contains(&looks(10, 10)));
        let mut budget = Budget::new(start);
        assert!(!budget.takes(17_000_000, start), "longer than all there is");
        assert!(budget.takes(16_000_000, start));
        assert!(!budget.takes(1000, start));
    }

    #[test]
    fn a_clock_is_named_and_no_text_is_kept() {
        let causes = Causes::start(&[7; 32]);
        let rules = "You answer questions about the harbour and its ferries, shortly. ".repeat(30);
        for minute in 0..4 {
            let text =
                format!("Now it is 2026-03-04T10:0{minute}:00Z.\n{rules}\nQuestion {minute}?");
            let sketch = causes.look(&text).expect("there is time");
            causes.explain(1, format!("request-{minute}"), sketch);
        }
        let start = Instant::now();
        while causes.sums().0 < 4 {
            assert!(start.elapsed() < Duration::from_secs(20), "never explained");
            std::thread::yield_now();
        }
        let parted = causes.of("request-3").expect("it is remembered");
        assert_eq!(parted.cause, Some(Cause::Clock));
        assert!(parted.lost_words > 200, "{parted:?}");
        assert!(causes.of("request-0").is_none(), "nothing was before it");
        let (_, sums) = causes.sums();
        assert_eq!(sums[0].0, Cause::Clock);
        assert_eq!(sums[0].1.requests, 3);
    }
}
