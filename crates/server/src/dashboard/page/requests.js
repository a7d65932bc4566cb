// The last requests, and one of them in detail: what `headstart why` tells of it too. The details
// stay until they are closed, however many requests come meanwhile.

/** Rows that are shown. */
const ROWS_SHOWN = 12;
/** Ids that `headstart why` takes, and that a shell takes as they are. */
const PLAIN_ID = /^[A-Za-z0-9._:-]+$/;

const chosen = { id: null, record: null, trouble: "", turn: 0 };

function startRequests() {
  $("requests").addEventListener("click", (event) => {
    const button = event.target.closest("button.id");
    if (button) openRequest(button.dataset.id);
  });
  $("request-close").addEventListener("click", closeRequest);
  $("request").addEventListener("keydown", (event) => {
    if (event.key === "Escape") closeRequest();
  });
  copies($("request-copy"), $("request-why"));
}

/** Answers, and requests that ended in an error, the newest first. */
function requestRows({ requests, errors }) {
  const failed = errors.latest.map((it) => ({ ...it, isFailed: true }));
  return [...requests, ...failed].sort((a, b) => a.age_s - b.age_s).slice(0, ROWS_SHOWN);
}

function drawRequests(snapshot) {
  const { totals, lately } = snapshot;
  const rows = requestRows(snapshot);
  setText($("requests-none"), rows.length ? "" : totals.requests === 0
    ? "Each request shows here with its routing decision and its outcome." : "No decisions to show yet.");
  setText($("requests-note"), rows.length && lately.requests_per_s > rows.length
    ? `the last ${rows.length} of about ${Math.round(lately.requests_per_s)} a second` : "");
  slots($("requests"), rows, createRequest, (item, row) => {
    const [age, part, words, first] = item.children;
    setText(age, since(row.age_s));
    drawNames(words.firstChild, row);
    item.classList.toggle("failed", row.isFailed === true);
    item.classList.toggle("chosen", !row.isFailed && row.id === chosen.id);
    if (row.isFailed) drawFailed(part, words, first, row);
    else drawAnswered(part, words, first, row, snapshot.server);
  });
}

function createRequest() {
  const part = make("span", "part", make("i"));
  part.setAttribute("aria-hidden", "true");
  const id = make("button", "id");
  id.type = "button";
  const names = make("div", "names-of", id, make("span", "id"), make("span"), make("span"), make("span"));
  const words = make("div", "words", names, make("span"), make("div", "why"));
  const first = make("div", "first", make("div"), make("div", "why"));
  return make("li", "", make("span", "age"), part, words, first);
}

/** Id, model, tenant and status of a row. */
function drawNames(names, row) {
  const [open, id, model, tenant, status] = names.children;
  const canOpen = !row.isFailed && row.id !== "";
  setHidden(open, !canOpen);
  setHidden(id, canOpen);
  setText(open, canOpen ? shortened(row.id) : "");
  setAttr(open, "title", row.id ?? null);
  setAttr(open, "aria-label", canOpen ? `Details of request ${row.id}` : null);
  open.dataset.id = row.id ?? "";
  setText(id, canOpen ? "" : row.request_id || "no id");
  setText(model, row.model ?? "");
  setText(tenant, row.isFailed ? "" : row.tenant ? `tenant ${row.tenant}` : "no tenant");
  setText(status, `status ${row.status}`);
}

/** The end of an id is what tells it from others. */
const shortened = (id) => (id.length <= 30 ? id : `${id.slice(0, 12)}…${id.slice(-14)}`);

function drawFailed(part, words, first, row) {
  setStyle(part.firstChild, "width", "0.0%");
  setText(words.children[1], `${row.route} answered ${row.status}${row.code ? `, ${row.code}` : ""}`);
  setText(words.lastChild, "");
  setText(first.firstChild, "–");
  setText(first.lastChild, "");
}

function drawAnswered(part, words, first, row, server) {
  const cached = row.cached_tokens ?? row.predicted_tokens ?? 0;
  setStyle(part.firstChild, "width", `${((cached / Math.max(1, row.prompt_tokens)) * 100).toFixed(1)}%`);
  setText(words.children[1], row.decision);
  setText(words.lastChild, row.outcome ?? "");
  const { ttft_ms, predicted_ms } = row;
  setText(first.firstChild, ttft_ms === null ? "…" : `TTFT ${took(ttft_ms)}`);
  setText(first.lastChild, predicted_ms === null || !server.has_cost_model ? "" : `predicted ${took(predicted_ms)}`);
}

async function openRequest(id) {
  const turn = (chosen.turn += 1);
  Object.assign(chosen, { id, record: null, trouble: "" });
  drawRequest();
  setHidden($("request"), false);
  $("request").focus();
  try {
    const headers = state.key ? { Authorization: `Bearer ${state.key}` } : {};
    const response = await fetch(`debug/requests/${encodeURIComponent(id)}`, { headers, cache: "no-store" });
    const body = await response.json();
    if (turn !== chosen.turn) return;
    if (response.ok) chosen.record = body;
    else chosen.trouble = body.error?.message ?? `The server answers ${response.status}.`;
  } catch {
    if (turn === chosen.turn) chosen.trouble = "The server cannot be reached.";
  }
  drawRequest();
}

function closeRequest() {
  const { id } = chosen;
  Object.assign(chosen, { id: null, record: null, turn: chosen.turn + 1 });
  setHidden($("request"), true);
  const row = [...document.querySelectorAll("#requests button.id")].find((it) => it.dataset.id === id);
  (row ?? document.querySelector("#requests button.id:not([hidden])"))?.focus();
}

function drawRequest() {
  const { id, record, trouble } = chosen;
  setText($("request-id"), id ?? "");
  setText($("request-lead"), record ? recordWords(record) : trouble || "Asking the server …");
  drawPairs($("request-facts"), record ? factsOf(record) : []);
  drawPairs($("request-buckets"), record ? bucketsOf(record) : []);
  const because = record ? becauseOf(record) : [];
  slots($("request-because"), because, () => make("p"), (line, text) => setText(line, text));
  const candidates = record?.candidates ?? [];
  setHidden($("request-candidates-title"), candidates.length === 0);
  drawPairs($("request-candidates"), candidates.map((it) => candidateWords(it, record)));
  const isPlain = PLAIN_ID.test(id ?? "");
  setHidden($("request-command"), !isPlain);
  if (isPlain) {
    const key = state.key ? " --api-key-file FILE" : "";
    setText($("request-why"), `headstart why ${id} --url ${location.origin}${key}`);
  }
}

function drawPairs(list, rows) {
  slots(list, rows, () => make("div", "", make("dt"), make("dd")), (row, [name, value]) => {
    setText(row.firstChild, name);
    setText(row.lastChild, value);
  });
}

function recordWords({ cached_tokens, prompt_tokens, replica }) {
  const all = `${whole.format(prompt_tokens)} prompt tokens`;
  return cached_tokens === null ? `${all} on replica ${replica}; the engine does not say how many were cached.`
    : `${whole.format(cached_tokens)} of ${all} cached on replica ${replica}.`;
}

function factsOf(record) {
  const facts = [["Model", record.model], ["Tenant", record.tenant ?? "none"], ["Status", "200"]];
  if (record.request_id) facts.push(["x-request-id", record.request_id]);
  if (record.ttft_s !== null) facts.push(["TTFT", took(record.ttft_s * 1000)]);
  if (record.predicted_cached_tokens !== null) {
    facts.push(["Predicted cached tokens", whole.format(record.predicted_cached_tokens)]);
  }
  return facts;
}

function bucketsOf({ buckets }) {
  const meaning = new Map(state.shown?.waterfall?.buckets.map((it) => [it.bucket, it.meaning]));
  return Object.entries(buckets ?? {}).filter(([, tokens]) => tokens > 0).map(([name, tokens]) => {
    const words = meaning.get(name) ?? name;
    return [words[0].toUpperCase() + words.slice(1), `${whole.format(tokens)} tokens`];
  });
}

/** Why tokens were recomputed, and what to do about it. */
function becauseOf(record) {
  const lines = [];
  if (record.evicted) lines.push(`Evicted ${ago(record.evicted.age_s)} after the last use.`);
  if (record.neighbour) lines.push(`Closest earlier request: ${record.neighbour.request}`);
  if (record.title) {
    const known = state.shown?.waterfall?.causes.find((it) => it.cause === record.cause);
    const flag = known?.normalize ? `, or start with --normalize ${known.normalize}` : "";
    lines.push(`Cause: ${record.title}.`, `Fix: ${record.fix}${flag}.`);
  } else if (record.buckets?.diverged > 0) {
    lines.push("No cause found. headstart why on a request log shows where prompts differ.");
  }
  return lines;
}

function candidateWords(it, { replica }) {
  const name = it.replica === replica ? `Replica ${it.replica}, chosen` : `Replica ${it.replica}`;
  const time = it.predicted_ttft_s === null ? "unknown" : took(it.predicted_ttft_s * 1000);
  const rough = state.shown?.server.has_cost_model ? "" : " (not calibrated)";
  return [name, `${whole.format(it.overlap_tokens)} cached, predicted TTFT ${time}${rough}`];
}
