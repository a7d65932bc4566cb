//! The two copies of the index under every order of its threads that shuttle tries: readers see
//! states between updates only, in order, and no update is lost.

use std::sync::Arc as StdArc;

use shuttle::sync::Arc;
use shuttle::thread;

/// Primitives that the twin is built of, here with threads that shuttle runs.
mod sync {
    pub(super) use shuttle::hint::spin_loop;
    pub(super) use shuttle::sync::atomic::{AtomicUsize, Ordering};
    pub(super) use shuttle::sync::{Mutex, RwLock, RwLockReadGuard};
    pub(super) use std::sync::{PoisonError, TryLockError};
}

#[path = "../../src/index/left_right.rs"]
mod left_right;

use left_right::{ReplayTarget, RestartState, Twin};

/// Orders tried.
const ITERATIONS: usize = 20_000;
/// Deepest change of priorities in them.
const DEPTH: usize = 4;

/// Two numbers that are equal between updates, and how many there were.
#[derive(Debug, Default, Clone, PartialEq)]
struct Value {
    left: u64,
    right: u64,
}

struct Add(u64);

impl ReplayTarget<Add> for Value {
    fn replay(&mut self, change: &Add) {
        self.left += change.0;
        thread::yield_now();
        self.right += change.0;
    }
}

/// Both numbers after a panic.
const RESTARTED: u64 = 1_000;

impl RestartState<Value, Add> for u64 {
    fn begin_again(&mut self, value: &mut Value, log: &mut Vec<Add>) {
        *self = 0;
        value.replay(&Add(RESTARTED));
        log.push(Add(RESTARTED));
    }
}

type Values = Twin<Value, u64, Add>;

fn two_copies() -> Values {
    Twin::new([Value::default(), Value::default()], 0)
}

/// A twin with only one copy: readers wait for writers, and see the same.
fn one_copy() -> Values {
    Twin::alone(Value::default(), 0)
}

fn readers_and_writers(twin: fn() -> Values) {
    let twin = Arc::new(twin());
    let writers: Vec<_> = (0..2)
        .map(|_| {
            let twin = twin.clone();
            thread::spawn(move || {
                for _ in 0..2 {
                    twin.write(|count, value, log| {
                        *count += 1;
                        value.replay(&Add(1));
                        log.push(Add(1));
                    });
                }
            })
        })
        .collect();
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let twin = twin.clone();
            thread::spawn(move || {
                let mut last = 0;
                for _ in 0..3 {
                    let seen = twin.read(|value| {
                        thread::yield_now();
                        value.clone()
                    });
                    assert_eq!(seen.left, seen.right, "a reader saw half an update");
                    assert!(seen.left >= last, "a reader went back in time");
                    last = seen.left;
                }
            })
        })
        .collect();
    for thread in writers.into_iter().chain(readers) {
        thread.join().expect("no thread panics");
    }
    let expected = Value { left: 4, right: 4 };
    twin.inspect(|count, value| {
        assert_eq!((*count, value), (4, &expected), "no update is lost");
    });
    twin.read(|value| assert_eq!(value, &expected));
    // The other copy as well.
    twin.write(|_, value, _| assert_eq!(value, &expected));
}

#[test]
fn random_orders() {
    shuttle::check_random(|| readers_and_writers(two_copies), ITERATIONS);
    shuttle::check_random(|| readers_and_writers(one_copy), ITERATIONS);
}

#[test]
fn orders_by_priority() {
    shuttle::check_pct(|| readers_and_writers(two_copies), ITERATIONS, DEPTH);
    shuttle::check_pct(|| readers_and_writers(one_copy), ITERATIONS, DEPTH);
}

/// A reader that stays in one copy holds up the writer, and no other reader.
#[test]
fn readers_pass_a_writer_that_waits() {
    shuttle::check_random(
        || {
            let twin = Arc::new(two_copies());
            let other = twin.clone();
            let entered = StdArc::new(std::sync::atomic::AtomicBool::new(false));
            let seen = entered.clone();
            twin.read(move |old| {
                let writer = thread::spawn({
                    let twin = other.clone();
                    move || {
                        twin.write(|_, value, log| {
                            value.replay(&Add(1));
                            log.push(Add(1));
                        });
                    }
                });
                // The writer cannot end before this reader leaves; other readers can.
                for _ in 0..3 {
                    let reader = other.clone();
                    let read = thread::spawn(move || reader.read(Value::clone).left);
                    assert!(read.join().expect("the reader ends") <= 1);
                }
                seen.store(true, std::sync::atomic::Ordering::Relaxed);
                assert_eq!(old.left, 0, "what a reader sees does not change");
                writer
            })
            .join()
            .expect("the writer ends");
            assert!(entered.load(std::sync::atomic::Ordering::Relaxed));
        },
        ITERATIONS,
    );
}

/// Readers never see what a writer that panics has begun, and both copies are equal behind it.
#[test]
fn a_writer_that_panics_leaves_two_equal_copies() {
    let run = |twin: fn() -> Values| {
        let twin = Arc::new(twin());
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let twin = twin.clone();
                thread::spawn(move || {
                    for _ in 0..3 {
                        let seen = twin.read(|value| {
                            thread::yield_now();
                            value.clone()
                        });
                        assert_eq!(seen.left, seen.right, "a reader saw half an update");
                    }
                })
            })
            .collect();
        let add = |twin: &Values| {
            twin.write(|count, value, log| {
                *count += 1;
                value.replay(&Add(1));
                log.push(Add(1));
            });
        };
        add(&twin);
        let panics = || {
            twin.write(|count, value, log| {
                *count += 1;
                value.left += 7;
                log.push(Add(7));
                thread::yield_now();
                // Unlike `panic!` it calls no hook, which shuttle would take for a failed test.
                std::panic::resume_unwind(Box::new("as planned"));
            });
        };
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).expect_err("it panics");
        add(&twin);
        for reader in readers {
            reader.join().expect("no reader panics");
        }
        let expected = Value { left: RESTARTED + 1, right: RESTARTED + 1 };
        twin.inspect(|count, value| assert_eq!((*count, value), (1, &expected)));
        // The other copy as well.
        twin.write(|_, value, _| assert_eq!(value, &expected));
    };
    shuttle::check_random(move || run(two_copies), ITERATIONS);
    shuttle::check_random(move || run(one_copy), ITERATIONS);
}
