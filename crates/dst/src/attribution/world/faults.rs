//! Replicas that lose all they hold, whatever runs there: caches that are cleared, with an event,
//! and processes that end, without one.

use std::time::Duration;

use headstart_core::ReplicaId;
use headstart_router::Health;

use super::{World, WorldEvent};

impl World {
    pub(super) fn fault(&mut self) {
        let replica = self.rng.below(self.config.replicas);
        // One replica at a time: the others must have room for its requests.
        if self.replicas.iter().all(|replica| replica.is_up) {
            let [cleared, ended] = self.verdicts.resets;
            // In turn, so that both kinds of reset happen equally often.
            if cleared <= ended {
                self.clear(replica);
            } else {
                self.crash(replica);
            }
        }
        if self.begun < self.config.sessions {
            let next = self.around(self.config.resets);
            self.after(next, WorldEvent::Fault);
        }
    }

    /// Clears a cache: the prompt being computed starts over, and the current answers continue
    /// uncached.
    fn clear(&mut self, replica: usize) {
        self.verdicts.resets[0] += 1;
        for id in std::mem::take(&mut self.replicas[replica].answering) {
            // The lease goes before the cache is cleared, which expects that nothing runs.
            drop(self.requests[id].running.take());
            self.replicas[replica].answering.push(id);
        }
        if let Some(id) = self.stop_computing(replica) {
            self.oracle.waits(replica, &self.requests[id].named.nodes);
            // To the front: it had its turn already.
            self.replicas[replica].waiting.push_front(id);
        }
        let engine = &mut self.replicas[replica].engine;
        engine.clear(&mut self.oracle, self.now);
        // Announced before the next prompt starts, so that the clear precedes its blocks.
        self.announce(replica);
        self.start_next(replica);
    }

    /// A process ends: what waits there or is computed the gateway places elsewhere, what is
    /// answered breaks, and its client may ask again.
    fn crash(&mut self, replica: usize) {
        self.verdicts.resets[1] += 1;
        let answering = std::mem::take(&mut self.replicas[replica].answering);
        let waiting = std::mem::take(&mut self.replicas[replica].waiting);
        let computing = self.stop_computing(replica);
        for &id in &waiting {
            self.oracle.waited(replica, &self.requests[id].named.nodes);
        }
        for &id in &answering {
            drop(self.requests[id].running.take());
        }
        // Down before anything is placed, so that nothing is placed here again.
        self.replicas[replica].is_up = false;
        let engine = &mut self.replicas[replica].engine;
        engine.crash(&mut self.oracle, self.now);
        let noticed = self.around(self.config.noticed);
        self.after(noticed, WorldEvent::Probe(replica));
        let restart = Duration::from_secs(1) + self.around(self.config.restart);
        self.after(restart, WorldEvent::Restart(replica));
        for id in answering {
            self.give_up(id);
            if self.rng.below(4) > 0 {
                let order = self.requests[id].order.clone();
                self.ask_again(order, Duration::from_secs(1));
            }
        }
        let unanswered: Vec<_> = computing.into_iter().chain(waiting).collect();
        // All are given up before the first one is placed: the router must not count dead requests.
        for &id in &unanswered {
            self.give_up(id);
        }
        for id in unanswered {
            let mut order = self.requests[id].order.clone();
            // The gateway knows that the connection broke, and tries another replica.
            order.excluded.push(ReplicaId(replica as u32));
            self.place(order);
        }
    }

    /// Takes away the prompt that is computed, and all that was computed of it.
    fn stop_computing(&mut self, replica: usize) -> Option<usize> {
        let id = self.replicas[replica].computing.take()?;
        let request = &mut self.requests[id];
        let running = request.running.take().expect("it is computed");
        for &node in &request.named.nodes[running.device + running.loaded..] {
            self.oracle.computed(node);
        }
        Some(id)
    }

    /// A process is back, and holds nothing.
    pub(super) fn restart(&mut self, replica: usize) {
        let state = &mut self.replicas[replica];
        // The gateway learns of the new process by its first event.
        (state.is_up, state.is_new) = (true, true);
        let noticed = self.around(self.config.noticed);
        self.after(noticed, WorldEvent::Probe(replica));
    }

    /// The gateway looks whether a replica is up.
    pub(super) fn probe(&mut self, replica: usize) {
        self.believe(
            replica,
            if self.replicas[replica].is_up { Health::Healthy } else { Health::Down },
        );
    }

    /// Updates the gateway's view of a replica's health. On a change, what the replica held counts
    /// as lost; its events are ignored while it is down.
    pub(super) fn believe(&mut self, replica: usize, health: Health) {
        let id = ReplicaId(replica as u32);
        if std::mem::replace(&mut self.replicas[replica].health, health) != health {
            self.router.set_health(id, health, self.now);
            self.attributor.cleared(id);
        }
    }
}
