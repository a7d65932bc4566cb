"""Servers, users and what befalls them."""

import random
import sys
import threading
import time

from chats import Chats
from engines import BLOCK_SIZE, Engine
from gateway import Gateway
from http_json import Refused
from judge import Judge
from measure import Counts, seen, stream_counts
from proxy import Proxy
from table import Phase

# Chats at once in the phase of many.
THREADS = 4

# Longest wait for the gateway to compare its prompts with an engine's.
CHECK_S = 20

# What begins with this token, which is no word, is sent by nobody else.
FIRST_OF_TWINS = 2


class World:
    """Everything that runs."""

    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.rng = random.Random(options.seed)
        self.chats = Chats(options.seed)
        self.lock = threading.Lock()
        self.rows, self.requests = [], []
        self.engines = [
            Engine(f"vllm-{n}", options.model, options.blocks, folder) for n in range(2)
        ]
        self.proxies = [Proxy(engine.events_port) for engine in self.engines]
        self.gateway = self._gateway(options.model, "gateway.log")
        can_replay = not options.no_replay
        self.judge = Judge(self.gateway, self.engines, self.rng, can_replay)

    def _gateway(self, tokenizer, log):
        ports = [proxy.port for proxy in self.proxies]
        binary = self.options.headstart
        log = self.folder / log
        return Gateway(binary, self.engines, ports, tokenizer, log, not self.options.no_replay)

    def start(self):
        """Starts all, engines first."""
        for engine in self.engines:
            engine.process.start()
        for engine in self.engines:
            engine.process.wait_until_up()
        self.gateway.start()

    def stop(self):
        """Ends all."""
        for process in [self.gateway.process, *(engine.process for engine in self.engines)]:
            process.kill()

    # Traffic

    def converse(self, phase, num_requests):
        """Chats one after the other, each with its prediction."""
        start = Counts.of(self.gateway)
        last = start
        for _ in range(num_requests):
            usage = self._one(phase)
            now = Counts.of(self.gateway)
            if usage is not None:
                self.requests.append(
                    {
                        "phase": phase.name,
                        **usage,
                        "predicted": int((now - last).predicted),
                        "realised": int((now - last).realised),
                    }
                )
            last = now
        phase.counts += last - start

    def converse_together(self, phase, num_requests):
        """Several chats at once."""
        start = Counts.of(self.gateway)
        each = num_requests // THREADS

        def work():
            for _ in range(each):
                self._one(phase)

        threads = [threading.Thread(target=work) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        phase.counts += Counts.of(self.gateway) - start

    def _one(self, phase):
        with self.lock:
            user, body = self.chats.next()
        try:
            replica, message, usage = self.gateway.chat(body)
        except Refused:
            with self.lock:
                phase.failed += 1
                self.chats.lost(user)
            return None
        with self.lock:
            phase.counts.prompt_tokens += usage["prompt_tokens"]
            self.chats.answered(user, body, message, usage["prompt_tokens"])
        return {"replica": replica, "prompt_tokens": usage["prompt_tokens"]}

    # Phases

    def run(self, name, act):
        """One phase, and the comparison behind it."""
        began = time.monotonic()
        phase = Phase(name)
        before = stream_counts(self.gateway, len(self.engines))
        act(phase)
        self.judge.compare(phase.verdict)
        after = stream_counts(self.gateway, len(self.engines))
        phase.seen = seen(before, after)
        self.judge.probe(phase.verdict, self.chats.sent, self.options.probes)
        self.rows.append(phase)
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
        for complaint in phase.verdict.complaints:
            print(f"{name}: WRONG: {complaint}", file=sys.stderr)

    def steady(self, phase):
        """Nothing happens."""
        self.converse(phase, 2 * self.options.requests)

    def together(self, phase):
        """Requests overlap."""
        self.converse_together(phase, 2 * self.options.requests)

    def engine_killed(self, phase):
        """One engine dies in the middle and comes back empty."""
        self.converse(phase, self.options.requests // 2)
        self.engines[0].kill()
        self.converse(phase, self.options.requests)
        self.engines[0].restart()
        self.engines[0].process.wait_until_up()
        self.converse(phase, self.options.requests)

    def gateway_killed(self, phase):
        """The gateway dies and knows only what it is replayed."""
        self.gateway.kill()
        self.gateway.start()
        self.judge.compare(phase.verdict)
        self.converse(phase, self.options.requests)

    def gap(self, phase):
        """Messages of one engine vanish on the way."""
        proxy = self.proxies[1]
        proxy.mode = "drop"
        before = proxy.dropped
        while proxy.dropped < before + self.options.requests // 2:
            self.converse(phase, 2)
            self.judge.nudge(1)
        proxy.mode = "pass"
        self.converse(phase, self.options.requests // 2)
        self.judge.nudge(1)

    def cut(self, phase):
        """Both streams are cut for a while."""
        for proxy in self.proxies:
            proxy.mode = "refuse"
        self.converse(phase, self.options.requests)
        for proxy in self.proxies:
            proxy.mode = "pass"
        self.converse(phase, self.options.requests // 2)

    def noise(self, phase):
        """Messages come twice, and late."""
        for proxy in self.proxies:
            proxy.mode = "noise"
        self.converse(phase, 2 * self.options.requests)
        for proxy in self.proxies:
            proxy.mode = "pass"
        for number in range(len(self.engines)):
            self.judge.nudge(number)

    def cleared(self, phase):
        """One engine drops its cache."""
        self.converse(phase, self.options.requests // 2)
        self.engines[0].clear()
        self.judge.nudge(0)
        self.converse(phase, self.options.requests // 2)

    def twins(self, phase):
        """One engine holds a block twice, and one of the two is evicted."""
        engine = self.engines[0]
        more = 3 * BLOCK_SIZE - 1
        prompt = [FIRST_OF_TWINS] + [self.rng.randrange(256, 4000) for _ in range(more)]
        key = engine.mirror.hasher.chain(prompt)[-1]
        for _ in range(2):
            engine.cached_tokens(prompt)
        engine.mirror.catch_up()
        assert engine.mirror.copies(key) == 2, "vLLM did not keep two copies of a block"
        longer = prompt + [self.rng.randrange(256, 4000) for _ in range(40)]
        while engine.mirror.copies(key) == 2:
            # The longer prompt keeps the first copy in use while new blocks push out the second.
            engine.cached_tokens(longer)
            for _ in range(4):
                self.judge.nudge(0)
            engine.mirror.catch_up()
        self.judge.probe_one(phase.verdict, 0, longer)

    # The self-check

    def drift(self):
        """What the gateway says of its prompts, and what one with another template says."""
        right = self._drift(self.gateway)
        other = self._gateway(self.options.other_template, "other-gateway.log")
        other.start()
        try:
            for _ in range(4):
                _, body = self.chats.next()
                other.chat(body)
            end = time.monotonic() + CHECK_S
            while not self._drift(other)["differs"] and time.monotonic() < end:
                time.sleep(0.2)
            wrong = self._drift(other)
        finally:
            other.kill()
        lines = other.log.read_text(errors="replace").splitlines()
        told = [line for line in lines if "the engine makes other tokens" in line]
        return right, wrong, told

    @staticmethod
    def _drift(gateway):
        name = "headstart_prompt_drift_checks_total"
        return {
            outcome: int(gateway.metric(name, outcome=outcome))
            for outcome in ("equal", "differs", "unavailable")
        }
