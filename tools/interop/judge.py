"""Is the gateway's index what the engines hold? Three accounts of one cache are compared:

| account | from |
|---|---|
| the index | `headstart index dump` |
| the events | the engine's replay socket, read by `mirror.py` |
| the engine | the cached tokens that it reports for a probe |

The first two are compared block for block, the first and the last prompt for prompt.

A block of which the engine has dropped one of several copies may be in doubt, because events do
not tell copies from repetitions. Whatever else the engine holds must be confirmed in the index, and
nothing else may be. Without replays the index may miss blocks, but still not make any up.
"""

import time
from dataclasses import dataclass, field

from engines import BLOCK_SIZE

# Longest wait for a stream to be complete again. A gap behind which nothing more is sent is noticed
# after 30 s of silence.
SETTLE_S = 90

# An index that differs although its stream is complete has this long to catch up.
LAG_S = 3

# No word is this token, so that what begins with it was never sent before.
FIRST_BYTE = 1


@dataclass
class Verdict:
    """What came of the comparisons of one phase."""

    blocks: int = 0
    missing: int = 0
    extra: int = 0
    in_doubt: int = 0
    probes: int = 0
    probes_right: int = 0
    complaints: list = field(default_factory=list)

    @property
    def is_right(self):
        """Whether nothing differed."""
        return not self.complaints

    def complain(self, text):
        """Takes note of a difference."""
        self.complaints.append(text)


@dataclass
class Difference:
    """How the index differs from the events of one engine."""

    state: str
    missing: set
    extra: set
    in_doubt: set

    @property
    def is_none(self):
        """Whether the two agree."""
        return self.state == "complete" and not self.missing and not self.extra

    def is_allowed(self, can_replay):
        """Whether the index is as right as it can be."""
        return self.is_none or (not can_replay and self.state == "partial" and not self.extra)


class Judge:
    """Compares one gateway with its engines."""

    def __init__(self, gateway, engines, rng, can_replay=True):
        self.gateway, self.engines, self.rng = gateway, engines, rng
        self._can_replay = can_replay

    def nudge(self, number):
        """One new block, so that the engine publishes whatever it has not."""
        tokens = [FIRST_BYTE] + [self.rng.randrange(256, 4000) for _ in range(BLOCK_SIZE)]
        self.engines[number].cached_tokens(tokens)

    def compare(self, verdict):
        """Waits for complete streams and compares the index with the events."""
        for number, engine in enumerate(self.engines):
            difference = self._settle(number)
            verdict.blocks += len(engine.mirror.held())
            verdict.missing += len(difference.missing)
            verdict.extra += len(difference.extra)
            verdict.in_doubt += len(difference.in_doubt)
            if not difference.is_allowed(self._can_replay):
                verdict.complain(
                    f"{engine.name}: stream {difference.state}, {len(difference.missing)} blocks "
                    f"missing in the index, {len(difference.extra)} too many"
                )

    def probe(self, verdict, sent, num_probes):
        """Asks each engine for prompts that were sent before, cut anywhere, and a new one."""
        for number, engine in enumerate(self.engines):
            for _ in range(num_probes):
                messages, user = self.rng.choice(sent)
                tokens = engine.tokens(messages)
                tokens = tokens[: self.rng.randint(BLOCK_SIZE + 1, len(tokens))]
                self.probe_one(verdict, number, tokens, (user.salt, user.adapter))
            new = [FIRST_BYTE] + [self.rng.randrange(256, 4000) for _ in range(3 * BLOCK_SIZE)]
            self.probe_one(verdict, number, new)

    def probe_one(self, verdict, number, tokens, namespace=(None, None)):
        """Asks one engine for one prompt; `namespace` is its salt and its adapter."""
        engine = self.engines[number]
        self._settle(number)
        confirmed, doubtful = self.gateway.dump(number)
        keys = engine.mirror.hasher.chain(tokens, *namespace)
        least = expected_tokens(keys, len(tokens), confirmed)
        most = expected_tokens(keys, len(tokens), confirmed | doubtful)
        found = engine.cached_tokens(tokens, *namespace)
        is_right = least <= found and (found <= most or not self._can_replay)
        verdict.probes += 1
        verdict.probes_right += is_right
        if not is_right:
            verdict.complain(
                f"{engine.name}: of a prompt of {len(tokens)} tokens it had {found} cached, by the "
                f"index {least}, or with what is in doubt {most}"
            )

    def _settle(self, number):
        """Waits until index and events agree, and says how they differ if they do not."""
        end = time.monotonic() + SETTLE_S
        final_since = None
        while True:
            difference = self._differ(number)
            now = time.monotonic()
            is_final = difference.state == "complete" or (
                difference.state == "partial" and not self._can_replay
            )
            final_since = (final_since or now) if is_final else None
            if difference.is_none or now > end or (is_final and now > final_since + LAG_S):
                return difference
            time.sleep(0.1)

    def _differ(self, number):
        mirror = self.engines[number].mirror
        mirror.catch_up()
        state = (self.gateway.stream(number) or {}).get("state", "none")
        confirmed, doubtful = self.gateway.dump(number)
        held = mirror.held()
        in_doubt = {key for key in held & doubtful if mirror.has_had_copies(key)}
        return Difference(state, held - confirmed - in_doubt, confirmed - held, in_doubt)


def expected_tokens(keys, num_tokens, held):
    """What the engine will find cached of a prompt: leading blocks, but never its last token."""
    num_blocks = 0
    for key in keys[: (num_tokens - 1) // BLOCK_SIZE]:
        if key not in held:
            break
        num_blocks += 1
    return num_blocks * BLOCK_SIZE
