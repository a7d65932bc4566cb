//! One task per connection, and no more of them than there are places.
//!
//! A connection that sends no request's head in time is closed, so that half-open ones give their
//! places back. When all places are taken, clients wait to be accepted, and the log says so.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, watch};
use tower_service::Service;

use crate::api::{Closer, routes};
use crate::gateway::HttpGateway;

/// Pause after an accept that failed, as it does when file descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Pause between two log lines about the same shortage: it may be met a thousand times a second.
const TELL_PAUSE: Duration = Duration::from_secs(10);

/// Accepts until told to stop, then waits for the open requests. At most `max` connections at once.
pub(super) async fn accept(
    listener: TcpListener,
    gateway: Arc<HttpGateway>,
    max: usize,
    mut stopped: watch::Receiver<bool>,
) {
    let routes = routes(gateway.clone());
    let graceful = GracefulShutdown::new();
    let mut places = ConnectionSlots::new(max, gateway.limits.head_timeout);
    let mut failures = LogThrottle::default();
    loop {
        // The place comes first: a client without one waits in the system's queue and holds no open
        // file.
        let accepted = tokio::select! {
            _ = stopped.changed() => break,
            accepted = async { (places.next().await, listener.accept().await) } => accepted,
        };
        match accepted {
            (Ok(place), Ok((socket, _))) => {
                let connection =
                    Connection { socket, place, head_timeout: gateway.limits.head_timeout };
                tokio::spawn(connection.run(routes.clone(), graceful.watcher()));
            }
            (_, Err(error)) => {
                if failures.is_due(Instant::now()) {
                    tracing::warn!(
                        %error,
                        "cannot accept a connection: clients wait, and it is tried again every \
                         {ACCEPT_PAUSE:?}; if too many files are open, raise their limit (`ulimit \
                         -Hn`) or lower --max-connections"
                    );
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
            (Err(_), _) => break,
        }
    }
    // Closed before the wait, so that new clients are refused instead of hanging.
    drop(listener);
    if tokio::time::timeout(gateway.limits.drain_timeout, graceful.shutdown()).await.is_err() {
        tracing::warn!("some requests did not finish within the drain limit");
    }
}

/// The places that connections take.
struct ConnectionSlots {
    free: Arc<Semaphore>,
    max: usize,
    head_timeout: Duration,
    shortages: LogThrottle,
}

impl ConnectionSlots {
    fn new(max: usize, head_timeout: Duration) -> Self {
        // `Semaphore::new` panics beyond this number.
        let max = max.min(Semaphore::MAX_PERMITS);
        Self {
            free: Arc::new(Semaphore::new(max)),
            max,
            head_timeout,
            shortages: LogThrottle::default(),
        }
    }

    /// Waits for a free one.
    async fn next(&mut self) -> Result<OwnedSemaphorePermit, AcquireError> {
        if self.free.available_permits() == 0 && self.shortages.is_due(Instant::now()) {
            let idle_s = self.head_timeout.as_secs_f64();
            tracing::warn!(
                connections = self.max,
                "the maximum number of connections is open: further clients wait until one ends \
                 (idle ones end after {idle_s} s); raise --max-connections and the limit of open \
                 files, or find the client that opens them"
            );
        }
        self.free.clone().acquire_owned().await
    }
}

/// Says when a log line that is due again and again should be written.
#[derive(Default)]
struct LogThrottle {
    last: Option<Instant>,
}

impl LogThrottle {
    fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.last.is_none_or(|last| now >= last + TELL_PAUSE);
        if is_due {
            self.last = Some(now);
        }
        is_due
    }
}

struct Connection {
    socket: TcpStream,
    place: OwnedSemaphorePermit,
    head_timeout: Duration,
}

impl Connection {
    async fn run(self, routes: Router, graceful: Watcher) {
        let _held = self.place;
        // The pieces of a stream are small, and Nagle's algorithm would hold them back.
        let _ = self.socket.set_nodelay(true);
        let closer = Closer::default();
        let for_requests = closer.clone();
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(for_requests.clone());
            routes.clone().call(request.map(Body::new))
        });
        // hyper needs a timer for the time limit of the head.
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.head_timeout)
            .serve_connection(TokioIo::new(self.socket), service);
        tokio::select! {
            // A connection that breaks concerns its client only.
            _ = graceful.watch(connection) => {}
            () = closer.0.notified() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_is_told_at_once_and_then_seldom() {
        let (mut seldom, start) = (LogThrottle::default(), Instant::now());
        let told = |after_ms: u64| seldom.is_due(start + Duration::from_millis(after_ms));
        let told: Vec<bool> = [0, 1, 9_999, 10_000, 10_001, 20_000].map(told).to_vec();
        assert_eq!(told, [true, false, false, true, false, true]);
    }
}
