"""Checks of the HTML reports: they open from a file, say what they are, and ask for nothing."""

import json
import random
import subprocess

import names


def made(look, name, *command):
    """The report that a command writes."""
    path = look.work / f"{name}.html"
    done = subprocess.run(
        [look.headstart, *map(str, command), path], capture_output=True, text=True, check=False,
        cwd=look.work, timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return path


def looked_at(look, path, name):
    for scheme in ("light", "dark"):
        page = look.page(scheme=scheme)
        page.goto(path.as_uri())
        page.wait_for_load_state()
        assert page.title().strip(), "it has a title"
        assert page.locator("h1").count() == 1, "it has one main heading"
        assert not page.troubles, f"the console says: {page.troubles}"
        # What is folded away is named too.
        page.locator("details").evaluate_all("all => all.forEach((it) => { it.open = true; })")
        missing = names.nameless(page)
        assert not missing, f"without a name: {missing}"
        poor = names.poor_contrasts(page)
        assert not poor, f"hard to read: {poor}"
        page.locator("details").evaluate_all("all => all.forEach((it) => { it.open = false; })")
        look.shot(page, f"{name}-{scheme}")
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


def the_report_of_a_replay_opens(look):
    path = made(look, "replay", "replay", trace(look), "--capacity", "500,2000", "--html")
    looked_at(look, path, "report-replay")


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


def the_report_of_the_demo_opens(look):
    path = made(look, "demo", "demo", "--html")
    looked_at(look, path, "report-demo")


def the_report_of_a_simulation_opens(look):
    command = ["simulate", "prediction", "--preset", "lpc-lmsys", "--minutes", "2", "--seeds", "1", "--policies",
               "lru,oracle", "--sizes", "60K,80K,100K", "--predictor", "none", "--html"]
    looked_at(look, made(look, "simulate", *command), "report-simulate")


def the_report_of_a_fleet_opens(look):
    path = made(look, "fleet", "simulate", "fleet", "--preset", "laptop", "--html")
    looked_at(look, path, "report-fleet")


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
    looked_at(look, made(look, "train", *command), "report-train")


CHECKS = [
    the_report_of_a_replay_opens,
    the_report_of_an_analysis_opens,
    the_report_of_the_demo_opens,
    the_report_of_a_simulation_opens,
    the_report_of_a_fleet_opens,
    the_report_of_a_training_opens,
]
