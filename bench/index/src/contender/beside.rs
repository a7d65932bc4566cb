//! One reader beside one writer that keeps a pace.
//!
//! The writer has the measuring thread, works through what is due and sleeps; the reader has a
//! thread of its own and never pauses. An index that one thread owns does both in turn.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::counting;
use crate::replay::Message;

/// Look-ups whose times are kept for percentiles; more of them are counted only.
const MAX_TIMES: usize = 1 << 20;

/// The writer looks for what is due this often: as a socket would bring it.
const TICK: Duration = Duration::from_millis(1);

/// Look-ups between two glances at the clock where one thread does both.
const BURST: usize = 16;

/// Rate of a writer's events.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Events per second.
    pub(crate) events_per_second: u32,
}

impl Pace {
    /// When the event with this number is due, from the start.
    fn due(self, event: usize) -> Duration {
        Duration::from_secs_f64(event as f64 / f64::from(self.events_per_second))
    }
}

/// Rates and times of look-ups beside a writer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Beside {
    /// Look-ups per second.
    pub(crate) lookups_per_second: f64,
    /// Events per second that were applied.
    pub(crate) events_per_second: f64,
    /// Time of look-ups, nanoseconds.
    pub(crate) nanos: Vec<u64>,
}

/// A reader thread and the writer here. `apply` also settles.
pub(super) fn two_threads(
    messages: &[Message],
    pace: Pace,
    num_prompts: usize,
    look_up: impl FnMut(usize) + Send,
    mut apply: impl FnMut(&[Message]),
) -> Beside {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read_until(&is_over, num_prompts, look_up));
        let start = Instant::now();
        let (mut next, mut events) = (0, 0);
        while next < messages.len() {
            let from = next;
            while next < messages.len() && pace.due(events) <= start.elapsed() {
                events += messages[next].events.len();
                next += 1;
            }
            apply(&messages[from..next]);
            std::thread::sleep(TICK);
        }
        let took = start.elapsed();
        is_over.store(true, Ordering::Relaxed);
        let (lookups_per_second, nanos) = reader.join().expect("the reader does not panic");
        Beside {
            lookups_per_second,
            events_per_second: events as f64 / took.as_secs_f64(),
            nanos,
        }
    })
}

fn read_until(
    is_over: &AtomicBool,
    num_prompts: usize,
    mut look_up: impl FnMut(usize),
) -> (f64, Vec<u64>) {
    counting::for_nobody();
    let mut nanos = Vec::with_capacity(MAX_TIMES);
    let mut count = 0;
    let start = Instant::now();
    let mut last = start;
    while !is_over.load(Ordering::Relaxed) {
        look_up(count % num_prompts);
        count += 1;
        let now = Instant::now();
        if nanos.len() < MAX_TIMES {
            nanos.push((now - last).as_nanos() as u64);
        }
        last = now;
    }
    (count as f64 / (last - start).as_secs_f64(), nanos)
}

/// Both here, in turn. The clock stands still in `ready`, which makes the prompts from one number
/// on ready to be looked up.
pub(super) fn one_thread(
    messages: &[Message],
    pace: Pace,
    num_prompts: usize,
    mut step: impl FnMut(Step),
) -> Beside {
    let (mut next, mut events, mut count) = (0, 0, 0);
    let mut clock = Duration::ZERO;
    let mut nanos = Vec::with_capacity(MAX_TIMES);
    while next < messages.len() {
        let prompts = (0..BURST).map(|ahead| (count + ahead) % num_prompts);
        prompts.clone().for_each(|prompt| step(Step::Ready(prompt)));
        let start = Instant::now();
        while next < messages.len() && pace.due(events) <= clock {
            step(Step::Apply);
            events += messages[next].events.len();
            next += 1;
        }
        let mut last = Instant::now();
        for prompt in prompts {
            step(Step::LookUp(prompt));
            let now = Instant::now();
            if nanos.len() < MAX_TIMES {
                nanos.push((now - last).as_nanos() as u64);
            }
            last = now;
        }
        count += BURST;
        clock += last - start;
    }
    Beside {
        lookups_per_second: count as f64 / clock.as_secs_f64(),
        events_per_second: events as f64 / clock.as_secs_f64(),
        nanos,
    }
}

/// Next step of a thread.
pub(super) enum Step {
    /// Make this prompt ready, with the clock standing still.
    Ready(usize),
    /// Look it up.
    LookUp(usize),
    /// Apply the next message.
    Apply,
}
