# Word banks and text generators: nothing here knows about defects.

EN = {
    "bank": (
        "Northgate Savings Bank",
        [
            "standing order",
            "joint account",
            "overdraft limit",
            "card replacement",
            "mortgage offer",
            "transfer dispute",
            "savings bond",
            "direct debit",
            "proof of address",
            "travel notice",
        ],
        ["the branch clerk", "the fraud desk", "the account holder", "the compliance officer", "the card team"],
    ),
    "telecom": (
        "Brightline Mobile",
        [
            "number port",
            "roaming pass",
            "fibre installation",
            "router swap",
            "family plan",
            "data cap",
            "eSIM profile",
            "late fee",
            "signal complaint",
            "early termination charge",
        ],
        [
            "the field technician",
            "the retention desk",
            "the network operations centre",
            "the account owner",
            "the billing agent",
        ],
    ),
    "air": (
        "Corvid Airways",
        [
            "rebooking request",
            "baggage claim",
            "seat upgrade",
            "unaccompanied minor form",
            "missed connection",
            "refund voucher",
            "codeshare ticket",
            "pet carrier",
            "meal request",
            "denied boarding case",
        ],
        ["the gate agent", "the duty manager", "the ticketing desk", "the lead passenger", "the baggage office"],
    ),
    "claims": (
        "Halden Mutual Insurance",
        [
            "water damage claim",
            "police report",
            "repair estimate",
            "excess payment",
            "loss adjuster visit",
            "policy endorsement",
            "total loss offer",
            "storm claim",
            "third-party letter",
            "inventory list",
        ],
        ["the claims handler", "the policyholder", "the loss adjuster", "the repair network", "the subrogation team"],
    ),
    "legal": (
        "Ferris & Oyelaran LLP",
        [
            "indemnity clause",
            "limitation of liability",
            "termination notice",
            "governing-law clause",
            "data processing addendum",
            "assignment clause",
            "service credit",
            "audit right",
            "warranty period",
            "confidentiality undertaking",
        ],
        [
            "the reviewing associate",
            "the client's counsel",
            "the contracting party",
            "the procurement lead",
            "the supervising partner",
        ],
    ),
    "shop": (
        "Meadow & Pine Home Goods",
        [
            "return label",
            "gift card",
            "backordered lamp",
            "damaged parcel",
            "price match",
            "loyalty credit",
            "assembly service",
            "warranty card",
            "exchange request",
            "bulk order",
        ],
        ["the warehouse lead", "the support agent", "the courier", "the buyer", "the returns desk"],
    ),
    "sre": (
        "Tessellate Cloud",
        [
            "stuck rollout",
            "certificate renewal",
            "noisy neighbour",
            "replica lag",
            "quota increase",
            "pager rotation",
            "failed health check",
            "memory leak",
            "rollback plan",
            "stale DNS record",
        ],
        [
            "the on-call engineer",
            "the incident commander",
            "the database team",
            "the release manager",
            "the platform group",
        ],
    ),
    "hr": (
        "Osprey Manufacturing",
        [
            "parental leave request",
            "expense report",
            "shift swap",
            "probation review",
            "relocation allowance",
            "sick note",
            "training budget",
            "pension transfer",
            "workplace adjustment",
            "exit interview",
        ],
        ["the line manager", "the people partner", "the payroll team", "the works council", "the employee"],
    ),
    "energy": (
        "Loch Power Supply",
        [
            "meter reading",
            "tariff change",
            "solar export payment",
            "final bill",
            "smart meter visit",
            "payment plan",
            "supply outage",
            "tenancy change",
            "boiler cover",
            "estimated bill",
        ],
        ["the metering agent", "the network operator", "the account holder", "the welfare team", "the field engineer"],
    ),
    "travel": (
        "Wanderlight Tours",
        [
            "guided walk",
            "hotel voucher",
            "rail pass",
            "visa letter",
            "group discount",
            "airport transfer",
            "museum ticket",
            "cancellation cover",
            "dietary request",
            "late arrival",
        ],
        ["the tour leader", "the hotel desk", "the group organiser", "the local partner", "the booking agent"],
    ),
    "med": (
        "Quayside Clinics",
        [
            "referral letter",
            "repeat prescription",
            "vaccination record",
            "appointment slot",
            "lab result",
            "insurance form",
            "discharge summary",
            "interpreter request",
            "transport booking",
            "allergy note",
        ],
        ["the ward clerk", "the practice nurse", "the referring doctor", "the patient", "the records office"],
    ),
    "log": (
        "Baltic Freight Lines",
        [
            "customs declaration",
            "pallet exchange",
            "reefer container",
            "delivery window",
            "demurrage invoice",
            "dangerous goods note",
            "cross-dock slot",
            "proof of delivery",
            "broken seal",
            "weight certificate",
        ],
        ["the dispatcher", "the customs broker", "the haulier", "the terminal planner", "the consignee"],
    ),
}
EN_C = [
    "the record shows an open dispute",
    "two people have signed the form",
    "the request came by telephone only",
    "the amount is above the usual threshold",
    "the person cannot be identified with certainty",
    "a previous case was closed without an answer",
    "the supporting papers are incomplete",
    "a partner company is involved",
    "the service was used abroad",
    "the notes mention a complaint",
    "the person asks for a manager",
    "the deadline has already passed",
    "the matter touches a minor",
    "an automatic check has failed",
    "the same question was answered earlier in the conversation",
]
EN_V = ["approve", "reopen", "escalate", "document", "verify", "cancel", "correct", "postpone", "forward", "explain"]
EN_W = [
    "any money is moved",
    "a promise is made",
    "the case is handed over",
    "the next step is named",
    "the person is called back",
    "a written answer goes out",
    "the file is closed",
    "anything is changed in the system",
]
EN_ALT = [
    "a written confirmation",
    "a call from a specialist",
    "a partial refund",
    "a visit in person",
    "a later appointment",
    "a free copy of the terms",
    "a second opinion",
    "an interim solution",
]
EN_ADJ = [
    "ordinary",
    "urgent",
    "disputed",
    "incomplete",
    "international",
    "repeated",
    "contested",
    "simple",
    "unusual",
    "partial",
]
EN_T = [
    "When {c}, {a} must {v} the {o} before {w}.",
    "Never {v} the {o} for anyone else, even if {c}.",
    "If {c}, say plainly that the {j} {o} needs more time and offer {alt}.",
    "The {j} {o} counts as settled only after {a} has had a chance to {v} it.",
    "Ask whether {c} before you discuss the {j} {o} with {a}.",
    "Whoever mentions the {o} should hear that {a} can {v} it, and that {alt} is possible as well.",
    "In the case of a {j} {o}, {a} decides; you merely prepare the papers and suggest {alt}.",
    "Do not quote internal notes about the {o}; summarise them, and mention {alt} where {c}.",
    "Treat the {j} {o} with care: {a} will {v} it as soon as {c}.",
    "Where both the {o} and the {o2} are concerned, deal with the {o2} first and let {a} {v} the rest.",
    "A {j} {o} never excuses a missing {o2}; {a} has to {v} both before {w}.",
    "Should {a} refuse to {v} the {o}, offer {alt} and note the reason before {w}.",
]
EN_Q = [
    "How do I {v} my {o} when {c}?",
    "Could you tell me why the {o} is still pending?",
    "I was told that {a} would {v} the {o}, but nothing has happened so far.",
    "What happens to my {o} if {c}?",
    "Please help: the {o} looks wrong and {c}.",
    "Is it possible to get {alt} instead of the {o}?",
    "Who decides about a {j} {o} in my situation?",
    "My neighbour says the {o} can be handled by {a}; is that right?",
    "We need the {o} and the {o2} together, can that be arranged?",
    "Why does {a} want to {v} the {o} again?",
    "Before I sign anything, what does the {o} mean for me?",
    "Can somebody look at the {j} {o} that I reported?",
    "Which papers do you need for the {o}?",
    "Does {alt} cost extra with a {j} {o}?",
]
DE = {
    "kasse": (
        "Vorteil Krankenkasse",
        [
            "den Heilmittelantrag",
            "die Zuzahlungsbefreiung",
            "den Reha-Antrag",
            "die Familienversicherung",
            "den Kostenvoranschlag",
            "die Krankmeldung",
            "den Bonusnachweis",
            "die Auslandsrechnung",
        ],
        [
            "die Sachbearbeitung",
            "die behandelnde Praxis",
            "der Medizinische Dienst",
            "die versicherte Person",
            "die Leistungsabteilung",
        ],
    ),
    "bau": (
        "Bauamt der Stadt Lindenau",
        [
            "den Bauantrag",
            "die Abstandsflächenberechnung",
            "den Lageplan",
            "die Abbruchanzeige",
            "den Nachbarwiderspruch",
            "die Nutzungsänderung",
            "den Standsicherheitsnachweis",
            "die Stellplatzsatzung",
        ],
        [
            "die Prüfstatikerin",
            "das Stadtplanungsamt",
            "der Antragsteller",
            "die untere Denkmalbehörde",
            "der zuständige Referent",
        ],
    ),
    "stadtwerke": (
        "Stadtwerke Hohenfels",
        [
            "die Zählerablesung",
            "den Tarifwechsel",
            "die Abschlagszahlung",
            "den Hausanschluss",
            "die Endabrechnung",
            "den Umzugsantrag",
            "die Einspeisevergütung",
            "den Ratenplan",
        ],
        [
            "der Netzbetreiber",
            "die Kundenbetreuung",
            "der Messstellenbetreiber",
            "die Kontoinhaberin",
            "das Forderungsmanagement",
        ],
    ),
}
DE_C = [
    "die Unterlagen unvollständig sind",
    "bereits ein Widerspruch vorliegt",
    "die Frist abgelaufen ist",
    "die Person sich nicht ausweisen kann",
    "der Betrag ungewöhnlich hoch ist",
    "eine zweite Stelle beteiligt ist",
    "der Vorgang schon einmal geschlossen wurde",
    "die Angaben einander widersprechen",
    "ausdrücklich um einen Rückruf gebeten wird",
    "eine automatische Prüfung fehlgeschlagen ist",
]
DE_V = [
    "prüfen",
    "weiterleiten",
    "ablehnen",
    "erläutern",
    "dokumentieren",
    "berichtigen",
    "zurückstellen",
    "bestätigen",
]
DE_T = [
    "Wenn {c}, muss {a} {o} zuerst {v} und das Ergebnis schriftlich festhalten.",
    "Niemand darf {o} ohne Rücksprache {v}, auch dann nicht, wenn {c}.",
    "Weise freundlich darauf hin, dass {a} {o} {v} kann, sobald klar ist, ob {c}.",
    "Falls {c}, nenne keinen Termin und biete an, {o} gemeinsam durchzugehen.",
    "Für {o} gilt: {a} entscheidet, du bereitest nur vor.",
    "Verweise nicht auf interne Notizen über {o}, sondern fasse sie in eigenen Worten zusammen.",
    "Sobald {a} bereit ist, {o} zu {v}, kündige den nächsten Schritt in einem kurzen Satz an.",
    "Vermenge {o} nicht mit anderen Anliegen, besonders wenn {c}.",
    "Wer nach einer Auskunft über {o} fragt, soll erfahren, dass {a} zuständig ist und warum.",
]
DE_Q = [
    "Wie kann ich {o} einreichen, wenn {c}?",
    "Warum dauert es so lange, {o} zu {v}?",
    "Mir wurde gesagt, {a} könne {o} {v}. Stimmt das?",
    "Was passiert, wenn {c}?",
    "Wer hilft mir dabei, {o} zu {v}?",
    "Ich verstehe das Schreiben über {o} nicht, können Sie es erklären?",
    "Brauche ich für {o} noch weitere Unterlagen?",
    "Darf {a} einfach {o} {v}, obwohl {c}?",
    "Können wir {o} bitte noch einmal durchgehen?",
]
ES = {
    "turismo": (
        "Viajes Miralcampo",
        [
            "la reserva del hotel",
            "el billete combinado",
            "la visita guiada",
            "el traslado al aeropuerto",
            "el seguro de cancelación",
            "la excursión en barco",
            "el bono de descuento",
            "la habitación familiar",
        ],
        [
            "el guía local",
            "la recepción",
            "el responsable del grupo",
            "la agencia colaboradora",
            "el viajero principal",
        ],
    ),
    "seguros": (
        "Seguros La Encina",
        [
            "el parte de accidente",
            "la póliza del hogar",
            "el informe del perito",
            "la franquicia",
            "el recibo devuelto",
            "la asistencia en carretera",
            "el presupuesto de reparación",
            "la reclamación del tercero",
        ],
        ["el perito", "la persona asegurada", "el tramitador", "el taller concertado", "el departamento jurídico"],
    ),
}
ES_C = [
    "falta algún documento",
    "ya existe una reclamación abierta",
    "el plazo ha vencido",
    "no se puede comprobar la identidad",
    "el importe es muy elevado",
    "interviene otra empresa",
    "el caso se cerró sin respuesta",
    "los datos no coinciden",
    "se pide hablar con un responsable",
    "ha fallado una comprobación automática",
]
ES_V = ["revisar", "confirmar", "anular", "corregir", "aplazar", "explicar", "tramitar", "remitir"]
ES_T = [
    "Cuando {c}, {a} debe {v} {o} antes de dar cualquier respuesta.",
    "Nunca se puede {v} {o} sin autorización, aunque {c}.",
    "Si {c}, explica con calma que {a} tiene que {v} {o} y ofrece una alternativa.",
    "En lo relativo a {o}, decide {a}; tú solamente preparas la documentación.",
    "No cites las notas internas sobre {o}: resúmelas con palabras sencillas.",
    "Pregunta primero si {c} y solo después comenta {o} con {a}.",
    "Quien pregunte por {o} debe saber que {a} puede {v} el expediente completo.",
    "Evita mezclar {o} con otros asuntos, sobre todo si {c}.",
    "En cuanto {a} acepte {v} {o}, anuncia el paso siguiente en una frase corta.",
]
ES_Q = [
    "¿Cómo puedo {v} {o} si {c}?",
    "¿Por qué tarda tanto {a} en {v} {o}?",
    "Me dijeron que {a} podía {v} {o}, ¿es cierto?",
    "¿Qué ocurre con {o} cuando {c}?",
    "¿Quién me ayuda a {v} {o}?",
    "No entiendo la carta sobre {o}, ¿me la explica?",
    "¿Hace falta algo más para {v} {o}?",
    "Necesito {v} {o} cuanto antes, ¿es posible?",
]
ZH = {
    "dianshang": (
        "青禾商城",
        [
            "退货申请",
            "优惠券",
            "延迟发货的订单",
            "破损包裹",
            "会员积分",
            "电子发票",
            "换货请求",
            "预售商品",
            "价格保护",
            "运费险",
        ],
        ["仓库主管", "客服专员", "快递员", "买家本人", "售后小组"],
    ),
    "yinhang": (
        "江岸银行",
        [
            "转账异议",
            "信用卡补办",
            "贷款合同",
            "账户冻结",
            "自动扣款",
            "地址变更",
            "定期存款",
            "境外消费",
            "限额调整",
            "收入证明",
        ],
        ["柜员", "风控部门", "账户持有人", "合规专员", "信用卡中心"],
    ),
}
ZH_C = [
    "材料不齐全",
    "已经有未结的投诉",
    "期限已经过去",
    "无法确认对方身份",
    "金额明显偏高",
    "涉及第三方公司",
    "此前的记录互相矛盾",
    "对方要求与主管通话",
    "系统自动检查没有通过",
    "同样的问题刚刚回答过",
]
ZH_V = ["核对", "撤销", "上报", "记录", "更正", "说明", "延期", "转交"]
ZH_T = [
    "如果{c},{a}必须先{v}{o},然后再答复用户。",
    "即使{c},也不得在没有授权的情况下{v}{o}。",
    "遇到与{o}有关的问题时,由{a}决定,你只负责准备材料。",
    "不要直接引用关于{o}的内部备注,应当用简单的话概括。",
    "请先确认是否{c},再和{a}讨论{o}。",
    "当{a}同意{v}{o}之后,用一句话说明下一步。",
    "不要把{o}和其他事情混在一起处理,尤其是在{c}的时候。",
    "凡是询问{o}的用户,都应当知道{a}可以{v}整个流程。",
    "若{c},请耐心解释为什么{o}需要更多时间,并提供其他办法。",
]
ZH_Q = [
    "如果{c},我该怎么{v}{o}?",
    "为什么{a}还没有{v}我的{o}?",
    "有人说{a}可以{v}{o},是真的吗?",
    "请问{o}现在进行到哪一步了?",
    "我看不懂关于{o}的通知,能解释一下吗?",
    "办理{o}还需要什么材料?",
    "要是{c},{o}会怎么样?",
    "谁能帮我{v}{o}?",
]
LANG = {}
for k in EN:
    LANG[k] = "en"
for k in DE:
    LANG[k] = "de"
for k in ES:
    LANG[k] = "es"
for k in ZH:
    LANG[k] = "zh"


def _b(d):
    lang = LANG[d]
    return {
        "en": (EN, EN_C, EN_V, EN_T, EN_Q),
        "de": (DE, DE_C, DE_V, DE_T, DE_Q),
        "es": (ES, ES_C, ES_V, ES_T, ES_Q),
        "zh": (ZH, ZH_C, ZH_V, ZH_T, ZH_Q),
    }[lang]


def company(d):
    return _b(d)[0][d][0]


def objects(d):
    return _b(d)[0][d][1]


def fill(r, d, t):
    dom, C, V, _, _ = _b(d)
    n, objects_, A = dom[d]
    o, o2 = r.sample(objects_, 2)
    s = t.format(
        c=r.choice(C),
        v=r.choice(V),
        o=o,
        o2=o2,
        a=r.choice(A),
        w=r.choice(EN_W),
        alt=r.choice(EN_ALT),
        j=r.choice(EN_ADJ),
    )
    s = s.replace("A unusual", "An unusual").replace("a unusual", "an unusual")
    for x in "uio":
        s = s.replace(f" a {x}r", f" an {x}r")
    for w in ("ordinary", "urgent", "incomplete", "international"):
        s = s.replace(f"a {w}", f"an {w}").replace(f"A {w}", f"An {w}")
    return s[0].upper() + s[1:]


def sent(r, d, seen=None):
    T = _b(d)[3]
    for _ in range(50):
        s = fill(r, d, r.choice(T))
        if seen is None or s not in seen:
            break
    if seen is not None:
        seen.add(s)
    return s


def question(r, d, seen=None):
    T = _b(d)[4]
    for _ in range(80):
        s = fill(r, d, r.choice(T))
        if seen is None or s not in seen:
            break
    if seen is not None:
        seen.add(s)
    return s


def para(r, d, n, seen=None):
    return ("" if LANG[d] == "zh" else " ").join(sent(r, d, seen) for _ in range(n))


OPEN = {
    "en": [
        "Thanks for asking.",
        "Let me go through this step by step.",
        "Good question.",
        "I looked at what you wrote.",
        "Here is what applies in your case.",
        "That depends on two things.",
        "Happy to help with that.",
        "Short answer first.",
        "This comes up often.",
    ],
    "de": [
        "Vielen Dank für Ihre Nachricht.",
        "Gern erkläre ich das.",
        "Das hängt von zwei Punkten ab.",
        "Hier ist, was in Ihrem Fall gilt.",
        "Gehen wir es der Reihe nach durch.",
        "Das lässt sich klären.",
    ],
    "es": [
        "Gracias por escribirnos.",
        "Se lo explico por partes.",
        "Depende de dos cosas.",
        "Esto es lo que se aplica en su caso.",
        "Vamos paso a paso.",
        "Con mucho gusto le ayudo.",
    ],
    "zh": [
        "感谢您的留言。",
        "我来一步一步说明。",
        "这要看两点。",
        "您的情况适用以下规定。",
        "很高兴为您解答。",
        "先说结论。",
    ],
}


def answer(r, d, n=5):
    sep = "" if LANG[d] == "zh" else " "
    return r.choice(OPEN[LANG[d]]) + sep + para(r, d, n)


INTRO = {
    "en": "You are the assistant of {c}. You answer questions politely, precisely and without guessing.",
    "de": "Du bist die digitale Assistenz von {c}. Du antwortest freundlich, genau und ohne zu raten.",
    "es": "Eres la asistente virtual de {c}. Respondes con amabilidad, con precisión y sin inventar nada.",
    "zh": "你是{c}的智能助手。请礼貌、准确地回答问题,不要猜测。",
}
HEAD = {
    "en": [
        "Role",
        "Conduct",
        "Identity checks",
        "Refunds and goodwill",
        "Escalation",
        "Tone",
        "Sensitive cases",
        "Closing a case",
    ],
    "de": ["Aufgabe", "Verhalten", "Prüfung der Identität", "Kulanz", "Weitergabe", "Ton", "Heikle Fälle", "Abschluss"],
    "es": [
        "Función",
        "Conducta",
        "Identificación",
        "Compensaciones",
        "Derivación",
        "Tono",
        "Casos delicados",
        "Cierre",
    ],
    "zh": ["职责", "行为规范", "身份核验", "补偿原则", "上报流程", "语气", "敏感情况", "结案"],
}
XH = ["role", "conduct", "identity", "goodwill", "escalation", "tone", "sensitive_cases", "closing"]


def system_parts(r, d, style="md", secs=6, n=8):
    """The list of the paragraphs of a system prompt; join with blank lines."""
    seen = set()
    out = [INTRO[LANG[d]].format(c=company(d))]
    if LANG[d] == "zh":
        n = int(n * 1.5)
    for i in range(secs):
        h = HEAD[LANG[d]][i % 8]
        body = [sent(r, d, seen) for _ in range(n)]
        if style == "md":
            out.append(f"## {h}\n" + "\n".join("- " + b for b in body))
        elif style == "xml":
            out.append(f"<{XH[i % 8]}>\n" + "\n".join(body) + f"\n</{XH[i % 8]}>")
        elif style == "num":
            out.append(f"{i + 1}. {h}\n" + "\n".join(f"{i + 1}.{k + 1} {b}" for k, b in enumerate(body)))
        else:
            out.append(("" if LANG[d] == "zh" else " ").join(body))
    return out


def doc(r, d, k, n=12):
    o = objects(d)[k % len(objects(d))]
    titles = {
        "en": ["Handbook", "Guideline", "Circular", "Field note", "Fact sheet"],
        "de": ["Handbuch", "Merkblatt", "Rundschreiben", "Leitfaden"],
        "es": ["Manual", "Guía", "Circular", "Ficha"],
        "zh": ["手册", "指引", "通知", "说明"],
    }[LANG[d]]
    t = titles[k % len(titles)]
    title = f"{t}{'' if LANG[d] == 'zh' else ': '}{o}" + ("" if k < 10 else f" ({k})")
    return title, para(r, d, n * (2 if LANG[d] == "zh" else 1), set())


TOOLS = [
    (
        "search_tickets",
        "Full-text search over support tickets",
        [
            ("query", "string", "words to look for"),
            ("status", "string", "open, waiting or closed"),
            ("limit", "integer", "how many at most"),
        ],
    ),
    (
        "get_customer",
        "Returns the master data of one customer",
        [("customer", "string", "name or number"), ("with_history", "boolean", "also return past contacts")],
    ),
    (
        "create_refund",
        "Starts a refund and returns its state",
        [
            ("order", "string", "the order concerned"),
            ("amount", "number", "in the currency of the order"),
            ("reason", "string", "one sentence"),
        ],
    ),
    (
        "list_invoices",
        "Lists the invoices of an account",
        [("account", "string", "account"), ("unpaid_only", "boolean", "leave out what is paid")],
    ),
    (
        "send_email",
        "Sends an e-mail from the shared mailbox",
        [("to", "string", "address"), ("subject", "string", "subject line"), ("body", "string", "plain text")],
    ),
    (
        "read_file",
        "Reads a file of the workspace",
        [("path", "string", "relative path"), ("start", "integer", "first line"), ("end", "integer", "last line")],
    ),
    (
        "write_file",
        "Writes a file of the workspace, replacing it",
        [("path", "string", "relative path"), ("content", "string", "the whole new content")],
    ),
    (
        "run_tests",
        "Runs the tests that match a pattern",
        [("pattern", "string", "glob over test names"), ("verbose", "boolean", "print every test")],
    ),
    (
        "grep_code",
        "Searches the repository for a regular expression",
        [("regex", "string", "the expression"), ("glob", "string", "restrict to these files")],
    ),
    (
        "query_database",
        "Runs a read-only SQL query against the warehouse",
        [("sql", "string", "one SELECT statement"), ("max_rows", "integer", "cut off after so many")],
    ),
    (
        "book_meeting",
        "Books a meeting room and invites people",
        [("room", "string", "room name"), ("people", "array", "addresses"), ("topic", "string", "what it is about")],
    ),
    (
        "weather_forecast",
        "Forecast for a place",
        [("place", "string", "town"), ("days", "integer", "how many days ahead")],
    ),
    ("translate_text", "Translates a text", [("text", "string", "source text"), ("target", "string", "language code")]),
    (
        "web_search",
        "Searches the public web",
        [("query", "string", "search words"), ("site", "string", "only this site")],
    ),
    (
        "fetch_page",
        "Fetches a page and returns it as Markdown",
        [("url", "string", "address"), ("max_chars", "integer", "cut off after so many")],
    ),
    (
        "add_calendar_note",
        "Adds a note to the team calendar",
        [("title", "string", "short title"), ("note", "string", "text")],
    ),
]


def tool(r, d, i, n=4):
    name, desc, ps = TOOLS[i]
    seen = set()
    en = d if LANG[d] == "en" else "shop"
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": desc + ". " + para(r, en, n, seen),
            "parameters": {
                "type": "object",
                "properties": {
                    p: {
                        "type": t,
                        "description": x + ". " + sent(r, en, seen),
                        **({"items": {"type": "string"}} if t == "array" else {}),
                    }
                    for p, t, x in ps
                },
                "required": [ps[0][0]],
            },
        },
    }


def toolset(r, d, ids, n=3):
    return [tool(r, d, i, n) for i in ids]


def args_for(r, t):
    f = t["function"]
    out = {}
    for p, s in f["parameters"]["properties"].items():
        out[p] = {
            "string": r.choice(
                ["harbour", "invoice copy", "late parcel", "north wing", "src/main", "second floor", "router", "amber"]
            )
            + " "
            + r.choice(["one", "two", "three", "four", "five"]),
            "integer": r.randint(2, 60),
            "number": r.randint(5, 300),
            "boolean": r.random() < 0.5,
            "array": ["ana", "bo"],
        }[s["type"]]
    return out
