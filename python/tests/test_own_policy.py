"""Eviction policies that are written in Python."""

from __future__ import annotations

import array
import doctest
import gc
import random
import weakref
from typing import Any

import pytest

native = pytest.importorskip("headstart._native", reason="the wheel is not built")

from headstart import PrefixCache, Use  # noqa: E402


class Lru:
    """The least recently used block goes first; of one request, the last one."""

    def __init__(self) -> None:
        self.clock = 0

    def use(self, blocks: list[int], hits: int, of: Use) -> Any:
        self.clock += len(blocks)
        return range(self.clock, self.clock - len(blocks), -1)


class Answers:
    """Scores of the test."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def use(self, blocks: list[int], hits: int, of: Use) -> Any:
        return self.answer(blocks) if callable(self.answer) else self.answer


class Lfu:
    """The block with the fewest uses goes first, by a count for each slot."""

    def __init__(self, capacity: int) -> None:
        self.uses = [0] * capacity

    def use(self, blocks: list[int], hits: int, of: Use) -> list[int]:
        for at, block in enumerate(blocks):
            self.uses[block] = self.uses[block] + 1 if at < hits else 1
        return [self.uses[block] for block in blocks]


def trace(seed: int, requests: int = 1_500) -> list[list[int]]:
    """Conversations that grow, share a prompt, and come back; some are longer than the cache."""
    dice = random.Random(seed)
    fresh = iter(range(1, 1 << 40))
    shared = [[next(fresh) for _ in range(dice.randrange(1, 9))] for _ in range(4)]
    talks = [list(dice.choice(shared)) for _ in range(40)]
    prompts = []
    for _ in range(requests):
        at = dice.randrange(len(talks))
        talks[at].extend(next(fresh) for _ in range(dice.randrange(4)))
        prompts.append(list(talks[at]))
        if dice.random() < 0.05 or len(talks[at]) > 90:
            talks[at] = list(dice.choice(shared))
    return prompts


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("step", [None, 4])
@pytest.mark.parametrize("capacity", [1, 17, 80, 400])
def test_lru_has_the_hits_of_lru(seed: int, step: int | None, capacity: int) -> None:
    ours, theirs = PrefixCache(Lru(), capacity=capacity), PrefixCache("lru", capacity=capacity)
    for now, prompt in enumerate(trace(seed)):
        expected = theirs.serve(prompt, Use(now), step=step)
        assert ours.serve(prompt, Use(now), step=step) == expected, now
    assert ours.hits == theirs.hits and ours.lookups == theirs.lookups
    assert capacity < 80 or ours.hits > 0


def test_a_prompt_may_repeat_a_block() -> None:
    dice = random.Random(7)
    ours, theirs = PrefixCache(Lru(), capacity=6), PrefixCache("lru", capacity=6)
    for now in range(2_000):
        first = 10 * dice.randrange(3)
        prompt = [first, first, first + 1, first, first + 2, first + 2][: dice.randrange(1, 7)]
        assert ours.serve(prompt, Use(now)) == theirs.serve(prompt, Use(now)), now


def test_the_policy_is_called_once_for_each_request() -> None:
    calls: list[tuple[list[int], int, Use]] = []

    class Noted(Lru):
        def use(self, blocks: list[int], hits: int, of: Use) -> Any:
            calls.append((blocks, hits, of))
            return super().use(blocks, hits, of)

    cache = PrefixCache(Noted(), capacity=4)
    first = Use(5, turn=2, kind=3, session=4, output_tokens=6, p_continue=0.5)
    assert cache.serve([1, 2, 3], first) == 0
    assert cache.serve([1, 2, 4, 5], Use(6)) == 2
    assert cache.serve([], Use(7)) == 0
    (before, hits, of), (after, later_hits, _) = calls
    assert (hits, later_hits) == (0, 2) and of is first
    assert (of.now, of.turn, of.kind, of.session) == (5, 2, 3, 4)
    assert (of.output_tokens, of.p_continue) == (6, 0.5)
    assert after[:2] == before[:2] and set(after) == {0, 1, 2, 3}


def test_scores_decide_among_blocks_without_a_block_behind_them() -> None:
    scores: dict[int, float] = {}
    cache = PrefixCache(Answers(lambda blocks: [scores[0]] * len(blocks)), capacity=4)
    for now, (prompt, score) in enumerate([([1, 2], 0.0), ([3, 4], 5.0)]):
        scores[0] = score
        cache.serve(prompt, Use(now))
    scores[0] = 9.0
    # 1 has a score as low as that of 2, which stands behind it.
    cache.serve([5], Use(2))
    assert cache.serve([3, 4], Use(3)) == 2
    assert cache.serve([1, 2], Use(4)) == 1


def test_lfu_keeps_what_is_used_often() -> None:
    cache = PrefixCache(Lfu(3), capacity=3)
    for now in range(5):
        cache.serve([1, 2], Use(now))
    for now in range(5, 20):
        cache.serve([100 + now], Use(now))
    assert cache.serve([1, 2], Use(20)) == 2


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        ([1.0], ValueError, "1 scores for 2 blocks"),
        (array.array("d", [1, 2, 3]), ValueError, "3 scores for 2 blocks"),
        ([1.0, float("nan")], ValueError, "block 1 of the request is NaN"),
        (None, TypeError, "list or an array of numbers"),
        (["a", "b"], TypeError, "list or an array of numbers"),
        (lambda blocks: 1 // 0, ZeroDivisionError, "by zero"),
    ],
)
def test_a_wrong_answer_is_raised_and_the_cache_goes_on(
    answer: Any, error: type[Exception], words: str
) -> None:
    policy = Answers(answer)
    cache = PrefixCache(policy, capacity=3)
    for step in (None, 2):
        with pytest.raises(error, match=words):
            cache.serve([1, 2], Use(0), step=step)
    policy.answer = lambda blocks: [1] * len(blocks)
    assert cache.serve([1, 2], Use(1)) == 2
    policy.answer = lambda blocks: array.array("q", range(len(blocks)))
    for now in range(10, 40):
        assert cache.serve([now, 1000 + now, 2000 + now, 3000 + now], Use(now)) == 0


@pytest.mark.parametrize("policy", [7, None, object(), [1], type("P", (), {"use": 3})()])
def test_an_object_that_is_no_policy(policy: Any) -> None:
    with pytest.raises(TypeError, match=r"a method `use\(blocks, hits, of\)`"):
        PrefixCache(policy, capacity=3)


@pytest.mark.parametrize("capacity", [0, 1 << 32])
def test_a_capacity_that_cannot_be(capacity: int) -> None:
    for policy in ("lru", Lru()):
        with pytest.raises(ValueError, match="capacity"):
            PrefixCache(policy, capacity=capacity)


def test_a_policy_that_serves_within_a_request_is_refused() -> None:
    caches: list[PrefixCache] = []
    cache = PrefixCache(Answers(lambda _: caches[0].serve([9], Use(1))), capacity=3)
    caches.append(cache)
    with pytest.raises(RuntimeError, match="borrowed"):
        cache.serve([1], Use(0))


def test_a_cycle_through_the_policy_is_collected() -> None:
    policy: Any = Lru()
    policy.cache = PrefixCache(policy, capacity=3)
    gone = weakref.ref(policy)
    del policy
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("code", ["q", "Q", "i", "I"])
def test_blocks_in_an_array(code: str) -> None:
    cache = PrefixCache("lru", capacity=8)
    assert cache.serve(array.array(code, [1, 2, 3]), Use(0)) == 0
    assert cache.serve([1, 2, 4], Use(1)) == 2
    assert cache.serve((1, 2, 3), Use(2)) == 3
    if code.islower():
        with pytest.raises(OverflowError, match="negative"):
            cache.serve(array.array(code, [-1]), Use(3))


def test_blocks_of_other_types_are_refused() -> None:
    numpy = pytest.importorskip("numpy", reason="needs numpy")
    cache = PrefixCache("lru", capacity=8)
    assert cache.serve(numpy.arange(12)[::2], Use(0)) == 0
    assert cache.serve([0, 2, 4], Use(1)) == 3
    for wrong in (numpy.ones(3), ["a"], 7, [1.5]):
        with pytest.raises(TypeError):
            cache.serve(wrong, Use(2))


def test_the_examples() -> None:
    tested = doctest.testmod(native)
    assert tested.attempted > 0 and tested.failed == 0
