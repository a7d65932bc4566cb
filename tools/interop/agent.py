"""Agents in front of two vLLM servers behind a Headstart gateway: do they keep their replica, and
does the gateway know what the engines have cached?

Seeded conversations with tools, parallel calls, odd contents and thinking go through the gateway
with the `openai` package, once per chat template. Prints a Markdown table, and fails where a
conversation changed its replica or predictions were wrong.

    python tools/interop/agent.py [--template FILE]... [--phases roomy,evicting,media] [--images]
"""

import argparse
import json
import random
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import openai
from agent_chats import Conversation, Picture, conversations
from agent_checks import HEAD, Counted, Row, Sent, by_replica, moves
from agent_engine import AgentEngine, make_model
from agent_mock import MockEngine
from gateway import Gateway
from http_json import call, get
from media_engine import MediaEngine, make_media_model

TEMPLATES = Path(__file__).parent / "agent_templates"

# Share of the predictions that must come true, to the token.
AGREEING = 0.99

# Conversations whose requests overlap.
THREADS = 4

# How long a conversation's tools take before its next request.
TOOLS_S = 0.05

# Blocks per engine: all that the conversations ever compute, and too few for that.
ROOMY_BLOCKS, EVICTING_BLOCKS = 16_000, 1_200

# The most records that the gateway keeps.
RECORDS = 4096

# Complaints told per phase, and requests with wrong predictions written to files.
LINES, REQUESTS_KEPT = 12, 5


class Run:
    """The conversations of one phase, on their way through a gateway."""

    def __init__(self, gateway, name, chats, num_turns, seed):
        self.gateway, self.name = gateway, name
        self.rng = random.Random(seed)
        self.client = openai.OpenAI(
            base_url=f"{gateway.url}/v1", api_key="none", timeout=120, max_retries=0
        )
        self.lock = threading.Lock()
        self.num_turns = num_turns
        self.waiting = {chat: 0.0 for chat in chats}  # since when it may go on
        self.under_way = {}  # the conversation → what is noted of its request
        self.replicas = {}  # the conversation → its last replica
        self.requests, self.failed = [], []

    def all(self):
        """Holds all conversations to their end."""
        threads = [threading.Thread(target=self._work) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        url = f"{self.gateway.url}/debug/requests?limit={RECORDS}"
        records = {record["request_id"]: record for record in get(url)["requests"]}
        for sent in self.requests:
            sent.record = records.get(sent.request_id)

    def _work(self):
        while True:
            with self.lock:
                if not self.waiting and not self.under_way:
                    return
                chat = self._next()
            if chat is None:
                time.sleep(0.01)
                continue
            self._one(chat)

    def _next(self):
        now = time.monotonic()
        ready = [chat for chat, since in self.waiting.items() if since <= now]
        if not ready:
            return None
        chat = self.rng.choice(ready)
        del self.waiting[chat]
        at_replicas = {}
        for other in self.under_way:
            replica = self.replicas.get(other)
            at_replicas[replica] = at_replicas.get(replica, 0) + 1
        beside = [other for other in self.under_way if other.agent is chat.agent]
        for other in beside:
            self.under_way[other]["beside"] += 1
        self.under_way[chat] = {"at_replicas": at_replicas, "beside": len(beside)}
        return chat

    def _one(self, chat):
        request_id = f"{self.name}-{chat.number}-{chat.turn}"
        request = chat.request()
        try:
            replica, usage = self._send(request, request_id)
            failure = None
        except openai.OpenAIError as error:
            failure = f"conversation {chat.number} turn {chat.turn}: {error}"
        with self.lock:
            noted = self.under_way.pop(chat)
            if failure is None:
                who = chat.number, chat.turn, chat.agent.number, request_id
                self.requests.append(Sent(*who, request, replica, usage, **noted))
                self.replicas[chat] = replica
            else:
                self.failed.append(failure)
            chat.go_on()
            if chat.turn < self.num_turns:
                self.waiting[chat] = time.monotonic() + TOOLS_S

    def _send(self, request, request_id):
        headers = {"x-request-id": request_id}
        create = self.client.chat.completions.with_raw_response.create
        answer = create(**request, extra_headers=headers)
        replica = int(answer.headers["x-headstart-replica"])
        if not request.get("stream"):
            return replica, answer.parse().usage.model_dump()
        usage = None
        for chunk in answer.parse():
            usage = chunk.usage or usage
        return replica, usage.model_dump()


def hold(options, name, gateway, chats, num_turns):
    """Holds conversations through a gateway that starts; a line of the table."""
    template, phase = name
    gateway.start()
    began = time.monotonic()
    run = Run(gateway, f"{template}-{phase}", chats, num_turns, options.seed)
    run.all()
    seconds = time.monotonic() - began
    write_state(gateway, gateway.log.parent)
    moved = moves(run.requests, AgentEngine.max_sequences, phase == "evicting")
    drift = {
        outcome: int(gateway.metric("headstart_prompt_drift_checks_total", outcome=outcome))
        for outcome in ("equal", "differs", "unavailable")
    }
    without = gateway.by_label("headstart_prompts_without_tokens_total", "reason")
    rendered = gateway.by_label("headstart_prompts_rendered_by_engine_total", "reason")
    counted = Counted(drift, without, rendered)
    return Row(template, phase, run.requests, run.failed, moved, seconds, counted)


def run_phase(options, template, phase, folder):
    """One phase with one template before two vLLM servers."""
    blocks = EVICTING_BLOCKS if phase == "evicting" else ROOMY_BLOCKS
    # Half of both fills the few blocks several times over.
    part = 2 if phase == "evicting" else 1
    model = folder / "model"
    kind, make, chat = AgentEngine, make_model, Conversation
    if phase == "media":
        kind, make, chat = MediaEngine, make_media_model, Picture
    make(model, template)
    engines = [kind(f"vllm-{n}", str(model), blocks, folder) for n in range(2)]
    ports = [engine.events_port for engine in engines]
    gateway = Gateway(options.headstart, engines, ports, model, folder / "gateway.log")
    chats = conversations(options.seed, options.conversations // part, options.agents, chat)
    try:
        for engine in engines:
            engine.process.start()
        for engine in engines:
            engine.process.wait_until_up()
        return hold(options, (template.stem, phase), gateway, chats, options.turns // part)
    finally:
        for process in [gateway.process, *(engine.process for engine in engines)]:
            process.kill()


def run_images(options, template, folder):
    """Conversations with an image before two servers that take any: only where they go counts."""
    model = folder / "model"
    make_model(model, template)
    engines = [MockEngine() for _ in range(2)]
    ports = [engine.events_port for engine in engines]
    log = folder / "gateway.log"
    gateway = Gateway(options.headstart, engines, ports, model, log, can_replay=False)
    chats = conversations(options.seed, options.conversations, options.agents, Picture)
    try:
        return hold(options, (template.stem, "images"), gateway, chats, options.turns)
    finally:
        gateway.process.kill()
        for engine in engines:
            engine.kill()


def tell(row, limit, folder):
    """Says which requests were not as they should be, and writes the first of them to files."""
    if row.phase != "images":
        for sent, _ in row.wrong[:REQUESTS_KEPT]:
            (folder / f"{sent.request_id}.json").write_text(json.dumps(sent.request, indent=1))
    lines = [f"failed: {failure}" for failure in row.failed]
    for sent, before, excuse in row.moved:
        held, ahead = by_replica(sent, "overlap_tokens"), by_replica(sent, "prefill_tokens")
        held = ", ".join(f"{held[one]} at {one}, {ahead[one]} in front" for one in sorted(held))
        lines.append(
            f"moved: {sent}: replica {before.replica} to {sent.replica}"
            f" ({excuse or 'no excuse'}; prompt {sent.prompt_tokens}, held {held or 'unknown'};"
            f" under way {sent.at_replicas})"
        )
    for sent, reason in [] if row.phase == "images" else row.wrong:
        predicted = (sent.record or {}).get("predicted_cached_tokens")
        lines.append(
            f"wrong: {sent}: predicted {predicted}, realised {sent.realised}"
            f" of {sent.prompt_tokens}: {reason}"
        )
    (folder / "complaints.txt").write_text("".join(f"{line}\n" for line in lines))
    for line in lines[:limit]:
        print(f"{row.template} {row.phase}: {line}", file=sys.stderr)
    if len(lines) > limit:
        print(f"{row.template} {row.phase}: {len(lines) - limit} more", file=sys.stderr)


def write_state(gateway, folder):
    """What the gateway knows and has counted, to find a reason with."""
    (folder / "metrics.txt").write_text(call(f"{gateway.url}/metrics")[1])
    (folder / "index.json").write_text(json.dumps(gateway.state(), indent=1))


def main():
    # The servers are ended also where this is.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside"))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--headstart", default="target/release/headstart")
    parser.add_argument("--template", type=Path, action="append", help="repeatable; own ones else")
    parser.add_argument("--phases", default="roomy,evicting", help="some of them")
    parser.add_argument("--images", action="store_true", help="only the phase of images: no vLLM")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--conversations", type=int, default=20)
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--agents", type=int, default=4, help="who share system prompts and tools")
    parser.add_argument("--logs", type=Path, help="folder for logs; a temporary one if not given")
    parser.add_argument("--lines", type=int, default=LINES, help="most complaints told per phase")
    options = parser.parse_args()
    folder = options.logs or Path(tempfile.mkdtemp(prefix="headstart-agent-"))
    rows, complaints = [], []
    for template in options.template or sorted(TEMPLATES.glob("*.jinja")):
        for phase in ["images"] if options.images else options.phases.split(","):
            own = folder / f"{template.stem}-{phase}"
            own.mkdir(parents=True, exist_ok=True)
            if phase == "images":
                row = run_images(options, template, own)
            else:
                row = run_phase(options, template, phase, own)
            rows.append(row)
            tell(row, options.lines, own)
            complaints += [f"{row.template} {phase}: {one}" for one in row.complaints(AGREEING)]
    print(HEAD)
    for row in rows:
        print("| " + " | ".join(map(str, row.cells())) + " |")
    for complaint in complaints:
        print(f"WRONG: {complaint}")
    print(f"logs in {folder}" if complaints else "all as it must be")
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
