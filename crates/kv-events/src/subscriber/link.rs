//! One connection to a publisher, from its first replay to its loss.

use std::time::Duration;

use futures::StreamExt;
use futures::channel::mpsc;
use headstart_router::stream::ReplayId;
use tokio::time::{Instant, sleep_until};
use zeromq::{Socket, SocketEvent, SocketOptions, SocketRecv, SubSocket, ZmqError, ZmqMessage};

use super::SubscriberConfig;
use super::cause::SocketProblem;
use super::inbox::{Inbox, Todo};
use super::probe;
use super::replay::ReplayTask;
use crate::wire::{self, Reply};

/// Longest wait for a connection: a healthy publisher accepts in milliseconds, and a refused
/// attempt is repeated within this time.
pub(super) const CONNECT_TIME_MAX: Duration = Duration::from_secs(1);

/// A connection. While it runs, its replay runs beside it, one at a time.
pub(super) struct PublisherConnection<'a> {
    config: &'a SubscriberConfig,
    socket: SubSocket,
    monitor: mpsc::Receiver<SocketEvent>,
    replay: Option<(ReplayId, ReplayTask)>,
}

/// Next input of a link: a message, a reply of the replay, or a timeout.
enum Input {
    Message(Result<ZmqMessage, ZmqError>),
    Reply(ReplayId, Result<Reply, SocketProblem>),
    Time,
}

impl<'a> PublisherConnection<'a> {
    /// Connects and subscribes.
    pub(super) async fn connect(config: &'a SubscriberConfig) -> Result<Self, SocketProblem> {
        match Self::try_connect(config).await {
            Ok(link) => Ok(link),
            Err(error) => Err(probe::cause_of(&error, &config.endpoint).await),
        }
    }

    async fn try_connect(config: &'a SubscriberConfig) -> Result<Self, ZmqError> {
        let mut options = SocketOptions::default();
        options.connect_timeout(CONNECT_TIME_MAX);
        let mut socket = SubSocket::with_options(options);
        // Before the connection is made, so that none of its events is missed.
        let monitor = socket.monitor();
        socket.subscribe(&config.topic_prefix).await?;
        socket.connect(&config.endpoint).await?;
        Ok(Self { config, socket, monitor, replay: None })
    }

    /// Passes everything to `inbox` until the connection is lost.
    pub(super) async fn follow(mut self, inbox: &mut Inbox) {
        let todo = inbox.on_connected();
        let cause = self.follow_on(inbox, todo).await;
        inbox.on_disconnected(cause);
    }

    async fn follow_on(&mut self, inbox: &mut Inbox, mut todo: Todo) -> SocketProblem {
        loop {
            if let Some((id, from)) = todo.ask
                && let Some(endpoint) = &self.config.replay_endpoint
            {
                self.replay = Some((id, ReplayTask::start(endpoint.clone(), from)));
            }
            if todo.reconnect {
                return SocketProblem::Silent;
            }
            let replay = inbox.replay();
            // The stream may have given the replay up. Dropping the task ends it.
            self.replay = self.replay.take().filter(|(id, _)| replay == Some(*id));
            // A lost connection first: what is read behind it may be of another process.
            let input = tokio::select! {
                biased;
                event = self.monitor.next() => match event {
                    Some(SocketEvent::Disconnected(_)) | None => return SocketProblem::Closed,
                    Some(_) => {
                        // Other events of the socket change nothing here. The emptied list keeps
                        // the last request from being sent again.
                        todo = Todo::default();
                        continue;
                    }
                },
                input = next_input(&mut self.socket, &mut self.replay, inbox.due()) => input,
            };
            todo = match input {
                Input::Message(Ok(message)) => on_message(inbox, message),
                Input::Message(Err(error)) => return SocketProblem::Broken(error.to_string()),
                Input::Reply(id, reply) => inbox.on_reply(id, reply),
                Input::Time => inbox.on_time(),
            };
        }
    }
}

fn on_message(inbox: &mut Inbox, message: ZmqMessage) -> Todo {
    match wire::parse_live(message) {
        Ok(batch) => inbox.on_live(batch),
        Err(error) => inbox.on_bad_message(&error),
    }
}

/// Whatever comes first, without preference. Cancelling loses nothing.
async fn next_input(
    socket: &mut SubSocket,
    replay: &mut Option<(ReplayId, ReplayTask)>,
    due: Option<Instant>,
) -> Input {
    tokio::select! {
        message = socket.recv() => Input::Message(message),
        (id, reply) = next_of(replay) => Input::Reply(id, reply),
        () = at(due) => Input::Time,
    }
}

/// Waits for the next reply of the replay, or forever if none runs.
async fn next_of(
    replay: &mut Option<(ReplayId, ReplayTask)>,
) -> (ReplayId, Result<Reply, SocketProblem>) {
    match replay {
        Some((id, replay)) => (*id, replay.next().await),
        None => std::future::pending().await,
    }
}

async fn at(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}
