// Everything but the chart and the tree: one function a panel, each from the same snapshot.

/** Models that the server named last: while all engines are down it knows none. */
let models = [];

function drawHead(snapshot) {
  const { server } = snapshot;
  if (server.models.length) models = server.models;
  const others = models.length > 2 ? ` and ${models.length - 2} more` : "";
  const named = models.length ? `${models.slice(0, 2).join(", ")}${others} – ` : "";
  const title = `Headstart – ${named}${location.host}`;
  if (document.title !== title) document.title = title;
  setText($("served"), `${models.join(", ") || "no model"} · ${server.strategy}`);
  const build = server.build ? ` (${server.build})` : "";
  setText($("foot"), `headstart ${server.version}${build} · up ${ago(server.uptime_s)} · `
    + `${plural(snapshot.totals.requests, "request")} since the start`
    + (server.is_draining ? " · shutting down" : ""));
  const notices = server.notices ?? [];
  setHidden($("notices"), notices.length === 0);
  keyed($("notices"), notices.map((text, at) => ({ text, at })), ({ at }) => at,
    () => make("li"), (element, { text }) => setText(element, text));
  const isDown = drawDown(snapshot);
  const isIdle = snapshot.totals.requests === 0 && !isDown;
  setHidden($("empty"), !isIdle);
  if (isIdle) setText($("curl"), exampleRequest(server.models[0] ?? "MODEL"));
}

/** Whether all engines are down: nothing else on the page matters as much. */
function drawDown({ replicas }) {
  const isDown = replicas.length > 0 && replicas.every((replica) => !replica.is_healthy);
  setHidden($("down"), !isDown);
  if (!isDown) return false;
  const all = replicas.length === 1 ? "The engine is down: requests get 503 until it is up again."
    : `All ${replicas.length} engines are down: requests get 503 until one is up again.`;
  const cause = replicas.find(({ trouble }) => trouble)?.trouble;
  setText($("down"), `${all}${cause ? ` Cause: ${cause}.` : ""}`);
  return true;
}

function exampleRequest(model) {
  const body = JSON.stringify({ model, messages: [{ role: "user", content: "Tell me a story." }] });
  const key = state.key ? `  -H "Authorization: Bearer $API_KEY" \\\n` : "";
  return `curl ${location.origin}/v1/chat/completions \\\n  -H "Content-Type: application/json" \\\n`
    + `${key}  -d '${body.replaceAll("'", "'\\''")}'`;
}

function drawFigures(snapshot) {
  const { lately, totals, savings, errors } = snapshot;
  const minute = state.points.slice(-60);
  const seconds = (name) => minute.map((point) => point[state.columns[name]]);
  const found = totals.cached_tokens;
  const figures = [
    ["hit", "Hit rate, last minute", percent(lately.hit_rate), "",
      totals.prompt_tokens ? `${percent(found / totals.prompt_tokens)} since the start` : "nothing yet"],
    ["rps", "Requests per second", lately.requests_per_s.toFixed(1), "",
      `${compact(totals.requests)} sent to replicas since the start`,
      seconds("requests")],
    ["tps", "Prompt tokens per second", compact(lately.prompt_tokens_per_s), "",
      `${compact(totals.prompt_tokens)} since the start`,
      minute.map((point) => SOURCES.reduce((sum, [name]) => sum + point[state.columns[name]], 0))],
    ["ttft", "TTFT, median", lately.ttft_ms_p50 === null ? "–" : took(lately.ttft_ms_p50), "",
      lately.ttft_ms_p95 === null ? "last minute"
        : `last minute; 95 % within ${took(lately.ttft_ms_p95)}`],
    ["saved", "Prefill tokens saved", compact(found), "", savedWords(savings)],
    ["errors", "Errors", compact(totals.errors), "", errorWords(errors)],
  ];
  keyed($("figures"), figures, ([key]) => key, ([, , , , , line]) => {
    const cell = make("div", "", make("dt"), make("dd"), make("dd", "under"));
    if (line) {
      const svg = makeSvg("svg", "spark");
      svg.setAttribute("viewBox", "0 0 100 22");
      svg.setAttribute("preserveAspectRatio", "none");
      svg.setAttribute("aria-hidden", "true");
      svg.append(makeSvg("path"));
      const holder = make("dd");
      holder.setAttribute("aria-hidden", "true");
      holder.append(svg);
      cell.append(holder);
      cell.line = svg.firstChild;
    }
    return cell;
  }, (cell, [, name, value, , under, line]) => {
    setText(cell.children[0], name);
    setText(cell.children[1], value);
    setText(cell.children[2], under);
    if (line) spark(cell.line, line);
  });
}

/** Errors by status, those that clients met most often. */
function errorWords({ by_status }) {
  const most = by_status.toSorted((a, b) => b.count - a.count).slice(0, 4);
  return most.map(({ status, count }) => `${status}: ${compact(count)}`).join(" · ") || "none since the start";
}

function savedWords(savings) {
  const money = savings.money.map(({ currency, amount }) => `${short.format(amount)} ${currency}`);
  if (savings.prefill_s > 0) money.push(`${ago(savings.prefill_s)} of prefill`);
  return money.join(" · ") || "since the start";
}

const COLOUR_OF = {
  device: "device", host: "host", disk: "disk", remote: "remote",
  "block-floor": "minor", "in-flight": "minor", "never-seen": "unseen", diverged: "fixable",
  namespace: "fixable",
  "no-tokens": "unseen",
};

/** Buckets of tokens that no cache could have had, or of which that is not known. */
const UNAVOIDABLE = ["never-seen", "block-floor", "no-tokens"];

function drawLoss({ waterfall, totals }) {
  const has = waterfall !== null && waterfall.tokens > 0;
  setText($("loss-none"), has ? "" : totals.requests === 0
    ? "Each prompt token is in one bucket: cached in a tier, or computed for one reason."
    : waterfall === null ? "This server runs with --insight off, which attributes no tokens."
      : "No prompt has its first token yet.");
  setText($("loss-scope"), has ? `${compact(waterfall.tokens)} prompt tokens of `
    + `${plural(waterfall.requests, "request")} since the start. Like the hit rate, they are `
    + "those for which engines report cached tokens." : "");
  setText($("loss-lead"), has ? lossLead(waterfall) : "");
  let left = 0;
  const rows = (has ? waterfall.buckets : []).filter((bucket) => bucket.tokens > 0).map((bucket) => {
    const start = left;
    left += bucket.tokens / waterfall.tokens;
    return { ...bucket, start, share: bucket.tokens / waterfall.tokens };
  });
  keyed($("loss"), rows, (row) => row.bucket, (row) => {
    const bar = make("i");
    bar.style.background = `var(--${COLOUR_OF[row.bucket] ?? "cause"})`;
    const lane = make("span", "lane", bar);
    lane.setAttribute("aria-hidden", "true");
    const item = make("li", "", make("span", "what"), lane, make("span", "number"), make("span", "share"));
    item.bar = bar;
    if (row.bucket === "diverged") {
      item.causes = make("ul", "causes");
      item.causes.setAttribute("aria-label", "Why prompts differ, and what to do about it");
      item.append(item.causes);
    }
    return item;
  }, (item, row) => {
    const [what, , number, part] = item.children;
    const name = row.meaning[0].toUpperCase() + row.meaning.slice(1);
    setText(what, name);
    setAttr(what, "title", `${name} (${row.bucket})${lossCost(row, waterfall)}`);
    setText(number, compact(row.tokens));
    setText(part, percent(row.share));
    setStyle(item.bar, "left", `${(row.start * 100).toFixed(2)}%`);
    setStyle(item.bar, "width", `${(row.share * 100).toFixed(2)}%`);
    if (item.causes) drawCauses(item.causes, waterfall, row.share);
  });
}

/** Causes that are listed, the dearest first. */
const CAUSES_SHOWN = 4;

/** What makes prompts differ early. Only some prompts are compared, and they stand for all. */
function drawCauses(list, { causes, compared }, share) {
  keyed(list, causes.slice(0, CAUSES_SHOWN), (it) => it.cause, () => {
    const title = make("b");
    return make("li", "", make("span", "cause", title, make("span")), make("span", "share"));
  }, (item, it) => {
    const [words, part] = item.children;
    setText(words.firstChild, it.title[0].toUpperCase() + it.title.slice(1));
    const flag = it.normalize ? `, or start with --normalize ${it.normalize}` : "";
    setText(words.lastChild, `: ${it.fix}${flag}.`);
    setText(part, `≈ ${percent(it.share * share)}`);
    setAttr(item, "title", `${plural(it.requests, "request")} of ${whole.format(compared)} compared; `
      + `${percent(it.share)} of what these recomputed after another prefix`);
  });
}

function lossCost(row, { currency }) {
  const parts = [];
  if (row.seconds !== null) parts.push(`${took(row.seconds * 1000)} of prefill`);
  if (row.money !== null) parts.push(`${short.format(row.money)} ${currency}`);
  return parts.length ? `: ${parts.join(", ")}` : "";
}

function lossLead({ buckets, tokens, currency }) {
  const lost = buckets.filter((bucket) => !bucket.is_served && bucket.tokens > 0);
  const avoidable = lost.filter(({ bucket }) => !UNAVOIDABLE.includes(bucket));
  if (lost.length === 0) return "Every prompt token was cached.";
  if (avoidable.length === 0) return "No token was recomputed that could have been cached.";
  const worst = avoidable.reduce((a, b) => (b.tokens > a.tokens ? b : a));
  const sum = avoidable.reduce((all, bucket) => all + bucket.tokens, 0);
  const money = avoidable.reduce((all, bucket) => all + (bucket.money ?? 0), 0);
  const cost = money > 0 ? `, which cost ${short.format(money)} ${currency}` : "";
  return `${percent(sum / tokens)} of all prompt tokens were recomputed although they had been `
    + `computed before${cost}; `
    + `most of them: ${worst.meaning} (${percent(worst.tokens / tokens)}).`;
}

/** Replicas that the page shows; a line counts the others. */
const REPLICAS_SHOWN = 48;

function drawReplicas({ replicas, server }) {
  const up = replicas.filter((replica) => replica.is_healthy).length;
  setText($("replicas-note"), `${up} of ${replicas.length} up · strategy ${server.strategy}`);
  const left = replicas.length - REPLICAS_SHOWN;
  setText($("replicas-more"), left > 0 ? `${left} more: headstart index show lists all.` : "");
  keyed($("replicas"), replicas.slice(0, REPLICAS_SHOWN), (it) => it.replica, createReplica, updateReplica);
}

function gauge(name) {
  const bar = make("i");
  const item = make("div", "gauge", make("span", "soft"), make("span", "lane", bar), make("span"));
  item.firstChild.textContent = name;
  item.children[1].setAttribute("aria-hidden", "true");
  return item;
}

function createReplica(replica) {
  const title = make("p", "title", make("span"), make("span", "soft"), make("span", "health"));
  title.firstChild.textContent = `Replica ${replica.replica}`;
  const queue = make("div", "gauge", make("span", "soft"), make("span", "queue"), make("span"));
  queue.firstChild.textContent = "Requests";
  queue.children[1].setAttribute("aria-hidden", "true");
  const item = make("li", "", title, gauge("Cached"), gauge("In use"), queue, gauge("Hit rate"));
  item.tiers = make("div", "tiers");
  item.append(item.tiers);
  return item;
}

function updateReplica(item, replica) {
  const [title, cached, used, queue, hits] = item.children;
  setText(title.children[1], replica.name);
  setAttr(title.children[1], "title", replica.name);
  setText(title.children[2], health(replica));
  setAttr(title.children[2], "title", replica.trouble ?? null);
  item.classList.toggle("down", !replica.is_healthy);
  const [held, capacity] = [replica.cached_blocks, replica.capacity_blocks];
  fill(cached, held !== null && capacity ? held / capacity : null, held === null ? "unknown"
    : capacity ? `${compact(held)} of ${compact(capacity)} blocks` : plural(held, "block"));
  fill(used, replica.kv_usage, replica.kv_usage === null ? "unknown" : percent(replica.kv_usage));
  fill(hits, replica.hit_rate, replica.hit_rate === null ? "no requests yet"
    : `${percent(replica.hit_rate)} since the start`);
  const marks = [...Array(Math.min(8, replica.running)).fill(""),
    ...Array(Math.min(8, replica.waiting)).fill("waits")];
  slots(queue.children[1], marks, () => make("b"), (mark, name) => {
    if (mark.className !== name) mark.className = name;
  });
  setText(queue.children[2], `${replica.running} running, ${replica.waiting} waiting`);
  slots(item.tiers, replica.tiers, () => gauge(""), (line, tier) => {
    setText(line.firstChild, tier.tier);
    setStyle(line.children[1].firstChild, "background", `var(--${tier.tier})`);
    fill(line, tier.capacity_units ? tier.units / tier.capacity_units : null,
      `${compact(tier.units)} of ${compact(tier.capacity_units)} units`);
  });
}

function health({ is_healthy, stream }) {
  if (!is_healthy) return "■ down";
  return stream === null || stream === "complete" ? "● up" : `● up, events ${stream}`;
}

function fill(line, part, words) {
  setStyle(line.children[1].firstChild, "width", `${(Math.min(1, part ?? 0) * 100).toFixed(1)}%`);
  setText(line.children[2], words);
}

function drawGhosts({ ghosts, totals }) {
  const has = ghosts !== null && ghosts.requests > 0;
  setText($("ghosts-none"), has ? "" : totals.requests === 0
    ? "The predicted hit rate of larger caches, once there are prompts."
    : ghosts === null ? "Not estimated here. For a request log: headstart analyze FILE."
      : "Not enough prompts yet to predict the hit rate of larger caches.");
  setText($("ghosts-note"), has ? "All of these are estimates from prompts alone, which contain an answer "
    + "one turn late. Compare them with one another: even \"infinite\" may be below the measured hit rate." : "");
  setText($("ghosts-lead"), has ? ghostLead(ghosts) : "");
  const rows = has ? [{ label: "this size", hit_rate: ghosts.hit_rate }, ...ghosts.sizes] : [];
  keyed($("ghosts"), rows, (row) => row.label, () => {
    const lane = make("span", "lane", make("i"), make("i", "more"));
    lane.setAttribute("aria-hidden", "true");
    return make("li", "", make("span"), lane, make("span", "share"));
  }, (item, row) => {
    setText(item.firstChild, row.label);
    const base = Math.min(row.hit_rate, ghosts.hit_rate);
    setStyle(item.children[1].firstChild, "width", `${(base * 100).toFixed(2)}%`);
    setStyle(item.children[1].lastChild, "width", `${((row.hit_rate - base) * 100).toFixed(2)}%`);
    setText(item.lastChild, percent(row.hit_rate));
  });
}

function ghostLead({ sizes, hit_rate, seconds }) {
  const next = sizes[0];
  if (!next) return "";
  const gain = next.hit_rate - hit_rate;
  const span = seconds >= 3570 ? "the last hour" : `the last ${ago(seconds)}`;
  const scope = `Predicted with more cache, for requests of ${span}`;
  return gain < 0.0005 ? `${scope}: no higher hit rate.`
    : `${scope}: ${percent(next.hit_rate)} with ${next.label}, instead of ${percent(hit_rate)}.`;
}

function drawPredictions({ predictions, totals, server }) {
  const { cached, ttft, pairs } = predictions;
  const hasTimes = server.has_cost_model;
  setText($("predictions-none"), totals.requests === 0
    ? "Each decision predicts how many tokens the replica has cached, and the TTFT."
    : hasTimes ? (cached || ttft ? "" : "Nothing to compare yet: engines report cached tokens with their answers.")
      : "TTFT is not predicted here: the costs of this engine are not known. headstart calibrate measures "
        + "them; then start with --cost-model FILE.");
  const parts = [];
  if (cached) parts.push(cachedWords(cached));
  if (hasTimes && ttft) parts.push(`Half of the predicted TTFTs are within ${took(ttft.error_ms_p50)} of the `
    + `actual ones, 90 % within ${took(ttft.error_ms_p90)}.`);
  setText($("predictions-lead"), parts.join(" "));
  const has = hasTimes && pairs.length > 0;
  setHidden($("scatter"), !has);
  if (!has) return;
  const values = pairs.flat();
  const [low, high] = [Math.max(0.1, Math.min(...values)) / 1.2, Math.max(...values) * 1.2];
  const scale = (ms) => (Math.log(Math.max(ms, low) / low) / Math.log(high / low)) * 200;
  const dots = pairs.map(([x, y]) => `M${scale(x).toFixed(1)} ${(200 - scale(y)).toFixed(1)}h0`);
  setAttr($("scatter-points"), "d", dots.join(""));
  setAttr($("scatter-plot"), "aria-label", `Predicted against actual TTFT of `
    + `${plural(pairs.length, "request")}, ${took(low)} to ${took(high)}`);
  setText($("scatter-scale"), `${took(low)} to ${took(high)}, logarithmic; dots on the line are exact predictions`);
}

function cachedWords({ predicted_tokens, found_tokens, off_tokens }) {
  const most = Math.max(predicted_tokens, found_tokens);
  return `Predicted ${compact(predicted_tokens)} cached tokens, actual ${compact(found_tokens)} `
    + `(${percent(most === 0 ? 0 : off_tokens / most)} error).`;
}

function drawSavings({ savings, totals }) {
  const found = savings.by_source.filter(({ tokens }) => tokens > 0);
  const names = new Map(SOURCES);
  const rows = found.map(({ source, tokens }) => [`Tokens from ${names.get(source) ?? source}`, compact(tokens)]);
  if (savings.prefill_s > 0) rows.push(["Prefill time saved", ago(savings.prefill_s)]);
  for (const { currency, amount } of savings.money) rows.push([`Money, ${currency}`, short.format(amount)]);
  const has = totals.cached_tokens > 0;
  setText($("savings-lead"), has ? `${compact(totals.cached_tokens)} of ${compact(totals.prompt_tokens)} `
    + "prompt tokens were cached, and not computed." : "");
  setText($("savings-none"), has ? savings.money.length ? ""
    : "With --price-table FILE|builtin this is money, too."
    : "No cached tokens yet: prompts with the same beginning hit the cache.");
  keyed($("savings"), rows, ([name]) => name, () => make("div", "", make("dt"), make("dd")),
    (row, [name, value]) => {
      setText(row.firstChild, name);
      setText(row.lastChild, value);
    });
}
