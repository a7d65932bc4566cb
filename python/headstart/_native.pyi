"""Native parts of the package `headstart`.

A key is bytes of an engine that stand for a block and all blocks before it. A call with an argument
of another type raises `TypeError`, and one with a number that does not fit raises `OverflowError`.
"""

from collections.abc import Sequence
from os import PathLike
from types import TracebackType
from typing import Any, Literal, Protocol, SupportsFloat, final, type_check_only

from typing_extensions import Buffer

__all__ = [
    "BlockTier",
    "EvictionOrder",
    "Index",
    "POLICIES",
    "PrefixCache",
    "Use",
    "decode_events",
]

@type_check_only
class _Array(Protocol):
    """An array of numpy, which is no `Buffer` to type checkers before Python 3.12."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...

POLICIES: list[str]
"""Names of the eviction policies, as in `headstart replay --policy`."""

@final
class Use:
    """A request that uses cached blocks, as far as it is known.

    `now` is in nanoseconds from any origin, and never falls from one call to the next. `turn`
    counts user messages from 1; `kind` and `session` number the kinds of requests and the
    conversations; `finish` is `tool_calls`, `stop`, `length` or `cancelled`; `tools` are the names
    of the tools that the answer calls; `p_continue` is a predicted probability that the
    conversation continues.

    Raises `ValueError` for a probability that is not from 0 to 1.
    """

    def __new__(
        cls,
        now: int,
        *,
        turn: int = 0,
        kind: int = 0,
        session: int | None = None,
        finish: str | None = None,
        tools: Sequence[str] = ...,
        output_tokens: int | None = None,
        p_continue: float | None = None,
    ) -> Use: ...
    @property
    def now(self) -> int:
        """The time, nanoseconds."""
    @property
    def turn(self) -> int:
        """User messages up to this request, from 1; 0 where that is unknown."""
    @property
    def kind(self) -> int:
        """The kind of request, a number."""
    @property
    def session(self) -> int | None:
        """The conversation, a number; `None` where that is unknown."""
    @property
    def output_tokens(self) -> int | None:
        """Tokens of the answer; `None` where they are unknown."""
    @property
    def p_continue(self) -> float | None:
        """The predicted probability that the conversation continues, if there is one."""

@type_check_only
class Policy(Protocol):
    """An eviction policy that is written in Python, for `PrefixCache`. The name is for type
    checkers: the module has no class `Policy`.
    """

    def use(
        self, blocks: list[int], hits: int, of: Use
    ) -> Sequence[SupportsFloat] | Buffer | _Array:
        """A request used `blocks`. Returns a score for each of them; see `PrefixCache`."""

@final
class PrefixCache:
    """A prefix cache of `capacity` blocks that serves one request after the other, as
    `headstart replay` does.

    A block is a number, or a key of bytes, that stands for its tokens and all tokens before it.

    `policy` is a name of `POLICIES` with its options, or an object with a method
    `use(blocks, hits, of)`, which is called once for each request. `blocks` are the slots, from 0
    to `capacity - 1`, that hold the request's blocks, in prompt order. The first `hits` were cached
    before; the others are new, whatever their slots held. `of` is the request. The method returns a
    score for each block, as a list or an array. The block with the lowest score is evicted first;
    of equal scores, any. A block with a cached block behind it stays until that one is gone,
    whatever its score. A score holds until a request uses the block again.

    >>> from headstart import PrefixCache, Use
    >>> class Lru:
    ...     clock = 0
    ...     def use(self, blocks, hits, of):
    ...         self.clock += len(blocks)
    ...         return range(self.clock, self.clock - len(blocks), -1)
    >>> cache = PrefixCache(Lru(), capacity=4)
    >>> [cache.serve(prompt, Use(now)) for now, prompt in enumerate([[1, 2, 3], [1, 2, 4], [1, 2]])]
    [0, 2, 2]

    Raises `ValueError` for a policy that is not known, and for a capacity of 0 or of 2**32 blocks
    and more; `TypeError` for an object that is no policy.
    """

    def __new__(
        cls, policy: str | Policy = "hazard", *, capacity: int, block_tokens: int = 16
    ) -> PrefixCache: ...
    def serve(
        self,
        blocks: Sequence[int | bytes] | Buffer | _Array,
        of: Use,
        *,
        step: int | None = None,
    ) -> int:
        """Serves a request: looks up the leading `blocks`, and caches the others. Returns the hits.
        `blocks` are numbers or keys in a list, or an array of whole numbers.

        With `step` blocks are cached as an engine does: it evicts for `step` blocks at once, and
        may decline none. Otherwise they are cached one by one, and a policy may decline a block.

        An exception of a policy written in Python is raised behind the request, which has been
        served by then. Blocks of it that have no score go first.
        """
    @property
    def lookups(self) -> int:
        """Blocks looked up so far."""
    @property
    def hits(self) -> int:
        """Blocks found so far."""

@final
class EvictionOrder:
    """The order in which the blocks of a cache are evicted.

    The engine owns the memory and the keys. It inserts a block, says when its bytes are there
    (`readable`), when it is read (`pin`, `unpin`), which blocks a request used (`touch`), and asks
    for victims (`evict`). A block with a cached block behind it stays, and so does one whose
    request still runs, unless there are too few others.

    Times are nanoseconds from any origin, and never fall. `policy` is a name of `POLICIES` with its
    options, as in `headstart replay --policy`; `learned` are tables that `learned()` returned.

    Raises `ValueError` for a policy or tables that are not known, and for a capacity of 0 or of
    2**32 blocks and more.
    """

    def __new__(
        cls, policy: str, capacity: int, block_tokens: int = 16, *, learned: bytes | None = None
    ) -> EvictionOrder: ...
    def __len__(self) -> int: ...
    def __contains__(self, key: bytes, /) -> bool: ...
    @property
    def policy(self) -> str:
        """The policy with its options."""
    def insert(
        self, key: bytes, parent: bytes | None = None, *, of: Use, offset: int = 0
    ) -> None:
        """A block gets a free slot for the request `of`, and its bytes are on their way. `parent`
        is the key of the block before it in the prompt, where that is known, and `offset` the
        number of blocks before it.

        Raises `RuntimeError` where no slot is free, or the block is here.
        """
    def readable(self, key: bytes) -> None:
        """The bytes of a block that was inserted are there; of any other block, one read has
        ended.
        """
    def pin(self, key: bytes) -> None:
        """A block is read: it stays until `unpin`."""
    def unpin(self, key: bytes) -> None:
        """One read of a block has ended."""
    def remove(self, key: bytes) -> None:
        """A block is gone, though the policy did not choose it."""
    def touch(self, keys: Sequence[bytes], *, of: Use) -> None:
        """The request `of` ends: one use of the blocks of its prompt, all of them in order from the
        first, whether they are here or not.
        """
    def evict(
        self, count: int, keep: Sequence[bytes] = ..., *, now: int
    ) -> list[bytes] | None:
        """Evicts `count` blocks, but for those of `keep` and the blocks before them. Returns their
        keys; `None`, and evicts nothing, where fewer may go.
        """
    def clear(self) -> None:
        """Drops all blocks, but not what the policy has learned."""
    def learned(self) -> bytes | None:
        """The tables that the policy has learned, some 40 KB; `None` where it learns none."""

@final
class BlockTier:
    """Blocks of an engine's CPU tier on disk or in object storage, each with its checksum.

    `place` is a folder, which one process uses at a time, or a URL such as `s3://BUCKET/PREFIX`,
    which engines share. `rows` is the engine's memory, a writable matrix of bytes; a row is a
    block. `identity` are 16 bytes that stand for all that decides about a block's bytes beside its
    key: the weights, the data type, the layout, the rank. A block of another identity is never
    loaded.

    Raises `ValueError` for a policy that is not known or a matrix of another form,
    `BlockingIOError` where another process uses the folder, and `OSError` where the place cannot be
    used or the budget is too small. A store that does not answer is tried again later.
    """

    def __new__(
        cls,
        place: str | PathLike[str],
        budget_bytes: int,
        rows: Buffer | _Array,
        identity: bytes,
        *,
        policy: str = "hazard",
        block_tokens: int = 16,
    ) -> BlockTier: ...
    def __len__(self) -> int: ...
    @property
    def capacity(self) -> int:
        """Blocks that fit the budget."""
    @property
    def is_busy(self) -> bool:
        """Whether jobs have not ended."""
    @property
    def condition(self) -> str:
        """The fault of the place in words; empty where it works."""
    def lookup(self, key: bytes) -> bool | None:
        """`True`: the block can be loaded; `None`: soon; `False`: it is not here, or nothing can be
        read now.
        """
    def absence(self, key: bytes) -> Literal["unreachable", "failed", "evicted", "not_stored"]:
        """The reason why `lookup` of this key is `False`."""
    def store(
        self,
        job: int,
        keys: Sequence[bytes],
        parents: Sequence[bytes | None],
        rows: Sequence[int],
        of: Use,
    ) -> int:
        """Stores blocks of a prompt from rows; `parents` are the keys before them, where known.
        Blocks that are here, or that find no room, are left out. Returns the number that is stored.
        """
    def load(self, job: int, keys: Sequence[bytes], rows: Sequence[int]) -> int:
        """Loads blocks into rows. Those that are not here fail. Returns the number of the
        others.
        """
    def observe_step(self, entries: Sequence[tuple[int, int]], seconds: float) -> None:
        """The engine computed tokens of several prompts in one step: tokens before, and new
        ones.
        """
    def observe_wait(self, expected_s: float, seconds: float) -> None:
        """A load for which `advise` promised `expected_s` reached the engine after `seconds`."""
    def advise(
        self,
        keys: Sequence[bytes],
        most: int,
        before_tokens: int,
        block_tokens: int,
        prompt_tokens: int,
    ) -> tuple[int, float | None, float | None]:
        """The number of blocks to load from the front of `keys`, the seconds until they are there,
        and those that this saves, where they are known. The prompt has `prompt_tokens`, of which
        the engine has the first `before_tokens`. Blocks behind the first one that is not here, and
        behind the first `most`, do not count.
        """
    def touch(self, keys: Sequence[bytes], of: Use) -> None:
        """One request's use of the blocks of its prompt, in order from the first."""
    def pin(self, keys: Sequence[bytes]) -> list[bool]:
        """Keeps blocks until as many calls of `unpin`. Returns whether each is here and can be
        loaded; those that are not are not pinned.
        """
    def unpin(self, keys: Sequence[bytes]) -> None:
        """Ends a `pin`. No effect on blocks that nothing keeps."""
    def remove(self, keys: Sequence[bytes]) -> int:
        """Removes blocks. Those that are being written or loaded, and those that are pinned, stay.
        Returns the number that went. Until their space is used again, a restart finds them.
        """
    def finished(self) -> list[tuple[int, bool, list[bytes], float, int]]:
        """The jobs that have ended since the last call: id, whether all was moved, the keys that
        were, seconds, and bytes.
        """
    def drain(self) -> None:
        """Waits until all jobs have ended; `finished` still returns them."""
    def changes(self) -> list[tuple[bytes, bool]]:
        """Blocks that came here and went since the last call: key, and whether it came."""
    def counts(
        self,
    ) -> list[
        tuple[
            Literal["stored", "loaded", "evicted", "declined", "damaged", "failed"],
            int,
        ]
    ]:
        """Counts of blocks since the start: stored, loaded, evicted, declined (no room), damaged
        and failed.
        """
    def close(self) -> None:
        """Ends what runs and closes the place."""

@final
class Index:
    r"""An index of the prefixes that each worker of a fleet has cached, learned from the KV events
    of vLLM, SGLang and other engines with the same format. The gateway routes by the same index.

    `block_tokens` is the block size of workers that have told none; events tell theirs. Above about
    `max_bytes` of memory the index forgets what was not used for the longest time.

    An index is a context manager, which closes it, and its methods may be called from any thread.

    >>> from headstart import Index
    >>> with Index() as index:
    ...     block = b"\x96\xabBlockStored\x91\x07\xc0\x94\x01\x02\x03\x04\x04\xc0"
    ...     index.apply("a", b"\x92\x01\x91" + block)
    ...     index.overlap([1, 2, 3, 4, 5])
    1
    {'a': 4}

    Raises `ValueError` for a block size of 0.
    """

    def __new__(cls, block_tokens: int | None = 16, *, max_bytes: int = 1073741824) -> Index: ...
    def __enter__(self) -> Index: ...
    def __exit__(
        self,
        *_exception: type[BaseException] | BaseException | TracebackType | None,
    ) -> None: ...
    def apply(self, worker: str, payload: bytes) -> int:
        """Takes over one batch of events of a worker, which becomes known by its first one.
        `payload` is the last frame of a message of its publisher. Returns the number of events that
        were understood; `decode_events` tells why others were not.

        Batches of a worker are applied in the order of the calls. Nothing notices one that is
        missing; `follow` does.

        Raises `ValueError` for bytes that are no batch of events, which change nothing, and for a
        worker that is followed.
        """
    def follow(
        self,
        endpoint: str,
        *,
        worker: str,
        replay: str | None = None,
        topic: str = "",
        rank: int | None = None,
    ) -> None:
        """Follows the events of a worker from its publisher, on a thread in the background, until
        `forget` or `close`. Returns at once; the publisher need not be there yet, and may restart.

        `endpoint` and `replay` are the addresses of the engine's `endpoint` and `replay_endpoint`;
        without `replay` events that were missed are lost. `topic` is the start of the topics that
        are wanted, and `rank` the data-parallel rank that batches should name. Each rank of an
        engine is a worker with an address of its own. What `apply` said of the worker is forgotten.

        Raises `ValueError` for what is no address to connect to, and for a worker that is followed.
        """
    def overlap(
        self,
        tokens: Sequence[int] | Buffer | _Array,
        *,
        salt: str | None = None,
        adapter: str | None = None,
        device_only: bool = False,
    ) -> dict[str, int]:
        """The leading tokens of a prompt that each worker has cached, in whole blocks; workers that
        have none of it are left out. `tokens` is a list or an array of 32 or 64 bits.

        `salt` and `adapter` are the cache salt and the LoRA adapter of the request. With
        `device_only` blocks in host memory and below do not count.

        Blocks count for five minutes after events that may have removed them were lost.
        """
    def workers(self) -> list[str]:
        """The names of the workers that are known, in alphabetical order."""
    def stream(self, worker: str) -> dict[str, Any] | None:
        """The state of a worker's event stream; `None` where the worker is not followed.

        `status` is `down`, `replaying`, `partial` (something is missing for good) or `complete`.
        `problem` is a text with a suggested fix, or `None`. `applied_batches`, `lost_batches`,
        `damaged_batches` (something of them was skipped), `bad_messages` and `restarts` count since
        `follow`.
        """
    def forget(self, worker: str) -> None:
        """Forgets a worker and what it holds, and follows it no longer. No effect on one that is
        not known.
        """
    def close(self) -> None:
        """Ends all subscriptions. Other calls raise `RuntimeError` from then on; another `close`
        does nothing.
        """

def decode_events(payload: bytes) -> list[dict[str, Any]]:
    r"""The events of a payload: the last frame of a message of vLLM's or SGLang's event publisher.

    An event is a dict, whose `type` is `BlockStored`, `BlockRemoved` or `AllBlocksCleared`. Its
    other keys have the names of vLLM's map form, but for these: `medium` is `device`, `host`,
    `disk` or `remote`; `group_idx` is 0 where the engine names none; `attention` is `full`,
    `window` or `state`, and `window` its tokens; `lookahead` is the number of tokens behind a block
    that its hash covers too; `extra` is `None`, or one item for each block: the bytes that set it
    apart, such as an image. Hashes are the low 128 bits. `token_ids` may be empty.

    An event that was left out has the type `Skipped`, a `reason`, and says whether it
    `may_have_removed` blocks.

    >>> from headstart import decode_events
    >>> decode_events(b"\x92\x01\x91\x91\xb0AllBlocksCleared")
    [{'type': 'AllBlocksCleared'}]

    Raises `ValueError` for bytes that are no batch of events.
    """
