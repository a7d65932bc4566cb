"""Scores `PATH analyze|lint|why` on logs/ against truth.json, of the third set or of the one in FOLDER.

  run.py --headstart PATH [--set FOLDER] [--json OUT] [--only TEXT] [--jobs N]

analyze, lint: findings[0].cause is the truth, and the exact strings are in that finding's example texts
(before/old/new). Which pair of requests is shown is the tool's choice, so `values` of the truth (what the defect was in
each request) count as well: all of `exact`, or at least `need` different ones of `values`. why: the same for the
answer's own cause and texts. clean: no findings at all. A string counts when it is in a text, when a text of at
least 4 characters is a part of it, or when a long one (over 20) shares 16 characters in a row with a text.
White space is compared as one blank, and marks for it as white space; text of white-space defects is what stands around it.
"""

import argparse
import json
import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
ORDER = [
    "clock",
    "nonce",
    "tool-order",
    "json-keys",
    "white-space",
    "thinking",
    "seam",
    "document-order",
    "template",
    "trimmed",
]
TEXT = ("before", "old", "new", "after", "text", "left", "right", "a", "b")


def norm(s):
    for m in "⏎␍␊↵→␣·␉⇥⍽¶":
        s = s.replace(m, " ")
    return " ".join(s.replace("\\n", " ").replace("\\r", " ").replace("\\t", " ").replace('\\"', '"').split())


def parse(out):
    out = out.strip()
    try:
        return json.loads(out)
    except ValueError:
        pass
    k = out.find("{")
    if k >= 0:
        try:
            return json.JSONDecoder().raw_decode(out[k:])[0]
        except ValueError:
            pass
    return None


def call(cmd, limit=60):
    t = time.time()
    try:
        p = subprocess.run(cmd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=limit, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return None, "", f"over {limit} s", time.time() - t
    except OSError as e:
        return None, "", str(e), time.time() - t
    return p.returncode, p.stdout.decode("utf-8", "replace"), p.stderr.decode("utf-8", "replace"), time.time() - t


def ask(path, args):
    """Runs with --json --show-text; without the one that is refused."""
    tried = [["--json", "--show-text"], ["--json"], []]
    for k, flags in enumerate(tried):
        rc, out, err, s = call([path, *args, *flags])
        refused = (
            rc not in (0, None)
            and parse(out) is None
            and any(
                w in err.lower()
                for w in ("unexpected argument", "unknown", "unrecognized", "unrecognised", "usage:", "invalid option")
            )
        )
        if not refused or k == 2:
            return {"rc": rc, "data": parse(out), "err": err[-300:], "s": round(s, 2), "flags": flags}


def texts(x):
    """Example texts: values of before/old/new (and the like) anywhere below, and joined as they stand in the prompt."""
    out = []

    def walk(v):
        if isinstance(v, dict):
            g = {k: v[k] for k in TEXT if isinstance(v.get(k), str)}
            out.extend(g.values())
            be, af = g.get("before", ""), g.get("after", "")
            for k in ("old", "new"):
                if k in g:
                    out.append(be + g[k] + af)
            for w in v.values():
                walk(w)
        elif isinstance(v, list):
            for w in v:
                walk(w)

    walk(x)
    return [norm(t) for t in out if t.strip()]


def shown(e, ts, values=()):
    """A part counts only where it is this value's own: what several values share proves none of them."""
    e = norm(e)
    others = [o for o in map(norm, values) if o != e]
    for t in ts:
        if e in t:
            return True
        c = t.strip("… .\"'").strip()
        if len(c) >= 4 and c in e and not any(c in o for o in others):
            return True
        if len(e) > 20 and any(
            e[i : i + 16] in t and not any(e[i : i + 16] in o for o in others) for i in range(len(e) - 15)
        ):
            return True
    return False


def exact(rec, data, why=False):
    ts = texts(data)
    if not rec["exact"] and not rec["need"]:
        return True
    vs = list(dict.fromkeys(rec["values"] + rec["exact"])) if rec["need"] > 1 else []
    if rec["exact"] and all(shown(e, ts, vs) for e in rec["exact"]):
        return True
    hit = [v for v in dict.fromkeys(rec["values"]) if shown(v, ts, vs)]
    return len(hit) >= max(1, rec["need"])


def findings(data):
    if isinstance(data, dict):
        f = data.get("findings")
        if f is None:
            for k in ("report", "analysis", "lint", "result"):
                if isinstance(data.get(k), dict) and "findings" in data[k]:
                    return data[k]["findings"]
        return f
    return data if isinstance(data, list) else None


def cause(x):
    c = x.get("cause") if isinstance(x, dict) else None
    if isinstance(c, dict):
        c = c.get("name") or c.get("cause") or c.get("kind")
    return c


def whycause(d):
    c = cause(d)
    if c is None and isinstance(d, dict):
        for v in d.values():
            if isinstance(v, dict) and cause(v):
                return cause(v)
        f = findings(d)
        if f:
            return cause(f[0])
    return c


def one(path, folder, rec):
    f = os.path.join(folder, rec["file"])
    res = {"file": rec["file"], "cause": rec["cause"]}
    for cmd in ("analyze", "lint"):
        a = ask(path, [cmd, f])
        fs = findings(a["data"])
        r = {"rc": a["rc"], "s": a["s"], "flags": a["flags"]}
        if fs is None:
            r.update(got="no answer", named=False, exact=False, error=a["err"] or "no findings in the answer")
        elif rec["cause"] is None:
            r.update(got=[cause(x) for x in fs], named=not fs, exact=not fs, texts=texts(fs)[:6])
        else:
            g = [cause(x) for x in fs]
            ok = bool(fs) and g[0] == rec["cause"]
            r.update(got=g, named=ok, exact=ok and exact(rec, fs[0]), texts=texts(fs[0])[:6] if fs else [])
        res[cmd] = r
    if rec["cause"]:
        a = ask(path, ["why", rec["request"], f])
        d = a["data"]
        r = {"rc": a["rc"], "s": a["s"], "flags": a["flags"]}
        if d is None:
            r.update(got="no answer", named=False, exact=False, error=a["err"])
        else:
            g = whycause(d)
            ok = g == rec["cause"]
            r.update(got=g, named=ok, exact=ok and exact(rec, d, True), texts=texts(d)[:6])
        res["why"] = r
    return res


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--headstart", required=True)
    p.add_argument("--set", default=HERE)
    p.add_argument("--json")
    p.add_argument("--only", default="")
    p.add_argument("--jobs", type=int, default=2)
    a = p.parse_args()
    path = os.path.abspath(a.headstart) if os.path.exists(a.headstart) else a.headstart
    truth = [r for r in json.load(open(os.path.join(a.set, "truth.json"), encoding="utf-8")) if a.only in r["file"]]
    with ThreadPoolExecutor(a.jobs) as ex:
        rows = list(ex.map(lambda r: one(path, a.set, r), truth))
    by = {r["file"]: r for r in truth}
    cmds = ("analyze", "lint", "why")
    table = {}
    print(f"{'cause':16}" + "".join(f"{c + ': named/exact/of':>26}" for c in cmds))
    for c in ORDER + ["all"]:
        z = [r for r in rows if r["cause"] == c or c == "all" and r["cause"]]
        if not z:
            continue
        table[c] = {k: [sum(r[k]["named"] for r in z), sum(r[k]["exact"] for r in z), len(z)] for k in cmds}
        print(f"{c:16}" + "".join(f"{'%d / %d / %d' % tuple(table[c][k]):>26}" for k in cmds))
    z = [r for r in rows if r["cause"] is None]
    quiet = {k: [sum(r[k]["named"] for r in z), len(z)] for k in cmds[:2]}
    if z:
        print("clean (quiet)   " + "".join(f"{'%d of %d' % tuple(quiet[k]):>26}" for k in cmds[:2]))
    fail = []
    alarm = []
    for r in rows:
        for k in cmds:
            if k not in r or r[k]["exact"]:
                continue
            x = r[k]
            what = {
                "file": r["file"],
                "command": k,
                "cause": r["cause"],
                "got": x["got"],
                "named": x["named"],
                "expected": by[r["file"]]["exact"],
                "texts": x.get("texts", []),
                "error": x.get("error", ""),
            }
            (fail if r["cause"] else alarm).append(what)
    print(f"\n{len(fail)} failures")
    for x in fail:
        print(
            f"  {x['file'][5:-6]:45} {x['command']:8} "
            + (
                "named, text not shown: want " + str(x["expected"]) + " saw " + str([t[:60] for t in x["texts"][:3]])
                if x["named"]
                else f"got {x['got']} {x['error'].strip()[:120]}"
            )
        )
    print(f"\n{len(alarm)} false alarms (or no answer) on clean logs")
    for x in alarm:
        print(
            f"  {x['file'][5:-6]:45} {x['command']:8} got {x['got']} {[t[:60] for t in x['texts'][:3]]} {x['error'].strip()[:120]}"
        )
    if a.json:
        json.dump(
            {"table": table, "clean": quiet, "failures": fail, "false_alarms": alarm, "rows": rows},
            open(a.json, "w", encoding="utf-8"),
            ensure_ascii=False,
            indent=1,
        )


if __name__ == "__main__":
    main()
