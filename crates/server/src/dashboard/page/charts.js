// Where prompt tokens came from, over time. Each source is one path of bars, so that a second's
// news are a handful of attributes; a stretch without requests stays empty.

const SOURCES = [
  ["device", "device memory"], ["host", "host memory"], ["disk", "disk"],
  ["remote", "object storage"], ["upstream", "the engine's cache"], ["computed", "computed"],
];
const BINS = 60;
const rate = { span: 300, bins: [], cursor: null, paths: new Map() };

function startChart() {
  const svg = makeSvg("svg");
  svg.setAttribute("viewBox", `0 0 ${BINS} 100`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  for (const [source] of SOURCES) {
    const path = makeSvg("path");
    path.style.fill = `var(--${source})`;
    rate.paths.set(source, path);
    svg.append(path);
  }
  rate.line = makeSvg("path", "cursor");
  svg.append(rate.line);
  const plot = $("rate");
  plot.append(svg);
  plot.addEventListener("pointermove", (event) => {
    const box = plot.getBoundingClientRect();
    moveCursor(Math.floor(((event.clientX - box.left) / box.width) * BINS));
  });
  plot.addEventListener("pointerleave", () => moveCursor(null));
  plot.addEventListener("blur", () => moveCursor(null));
  plot.addEventListener("keydown", (event) => {
    const at = rate.cursor ?? BINS - 1;
    const to = { ArrowLeft: at - 1, ArrowDown: at - 1, ArrowRight: at + 1, ArrowUp: at + 1,
      Home: 0, End: BINS - 1, PageUp: at - 10, PageDown: at + 10 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    moveCursor(to);
  });
  for (const button of document.querySelectorAll("[data-span]")) {
    button.addEventListener("click", () => {
      rate.span = Number(button.dataset.span);
      for (const other of document.querySelectorAll("[data-span]")) {
        setAttr(other, "aria-pressed", other === button);
      }
      drawChart();
      drawTtft();
    });
  }
}

function moveCursor(to) {
  rate.cursor = to === null ? null : Math.min(BINS - 1, Math.max(0, to));
  drawCursor();
  drawTtftCursor();
}

/** Sums the seconds into bins whose ends are multiples of their width, so that bars stand still. */
function binned(points, columns, span) {
  const width = span / BINS;
  const last = points.length ? Math.floor(points.at(-1)[0] / width) : 0;
  const bins = Array.from({ length: BINS }, (_, at) => ({
    start: (last - BINS + 1 + at) * width, all: 0, requests: 0, by: {},
  }));
  for (const point of points) {
    const bin = bins[Math.floor(point[0] / width) - last + BINS - 1];
    if (!bin) continue;
    bin.requests += point[columns.requests];
    for (const [source] of SOURCES) {
      const tokens = point[columns[source]];
      bin.by[source] = (bin.by[source] ?? 0) + tokens;
      bin.all += tokens;
    }
  }
  return bins;
}

function drawChart() {
  rate.bins = binned(state.points, state.columns, rate.span);
  const tops = rate.bins.map(() => 100);
  const used = new Set();
  for (const [source] of SOURCES) {
    let d = "";
    rate.bins.forEach((bin, at) => {
      const tokens = bin.by[source] ?? 0;
      if (tokens === 0) return;
      used.add(source);
      const height = (tokens / bin.all) * 100;
      tops[at] -= height;
      d += `M${at + 0.06} ${tops[at].toFixed(2)}h.88v${height.toFixed(2)}h-.88z`;
    });
    setAttr(rate.paths.get(source), "d", d);
  }
  setText($("rate-start"), `${rate.span / 60} min ago`);
  const shown = SOURCES.filter(([source]) => used.has(source));
  keyed($("rate-legend"), shown, ([source]) => source, ([source, name]) => {
    const swatch = make("span", "swatch");
    swatch.style.background = `var(--${source})`;
    return make("li", "", swatch, name);
  }, () => {});
  drawCursor();
}

function drawCursor() {
  const at = rate.cursor;
  setAttr(rate.line, "d", at === null ? "" : `M${at + 0.5} 0V100`);
  const bin = rate.bins[at ?? BINS - 1];
  if (!bin) return;
  const words = inWords(bin, rate.span / BINS);
  const all = at === null ? inWords(merged(rate.bins), rate.span) : words;
  setText($("rate-read"), at === null ? all : `${clockTime(bin.start)}: ${words}`);
  const plot = $("rate");
  setAttr(plot, "aria-valuenow", at ?? BINS - 1);
  // Announced when the reader moves there, not each second.
  if (at !== null || !plot.hasAttribute("aria-valuetext")) {
    setAttr(plot, "aria-valuetext", `${clockTime(bin.start)}: ${words}`);
  }
}

function merged(bins) {
  const sum = { all: 0, requests: 0, by: {} };
  for (const bin of bins) {
    sum.all += bin.all;
    sum.requests += bin.requests;
    for (const source in bin.by) sum.by[source] = (sum.by[source] ?? 0) + bin.by[source];
  }
  return sum;
}

function inWords(bin, seconds) {
  const span = seconds < 60 ? `${seconds} s` : `${seconds / 60} min`;
  if (bin.all === 0) return `no prompts in ${span}`;
  const cached = SOURCES.slice(0, -1).filter(([source]) => bin.by[source] > 0);
  const parts = cached.map(([source, name]) => `${percent(bin.by[source] / bin.all)} ${name}`);
  const hit = percent(1 - (bin.by.computed ?? 0) / bin.all);
  const detail = parts.length > 1 ? ` (${parts.join(", ")})` : "";
  return `${hit} of ${compact(bin.all)} prompt tokens cached${detail} · `
    + `${plural(bin.requests, "request")} in ${span}`;
}

/** A line without axes, for beside a number. */
function spark(path, values) {
  const top = Math.max(...values, 1e-9);
  const step = 100 / Math.max(1, values.length - 1);
  const at = (value, index) => `${(index * step).toFixed(1)} ${(21 - (value / top) * 19).toFixed(1)}`;
  setAttr(path, "d", values.length ? `M${values.map(at).join("L")}` : "");
}
