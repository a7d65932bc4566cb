"""vLLM servers on the CPU, small enough that two of them evict."""

import json
import sys
from pathlib import Path

import http_json
import zmq
from mirror import END, Mirror
from model_folder import ADAPTER, ADAPTER_RANK
from processes import Process, free_port

# The smallest block size that vLLM's attention on the CPU takes.
BLOCK_SIZE = 32

# Longest prompt with its answer.
MAX_TOKENS = 2048

# Longest part of a prompt that is computed in one step.
MAX_BATCHED_TOKENS = 8192

# So that what one core serves at once fits, and the rest waits.
MAX_SEQUENCES = 4


class Engine:
    """One server, its events, and what it says of its cache."""

    max_tokens = MAX_TOKENS
    max_sequences = MAX_SEQUENCES
    own_environment = {}

    def __init__(self, name, model_folder, num_blocks, logs):
        self.name = name
        http, self.events_port, replay = free_port(), free_port(), free_port()
        self.url = f"http://127.0.0.1:{http}"
        self.replay = f"tcp://127.0.0.1:{replay}"
        self.mirror = Mirror(self.replay, BLOCK_SIZE)
        self.restarts = 0
        # vLLM refuses to start where its longest prompt does not fit.
        max_tokens = min(self.max_tokens, num_blocks * BLOCK_SIZE)
        events = {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": f"tcp://*:{self.events_port}",
            "replay_endpoint": f"tcp://*:{replay}",
            "topic": "kv-events",
        }
        options = {
            "model": model_folder,
            "served-model-name": "toy",
            "dtype": "float32",
            "host": "127.0.0.1",
            "port": http,
            "max-model-len": max_tokens,
            "max-num-seqs": self.max_sequences,
            "max-num-batched-tokens": min(max_tokens, MAX_BATCHED_TOKENS),
            "block-size": BLOCK_SIZE,
            # One block is vLLM's null block.
            "num-gpu-blocks-override": num_blocks + 1,
            "kv-events-config": json.dumps(events),
        }
        # The console script does not start here: the distribution is not called vllm.
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
        command += [f"--{name}={value}" for name, value in options.items()]
        command += ["--enforce-eager", "--enable-prefix-caching", "--enable-prompt-tokens-details"]
        command += self.own_options(Path(model_folder))
        env = {
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            # For POST /reset_prefix_cache.
            "VLLM_SERVER_DEV_MODE": "1",
            "OMP_NUM_THREADS": "1",
            **self.own_environment,
        }
        health = f"{self.url}/health"
        self.process = Process(["nice", "-n", "10", *command], health, logs / f"{name}.log", env)

    def own_options(self, model_folder):
        """Options of this kind of engine: here the adapter."""
        adapter = f"--lora-modules={ADAPTER}={model_folder / ADAPTER}"
        return ["--enable-lora", f"--max-lora-rank={ADAPTER_RANK}", adapter]

    def kill(self):
        """Ends it without a word; what it held is gone."""
        self.process.kill()

    def restart(self):
        """Starts it again, without waiting."""
        self.process.start()
        self.mirror.restart()
        self.restarts += 1

    def tokens(self, messages):
        """The token ids of a chat."""
        return http_json.post(f"{self.url}/tokenize", {"model": "toy", "messages": messages})[
            "tokens"
        ]

    def cached_tokens(self, tokens, salt=None, adapter=None):
        """Sends a prompt and says how much of it was cached. The cache changes by it."""
        body = {"model": adapter or "toy", "prompt": tokens, "max_tokens": 1}
        if salt is not None:
            body["cache_salt"] = salt
        answer = http_json.post(f"{self.url}/v1/completions", body)
        return answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    def published(self, first=0):
        """Frames of all event messages from this number on, as the replay socket sends them to a
        dealer. The last one marks the end."""
        socket = zmq.Context.instance().socket(zmq.DEALER)
        socket.connect(self.replay)
        socket.send_multipart([b"", first.to_bytes(8, "big")])
        messages = []
        while not messages or messages[-1][-2] != END:
            messages.append(socket.recv_multipart())
        socket.close()
        return messages

    def clear(self):
        """Drops the cache. vLLM tells so with the next request's events."""
        assert http_json.post(f"{self.url}/reset_prefix_cache", {})["success"]
