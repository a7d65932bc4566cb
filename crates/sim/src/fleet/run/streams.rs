//! The event streams' way: published, lost or delivered, asked for again.

use super::*;
use headstart_router::stream::StreamBatch;

impl FleetRun<'_> {
    /// Sends a batch to all gateways that listen; some of it gets lost.
    pub(super) fn publish(&mut self, replica: usize, batch: Arc<StreamBatch>) {
        for gateway in 0..self.gateways.len() {
            let seat = &self.gateways[gateway];
            let is_there = seat.gateway.is_told() && seat.up_at <= self.now;
            let loss = self.config.network.event_loss;
            // Without losses no draw is made, so a calm run does not depend on its number of
            // batches.
            if is_there && !(loss > 0.0 && self.rng.next_f64() < loss) {
                self.deliver(gateway, replica, Heard::Live(batch.clone()));
            }
        }
    }

    /// Has something come to a gateway over a replica's stream.
    pub(super) fn deliver(&mut self, gateway: usize, replica: usize, heard: Heard) {
        let at = self.now + self.config.network.event_delay;
        let life = self.gateways[gateway].life;
        let heard = FleetEvent::Heard { gateway, life, replica, heard };
        self.timeline.add(at, heard);
    }

    /// A gateway connects to the streams of all replicas that live.
    pub(super) fn connect_all(&mut self, gateway: usize) {
        for replica in 0..self.replicas.len() {
            if self.replicas[replica].is_alive && self.gateways[gateway].gateway.is_told() {
                self.deliver(gateway, replica, Heard::Connected);
            }
        }
    }

    pub(super) fn hear(&mut self, gateway: usize, life: u32, replica: usize, heard: Heard) {
        let seat = &mut self.gateways[gateway];
        // It was sent to a process that is dead.
        if seat.life != life {
            return;
        }
        let id = ReplicaId(replica as u32);
        if matches!(heard, Heard::Time) {
            if seat.timers[replica] != Some(self.now) {
                // An earlier time was planned since.
                return;
            }
            seat.timers[replica] = None;
        }
        let asked = seat.gateway.hear(id, heard, self.now);
        if let Some(due) = seat.gateway.due(id)
            // Only an earlier time is planned: the later one is still in the queue.
            && seat.timers[replica].is_none_or(|planned| due < planned)
        {
            // Not at once: what is due now was just told the time.
            let at = due.max(self.now + TICK);
            seat.timers[replica] = Some(at);
            let heard = FleetEvent::Heard { gateway, life, replica, heard: Heard::Time };
            self.timeline.add(at, heard);
        }
        if let Some(ReplayRequest { replay, from }) = asked {
            let at = self.now + self.config.network.event_delay;
            let asked = FleetEvent::Asked { gateway, life, replica, replay, from };
            self.timeline.add(at, asked);
        }
    }

    /// A replica's publisher answers; a dead one does not.
    pub(super) fn answer_replay(
        &mut self,
        gateway: usize,
        life: u32,
        replica: usize,
        ReplayRequest { replay, from }: ReplayRequest,
    ) {
        let seat = &self.replicas[replica];
        // Neither a dead publisher nor a dead asker continues a replay.
        if !seat.is_alive || self.gateways[gateway].life != life {
            return;
        }
        let batches: Vec<_> = seat.publisher.replay(from).collect();
        for batch in batches {
            self.deliver(gateway, replica, Heard::Reply(replay, batch));
        }
        self.deliver(gateway, replica, Heard::End(replay));
    }
}
