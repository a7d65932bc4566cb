"""Checks of the HTML reports: they open from a file, say what they are, and ask for nothing."""

import json
import pathlib
import random
import re
import subprocess

import names


def made(look, name, *command, program="headstart"):
    """The report that a command writes."""
    path = look.work / f"{name}.html"
    binary = pathlib.Path(look.headstart).with_name(program)
    done = subprocess.run(
        [binary, *map(str, command), path], capture_output=True, text=True, check=False,
        cwd=look.work, timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return path


PHONE = {"width": 390, "height": 844}
UNFOLD = "all => all.forEach((it) => { it.open = true; })"
FOLD = "all => all.forEach((it) => { it.open = false; })"
# The footer says which version made it, when, and by which command.
MADE = re.compile(r"Headstart \d+\.\d+\.\d+\S*, \d{4}-\d\d-\d\d \d\d:\d\d UTC\s+headstart(-lab)? \w+")
# Smallest text of a chart on the screen, CSS pixels.
TEXT_PX_MIN = 11
SMALL_TEXTS = """
(least) => [...document.querySelectorAll("svg text")].filter((it) => it.checkVisibility()).map((it) => {
  const svg = it.ownerSVGElement, box = svg.viewBox.baseVal;
  const scale = box && box.width ? svg.getBoundingClientRect().width / box.width : 1;
  return [it.textContent, parseFloat(getComputedStyle(it).fontSize) * scale];
}).filter(([, size]) => size < least)
"""


def looked_at(look, path, name):
    for scheme in ("light", "dark"):
        page = opened(look, path, scheme=scheme)
        assert page.title().strip(), "it has a title"
        assert page.locator("h1").count() == 1, "it has one main heading"
        assert page.locator("header .logo").is_visible(), "it has the logo"
        assert page.locator("header").inner_text().startswith("Headstart"), "it has the name"
        footer = page.locator("footer").inner_text()
        assert MADE.search(footer), f"the footer says: {footer}"
        look.shot(page, f"{name}-{scheme}")
        # What is folded away is named too.
        page.locator("details").evaluate_all(UNFOLD)
        missing = names.nameless(page)
        assert not missing, f"without a name: {missing}"
        poor = names.poor_contrasts(page)
        assert not poor, f"hard to read: {poor}"
        assert has_scheme(page, scheme), f"it is not {scheme}"
        assert not page.troubles, f"the console says: {page.troubles}"
        page.context.close()
    fits_a_phone(look, path, name)


def opened(look, path, **how):
    page = look.page(**how)
    page.goto(path.as_uri())
    page.wait_for_load_state()
    return page


def has_scheme(page, scheme):
    """Whether the page behind the text is dark where it should be."""
    painted = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    is_dark = sum(map(int, re.findall(r"\d+", painted)[:3])) < 3 * 128
    return is_dark == (scheme == "dark")


def fits_a_phone(look, path, name):
    page = opened(look, path, viewport=PHONE)
    look.shot(page, f"{name}-small")
    for folding in (FOLD, UNFOLD):
        page.locator("details").evaluate_all(folding)
        page.wait_for_timeout(100)
        wide, seen = page.evaluate("""() => [document.documentElement.scrollWidth,
            document.documentElement.clientWidth]""")
        assert wide <= seen, f"it is {wide} pixels wide on a screen of {seen}"
        small = page.evaluate(SMALL_TEXTS, TEXT_PX_MIN)
        assert not small, f"too small to read: {small[:5]}"
    assert not page.troubles, f"the console says: {page.troubles}"
    page.context.close()


def has_tiles(look, path, first_names):
    """The key figures, in order, each with a value; what to do first is below them."""
    page = opened(look, path)
    shown = page.locator("#tiles dt").all_inner_texts()
    for text, expected in zip(shown, first_names, strict=True):
        assert text.startswith(expected), f"{shown} instead of {first_names}"
    values = page.locator("#tiles dd:not(.under)").all_inner_texts()
    assert len(values) == len(shown) and all(value.strip() for value in values), values
    page.context.close()


def has_first(look, path):
    page = opened(look, path)
    headings = page.locator("main h2").all_inner_texts()
    assert headings[:3] == ["Do this first", "Findings", "Causes"], headings
    assert page.locator("#first .fix").inner_text().strip(), "a fix"
    assert page.locator("#causes .falls > li").count() > 0, "the causes are bars"
    page.context.close()


ANALYSIS_TILES = ["Hit rate now", "Hit rate with", "Wasted", "Top cause"]


def has_verdict(look, path):
    page = opened(look, path)
    assert page.locator("main h2").first.inner_text() == "Result"
    assert page.locator("#verdict p").first.inner_text().endswith("."), "a sentence"
    assert page.locator("#main svg polyline").count() > 1, "curves"
    page.context.close()


def trace(look):
    """A trace of conversations over one system prompt."""
    path = look.work / "trace.jsonl"
    if not path.exists():
        made_by = ["trace", "synth", "chat", "--seed", "1", "--output", path]
        done = subprocess.run(
            [look.headstart, *map(str, made_by)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
    return path


def has_theme_button(look, path):
    page = opened(look, path, scheme="light")
    page.get_by_role("button", name="Theme: system").click()
    assert has_scheme(page, "light"), "it is not light"
    page.get_by_role("button", name="Theme: light").click()
    assert has_scheme(page, "dark"), "it is not dark"
    page.context.close()


def the_report_of_a_replay_opens(look):
    path = made(look, "replay", "replay", trace(look), "--capacity", "500,2000", "--html")
    looked_at(look, path, "report-replay")
    has_theme_button(look, path)


def request_log(look):
    """Requests with a clock in front of what they share."""
    path = look.work / "requests.jsonl"
    system = "You are a careful assistant. " * 60
    lines = []
    for at in range(60):
        content = f"Now: 2026-03-01 10:{at:02}. {system}" if at % 2 else system
        messages = [{"role": "system", "content": content},
                    {"role": "user", "content": f"Question {at % 7}: what about part {at}?"}]
        lines.append(json.dumps({"model": "m", "timestamp": at, "messages": messages}))
    path.write_text("\n".join(lines) + "\n")
    return path


def the_report_of_an_analysis_opens(look):
    path = made(look, "analyze", "analyze", request_log(look), "--html")
    looked_at(look, path, "report-analyze")
    has_tiles(look, path, ANALYSIS_TILES)
    has_first(look, path)


def the_report_of_the_demo_opens(look):
    path = made(look, "demo", "demo", "--html")
    looked_at(look, path, "report-demo")
    has_tiles(look, path, ANALYSIS_TILES)
    has_first(look, path)


def the_report_of_a_simulation_opens(look):
    command = ["prediction", "--preset", "lpc-lmsys", "--minutes", "2", "--seeds", "1",
               "--policies", "lru,oracle", "--sizes", "60K,80K,100K", "--predictor", "none", "--html"]
    path = made(look, "simulate", *command, program="headstart-lab")
    looked_at(look, path, "report-simulate")
    has_verdict(look, path)


def the_report_of_a_fleet_opens(look):
    path = made(look, "fleet", "simulate", "fleet", "--preset", "laptop", "--html")
    looked_at(look, path, "report-fleet")
    has_verdict(look, path)


def talks(look):
    """Conversations in which only questions are followed by something."""
    path, rng = look.work / "talks.jsonl", random.Random(1)
    words = "river stone paper light garden winter market yellow answer letter".split()
    some = lambda count: " ".join(rng.choice(words) for _ in range(count))
    lines = []
    for _ in range(120):
        turns, messages = rng.randrange(1, 5), []
        for turn in range(turns):
            asked = some(8) + ("?" if turn + 1 < turns else ".")
            messages += [{"role": "user", "content": asked},
                         {"role": "assistant", "content": some(12)}]
        lines.append(json.dumps({"messages": messages}))
    path.write_text("\n".join(lines) + "\n")
    return path


def the_report_of_a_training_opens(look):
    command = ["train", talks(look), "--epochs", "2", "--output", look.work / "model.hsp", "--html"]
    path = made(look, "train", *command)
    looked_at(look, path, "report-train")
    has_tiles(look, path, ["MCC on", "MCC of", "ROC-AUC", "Calibration"])


CHECKS = [
    the_report_of_a_replay_opens,
    the_report_of_an_analysis_opens,
    the_report_of_the_demo_opens,
    the_report_of_a_simulation_opens,
    the_report_of_a_fleet_opens,
    the_report_of_a_training_opens,
]
