"""ordinary traffic in which there is nothing to find"""
import copy, json, random
from datetime import timedelta
from core import *

SPORT = """You write one-sentence headlines for the results page of a regional newspaper. You are given a short report by the correspondent who sat in the hall or stood at the pitch, and you return the headline and nothing else.

Rules. Name the winner first, unless the surprise lies with the loser. Give the final score with a colon between the numbers, home side first. Use the name by which the club is known in the region and never a sponsor's name. At most twelve words. No puns on the names of animals, no war metaphors, no exclamation marks. Verbs in the present tense. If the report names an injury, leave it out of the headline, unless the match was stopped because of it.

Women's and men's teams are treated alike: write "women" or "men" only if both played on the same day. Youth matches give the age group. For athletics and swimming, give the time or distance of the winner only when it is a record. For chess, give the board points.

If the report contradicts itself, for instance if the goals named don't add up to the score, write "Please check:" and the reason in one line instead of a headline. The desk will ring the correspondent. Never guess a score from the story of the match."""
SPORT_ITEMS = """Volleyball, Tuesday evening. Marsh End lost the first set 19:25 and then took three in a row, 25:22, 25:17, 26:24, against Holloway. Final 3:1.
Handball, under sixteen. Kettering Park against Brook Street 28:28, the equaliser came with four seconds to go from a seven-metre throw.
Football, Saturday. Port Ellis 0, Northgate 2. Both goals in the first ten minutes, by Adeyemi and Stone. The rest was rain.
Chess, second division. Library Club beats Town Hall by 5.5 to 2.5, board one drawn after six hours.
Swimming, county meeting. Lara Finch wins the 200 metres breaststroke in 2:31.84, a county record by half a second.
Football, Sunday. Ashby Rovers 4, Tolland 3, after 0:3 at the break. Four goals by the same player, Kowalski, who came on at 46 minutes.
Basketball. Harbour Giants beat Milltown 81:79 after extra time. The regular time ended 72:72.
Football women and men on the same ground, Saturday. Women: Elm Vale 2, Castle 0. Men: Elm Vale 1, Castle 1.
Table tennis. Rushmore defeats Glenfield 9:2, the eleventh win in a row.
Hockey. Weston 3, Upper Dale 3. Report names scorers for Weston: Price, Price, Lamb, Ortiz.
Athletics. The half marathon is won by J. Muthoni in 1:14:09, three minutes ahead of the second.
Football. Northgate 1, Ashby Rovers 1, stopped after 71 minutes because of a broken floodlight.
Volleyball. Holloway beats Lakeside 3:0, 25:11, 25:14, 25:9, in fifty-two minutes.
Cricket indoor. St Anne's 142 for 6, Greyfriars 139 all out with two balls left.
Handball. Brook Street 31, Marsh End 24, fourteen saves by the keeper in the second half.
Ice hockey. Bears 2, Comets 5, with three goals in power play.""".split("\n")
REL = """You turn a list of commits into release notes for the command line tool Ferrywire, which copies files between machines over unreliable connections. The readers are administrators who want to know in half a minute whether they have to update and whether something will break.

Return three sections with these headings in this order: Breaking, New, Fixed. Leave out a section that would be empty. Under each heading write one line for each change, beginning with a hyphen, in the present tense and in at most twenty words. Name the option or the file format that is concerned in backticks. Put the number of the issue in brackets at the end, if the commit names it.

Leave out: changes of the tests, of the build, of the documentation and of dependencies, unless a dependency closes a security hole; refactorings; reverts together with the commit which they revert. Merge several commits on the same subject into one line. A changed default is always Breaking, even when the author calls it a fix. A higher minimum version of the operating system or of the protocol is Breaking as well.

Do not thank contributors, do not use adjectives such as blazing or seamless, and do not promise anything for a later version. If a commit message is not understandable, write the line as: unclear, see followed by the short hash."""
REL_ITEMS = """v2.3.1..v2.3.2
a41fe02 fix resume when the remote file is shorter (#812)
09be7d1 tests: add a slow server
77c1a90 bump zstd to 1.5.7 (CVE in 1.5.5)
v2.3.2..v2.4.0
1d20c77 add --limit-rate per peer (#798)
5be1180 default of --parallel is now 4, was 8
e0913aa docs: typo
v2.4.0..v2.4.1
c8d2210 crash on empty folder with --mirror (#831)
3f9a8c4 refactor: split session.rs
v2.4.1..v2.5.0-rc.1
88ab013 protocol 7, drops peers older than 2.0
71aa2b9 new file format for the journal, old one is converted at start
4c1e6d0 add `ferrywire verify` (#640)
v2.5.0-rc.1..v2.5.0
9d4b710 verify: show progress
2aa7cc1 revert "journal: fsync each block"
b1029de journal: fsync each block
v2.5.0..v2.5.1
60f1e2c wrong exit code of verify when a file is missing (#859)
v2.5.1..v2.6.0
d07731b read the key from an environment variable, FERRYWIRE_KEY (#702)
ce4410a minimum macOS is 12.3
f3b8e19 ci: cache
v2.6.0..v2.6.1
48b2a7d key in the environment was printed with -vv (#877)
0a0d9f2 wip
v2.6.1..v2.7.0
bb12c64 add --since for copies of changed files only (#655)
57e0f3a --since: accept 2d, 12h (#655)
aa8f1d3 build: static musl
v2.7.0..v2.7.1
e5c9920 --since misses files with a time in the future (#901)
v2.7.1..v3.0.0
13f77e8 remove --legacy-ssh, announced in 2.0
6b0c2da configuration moves to ferrywire.toml
90d1a5b rename --mirror to --sync
v3.0.0..v3.0.1
7fe01c3 ferrywire.toml: tilde was not expanded (#930)
c22b118 sync: keep sparse files sparse (#918)
v3.0.1..v3.1.0
af64b20 show estimated time (#511)
19cd7e5 bump rustls to 0.23.18""".split("\nv")
REL_ITEMS = [("v" if k else "") + x for k, x in enumerate(REL_ITEMS)]
HARBOUR_B = """Role: first-line agent, Harbour Mobile. Channel: chat.

1. Greet briefly, then ask one question that narrows down the matter: bill, connection, travel, contract.
2. Work through the matter with the decision tree of that topic. Do not skip a step, not even when the customer says that they have done it; ask them to confirm it instead.
3. After each step write what the result tells us, in a single short sentence.
4. When the tree ends, offer the action which it names. Never offer two actions at a time.
5. Close with the reference of the case and the way in which the customer can come back to it.

Language: plain British English at the level of a daily newspaper. No contractions. No first names. Numbers as figures, money with the pound sign and two places.

Powers: credit up to ten pounds, engineer's visit, fault ticket. Everything else goes to the second line with the completed case form: customer's words, steps done, results, proposed action.

Forbidden: promises about dates, comments on other companies, other people's accounts, card numbers, opinions on politics. A customer in distress about money is put through to the care team at once, without the tree."""
PRICE = """Eres la asistente de presupuestos de Carpintería Olmo, un taller familiar de once personas. Recibes por correo lo que pide un cliente y devuelves un presupuesto en forma de lista numerada, listo para que Marta lo revise y lo envíe.

Cada partida lleva un número, una descripción de una línea, la cantidad, el precio por unidad y el importe, separados por punto y coma. Después de la última partida se escribe el subtotal, el impuesto del veintiuno por ciento y el total. Redondea a dos decimales en cada línea. Si falta una medida, no la inventes: escribe la partida con la palabra pendiente y añade al final la pregunta para el cliente.

Tarifas: tablero de abedul de dieciocho milímetros, 46,80 euros el metro cuadrado; tablero de roble macizo, 129,50 el metro cuadrado; canto aplicado, 3,20 el metro; bisagra con freno, 5,90 la unidad; guía de cajón con freno, 21,40 el par; hora de taller, 38,00; hora de montaje, 42,00; desplazamiento dentro de la provincia, 35,00 por visita.

Mano de obra: un armario de dos puertas requiere nueve horas de taller y tres de montaje; una estantería, cuatro y una; un cajón, una y media sin montaje. El barniz va incluido en la hora de taller. No ofrezcas descuentos. No indiques plazos de entrega, porque dependen de la agenda. Escribe con cortesía y sin adornos."""
PRICE_ITEMS = """1. Estantería de abedul de 2,00 x 0,90 m con cinco baldas. 2. Montaje en Alcalá, segundo piso.
Necesito un armario de roble de dos puertas, 2,40 de alto por 1,20 de ancho y 0,60 de fondo. ¿Cuánto sería?
Tres cajones nuevos para una cómoda antigua, de 40 x 50 x 15 cm, con guías con freno.
Una mesa de roble macizo de 1,80 x 0,95 m, sin cajones. El tablero viejo se lo llevarían ustedes.
1. Cambiar doce bisagras de la cocina. 2. Ajustar dos puertas que rozan. 3. Un canto nuevo de 2,60 m.
Estantería a medida para un hueco de 1,47 m de ancho; la altura se la digo cuando mida mi marido.
Dos armarios iguales de abedul, dos puertas cada uno, 2,20 x 1,00 x 0,55 m, para una casa rural.
Un banco para la entrada, 1,10 x 0,40 m, roble, con un cajón debajo.
Frente de cocina: 7 puertas de abedul de 70 x 45 cm, con dos bisagras cada una.
Reparar la balda de un aparador, 0,95 x 0,35 m, roble, y barnizarla igual que el resto.
Una librería de pared, 3,20 x 2,40 m, abedul, con seis columnas y treinta y seis baldas.
Cuna de roble según el dibujo adjunto. Las medidas son 1,25 x 0,65 m, altura 0,90 m.
1. Dos mesillas con un cajón cada una. 2. Cabecero de 1,60 x 1,10 m. Todo en roble.
Puerta corredera de abedul, 2,10 x 0,90 m. El riel lo compro yo por 64,90.
Tablero para un escritorio, 1,60 x 0,70 m, roble, con el canto redondeado, sin montaje.""".split("\n")


def make(line, times, rids, MODELS):
    out = []

    def go(name, reqs, fmt, note, model=None, f=None, **kw):
        rng = random.Random("clean" + name)
        when = kw.get("when") or times(rng, len(reqs))
        ids = rids(rng, "clean_" + name, len(reqs))
        mm = MODELS["anth"][0] if fmt.startswith("anth") else MODELS.get(fmt[7:]) if fmt.startswith("prompt:") else MODELS["oai"][len(name) % 4]
        objs = []
        for i, r in enumerate(reqs):
            r = copy.deepcopy(r)
            r["docstyle"] = kw.get("docstyle", r["docstyle"])
            r["think"] = kw.get("think", False)
            if f:
                f(r, i)
            objs.append(line(r, i, fmt, name, when[i], ids[i], r.get("model") or model or mm))
        out.append(("clean_" + name, objs, note))

    R = lambda x: random.Random("clean4" + x)
    single = lambda sysx, items, tools=(): [dict(k=k, sys=sysx, tools=list(tools), docs=[], msgs=[{"r": "user", "t": x}], answer=None, docstyle=None, think=False) for k, x in enumerate(items)]
    go("telco_chat", convs("telco", R("1")), "rr", "growing conversations, help articles in fixed order", docstyle="sys")
    go("heim_tools", convs("heim", R("2")), "raw", "voice assistant with tools, raw bodies without ids")
    go("inquilino_anthropic", convs("inquilino", R("3"), long=True), "anth", "long legal conversations")
    go("zh_shop", convs("zhshop", R("4")), "litellm", "Chinese shop, tools in fixed order")
    go("ja_deepseek", convs("jatutor", R("5")), "prompt:deepseek", "Japanese tutor, rendered prompts")

    def subset(r, i):
        r["docs"] = [r["docs"][k] for k in [(0, 4), (1, 2), (3, 2, 1)][r["k"]]]
    go("rag_other_docs", convs("arbank", R("6")), "rr", "each conversation has its own retrieved articles, stable within it", docstyle="sys", f=subset)
    go("coder_thinking_kept", convs("coder", R("7")), "anth", "thinking blocks stay in the history unchanged", think=True, docstyle="files")
    go("medcode_batch", convs("medcode", R("8")), "batch", "batch of different notes behind the same instructions", docstyle="sys")

    def claim(r, i):
        g = R(f"cl{i}")
        r["msgs"][0]["t"] = f"Schadennummer {g.randrange(10**8, 10**9)}-{g.randrange(10, 99)}, eingegangen über das Portal\n\n" + r["msgs"][0]["t"]
    go("schaden_numbers", convs("schaden", R("9")), "litellm", "claim numbers stand in the user's content, where they belong", f=claim, docstyle="num")

    def contract(r, i):
        g = R(f"ct{i}")
        r["sys"] = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n" + r["sys"]
        r["msgs"][0]["t"] = f"Contract FS-{g.randrange(2019, 2026)}-{g.randrange(100, 999)}, clause {g.randrange(2, 29)}.{g.randrange(1, 9)}\n\n" + r["msgs"][0]["t"]
    go("clauses_static_date", convs("clauses", R("10")), "prompt:llama3", "the template's default date never moves; contract numbers in the content", f=contract)
    go("dungeon_llama", convs("dungeon", R("11")), "prompt:llama3", "game, growing transcript")

    def prof(r, i):
        p = [{"name": "Katrin", "role": "controller", "locale": "de-DE", "tips": False}, {"name": "Samuel", "role": "sales lead", "locale": "en-GB", "tips": True}, {"name": "Aiko", "role": "trainee", "locale": "ja-JP", "tips": True}][r["k"]]
        r["sys"] += "\n\nUser: " + json.dumps(p)
    go("sheet_profiles", convs("sheet", R("12")), "litellm", "profile of each user at the end of the system prompt, same within a conversation", f=prof)

    def stamp(r, i):
        for k, m in enumerate(r["msgs"]):
            if m["r"] == "user":
                m["t"] = f"[{9 + r['k']}:{4 + 3 * (k // 2):02d}] " + m["t"]
    go("train_stamped", convs("train", R("13")), "rr", "each message keeps the time at which it was sent", f=stamp)
    go("ops_agent", convs("ops", R("14")), "anth", "agent with tool calls, history unchanged")
    go("sql_harmony", convs("sql", R("15")), "prompt:harmony", "no reasoning was stored, none is dropped")

    def dictated(r, i):
        g = R(f"di{i}")
        r["msgs"][0]["t"] += f"\n\nDictated on 24 November 2026 at {8 + i // 3}:{(i % 3) * 20 + g.randrange(19):02d}"
    go("medcode_dictated", convs("medcode", R("16")), "rr", "date and time at the end of the last user turn", f=dictated, docstyle="front")

    a, b, c = convs("telco", R("17")), convs("heim", R("18")), convs("sql", R("19"))
    g = R("20")
    mix, act = [], [a[:12], b[:12], c[:12]]
    while any(act):
        x = g.choice([x for x in act if x])
        mix.append(x.pop(0))
    go("three_apps", mix, "rr", "three applications behind one gateway")

    ret = []
    for k, r in enumerate(convs("zhshop", R("21"))):
        ret += [r] * (3 if k % 6 == 4 else 2 if k % 4 == 1 else 1)
    go("retries", ret, "rawid", "requests repeated after a time-out, with new ids")

    def sw(r, i):
        r["model"] = ["gpt-4.1-mini", "gpt-4.1", "gpt-4.1-mini", "claude-via-proxy"][i % 4]
    go("model_switch", convs("histtutor", R("22")), "litellm", "router changes the model from turn to turn", f=sw)

    def ab(r, i):
        if r["k"] % 2:
            r["sys"] = HARBOUR_B
    go("ab_prompts", convs("telco", R("23")), "rr", "A/B test of two prompts with nothing in common, fixed for each conversation", f=ab)
    go("sports", single(SPORT, SPORT_ITEMS), "batch", "scores and times in the items")
    go("release_notes", single(REL, REL_ITEMS), "prompt:mistral", "version numbers and hashes in the items")
    go("numbered_prices", single(PRICE, PRICE_ITEMS), "litellm", "numbered lists, measures and prices in Spanish")

    def role(r, i):
        if r["k"] == 1:
            r["tools"] = [t for t in r["tools"] if t["function"]["name"] not in ("db_activity", "get_flag")] if False else r["tools"]
    go("ops_openai", convs("ops", R("24")), "rawid", "the same agent as OpenAI bodies, call ids stay", f=role)
    go("dungeon_long", convs("dungeon", R("25"), long=True), "prompt:gemma", "two long games, nothing is cut off")

    def tenant(r, i):
        r["sys"] = r["sys"].replace("the Stadtwerke", "") + "\n\n" + ["Kundin: Familie mit zwei Kindern, Haus am Hang, Fußbodenheizung im Bad.", "Kunde: Wohngemeinschaft, vier Personen, keine Rollläden im Obergeschoss.", "Kundin: ältere Dame, lebt allein, hört schlecht, bitte laut und langsam.", "Kunde: Büro im Erdgeschoss, ab sechs Uhr abends ist niemand da."][r["k"]]
    go("households", convs("heim", R("26")), "prompt:chatml", "four households with their own description", f=tenant)
    return out
