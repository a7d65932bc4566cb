"""An end by a certain time, whatever hangs: a browser, a server, or what drives them."""

import os
import pathlib
import signal
import threading
import time

# All checks take about a minute with a browser that answers; a slow machine gets ten.
ALL_S = 600
# One of them: a report may take two minutes to be made, see `reports.made`.
ONE_S = 180


class Deadline:
    """Unless it is stopped in time, says what hung, kills what was started, and exits with 1.

    From a thread of its own, because the first one waits for the browser, and may do so forever.
    """

    def __init__(self, all_s=ALL_S, one_s=ONE_S):
        self.all_s, self.one_s = all_s, one_s
        self.begun = time.monotonic()
        self.over = threading.Event()
        self.lock = threading.Lock()
        self.began("the browser's start", "")
        threading.Thread(target=self.watch, daemon=True).start()

    def began(self, name, closing):
        """Another check begins; `closing` is what to say in the end if it hangs."""
        with self.lock:
            self.now = (name, closing, time.monotonic())

    def stop(self):
        self.over.set()

    def watch(self):
        while True:
            with self.lock:
                name, closing, since = self.now
            left_s, limit_s = min(
                (self.begun + self.all_s - time.monotonic(), self.all_s),
                (since + self.one_s - time.monotonic(), self.one_s),
            )
            if left_s <= 0:
                break
            # Another may begin meanwhile, with more time: then it is asked again.
            if self.over.wait(left_s):
                return
        of = "all checks together" if limit_s == self.all_s else "one check"
        print(f"FAILED  {name}: it hangs; {of} may take {limit_s:g} s\n{closing}", flush=True)
        kill_started()
        os._exit(1)


def kill_started():
    """Ends all processes below this one, where /proc tells them."""
    children = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            # A name, which stands in parentheses, may hold anything.
            parent = int(stat.read_text(errors="replace").rpartition(")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            continue  # It has just ended.
        children.setdefault(parent, []).append(int(stat.parent.name))
    below = [os.getpid()]
    for process in below:
        below += children.get(process, [])
    for process in below[1:]:
        try:
            os.kill(process, signal.SIGKILL)
        except OSError:
            pass
