// Name, figure, digits, whether the axis is logarithmic, and the published figure.
const PANELS = [
  ["TTFT p90, s", (r) => r.ttft_s.p90, 3, true, (p) => p[1]],
  ["Output tokens/s, with drain", (r) => r.output_tokens_per_s, 0, false, (p) => p[0]],
  ["Token hit rate", (r) => r.hit_rate, 3, false],
  ["TTFT mean, s", (r) => r.ttft_s.mean, 3, true],
  ["TTFT p50, s", (r) => r.ttft_s.p50, 3, true],
  ["TTFT p99, s", (r) => r.ttft_s.p99, 3, true],
  ["TTFT p90 without the queue, s", (r) => r.service_ttft_s?.p90, 3, true],
  ["TPOT p50, s", (r) => r.tpot_s.p50, 4, false],
  ["TPOT p90, s", (r) => r.tpot_s.p90, 4, false],
  ["E2E p50, s", (r) => r.e2e_s.p50, 1, false],
  ["E2E p90, s", (r) => r.e2e_s.p90, 1, false],
  ["Output tokens/s, without drain", (r) => r.output_tokens_per_s_in_window, 0, false],
  ["Goodput, requests/s within the objectives", (r) => r.goodput_per_s, 2, false],
  ["Cached prompt tokens/s", (r) => r.cached_tokens_per_s, 0, false],
  ["Waiting requests per replica", (r) => r.waiting, 1, false],
  ["Running requests per replica", (r) => r.running, 1, false],
  ["Share of the KV memory in use", (r) => r.kv_usage, 3, false],
  ["Preemptions", (r) => r.preemptions, 0, false],
  ["Requests refused or failed", (r) => r.refused + r.failed, 0, false],
];
const hidden = new Set();
const rates = [...new Set(data.strategies.flatMap((one) => one.rungs.map((rung) => rung.rate)))].sort((a, b) => a - b);

function spec([, value, digits, is_log, published]) {
  const known = (one) => one.rungs.filter((rung) => value(rung) != null);
  const rungs = data.strategies.flatMap(known);
  const values = rungs.map(value);
  if (published) for (const rung of rungs) if (rung.published) values.push(published(rung.published));
  const positive = values.filter((one) => one > 0);
  const least = positive.length > 0 ? Math.min(...positive) : 0.1;
  const most = Math.max(least, ...values);
  const point = (name, rung) => ({ x: rung.rate, y: value(rung),
    title: `${name} at ${rung.rate}/s: ${rounded(value(rung), digits)}`,
    ...(published && rung.published ? { hollow: published(rung.published),
      hollow_title: `${name} at ${rung.rate}/s, published: ${rounded(published(rung.published), digits)}` } : {}) });
  return {
    series: data.strategies.map((one, index) => ({ look: style(index), has_marks: true, index,
      points: known(one).map((rung) => point(one.name, rung)) })).filter((one) => !hidden.has(one.index)),
    x: { ...from_nothing(rates.at(-1)), show: (rate) => rounded(rate, 1), title: "requests/s" },
    y: { ...(is_log ? decades(least, most) : from_nothing(most)), show: (one) => rounded(one, 4) },
  };
}

// What is not known, such as when a measured replica began, is not drawn.
const is_known = ([, value]) => data.strategies.some((one) => one.rungs.some((rung) => value(rung) != null));
const name_of = ([name, , , is_log, published]) => name + (is_log ? ", logarithmic" : "") +
  (published && data.has_published ? " (hollow: published)" : "");

function draw(parent, panel, height) {
  const [name, value, digits] = panel;
  return chart(parent, height, name + " by requests/s.", () => spec(panel), {
    xs: () => rates,
    of: (rate) => [`${rate} requests/s`, ...data.strategies.filter((_, index) => !hidden.has(index)).flatMap((one) =>
      one.rungs.filter((rung) => rung.rate === rate).map((rung) => `${one.name} ${rounded(value(rung), digits)}`))],
  });
}

titled(data.title);
data.verdict.forEach((sentence) => element($("verdict"), "p", { class: "verdict" }, sentence));
const [lead, ...others] = PANELS.filter(is_known);
$("h-main").textContent = name_of(lead);
const redraws = [draw($("main"), lead, 340)];
others.forEach((panel) => figure($("panels"), name_of(panel), "", [], [], (made) =>
  redraws.push(draw(made, panel, 260))));
toggles($("legend"), data.strategies.map((one) => one.name), "Strategies shown", hidden,
  () => redraws.forEach((redraw) => redraw()));
tabulate($("values"), ["strategy", "requests/s", ...PANELS.map(([name]) => name)],
  data.strategies.flatMap((one) => one.rungs.map((rung) => [one.name, String(rung.rate),
    ...PANELS.map(([, value, digits]) => rounded(value(rung), digits))])), "Values");
paragraphs($("method"), [...data.facts,
  "A strategy sustains a request rate if its TTFT p90 is at most 2 s and no request fails.",
  "Drain: the time from the last request sent to the last token."]);
