//! Two copies of a value, so that readers never wait for a writer.
//!
//! ```text
//! readers ──► front copy            writer: change the back copy, note how
//!             back copy  ◄── writer         make it the front one
//!                                           wait for readers to leave the other; change it alike
//! ```
//!
//! A writer locks only the copy that readers do not prefer. A reader that comes upon a locked copy
//! (it looked up the preferred one just before the roles changed) takes the other. It sees the
//! value between two updates, never in one.
//!
//! Invariant: between updates both copies are equal, and fit the writer's state.
//!
//! A writer that panics has changed one copy and its state in part. Neither can be mended from the
//! other copy, so both begin again, empty, and the panic unwinds.
//!
//! With one copy only ([`Twin::alone`]) readers and the writer wait for each other.
//!
//! Source: the left-right technique (Ramalhete and Correia). Differences: read locks instead of
//! counted epochs, so no `unsafe`, and changes are logged instead of made twice by the caller.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::sync::{
    AtomicUsize, Mutex, Ordering, PoisonError, RwLock, RwLockReadGuard, TryLockError, spin_loop,
};

/// A value that changes by `O`s, with the writer's own state `W`.
#[derive(Debug)]
pub(super) struct Twin<V, W, O> {
    copies: [RwLock<V>; 2],
    /// Whether the second copy stays as it was made.
    is_alone: bool,
    front: AtomicUsize,
    writer: Mutex<WriterState<W, O>>,
}

#[derive(Debug)]
struct WriterState<W, O> {
    state: W,
    /// Memory of the last update, used again.
    log: Vec<O>,
}

/// Something that changes by `O`s: equal ones stay equal under equal changes.
pub(super) trait ReplayTarget<O> {
    fn replay(&mut self, change: &O);
}

/// A writer's own state, which can begin again after a panic.
pub(super) trait RestartState<V, O> {
    /// Gives up all that is known, over an empty `value`. Changes are logged as in an update.
    fn begin_again(&mut self, value: &mut V, log: &mut Vec<O>);
}

impl<V, W, O> Twin<V, W, O>
where
    V: ReplayTarget<O> + Default,
    W: RestartState<V, O>,
{
    pub(super) fn new(copies: [V; 2], state: W) -> Self {
        let log = Vec::new();
        Self {
            copies: copies.map(RwLock::new),
            is_alone: false,
            front: AtomicUsize::new(0),
            writer: Mutex::new(WriterState { state, log }),
        }
    }

    /// One copy, for those who never read while they write: no change is made twice.
    pub(super) fn alone(copy: V, state: W) -> Self {
        Self { is_alone: true, ..Self::new([copy, V::default()], state) }
    }

    /// Shows the value to `read`. Waits for no writer, unless there is one copy only.
    pub(super) fn read<T>(&self, read: impl FnOnce(&V) -> T) -> T {
        loop {
            // Pairs with the writer's release: the copy that this names is complete.
            let front = self.front.load(Ordering::Acquire);
            // The other copy is complete as well, unless a writer has it locked.
            for copy in [front, self.behind(front)] {
                if let Some(value) = try_read(&self.copies[copy]) {
                    return read(&value);
                }
            }
            // The writer changed the roles between the two tries, and had each of them locked in
            // turn.
            spin_loop();
        }
    }

    /// Shows the value with the writer's state, between updates. Writers wait, readers do not.
    pub(super) fn inspect<T>(&self, inspect: impl FnOnce(&W, &V) -> T) -> T {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        self.read(|value| inspect(&writer.state, value))
    }

    /// Lets `write` change one copy, and repeats what it logged on the other. Readers see all of
    /// it or nothing. If it panics, they see an empty value, and the panic unwinds.
    pub(super) fn write<T>(&self, write: impl FnOnce(&mut W, &mut V, &mut Vec<O>) -> T) -> T {
        // Poisoned by a panic that went on: the state has begun again by then.
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let WriterState { state, log } = &mut *writer;
        let front = self.front.load(Ordering::Acquire);
        let back = self.behind(front);
        let written = {
            let copy = self.copies[back].write();
            let mut value = copy.unwrap_or_else(PoisonError::into_inner);
            let written = catch_unwind(AssertUnwindSafe(|| write(state, &mut value, log)));
            if written.is_err() {
                log.clear();
                *value = V::default();
                state.begin_again(&mut value, log);
            }
            // While it is locked: a reader who took it for the front one, an update ago, would
            // see it before all others do, and go back in time with its next look.
            self.front.store(back, Ordering::Release);
            written
        };
        // Readers that are still in this copy are waited for; new ones take the other.
        if !self.is_alone {
            let copy = self.copies[front].write();
            let mut value = copy.unwrap_or_else(PoisonError::into_inner);
            if written.is_err() {
                *value = V::default();
            }
            for change in log.iter() {
                value.replay(change);
            }
        }
        log.clear();
        log.shrink_to(MAX_IDLE_LOG);
        written.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// The copy that a writer changes first.
    fn behind(&self, front: usize) -> usize {
        if self.is_alone { front } else { 1 - front }
    }
}

/// Changes that the log keeps room for between updates: a batch of the usual size.
const MAX_IDLE_LOG: usize = 1024;

fn try_read<V>(copy: &RwLock<V>) -> Option<RwLockReadGuard<'_, V>> {
    match copy.try_read() {
        Ok(value) => Some(value),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
