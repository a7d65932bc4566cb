"""What an engine holds, from its own events: fetched from its replay socket, so nothing is missed.

vLLM does not merge equal blocks: the same hash may lie in the cache twice, is then announced
twice, and removed twice. So copies are counted here. That is exact only while each `BlockStored`
stands for a new copy, which is vLLM's default (`kv_cache_report_mode` incremental).
"""

import msgpack
import zmq

from route_keys import RouteHasher

END = b"\xff" * 8

# Longest wait for the next message of a replay; the publisher answers between two batches.
REPLAY_WAIT_MS = 20_000


class Mirror:
    """One engine's blocks, by route key, with the number of copies of each."""

    def __init__(self, replay_endpoint, block_size):
        self.hasher = RouteHasher(block_size)
        self._endpoint = replay_endpoint
        self._context = zmq.Context.instance()
        self.restart()

    def restart(self):
        """The engine is a new process."""
        self.next_seq = 0
        self.payloads = []
        self.stores = self.removals = self.clears = self.repeats = 0
        self._keys = {}  # the engine's hash → our key
        self._copies = {}  # the engine's hash → copies held
        self._repeated = set()

    def catch_up(self):
        """Takes over all that the engine has published since the last time."""
        socket = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVTIMEO, REPLAY_WAIT_MS)
        try:
            socket.connect(self._endpoint)
            socket.send_multipart([b"", self.next_seq.to_bytes(8, "big")])
            while True:
                frames = socket.recv_multipart()
                seq, payload = frames[-2:]
                if seq == END:
                    return
                self._take(int.from_bytes(seq, "big"), payload)
        finally:
            socket.close()

    def held(self):
        """Keys of the blocks that the engine holds."""
        return {self._keys[block] for block, copies in self._copies.items() if copies > 0}

    def copies(self, key):
        """How often the engine holds this block."""
        return sum(n for block, n in self._copies.items() if self._keys[block] == key)

    def has_had_copies(self, key):
        """Whether the engine held this block more than once at some time."""
        return key in self._repeated

    def _take(self, seq, payload):
        assert seq == self.next_seq, f"replay brought {seq} instead of {self.next_seq}"
        self.next_seq += 1
        self.payloads.append(payload)
        _, events, *_ = msgpack.unpackb(payload)
        for event in events:
            getattr(self, "_on_" + event["type"])(event)

    def _on_BlockStored(self, event):
        tokens, size = event["token_ids"], event["block_size"]
        parent = self._parent(event)
        for index, block in enumerate(event["block_hashes"]):
            parent = self.hasher.next(parent, tokens[index * size : (index + 1) * size])
            self._keys[block] = parent
            if self._copies.get(block, 0) > 0:
                self.repeats += 1
                self._repeated.add(parent)
            self._copies[block] = self._copies.get(block, 0) + 1
            self.stores += 1

    def _parent(self, event):
        if event["parent_block_hash"] is not None:
            return self._keys[event["parent_block_hash"]]
        adapter = event["lora_name"]
        extra = [key for key in (event["extra_keys"][0] or []) if key != adapter]
        assert len(extra) <= 1, event
        return self.hasher.root(extra[0] if extra else None, adapter)

    def _on_BlockRemoved(self, event):
        for block in event["block_hashes"]:
            assert self._copies.get(block, 0) > 0, "removed what was not there"
            self._copies[block] -= 1
            self.removals += 1

    def _on_AllBlocksCleared(self, _event):
        self._copies.clear()
        self.clears += 1
