// The page's hands: nothing is written that is there already, and lists keep their elements.

const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

/** An element with classes and children. */
function make(tag, classes = "", ...children) {
  const element = document.createElement(tag);
  if (classes) element.className = classes;
  element.append(...children);
  return element;
}

function makeSvg(tag, classes = "") {
  const element = document.createElementNS(SVG, tag);
  if (classes) element.setAttribute("class", classes);
  return element;
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function setAttr(element, name, value) {
  if (value === null) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
  } else if (element.getAttribute(name) !== String(value)) {
    element.setAttribute(name, value);
  }
}

function setStyle(element, name, value) {
  if (element.style.getPropertyValue(name) !== value) element.style.setProperty(name, value);
}

function setHidden(element, isHidden) {
  if (element.hidden !== isHidden) element.hidden = isHidden;
}

/** Makes the children of `list` those of `items`, by key and in their order. What stays is moved
 *  only where it must be, and keeps its focus. */
function keyed(list, items, keyOf, create, update) {
  const known = (list.known ??= new Map());
  const keys = new Set(items.map(keyOf));
  for (const [key, element] of known) {
    if (keys.has(key)) continue;
    element.remove();
    known.delete(key);
  }
  let next = list.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let element = known.get(key);
    if (!element) {
      element = create(item);
      known.set(key, element);
    }
    if (element === next) next = next.nextElementSibling;
    else list.insertBefore(element, next);
    update(element, item);
  }
}

/** The same for what has no name of its own: the n-th element shows the n-th item. */
function slots(list, items, create, update) {
  while (list.children.length > items.length) list.lastElementChild.remove();
  items.forEach((item, at) => {
    let element = list.children[at];
    if (!element) {
      element = create(item);
      list.append(element);
    }
    update(element, item);
  });
}

/** Makes a button copy the text of an element. */
function copies(button, from) {
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(from.textContent);
      setText(button, "Copied");
    } catch {
      getSelection().selectAllChildren(from);
      setText(button, "Selected");
    }
    setTimeout(() => setText(button, "Copy"), 2000);
  });
}

// Numbers in words. Digits have one width (tabular), so that nothing jumps.

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 3 });
const three = new Intl.NumberFormat("en-US", {
  minimumSignificantDigits: 3, maximumSignificantDigits: 3,
});

function compact(value) {
  for (const [size, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (value >= size) return `${three.format(value / (unit === "k" ? 1e3 : size))} ${unit}`;
  }
  return whole.format(value);
}

const percent = (share) => (share === null ? "–" : `${(share * 100).toFixed(1)} %`);

function ago(seconds) {
  if (seconds < 60) return `${Math.max(0, Math.round(seconds))} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 2 * 86400) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

const since = (seconds) => (seconds < 1 ? "now" : `${ago(seconds)} ago`);

function took(ms) {
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  return `${short.format(ms / 1000)} s`;
}

const plural = (count, one, many = `${one}s`) => `${whole.format(count)} ${count === 1 ? one : many}`;

const clockTime = (unix) => new Date(unix * 1000).toLocaleTimeString([], { hour12: false });
