import copy, hashlib, json, os, random, re, zlib
from datetime import datetime, timedelta, timezone
HERE = os.path.dirname(os.path.abspath(__file__))


def parse(name):
    sec, sysl, docs, tools, threads, items = None, [], [], [], [], []
    for line in open(f"{HERE}/apps/{name}.txt", encoding="utf-8").read().split("\n"):
        if line.startswith("=== "):
            sec = line[4:].strip()
            if sec == "thread":
                threads.append([])
            continue
        if sec == "sys":
            sysl.append(line)
        elif sec == "docs":
            if line.startswith("# "):
                docs.append([line[2:], ""])
            else:
                docs[-1][1] += line + "\n"
        elif sec == "tools" and line.strip():
            n, d, ps = [x.strip() for x in line.split(" | ")]
            props = {}
            for p in ps.split(" ; "):
                a, b, c = p.split(":", 2)
                props[a] = {"type": b, "description": c}
            tools.append({"type": "function", "function": {"name": n, "description": d, "parameters": {
                "type": "object", "properties": props, "required": list(props)}}})
        elif sec == "items" and line.strip():
            items.append(line)
        elif sec == "thread":
            m = re.match(r"([UATCR]): ?(.*)", line, re.S)
            if m:
                threads[-1].append([m[1], m[2]])
            elif threads[-1]:
                threads[-1][-1][1] += "\n" + line
    th = []
    for ti, t in enumerate(threads):
        ms, thought, n = [], None, 0
        for k, x in t:
            x = x.rstrip("\n")
            if k == "T":
                thought = x
            elif k == "U":
                ms.append({"r": "user", "t": x})
            elif k == "A":
                ms.append({"r": "assistant", "t": x, "th": thought, "calls": []}); thought = None
            elif k == "C":
                tool, arg = x.split(" ", 1)
                cid = "call_" + hashlib.sha256(f"{name}{ti}{n}".encode()).hexdigest()[:20]; n += 1
                ms.append({"r": "assistant", "t": "", "th": thought, "calls": [{"id": cid, "name": tool, "args": json.loads(arg)}]}); thought = None
            elif k == "R":
                ms.append({"r": "tool", "t": x, "id": cid, "name": tool})
        th.append(ms)
    if items:
        th = []
    docs = [[a, b.strip("\n")] for a, b in docs]
    return {"name": name, "sys": "\n".join(sysl).strip(), "docs": docs, "tools": tools, "threads": th, "items": items}


APPS = {f[:-4]: parse(f[:-4]) for f in sorted(os.listdir(f"{HERE}/apps"))}


def convs(app, rng, long=False, extra=0, max_msgs=None):
    a = APPS[app]
    ths = [copy.deepcopy(t) for t in a["threads"]]
    if a["items"]:
        its = a["items"][:]
        rng.shuffle(its)
        return [base(a, k, [{"r": "user", "t": it}], None) for k, it in enumerate(its)]
    if long:
        cs = [sum(ths, []), sum(ths[1:] + ths[:1], [])]
    else:
        rng.shuffle(ths)
        cs = ths
    seqs = []
    for k, c in enumerate(cs):
        seq = [base(a, k, c[:j], c[j]) for j, m in enumerate(c) if m["r"] == "assistant"]
        seqs.append(seq)
    out, act, pend = [], [], seqs[:]
    while pend or act:          # up to three conversations are open at a time
        while pend and len(act) < 3:
            act.append(pend.pop(0))
        s = rng.choice(act)
        for _ in range(rng.choice([1, 1, 2])):
            if s:
                out.append(s.pop(0))
        act = [x for x in act if x]
    return out


def base(a, k, msgs, answer):
    return {"k": k, "sys": a["sys"], "tools": copy.deepcopy(a["tools"]), "docs": copy.deepcopy(a["docs"]),
            "msgs": copy.deepcopy(msgs), "answer": copy.deepcopy(answer), "docstyle": None, "think": False}


def put_docs(r):
    d, s = r["docs"], r["docstyle"]
    if not s:
        return
    sep = r.get("docsep", "\n\n")
    if s == "sys":
        r["sys"] += "\n\n" + r.get("dochead", "Reference:") + "\n\n" + sep.join(f"{a}\n{b}" for a, b in d)
    elif s == "front":
        r["sys"] = r.get("dochead", "Reference:") + "\n\n" + sep.join(f"{a}\n{b}" for a, b in d) + "\n\n" + r["sys"]
    elif s == "xml":
        r["sys"] += "\n\n<documents>\n" + "\n".join(f'<document index="{i+1}">\n<title>{a}</title>\n{b}\n</document>' for i, (a, b) in enumerate(d)) + "\n</documents>"
    elif s == "num":
        r["sys"] += "\n\n" + r.get("dochead", "Reference:") + "\n" + sep.join(f"[{i+1}] {a}: {b}" for i, (a, b) in enumerate(d))
    elif s == "files":
        r["sys"] += "\n\n" + "\n".join(f"===== {a} =====\n{b}\n" for a, b in d)
    elif s == "li":
        r["msgs"][0]["t"] = ("Context information is below.\n---------------------\n" + sep.join(f"file_name: {a}\n{b}" for a, b in d)
            + "\n---------------------\nGiven the context information and not prior knowledge, answer the query.\nQuery: " + r["msgs"][0]["t"] + "\nAnswer: ")
    elif s == "anthdoc":
        r["anthdocs"] = d
    r["docstyle"] = None


T = {
 "chatml": dict(bos="", sys=("<|im_start|>system\n", "<|im_end|>\n"), user=("<|im_start|>user\n", "<|im_end|>\n"), assistant=("<|im_start|>assistant\n", "<|im_end|>\n"), tool=("<|im_start|>tool\n", "<|im_end|>\n"), think=("<think>\n", "\n</think>\n\n")),
 "llama3": dict(bos="<|begin_of_text|>", sys=("<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>"), user=("<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"), assistant=("<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"), tool=("<|start_header_id|>ipython<|end_header_id|>\n\n", "<|eot_id|>"), think=("<think>", "</think>")),
 "mistral": dict(bos="<s>", sys=("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"), user=("[INST]", "[/INST]"), assistant=("", "</s>"), tool=("[TOOL_RESULTS]", "[/TOOL_RESULTS]"), think=("[THINK]", "[/THINK]")),
 "gemma": dict(bos="<bos>", sys=("<start_of_turn>user\n", "<end_of_turn>\n<start_of_turn>model\nOK<end_of_turn>\n"), user=("<start_of_turn>user\n", "<end_of_turn>\n"), assistant=("<start_of_turn>model\n", "<end_of_turn>\n"), tool=("<start_of_turn>user\n", "<end_of_turn>\n"), think=("", "")),
 "deepseek": dict(bos="<｜begin▁of▁sentence｜>", sys=("", ""), user=("<｜User｜>", ""), assistant=("<｜Assistant｜>", "<｜end▁of▁sentence｜>"), tool=("<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"), think=("<think>\n", "\n</think>\n\n")),
 "phi": dict(bos="", sys=("<|system|>\n", "<|end|>\n"), user=("<|user|>\n", "<|end|>\n"), assistant=("<|assistant|>\n", "<|end|>\n"), tool=("<|tool|>\n", "<|end|>\n"), think=("", "")),
 "zephyr": dict(bos="", sys=("<|system|>\n", "</s>\n"), user=("<|user|>\n", "</s>\n"), assistant=("<|assistant|>\n", "</s>\n"), tool=("<|tool|>\n", "</s>\n"), think=("", "")),
 "vicuna": dict(bos="", sys=("", ""), user=(" USER: ", ""), assistant=(" ASSISTANT: ", "</s>"), tool=(" TOOL: ", ""), think=("", "")),
 "human_ai": dict(bos="", sys=("", "\n\nCurrent conversation:\n"), user=("Human: ", "\n"), assistant=("AI: ", "\n"), tool=("Observation: ", "\n"), think=("Thought: ", "\n")),
 "harmony": dict(bos="", sys=("<|start|>developer<|message|>", "<|end|>"), user=("<|start|>user<|message|>", "<|end|>"), assistant=("<|start|>assistant<|channel|>final<|message|>", "<|end|>"), tool=("<|start|>functions to=assistant<|channel|>commentary<|message|>", "<|end|>"), think=("<|start|>assistant<|channel|>analysis<|message|>", "<|end|>")),
}


def asst_text(m, t, think):
    x = ""
    if think and m.get("th") and t["think"][0] and t is not T["harmony"]:
        x += t["think"][0] + m["th"] + t["think"][1]
    x += m["t"]
    for c in m["calls"]:
        x += ("\n" if x and not x.endswith("\n") else "") + "<tool_call>\n" + json.dumps({"name": c["name"], "arguments": c["args"]}, ensure_ascii=False) + "\n</tool_call>"
    return x


def render(r, fam):
    t = r.get("tmpl") or T[fam]
    s = t["bos"] + t["sys"][0] + r["sys"] + t["sys"][1]
    for m in r["msgs"]:
        if m["r"] == "assistant":
            if fam == "harmony" and r["think"] and m.get("th"):
                s += t["think"][0] + m["th"] + t["think"][1]
            s += m.get("pre", t["assistant"][0]) + asst_text(m, T[fam], r["think"]) + m.get("post", t["assistant"][1])
        else:
            s += t[m["r"]][0] + m["t"] + t[m["r"]][1]
    g = t["assistant"][0]
    if fam == "harmony":
        g = "<|start|>assistant"
    return s + (g.rstrip(" ") if fam in ("human_ai", "vicuna") else g)


def completion(r, fam):
    m = r["answer"]
    if m is None:
        return None
    if fam == "harmony":
        x = ""
        if r["think"] and m.get("th"):
            x += "<|channel|>analysis<|message|>" + m["th"] + "<|end|><|start|>assistant"
        return x + "<|channel|>final<|message|>" + asst_text(m, T[fam], False)
    lead = " " if fam in ("human_ai", "vicuna") else ""
    return lead + asst_text(m, T[fam], r["think"])


def oai_msg(m, r, pick=None):
    if m["r"] == "assistant":
        o = {"role": "assistant"}
        if r["think"] and m.get("th") and r["think"] != "inline":
            o["reasoning_content"] = m["th"]
        c = m["t"]
        if r["think"] == "inline" and m.get("th"):
            c = "<scratchpad>\n" + m["th"] + "\n</scratchpad>\n" + c
        o["content"] = c or None
        if m["calls"]:
            o["tool_calls"] = [{"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": json.dumps(c["args"], ensure_ascii=False)}} for c in m["calls"]]
        return o
    if m["r"] == "tool":
        return {"role": "tool", "tool_call_id": m["id"], "content": m["t"]}
    return {"role": "user", "content": m["t"]}


def oai(r, model):
    b = {"model": model, "messages": ([{"role": r.get("sysrole", "system"), "content": r["sys"]}] if r["sys"] else []) + [oai_msg(m, r) for m in r["msgs"]]}
    if r["tools"]:
        b["tools"] = r["tools"]
    b["temperature"] = 0.3
    return b


def anth_blocks(m, r):
    if m["r"] == "assistant":
        o = []
        if r["think"] and m.get("th"):
            o.append({"type": "thinking", "thinking": m["th"], "signature": "Eq" + hashlib.sha256(m.get("th0", m["th"]).encode()).hexdigest()})
        if m["t"]:
            o.append({"type": "text", "text": m["t"]})
        for c in m["calls"]:
            o.append({"type": "tool_use", "id": "toolu_" + c["id"][5:], "name": c["name"], "input": c["args"]})
        return o
    if m["r"] == "tool":
        return [{"type": "tool_result", "tool_use_id": "toolu_" + m["id"][5:], "content": m["t"]}]
    return [{"type": "text", "text": m["t"]}]


def anth(r, model):
    ms = []
    for m in r["msgs"]:
        role = "assistant" if m["r"] == "assistant" else "user"
        bl = anth_blocks(m, r)
        if ms and ms[-1]["role"] == role:
            ms[-1]["content"] += bl
        else:
            ms.append({"role": role, "content": bl})
    if r.get("anthdocs"):
        ms[0]["content"] = [{"type": "document", "title": a, "source": {"type": "text", "media_type": "text/plain", "data": b}} for a, b in r["anthdocs"]] + ms[0]["content"]
    b = {"model": model, "max_tokens": 4096, "system": r.get("sysblocks", []) + [{"type": "text", "text": r["sys"]}], "messages": ms}
    if r["tools"]:
        b["tools"] = [{"name": t["function"]["name"], "description": t["function"]["description"], "input_schema": t["function"]["parameters"]} for t in r["tools"]]
    return b


def tok(text):
    """a toy tokenizer: words to ids; it knows a token for one and for two line ends"""
    ids = []
    for w in re.findall(r"<\|[^|]*\|>|\n\n|\n| ?\w+| ?[^\w\s]+|\s", text):
        ids.append(271 if w == "\n\n" else 198 if w == "\n" else 1000 + zlib.crc32(w.encode()) % 120000)
    return ids


def line(r, i, fmt, log, when, rid, model):
    r = copy.deepcopy(r)
    put_docs(r)
    iso = when.strftime("%Y-%m-%dT%H:%M:%S.") + f"{when.microsecond//1000:03d}Z"
    if fmt.startswith("prompt:"):
        fam = fmt[7:]
        o = {"id": rid, "ts": iso, "model": model, "prompt": render(r, fam)}
        c = completion(r, fam)
        if c is not None:
            o["completion"] = c
        return o
    if fmt == "ids":
        a, b = r.get("cut") or (None, None)
        p = render(r, "chatml")
        if r.get("cutat") and r.get("docut"):
            pos = p.index(r["cutat"])          # between the two line ends
            ids = tok(p[:pos]) + tok(p[pos:])
        else:
            ids = tok(p)
        o = {"request_id": rid, "arrival": iso, "prompt": p, "prompt_token_ids": ids}
        c = completion(r, "chatml")
        if c:
            o["outputs"] = [{"text": c, "token_ids": tok(c)}]
        return o
    if fmt == "raw":
        return oai(r, model)
    if fmt == "rawid":
        return {"request_id": rid, "received_at": iso, **oai(r, model)}
    if fmt == "batch":
        return {"custom_id": rid, "method": "POST", "url": "/v1/chat/completions", "body": oai(r, model)}
    if fmt == "rr":
        o = {"id": rid, "timestamp": iso, "request": oai(r, model)}
        if r["answer"]:
            am = oai_msg(r["answer"], r)
            o["response"] = {"object": "chat.completion", "choices": [{"index": 0, "message": am, "finish_reason": "tool_calls" if r["answer"]["calls"] else "stop"}]}
        return o
    if fmt == "litellm":
        b = oai(r, model)
        st = when.timestamp()
        o = {"id": rid, "call_type": "acompletion", "model": model, "status": "success", "startTime": round(st, 3), "endTime": round(st + 1.9 + (i % 7) / 3, 3),
             "prompt_tokens": len(json.dumps(b["messages"], ensure_ascii=False)) // 4, "messages": b["messages"], "model_parameters": {"temperature": 0.3, **({"tools": b["tools"]} if "tools" in b else {})}}
        if r["answer"]:
            o["response"] = {"choices": [{"message": oai_msg(r["answer"], r), "finish_reason": "stop"}]}
        return o
    if fmt == "anth":
        o = {"id": rid, "timestamp": iso, "request": anth(r, model)}
        if r["answer"]:
            o["response"] = {"type": "message", "role": "assistant", "content": anth_blocks(r["answer"], r)}
        return o
    if fmt == "anthraw":
        return {"request_id": rid, "ts": iso, **anth(r, model)}
    raise ValueError(fmt)


# ---- canonical text of a log line, for the check only
def seq(o):
    """(prompt, prompt plus answer) as lists of characters or ids"""
    if "prompt_token_ids" in o:
        p = o["prompt_token_ids"]
        return tuple(p), tuple(p) + tuple(o.get("outputs", [{"token_ids": []}])[0]["token_ids"])
    if "prompt" in o:
        return o["prompt"], o["prompt"] + o.get("completion", "")
    b = o.get("request") or o.get("body") or o
    tools = b.get("tools") or b.get("model_parameters", {}).get("tools") or []
    s = json.dumps(tools, ensure_ascii=False) + "\n"
    sy = b.get("system")
    if sy:
        s += "".join("<system>" + x["text"] for x in sy)

    def one(m):
        c = m.get("content")
        x = f"\n<{m['role']}>"
        if m.get("reasoning_content"):
            x += "<think>" + m["reasoning_content"] + "</think>"
        if isinstance(c, str):
            x += c
        elif c:
            for p in c:
                if p["type"] == "text":
                    x += p["text"]
                elif p["type"] == "thinking":
                    x += "<think>" + p["thinking"] + "</think>"
                elif p["type"] == "document":
                    x += f"<doc {p['title']}>" + p["source"]["data"] + "</doc>"
                elif p["type"] == "tool_use":
                    x += "<call " + p["id"] + p["name"] + json.dumps(p["input"], ensure_ascii=False) + ">"
                else:
                    x += "<result " + p["tool_use_id"] + ">" + p["content"]
        for t in m.get("tool_calls") or []:
            x += "<call " + t["id"] + t["function"]["name"] + t["function"]["arguments"] + ">"
        if m.get("tool_call_id"):
            x = x.replace(">", " " + m["tool_call_id"] + ">", 1)
        return x
    for m in b["messages"]:
        s += one(m)
    p = s + "\n<assistant>"
    r = o.get("response")
    if r:
        m = r["choices"][0]["message"] if "choices" in r else r
        return p, s + one(m)
    return p, p


def lcp(a, b):
    n = min(len(a), len(b))
    lo, hi = 0, n
    if a[:n] == b[:n]:
        return n
    while lo < hi:
        mid = (lo + hi + 1) // 2
        if a[:mid] == b[:mid]:
            lo = mid
        else:
            hi = mid - 1
    return lo
