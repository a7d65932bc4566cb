"""What is measured: how each process is started, and what it costs.

Everything listens on 127.0.0.1. A contender is started anew for every round and gets a session of
its own, by which its processor time is counted and it is stopped, children included.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
TOKENIZER = REPOSITORY / "data/toy-tokenizer"
UPSTREAMS = 4
READY_S = 60.0

# All ports, above a base: upstreams, their KV events (two each), the fleet that publishes them,
# the contender and its own metrics.
UPSTREAM, EVENTS, FLEET, GATEWAY, METRICS = 0, 10, 20, 30, 31

NGINX = """daemon off; worker_processes 1; pid {folder}/{name}.pid; error_log stderr error;
events {{ worker_connections 4096; }}
http {{
  access_log off; default_type application/json; keepalive_requests 1000000000;
  client_header_buffer_size 8k; client_body_buffer_size 64k;
  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
{rest}
}}
"""

# Engines that compute nothing; the answer tells which one it was.
ANSWER = (
    '{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"toy",'
    '"system_fingerprint":"$server_port","choices":[{"index":0,"message":{"role":"assistant",'
    '"content":"Yes."},"finish_reason":"stop"}],"usage":{"prompt_tokens":1000,'
    '"completion_tokens":1,"total_tokens":1001}}'
)
MODELS = (
    '{"object":"list","data":[{"id":"toy","object":"model","created":1700000000,'
    '"owned_by":"bench","max_model_len":32768}]}'
)

# An engine whose steps take no time, for the fleet that publishes KV events.
NO_TIME = """overhead_s = 1e-5
weights_s = 1e-5
token_s = 1e-9
pair_s = 1e-12
kv_token_s = 1e-12
max_batched_tokens = 8192
kv_tokens = 1_000_000
"""


@dataclass(frozen=True)
class Programs:
    """Where the programs are."""

    headstart: str
    sglang: str  # a Python that has sglang-router
    smg: str  # a Python that has smg


@dataclass(frozen=True)
class Setting:
    """Where a round happens."""

    programs: Programs
    folder: Path
    base: int  # of the ports
    core: int | None  # the contenders' own, if they have one

    def urls(self):
        return [f"http://127.0.0.1:{self.base + UPSTREAM + i}" for i in range(UPSTREAMS)]


class Process:
    """A running program and its children."""

    def __init__(self, command, setting, name, core=None):
        log = open(setting.folder / f"{name}.log", "w")
        pinned = [] if core is None else ["taskset", "-c", str(core)]
        self.inner = subprocess.Popen(
            [*pinned, *command], stdout=log, stderr=log, start_new_session=True,
            cwd=setting.folder,
        )

    def members(self):
        """The folders under `/proc` of all processes of its session."""
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has just ended
            if int(fields[3]) == self.inner.pid:
                yield stat.parent, fields

    def cpu_s(self):
        """Processor time so far, of all threads."""
        ticks = sum(int(fields[11]) + int(fields[12]) for _, fields in self.members())
        return ticks / os.sysconf("SC_CLK_TCK")

    def memory_mib(self):
        """Resident memory; what its processes share counts in each."""
        pages = sum(int(fields[21]) for _, fields in self.members())
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def threads(self):
        """How many there are now."""
        return sum(int(fields[17]) for _, fields in self.members())

    def stop(self):
        """Kills all of it: some peers wait for minutes before they leave."""
        os.killpg(self.inner.pid, signal.SIGKILL)
        self.inner.wait()


def nginx(setting, name, rest, core=None):
    config = setting.folder / f"{name}.conf"
    config.write_text(NGINX.format(folder=setting.folder, name=name, rest=rest))
    command = ["nginx", "-p", str(setting.folder), "-e", "stderr", "-c", str(config)]
    return Process(command, setting, name, core)


def upstreams(setting):
    """The engines: one nginx that answers on several ports."""
    listens = " ".join(f"listen {url.removeprefix('http://')};" for url in setting.urls())
    rest = f"""  server {{ {listens}
    location = /health {{ return 200 ""; }}
    location = /v1/models {{ return 200 '{MODELS}'; }}
    location = /v1/chat/completions {{ return 200 '{ANSWER}'; }}
    location / {{ return 404; }}
  }}"""
    return nginx(setting, "upstreams", rest)


def event_fleet(setting):
    """Embedded replicas, one per upstream, that publish KV events in the upstreams' place."""
    model = setting.folder / "no_time.toml"
    model.write_text(NO_TIME)
    return Process(
        [setting.programs.headstart, "serve", "--executor", f"cost-model={model}",
         "--listen", f"127.0.0.1:{setting.base + FLEET}", "--replicas", str(UPSTREAMS),
         "--strategy", "session", "--kv-events-port", str(setting.base + EVENTS)],
        setting, "fleet",
    )  # fmt: skip


def proxy(setting):
    servers = " ".join(f"server {url.removeprefix('http://')};" for url in setting.urls())
    rest = f"""  upstream fleet {{ {servers} keepalive 128; keepalive_requests 1000000000; }}
  server {{ listen 127.0.0.1:{setting.base + GATEWAY};
    location / {{
      proxy_pass http://fleet; proxy_http_version 1.1; proxy_set_header Connection "";
    }}
  }}"""
    return nginx(setting, "nginx", rest, setting.core)


def headstart(setting, strategy, tokenizer=False, events=False):
    command = [setting.programs.headstart, "serve", "--strategy", strategy]
    command += ["--listen", f"127.0.0.1:{setting.base + GATEWAY}"]
    for index, url in enumerate(setting.urls()):
        first = setting.base + EVENTS + 2 * index
        options = [f"tokenizer={TOKENIZER}"] if tokenizer or events else []
        if events:
            options += [f"kv=tcp://127.0.0.1:{first}", f"replay=tcp://127.0.0.1:{first + 1}"]
        command += ["--upstream", ",".join([url, *options])]
    return Process(command, setting, f"headstart-{strategy}", setting.core)


def peer(setting, python, module, policy):
    """sglang-router or smg, told to log no request, as headstart does."""
    command = [os.path.abspath(python), "-m", *module, "--host", "127.0.0.1"]
    command += ["--port", str(setting.base + GATEWAY), "--policy", policy, "--log-level", "warn"]
    command += ["--prometheus-host", "127.0.0.1"]
    command += ["--prometheus-port", str(setting.base + METRICS)]
    command += ["--worker-startup-check-interval", "1", "--worker-urls", *setting.urls()]
    return Process(command, setting, module[0], setting.core)


def sglang(setting, policy):
    return peer(setting, setting.programs.sglang, ["sglang_router.launch_router"], policy)


def smg(setting, policy):
    return peer(setting, setting.programs.smg, ["smg", "launch"], policy)


# By name: how each is started. `direct` is nobody: the load goes to an upstream.
CONTENDERS = {
    "direct": None,
    "nginx": proxy,
    "headstart round-robin": lambda at: headstart(at, "round-robin"),
    "headstart precise": lambda at: headstart(at, "precise", events=True),
    "headstart approximate": lambda at: headstart(at, "approximate", tokenizer=True),
    "sglang-router cache_aware": lambda at: sglang(at, "cache_aware"),
    "sglang-router round_robin": lambda at: sglang(at, "round_robin"),
    "smg cache_aware": lambda at: smg(at, "cache_aware"),
}


def post(port, body, headers=()):
    """One request; the answer's body, or an exception."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions", body.encode(),
        {"content-type": "application/json", **dict(headers)},
    )  # fmt: skip
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read()


def wait_until_answered(port, body, process, headers=()):
    """Until a chat is answered: some are up long before they know their upstreams."""
    end = time.monotonic() + READY_S
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            answer = post(port, body, headers)
            if process.inner.poll() is None:
                return answer
        if process.inner.poll() is not None:
            sys.exit(f"{process.inner.args} ended; see --ports if another program listens there")
        time.sleep(0.1)
    sys.exit(f"{process.inner.args} answers no chat")
