//! An answer that is dear to make, kept for a moment: however many ask, it is made once in that
//! time, off the network threads.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

/// An answer counts as new for so long.
pub const FRESH: Duration = Duration::from_millis(900);

/// The last answer, and when it was made.
#[derive(Debug)]
pub struct Kept<T>(Mutex<Option<(Instant, Arc<T>)>>);

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Send + Sync + 'static> Kept<T> {
    /// The last one if it is new, or else one that `make` makes, while all who ask wait for it.
    /// None where the making failed.
    pub async fn get(&self, make: impl FnOnce() -> T + Send + 'static) -> Option<Arc<T>> {
        let mut last = self.0.lock().await;
        if let Some((at, answer)) = &*last
            && at.elapsed() < FRESH
        {
            return Some(answer.clone());
        }
        let answer = Arc::new(tokio::task::spawn_blocking(make).await.ok()?);
        *last = Some((Instant::now(), answer.clone()));
        Some(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn many_askers_cost_one_answer_and_a_failure_is_not_kept() {
        let kept = Kept::default();
        assert_eq!(kept.get(|| panic!("on purpose")).await, None::<Arc<u32>>);
        let (one, other) = tokio::join!(kept.get(|| 1), kept.get(|| 2));
        assert!(one.is_some() && one == other, "{one:?} {other:?}");
        // As if it were long ago.
        let Some(long_ago) = Instant::now().checked_sub(FRESH) else {
            return;
        };
        *kept.0.lock().await = Some((long_ago, Arc::new(7)));
        assert_eq!(kept.get(|| 3).await.as_deref(), Some(&3));
    }
}
