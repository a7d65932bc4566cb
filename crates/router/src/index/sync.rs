//! Synchronization primitives of [`super::left_right`]. A test replaces this module with one that
//! runs the threads in every order.

pub(super) use std::hint::spin_loop;
pub(super) use std::sync::atomic::{AtomicUsize, Ordering};
pub(super) use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, TryLockError};
