"""Looks at the dashboard and at the HTML reports as people do, and says what is wrong.

Started by `tools/browser/run`. Each check prints a line; screenshots lie in WORK/shots. Exit code 1
where a check failed, or hung: see `deadline.py`.
"""

import argparse
import pathlib
import sys
import time
import traceback

from playwright.sync_api import sync_playwright

import dashboard
import pictures
import reports
from deadline import Deadline

WIDE = {"width": 1440, "height": 900}


class Look:
    """A browser, what it is pointed at, and what went wrong."""

    def __init__(self, options, browser):
        self.options, self.browser = options, browser
        self.headstart, self.work = options.headstart, options.work
        self.shots = options.work / "shots"
        self.shots.mkdir(parents=True, exist_ok=True)
        self.figures = {}

    def page(self, scheme="light", viewport=WIDE, **more):
        """A page of its own that keeps what its console says."""
        context = self.browser.new_context(color_scheme=scheme, viewport=viewport, **more)
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.troubles = []
        page.on("console", lambda it: it.type in ("error", "warning")
                and page.troubles.append(it.text))
        page.on("pageerror", lambda error: page.troubles.append(str(error)))
        page.on("request", lambda it: None if is_own(it.url, page)
                else page.troubles.append(f"asks for {it.url}"))
        return page

    def shot(self, page, name):
        page.screenshot(path=self.shots / f"{name}.png", full_page=True)


def is_own(url, page):
    return url.startswith(("http://127.0.0.1:", "file:", "data:", "about:", "blob:"))


def closing(passed, count, deadline, look):
    seconds = time.monotonic() - deadline.begun
    return f"{passed} of {count} checks passed in {seconds:.0f} s; screenshots: {look.shots}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--headstart", type=pathlib.Path, required=True)
    parser.add_argument("--chromium", required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--pictures", type=pathlib.Path, help="makes pictures there; no checks")
    parser.add_argument("--only", help="checks whose name contains this")
    options = parser.parse_args()
    options.headstart, options.work = options.headstart.resolve(), options.work.resolve()
    checks = [*dashboard.CHECKS, *reports.CHECKS]
    checks = [it for it in checks if not options.only or options.only in it.__name__]
    failed, done, deadline = [], 0, Deadline()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=options.chromium, args=["--no-sandbox"]
        )
        look = Look(options, browser)
        if options.pictures:
            for path in pictures.make(look, options.pictures):
                print(f"{path} ({path.stat().st_size // 1000} KB)")
            deadline.stop()
            return 0
        for check in checks:
            name = check.__name__.replace("_", " ")
            deadline.began(name, closing(done - len(failed), len(checks), deadline, look))
            try:
                print(f"ok      {check(look) or name}", flush=True)
            except Exception as error:  # Whatever it is, it is this check's failure.
                failed.append(name)
                print(f"FAILED  {name}: {error}", flush=True)
                traceback.print_exc()
            done += 1
        last = closing(done - len(failed), len(checks), deadline, look)
        deadline.began("the browser's end", last)
        browser.close()
    deadline.stop()
    print(last)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
