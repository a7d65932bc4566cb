import calendar
import copy
import hashlib
import json
import os
import random
from datetime import UTC, datetime

from words import LANG, answer, args_for, fill, para, question

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "logs")
TRUTH = []
CHECKS = []
T0 = calendar.timegm((2026, 11, 23, 8, 0, 0))


def utc(t):
    return datetime.fromtimestamp(t, UTC)


def R(name):
    return random.Random("blind3/" + name)


def J(x, **k):
    return json.dumps(x, ensure_ascii=False, **k)


def S(x):
    return {"role": "system", "content": x}


def U(x):
    return {"role": "user", "content": x}


def A(x, **k):
    return {"role": "assistant", "content": x, **k}


def times(r, n, lo=61, hi=260, start=0):
    t = T0 + start + r.randint(0, 3000)
    out = []
    for _ in range(n):
        out.append(t)
        t += r.randint(lo, hi)
    return out


def hexs(r, n):
    return "".join(r.choice("0123456789abcdef") for _ in range(n))


def uuid(r):
    h = hexs(r, 32)
    return f"{h[:8]}-{h[8:12]}-4{h[13:16]}-a{h[17:20]}-{h[20:]}"


def joinp(parts):
    return "\n\n".join(p for p in parts if p)


def at(parts, k, s):
    return joinp(parts[:k] + [s] + parts[k:])


# --- workloads -------------------------------------------------------------
def shared(r, d, n, sysf, first=None):
    """n requests of different users behind one system prompt; sysf(i,t) gives the system text."""
    seen = set()
    out = []
    for i, t in enumerate(times(r, n)):
        out.append({"t": t, "user": f"u{r.randint(100, 999)}", "messages": [S(sysf(i, t)), U(question(r, d, seen))]})
    return out


def talk(r, d, turns, n=5):
    """Alternating user and assistant messages: turns*2-1 of them."""
    seen = set()
    m = []
    for k in range(turns):
        m.append(U(question(r, d, seen) + (" " if LANG[d] != "zh" else "") + para(r, d, 1)))
        m.append(A(answer(r, d, n)))
    return m[:-1]


def chat(r, d, sessions, turns, sysf, n=5, histf=None):
    """Growing conversations, interleaved. histf(i,k,msgs) may rewrite the history of turn k of the request i."""
    talks = [talk(r, d, turns, n) for _ in range(sessions)]
    users = [f"user-{hexs(r, 5)}" for _ in talks]
    out = []
    i = 0
    ts = times(r, sessions * turns)
    for k in range(turns):
        for s in range(sessions):
            h = copy.deepcopy(talks[s][: 2 * k + 1])
            if histf:
                h = histf(i, k, h)
            out.append({"t": ts[i], "user": users[s], "messages": ([S(sysf(i, ts[i]))] if sysf else []) + h})
            i += 1
    return out


def agent(r, d, steps, tools, systext, task=None, think=False, n=3):
    """One agent loop: returns the message list after the system message, one call and one result each step."""
    m = [U(task or question(r, d) + (" Please find out and settle it. " if LANG[d] == "en" else " ") + para(r, d, 2))]
    for k in range(steps):
        t = r.choice(tools)
        a = args_for(r, t)
        cid = "call_" + hexs(r, 10)
        m.append(
            {
                "role": "assistant",
                "content": fill(r, d, "{o}: " + (_first(r, d))),
                "tool_calls": [
                    {"id": cid, "type": "function", "function": {"name": t["function"]["name"], "arguments": J(a)}}
                ],
            }
        )
        m.append({"role": "tool", "tool_call_id": cid, "content": para(r, d, n)})
    return m


def _first(r, d):
    return {
        "en": "I check what is on file.",
        "de": "ich sehe nach, was vorliegt.",
        "es": "compruebo lo que consta.",
        "zh": "我先查一下记录。",
    }[LANG[d]]


def agentlog(r, d, steps, tools, systext, toolsf=None, msgf=None, sysf=None, runs=1, n=3):
    out = []
    i = 0
    ts = times(r, runs * (steps + 1))
    for q in range(runs):
        m = agent(r, d, steps, tools, systext, n=n)
        u = f"agent-{q + 1}"
        for k in range(steps + 1):
            h = copy.deepcopy(m[: 1 + 2 * k])
            if msgf:
                h = msgf(i, k, h)
            out.append(
                {
                    "t": ts[i],
                    "user": u,
                    "tools": copy.deepcopy(toolsf(i, ts[i]) if toolsf else tools),
                    "messages": [S(sysf(i, ts[i]) if sysf else systext)] + h,
                }
            )
            i += 1
    return out


# --- prompt styles ---------------------------------------------------------
def render(ms, style="chatml", gen=True, bos=""):
    s = bos
    for k, m in enumerate(ms):
        c, ro = m["content"], m["role"]
        if style == "chatml":
            s += f"<|im_start|>{ro}\n{c}<|im_end|>\n"
        elif style == "llama3":
            s += f"<|start_header_id|>{ro}<|end_header_id|>\n\n{c}<|eot_id|>"
        elif style == "mistral":
            if ro == "system":
                s += f"[SYSTEM_PROMPT]{c}[/SYSTEM_PROMPT]"
            elif ro == "user":
                s += f"[INST]{c}[/INST]"
            else:
                s += f"{c}</s>"
        elif style == "human":
            s += (c if ro == "system" else ("Human: " if ro == "user" else "Assistant: ") + c) + "\n\n"
        elif style == "ai":
            s += (c if ro == "system" else ("User: " if ro == "user" else "AI: ") + c) + "\n\n"
        elif style == "gemma":
            s += f"<start_of_turn>{'model' if ro == 'assistant' else 'user'}\n{c}<end_of_turn>\n"
        elif style == "harmony":
            s += f"<|start|>{ro}<|message|>{c}<|end|>"
        elif style == "alpaca":
            s += (
                c + "\n\n"
                if ro == "system"
                else ("### Instruction:\n" if ro == "user" else "### Response:\n") + c + "\n\n"
            )
    if gen:
        s += {
            "chatml": "<|im_start|>assistant\n",
            "llama3": "<|start_header_id|>assistant<|end_header_id|>\n\n",
            "mistral": "",
            "human": "Assistant:",
            "ai": "AI:",
            "gemma": "<start_of_turn>model\n",
            "harmony": "<|start|>assistant",
            "alpaca": "### Response:\n",
        }[style]
    return s


def plain(reqs, style="chatml", **k):
    return [{"t": q["t"], "user": q.get("user"), "prompt": render(q["messages"], style, **k)} for q in reqs]


# --- writing ---------------------------------------------------------------
def canon(q):
    if "prompt" in q:
        p = q["prompt"]
        return p if isinstance(p, str) else " ".join(map(str, p))
    s = J(q["tools"]) + "\n" if q.get("tools") else ""
    if q.get("functions"):
        s += J(q["functions"]) + "\n"
    for m in q["messages"]:
        s += f"<|im_start|>{m['role']}\n"
        if m.get("reasoning_content"):
            s += f"<think>{m['reasoning_content']}</think>"
        c = m["content"]
        s += c if isinstance(c, str) else J(c)
        for t in m.get("tool_calls", ()):
            s += f"\n<tool_call>{t['function']['name']} {t['function']['arguments']}</tool_call>"
        s += "<|im_end|>\n"
    return s


def lcp(a, b):
    n = min(len(a), len(b))
    lo = 0
    if a[:n] == b[:n]:
        return n
    hi = n
    while lo < hi:
        m = (lo + hi + 1) // 2
        if a[:m] == b[:m]:
            lo = m
        else:
            hi = m - 1
    return lo


def near(reqs, i):
    c = [canon(q) for q in reqs[: i + 1]]
    best = max(range(i), key=lambda j: (lcp(c[i], c[j]), j))
    p = lcp(c[i], c[best])
    return best, p, c[best], c[i]


def rid(style, name, i):
    h = hashlib.sha1(f"{name}/{i}".encode()).hexdigest()
    return {
        "req": f"req-{i + 1:03d}",
        "cc": "chatcmpl-" + h[:20],
        "uuid": f"{h[:8]}-{h[8:12]}-4{h[13:16]}-9{h[17:20]}-{h[20:32]}",
        "row": f"task_{i}",
    }[style]


MODELS = ["gpt-4o-mini", "qwen3-32b", "llama-3.3-70b-instruct", "mistral-small-3.2", "deepseek-v3.1"]
COUNT = {}


def emit(cause, slug, fmt, reqs, exact=(), i=1, note="", values=None, need=None, ids="req"):
    """Writes a log and its truth. `i` is the affected request."""
    key = cause or "clean"
    COUNT[key] = COUNT.get(key, 0) + 1
    name = f"{key}-{COUNT[key]:02d}-{slug}.jsonl"
    if fmt == "batch":
        ids = "row"
    model = MODELS[sum(map(ord, name)) % len(MODELS)]
    with open(os.path.join(OUT, name), "w", encoding="utf-8", newline="\n") as f:
        for k, q in enumerate(reqs):
            x = rid(ids, name, k)
            stamp = utc(q["t"]).strftime("%Y-%m-%dT%H:%M:%SZ")
            body = {"model": q.get("model", model)}
            if "prompt" in q:
                body["prompt"] = q["prompt"]
            else:
                body["messages"] = q["messages"]
                for f2 in ("tools", "functions"):
                    if q.get(f2):
                        body[f2] = q[f2]
            if q.get("prompt_token_ids"):
                body["prompt_token_ids"] = q["prompt_token_ids"]
            if q.get("user"):
                body["user"] = q["user"]
            if fmt == "openai":
                row = {"id": x, "timestamp": stamp, **body, "max_tokens": 400, "temperature": 0.2}
            elif fmt == "batch":
                row = {
                    "custom_id": x,
                    "method": "POST",
                    "url": "/v1/chat/completions" if "messages" in body else "/v1/completions",
                    "body": {**body, "max_tokens": 300},
                }
            elif fmt == "plain":
                row = {
                    "id": x,
                    "timestamp": stamp,
                    **{a: b for a, b in body.items() if a in ("prompt", "prompt_token_ids", "user")},
                }
            elif fmt == "litellm":
                row = {
                    "id": x,
                    "trace_id": rid("uuid", "trace" + name, k),
                    "call_type": "acompletion",
                    "stream": False,
                    "status": "success",
                    "custom_llm_provider": "openai",
                    "model": body["model"],
                    "api_base": "http://vllm.internal:8000/v1",
                    "startTime": float(q["t"]),
                    "endTime": q["t"] + 2.5,
                    "end_user": q.get("user", ""),
                    "metadata": {"user_api_key_alias": "prod"},
                    "messages": body["messages"],
                    "model_parameters": {
                        "temperature": 0.2,
                        "max_tokens": 400,
                        **({"tools": body["tools"]} if "tools" in body else {}),
                    },
                    "prompt_tokens": len(canon(q)) // 4,
                    "completion_tokens": 120,
                    "total_tokens": len(canon(q)) // 4 + 120,
                }
            f.write(J(row) + "\n")
    rec = {
        "file": "logs/" + name,
        "cause": cause,
        "exact": list(exact),
        "request": rid(ids, name, i) if cause else None,
        "note": note,
        "values": list(values) if values is not None else list(exact),
        "need": need if need is not None else len(list(exact)),
    }
    TRUTH.append(rec)
    CHECKS.append((rec, reqs, i))


def ctx(s, p, b=40, a=70):
    return (
        (s[max(0, p - b) : p] + "‖" + s[p : p + a])
        .replace("\n", "⏎")
        .replace("\r", "␍")
        .replace("\t", "→")
        .replace("\u00a0", "⍽")
    )


def wc(s, r=None):
    han = sum("\u4e00" <= c <= "\u9fff" for c in s)
    return len(s.split()) if han < 100 else int(han / 1.6)


def finish():
    json.dump(
        TRUTH,
        open(os.path.join(os.path.dirname(OUT), "truth.json"), "w", encoding="utf-8"),
        ensure_ascii=False,
        indent=1,
    )
    lines = []
    for rec, reqs, i in CHECKS:
        w = [wc(canon(q)) if not (isinstance(q.get("prompt"), list)) else len(q["prompt"]) for q in reqs]
        bad = []
        if len(reqs) < 12:
            bad.append(f"only {len(reqs)} requests")
        if min(w) < 400 or max(w) > 4300:
            bad.append(f"words {min(w)}..{max(w)}")
        lines.append(f"== {rec['file']}  n={len(reqs)} words {min(w)}..{max(w)} {' '.join('!!' + b for b in bad)}")
        if rec["cause"]:
            j, p, a, b = near(reqs, i)
            whole = a + "\n" + b
            for e in rec["exact"]:
                if e not in whole and e not in " ".join(whole.split()):
                    lines.append(f"   !! exact not there: {e!r}")
            lines.append(f"   {i} parts from {j} at {p} of {len(b)}  exact={rec['exact']} need {rec['need']}")
            lines.append("   old " + ctx(a, p))
            lines.append("   new " + ctx(b, p))
    open(os.path.join(os.path.dirname(OUT), "check.txt"), "w").write("\n".join(lines) + "\n")
    print(COUNT, "defects", sum(v for k, v in COUNT.items() if k != "clean"))
    print(sum("!!" in line for line in lines), "lines with !!")
