// The time to the first token, over the same time as the chart above it: the median and what 95 of
// a hundred stay below, each over some seconds in which there were any requests.

const ttft = { points: [], lines: {} };
/** Points that are kept: a quarter of an hour. */
const TTFT_POINTS_MAX = 180;
/** A line does not join what is further apart than this, seconds. */
const TTFT_GAP_S = 12;

function startTtft() {
  const svg = makeSvg("svg");
  svg.setAttribute("viewBox", `0 0 ${BINS} 100`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  for (const name of ["p95", "p50"]) {
    ttft.lines[name] = makeSvg("path", name);
    svg.append(ttft.lines[name]);
  }
  ttft.cursor = makeSvg("path", "cursor");
  svg.append(ttft.cursor);
  $("ttft").append(svg);
}

function addTtft(history, isNew) {
  const known = isNew ? [] : ttft.points;
  const last = known.at(-1)?.[0] ?? 0;
  ttft.points = [...known, ...(history.ttft ?? []).filter(([at]) => at > last)].slice(-TTFT_POINTS_MAX);
}

function drawTtft() {
  const width = rate.span / BINS;
  const start = rate.bins[0]?.start ?? 0;
  const shown = ttft.points.filter(([at]) => at > start);
  const top = Math.max(1, ...shown.map(([, , most]) => most)) * 1.05;
  ["p50", "p95"].forEach((name, place) => {
    const path = shown.map((point, at) => {
      const [x, y] = [(point[0] - start) / width, 100 - (point[place + 1] / top) * 100];
      const isJoined = (a, b) => a && b && b[0] - a[0] <= TTFT_GAP_S;
      const to = `${Math.min(BINS, x).toFixed(2)} ${y.toFixed(1)}`;
      if (isJoined(shown[at - 1], point)) return `L${to}`;
      // A point without a neighbour is a short line.
      return isJoined(point, shown[at + 1]) ? `M${to}` : `M${to}h-.3`;
    });
    setAttr(ttft.lines[name], "d", path.join(""));
  });
  setText($("ttft-top"), shown.length ? took(top) : "");
  drawTtftCursor();
}

function drawTtftCursor() {
  const at = rate.cursor;
  setAttr(ttft.cursor, "d", at === null ? "" : `M${at + 0.5} 0V100`);
  const bin = rate.bins[at ?? BINS - 1];
  const end = bin ? bin.start + rate.span / BINS : Infinity;
  const points = at === null ? ttft.points.slice(-1)
    : ttft.points.filter(([time]) => time > bin.start && time <= end);
  const worst = points.reduce((a, b) => (a && a[2] >= b[2] ? a : b), null);
  const when = at === null || !bin ? "Latest" : clockTime(bin.start);
  setText($("ttft-read"), worst === null ? (at === null ? "No values yet." : `${when}: no answers`)
    : `${when}: median ${took(worst[1])}, 95 % within ${took(worst[2])}`);
}
