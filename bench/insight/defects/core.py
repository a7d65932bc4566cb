# -*- coding: utf-8 -*-
"""Base logs (without defects), the three log shapes, and a small cache simulator."""

import copy, json, random, re, hashlib, datetime as dt
from texts import B, SLOT, G, TOOLS

LANGS = ["en", "de", "fr", "es", "zh"]


def hexs(rng, n):
    return "".join(rng.choice("0123456789abcdef") for _ in range(n))


def uid(rng):
    h = hexs(rng, 32)
    return f"{h[:8]}-{h[8:12]}-4{h[13:16]}-a{h[17:20]}-{h[20:]}"


def amount(rng, L):
    x = rng.choice(
        [
            rng.randint(5, 99),
            rng.randint(100, 900),
            rng.randint(5, 400) + 0.5,
            rng.randint(1000, 9000),
        ]
    )
    s = f"{x:.2f}" if isinstance(x, float) else str(x)
    if L in ("de", "fr", "es"):
        s = s.replace(".", ",")
    return SLOT[L]["cur"].format(s)


def code(rng):
    return rng.choice(["RX", "KB", "TN", "AV", "MQ", "DL"]) + "-" + str(rng.randint(10000, 99999))


def fill(rng, L, t):
    S = SLOT[L]

    def f(m):
        k = m.group(1)
        if k == "n":
            return str(rng.randint(2, 48))
        if k == "id":
            return code(rng)
        if k == "eur":
            return amount(rng, L)
        if k in ("a", "b"):
            return str(rng.randint(7, 10) if k == "a" else rng.randint(16, 20))
        return rng.choice(S[k])

    return re.sub(r"\{(n|id|eur|a|b|p|c|d|name)\}", f, t)


def pick(rng, L, seq):
    return fill(rng, L, rng.choice(seq))


# ---------------------------------------------------------------- system prompts and tools
def make_system(rng, L, dom, size):
    D, g = B[L][dom], G[L]
    t = g["titles"]
    rules = D["rules"][:]
    rng.shuffle(rules)
    nr = {"S": 5, "M": 7, "L": 8}[size]
    secs = [
        [t[0], D["role"]],
        [t[1], "\n".join(f"{i + 1}. " + fill(rng, L, x) for i, x in enumerate(rules[:nr]))],
    ]
    ref = (
        " | ".join(g["item"].split("|"))
        + "\n"
        + "\n".join(
            " | ".join(
                [
                    rng.choice(SLOT[L]["p"]),
                    rng.choice(SLOT[L]["c"]),
                    rng.choice(SLOT[L]["name"]),
                    code(rng),
                    amount(rng, L),
                ]
            )
            for _ in range({"S": 4, "M": 12, "L": 22}[size])
        )
    )
    secs.append([t[2], ref])
    if size != "S" or rng.random() < 0.5:
        secs.append(
            [
                t[3],
                "\n".join(f"{c}: " + fill(rng, L, g["hours"]) for c in rng.sample(SLOT[L]["c"], 4)),
            ]
        )
    if size != "S":
        secs.append(
            [
                t[4],
                "\n".join(
                    f"{d}: {rng.choice(SLOT[L]['name'])}, {rng.randint(100, 999)}-{rng.randint(1000, 9999)}"
                    for d in rng.sample(SLOT[L]["d"], 5)
                ),
            ]
        )
    if size == "L":
        secs.append([t[5], "\n".join(pick(rng, L, [p]) for p in rng.sample(D["passages"], 4))])
    secs.append([t[6], g["fmt"]])
    secs.append([t[7], g["priv"]])
    head, rest = secs[:2], secs[2:]
    rng.shuffle(rest)
    return head + rest


PTYPE = {
    "limit": "integer",
    "offset": "integer",
    "timeout_seconds": "integer",
    "include_history": "boolean",
    "recursive": "boolean",
    "base_amount": "number",
    "surcharge": "number",
}


def make_tools(rng, L, n, want=None, js=False):
    out = []
    names = rng.sample(
        [
            t
            for t in sorted(TOOLS)
            if not (js and t in ("read_file", "run_command", "list_directory"))
        ],
        min(n, 7 if js else 10),
    )
    if want:
        names = [want] + [x for x in names if x != want][: n - 1]
    for name in names:
        props, desc = TOOLS[name]
        P = {}
        for p in props:
            P[p] = {"type": PTYPE.get(p, "string")}
            if "_" in p:
                P[p]["description"] = p.replace("_", " ")
            if p == "priority":
                P[p]["enum"] = ["low", "normal", "high", "urgent"]
            if p == "category":
                P[p]["enum"] = ["policy", "product", "process", "contract"]
            if p == "currency":
                P[p]["enum"] = ["EUR", "USD", "GBP", "CNY"]
        out.append(
            {
                "name": name,
                "description": desc[L],
                "parameters": {
                    "type": "object",
                    "properties": P,
                    "required": props[: max(1, len(props) - 1)],
                    "additionalProperties": False,
                },
            }
        )
    return out


def tool_call(rng, L, tools):
    t = rng.choice(tools)
    args = {}
    for p in t["parameters"]["properties"]:
        if p not in t["parameters"]["required"] and rng.random() < 0.5:
            continue
        args[p] = {
            "path": f"src/{rng.choice(['routing', 'pricing', 'orders', 'inbox'])}/{rng.choice(['planner', 'tariffs', 'client', 'models'])}.py",
            "order_id": code(rng),
            "record_id": code(rng),
            "limit": rng.randint(3, 20),
            "offset": rng.randint(0, 400),
            "timeout_seconds": 60,
            "include_history": True,
            "recursive": False,
            "base_amount": rng.randint(10, 900),
            "surcharge": 0.5 * rng.randint(1, 40),
            "currency": "EUR",
            "priority": "normal",
            "category": "policy",
            "command": f"pytest tests/{rng.choice(['routing', 'pricing'])} -k {rng.choice(['index', 'rounding', 'retry'])}",
            "query": f"{rng.choice(SLOT[L]['p'])} {rng.choice(SLOT[L]['c'])}",
            "person": rng.choice(SLOT[L]["name"]),
            "recipient": rng.choice(SLOT[L]["name"]),
            "from_date": "2025-03-%02d" % rng.randint(1, 14),
            "to_date": "2025-03-%02d" % rng.randint(15, 28),
            "value": amount(rng, L),
        }.get(p) or pick(rng, L, G[L]["follow"].split("|"))
    return {"id": "call_" + hexs(rng, 20), "name": t["name"], "args": args}


def tool_result(rng, L, call, dom, rich=False):
    if call["name"] in ("read_file", "run_command", "list_directory"):
        w = ["depot", "tariff", "planner", "index", "ledger", "queue", "route", "stop"]
        return "\n".join(
            f"{i:>4}  "
            + rng.choice(
                [
                    f"{rng.choice(w)}_{rng.choice(w)} = load_{rng.choice(w)}({rng.randint(1, 999)})",
                    f"def {rng.choice(w)}_{rng.choice(w)}(key, {rng.choice(w)}):",
                    f"    if {rng.choice(w)}.total > {rng.randint(1, 99)}: raise KeyError('{rng.choice(w)}_{rng.randint(1, 99)}')",
                    f"    return {rng.choice(w)}[key].{rng.choice(w)}",
                ]
            )
            for i in range(1, rng.randint(7, 14) if not rich else rng.randint(10, 18))
        )
    return json.dumps(
        {
            "id": code(rng),
            "status": rng.choice(["open", "shipped", "done", "review"]),
            "amount": round(rng.uniform(5, 900), 2),
            "place": rng.choice(SLOT[L]["c"]),
            "contact": rng.choice(SLOT[L]["name"]),
            "weight": float(rng.randint(1, 40)),
            "notes": [pick(rng, L, B[L][dom]["passages"]) for _ in range(rng.randint(1, 2) + rich)],
        },
        ensure_ascii=False,
    )


def passages(rng, L, dom, k):
    g = G[L]
    return [f"[{i + 1}] " + pick(rng, L, B[L][dom]["passages"]) for i in range(k)]


def make_session(rng, L, dom, app, tools, turns, stamp, t0, c=None):
    """messages plus cut points: a request is sent after messages[:cut]."""
    D, g = B[L][dom], G[L]
    msgs, cuts, t = [], [], t0
    for k in range(turns):
        t += dt.timedelta(seconds=rng.randint(18, 110))
        if app == "single":
            txt = (
                g["classify"].rstrip("\n").split("\n\n")[-1]
                + "\n"
                + pick(rng, L, D["asks"])
                + " "
                + pick(rng, L, D["asks"])
                + " "
                + pick(rng, L, g["follow"].split("|"))
            )
        elif app == "rag":
            txt = (
                f"{g['ctx']}:\n"
                + "\n".join(passages(rng, L, dom, rng.randint(2, 3)))
                + f"\n\n{g['q']}: "
                + pick(rng, L, D["asks"])
            )
        else:
            txt = (
                (
                    pick(rng, L, D["asks"])
                    + (" " + pick(rng, L, D["asks"]) if rng.random() < 0.5 else "")
                )
                if k == 0 or rng.random() < 0.6
                else pick(rng, L, g["follow"].split("|"))
            )
        if c and c.long_user:
            txt = (
                pick(rng, L, D["asks"])
                + " "
                + pick(rng, L, D["asks"])
                + " "
                + pick(rng, L, g["follow"].split("|"))
            )
        if c and c.rich and k == 0:
            txt += "\n" + " ".join(pick(rng, L, [x]) for x in rng.sample(D["passages"], 2))
        if c and c.rich and k and rng.random() < 0.7:
            txt += " " + pick(rng, L, D["asks"])
        if c and c.explode:
            txt = "\n".join(
                [pick(rng, L, D["asks"])]
                + [f"({j + 1}) " + pick(rng, L, c.evs) for j in range(c.explode - 1)]
            )
        if c and c.dateend:
            txt += f"\n\n{g['date']}: {t.strftime('%Y-%m-%d')}"
        if c and c.refend:
            txt += f"\n(ref {hexs(rng, 8)})"
        if stamp:
            txt = f"[{t.strftime('%Y-%m-%d %H:%M')}] " + txt
        msgs.append({"role": "user", "text": txt, "ts": t})
        cuts.append((len(msgs), t, k))
        if app == "agent":
            for _ in range(rng.randint(*(c.steps if c else (1, 2)))):
                call = tool_call(rng, L, tools)
                msgs.append(
                    {
                        "role": "assistant",
                        "text": rng.choice(["", "", pick(rng, L, g["acks"].split("|"))]),
                        "calls": [call],
                        "think": pick(rng, L, [g["think"]])
                        + (" " + pick(rng, L, D["passages"]) if c and c.rich else ""),
                    }
                )
                t += dt.timedelta(seconds=rng.randint(4, 25))
                msgs.append(
                    {
                        "role": "tool",
                        "id": call["id"],
                        "name": call["name"],
                        "text": tool_result(rng, L, call, dom, bool(c and c.rich)),
                    }
                )
                cuts.append((len(msgs), t, k))
        a = pick(rng, L, D["answers"])
        if rng.random() < 0.6:
            a += " " + pick(rng, L, g["acks"].split("|"))
        if c and c.rich:
            a += " " + pick(rng, L, D["passages"]) + " " + pick(rng, L, g["acks"].split("|"))
        msgs.append(
            {
                "role": "assistant",
                "text": a,
                "think": pick(rng, L, [g["think"]])
                + (" " + pick(rng, L, D["passages"]) if c and c.rich else ""),
            }
        )
        t += dt.timedelta(seconds=rng.randint(3, 9))
    return msgs, cuts


STATIC = dict(
    en=[
        "Knowledge cutoff: October 2024. Deployment: eu-2-blue.",
        "Prompt revision 3.2.1, approved 2025-01-14 by {name}.",
        "Tenant: nw-{n}. Support hours follow the office in {c}.",
    ],
    de=[
        "Wissensstand: Oktober 2024. Umgebung: eu-2-blau.",
        "Fassung 3.2.1, freigegeben am 14.01.2025 durch {name}.",
        "Mandant: bv-{n}. Es gelten die Zeiten der Niederlassung {c}.",
    ],
    fr=[
        "Connaissances arrêtées en octobre 2024. Environnement : eu-2-bleu.",
        "Version 3.2.1, validée le 14/01/2025 par {name}.",
        "Entité : vo-{n}. Les horaires sont ceux de {c}.",
    ],
    es=[
        "Conocimientos hasta octubre de 2024. Entorno: eu-2-azul.",
        "Versión 3.2.1, aprobada el 14/01/2025 por {name}.",
        "Sede: st-{n}. Rigen los horarios de {c}.",
    ],
    zh=[
        "知识截止日期：2024年10月。部署：华东二区。",
        "提示词版本3.2.1，2025年1月14日由{name}批准。",
        "租户：syj-{n}。服务时间以{c}为准。",
    ],
)


class Case:
    pass


def build_base(c):
    """fill c.reqs with plain requests."""
    rng = random.Random("base" + c.seed)
    L = c.lang
    c.tenants = []
    doms = sorted(B[L])
    rng.shuffle(doms)
    for k in range(c.ntenants):
        dom = c.dom if k == 0 and c.dom else doms[k % len(doms)]
        tools = make_tools(rng, L, c.ntools, c.want, c.js) if c.ntools else []
        c.tenants.append(dict(dom=dom, system=make_system(rng, L, dom, c.size), tools=tools))
        if c.static:
            c.tenants[-1]["system"][0][1] += "\n" + pick(rng, L, STATIC[L])
        if c.app == "single":
            c.tenants[-1]["system"].append(
                [G[L]["titles"][6] + " 2", G[L]["classify"].split("\n\n")[0]]
            )
    start = dt.datetime(
        2025,
        rng.randint(1, 9),
        rng.randint(1, 27),
        rng.randint(7, 15),
        rng.randint(0, 59),
        rng.randint(0, 59),
        rng.randint(0, 999) * 1000,
    )
    c.start = start
    users = [f"u{rng.randint(1000, 9999)}" for _ in range(c.nusers)]
    c.users = users
    nm = SLOT[L]["name"]
    combos = [
        (a[0] + b[1:] if L == "zh" else a.split()[0] + " " + b.split()[-1]) for a in nm for b in nm
    ]
    rng.shuffle(combos)
    c.uname = dict(zip(users, combos))
    reqs, t0, s = [], start, 0
    while len(reqs) < c.nreq:
        turns = 1 if c.app == "single" else rng.randint(*c.turns)
        ten = c.tenants[s % c.ntenants]
        user = users[s % len(users)] if rng.random() < 0.7 else rng.choice(users)
        msgs, cuts = make_session(rng, L, ten["dom"], c.app, ten["tools"], turns, c.stamp, t0, c)
        sess = dict(id=uid(rng), n=s, user=user, tenant=ten, t0=t0)
        for j, (cut, t, turn) in enumerate(cuts):
            reqs.append(
                dict(
                    ts=t,
                    user=user,
                    session=sess["id"],
                    sess=sess,
                    turn=turn,
                    step=j,
                    tools=ten["tools"],
                    system=ten["system"],
                    messages=msgs[:cut],
                    next=(msgs[cut]["text"] if cut < len(msgs) else ""),
                    rid=hexs(rng, 24),
                )
            )
        t0 += dt.timedelta(
            seconds=rng.randint(4, 16)
            if c.tight
            else rng.randint(6, 40)
            if c.app == "single"
            else rng.randint(25, 150)
        )
        s += 1
    for r in reqs:
        r["ts"] += dt.timedelta(milliseconds=rng.randint(0, 999))
    reqs.sort(key=lambda r: r["ts"])
    f = body_anthropic if c.bodykind == "anthropic" else body_openai
    step = max(1, len(reqs) // 12)
    for r in reqs[::step]:
        r.update(model=c.model, fields={}, i=0)
    avg = sum(len(J(f(c, r)).encode()) for r in reqs[::step]) / len(reqs[::step]) + (
        1900 if c.shape == "litellm" else 400
    )
    reqs = reqs[: max(60, min(c.nreq, int((650000 if c.long else 260000) / avg)))]
    for i, r in enumerate(reqs):
        r.update(
            i=i,
            model=c.model,
            fields={},
            env={},
            ns=(),
            affected=False,
            lat=rng.uniform(0.6, 3.5),
            out=rng.randint(30, 260),
        )
    c.reqs = reqs


def clone(r):
    q = dict(r)
    q["tools"] = copy.deepcopy(r["tools"])
    q["system"] = copy.deepcopy(r["system"])
    q["messages"] = copy.deepcopy(r["messages"])
    q["fields"] = {}
    q["env"] = {}
    return q


# ---------------------------------------------------------------- rendering
def sec(style, s):
    title, text = s[0], s[1]
    if title is None:
        return text
    return {
        "md": f"## {title}\n{text}",
        "xml": f'<section name="{title}">\n{text}\n</section>',
        "colon": f"{title}:\n{text}",
        "eq": f"=== {title} ===\n{text}",
        "br": f"[{title}]\n{text}",
    }[style]


def sys_text(c, r):
    f = r.get("system_fn")
    s = "\n\n".join(sec(c.style, s) for s in r["system"])
    return f(s) if f else s


def args_str(call):
    return call.get("args_str") or json.dumps(call["args"], ensure_ascii=False)


def body_openai(c, r):
    ms = []
    if r["system"]:
        ms.append({"role": "system", "content": sys_text(c, r)})
    for m in r["messages"]:
        if m["role"] == "assistant":
            d = {"role": "assistant", "content": m["text"]}
            if m.get("keep_think"):
                d["content"] = (
                    f"<think>\n{m['think']}\n</think>\n\n{m['text']}" if c.think_tag else m["text"]
                )
            if m.get("keep_think") and not c.think_tag:
                d["reasoning_content"] = m["think"]
            if m.get("calls"):
                d["tool_calls"] = [
                    {
                        "id": x["id"],
                        "type": "function",
                        "function": {"name": x["name"], "arguments": args_str(x)},
                    }
                    for x in m["calls"]
                ]
            ms.append(d)
        elif m["role"] == "tool":
            ms.append({"role": "tool", "tool_call_id": m["id"], "content": m["text"]})
        elif m.get("image"):
            ms.append(
                {
                    "role": m["role"],
                    "content": [
                        {"type": "text", "text": m["text"]},
                        {"type": "image_url", "image_url": {"url": m["image"]}},
                    ],
                }
            )
        else:
            ms.append({"role": m["role"], "content": m["text"]})
    b = {"model": r["model"], "messages": ms}
    if r["tools"]:
        b["tools"] = [{"type": "function", "function": t} for t in r["tools"]]
    if c.temp is not None:
        b["temperature"] = c.temp
    if c.metafield == 1:
        b["metadata"] = {"trace_id": r["rid"], "session": r["session"][:8]}
    if c.metafield == 2:
        b["user"] = r["user"]
        b["stream"] = r["i"] % 3 > 0
    b.update(r["fields"])
    return b


CC = {"type": "ephemeral"}


def body_anthropic(c, r):
    blocks = c.sysmode == "blocks"
    if r.get("system_fn") or not blocks:
        st = sys_text(c, r)
        system = [{"type": "text", "text": st}] if blocks else st
    else:
        system = [{"type": "text", "text": sec(c.style, s)} for s in r["system"]]
    ms = []
    for m in r["messages"]:
        if m["role"] == "assistant":
            bl = []
            if m.get("keep_think"):
                bl.append(
                    {
                        "type": "thinking",
                        "thinking": m["think"],
                        "signature": hashlib.sha256(m["think"].encode()).hexdigest()[:40],
                    }
                )
            if m["text"]:
                bl.append({"type": "text", "text": m["text"]})
            for x in m.get("calls", []):
                bl.append(
                    {
                        "type": "tool_use",
                        "id": x["id"].replace("call_", "toolu_"),
                        "name": x["name"],
                        "input": x["args"],
                    }
                )
            if len(bl) == 1 and bl[0]["type"] == "text" and not blocks:
                bl = bl[0]["text"]
            ms.append({"role": "assistant", "content": bl})
        elif m["role"] == "tool":
            ms.append(
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "tool_result",
                            "tool_use_id": m["id"].replace("call_", "toolu_"),
                            "content": m["text"],
                        }
                    ],
                }
            )
        else:
            if m.get("image"):
                src = (
                    {"type": "url", "url": m["image"]}
                    if m["image"].startswith("http")
                    else {
                        "type": "base64",
                        "media_type": "image/jpeg",
                        "data": m["image"].split(",", 1)[1],
                    }
                )
                ms.append(
                    {
                        "role": "user",
                        "content": [
                            {"type": "image", "source": src},
                            {"type": "text", "text": m["text"]},
                        ],
                    }
                )
            elif c.explode:
                ms.append(
                    {
                        "role": "user",
                        "content": [{"type": "text", "text": x} for x in m["text"].split("\n")],
                    }
                )
            elif blocks:
                ms.append({"role": "user", "content": [{"type": "text", "text": m["text"]}]})
            else:
                ms.append({"role": "user", "content": m["text"]})
    # merge neighbours of the same role
    out = []
    for m in ms:
        if out and out[-1]["role"] == m["role"]:
            a = out[-1]["content"]
            b = m["content"]
            a = [{"type": "text", "text": a}] if isinstance(a, str) else a
            b = [{"type": "text", "text": b}] if isinstance(b, str) else b
            out[-1] = {"role": m["role"], "content": a + b}
        else:
            out.append(m)
    b = {"model": r["model"], "max_tokens": c.max_tokens}
    if r["system"]:
        b["system"] = system
    if r["tools"]:
        b["tools"] = [
            dict({("input_schema" if k == "parameters" else k): v for k, v in t.items()})
            for t in r["tools"]
        ]
    b["messages"] = out
    marks = r.get("marks", c.marks)
    if "system" in marks and r["system"] and isinstance(system, list):
        system[-1] = dict(system[-1], cache_control=CC)
    if "tools" in marks and r["tools"]:
        b["tools"][-1] = dict(b["tools"][-1], cache_control=CC)
    if "last" in marks and isinstance(out[-1]["content"], list):
        out[-1]["content"] = out[-1]["content"][:-1] + [
            dict(out[-1]["content"][-1], cache_control=CC)
        ]
    if "first" in marks and isinstance(out[0]["content"], list):
        out[0]["content"] = out[0]["content"][:-1] + [dict(out[0]["content"][-1], cache_control=CC)]
    if c.metafield:
        b["metadata"] = {"user_id": f"user_{r['user']}_session_{r['session']}"}
    b.update(r["fields"])
    return b


def strip_cc(x):
    if isinstance(x, dict):
        return {k: strip_cc(v) for k, v in x.items() if k != "cache_control"}
    if isinstance(x, list):
        return [strip_cc(v) for v in x]
    return x


def J(x):
    return json.dumps(x, ensure_ascii=False)


def segments(body):
    """[(text, marked)] in the order of prompt rendering; used by the cache simulator and the self-check."""
    seg = []
    for t in body.get("tools", []):
        seg.append((J(strip_cc(t)) + "\n", "cache_control" in t))
    if "response_format" in body:
        seg.append((J(body["response_format"]) + "\n", False))
    s = body.get("system")
    if isinstance(s, str):
        seg.append(("<|system|>\n" + s + "\n", False))
    elif s:
        for i, b in enumerate(s):
            seg.append(
                (("<|system|>\n" if i == 0 else "") + b["text"] + "\n", "cache_control" in b)
            )
    extra = {k: body[k] for k in ("tool_choice", "thinking") if k in body}
    if extra:
        seg.append((J(extra) + "\n", False))
    for m in body["messages"]:
        h = f"<|{m['role']}|>\n"
        ct = m.get("content")
        if m.get("reasoning_content"):
            seg.append((h + m["reasoning_content"] + "\n", False))
            h = ""
        if isinstance(ct, list):
            for i, b in enumerate(ct):
                txt = b.get("text") if b.get("type") == "text" else J(strip_cc(b))
                seg.append(((h if i == 0 else "") + txt + "\n", "cache_control" in b))
        else:
            seg.append((h + (ct or "") + "\n", False))
        for x in m.get("tool_calls", []):
            seg.append((J(x) + "\n", False))
        if m["role"] == "tool":
            seg[-1] = (seg[-1][0] + m["tool_call_id"] + "\n", False)
    return seg


def linear(body):
    return "".join(t for t, _ in segments(body))


class Sim:
    """mode blocks16: 16-token blocks (64 bytes of UTF-8). openai: >=1024 tokens, steps of 128. anthropic: breakpoints, 20 block lookback, >=1024, 5 min."""

    def __init__(self, mode="blocks16", ttl=None, cap=None, minimum=None, visible=0.0):
        self.mode, self.ttl, self.cap, self.store = mode, ttl, cap, {}
        self.minimum = minimum if minimum is not None else (0 if mode == "blocks16" else 1024)
        if mode == "anthropic" and ttl is None:
            self.ttl = 300
        self.visible = visible

    def flush(self):
        self.store.clear()

    def _ok(self, h, now):
        e = self.store.get(h)
        if e is None or e[0] > now:
            return False
        return not (self.ttl and now - e[1] > self.ttl)

    def ask(self, body, ns, now, lat=0.0):
        segs = segments(body)
        total = sum(len(t.encode()) for t, _ in segs) // 4
        if self.mode == "anthropic":
            h, pos, P = hash(ns), 0, []
            for t, mk in segs:
                h = hash((h, t))
                pos += len(t.encode())
                P.append((h, pos // 4, mk))
            read, last = 0, 0
            for i, (h, p, mk) in enumerate(P):
                if not mk:
                    continue
                last = p
                for j in range(i, max(-1, i - 20), -1):
                    if P[j][1] >= self.minimum and self._ok(P[j][0], now):
                        read = max(read, P[j][1])
                        self.store[P[j][0]] = (self.store[P[j][0]][0], now)
                        break
            for h, p, mk in P:
                if mk and p >= self.minimum and not self._ok(h, now):
                    self.store[h] = (now + lat * self.visible, now)
            return total, read, max(0, last - read) if last >= self.minimum else 0
        data = "".join(t for t, _ in segs).encode()
        h, n, live = hash(ns), 0, True
        hs = []
        for k in range(0, len(data) - 63, 64):
            h = hash((h, data[k : k + 64]))
            hs.append(h)
        for h in hs:
            if live and self._ok(h, now):
                n += 1
            else:
                live = False
        for h in hs:
            e = self.store.pop(h, None)
            self.store[h] = (
                e[0]
                if e and not (self.ttl and now - e[1] > self.ttl) and e[0] <= now
                else now + lat * self.visible,
                now,
            )
        if self.cap:
            while len(self.store) > self.cap:
                self.store.pop(next(iter(self.store)))
        cached = n * 16
        if self.mode == "openai":
            cached = cached // 128 * 128
        if cached < self.minimum:
            cached = 0
        return total, cached, 0


def iso(t, z=True):
    return t.strftime("%Y-%m-%dT%H:%M:%S.") + f"{t.microsecond // 1000:03d}" + ("Z" if z else "")


def write_rows(c, reqs, bodies, usages, path):
    rng = random.Random("rows" + c.seed)
    with open(path, "w", encoding="utf-8") as f:
        for r, b, u in zip(reqs, bodies, usages):
            total, cached, created = u
            anth = c.bodykind == "anthropic"
            if anth:
                us = {
                    "input_tokens": total - cached - created,
                    "cache_creation_input_tokens": created,
                    "cache_read_input_tokens": cached,
                    "output_tokens": r["out"],
                }
            else:
                us = {
                    "prompt_tokens": total,
                    "completion_tokens": r["out"],
                    "total_tokens": total + r["out"],
                    "prompt_tokens_details": {"cached_tokens": cached},
                }
            if c.shape == "openai":
                row = {
                    "timestamp": iso(r["ts"]),
                    "request_id": "req_" + r["rid"],
                    "user": r["user"],
                    "body": b,
                    "response": {
                        "id": "chatcmpl-" + r["rid"][:18],
                        "model": r["env"].get("resp_model", b["model"]),
                    },
                }
                if c.log_session:
                    row["session_id"] = r["session"]
                if r["env"].get("host"):
                    row["upstream"] = r["env"]["host"]
                if r["env"].get("adapter"):
                    row["adapter"] = r["env"]["adapter"]
                if c.usage:
                    row["response"]["usage"] = us
            elif c.shape == "anthropic":
                row = {
                    "timestamp": iso(r["ts"]),
                    "request_id": "req_" + r["rid"],
                    "user": r["user"],
                    "session_id": r["session"],
                    "body": b,
                    "response": {
                        "id": "msg_" + r["rid"][:20],
                        "type": "message",
                        "role": "assistant",
                        "model": b["model"],
                        "stop_reason": "end_turn",
                    },
                }
                if r["env"].get("host"):
                    row["upstream"] = r["env"]["host"]
                if r["env"].get("headers"):
                    row["headers"] = r["env"]["headers"]
                if c.usage:
                    row["response"]["usage"] = us
            else:
                end = r["ts"] + dt.timedelta(seconds=r["lat"])
                first = r["ts"] + dt.timedelta(seconds=r["lat"] * 0.35)
                mg = r["env"].get("model_group", b["model"])
                meta = {
                    "user_api_key": c.keyhash,
                    "user_api_key_alias": c.keyalias,
                    "user_api_key_team_id": c.team,
                    "user_api_key_user_id": r["user"],
                    "user_api_key_org_id": None,
                    "user_api_key_team_alias": None,
                    "spend_logs_metadata": None,
                    "requester_ip_address": "",
                    "applied_guardrails": [],
                    "status": "success",
                    "batch_models": None,
                    "error_information": None,
                    "mcp_tool_call_metadata": None,
                    "vector_store_request_metadata": None,
                    "guardrail_information": None,
                    "usage_object": None,
                    "model_map_information": {"model_map_key": mg, "model_map_value": None},
                    "additional_usage_values": {},
                }
                if c.usage:
                    meta["usage_object"] = {
                        "prompt_tokens": total,
                        "completion_tokens": r["out"],
                        "total_tokens": total + r["out"],
                        "prompt_tokens_details": {"audio_tokens": None, "cached_tokens": cached},
                        "completion_tokens_details": None,
                    }
                    if anth:
                        meta["usage_object"].update(
                            cache_creation_input_tokens=created, cache_read_input_tokens=cached
                        )
                psr = b
                msgs = {}
                if c.lstyle == "messages":
                    psr, msgs = {}, b["messages"]
                elif c.lstyle == "string":
                    psr, meta = J(b), J(meta)
                row = {
                    "request_id": "chatcmpl-" + uid(rng),
                    "call_type": "anthropic_messages" if anth else "acompletion",
                    "api_key": r["env"].get("api_key", c.keyhash),
                    "spend": round(total * 1e-6, 8),
                    "total_tokens": total + r["out"],
                    "prompt_tokens": total,
                    "completion_tokens": r["out"],
                    "startTime": iso(r["ts"]),
                    "endTime": iso(end),
                    "completionStartTime": iso(first),
                    "model": r["env"].get("litellm_model", c.litellm_prefix + b["model"]),
                    "model_id": r["env"].get(
                        "model_id", hashlib.sha256(c.seed.encode()).hexdigest()
                    ),
                    "model_group": mg,
                    "custom_llm_provider": c.litellm_prefix.rstrip("/") or "openai",
                    "api_base": r["env"].get("host", c.api_base),
                    "user": r["user"],
                    "metadata": meta,
                    "cache_hit": "False",
                    "cache_key": "Cache OFF",
                    "request_tags": [],
                    "team_id": c.team,
                    "end_user": r["user"] if c.log_session else "",
                    "requester_ip_address": "",
                    "session_id": r["session"] if c.log_session else uid(rng),
                    "status": "success",
                    "mcp_namespaced_tool_name": None,
                    "messages": msgs,
                    "response": {
                        "id": "chatcmpl-" + r["rid"],
                        "object": "chat.completion",
                        "choices": [
                            {
                                "index": 0,
                                "finish_reason": "stop",
                                "message": {"role": "assistant", "content": r["next"][:120]},
                            }
                        ],
                    },
                    "proxy_server_request": psr,
                }
            f.write(json.dumps(row, ensure_ascii=False) + "\n")
