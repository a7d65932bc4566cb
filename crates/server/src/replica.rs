//! An embedded engine on a thread of its own.
//!
//! Commands go in through a bounded queue, tokens come out through one channel per request. The
//! thread never waits for a client: a channel holds a whole answer. A client that goes away
//! drops its receiver, which the next step notices and cancels.
//!
//! A panic inside the engine ends the requests on it (their channels close) and is reported; the
//! engine is then rebuilt with an empty cache.

mod batches;
mod events;
mod status;

use std::panic::AssertUnwindSafe;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use headstart_cache::tiers::TierSummary;
use headstart_core::{CacheEvent, EngineModel, Nanos, Probability, SeqId};
use headstart_engine::importance::ImportanceReport;
use headstart_engine::{Engine, SchedulerLoad, Submission, Submit};
use headstart_index_sync::clock::Clock;
use headstart_router::Health;
use tokio::sync::mpsc;

use crate::learned_tables::LearnedTables;
use crate::lock::lock;
use batches::batches;
pub use events::ReplicaEvent;
use events::{Clients, tell};
use status::PublishedStatus;

/// Commands waiting for the thread; a step takes some at every turn.
const COMMANDS: usize = 1024;

/// Tiers below the device.
const LOWER_TIERS: usize = 3;

/// Longest sleep of an idle thread.
const IDLE_PAUSE: Duration = Duration::from_millis(100);

/// Pause after a check of all that is held, as a multiple of its time: a million units in a tier
/// take a second, and who comes meanwhile waits.
const CHECK_PAUSE: u32 = 100;

/// Pause before an engine that panicked is rebuilt; doubles with each panic in a row.
const RESTART_PAUSE: Duration = Duration::from_millis(200);

/// Panics in a row, without a completed step between them, after which the replica stays down.
const RESTARTS: u32 = 5;

/// Time between saves of what the eviction policies have learned.
const SAVE_PERIOD: Duration = Duration::from_secs(60);

/// Callbacks of the engine thread into the rest of the server.
pub struct Hooks {
    /// Builds the engine; again after a panic. It may wake its thread when something was moved.
    pub build: Box<dyn Fn(ReplicaWaker) -> Engine + Send>,
    /// Residency changed.
    pub publish: Box<dyn Fn(Vec<CacheEvent>) + Send>,
    /// The replica went down or came back.
    pub health: Box<dyn Fn(Health) + Send>,
    /// Files for the tables of eviction policies.
    pub tables: Option<LearnedTables>,
}

/// A replica's engine thread, seen from outside.
pub struct EmbeddedReplica {
    commands: SyncSender<ReplicaCommand>,
    status: Arc<PublishedStatus>,
    context: usize,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Annotations that reached a replica's thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Annotations {
    /// Their request was there.
    pub in_time: u64,
    /// It had ended.
    pub late: u64,
}

/// Wakes a replica's thread. Cheap; may be called from any thread at any time.
pub type ReplicaWaker = Arc<dyn Fn() + Send + Sync>;

enum ReplicaCommand {
    /// Something was moved.
    Wake,
    Submit(Submission, mpsc::Sender<ReplicaEvent>),
    Annotate(SeqId, Probability),
    Panic,
    Stop,
}

impl EmbeddedReplica {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(name: String, hooks: Hooks, clock: Clock) -> std::io::Result<Self> {
        let (commands, inbox) = sync_channel(COMMANDS);
        let status = Arc::new(PublishedStatus::new(&name));
        let is_awake = Arc::new(AtomicBool::new(false));
        let waker = waker(commands.clone(), is_awake.clone());
        // The first engine is built on the caller's thread, which needs its context. Later ones are
        // built on the replica's own.
        let engine = (hooks.build)(waker.clone());
        let context = engine.context();
        let worker = ReplicaWorker { hooks, clock, inbox, waker, is_awake, status: status.clone() };
        let thread = std::thread::Builder::new().name(name).spawn(move || worker.run(engine))?;
        Ok(Self { commands, status, context, thread: Mutex::new(Some(thread)) })
    }

    /// The longest sequence that it can hold, tokens.
    #[must_use]
    pub fn context(&self) -> usize {
        self.context
    }

    /// Hands over a request. What happens to it comes out of the receiver; a receiver that
    /// closes before the last token means that the replica is gone. `None`: its inbox is full.
    #[must_use]
    pub fn submit(&self, submission: Submission) -> Option<mpsc::Receiver<ReplicaEvent>> {
        // Started, loaded from each lower tier, in part, every token, one to spare: it never waits.
        let (sender, receiver) = mpsc::channel(submission.max_tokens + 3 + LOWER_TIERS);
        match self.commands.try_send(ReplicaCommand::Submit(submission, sender)) {
            // A thread that is gone drops the command, which closes the receiver.
            Ok(()) | Err(TrySendError::Disconnected(_)) => Some(receiver),
            Err(TrySendError::Full(_)) => None,
        }
    }

    /// Passes on the probability that the conversation of `seq`, submitted before, continues;
    /// ignored if `seq` has ended by then. Returns false if the inbox is full or the thread is
    /// gone.
    pub fn annotate(&self, seq: SeqId, p_continue: Probability) -> bool {
        let command = ReplicaCommand::Annotate(seq, p_continue);
        self.commands.try_send(command).is_ok()
    }

    /// Returns the number of annotations that came in time, and of those that came late.
    #[must_use]
    pub fn annotations(&self) -> Annotations {
        Annotations {
            in_time: self.status.annotated.load(Relaxed),
            late: self.status.late.load(Relaxed),
        }
    }

    /// Returns the running and waiting sequences, the blocks and the preemptions.
    #[must_use]
    pub fn load(&self) -> SchedulerLoad {
        *lock(&self.status.load)
    }

    /// Its lower tiers, the nearest first.
    #[must_use]
    pub fn tiers(&self) -> Vec<TierSummary> {
        lock(&self.status.tiers).clone()
    }

    /// Returns the cost and savings of partial loads, if they are on.
    #[must_use]
    pub fn importance(&self) -> Option<ImportanceReport> {
        lock(&self.status.importance).clone()
    }

    /// Returns its learned step costs. Only replicas with lower tiers learn them, from their first
    /// computed prompt on.
    #[must_use]
    pub fn learned(&self) -> Option<EngineModel> {
        *lock(&self.status.learned)
    }

    /// Whether it takes requests.
    #[must_use]
    pub fn health(&self) -> Health {
        if self.status.down.load(Relaxed) { Health::Down } else { Health::Healthy }
    }

    /// Returns the number of engine panics.
    #[must_use]
    pub fn panics(&self) -> u64 {
        self.status.panics.load(Relaxed)
    }

    /// Makes the engine panic at its next turn: for tests of what happens then.
    pub fn inject_panic(&self) {
        let _ = self.commands.try_send(ReplicaCommand::Panic);
    }

    /// Ends the thread after its present step and waits for it.
    pub fn stop(&self) {
        // Waits for room in the inbox. The thread takes commands at every turn, and a thread that
        // is gone fails the send at once.
        let _ = self.commands.send(ReplicaCommand::Stop);
        // Taken, so that `drop` after an explicit stop does not join twice.
        if let Some(thread) = lock(&self.thread).take() {
            let _ = thread.join();
        }
    }
}

impl Drop for EmbeddedReplica {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The thread's side.
struct ReplicaWorker {
    hooks: Hooks,
    clock: Clock,
    inbox: Receiver<ReplicaCommand>,
    waker: ReplicaWaker,
    /// Whether a wake-up waits in the inbox: one is enough.
    is_awake: Arc<AtomicBool>,
    status: Arc<PublishedStatus>,
}

/// Why the loop ended.
enum LoopEnd {
    Stopped,
    Panicked,
}

impl ReplicaWorker {
    fn run(self, engine: Engine) {
        // The first turn takes the engine that was built by the caller.
        let mut engine = Some(engine);
        let mut in_a_row = 0;
        loop {
            let mut current =
                engine.take().unwrap_or_else(|| (self.hooks.build)(self.waker.clone()));
            self.set_health(Health::Healthy);
            let mut steps = 0u64;
            // A panic may leave the engine in any state. It is not used again after this.
            let turn = AssertUnwindSafe(|| self.serve(&mut current, &mut steps));
            match std::panic::catch_unwind(turn).unwrap_or(LoopEnd::Panicked) {
                LoopEnd::Stopped => {
                    if let Some(tables) = &self.hooks.tables {
                        tables.save(&current.learned_tables());
                    }
                    return;
                }
                LoopEnd::Panicked => {}
            }
            // Its memory is freed before another engine is built, since the two may not fit
            // together.
            drop(current);
            // A completed step shows that the engine works; a panic at once, again and again, that
            // it does not.
            in_a_row = if steps > 0 { 1 } else { in_a_row + 1 };
            self.status.panics.fetch_add(1, Relaxed);
            self.set_health(Health::Down);
            // Subscribers must drop what the old engine held.
            self.publish(vec![CacheEvent::Cleared]);
            // The shift is safe: `in_a_row` is at most `RESTARTS` here.
            if in_a_row > RESTARTS || self.refuse_for(RESTART_PAUSE * (1 << in_a_row)) {
                return;
            }
        }
    }

    /// Drops what arrives during `pause`, so that it is retried elsewhere. True when told to stop.
    fn refuse_for(&self, pause: Duration) -> bool {
        let until = self.clock.now() + pause;
        loop {
            let left = until.since(self.clock.now());
            match self.inbox.recv_timeout(left) {
                Ok(ReplicaCommand::Stop) | Err(RecvTimeoutError::Disconnected) => return true,
                // A waker sends nothing while this flag is set, so a wake-up that leaves it set
                // would be the last.
                Ok(ReplicaCommand::Wake) => self.is_awake.store(false, Release),
                // Dropping a submission closes its channel. Its request is then placed on another
                // replica.
                Ok(
                    ReplicaCommand::Submit(..)
                    | ReplicaCommand::Annotate(..)
                    | ReplicaCommand::Panic,
                ) => {}
                Err(RecvTimeoutError::Timeout) => return false,
            }
        }
    }

    fn serve(&self, engine: &mut Engine, steps: &mut u64) -> LoopEnd {
        // Dropped when the engine panics, which closes the channels of all its requests.
        let mut clients = Clients::new();
        let (mut was_busy, mut check_at) = (true, Nanos(0));
        let mut save_at = self.clock.now() + SAVE_PERIOD;
        loop {
            if let Some(tables) = &self.hooks.tables
                && self.clock.now() >= save_at
            {
                save_at = self.clock.now() + SAVE_PERIOD;
                tables.save_later(engine.learned_tables());
            }
            if engine.is_idle() {
                // Once after work: it looks at everything that is held.
                if was_busy && self.clock.now() >= check_at {
                    was_busy = false;
                    check_at = self.check(engine);
                }
                self.status.report(engine);
                // Nothing can change before a command comes or a transfer ends, and a transfer
                // sends a wake-up.
                match self.inbox.recv_timeout(IDLE_PAUSE) {
                    Ok(ReplicaCommand::Stop) | Err(RecvTimeoutError::Disconnected) => {
                        engine.rest();
                        return LoopEnd::Stopped;
                    }
                    Ok(command) => self.obey(command, engine, &mut clients),
                    Err(RecvTimeoutError::Timeout) => {
                        engine.rest();
                        self.look_round(engine);
                        continue;
                    }
                }
            }
            // All waiting commands before a step, so that new requests join this batch rather than
            // the next.
            while let Ok(command) = self.inbox.try_recv() {
                if matches!(command, ReplicaCommand::Stop) {
                    return LoopEnd::Stopped;
                }
                self.obey(command, engine, &mut clients);
            }
            // Before the step, which would compute tokens that no client reads.
            self.cancel_abandoned(engine, &mut clients);
            let began = self.clock.now();
            let step = engine.step(began);
            engine.took(&step, self.clock.now().since(began).as_secs_f64());
            *steps += 1;
            let is_empty = step.is_empty;
            was_busy |= !is_empty;
            // Events before outputs: a client that has its answer may send the next turn at once.
            // Its router should know the blocks by then.
            self.publish(step.events);
            self.status.report(engine);
            step.outputs.into_iter().for_each(|output| tell(output, &mut clients));
            // An empty step means that all sequences wait for loads, and another step would do
            // nothing either.
            if is_empty && self.rest(engine, &mut clients) {
                return LoopEnd::Stopped;
            }
        }
    }

    /// Asserts the engine's invariants. Returns when to do so again at the earliest.
    fn check(&self, engine: &Engine) -> Nanos {
        let began = self.clock.now();
        engine.check();
        let ended = self.clock.now();
        ended + ended.since(began) * CHECK_PAUSE
    }

    /// Sleeps while all sequences wait for loads, until one is loaded or too late, or a command
    /// comes. Returns true if the thread is to stop.
    fn rest(&self, engine: &mut Engine, clients: &mut Clients) -> bool {
        let now = self.clock.now();
        let Some(until) = engine.waits_until(now) else {
            return false;
        };
        // At least ten turns a second, so that clients that went away are noticed during a long
        // load.
        let pause = until.since(now).min(IDLE_PAUSE);
        match self.inbox.recv_timeout(pause) {
            Ok(ReplicaCommand::Stop) | Err(RecvTimeoutError::Disconnected) => return true,
            Ok(command) => self.obey(command, engine, clients),
            Err(RecvTimeoutError::Timeout) => {}
        }
        false
    }

    fn obey(&self, command: ReplicaCommand, engine: &mut Engine, clients: &mut Clients) {
        match command {
            ReplicaCommand::Wake => {
                // Cleared before the look: a transfer that ends during the look sends another
                // wake-up.
                self.is_awake.store(false, Release);
                self.look_round(engine);
            }
            ReplicaCommand::Submit(submission, client) => {
                let id = submission.id;
                match engine.submit(submission, self.clock.now()) {
                    Submit::Queued => {
                        clients.insert(id, client);
                    }
                    refused => {
                        // The channel is new and has room, so this fails only if the client is
                        // gone.
                        let _ = client.try_send(ReplicaEvent::Refused(refused));
                    }
                }
            }
            ReplicaCommand::Annotate(seq, p_continue) => {
                // A sequence without a client has ended or was cancelled: the prediction came too
                // late.
                let is_there = clients.contains_key(&seq);
                if is_there {
                    engine.annotate(seq, p_continue);
                }
                let status = &self.status;
                let count = if is_there { &status.annotated } else { &status.late };
                count.fetch_add(1, Relaxed);
            }
            ReplicaCommand::Panic => panic!("a panic was injected"),
            // The callers take this command before they call; only the type requires the arm.
            ReplicaCommand::Stop => {}
        }
    }

    fn cancel_abandoned(&self, engine: &mut Engine, clients: &mut Clients) {
        clients.retain(|&seq, client| {
            // A dropped receiver is the only sign that a client went away.
            let is_there = !client.is_closed();
            if !is_there {
                engine.cancel(seq, self.clock.now());
            }
            is_there
        });
    }

    fn look_round(&self, engine: &mut Engine) {
        let events = engine.look_round(self.clock.now());
        self.publish(events);
    }

    fn publish(&self, events: Vec<CacheEvent>) {
        // A tier that loses everything reports it in one turn, which may be too much for one
        // message.
        batches(events).into_iter().for_each(&self.hooks.publish);
    }

    fn set_health(&self, health: Health) {
        self.status.down.store(health == Health::Down, Relaxed);
        (self.hooks.health)(health);
    }
}

fn waker(commands: SyncSender<ReplicaCommand>, is_awake: Arc<AtomicBool>) -> ReplicaWaker {
    Arc::new(move || {
        if !is_awake.swap(true, AcqRel) && commands.try_send(ReplicaCommand::Wake).is_err() {
            // The thread has enough to do to look by itself.
            is_awake.store(false, Release);
        }
    })
}
