"""Checks of the dashboard at `/`."""

import re
import time

from playwright.sync_api import expect

import names
from world import Clients, Server, emulated

# Main-thread work at 100 requests a second, milliseconds per second.
WORK_MS_MAX = 100.0
RATE = 100
MEASURED_S = 10

SMALL = ("--replicas", "2", "--cache-blocks", "512")


def no_trouble(page):
    assert not page.troubles, f"the console says: {page.troubles}"


def opened(look, server, **how):
    page = look.page(**how)
    page.goto(server.url)
    expect(page.locator("#status-text")).to_have_text("Live")
    return page


def number(page, name):
    """The figure under a heading."""
    cell = page.locator("#figures > div", has=page.get_by_text(name, exact=True))
    return cell.locator("dd").first.inner_text()


def an_empty_server_says_what_to_do(look):
    with Server(look.headstart, look.work, *SMALL) as server:
        page = opened(look, server)
        expect(page.get_by_role("heading", name="No requests yet")).to_be_visible()
        assert f"curl {server.url}/v1/chat/completions" in page.locator("#curl").inner_text()
        look.shot(page, "empty-light")
        assert not names.nameless(page), names.nameless(page)
        assert not names.poor_contrasts(page), names.poor_contrasts(page)
        no_trouble(page)
        page.context.close()


def it_loads_and_follows_what_happens(look):
    with Server(look.headstart, look.work, *SMALL) as server:
        page = opened(look, server)
        answer = page.request.get(server.url)
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'") and "unsafe" not in policy, policy
        with Clients(server, 20):
            expect(page.locator("#empty")).to_be_hidden()
            expect(page.locator("#foot")).to_contain_text(re.compile(r"[1-9]\d* requests since"))
            before = page.locator("#foot").inner_text()
            expect(page.locator("#foot")).not_to_have_text(before)
            expect(page.locator("#loss > li").first).to_be_visible()
            expect(page.locator("#requests > li")).to_have_count(12, timeout=20_000)
            expect(page.locator("#requests > li .words").first).to_contain_text(
                re.compile(r"Replica \d: [\d,]+ of [\d,]+ tokens cached")
            )
            expect(page.locator("#rate path").first).to_have_attribute("d", re.compile("^M"))
            the_details_of_a_request(page, server)
        page.reload()
        expect(page.locator("#status-text")).to_have_text("Live")
        expect(page.locator("#rate path").first).to_have_attribute("d", re.compile("^M"))
        assert number(page, "Hit rate, last minute").endswith("%")
        # Nothing moves any more while it is paused.
        page.get_by_role("button", name="Pause").click()
        expect(page.locator("#status-text")).to_have_text("Paused")
        page.get_by_role("button", name="Resume").click()
        expect(page.locator("#status-text")).to_have_text("Live")
        no_trouble(page)
        page.context.close()


def the_details_of_a_request(page, server):
    """They open by an id, stay while others come, and close."""
    page.locator("#requests button.id").first.click()
    details = page.locator("#request")
    expect(details.locator("#request-lead")).to_contain_text(re.compile("prompt tokens"))
    request = details.locator("#request-id").inner_text()
    expect(details.locator("#request-why")).to_have_text(f"headstart why {request} --url {server.url}")
    expect(details.locator("#request-facts")).to_contain_text("Model")
    expect(details.locator("#request-buckets > div").first).to_be_visible()
    expect(details.locator("#request-candidates > div")).to_have_count(2)
    # It stays while other requests come.
    expect(page.locator(f"#requests [data-id='{request}']")).to_have_count(0, timeout=20_000)
    expect(details.locator("#request-id")).to_have_text(request)
    assert not names.nameless(page), names.nameless(page)
    assert not names.poor_contrasts(page), names.poor_contrasts(page)
    details.get_by_role("button", name="Close").click()
    expect(details).to_be_hidden()


def it_names_the_server_and_counts_errors(look):
    with Server(look.headstart, look.work, *SMALL) as server:
        page = opened(look, server)
        expect(page).to_have_title(f"Headstart – toy – 127.0.0.1:{server.port}")
        expect(page.locator("#foot")).to_contain_text(re.compile(r"headstart \d+\.\d+\.\d+ \("))
        for name, path in [("Metrics", "/metrics"), ("OpenAPI", "/openapi.json")]:
            link = page.get_by_role("link", name=name)
            assert link.evaluate("(it) => it.href") == server.url + path
            assert page.request.get(server.url + path).ok
        assert page.request.get(server.url + "/favicon.ico").ok
        assert page.request.get(server.url + "/docs").status == 404
        assert number(page, "Errors") == "0"
        refused = page.request.post(
            server.url + "/v1/completions", data={"model": "none", "prompt": "secret"},
            headers={"x-request-id": "job-17"},
        )
        assert refused.status == 404, refused.text()
        row = page.locator("#requests > li.failed")
        expect(row).to_contain_text("job-17")
        expect(row).to_contain_text("/v1/completions answered 404, model_not_found")
        expect(page.locator("#figures")).to_contain_text("404: 1")
        assert "secret" not in page.content()
        # Times are predicted only where the engine's costs are known.
        with Clients(server, 20):
            expect(page.locator("#predictions-none")).to_contain_text("headstart calibrate")
            expect(page.locator("#ttft .p50")).to_have_attribute(
                "d", re.compile("^M"), timeout=20_000
            )
        expect(page.locator("#scatter")).to_be_hidden()
        no_trouble(page)
        page.context.close()
    with Server(look.headstart, look.work, *SMALL, *emulated(look.work)) as server:
        page = opened(look, server)
        with Clients(server, 20):
            expect(page.locator("#scatter")).to_be_visible(timeout=20_000)
        no_trouble(page)
        page.context.close()


def what_makes_prompts_differ_is_named(look):
    rules = "You answer questions about the harbour and its ferries, shortly. " * 30
    with Server(look.headstart, look.work, *SMALL) as server:
        page = opened(look, server)
        for minute in range(8):
            text = f"Now it is 2026-03-04T10:0{minute}:00Z.\n{rules}"
            messages = [{"role": "system", "content": text}, {"role": "user", "content": "When?"}]
            body = {"model": "toy", "messages": messages, "max_tokens": 1}
            assert page.request.post(server.url + "/v1/chat/completions", data=body).ok
        causes = page.locator("#loss .causes > li")
        expect(causes.first).to_contain_text("A date or time that changes", timeout=20_000)
        expect(causes.first).to_contain_text("or start with --normalize clock")
        page.locator("#requests button.id").first.click()
        expect(page.locator("#request-because")).to_contain_text(
            re.compile("Fix: move the date.*--normalize clock")
        )
        assert "ferries" not in page.content() and "ferries" not in page.request.get(
            server.url + "/dashboard/snapshot"
        ).text()
        look.shot(page, "causes-light")
        no_trouble(page)
        page.context.close()


def it_says_when_engines_are_down_and_recovers(look):
    engine = Server(look.headstart, look.work, *SMALL)
    with Server(look.headstart, look.work, "--upstream", engine.url) as gateway:
        page = opened(look, gateway)
        expect(page.locator("#replicas .health")).to_contain_text("up")
        expect(page.locator("#down")).to_be_hidden()
        engine.kill()
        expect(page.locator("#down")).to_contain_text("The engine is down", timeout=5_000)
        expect(page.locator("#replicas .health")).to_contain_text("down")
        expect(page.locator("#empty")).to_be_hidden()
        expect(page).to_have_title(f"Headstart – toy – 127.0.0.1:{gateway.port}")
        look.shot(page, "down-light")
        assert not names.nameless(page), names.nameless(page)
        assert not names.poor_contrasts(page), names.poor_contrasts(page)
        with Server(look.headstart, look.work, *SMALL, port=engine.port):
            expect(page.locator("#replicas .health")).to_contain_text("up", timeout=10_000)
            expect(page.locator("#down")).to_be_hidden()
            expect(page.locator("#status-text")).to_have_text("Live")
        no_trouble(page)
        page.context.close()


def the_tree_is_walked_by_keyboard(look):
    with Server(look.headstart, look.work, *SMALL) as server:
        with Clients(server, 30):
            page = opened(look, server)
            tree = page.get_by_role("tree", name=re.compile("Prefix tree"))
            rows = tree.get_by_role("treeitem")
            expect(rows.nth(5)).to_be_visible(timeout=20_000)
        page.get_by_role("button", name="Pause").click()
        focused = lambda: page.evaluate("document.activeElement.dataset.id")
        ids = lambda: rows.evaluate_all("rows => rows.map((row) => row.dataset.id)")
        # One row takes part in tabbing.
        assert rows.evaluate_all("rows => rows.filter((row) => row.tabIndex === 0).length") == 1
        tree.locator("[tabindex='0']").focus()
        all_ids = ids()
        page.keyboard.press("Home")
        assert focused() == all_ids[0]
        page.keyboard.press("ArrowDown")
        assert focused() == all_ids[1]
        page.keyboard.press("ArrowUp")
        page.keyboard.press("End")
        assert focused() == all_ids[-1]
        page.keyboard.press("Home")
        parents = rows.evaluate_all("rows => rows.filter((r) => r.ariaExpanded).map((r) => r.dataset.id)")
        assert parents, "prompts share prefixes, so that some branch has children"
        parent = tree.locator(f"[data-id='{parents[0]}']")
        while focused() != parents[0]:
            page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowLeft")
        expect(parent).to_have_attribute("aria-expanded", "false")
        assert len(ids()) < len(all_ids), "its branches are folded away"
        page.keyboard.press("ArrowRight")
        expect(parent).to_have_attribute("aria-expanded", "true")
        page.keyboard.press("ArrowRight")
        child = all_ids[all_ids.index(parents[0]) + 1]
        assert focused() == child
        level = lambda row: int(tree.locator(f"[data-id='{row}']").get_attribute("aria-level"))
        assert level(child) == level(parents[0]) + 1
        # A child that is open itself is folded first.
        page.keyboard.press("ArrowLeft")
        if focused() == child:
            page.keyboard.press("ArrowLeft")
        assert focused() == parents[0]
        expect(parent).to_have_attribute("aria-selected", "true")
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", "focus is seen"
        title = page.locator("#branch h3").inner_text()
        assert parents[0][:4] in title, title
        no_trouble(page)
        page.context.close()


def dark_and_light_both_read_well(look):
    with Server(look.headstart, look.work, *SMALL) as server, Clients(server, 25):
        background = lambda page: page.evaluate("getComputedStyle(document.body).backgroundColor")
        seen = {}
        for scheme in ("light", "dark"):
            page = opened(look, server, scheme=scheme)
            expect(page.locator("#requests > li")).to_have_count(12, timeout=20_000)
            page.wait_for_timeout(6000 if scheme == "light" else 1500)
            seen[scheme] = background(page)
            look.shot(page, f"busy-{scheme}")
            assert not names.poor_contrasts(page), names.poor_contrasts(page)
            no_trouble(page)
            page.context.close()
        assert seen["light"] != seen["dark"], seen
        page = opened(look, server, scheme="dark")
        page.get_by_role("button", name="Theme: system").click()
        expect(page.get_by_role("button", name="Theme: light")).to_be_visible()
        assert background(page) == seen["light"]
        page.reload()
        expect(page.get_by_role("button", name="Theme: light")).to_be_visible()
        page.get_by_role("button", name="Theme: light").click()
        assert background(page) == seen["dark"]
        page.context.close()


def everything_has_a_name(look):
    with Server(look.headstart, look.work, *SMALL) as server, Clients(server, 25):
        page = opened(look, server, reduced_motion="reduce")
        expect(page.locator("#requests > li")).to_have_count(12, timeout=20_000)
        assert not names.nameless(page), names.nameless(page)
        for role, name in [
            ("tree", "Prefix tree"), ("slider", "Time in the chart"), ("list", "Replicas"),
            ("list", "Recent requests"), ("list", "Where the prompt tokens went"),
            ("region", "Loss waterfall"), ("button", "Theme"), ("status", ""),
        ]:
            assert names.named(page, role, name), f"{role} {name}"
        headings = page.locator("h1, h2").all_inner_texts()
        assert headings[0] == "Headstart" and len(headings) >= 9, headings
        # By tabulator alone: everything that can be operated is reached and seen.
        reached = set()
        for _ in range(25):
            page.keyboard.press("Tab")
            reached.add(page.evaluate(
                "(document.activeElement.id || document.activeElement.textContent).slice(0, 12)"
            ))
        for part in ("pause", "theme", "rate"):
            assert part in reached, f"{part} is not reached: {reached}"
        page.context.close()


def a_small_screen_is_enough(look):
    with Server(look.headstart, look.work, *SMALL) as server, Clients(server, 25):
        page = opened(look, server, viewport={"width": 390, "height": 844})
        expect(page.locator("#requests > li")).to_have_count(12, timeout=20_000)
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{wide} pixels stick out"
        look.shot(page, "narrow-light")
        page.context.close()


def it_says_when_figures_are_old_and_comes_back(look):
    server = Server(look.headstart, look.work, *SMALL)
    page = opened(look, server)
    server.kill()
    expect(page.locator("#status")).to_have_attribute("data-state", "stale", timeout=10_000)
    expect(page.locator("#status-text")).to_contain_text(re.compile(r"Stale: \d+ s old"))
    look.shot(page, "stale-light")
    with Server(look.headstart, look.work, *SMALL, port=server.port):
        expect(page.locator("#status-text")).to_have_text("Live", timeout=20_000)
    page.context.close()


def a_key_is_asked_for_and_kept_in_the_tab(look):
    key = look.work / "key"
    key.write_text("open sesame\n")
    with Server(look.headstart, look.work, *SMALL, "--api-key-file", str(key)) as server:
        page = look.page()
        page.goto(server.url)
        field = page.get_by_role("textbox", name="API key")
        expect(field).to_be_focused()
        look.shot(page, "key-light")
        assert not names.nameless(page), names.nameless(page)
        field.fill("wrong")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("does not take this key")
        field.fill("open sesame")
        page.keyboard.press("Enter")
        expect(page.locator("#status-text")).to_have_text("Live")
        page.reload()
        expect(page.locator("#status-text")).to_have_text("Live")
        kept = page.evaluate("[location.href, JSON.stringify(localStorage), document.cookie]")
        assert not any("sesame" in text for text in kept), kept
        troubles = [text for text in page.troubles if "401" not in text]
        assert not troubles, troubles
        page.context.close()


def it_works_little_at_a_hundred_requests_a_second(look):
    options = ["--replicas", "2", "--cache-blocks", "2048"]
    with Server(look.headstart, look.work, *options, *emulated(look.work)) as server:
        with Clients(server, RATE) as clients:
            page = opened(look, server)
            session = page.context.new_cdp_session(page)
            session.send("Performance.enable")

            def work_s():
                told = session.send("Performance.getMetrics")["metrics"]
                return {it["name"]: it["value"] for it in told}["TaskDuration"]

            time.sleep(3)
            begun, before, sent = time.monotonic(), work_s(), clients.sent
            time.sleep(MEASURED_S)
            seconds = time.monotonic() - begun
            work_ms, rate = (work_s() - before) * 1e3 / seconds, (clients.sent - sent) / seconds
            no_trouble(page)
            page.context.close()
    assert work_ms < WORK_MS_MAX, f"{work_ms:.0f} ms of main-thread work a second"
    assert rate > RATE / 2, f"only {rate:.0f} requests a second came through"
    return f"it works little: {work_ms:.0f} ms of main-thread work a second at {rate:.0f} requests/s"


CHECKS = [
    an_empty_server_says_what_to_do,
    it_loads_and_follows_what_happens,
    it_names_the_server_and_counts_errors,
    what_makes_prompts_differ_is_named,
    it_says_when_engines_are_down_and_recovers,
    the_tree_is_walked_by_keyboard,
    dark_and_light_both_read_well,
    everything_has_a_name,
    a_small_screen_is_enough,
    it_says_when_figures_are_old_and_comes_back,
    a_key_is_asked_for_and_kept_in_the_tab,
    it_works_little_at_a_hundred_requests_a_second,
]
