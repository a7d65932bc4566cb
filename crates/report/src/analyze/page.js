const unbroken = (words) => words.replace(/(\d) %/g, "$1\u00a0%");
const mib = (bytes) => grouped(Math.ceil(bytes / 1048576)) + " MiB";
// As `figures::money`: below 1 there are two significant digits.
const sum = (n) => n === 0 ? "0" : n >= 0.995
  ? n.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 })
  : n.toFixed(n >= 0.0995 ? 2 : n >= 0.00995 ? 3 : 4);
const money = (n) => n === null || data.fleet.currency === null ? "–"
  : `${n > 0 && n < 1e-4 ? "<" : ""}${data.fleet.currency}${/[\p{L}\p{N}]$/u.test(data.fleet.currency) ? " " : ""}` +
    sum(n > 0 ? Math.max(n, 1e-4) : n);
const first_upper = (text) => text.charAt(0).toUpperCase() + text.slice(1);
const has_texts = data.documents !== null;
const trace = data.trace, shape = data.characterization;

// Seconds that people count in.
const MOMENTS = [1e-3, 1e-2, 1e-1, 1, 10, 60, 600, 3600, 21600, 86400, 604800];
const MORE = [...MOMENTS, 2, 5, 30, 120, 300, 1800, 7200, 43200].sort((a, b) => a - b);
const STEPS = [5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400];

// Round values between two.
function round_between(low, high, { log, show }) {
  if (!log) {
    const step = (show === time && STEPS.find((one) => (high - low) / one <= 6)) || steps_to(high - low)[1];
    const first = Math.ceil(low / step - 1e-9);
    return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, index) => (first + index) * step);
  }
  const tens = (parts) => Array.from({ length: 16 }, (_, power) => parts.map((part) => part * 10 ** power)).flat();
  const within = (marks) => marks.filter((mark) => mark >= low * 0.999 && mark <= high * 1.001);
  const choices = show === time ? [MOMENTS, MORE] : [tens([1]), tens([1, 3]), tens([1, 2, 5])];
  const enough = choices.map(within).find((marks) => marks.length >= 4) ?? within(choices.at(-1));
  return enough.length === 0 ? [low, high] : enough;
}

// Curves of {name, points: [[x, y]…]}; axes say how x and y are drawn and shown.
function plot(parent, label, series, axes) {
  const all = series.flatMap((one) => one.points);
  if (all.length < 2) {
    element(parent, "p", { class: "soft" }, "Too little to draw.");
    return;
  }
  const looks = series.map((_, index) => style(index));
  if (series.length > 1) key(parent, label + " Key", series.map((one, index) => [looks[index], one.name]));
  const xs = all.map(([x]) => axes.log ? Math.max(x, 1e-9) : x);
  const from = Math.min(...xs), to = Math.max(from + 1e-9, ...xs);
  const y = axes.top ? { from: 0, to: axes.top, marks: [0, 1, 2, 3, 4, 5].map((part) => axes.top * part / 5) }
    : from_nothing(Math.max(axes.limit ?? 0, ...all.map(([, value]) => value)));
  const x = { from, to, log: axes.log, show: axes.x, title: axes.title };
  x.marks = round_between(from, to, x);
  const scale = (value) => axes.log ? Math.log(Math.max(value, 1e-9)) : value;
  const spec = () => ({
    series: series.map((one, index) => ({ look: looks[index], points: one.points.map(([a, b]) => ({ x: a, y: b })) })),
    x, y: { ...y, show: axes.y },
    levels: axes.limit === undefined ? [] : [{ y: axes.limit, name: axes.limit_name }],
    spot: axes.mark ? { x: axes.mark[0], y: axes.mark[1], name: axes.mark_name } : null,
  });
  const near = (one, value) => one.points.reduce((a, b) =>
    Math.abs(scale(b[0]) - scale(value)) < Math.abs(scale(a[0]) - scale(value)) ? b : a);
  chart(parent, 270, label, spec, {
    xs: () => series[0].points.map(([value]) => value),
    of: (value) => series.map((one) =>
      (series.length > 1 ? one.name + " " : "") + axes.y(near(one, value)[1]) + " at " + axes.x(value)),
  });
}

// One request that lost, and what changed in it where texts are shown.
function example(card, { example }) {
  if (example === null) return;
  element(card, "p", { class: "soft" }, `For example, request ${example.request} differs from ` +
    `${example.neighbour} at token ${grouped(example.token)}.`);
  if (example.old === null || example.new === null) {
    element(card, "p", { class: "soft" }, "With --show-text, the report shows the difference.");
    return;
  }
  for (const [word, text] of [["before", example.old], ["now", example.new]]) {
    const shown = element(card, "p", { class: "was" });
    element(shown, "span", {}, word);
    element(shown, "code", {}, ((example.before ?? "") + text).trim());
  }
}
const lost = (finding) => `${many(finding.tokens, "token")} of ${many(finding.requests, "request")}, ` +
  time(finding.seconds) + (finding.money === null ? "" : `, ${money(finding.money)}`);

function opening() {
  titled("Prefix cache analysis: " + trace.files.join(", "));
  element($("facts"), "p", {}, many(trace.requests, "request") +
    (trace.span_s >= 1 ? ` over ${time(trace.span_s)}` : "") +
    `, ${many(trace.sessions, "session")} (${trace.sessions_from})` +
    (trace.users ? ` of ${many(trace.users, "user")}` : "") +
    `, ${many(trace.prompt_tokens, "prompt token")} in blocks of ${trace.block_tokens}`);
  tiles($("tiles"), data.tiles);
  const finding = data.findings.find((one) => one.cause === data.first.cause);
  element($("first"), "p", { class: "fix" }, unbroken(first_upper(data.first.fix)));
  element($("first"), "p", {}, unbroken(data.first.why));
  if (finding) example($("first"), finding);
  data.headlines.forEach((sentence) => element($("headlines"), "li", {}, unbroken(sentence)));
}

function causes() {
  if (data.causes.length === 0) {
    element($("causes"), "p", { class: "soft" }, "No prompt token was recomputed.");
    return;
  }
  bars($("causes"), "Causes of recomputation, by share of the prompt tokens", data.causes.map((cause) => ({
    name: first_upper(cause.name), share: cause.share, number: compact(cause.tokens),
    colour: cause.is_mistake ? "fixable" : "cause" })));
  element($("causes"), "p", { class: "hint" },
    "Shares of all prompt tokens. Red: mistakes in prompts. Orange: cache size, routing and others.");
}

const COLOURS = { device: "device", host: "host", disk: "disk", remote: "remote", "block-floor": "minor",
  "in-flight": "cause", "never-seen": "unseen", "new-or-changed": "unseen", diverged: "fixable", namespace: "fixable" };
function waterfall() {
  let from = 0;
  const steps = data.waterfall.filter((step) => step.tokens > 0);
  bars($("waterfall"), "Where the prompt tokens went", steps.map((step) => {
    const row = { name: first_upper(step.meaning), share: step.share, from, number: compact(step.tokens),
      colour: COLOURS[step.bucket] ?? "cause" };
    from += step.share;
    return row;
  }));
  element($("waterfall"), "p", { class: "hint" },
    "Blue is cached. Orange and red are recomputed. Grey is new" +
    (has_texts ? "" : " or behind a changed prefix") + ", or the end of a prompt, which is always computed.");
  element($("waterfall"), "p", { class: "soft" }, first_upper(data.fleet.played_on) + ".");
  if (data.fleet.money_from) element($("waterfall"), "p", { class: "soft" }, "Money: " + data.fleet.money_from + ".");
  tabulate(folded($("waterfall"), "Numbers", "Where the prompt tokens went, numbers"),
    ["bucket", "share", "tokens", "time", "money"],
    steps.map((step) => [step.meaning, percent(step.share), grouped(step.tokens),
      time(step.seconds) + (step.is_served ? " saved" : ""), money(step.money)]),
    "Where the prompt tokens went, numbers");
}

function mistakes() {
  if (data.findings.length === 0) {
    element($("mistakes"), "p", { class: "soft" }, has_texts ? "The analysis found no mistake in the prompts."
      : "This input has no prompt text, so mistakes in prompts cannot be found.");
  }
  data.findings.forEach((finding) => {
    const card = element($("mistakes"), "article", { class: "finding", "aria-label": finding.title });
    element(card, "h3", {}, first_upper(finding.title));
    element(card, "p", {}, lost(finding));
    element(card, "p", {}, "Fix: " + finding.fix + ".");
    if (finding.saving) element(card, "p", {}, finding.saving);
    example(card, finding);
  });
  if (data.findings.length > 0) element($("mistakes"), "p", { class: "hint" }, data.hidden);
}

function sizes() {
  const points = data.curve.filter((point) => point.capacity_tokens > 0);
  figure($("change"), "Hit rate by cache size", "One LRU cache that all requests share.",
    ["cache size, tokens", "token hit rate", "block hit rate"],
    points.map((point) => [grouped(point.capacity_tokens), percent(point.token_hit_rate), percent(point.block_hit_rate)]),
    (made) => plot(made, "Token hit rate by cache size.",
      [{ name: "hit rate", points: points.map((point) => [point.capacity_tokens, point.token_hit_rate]) }],
      { log: true, x: compact, y: percent, title: "cache size, tokens", limit: data.ceiling.share,
        limit_name: "unlimited: " + percent(data.ceiling.share),
        mark: data.knee === null ? null : [data.knee.capacity_tokens, data.knee.token_hit_rate], mark_name: "knee" }));
}

function routes() {
  const { precise, random, replicas } = data.routing;
  const ways = [["Prefix-aware routing", precise, "device"], ["Random routing", random, "cause"]];
  if (has_texts) {
    const reuse = { token_hit_rate: data.ceiling.share + data.documents.share,
      tokens: data.ceiling.tokens + data.documents.order_free_tokens };
    ways.unshift(["Reuse at any position (at most)", reuse, "minor"]);
  }
  ways.unshift(["One unlimited cache", { token_hit_rate: data.ceiling.share, tokens: data.ceiling.tokens }, "minor"]);
  figure($("change"), "Hit rate by routing",
    `Cached share of all prompt tokens on ${many(replicas, "replica")}, one request at a time. ` +
      `Random: mean of ${random.draws} runs. Grey: limits without routing.`,
    ["routing", "hit rate", "tokens"],
    ways.map(([name, way]) => [name, percent(way.token_hit_rate), grouped(way.tokens)]),
    (made) => bars(made, "Hit rate by routing",
      ways.map(([name, way, colour]) => ({ name, share: way.token_hit_rate, colour }))));
}

// What only inputs with times tell.
function over_time() {
  // Buckets of time, put together so that there are fifty at most.
  const together = Math.max(1, Math.ceil(shape.over_time.buckets.length / 50));
  const moments = [];
  for (let from = 0; from < shape.over_time.buckets.length; from += together) {
    const part = shape.over_time.buckets.slice(from, from + together);
    const sum = (name) => part.reduce((total, moment) => total + moment[name], 0);
    const references = sum("references");
    moments.push([(from + part.length / 2) * shape.over_time.bucket_s, {
      requests: sum("requests"),
      hit_rate: references === 0 ? 0 : sum("hits") / references,
      live_blocks: Math.max(...part.map((moment) => moment.live_blocks)),
    }]);
  }
  const busy = moments.filter(([, moment]) => moment.requests > 0);
  figure($("shape"), "Unlimited-cache hit rate over time", "Block hit rate of a cache without a limit.",
    ["time", "requests", "hit rate", "live blocks"],
    busy.map(([at, moment]) => [time(at), grouped(moment.requests), percent(moment.hit_rate), grouped(moment.live_blocks)]),
    (made) => plot(made, "Hit rate of an unlimited cache over time.",
      [{ name: "hit rate", points: busy.map(([at, moment]) => [at, moment.hit_rate]) }],
      { x: time, y: percent, title: "time since the start", top: 1 }));
  figure($("shape"), "Live blocks over time", "Blocks that were used before and are used again later.", [], [],
    (made) => plot(made, "Live blocks over time.",
      [{ name: "blocks", points: moments.map(([at, moment]) => [at, moment.live_blocks]) }],
      { x: time, y: compact, title: "time since the start" }));
}

function reuse() {
  const cdf = shape.reuse.all.cdf.filter(([seconds]) => seconds > 0);
  const fit = shape.reuse.all.fits[0];
  const shown = fit && Object.entries(fit.parameters).map(([name, value]) => name + " " + (+value).toPrecision(3)).join(", ");
  figure($("shape"), "Time to reuse of a block (CDF)",
    fit ? `Best fit: ${fit.model} (${shown}), KS distance ${percent(fit.ks)}.` : "Too few reuses for a fit.",
    ["time to reuse", "share"], cdf.map(([seconds, share]) => [time(seconds), percent(share)]),
    (made) => plot(made, "Share of blocks used again within a time.",
      [{ name: "share", points: cdf }], { log: true, x: time, y: percent, title: "time to reuse", top: 1 }));
}

const continues = (next) => next.followed / Math.max(1, next.followed + next.ended + next.open);
function next_turn() {
  const within = shape.next_turn.within.filter(([seconds]) => seconds > 0);
  const { all } = shape.next_turn;
  figure($("shape"), "Time to the next request of a session (CDF)",
    `Sessions continue after ${percent(continues(all))} of the requests` +
      (all.open > 0 ? `, or ${percent(all.p_next)} without the last ${many(all.open, "request")}.` : "."),
    ["type", "turn", "followed", "continues"], shape.next_turn.classes.map((row) =>
      [row.type, row.turn === 0 ? "unknown" : String(row.turn), grouped(row.next.followed), percent(row.next.p_next)]),
    (made) => plot(made, "Share of requests followed within a time.",
      [{ name: "followed", points: within }], { log: true, x: time, y: percent, title: "time to the next request", top: 1 }));
}

function concentration() {
  const owners = [["blocks", shape.block_skew], ["sessions", shape.session_skew], ["users", shape.user_skew]]
    .filter(([, skew]) => skew !== null && skew.lorenz.length > 1);
  figure($("shape"), "Hit concentration (Lorenz curve)",
    "Fewest hits first. The further a curve is below the diagonal, the fewer owners make the hits.",
    ["owners", "count", "Gini", "share of the top 10 %"],
    owners.map(([name, skew]) => [name, grouped(skew.owners), skew.gini.toFixed(2), percent(skew.top_10_percent)]),
    (made) => plot(made, "Share of hits over share of owners.",
      owners.map(([name, skew]) => ({ name, points: skew.lorenz })),
      { x: percent, y: percent, title: "share of owners", top: 1 }));
}

function offsets() {
  const places = shape.locality.by_offset.filter((place) => place.references > 0);
  figure($("shape"), "Hit rate by position in the prompt", "By the position of the block in its prompt.",
    ["from block", "hit rate"], places.map((place) => [grouped(place.from), percent(place.hit_rate)]),
    (made) => plot(made, "Hit rate by position.",
      [{ name: "hit rate", points: places.map((place) => [place.from + 1, place.hit_rate]) }],
      { log: true, x: compact, y: percent, title: "block number", top: 1 }));
}

function method() {
  paragraphs($("method"), [
    ...trace.remarks.map((remark) => first_upper(remark) + (/[.!?]$/.test(remark) ? "" : ".")),
    `Time: ${data.fleet.seconds_from}.`,
    "Shares are of all prompt tokens. For cached tokens, time and money are savings; for computed tokens, they are costs.",
    `Memory of the analysis: ${mib(trace.memory.kept_bytes)} of at most ${mib(trace.memory.kept_bytes_max)}` +
      (trace.memory.peak_bytes === null ? "." : `; the whole process: ${mib(trace.memory.peak_bytes)}.`),
    `Sessions ${trace.sessions_from}, turns ${trace.turns_from}, request types ${trace.types_from}.`,
  ]);
  const spreads = [["prompt tokens", shape.sizes.prompt_tokens, grouped], ["answer tokens", shape.sizes.output_tokens, grouped],
    ["requests per session", shape.sessions.requests, grouped], ["session duration", shape.sessions.length_s, time],
    ["lifetime of a reused block", shape.lifespan && shape.lifespan.reused_s, time]]
    .filter(([, spread]) => spread !== null && spread.count > 0);
  tabulate($("method"), ["", "mean", "p50", "p90", "p99", "max"],
    spreads.map(([name, spread, show]) => [name, ...["mean", "p50", "p90", "p99", "max"].map((at) => show(spread[at]))]),
    "Sizes and times");
}

opening();
causes();
waterfall();
mistakes();
sizes();
routes();
if (shape.over_time !== null) over_time();
if (shape.reuse !== null) reuse();
concentration();
offsets();
if (shape.next_turn !== null) next_turn();
method();
