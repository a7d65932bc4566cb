//! Locks that stay usable after a panic of their holder: the next holder sees the state as it is.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also after a panic of an earlier holder.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
