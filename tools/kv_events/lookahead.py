"""KV events of vLLM's own cache manager whose block hashes look ahead, and what it then finds.

    PYTHONPATH=VLLM python tools/kv_events/lookahead.py > data/kv-events/vllm-0.33.0-lookahead.log

VLLM is the unpacked wheel of vLLM 0.33 (its Python files), in an environment with vLLM's packages.
The manager allocates and hashes as in an engine with EAGLE or MTP; no model runs. A line is a
message as vLLM encodes it, or `found N T T T …`: a prompt of these token ids, asked after the
messages before, of which the manager finds N tokens cached.
"""

import random
import sys
import time

import msgspec
import torch
from vllm.distributed.kv_events import KVEventBatch
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.request import Request

BLOCK_SIZE = 4
NUM_BLOCKS = 40
PROMPTS = 60
LOOKAHEAD = 1


def manager():
    """A cache of one group, whose hashes cover one token behind a block."""
    spec = FullAttentionSpec(
        block_size=BLOCK_SIZE, num_kv_heads=1, head_size=1, dtype=torch.float32
    )
    config = KVCacheConfig(
        num_blocks=NUM_BLOCKS,
        kv_cache_tensors=[],
        kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
    )
    return KVCacheManager(
        config,
        max_model_len=4096,
        scheduler_block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
        num_hash_lookahead_tokens=LOOKAHEAD,
        enable_kv_cache_events=True,
    )


def prompts(rng):
    """Prompts that share beginnings and part within blocks and at their ends."""
    seen = [[1]]
    for _ in range(PROMPTS):
        earlier = rng.choice(seen)
        start = earlier[: rng.randrange(len(earlier) + 1)]
        prompt = start + [rng.randrange(3) for _ in range(rng.randrange(1, 14))]
        seen.append(prompt)
        yield prompt


def main():
    """Serves the prompts one after the other and writes what happens."""
    rng = random.Random(1)
    init_none_hash(sha256)
    hasher = get_request_block_hasher(BLOCK_SIZE, sha256, LOOKAHEAD)
    cache = manager()
    encoder = msgspec.msgpack.Encoder()
    for number, prompt in enumerate(prompts(rng)):
        parameters = SamplingParams(max_tokens=1)
        parameters.update_from_generation_config({}, eos_token_id=0)
        request = Request(str(number), prompt, parameters, None, block_hasher=hasher)
        computed, found = cache.get_computed_blocks(request)[:2]
        print("found", found, *prompt)
        blocks = cache.allocate_slots(request, len(prompt) - found, found, computed)
        assert blocks is not None
        cache.free(request)
        events = cache.take_events()
        if events:
            batch = KVEventBatch(ts=float(number), events=events, data_parallel_rank=0)
            print(encoder.encode(batch).hex())
    print(f"{PROMPTS} prompts, {time.process_time():.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
