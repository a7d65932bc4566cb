// The stream: one snapshot a second, read with fetch because an EventSource sends no key. When it
// ends it is asked for again; when it is silent the page says so, and for how long.

const KEY = "headstart-api-key";
/** Points of history that are kept: a quarter of an hour. */
const POINTS_MAX = 900;
/** Silence after which figures count as old, and after which the stream is asked for again, ms. */
const STALE_MS = 3500;
const GIVE_UP_MS = 10_000;
const RETRY_MS = [500, 1000, 2000, 4000, 8000];

const state = {
  points: [], columns: {}, key: stored(sessionStorage, KEY), last: 0, shown: null, tries: 0,
  isPaused: false, isAsking: false, abort: null, trouble: "", turn: 0,
};

function stored(storage, name) {
  try { return storage.getItem(name); } catch { return null; }
}

function store(storage, name, value) {
  try {
    if (value === null) storage.removeItem(name);
    else storage.setItem(name, value);
  } catch { /* Without storage it is forgotten with the page. */ }
}

function show(snapshot) {
  const columns = Object.fromEntries(snapshot.history.columns.map((name, at) => [name, at]));
  const last = state.points.at(-1)?.[0] ?? 0;
  const isNew = snapshot.history.is_whole || state.startedAt !== snapshot.server.started_unix_s;
  const known = isNew ? [] : state.points;
  const fresh = isNew ? snapshot.history.points : snapshot.history.points.filter(([at]) => at > last);
  Object.assign(state, {
    columns, startedAt: snapshot.server.started_unix_s,
    points: [...known, ...fresh].slice(-POINTS_MAX), last: performance.now(), shown: snapshot, tries: 0,
  });
  addTtft(snapshot.history, isNew);
  if (!state.isPaused) draw(snapshot);
  tellStatus();
}

function draw(snapshot) {
  drawHead(snapshot);
  drawFigures(snapshot);
  drawChart();
  drawTtft();
  drawLoss(snapshot);
  drawReplicas(snapshot);
  drawTree(snapshot);
  drawRequests(snapshot);
  drawGhosts(snapshot);
  drawPredictions(snapshot);
  drawSavings(snapshot);
}

/** Listens until another listener starts, the page is hidden, or the key is wrong. */
async function listen() {
  const turn = (state.turn += 1);
  const isOver = () => turn !== state.turn || document.hidden || state.isAsking;
  state.abort?.abort();
  while (!isOver()) {
    try {
      await readOnce();
      state.trouble = "the server ended the stream";
    } catch (error) {
      if (error.name !== "AbortError") state.trouble = error.told ?? "the server cannot be reached";
    }
    if (isOver()) return;
    tellStatus();
    const pause = RETRY_MS[Math.min(state.tries, RETRY_MS.length - 1)];
    state.tries += 1;
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

async function readOnce() {
  state.abort = new AbortController();
  const headers = state.key ? { Authorization: `Bearer ${state.key}` } : {};
  const response = await fetch("dashboard/events", { headers, signal: state.abort.signal, cache: "no-store" });
  if (response.status === 401) return askForKey();
  if (!response.ok) {
    const told = await response.json().then((body) => body.error?.message, () => null);
    throw Object.assign(new Error("refused"), { told: told ?? `the server answers ${response.status}` });
  }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    // Of several that came together only the last is of interest, and a whole history.
    for (const [at, event] of events.entries()) {
      if (!event.startsWith("data: ")) continue;
      const snapshot = JSON.parse(event.slice(6));
      if (at === events.length - 1 || snapshot.history.is_whole) show(snapshot);
    }
  }
}

function askForKey() {
  state.isAsking = true;
  setText($("ask-error"), state.key ? "The server does not take this key. Is it the file's first line?" : "");
  state.key = null;
  store(sessionStorage, KEY, null);
  for (const part of $("main").children) setHidden(part, part.id !== "ask");
  $("key").value = "";
  $("key").focus();
  tellStatus();
}

function onKey(event) {
  event.preventDefault();
  state.key = $("key").value.trim();
  store(sessionStorage, KEY, state.key);
  state.isAsking = false;
  for (const part of $("main").children) setHidden(part, ["ask", "down", "empty", "notices"].includes(part.id));
  tellStatus();
  listen();
}

function tellStatus() {
  const silent = performance.now() - state.last;
  const [name, text] = state.isAsking ? ["wait", "Key needed"]
    : !state.last ? (state.trouble ? ["lost", `Trying again: ${state.trouble}`] : ["wait", "Connecting"])
      : silent > STALE_MS ? ["stale", `Stale: ${ago(silent / 1000)} old${state.trouble ? `, ${state.trouble}` : ""}`]
        : state.isPaused ? ["wait", "Paused"] : ["live", "Live"];
  setAttr($("status"), "data-state", name);
  setText($("status-text"), text);
  // Said aloud once, not each second.
  setAttr($("status"), "aria-live", name === "stale" ? "off" : "polite");
  document.documentElement.classList.toggle("stale", name === "stale" || name === "lost");
  if (silent > GIVE_UP_MS && state.last && state.abort && !state.isAsking) state.abort.abort();
}

function startButtons() {
  $("pause").addEventListener("click", () => {
    state.isPaused = !state.isPaused;
    setText($("pause"), state.isPaused ? "Resume" : "Pause");
    if (!state.isPaused && state.shown) draw(state.shown);
    tellStatus();
  });
  copies($("copy"), $("curl"));
  $("ask-form").addEventListener("submit", onKey);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) state.abort?.abort();
    else listen();
  });
}

startTheme();
startButtons();
startChart();
startTtft();
startTree();
startRequests();
setInterval(tellStatus, 1000);
listen();
