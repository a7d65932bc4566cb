const $ = (id) => document.getElementById(id);
const SVG = "http" + "://www.w3.org/2000/svg";

// The element, with attributes; text never passes through a parser.
const element = (parent, name, attributes = {}, text) => {
  const space = name === "svg" ? SVG : parent.namespaceURI;
  const made = document.createElementNS(space, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return parent.appendChild(made);
};
const paragraphs = (parent, texts) => texts.forEach((text) => element(parent, "p", {}, text));
const titled = (text) => { $("title").textContent = text; document.title = text; };

// Numbers. All is all and nothing is nothing: what is close to either is not called so.
const grouped = (n) => Math.round(n).toLocaleString("en-US");
const many = (n, thing) => `${grouped(n)} ${thing}${n === 1 ? "" : "s"}`;
const percent = (share) => share === null ? "–"
  : (share >= 1 || share === 0 ? String(share * 100).slice(0, 3)
    : share < 0.0005 ? "<0.1"
    : share >= 0.99 ? (Math.floor(share * 1000) / 10).toFixed(1)
    : (share * 100).toFixed(share >= 0.0995 ? 0 : 1)) + "\u00a0%";
const exactly = (share, digits = 2) =>
  share === null ? "–" : (share * 100).toFixed(digits) + "\u00a0%";
const ticked = (share) => +(share * 100).toFixed(1) + "\u00a0%";
const compact = (n) => {
  for (const [unit, size] of [["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (n >= size) return +(n / size).toPrecision(2) + unit;
  }
  return String(+n.toPrecision(2));
};
const rounded = (n, digits) => n === null || n === undefined ? "–"
  : n.toLocaleString("en-US", { maximumFractionDigits: digits });
const time = (s) => s === 0 ? "0 s" : s < 0.1 ? +(s * 1e3).toPrecision(3) + " ms"
  : s < 100 && s !== 60 ? +s.toPrecision(3) + " s" : s < 6e3 ? (s / 60).toFixed(0) + " min"
  : s < 36e4 ? +(s / 3600).toFixed(1) + " h" : +(s / 86400).toFixed(1) + " days";

// Colours differ in lightness; dashes and marks say the same a second time.
const DASHES = ["", "7 4", "2 3", "9 3 2 3"];
const MARKS = ["M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0", "M-4-4h8v8h-8z", "M0-5L5 4H-5z",
  "M0-5L5 0L0 5L-5 0z"];
const style = (index) => ({
  colour: `var(--series-${index % 8 + 1})`,
  dash: DASHES[Math.floor(index / 8 + index / 2) % 4],
  mark: MARKS[index % 4],
});
const sample = (parent, { colour, dash, mark }) => {
  const svg = element(parent, "svg", { viewBox: "0 0 34 12", class: "sample", "aria-hidden": "true" });
  element(svg, "path", { d: "M0 6H34", stroke: colour, "stroke-width": 2.2, "stroke-dasharray": dash });
  element(svg, "path", { d: mark, fill: colour, transform: "translate(17,6)" });
};

// Which curve is which.
function key(parent, label, entries) {
  const list = element(parent, "ul", { class: "key soft", "aria-label": label });
  for (const [look, name] of entries) {
    const item = element(list, "li");
    sample(item, look);
    element(item, "span", {}, name);
  }
}

// The same as buttons; `hidden` has the indexes of what is switched off.
function toggles(parent, names, label, hidden, changed) {
  const group = element(parent, "div", { class: "toggles", role: "group", "aria-label": label });
  names.forEach((name, index) => {
    const button = element(group, "button", { type: "button", "aria-pressed": "true" });
    sample(button, style(index));
    element(button, "span", {}, name);
    button.addEventListener("click", () => {
      const was_hidden = hidden.delete(index);
      if (!was_hidden) hidden.add(index);
      button.setAttribute("aria-pressed", String(was_hidden));
      changed();
    });
  });
}

function tabulate(parent, head, rows, label) {
  const wide = element(parent, "div", { class: "wide", tabindex: "0", role: "region", "aria-label": label });
  const table = element(wide, "table");
  if (head.length > 0) {
    const top = element(element(table, "thead"), "tr");
    head.forEach((name) => element(top, "th", { scope: "col" }, name));
  }
  const body = element(table, "tbody");
  rows.forEach((cells) => {
    const row = element(body, "tr");
    cells.forEach((cell, index) => index === 0
      ? element(row, "th", { scope: "row" }, cell) : element(row, "td", {}, cell));
  });
  return wide;
}

function folded(parent, title, label, attributes = {}) {
  const made = element(parent, "details", { "aria-label": label, ...attributes });
  element(made, "summary", {}, title);
  return made;
}

// A figure: its title, a plot, a caption, and its numbers on demand.
function figure(parent, title, caption, head, rows, plot) {
  const made = element(parent, "figure", { role: "group", "aria-label": title });
  element(made, "h3", {}, title);
  plot(made);
  if (caption) element(made, "figcaption", {}, caption);
  if (rows.length > 0) tabulate(folded(made, "Numbers", title + ", numbers"), head, rows, title + ", numbers");
  return made;
}

// Horizontal bars as the dashboard has them: {name, share, colour, number, from, title}.
function bars(parent, label, rows) {
  const has_numbers = rows.some((row) => row.number !== undefined);
  const most = Math.max(1e-9, ...rows.map((row) => (row.from ?? 0) + row.share));
  const list = element(parent, "ol", { class: has_numbers ? "falls" : "falls share-only", "aria-label": label });
  for (const { name, share, colour, number, from, title } of rows) {
    const item = element(list, "li", title ? { title } : {});
    element(item, "span", { class: "what" }, name);
    const lane = element(item, "span", { class: "lane", "aria-hidden": "true" });
    const left = (from ?? 0) / most * 100, width = share / most * 100;
    element(lane, "i", { style: `left:${left.toFixed(2)}%;width:${width.toFixed(2)}%;background:var(--${colour})` });
    if (has_numbers) element(item, "span", { class: "number" }, number ?? "");
    element(item, "span", { class: "share" }, percent(share));
  }
}

// Key figures: {name, value, under}.
function tiles(parent, all) {
  for (const { name, value, under } of all) {
    const tile = element(parent, "div");
    element(tile, "dt", {}, name);
    element(tile, "dd", {}, value);
    element(tile, "dd", { class: "under" }, under);
  }
}

// Some five round steps from nothing to at least `most`.
function steps_to(most) {
  const size = 10 ** Math.floor(Math.log10(most / 4));
  const step = [1, 2, 2.5, 5, 10].map((one) => one * size).find((one) => most / one <= 5.001);
  return Array.from({ length: Math.ceil(most / step - 1e-9) + 1 }, (_, index) => index * step);
}
const from_nothing = (most) => {
  const marks = steps_to(Math.max(1e-9, most));
  return { from: 0, to: marks.at(-1), marks };
};
const decades = (least, most) => {
  const [from, to] = [Math.floor(Math.log10(least)), Math.ceil(Math.log10(most))];
  const marks = Array.from({ length: Math.max(1, to - from) + 1 }, (_, index) => 10 ** (from + index));
  return { from: marks[0], to: marks.at(-1), marks, log: true };
};
const rounds = (least, most) => Array.from({ length: 16 }, (_, power) => [1, 2, 5].map((digit) => digit * 10 ** power))
  .flat().filter((mark) => mark >= least * 0.999 && mark <= most * 1.001);

const placed = (axis, low, high) => {
  const of = (value) => axis.log ? Math.log(Math.max(value, axis.from)) : value;
  const span = of(axis.to) - of(axis.from) || 1;
  const share = (value) => (of(value) - of(axis.from)) / span;
  return (value) => low + Math.min(1, Math.max(0, share(value))) * (high - low);
};

// Curves in an SVG as wide as its place, so that its text keeps its size. `spec` gives, each time:
// series [{name, look, points: [{x, y, low, high, title, size, hollow}], has_marks}], axes x and y
// {from, to, log, marks, show, title}, levels [{y, name}], spot {x, y, name}.
function chart(parent, height, label, spec, words) {
  const frame = element(parent, "div", { class: "drawn" });
  const svg = element(frame, "svg", { class: "plotted", role: "img", height, "aria-label":
    label + (words ? " Left and right arrow keys read the values aloud." : "") });
  let drawn = 0;
  const reading = words ? read_by(frame, svg, words) : null;
  const paint = (is_changed) => {
    const width = Math.round(svg.getBoundingClientRect().width);
    if (width === 0 || (width === drawn && !is_changed)) return;
    drawn = width;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.replaceChildren();
    const place = curves(svg, width, height, spec());
    if (reading) reading(place);
  };
  new ResizeObserver(() => paint(false)).observe(svg);
  paint(false);
  return () => paint(true);
}

function curves(svg, width, height, { series, x, y, levels = [], spot = null }) {
  const box = { left: 56, right: width - 16, top: 14, bottom: height - 46 };
  const at_x = placed(x, box.left, box.right), at_y = placed(y, box.bottom, box.top);
  for (const mark of y.marks) {
    const at = at_y(mark);
    element(svg, "line", { class: "rule", x1: box.left, x2: box.right, y1: at, y2: at });
    element(svg, "text", { x: box.left - 7, y: at + 4, "text-anchor": "end" }, y.show(mark));
  }
  let free = -Infinity;
  for (const mark of x.marks) {
    const at = at_x(mark), text = x.show(mark), half = text.length * 3.4 + 5;
    if (at - half < free) continue;
    free = at + half;
    element(svg, "line", { class: "rule", x1: at, x2: at, y1: box.bottom, y2: box.bottom + 5 });
    const anchor = at + half > width ? "end" : "middle";
    element(svg, "text", { x: anchor === "end" ? width - 2 : at, y: box.bottom + 19, "text-anchor": anchor }, text);
  }
  element(svg, "text", { x: (box.left + box.right) / 2, y: height - 8, "text-anchor": "middle" }, x.title);
  for (const level of levels) {
    const at = at_y(level.y);
    element(svg, "line", { class: "level", x1: box.left, x2: box.right, y1: at, y2: at });
    element(svg, "text", { x: box.left + 6, y: at < box.top + 16 ? at + 15 : at - 5 }, level.name);
  }
  for (const one of series) draw_series(svg, one, at_x, at_y);
  if (spot) {
    const [at, up] = [at_x(spot.x), at_y(spot.y)];
    element(svg, "circle", { cx: at, cy: up, r: 5, fill: "var(--cause)" });
    const is_right = at > width - 80;
    element(svg, "text", { x: is_right ? at - 8 : at + 8, y: up + 17, "text-anchor": is_right ? "end" : "start" }, spot.name);
  }
  return { at_x, box };
}

function draw_series(svg, { look, points, has_marks }, at_x, at_y) {
  const places = points.map(({ x, y }) => `${at_x(x).toFixed(1)},${at_y(y).toFixed(1)}`);
  element(svg, "polyline", { class: "curve", stroke: look.colour, "stroke-dasharray": look.dash,
    points: places.join(" ") });
  points.forEach((point, index) => {
    if (point.low !== undefined) {
      const at = at_x(point.x);
      element(svg, "line", { stroke: look.colour, x1: at, x2: at, y1: at_y(point.low), y2: at_y(point.high) });
    }
    if (has_marks) {
      const size = (point.size ?? 1).toFixed(2);
      const drawn = element(svg, "path", { d: look.mark, fill: look.colour,
        transform: `translate(${places[index]}) scale(${size})` });
      if (point.title) element(drawn, "title", {}, point.title);
    }
    if (point.hollow !== undefined) {
      const place = `${at_x(point.x).toFixed(1)},${at_y(point.hollow).toFixed(1)}`;
      const drawn = element(svg, "path", { d: look.mark, fill: "none", stroke: look.colour,
        transform: `translate(${place})` });
      element(drawn, "title", {}, point.hollow_title);
    }
  });
}

// The values under the mouse or the arrow keys: `words` has xs() and of(x), which gives lines.
function read_by(frame, svg, words) {
  const tip = element(frame, "div", { class: "tip", "aria-hidden": "true" });
  svg.setAttribute("tabindex", "0");
  let place = null, cursor = null, now = null;
  const show = (index, aloud) => {
    now = index;
    tip.replaceChildren();
    cursor.setAttribute("visibility", index === null ? "hidden" : "visible");
    if (index === null) return;
    const value = words.xs()[index], at = place.at_x(value), said = words.of(value);
    cursor.setAttribute("x1", at);
    cursor.setAttribute("x2", at);
    said.forEach((line) => element(tip, "div", {}, line));
    const is_left = at > (place.box.left + place.box.right) / 2;
    tip.style.left = is_left ? ".4rem" : "auto";
    tip.style.right = is_left ? "auto" : ".4rem";
    if (aloud) $("said").textContent = said.join(", ");
  };
  svg.addEventListener("pointermove", (event) => {
    const at = event.clientX - svg.getBoundingClientRect().left, xs = words.xs();
    const distance = (index) => Math.abs(place.at_x(xs[index]) - at);
    show(xs.reduce((best, _, index) => distance(index) < distance(best) ? index : best, 0), false);
  });
  svg.addEventListener("pointerleave", () => show(null, false));
  svg.addEventListener("blur", () => show(null, false));
  svg.addEventListener("keydown", (event) => {
    const end = words.xs().length - 1;
    const to = { ArrowLeft: now === null ? end : Math.max(0, now - 1), Escape: null, Home: 0, End: end,
      ArrowRight: now === null ? 0 : Math.min(end, now + 1) }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    show(to, true);
  });
  return (drawn) => {
    place = drawn;
    cursor = element(svg, "line", { class: "cursor", y1: place.box.top, y2: place.box.bottom, visibility: "hidden" });
    show(null, false);
  };
}
