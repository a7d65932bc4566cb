const number = (x) => x.toLocaleString("en-US");

function spec(sweep, hidden) {
  const all = sweep.curves.flatMap((curve) => curve.points);
  const xs = [...new Set(all.map((point) => point.x))].sort((a, b) => a - b);
  const room = (xs.at(-1) - xs[0]) * 0.03 || 1;
  const y = from_nothing(Math.max(0.01, ...all.map((point) => point.high)));
  return {
    series: sweep.curves.map((curve, index) => ({ look: style(index), has_marks: true, index,
      points: curve.points.map((point) => ({ x: point.x, y: point.rate, low: point.low, high: point.high,
        title: `${curve.name} at ${number(point.x)}: ${exactly(point.rate)}` })) }))
      .filter((one) => !hidden.has(one.index)),
    x: { from: xs[0] - room, to: xs.at(-1) + room, marks: xs, show: number, title: sweep.axis },
    y: { ...y, show: ticked },
  };
}

// A chart of one sweep, and its values on demand.
function draw(parent, sweep) {
  const name = "Token hit rate by " + sweep.axis.split(",")[0];
  const hidden = new Set();
  const legend = element(parent, "div");
  const xs = [...new Set(sweep.curves.flatMap((curve) => curve.points.map((point) => point.x)))].sort((a, b) => a - b);
  const redraw = chart(parent, 360, name + ".", () => spec(sweep, hidden), {
    xs: () => xs,
    of: (x) => [`${sweep.axis} ${number(x)}`, ...sweep.curves.flatMap((curve) =>
      curve.points.filter((point) => point.x === x).map((point) => `${curve.name} ${exactly(point.rate)}`))],
  });
  toggles(legend, sweep.curves.map((curve) => curve.name), "Policies shown", hidden, redraw);
  const rows = sweep.curves.flatMap((curve) => curve.points.map((point) => [curve.name, number(point.x),
    exactly(point.rate), (point.high - point.low).toFixed(4), exactly(point.gain, 1), exactly(point.closed, 0)]));
  tabulate(folded(parent, "Values", name + ", values"),
    ["policy", sweep.axis, "hit rate", "spread", "over LRU", "gap closed"], rows, name + ", values");
}

titled("Eviction simulation: " + data.title.split(": ")[0]);
element($("facts"), "p", {}, data.title);
data.verdict.forEach((sentence) => element($("verdict"), "p", { class: "verdict" }, sentence));
const [first, ...rest] = data.sweeps;
$("h-main").textContent = "Token hit rate by " + first.axis.split(",")[0];
draw($("main"), first);
if (rest.length > 0) {
  const more = folded($("rest"), "Other sweeps", "Other sweeps", { class: "card" });
  rest.forEach((sweep) => {
    element(more, "h3", {}, "Token hit rate by " + sweep.axis.split(",")[0]);
    draw(more, sweep);
  });
}
if (data.figures.length > 0) {
  const published = folded($("rest"), "Published results", "Published results", { class: "card" });
  element(published, "p", { class: "soft" }, data.source);
  tabulate(published, ["figure", "published", "this run"],
    data.figures.map(([name, theirs, ours]) => [name, theirs, ours ?? "not run"]), "Published results and this run");
}
if ($("rest").children.length === 0) $("rest").remove();
paragraphs($("method"), data.facts);
