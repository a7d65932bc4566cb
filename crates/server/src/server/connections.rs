//! One task per connection.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tower_service::Service;

use crate::api::{Closer, routes};
use crate::gateway::Gateway;

/// Pause after an accept that failed, as it does when file descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Accepts until told to stop, then waits for the open requests.
pub(super) async fn accept(
    listener: TcpListener,
    gateway: Arc<Gateway>,
    mut stopped: watch::Receiver<bool>,
) {
    let routes = routes(gateway.clone());
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(gateway.limits.connections));
    loop {
        let place = places.clone().acquire_owned();
        let accepted = tokio::select! {
            _ = stopped.changed() => break,
            accepted = async { (place.await, listener.accept().await) } => accepted,
        };
        match accepted {
            (Ok(place), Ok((socket, _))) => {
                let connection = Connection {
                    socket,
                    place,
                    read_timeout: gateway.limits.read_timeout,
                };
                tokio::spawn(connection.run(routes.clone(), graceful.watcher()));
            }
            (_, Err(error)) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
            (Err(_), _) => break,
        }
    }
    drop(listener);
    if tokio::time::timeout(gateway.limits.drain_timeout, graceful.shutdown())
        .await
        .is_err()
    {
        tracing::warn!("some requests did not finish within the drain limit");
    }
}

struct Connection {
    socket: TcpStream,
    place: OwnedSemaphorePermit,
    read_timeout: Duration,
}

impl Connection {
    async fn run(self, routes: Router, graceful: Watcher) {
        let _held = self.place;
        let _ = self.socket.set_nodelay(true);
        let closer = Closer::default();
        let for_requests = closer.clone();
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(for_requests.clone());
            routes.clone().call(request.map(Body::new))
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.read_timeout)
            .serve_connection(TokioIo::new(self.socket), service);
        tokio::select! {
            // A connection that breaks concerns its client only.
            _ = graceful.watch(connection) => {}
            () = closer.0.notified() => {}
        }
    }
}
