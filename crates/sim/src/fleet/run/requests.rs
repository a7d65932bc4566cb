//! A request's way: sent, routed, served, ended.

use super::*;

impl FleetRun<'_> {
    /// Plans the first request from `position` on that has a time.
    pub(super) fn next_arrival(&mut self, position: usize) {
        let requests = &self.workload.rungs[self.rung].requests;
        let timed = requests.iter().enumerate().skip(position);
        let next = timed.filter_map(|(position, request)| Some((position, request.at?))).next();
        if let Some((position, at)) = next {
            self.timeline.add(self.rung_start + at, FleetEvent::Arrival(position));
        }
    }

    /// A client sends a request whose time has come.
    pub(super) fn send(&mut self, position: usize) {
        self.set_out(position, self.now);
        self.next_arrival(position + 1);
    }

    fn set_out(&mut self, position: usize, sent: Nanos) {
        // Uniform from 0 to twice the mean.
        let share = 2.0 * self.rng.next_f64();
        let latency = self.config.network.request_latency.mul_f64(share);
        let at = sent + latency;
        self.timeline.add(at, FleetEvent::Reach(position, sent));
    }

    /// A request comes to the next gateway that serves, or waits for one.
    pub(super) fn reach(&mut self, position: usize, sent: Nanos) {
        // Counted for each request, so that gateways take turns whichever of them is up.
        self.sent += 1;
        let turns = (0..self.gateways.len()).map(|turn| (self.sent + turn) % self.gateways.len());
        let is_up = |gateway: &usize| self.gateways[*gateway].up_at <= self.now;
        if let Some(gateway) = turns.clone().find(is_up) {
            let request = self.request(position);
            let served = ServedRequest {
                sent,
                prompt_tokens: request.prompt_tokens() as u32,
                answer_tokens: request.answer_tokens,
                ..ServedRequest::default()
            };
            self.route(position, gateway, served, Vec::new());
            return;
        }
        // No gateway is up: the request waits for the first one.
        let up_at = turns.map(|gateway| self.gateways[gateway].up_at).min();
        let up_at = up_at.expect("there is a gateway");
        self.timeline.add(up_at, FleetEvent::Reach(position, sent));
    }

    /// Finds a replica that takes a request; one that is dead refuses at once.
    pub(super) fn route(
        &mut self,
        position: usize,
        gateway: usize,
        served: ServedRequest,
        mut excluded: Vec<ReplicaId>,
    ) {
        let request = self.request(position);
        let index = self.gateways[gateway].gateway.index();
        let prompt = self.prompts.get(&request.prompt, index);
        loop {
            let router = &mut self.gateways[gateway].gateway;
            let Ok(decision) = router.route(request, &prompt, &excluded, self.now) else {
                return self.refuse(position);
            };
            let replica = decision.replica.0 as usize;
            // The router believes that it lives. The connection fails at once, and it tries
            // another.
            if !self.replicas[replica].is_alive {
                router.on_end(request.seq, self.now);
                excluded.push(decision.replica);
                continue;
            }
            let submit = self.replicas[replica].replica.submit(request, &prompt.tokens, self.now);
            if submit != Submit::Queued {
                router.on_end(request.seq, self.now);
                // A full queue is an answer, not a fault: the gateway passes it to the client.
                return self.refuse(position);
            }
            let predicted_tokens = decision.overlap_tokens as u32;
            let flight = InFlightRequest {
                position,
                gateway,
                replica,
                predicted_tokens,
                served,
                has_token: false,
            };
            self.in_flight.insert(request.seq, flight);
            return self.begin_step(replica);
        }
    }

    fn refuse(&mut self, position: usize) {
        self.collected().refused += 1;
        self.close(position);
    }

    pub(super) fn begin_step(&mut self, replica: usize) {
        let seat = &mut self.replicas[replica];
        if let Some(end) = seat.replica.begin(self.now) {
            let life = seat.life;
            self.timeline.add(end, FleetEvent::Step { replica, life });
        }
    }

    pub(super) fn end_step(&mut self, replica: usize, life: u32) {
        let seat = &mut self.replicas[replica];
        // The step of a process that died in it has no end.
        if seat.life != life || !seat.is_alive {
            return;
        }
        self.steps += 1;
        let done = seat.replica.end(self.now);
        // After the end of the step, because a running step cannot be changed.
        for seq in std::mem::take(&mut seat.unwanted) {
            seat.replica.cancel(seq, self.now);
        }
        // Between two rungs only what was given up is still computed.
        if let Some(collected) = self.collected.get_mut(self.rung)
            && self.now.since(self.rung_start).as_secs_f64() <= collected.seconds
        {
            collected.window_tokens += done.tokens as u64;
        }
        for output in done.outputs {
            self.note(output, done.began);
        }
        if !done.events.is_empty() {
            let batch = self.replicas[replica].publisher.publish(done.events, self.now);
            self.publish(replica, batch);
        }
        self.begin_step(replica);
    }

    fn note(&mut self, output: Output, began: Nanos) {
        let seq = output.seq();
        // A request that is not there any more was given up during the step.
        let Some(flight) = self.in_flight.get_mut(&seq) else {
            return;
        };
        match output {
            Output::Started { cached_tokens, .. } => {
                flight.served.started = Some(began);
                let cached = cached_tokens as u32;
                flight.served.cached_tokens = cached;
                flight.served.lost_tokens = flight.predicted_tokens.saturating_sub(cached);
                let prompt_tokens = flight.served.prompt_tokens;
                // By the time at which it began: recovery is about what the cache had then.
                self.by_second.record(began, prompt_tokens, cached);
            }
            Output::Loaded { tokens, .. } => flight.served.cached_tokens += tokens as u32,
            // What came was told as loaded.
            Output::Partly { .. } => {}
            Output::Token { finish, .. } => {
                if !flight.has_token {
                    flight.has_token = true;
                    flight.served.first_token = self.now;
                    self.gateways[flight.gateway].gateway.on_first_token(seq, self.now);
                }
                if finish.is_some() {
                    self.end(seq);
                }
            }
        }
    }

    fn end(&mut self, seq: SeqId) {
        let mut flight = self.in_flight.remove(&seq).expect("it is on its way");
        self.gateways[flight.gateway].gateway.on_end(seq, self.now);
        flight.served.ended = self.now;
        self.collected().served.push(flight.served);
        self.close(flight.position);
    }

    /// Closes a request, whatever its end; the client continues.
    pub(super) fn close(&mut self, position: usize) {
        // A user continues whether the request was answered, refused or lost.
        if let Some(next) = self.request(position).next {
            let at = self.now + next.think;
            self.timeline.add(at, FleetEvent::Follow(next.request as usize));
        }
        self.open -= 1;
        if self.open == 0 {
            self.end_rung();
        }
    }

    /// A client sends the request that follows another one.
    pub(super) fn follow(&mut self, position: usize) {
        self.set_out(position, self.now);
    }
}
