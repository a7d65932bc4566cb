//! What [`super::twin`] is built of. A test puts another module in this one's place, whose threads
//! are run in every order.

pub(super) use std::hint::spin_loop;
pub(super) use std::sync::atomic::{AtomicUsize, Ordering};
pub(super) use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, TryLockError};
