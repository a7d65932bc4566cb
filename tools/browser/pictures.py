"""Pictures for the documentation: the dashboard in both schemes, and a report.

Made by `tools/browser/run --pictures`. Each has at most 200 KB.
"""

import subprocess
import time

from playwright.sync_api import expect

from world import Clients, Server, emulated

SIZE = {"width": 1240, "height": 800}
BYTES_MAX = 200_000
# Long enough for the charts to show some traffic.
TRAFFIC_S = 40


def make(look, folder):
    folder.mkdir(parents=True, exist_ok=True)
    paths = [*dashboard(look, folder), report(look, folder)]
    for path in paths:
        size = path.stat().st_size
        assert size <= BYTES_MAX, f"{path} has {size} bytes, more than {BYTES_MAX}"
    return paths


def dashboard(look, folder):
    options = ["--replicas", "2", "--cache-blocks", "256", *emulated(look.work)]
    with Server(look.headstart, look.work, *options) as server, Clients(server, 30):
        time.sleep(TRAFFIC_S)
        for scheme in ("light", "dark"):
            page = look.page(scheme=scheme, viewport=SIZE)
            page.goto(server.url)
            expect(page.locator("#requests > li")).to_have_count(12, timeout=20_000)
            yield shot(page, folder / f"dashboard-{scheme}.png")


def report(look, folder):
    path = look.work / "picture.html"
    command = [look.headstart, "demo", "--html", path]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    page = look.page(viewport=SIZE)
    page.goto(path.as_uri())
    page.wait_for_load_state()
    return shot(page, folder / "report.png")


def shot(page, path):
    page.screenshot(path=path)
    page.context.close()
    return path
