"""What an agent's requests came to: replicas that changed, predictions that were wrong."""

from dataclasses import dataclass, field

from engines import BLOCK_SIZE, MAX_BATCHED_TOKENS


@dataclass
class Sent:
    """One answered request."""

    conversation: int
    turn: int
    agent: int
    request_id: str
    request: dict
    replica: int
    usage: dict
    # Requests under way at each replica when this one was sent, as far as their replica is known.
    at_replicas: dict = field(default_factory=dict)
    # Requests of the same agent that were under way at any time during this one.
    beside: int = 0
    record: dict | None = None

    @property
    def realised(self):
        """Cached tokens, by the engine."""
        return (self.usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0

    @property
    def prompt_tokens(self):
        """Length of the prompt, by the engine."""
        return self.usage["prompt_tokens"]

    def __str__(self):
        return f"conversation {self.conversation} turn {self.turn} (agent {self.agent})"


def wrong_because(sent):
    """Why the prediction was not what the engine found; none if it was."""
    if sent.record is None:
        return "the gateway has no record of it"
    predicted, realised = sent.record["predicted_cached_tokens"], sent.realised
    length = sent.record["prompt_tokens"]
    if length != sent.prompt_tokens:
        return f"other tokens: {length} at the gateway, {sent.prompt_tokens} at the engine"
    if predicted is None:
        return "not predicted: routed by its text"
    if predicted == realised:
        return None
    if is_whole(sent) and realised == predicted - BLOCK_SIZE:
        return None
    if realised > predicted:
        beside = "computed beside it" if sent.beside else "nothing of its agent beside it"
        return f"the engine found more ({beside})"
    return "the engine found less"


def is_whole(sent):
    """Whether all blocks of a prompt of whole blocks are predicted. vLLM computes the last token
    in any case, so it finds one block less."""
    predicted = sent.record["predicted_cached_tokens"]
    return predicted == sent.prompt_tokens and predicted % BLOCK_SIZE == 0


def moves(requests, max_sequences, is_evicting):
    """(request, the one before it, why that is excused) for each change of replica.

    Excused is a move from a saturated replica, and, where blocks are evicted, one to a replica that
    holds no less of the prompt. A replica is saturated that has as many requests as it computes at
    once, or more prompt tokens in front than it computes in one step and than staying saves.
    """
    last, found = {}, []
    for sent in sorted(requests, key=lambda sent: (sent.conversation, sent.turn)):
        before = last.get(sent.conversation)
        last[sent.conversation] = sent
        if before is None or before.replica == sent.replica:
            continue
        excuse = None
        held, ahead = by_replica(sent, "overlap_tokens"), by_replica(sent, "prefill_tokens")
        saved = held.get(before.replica, 0) - held.get(sent.replica, 0)
        if sent.at_replicas.get(before.replica, 0) >= max_sequences:
            excuse = "saturated"
        elif saved >= 0 and ahead.get(before.replica, 0) > MAX_BATCHED_TOKENS + saved:
            excuse = "saturated"
        elif is_evicting and held and held[before.replica] <= held[sent.replica]:
            excuse = "evicted"
        found.append((sent, before, excuse))
    return found


def by_replica(sent, field):
    """A number of each replica at the decision, by the gateway's record."""
    candidates = (sent.record or {}).get("candidates") or []
    return {one["replica"]: one[field] for one in candidates}


@dataclass
class Counted:
    """What the gateway counted: prompts whose tokens it compared with an engine's, prompts without
    tokens, and prompts whose tokens an engine told, the latter two by reason."""

    drift: dict
    without_tokens: dict
    by_engine: dict


@dataclass
class Row:
    """What one phase with one template came to."""

    template: str
    phase: str
    requests: list
    failed: list
    moved: list
    seconds: float
    counted: Counted

    def __post_init__(self):
        judged = [(sent, wrong_because(sent)) for sent in self.requests]
        self.wrong = [(sent, reason) for sent, reason in judged if reason is not None]
        self.faulty_moves = [move for move in self.moved if move[2] is None]

    @property
    def agreeing(self):
        """Share of the requests whose prediction came true."""
        return 1 - len(self.wrong) / max(len(self.requests), 1)

    def complaints(self, share):
        """What is not as it must be."""
        if self.failed:
            yield f"{len(self.failed)} requests failed, such as {self.failed[0]}"
        if self.faulty_moves:
            yield f"{len(self.faulty_moves)} changes of replica"
        if self.phase != "images" and self.agreeing < share:
            yield f"only {self.agreeing:.2%} of the predictions came true"
        if self.phase == "roomy":
            if sum(self.counted.without_tokens.values()):
                yield f"prompts without tokens: {self.counted.without_tokens}"
            if self.counted.drift["differs"]:
                yield f"{self.counted.drift['differs']} prompts differ from the engine's"
            if not self.counted.drift["equal"]:
                yield "no prompt was compared with the engine's tokens"
        if self.phase == "media" and not sum(self.counted.by_engine.values()):
            yield "no prompt was rendered by an engine"

    def cells(self):
        """The cells of its line in the table."""
        tokens = sum(sent.prompt_tokens for sent in self.requests)
        predicted = sum((s.record or {}).get("predicted_cached_tokens") or 0 for s in self.requests)
        realised = sum(sent.realised for sent in self.requests)
        excused = len(self.moved) - len(self.faulty_moves)
        outcomes = ("equal", "differs", "unavailable")
        drift = "/".join(str(self.counted.drift[name]) for name in outcomes)
        return [
            self.template,
            self.phase,
            len(self.requests),
            len(self.failed),
            f"{tokens:,}",
            f"{predicted:,}",
            f"{realised:,}",
            f"{realised / max(tokens, 1):.1%}",
            "" if self.phase == "images" else f"{self.agreeing:.2%}",
            len(self.faulty_moves),
            excused,
            int(sum(self.counted.without_tokens.values())),
            int(sum(self.counted.by_engine.values())),
            drift,
            f"{self.seconds:.0f}",
        ]


HEAD = """\
| template | phase | requests | failed | prompt tokens | predicted | realised | hit rate | agree \
| moves | excused | without tokens | by engine | drift checks | seconds |
|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"""
