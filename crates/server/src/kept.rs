//! An answer that is dear to make, kept for a moment: however many ask, it is made once in that
//! time, off the network threads. Who asks may leave: what was begun is made and kept all the same.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

/// An answer counts as new for so long.
pub const FRESH: Duration = Duration::from_millis(900);

/// When an answer was made, and the answer.
type TimedAnswer<T> = (Instant, Arc<T>);

/// The last answer, and when it was made.
#[derive(Debug)]
pub struct AnswerCache<T>(Arc<Mutex<Option<TimedAnswer<T>>>>);

impl<T> Default for AnswerCache<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T: Send + Sync + 'static> AnswerCache<T> {
    /// The last one if it is new, or else one that `make` makes, while all who ask wait for it.
    /// None where the making failed.
    pub async fn get(&self, make: impl FnOnce() -> T + Send + 'static) -> Option<Arc<T>> {
        let mut last = self.0.clone().lock_owned().await;
        if let Some((at, answer)) = &*last
            && at.elapsed() < FRESH
        {
            return Some(answer.clone());
        }
        // The lock goes with the making, not with who asked: it opens when the answer is stored.
        let made = spawn_blocking(move || {
            let answer = Arc::new(make());
            *last = Some((Instant::now(), answer.clone()));
            answer
        });
        made.await.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::sync::mpsc::channel;

    use super::*;

    #[tokio::test]
    async fn who_leaves_does_not_have_it_made_again() {
        let kept = AnswerCache::default();
        let made = Arc::new(AtomicUsize::new(0));
        let (go, may_go) = channel::<()>();
        let counted = made.clone();
        let slow = kept.get(move || {
            may_go.recv().ok();
            counted.fetch_add(1, Relaxed) + 1
        });
        // Polled once and dropped, as when a client disconnects.
        tokio::select! {
            biased;
            answer = slow => panic!("nobody let it be made: {answer:?}"),
            () = std::future::ready(()) => {}
        }
        for _ in 0..50 {
            let counted = made.clone();
            let asked = kept.get(move || counted.fetch_add(1, Relaxed) + 1);
            tokio::select! {
                biased;
                answer = asked => panic!("the first is being made: {answer:?}"),
                () = std::future::ready(()) => {}
            }
        }
        go.send(()).expect("it waits");
        // Free only when the answer is there.
        let last = kept.0.lock().await;
        assert_eq!(last.as_ref().map(|(_, answer)| **answer), Some(1));
        assert_eq!(made.load(Relaxed), 1);
    }

    #[tokio::test]
    async fn many_askers_cost_one_answer_and_a_failure_is_not_kept() {
        let kept = AnswerCache::default();
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
