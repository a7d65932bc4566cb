//! Sockets, connections, start and shutdown.

mod check;
mod connections;
mod follow;
mod kept_index;
mod open_files;
mod start;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use headstart_kv_events::{Endpoints, SubscriberHandle};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::config::ServeConfig;
use crate::gateway::HttpGateway;
use start::ServerAssembly;

pub use crate::serve_error::ServeError;

/// Connections that wait to be accepted.
const BACKLOG: u32 = 1024;

/// A server that takes requests.
pub struct RunningServer {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    accepting: JoinHandle<()>,
    inside: ServerAssembly,
}

/// A background task that ends when dropped.
enum Watcher {
    Events { _subscription: SubscriberHandle },
    Task(JoinHandle<()>),
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if let Self::Task(task) = self {
            task.abort();
        }
    }
}

/// Starts a server; it takes requests once this returns.
///
/// # Errors
/// [`ServeError`], saying what to change.
pub async fn serve(config: ServeConfig) -> Result<RunningServer, ServeError> {
    config.check()?;
    let open_files = open_files::raise();
    let listen = |source| ServeError::Listen { address: config.listen, source };
    // A port that is taken fails the start before replicas and sockets exist.
    let listener = bind(&config).map_err(listen)?;
    let address = listener.local_addr().map_err(listen)?;
    let inside = start::gateway(config).await?;
    let (stop, stopped) = watch::channel(false);
    let max = open_files::connections(&inside.gateway, open_files);
    let accepted = connections::accept(listener, inside.gateway.clone(), max, stopped);
    let accepting = tokio::spawn(accepted);
    Ok(RunningServer { address, stop, accepting, inside })
}

/// A listening socket whose connections inherit the limit on unsent bytes.
fn bind(config: &ServeConfig) -> std::io::Result<TcpListener> {
    let socket = if config.listen.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A restart must not wait for the closed connections of the process before it.
    socket.set_reuseaddr(true)?;
    socket.set_send_buffer_size(config.limits.send_buffer_bytes)?;
    socket.bind(config.listen)?;
    socket.listen(BACKLOG)
}

impl RunningServer {
    /// Returns the address that the server listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the KV event endpoints of the embedded replicas, in the order of their ids.
    #[must_use]
    pub fn event_endpoints(&self) -> &[Endpoints] {
        &self.inside.event_endpoints
    }

    /// Its inside, for tests and the binary's banner.
    #[must_use]
    pub fn gateway(&self) -> &Arc<HttpGateway> {
        &self.inside.gateway
    }

    /// Stops taking connections, lets running requests finish within the drain limit, saves the
    /// index where that is wanted, then stops the replicas.
    pub async fn shutdown(self) {
        // First: readiness checks fail, and dashboards end, while connections are still served.
        let ServerAssembly { gateway, watchers, saving, .. } = self.inside;
        gateway.draining.store(true, Relaxed);
        // There is no receiver if accepting has ended by itself.
        let _ = self.stop.send(true);
        let _ = self.accepting.await;
        // Before the replicas, so that their end is no loss to anybody.
        drop(watchers);
        if let Some(shared) = gateway.shared_index().cloned() {
            let _ = tokio::task::spawn_blocking(move || shared.leave()).await;
        }
        if let Some(saving) = saving {
            saving.finish().await;
        }
        let stop_replicas = move || {
            if let Some(embedded) = gateway.fleet.embedded() {
                if let Some(predictions) = &embedded.predictions {
                    predictions.stop();
                }
                embedded.replicas.iter().for_each(crate::replica::EmbeddedReplica::stop);
            }
            gateway.observers.stop();
        };
        // Joining threads blocks, and so does the last batch of spans.
        let _ = tokio::task::spawn_blocking(stop_replicas).await;
    }
}
