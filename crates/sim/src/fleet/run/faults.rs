//! Faults of a run: dead replicas and gateways, and their successors.

use super::*;

impl FleetRun<'_> {
    pub(super) fn fail(&mut self, fault: Fault) {
        match fault {
            Fault::Crash { replica, down, .. } => {
                // A dead replica cannot die again, and returns once.
                if self.replicas[replica].is_alive {
                    self.crash(replica);
                    self.timeline.add(self.now + down, FleetEvent::Return(replica));
                }
            }
            // One that is down already does not die again.
            Fault::GatewayRestart { gateway, .. } if self.gateways[gateway].up_at > self.now => {}
            Fault::GatewayRestart { gateway, down, .. } => {
                self.lose_gateway(gateway);
                let up_at = self.now + down;
                self.gateways[gateway].up_at = up_at;
                self.timeline.add(up_at, FleetEvent::GatewayUp(gateway));
            }
        }
    }

    /// A replica dies: requests without a token go to another one, those with are lost.
    fn crash(&mut self, replica: usize) {
        self.replicas[replica].is_alive = false;
        // The connection breaks at once. That the replica is dead is noticed later.
        for gateway in 0..self.gateways.len() {
            self.deliver(gateway, replica, Heard::Disconnected);
        }
        let at = self.now + self.config.network.notice;
        self.timeline.add(at, FleetEvent::Notice(replica));
        for (seq, flight) in self.take_flights(|flight| flight.replica == replica) {
            self.gateways[flight.gateway].gateway.on_end(seq, self.now);
            if flight.has_token {
                // The client already has a part of the answer, so the request is not sent again.
                self.collected().failed += 1;
                self.close(flight.position);
            } else {
                self.collected().retried += 1;
                let excluded = vec![ReplicaId(replica as u32)];
                self.route(flight.position, flight.gateway, flight.served, excluded);
            }
        }
    }

    pub(super) fn return_replica(&mut self, replica: usize) {
        let old = &self.replicas[replica];
        let preemptions = old.preemptions + old.replica.preemptions();
        // The number of the process sets its steps and batches apart from its predecessor's.
        let mut seat = self.new_replica(replica, old.life + 1);
        seat.preemptions = preemptions;
        self.replicas[replica] = seat;
        let at = self.now + self.config.network.notice;
        self.timeline.add(at, FleetEvent::Notice(replica));
    }

    /// Gateways find out whether a replica serves.
    pub(super) fn notice(&mut self, replica: usize) {
        let id = ReplicaId(replica as u32);
        let health = if self.replicas[replica].is_alive { Health::Healthy } else { Health::Down };
        for gateway in 0..self.gateways.len() {
            let seat = &mut self.gateways[gateway];
            seat.gateway.on_health(id, health, self.now);
            // A new connection comes with the news, and its replay shows the new process.
            if health == Health::Healthy && seat.gateway.is_told() {
                self.deliver(gateway, replica, Heard::Connected);
            }
        }
    }

    /// A gateway dies: all that went through it is lost, and its clients go on.
    fn lose_gateway(&mut self, gateway: usize) {
        for (seq, flight) in self.take_flights(|flight| flight.gateway == gateway) {
            self.gateways[gateway].gateway.on_end(seq, self.now);
            // The step on its way cannot be stopped, so the request ends after it.
            self.replicas[flight.replica].unwanted.push(seq);
            self.collected().failed += 1;
            self.close(flight.position);
        }
    }

    pub(super) fn gateway_up(&mut self, gateway: usize) {
        let life = self.gateways[gateway].life + 1;
        let mut seat = self.new_gateway(gateway, life);
        for (number, replica) in self.replicas.iter().enumerate() {
            if !replica.is_alive {
                let id = ReplicaId(number as u32);
                // A new gateway must not send requests to a replica that is known to be dead.
                seat.gateway.on_health(id, Health::Down, self.now);
            }
        }
        self.gateways[gateway] = seat;
        self.connect_all(gateway);
    }

    /// Takes requests out of those on their way, in the order of their names.
    fn take_flights(
        &mut self,
        is_meant: impl Fn(&InFlightRequest) -> bool,
    ) -> Vec<(SeqId, InFlightRequest)> {
        let meant = self.in_flight.extract_if(|_, flight| is_meant(flight));
        let mut taken: Vec<_> = meant.collect();
        // A hash map has no order, and the same seed must give the same run.
        taken.sort_by_key(|(seq, _)| *seq);
        taken
    }
}
