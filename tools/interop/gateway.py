"""The Headstart gateway under test."""

import json
import re
import subprocess

import http_json
from processes import Process, free_port
from route_keys import SECRET


class Gateway:
    """One gateway before some engines; `ports` are where it finds their events."""

    def __init__(self, binary, engines, ports, tokenizer, log, can_replay=True):
        self.binary, self.log = binary, log
        self.url = f"http://127.0.0.1:{free_port()}"
        command = [binary, "serve", "--listen", self.url.removeprefix("http://")]
        command += ["--index-secret", str(SECRET)]
        for engine, port in zip(engines, ports):
            events = f"kv=tcp://127.0.0.1:{port}"
            if can_replay:
                events += f",replay={engine.replay}"
            command += ["--upstream", f"{engine.url},{events},tokenizer={tokenizer}"]
        self.process = Process(command, f"{self.url}/health", log)

    def start(self):
        """Starts it and waits until it listens."""
        self.process.start()
        self.process.wait_until_up()

    def kill(self):
        """Ends it without a word."""
        self.process.kill()

    def chat(self, body):
        """Replica and usage of a chat."""
        headers, text = http_json.call(f"{self.url}/v1/chat/completions", body)
        answer = json.loads(text)
        message = answer["choices"][0]["message"]["content"] or ""
        return int(headers["x-headstart-replica"]), message, answer["usage"]

    def state(self):
        """What `headstart index show --json` prints."""
        return json.loads(self._index("show", "--json"))

    def stream(self, replica):
        """Where the event stream of a replica stands; none before there is one."""
        return self.state()["replicas"][replica]["stream"]

    def dump(self, replica):
        """The keys of the blocks that a replica is known to hold, and of those in doubt."""
        confirmed, doubtful = set(), set()
        for line in self._index("dump", "--replica", str(replica)).splitlines():
            entry = json.loads(line)
            assert (entry["group"], entry["tier"]) == (0, "device"), entry
            (doubtful if entry["doubtful"] else confirmed).add(int(entry["key"], 16))
        return confirmed, doubtful

    def metric(self, name, **labels):
        """The sum of a metric over all its series that have these labels."""
        total = 0.0
        for own, value in self._series(name):
            if all(own.get(label) == wanted for label, wanted in labels.items()):
                total += value
        return total

    def by_label(self, name, label):
        """The sums of a metric by the values of one label; empty if it is not there."""
        sums = {}
        for own, value in self._series(name):
            sums[own.get(label)] = sums.get(own.get(label), 0.0) + value
        return sums

    def _series(self, name):
        _, text = http_json.call(f"{self.url}/metrics")
        for line in text.splitlines():
            found = re.match(r"(\w+)(?:\{(.*)\})? (\S+)$", line)
            if found and found[1] == name:
                yield dict(re.findall(r'(\w+)="([^"]*)"', found[2] or "")), float(found[3])

    def _index(self, *arguments):
        command = [self.binary, "index", arguments[0], "--url", self.url, *arguments[1:]]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
