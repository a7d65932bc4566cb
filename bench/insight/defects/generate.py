#!/usr/bin/env python3
# -*- coding: utf-8 -*-
"""Writes logs with one defect each, and clean ones, to target/defects. See README.md.

    bench/insight/defects/generate.py [--only SLUG,…] [--no-check] [--list]

The same bytes each time.
"""

import sys, os, json, re, random, shutil, time, hashlib, datetime as dt, collections
import core, kinds
from core import *

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3))
HERE = os.path.join(ROOT, "target", "defects")
"""The logs: some 145 MB."""
SELF = [
    "qwen2.5-72b-instruct",
    "llama-3.3-70b-instruct",
    "mistral-small-3.1-24b",
    "glm-4.6",
    "kimi-k2-instruct",
    "deepseek-v3.1",
    "qwen3-coder-30b",
]
SEED = "prefix-defects-1"


def defaults(c, rng):
    c.want = None
    c.js = c.long_user = c.dateend = c.refend = c.tight = c.rich = c.long = False
    c.steps = (1, 2)
    c.explode = 0
    c.evs = kinds.EV[c.lang].split("|")
    c.st = {}
    c.ex = []
    c.mi = None
    c.think_tag = False
    c.temp = rng.choice([None, 0, 0.2, 0.7])
    c.max_tokens = rng.choice([1024, 2048, 4096])
    c.style = rng.choice(["md", "xml", "colon", "eq", "br"])
    c.sysmode = rng.choice(["blocks", "blocks", "string"])
    c.marks = ("system", "last") if c.sysmode == "blocks" else ()
    if c.sysmode == "blocks" and rng.random() < 0.3:
        c.marks += ("tools",)
    c.keyhash = hexs(rng, 64)
    c.keyalias = rng.choice(["prod-chat", "agents", "batch-key", None])
    c.team = uid(rng) if rng.random() < 0.5 else None
    c.lstyle = rng.choice(["dict", "dict", "string", "messages"])
    c.log_session = rng.random() < 0.75
    c.static = rng.random() < 0.4
    c.metafield = rng.choice([0, 0, 0, 1, 2])
    c.stamp = rng.random() < 0.3
    c.bodykind = "anthropic" if c.shape == "anthropic" else "openai"


def set_model(c, rng, provider):
    c.provider = provider
    if provider:
        c.model = (
            rng.choice(["claude-sonnet-4-5", "claude-sonnet-4-20250514"])
            if c.bodykind == "anthropic"
            else rng.choice(["gpt-4o", "gpt-4.1", "gpt-4.1-mini"])
        )
        c.litellm_prefix = "anthropic/" if c.bodykind == "anthropic" else "openai/"
        c.api_base = (
            "https://api.anthropic.com" if c.bodykind == "anthropic" else "https://api.openai.com"
        )
        c.mode = "anthropic" if c.bodykind == "anthropic" else "openai"
    else:
        c.model = rng.choice(SELF)
        c.litellm_prefix = "hosted_vllm/"
        c.api_base = "http://vllm-0.internal:8000/v1"
        c.mode = "blocks16"


def setup(k, v, name, shape):
    c = Case()
    c.name, c.lang, c.shape, c.seed = name, v["L"], shape, SEED + name
    c.dom = None
    rng = random.Random("setup" + c.seed)
    c.rng = random.Random("defect" + c.seed)
    defaults(c, rng)
    c.app = v["app"]
    if shape == "litellm" and not k.get("api") and not k.get("provider") and rng.random() < 0.25:
        c.bodykind = "anthropic"
    kv = lambda x, d=None: v.get(x, k.get(x, d))
    c.turns = kv("turns") or (
        (1, 3)
        if k.get("cross")
        else {"chat": (3, 6), "agent": (2, 3), "rag": (2, 3), "single": (1, 1)}[c.app]
    )
    c.ntools = (
        v.get("ntools")
        or (
            {"agent": rng.randint(3, 4), "chat": rng.choice([0, 0, 3]), "rag": 0, "single": 0}[
                c.app
            ]
        )
    )
    if k["part"] == "tools":
        c.ntools = max(c.ntools, 3)
    c.want = v.get("want")
    c.js = bool(k.get("jsontools"))
    c.long_user = bool(k.get("long_user"))
    c.size = (
        v.get("size") or rng.choice(["S", "S", "M", "M", "L"])
        if not k.get("cross")
        else v.get("size") or rng.choice(["M", "M", "L"])
    )
    c.nusers = kv("nusers") or rng.randint(3, 8)
    c.ntenants = kv("ntenants") or (
        1 if k.get("cross") or k["part"] == "tools" or rng.random() < 0.75 else 2
    )
    c.long = rng.random() < 0.05
    c.nreq = (
        rng.choice([60, 62, 66, 70, 74, 80, 88, 96]) if not c.long else rng.choice([110, 140, 180])
    )
    if k["slug"] in ("tool_arguments_reserialised", "number_format_in_history"):
        c.steps = (2, 4)
    if k["slug"] in ("tool_results_cleared", "tool_output_shortened_later"):
        c.steps = (2, 3)
    if c.app == "agent" and not v.get("size"):
        c.size = rng.choice("SSM")
    c.rich = k["part"] == "messages"
    c.dateend = rng.random() < 0.25
    c.refend = rng.random() < 0.2
    c.think_tag = bool(v.get("tag"))
    c.tight = bool(v.get("slowmix"))
    prov = bool(k.get("provider") or k.get("anthropic_sim") or k.get("slow"))
    if k.get("slow") or k.get("anthropic_sim"):
        c.size = "L"
    if (
        not prov
        and not k.get("selfhost")
        and not k.get("burst")
        and not k.get("evict")
        and not k.get("restart")
        and c.size == "L"
        and rng.random() < 0.55
    ):
        prov = True
    if k.get("anthropic_sim"):
        c.sysmode, c.marks, c.bodykind = "blocks", (), "anthropic"
    if k["slug"] == "breakpoint_lookback_exceeded":
        c.explode = v["n"]
    if k.get("slow") or k["slug"] in (
        "message_ids_regenerated",
        "relative_ages_in_history",
        "prefix_below_minimum",
    ):
        c.stamp = False
    if k.get("slow"):
        c.dateend = False
    if prov and c.bodykind == "anthropic" and not k.get("anthropic_sim"):
        c.sysmode, c.marks = "blocks", ("system", "last")
    if v.get("where") == "msgs":
        c.bodykind = "openai"
    set_model(c, rng, prov)
    if c.ntools and c.lstyle == "messages":
        c.lstyle = "dict"
    if c.bodykind == "anthropic" and c.lstyle == "messages":
        c.lstyle = "dict"
    if k["part"] in ("request fields", "traffic"):
        c.metafield = 0
    if v.get("where") == "msgs":
        c.bodykind = "openai"
    if k["part"] == "request fields" and c.lstyle == "messages":
        c.lstyle = "dict"
    c.usage = bool(k.get("needusage")) or rng.random() < 0.64
    if k.get("slow"):
        c.nreq = 60
    if k.get("below"):
        c.turns = (1, 1)
        c.ntenants = 1
    return c


def special(c, k, v):
    """changes of the base log itself that some traffic kinds need (same for the counterfactual)"""
    rng = random.Random("special" + c.seed)
    if k and k.get("slow"):
        t = c.start
        for r in c.reqs:
            r["ts"] = t
            t += dt.timedelta(
                seconds=rng.uniform(*v["pause"]), microseconds=rng.randint(0, 999) * 1000
            )
    if k and k.get("burst"):
        n, t = v["n"], c.start
        for i in range(0, len(c.reqs), n):
            doc = [c.evs and None or None]
            D = B[c.lang][c.reqs[i]["sess"]["tenant"]["dom"]]
            txt = "\n".join(pick(rng, c.lang, D["passages"]) for _ in range(8))
            for j, r in enumerate(c.reqs[i : i + n]):
                r["ts"] = t + dt.timedelta(milliseconds=rng.randint(0, 25))
                r["lat"] = rng.uniform(2, 6)
                r["system"] = [[G[c.lang]["ctx"], txt]] + c.reqs[i]["sess"]["tenant"]["system"]
            t += dt.timedelta(seconds=rng.randint(25, 70))
        c.reqs.sort(key=lambda r: r["ts"])
    if k and k.get("below"):
        ten = c.tenants[0]
        L = c.lang
        body = lambda: (body_anthropic if c.bodykind == "anthropic" else body_openai)(
            c, dict(c.reqs[0], system=ten["system"], messages=[{"role": "user", "text": ""}])
        )
        size = lambda: len(linear(body()).encode()) // 4
        ref = ten["system"][[s[0] for s in ten["system"]].index(G[L]["titles"][2])]
        target = rng.randint(925, 985)
        while size() > target:
            ref[1] = ref[1].rsplit("\n", 1)[0] if "\n" in ref[1] else ""
        while size() < target - 22:
            ref[1] += "\n" + " | ".join(
                [rng.choice(SLOT[L]["p"]), rng.choice(SLOT[L]["c"]), code(rng), amount(rng, L)]
            )
        for r in c.reqs:
            r["system"] = ten["system"]


def bodies_of(c, reqs):
    f = body_anthropic if c.bodykind == "anthropic" else body_openai
    return [f(c, r) for r in reqs]


def run_sim(c, reqs, bodies, sim, ns=True, flush=None):
    out = []
    for r, b in zip(reqs, bodies):
        if flush and r["i"] % flush == 0:
            sim.flush()
        out.append(sim.ask(b, r["ns"] if ns else (), r["ts"].timestamp(), r["lat"]))
    return out


CHUNK = re.compile(r"[^.。!?！？\n;；]+")


def seen_shares(bodies):
    """per request: (share of text pieces met in an earlier request, share inside the longest common prefix)"""
    known, out, prev = set(), [], []
    sim = Sim("blocks16")
    for b in bodies:
        t = linear(b)
        ch = [x.strip() for x in CHUNK.findall(t)]
        ch = [x for x in ch if len(x) > 7]
        tot = sum(map(len, ch)) or 1
        s = sum(len(x) for x in ch if x in known) / tot
        total, cached, _ = sim.ask(b, (), 0.0)
        out.append((s, cached / max(1, total)))
        known.update(ch)
    return out


def first_diff(c, reqs, bodies):
    """message index of the first difference between neighbours of a session (most frequent), and sample texts"""
    last, cnt, ex = {}, collections.Counter(), None
    for r, b in zip(reqs, bodies):
        p = last.get(r["session"])
        if p is not None:
            a, d = strip_cc(p["messages"]), strip_cc(b["messages"])
            for i, (x, y) in enumerate(zip(a, d)):
                if x != y:
                    if r["affected"]:
                        cnt[i] += 1
                    break
        last[r["session"]] = b
    return cnt.most_common(1)[0][0] if cnt else None


def diff_examples(reqs, bodies, tools=False):
    last = {}
    for r, b in zip(reqs, bodies):
        s = linear(b)
        key = r["sess"]["tenant"]["dom"] + r["session"]
        p = last.get(key)
        last[key] = s
        if p is None or not r["affected"]:
            continue
        n = min(len(p), len(s))
        i = 0
        while i + 256 <= n and p[i : i + 256] == s[i : i + 256]:
            i += 256
        while i < n and p[i] == s[i]:
            i += 1
        if i > min(len(p), len(s)) - 20:
            continue
        if i >= len(p) - 2:
            continue
        out = []
        for z in (p, s):
            b0 = max(z.rfind("\n", 0, i) + 1, i - 24)
            e0 = z.find("\n", i)
            e0 = len(z) if e0 < 0 else e0
            out.append(z[b0 : min(e0, i + 40)])
        if len(set(out)) < 2 or min(map(len, out)) < 4 or any("<|" in o for o in out):
            b0 = max(p.rfind("|>\n", 0, i + 2) + 3, i - 30)
            out = [z[b0 : i + 30] for z in (p, s)]
            if any("<|" in o for o in out):
                continue
        if out[0] != out[1]:
            return out
    return []


def all_strings(raw):
    out = []

    def walk(x):
        if isinstance(x, str):
            out.append(x)
            if x[:1] == "{" and '"messages"' in x:
                walk(json.loads(x))
        elif isinstance(x, dict):
            for y in x.values():
                walk(y)
        elif isinstance(x, list):
            for y in x:
                walk(y)

    for l in raw.rstrip("\n").split("\n"):
        d = json.loads(l)
        walk(d)
        p = d.get("proxy_server_request")
        p = json.loads(p) if isinstance(p, str) else p
        if p:
            out.append(J(p.get("tools", [])))
    return "\0".join(out)


def make_case(k, v, name, shape, where):
    c = setup(k, v, name, shape)
    build_base(c)
    special(c, k, v)
    base = [clone(r) for r in c.reqs]
    reqs = []
    for r in c.reqs:
        q = clone(r)
        q["ns"] = ()
        k["f"](q, c, v)
        reqs.append(q)
    if k.get("dup") and not v.get("where"):
        pass
    bb, db = bodies_of(c, base), bodies_of(c, reqs)
    mode = c.mode
    # usage in the log
    if k.get("slow"):
        lsim = Sim(mode, ttl=3600 if v["pause"][0] > 3600 else 300)
    elif k.get("evict"):
        s0 = Sim("blocks16")
        run_sim(c, reqs, db, s0)
        lsim = Sim("blocks16", cap=int(len(s0.store) * v["cap"]))
    elif k.get("burst"):
        lsim = Sim("blocks16", visible=1.0)
    else:
        lsim = Sim(mode, ttl=None)
    usages = run_sim(c, reqs, db, lsim, flush=v.get("every") if k.get("restart") else None)
    # needless work, measured against the same log without the defect
    ideal = run_sim(c, base, bb, Sim("blocks16"), ns=False)
    if (
        k.get("slow")
        or k.get("evict")
        or k.get("burst")
        or k.get("restart")
        or k.get("below")
        or k.get("anthropic_sim")
    ):
        real = usages
    else:
        real = run_sim(c, reqs, db, Sim("blocks16"))
    tot = sum(u[0] for u in real)
    share = (sum(u[0] - u[1] for u in real) - sum(u[0] - u[1] for u in ideal)) / tot
    harmed = [
        i
        for i, (u, w) in enumerate(zip(real, ideal))
        if (u[0] - u[1]) - (w[0] - w[1]) > 0.05 * u[0]
    ]
    sh = seen_shares(db)
    good = [
        i for i in harmed if sh[i][0] >= 0.4 and (not k["in_prompt"] or sh[i][0] - sh[i][1] >= 0.03)
    ]
    early = sum(real[i][1] / real[i][0] for i in harmed) / max(1, len(harmed))
    # truth
    lab = v.get("lab") or k.get("lab0")
    part = v.get("part", k["part"])
    ex = []
    if not k.get("noex"):
        for (i, a), (j, b) in zip(c.ex, c.ex[1:]):
            if a != b:
                ex = [a, b]
                break
        seen = set(ex)
        for i, a in c.ex[2:]:
            if len(ex) >= 4:
                break
            if ex and a not in seen:
                ex.append(a)
                seen.add(a)
    elif k["in_prompt"]:
        ex = diff_examples(reqs, db, part == "tools")
    elif k.get("slow") or k.get("burst"):
        ex = [iso(r["ts"]) for r in reqs[1:4]]
    else:
        ex = [
            "req_" + reqs[i]["rid"] if shape != "litellm" else "chatcmpl-" + reqs[i]["rid"]
            for i in harmed[:3]
        ]
    mi = None
    if part == "messages":
        mi = first_diff(c, reqs, db)
    elif part == "system" and c.bodykind == "openai":
        mi = 0
    acc = list(k["accept"])
    if k.get("labelled") and lab and len(lab) > 1:
        q = (
            (r"(?<!\w)" if lab[0].isalnum() else "")
            + re.escape(lab)
            + (r"(?!\w)" if lab[-1].isalnum() else "")
        )
        acc += [q + r".{0,160}" + kinds.CH, kinds.CH + r".{0,160}" + q]
    um = {
        "blocks16": "block16: 4 UTF-8 bytes per token, 16-token blocks, longest common prefix with any earlier request of the log",
        "openai": "openai: 4 UTF-8 bytes per token, at least 1024 tokens, steps of 128",
        "anthropic": "anthropic: 4 UTF-8 bytes per token, cache_control breakpoints, at least 1024 tokens, lookback of 20 blocks, 5 minutes",
    }[lsim.mode]
    if lsim.ttl:
        um += f"; entries live {lsim.ttl} s"
    if lsim.cap:
        um += f"; LRU capacity {lsim.cap} blocks"
    truth = {
        "kind": k["slug"],
        "language": c.lang,
        "shape": shape,
        "title": k["title"].replace("{lab}", str(lab)),
        "in_prompt": k["in_prompt"],
        "where": {"part": part, "message_index": mi, "label": lab, "examples": ex},
        "accept": acc,
        "fix": k["fix"],
        "affected_share": round(max(0, share), 3),
        "affected_requests": round(len(harmed) / len(reqs), 3),
        "requests": len(reqs),
        "app": c.app,
        "body": c.bodykind,
        "usage_in_log": c.usage,
        "usage_model": um if c.usage else None,
    }
    d = os.path.join(HERE, where, name)
    os.makedirs(d, exist_ok=True)
    write_rows(c, reqs, db, usages, os.path.join(d, "log.jsonl"))
    json.dump(
        truth,
        open(os.path.join(d, "truth.json"), "w", encoding="utf-8"),
        ensure_ascii=False,
        indent=1,
    )
    # self-check
    raw = open(os.path.join(d, "log.jsonl"), encoding="utf-8").read()
    plain = all_strings(raw)
    lit = [e for e in ex if e not in raw and e not in plain]
    prob = []
    if share < 0.03:
        prob.append(f"share {share:.3f}")
    if len(harmed) < 0.12 * len(reqs):
        prob.append(f"harmed {len(harmed)}/{len(reqs)}")
    if len(good) < 0.6 * len(harmed):
        prob.append(
            f"good {len(good)}/{len(harmed)} seen {sum(sh[i][0] for i in harmed) / max(1, len(harmed)):.2f}"
        )
    if len(ex) < 2:
        prob.append("examples")
    if lit:
        prob.append(f"literal {lit[:1]}")
    n = sum(len(linear(b).encode()) for b in db) / len(db)
    return (
        truth,
        prob,
        dict(
            name=name,
            where=where,
            share=share,
            harmed=len(harmed) / len(reqs),
            lcp=early,
            kb=n / 1024,
            size=len(raw.encode()),
            n=len(reqs),
            seen=sum(sh[i][0] for i in harmed) / max(1, len(harmed)),
        ),
    )


def make_clean(i, name):
    rng = random.Random(f"{SEED}clean{i}")
    c = Case()
    c.lang = core.LANGS[i % 5]
    c.shape = ["openai", "anthropic", "litellm"][(i // 5) % 3]
    c.name, c.seed, c.dom = name, SEED + name, None
    defaults(c, rng)
    if c.shape == "litellm" and rng.random() < 0.3:
        c.bodykind = "anthropic"
    c.app = ["chat", "agent", "rag", "single"][(i // 2 + i) % 4]
    c.turns = {"chat": (3, 6), "agent": (2, 3), "rag": (1, 3), "single": (1, 1)}[c.app]
    c.ntools = {
        "agent": rng.randint(3, 6),
        "chat": rng.choice([0, 0, 3, 4]),
        "rag": rng.choice([0, 2]),
        "single": 0,
    }[c.app]
    c.size = rng.choice("SSMML")
    c.nusers = rng.randint(3, 12)
    c.ntenants = rng.choice([1, 1, 2, min(3, len(B[c.lang]))])
    c.nreq = rng.choice([60, 64, 70, 80, 96, 120])
    c.long = rng.random() < 0.1
    c.rich = rng.random() < 0.4
    c.dateend = rng.random() < 0.4
    c.refend = rng.random() < 0.3
    prov = c.size == "L" and rng.random() < 0.7
    if prov and c.bodykind == "anthropic":
        c.sysmode, c.marks = "blocks", ("system", "last")
    set_model(c, rng, prov)
    c.usage = rng.random() < 0.67
    if c.lstyle == "messages" and (c.ntools or c.bodykind == "anthropic"):
        c.lstyle = "dict"
    build_base(c)
    reqs = [clone(r) for r in c.reqs]
    keep = rng.random() < 0.4 and c.app == "agent"
    if keep:
        for r in reqs:
            for m in r["messages"]:
                if m["role"] == "assistant":
                    m["keep_think"] = True
    db = bodies_of(c, reqs)
    us = run_sim(c, reqs, db, Sim(c.mode))
    ideal = run_sim(c, reqs, db, Sim("blocks16"))
    # check: everything known (tools+system of the tenant; whole previous request of the session) is inside the shared prefix
    ten, last, bad = {}, {}, 0
    for r, b, u in zip(reqs, db, ideal):
        t = linear(b)
        key = r["sess"]["n"] % c.ntenants
        head = linear(dict(b, messages=[]))
        bound = len(head.encode()) if key in ten else 0
        if r["session"] in last:
            bound = max(bound, len(last[r["session"]].encode()))
        if u[1] * 4 < bound - 128:
            bad += 1
        ten[key] = 1
        last[r["session"]] = t
    sh = seen_shares(db)
    gap = sum(max(0, a - b) for a, b in sh[5:]) / len(sh[5:])
    d = os.path.join(HERE, "clean", name)
    os.makedirs(d, exist_ok=True)
    write_rows(c, reqs, db, us, os.path.join(d, "log.jsonl"))
    json.dump(
        {
            "kind": "clean",
            "language": c.lang,
            "shape": c.shape,
            "title": "No prefix-cache defect: what is recomputed is new text.",
            "in_prompt": False,
            "where": None,
            "accept": [],
            "fix": None,
            "affected_share": 0.0,
            "app": c.app,
            "body": c.bodykind,
            "tenants": c.ntenants,
            "requests": len(reqs),
            "usage_in_log": c.usage,
            "usage_model": c.mode if c.usage else None,
        },
        open(os.path.join(d, "truth.json"), "w", encoding="utf-8"),
        ensure_ascii=False,
        indent=1,
    )
    c.gap = gap
    return c, bad, gap, os.path.getsize(os.path.join(d, "log.jsonl"))


README = """# Prefix-cache defect benchmark

Synthetic request logs, each with one dominant reason why prompt prefixes are not reused, plus clean logs.
Made without sight of any detector; the defects come from knowledge of agents, RAG and chat products, public issue threads
(wall-clock lines, billing header lines, memory blocks, dropped thinking blocks, tool order, ...) and provider documentation.

    python3 generate.py            # writes seen/, unseen/, clean/, summary.json, this file; prints the self-check (25 s, one core)
    python3 generate.py --only SLUG[,SLUG] --list
    python3 verify.py              # independent of the generator's state: reads the files again
    python3 check_accept.py        # accept patterns: must match their own title; lists those that match many other kinds' titles

Seeded and deterministic (standard library only): the same bytes at each run. `texts.py` is the hand-written text bank (12 domains in
English, German, French, Spanish, Chinese), `core.py` builds defect-free sessions, renders the three log shapes and simulates
caches, `kinds.py` holds the defects (a hook per kind, 3 to 5 hand-written variants each).

## Layout
`seen/`, `unseen/` (the variants of each kind are split in halves; which half is the larger alternates), `clean/`. Each directory: `log.jsonl` and `truth.json`.
Names (`case-017`) say nothing about the kind.

## How a case is made
1. A clean log is built: 1 or 2 tenants with their own system prompt (3 tenants at most in clean logs), several users, interleaved sessions, growing histories.
2. The hook of the kind changes each request (text, tools, history, fields, time stamps).
3. Both versions go through the cache simulator. `affected_share` = (tokens recomputed with the defect minus tokens recomputed without) / all prompt tokens;
   `affected_requests` = share of requests that lose more than 5 % of their prompt that way. Text that the defect itself adds (e.g. retrieved passages) counts as recomputed; the figure is rough.
4. Prompts are 1.5 to 8 KB as a rule (median 4.4 KB; agent sessions with many tool results are longer). 60 to 200 requests a log.

Harmless company that is no defect (in defect and clean logs alike): fixed version / cutoff / tenant lines at the front, per-message time stamps that stay fixed in the history,
date and reference number at the end of messages, `metadata`/`user`/`stream` fields that differ per request, several tenants, moving cache_control marks, thinking blocks that are always kept.

## Log shapes
- `openai`: `{timestamp, request_id, user, body, response:{id, model, usage}}`, sometimes `session_id`, `upstream`.
- `anthropic`: same envelope, Messages bodies (system string or blocks, cache_control, input_schema), usage with cache_read/creation_input_tokens.
- `litellm`: spend-log rows. `messages` is `{}` and the body is in `proxy_server_request` (object, or JSON string with string `metadata`), as current versions write it;
  some without tools are older rows with `messages` filled and `proxy_server_request` `{}`. About a quarter carry Anthropic bodies (`call_type` `anthropic_messages`; `truth.body` tells).
  Without `usage_object`, `prompt_tokens` is still there, as in real rows.
  `session_id` is the conversation in about three quarters of the cases, else a new id per row (as LiteLLM does when the client sends none).

## Cached tokens
4 UTF-8 bytes a token. Order: tools, response_format, system, messages (tool_choice/thinking settings count as part of the start of the messages).
`usage_model` in truth says which simulator made the figures: `block16` (16-token blocks, longest common prefix with any earlier request; self-hosted model names),
`openai` (1024 minimum, steps of 128; gpt names), `anthropic` (breakpoints, 20-block lookback, 1024 minimum, 5 minutes; claude names). Model, deployment, salt, adapter, key keep caches apart. Usage is left out in about a third of the logs.

## truth.json
As asked, plus `affected_requests`, `requests`, `app`, `body`, `usage_in_log`, `usage_model`. `where.message_index` counts in `body.messages` (with OpenAI bodies the system message is 0);
for `part: messages` it is the most frequent index of the first difference between neighbouring requests of a session. `where.examples` are literal after JSON decoding (nested JSON strings decoded too; for tool definitions as `json.dumps(..., ensure_ascii=False)` writes them).
For `traffic` kinds they are time stamps, hosts, keys or ids of affected requests.
Some kinds are near relatives (e.g. `clock_*`, `tool_results_cleared` and `tool_output_shortened_later`, `tool_subset_per_query`, `tools_added_mid_conversation` and `mcp_server_flapping`); their `accept` lists overlap on purpose, since a description of the shared mechanism is right for each.

## Self-check (in generate.py)
Defect cases: affected_share at least 0.03, at least 12 % of requests harmed, at least 60 % of the harmed requests have 40 % or more of their text pieces in earlier requests and (in-prompt kinds)
diverge before that text ends; two or more literal, differing examples. Clean: each request's shared prefix covers tools and system of its tenant (once seen) and the whole previous request of its session, to within 128 bytes;
mean share of known text outside the shared prefix at most 0.2 (repeated retrieved passages and stock phrases).

## Counts
"""


def readme(s, rows):
    by = collections.defaultdict(list)
    for t, st in rows:
        by[t["kind"]].append((t, st))
    o = [README]
    o.append(
        f"{s['cases']} defect cases in {s['kinds']} kinds ({s['seen']} seen, {s['unseen']} unseen), {s['clean']} clean logs, {s['total_mb']} MB.\n"
    )
    for k in (
        "shape",
        "language",
        "part",
        "in_prompt",
        "app",
        "usage",
        "clean_shape",
        "clean_language",
        "clean_app",
    ):
        o.append(f"- {k}: " + ", ".join(f"{a} {b}" for a, b in s[k].items()))
    o.append(
        "\n| kind | part | in prompt | seen | unseen | languages | mean affected share |\n|---|---|---|---|---|---|---|"
    )
    for k in kinds.K:
        v = by[k["slug"]]
        o.append(
            f"| {k['slug']} | {'/'.join(sorted({t['where']['part'] for t, _ in v}))} | {'yes' if k['in_prompt'] else 'no'} | {sum(x['where'] == 'seen' for _, x in v)} | {sum(x['where'] == 'unseen' for _, x in v)} | {' '.join(sorted({t['language'] for t, _ in v}))} | {sum(t['affected_share'] for t, _ in v) / len(v):.2f} |"
        )
    open(os.path.join(HERE, "README.md"), "w", encoding="utf-8").write("\n".join(o) + "\n")


def main():
    only = sys.argv[sys.argv.index("--only") + 1].split(",") if "--only" in sys.argv else None
    if not only:
        for w in ("seen", "unseen", "clean"):
            shutil.rmtree(os.path.join(HERE, w), ignore_errors=True)
    jobs, gi = [], 0
    for ki, k in enumerate(kinds.K):
        vs = list(range(len(k["variants"])))
        if ki % 2 and len(vs) >= 4:
            vs.remove((ki // 2) % 4)
        random.Random(f"{SEED}split{k['slug']}").shuffle(vs)
        half = len(vs) // 2 + (len(vs) % 2 and (ki // 2) % 2)
        for pos, vi in enumerate(vs):
            v = k["variants"][vi]
            sh = v.get("shape") or k.get("shape")
            if not sh:
                opts = (
                    ["openai", "litellm"]
                    if k.get("api") == "openai"
                    else ["anthropic", "litellm"]
                    if k.get("anthropic_sim")
                    else ["openai", "anthropic", "litellm"]
                )
                sh = opts[(ki + vi) % len(opts)]
            jobs.append((k, v, sh, "seen" if pos < half else "unseen"))
    order = list(range(len(jobs)))
    random.Random(SEED + "names").shuffle(order)
    rows, probs, t0 = [], [], time.time()
    for num, j in zip(order, jobs):
        k, v, sh, where = j
        if only and k["slug"] not in only:
            continue
        try:
            tr, pr, st = make_case(k, v, f"case-{num:03d}", sh, where)
        except Exception as e:
            if "--raise" in sys.argv:
                raise
            probs.append((k["slug"], v["L"], [repr(e)]))
            continue
        rows.append((tr, st))
        if pr:
            probs.append((k["slug"], v["L"], v["app"], sh, where + "/case-%03d" % num, pr))
    if "--list" in sys.argv:
        for tr, st in rows:
            print(
                f"{tr['kind']:32} {tr['language']} {tr['shape']:9} {tr['app']:6} share {st['share']:.2f} harmed {st['harmed']:.2f} lcp {st['lcp']:.2f} seen {st['seen']:.2f} kb {st['kb']:.1f} n {st['n']} mi {tr['where']['message_index']} ex {str(tr['where']['examples'])[:110]}"
            )
    clean = []
    if not only:
        for i in range(60):
            c, bad, gap, sz = make_clean(i, f"clean-{i:02d}")
            clean.append((c, sz))
            if bad or gap > 0.2:
                probs.append(
                    (
                        "clean",
                        c.lang,
                        c.app,
                        c.shape,
                        c.name,
                        [f"bad {bad} gap {gap:.2f} tenants {c.ntenants}"],
                    )
                )
    if clean:
        print(
            "clean: mean known text outside the shared prefix, max",
            round(sum(c.gap for c, _ in clean) / len(clean), 3),
            round(max(c.gap for c, _ in clean), 3),
        )
    print("problems", len(probs))
    for p in probs:
        print("  ", p)
    S = sum(st["size"] for _, st in rows) + sum(s for _, s in clean)
    cnt = lambda f: dict(collections.Counter(f(t) for t, _ in rows).most_common())
    summary = dict(
        cases=len(rows),
        kinds=len({t["kind"] for t, _ in rows}),
        seen=sum(st["where"] == "seen" for _, st in rows),
        unseen=sum(st["where"] == "unseen" for _, st in rows),
        clean=len(clean),
        total_mb=round(S / 1e6, 1),
        shape=cnt(lambda t: t["shape"]),
        language=cnt(lambda t: t["language"]),
        part=cnt(lambda t: t["where"]["part"]),
        in_prompt=cnt(lambda t: str(t["in_prompt"])),
        app=cnt(lambda t: t["app"]),
        usage=cnt(lambda t: str(t["usage_in_log"])),
        clean_shape=dict(collections.Counter(c.shape for c, _ in clean)),
        clean_language=dict(collections.Counter(c.lang for c, _ in clean)),
        clean_app=dict(collections.Counter(c.app for c, _ in clean)),
        mean_share=round(sum(st["share"] for _, st in rows) / max(1, len(rows)), 3),
        kind_counts=cnt(lambda t: t["kind"]),
        check_problems=len(probs),
    )
    print(json.dumps({k: v for k, v in summary.items() if k != "kind_counts"}, indent=None))
    print("seconds", round(time.time() - t0))
    if not only:
        readme(summary, rows)
    if not only:
        json.dump(summary, open(os.path.join(HERE, "summary.json"), "w"), indent=1)


if __name__ == "__main__":
    main()
