const view = { unit: "blocks_rate", part: "all", hidden: new Set() };
const sizes = [...new Set(data.policies.flatMap((policy) => policy.points.map((point) => point.blocks)))]
  .sort((a, b) => a - b);
const value = (point) => point[view.unit][view.part];
const shown = () => data.policies.filter((_, index) => !view.hidden.has(index));
const bytes = (gb) => (gb >= 0.1 ? gb.toFixed(1) : gb.toPrecision(2)) + " GB";

// The axis has some room at both ends, so that a single size has a place as well.
function spec() {
  const highest = Math.max(0.01, value(data.infinite) ?? 0,
    ...data.policies.flatMap((policy) => policy.points.map((point) => value(point) ?? 0)));
  const step = [0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2].find((one) => highest / one <= 6) ?? 0.2;
  const count = Math.ceil(highest / step - 1e-9);
  const limit = value(data.infinite);
  const known = (policy) => policy.points.filter((point) => value(point) !== null);
  return {
    series: data.policies.map((policy, index) => ({ look: style(index), has_marks: true, index,
      points: known(policy).map((point) => ({ x: point.blocks, y: value(point),
        title: `${policy.name}, ${grouped(point.blocks)} blocks: ${exactly(value(point))}` })) }))
      .filter((one) => !view.hidden.has(one.index)),
    x: { log: true, from: sizes[0] * 0.9, to: sizes.at(-1) * 1.1, show: compact,
      marks: sizes.length > 8 ? rounds(sizes[0], sizes.at(-1)) : sizes,
      title: `cache size, blocks of ${data.block_tokens} tokens` },
    y: { from: 0, to: count * step, show: ticked,
      marks: Array.from({ length: count + 1 }, (_, index) => index * step) },
    levels: limit === null ? [] : [{ y: limit, name: "unlimited cache " + exactly(limit) }],
  };
}

function words_of(size) {
  const rows = shown().map((policy) => [policy, policy.points.find((point) => point.blocks === size)])
    .filter(([, point]) => point).sort((a, b) => (value(b[1]) ?? 0) - (value(a[1]) ?? 0));
  const gb = rows.length ? rows[0][1].gb : null;
  return [grouped(size) + " blocks" + (gb === null ? "" : `, ${bytes(gb)}`),
    ...rows.map(([policy, point]) => `${policy.name} ${exactly(value(point))}`)];
}

function table() {
  const has_gb = data.policies.some((policy) => policy.points.some((point) => point.gb !== null));
  const unit = view.unit === "blocks_rate" ? "block hit rate" : "token hit rate";
  const rows = shown().flatMap((policy) => policy.points.map((point) => {
    const rates = point[view.unit];
    return [policy.name, grouped(point.blocks), ...(has_gb ? [bytes(point.gb)] : []),
      exactly(rates.all), exactly(rates.cold), exactly(rates.steady),
      point.full_at === null ? "never" : grouped(point.full_at),
      point.share === null ? "–" : exactly(point.share)];
  }));
  const rates = data.infinite[view.unit];
  rows.push(["unlimited", grouped(data.distinct_blocks), ...(has_gb ? ["–"] : []), exactly(rates.all),
    exactly(rates.cold), exactly(rates.steady), "never", "–"]);
  $("table").replaceChildren();
  tabulate($("table"), ["policy", "cache size, blocks", ...(has_gb ? ["GB"] : []), unit, "cold",
    "steady", "full at request", "of Belady (blocks)"], rows, "Values");
}

titled("Hit rate by cache size: " + data.trace);
element($("facts"), "p", {}, `${grouped(data.requests)} requests` +
  (data.seconds >= 1 ? ` over ${time(data.seconds)}` : "") +
  `, ${grouped(data.prompt_tokens)} prompt tokens, ${grouped(data.lookups)} block lookups, ` +
  `${grouped(data.distinct_blocks)} distinct blocks of ${data.block_tokens} tokens`);
if (data.words.length === 0) $("findings").remove();
else data.words.forEach((sentence) => element($("words"), "li", {}, sentence));
const redraw = chart($("chart"), 420, "Hit rate by cache size.", spec, { xs: () => sizes, of: words_of });
const refresh = () => { redraw(); table(); };
toggles($("legend"), data.policies.map((policy) => policy.name), "Policies shown", view.hidden, refresh);
for (const name of ["unit", "part"]) {
  $(name).addEventListener("change", (event) => { view[name] = event.target.value; refresh(); });
}
table();
const known = data.provenance;
paragraphs($("method"), [
  "Block hit rate: matched blocks per block looked up, with a partial last block. Token hit rate: cached share of the prompt tokens.",
  "An unlimited cache never evicts. Belady evicts what is needed last, which no server can know.",
  `Cold: the first ${grouped(data.cold_requests)} requests. Steady: all later ones.`,
  `Sessions ${known.sessions}, turns ${known.turns}, request types ${known.types}.`,
  ...(data.kv === null ? [] : [`KV of a token: ${data.kv}.`]),
  ...data.remarks,
]);
