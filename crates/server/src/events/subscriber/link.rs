//! One connection to a publisher, from its first replay to its loss.

use std::time::Duration;

use futures::StreamExt;
use futures::channel::mpsc;
use tokio::time::{Instant, sleep_until};
use zeromq::{Socket, SocketEvent, SocketOptions, SocketRecv, SubSocket, ZmqError, ZmqMessage};

use super::SubscriberConfig;
use super::inbox::{Inbox, Next};
use super::replay::{Replay, ReplayNews};
use crate::events::wire::{self, Reply};

/// Longest wait for a connection: a healthy publisher accepts in milliseconds, and a refused
/// attempt is repeated within this time.
pub(super) const CONNECT_TIME_MAX: Duration = Duration::from_secs(1);

/// Quiet time after connecting before the second replay. The subscription is in place by then,
/// which nothing confirms.
const SETTLE_TIME: Duration = Duration::from_secs(1);

/// Silence that makes a settled connection doubtful. A busy engine sends several batches per
/// second; asking an idle one costs it two small messages.
const SILENCE_TIME_MAX: Duration = Duration::from_secs(30);

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    /// The publisher went away.
    #[error("the publisher closed the connection")]
    Disconnected,
    /// A message that is not ZeroMQ, or a broken connection.
    #[error(transparent)]
    Socket(#[from] ZmqError),
    /// The replay brought batches that the live socket should have brought.
    #[error("the live socket is silent while batches are published")]
    Silent,
}

/// A connection. While it runs, its replay runs beside it, one at a time.
pub(super) struct Link<'a> {
    config: &'a SubscriberConfig,
    socket: SubSocket,
    monitor: mpsc::Receiver<SocketEvent>,
    replay: Option<Replay>,
    purpose: Purpose,
    /// When the last live message came or the last replay ended.
    heard: Instant,
    /// Silence allowed after that.
    patience: Duration,
}

/// Why the running replay was asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// Batches are known or likely to be missing.
    Missing,
    /// Nothing should be missing; if something is, the live socket is dead.
    Doubt,
}

impl<'a> Link<'a> {
    /// Connects and subscribes.
    pub(super) async fn connect(config: &'a SubscriberConfig) -> Result<Self, LinkError> {
        let mut options = SocketOptions::default();
        options.connect_timeout(CONNECT_TIME_MAX);
        let mut socket = SubSocket::with_options(options);
        let monitor = socket.monitor();
        socket.subscribe(&config.topic_prefix).await?;
        socket.connect(&config.endpoint).await?;
        Ok(Self {
            config,
            socket,
            monitor,
            replay: None,
            purpose: Purpose::Missing,
            heard: Instant::now(),
            patience: SETTLE_TIME,
        })
    }

    /// Passes everything to `inbox` until the connection is lost.
    pub(super) async fn follow(mut self, inbox: &mut Inbox) -> LinkError {
        let from = inbox.resume();
        self.go(inbox, Next::Replay { from });
        loop {
            let can_doubt = self.replay.is_none() && self.config.replay_endpoint.is_some();
            let result = tokio::select! {
                message = self.socket.recv() => self.on_message(inbox, message),
                event = self.monitor.next() => on_event(event.as_ref()),
                news = next_of(&mut self.replay) => self.on_replay(inbox, news),
                () = sleep_until(self.heard + self.patience), if can_doubt => {
                    self.on_silence(inbox);
                    Ok(())
                }
            };
            if let Err(reason) = result {
                return reason;
            }
        }
    }

    fn on_message(
        &mut self,
        inbox: &mut Inbox,
        message: Result<ZmqMessage, ZmqError>,
    ) -> Result<(), LinkError> {
        self.heard = Instant::now();
        let next = match wire::parse_live(message?) {
            Ok(batch) => inbox.on_live(batch),
            Err(error) => {
                tracing::debug!(%error, "a live message was ignored");
                inbox.on_bad_message()
            }
        };
        self.purpose = Purpose::Missing;
        self.go(inbox, next);
        Ok(())
    }

    fn on_replay(&mut self, inbox: &mut Inbox, news: ReplayNews) -> Result<(), LinkError> {
        self.heard = Instant::now();
        let before = inbox.num_applied();
        let next = match news {
            ReplayNews::Reply(Reply::Batch(batch)) => inbox.on_replayed(batch),
            ReplayNews::Reply(Reply::End) => inbox.on_replay_end(),
            ReplayNews::Failed => inbox.on_replay_failed(),
        };
        let something_new = inbox.num_applied() > before || next != Next::Follow;
        if something_new && self.purpose == Purpose::Doubt {
            return Err(LinkError::Silent);
        }
        self.go(inbox, next);
        Ok(())
    }

    fn on_silence(&mut self, inbox: &mut Inbox) {
        self.purpose = match self.patience {
            SETTLE_TIME => Purpose::Missing,
            _ => Purpose::Doubt,
        };
        self.patience = SILENCE_TIME_MAX;
        let from = inbox.resume();
        self.go(inbox, Next::Replay { from });
    }

    /// Starts, keeps or ends the replay as the inbox needs.
    fn go(&mut self, inbox: &mut Inbox, mut next: Next) {
        if !inbox.is_replaying() {
            self.replay = None;
        }
        while let Next::Replay { from } = next {
            next = match &self.config.replay_endpoint {
                Some(endpoint) => {
                    self.replay = Some(Replay::start(endpoint.clone(), from));
                    return;
                }
                None => inbox.on_replay_failed(),
            };
        }
    }
}

fn on_event(event: Option<&SocketEvent>) -> Result<(), LinkError> {
    match event {
        Some(SocketEvent::Disconnected(_)) | None => Err(LinkError::Disconnected),
        Some(_) => Ok(()),
    }
}

/// What the replay says next; never, where none runs.
async fn next_of(replay: &mut Option<Replay>) -> ReplayNews {
    match replay {
        Some(replay) => replay.next().await,
        None => std::future::pending().await,
    }
}
