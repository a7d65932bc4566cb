// The prefix tree: a flat list of rows that says its levels (WAI-ARIA tree pattern). One row takes
// part in tabbing; arrows do the rest.

const tree = { nodes: [], folded: new Set(), chosen: null, rows: [] };

function startTree() {
  const list = $("tree");
  list.addEventListener("keydown", onTreeKey);
  list.addEventListener("click", (event) => {
    const row = event.target.closest("[role=treeitem]");
    if (!row) return;
    const isFold = event.target.closest(".fold");
    choose(row.dataset.id);
    if (isFold) fold(row.dataset.id, !tree.folded.has(row.dataset.id));
    row.focus();
  });
}

function onTreeKey(event) {
  const at = tree.rows.findIndex((node) => node.id === tree.chosen);
  const node = tree.rows[at];
  if (!node || event.ctrlKey || event.metaKey || event.altKey) return;
  const to = (index) => tree.rows[Math.min(tree.rows.length - 1, Math.max(0, index))];
  const isOpen = node.children.length > 0 && !tree.folded.has(node.id);
  let next = null;
  switch (event.key) {
    case "ArrowDown": next = to(at + 1); break;
    case "ArrowUp": next = to(at - 1); break;
    case "Home": next = to(0); break;
    case "End": next = to(tree.rows.length - 1); break;
    case "PageDown": next = to(at + 10); break;
    case "PageUp": next = to(at - 10); break;
    case "ArrowRight":
      if (isOpen) next = node.children[0];
      else if (node.children.length) fold(node.id, false);
      break;
    case "ArrowLeft":
      if (isOpen) fold(node.id, true);
      else next = node.above;
      break;
    case "Enter":
    case " ":
      if (node.children.length) fold(node.id, isOpen);
      break;
    default: return;
  }
  event.preventDefault();
  if (!next) return;
  choose(next.id);
  const row = $("tree").known?.get(next.id);
  row?.focus();
  row?.scrollIntoView({ block: "nearest" });
}

function fold(id, isFolded) {
  if (isFolded) tree.folded.add(id);
  else tree.folded.delete(id);
  drawRows();
}

function choose(id) {
  tree.chosen = id;
  drawRows();
}

function drawTree(snapshot) {
  const told = snapshot.tree;
  tree.nodes = told.nodes.map((node) => ({ ...node, children: [], above: null }));
  for (const node of tree.nodes) {
    if (node.parent === null) continue;
    node.above = tree.nodes[node.parent];
    node.above.children.push(node);
  }
  tree.roots = tree.nodes.filter((node) => !node.above);
  tree.widest = Math.max(1, ...tree.nodes.map((node) => node.tokens));
  const more = told.branches - tree.nodes.length;
  setText($("tree-note"), tree.nodes.length === 0 ? ""
    : `${plural(told.prompts, "prompt")} seen${told.skipped ? `, ${compact(told.skipped)} skipped` : ""}`
      + ` · blocks of ${told.block_tokens} tokens`
      + (more > 0 ? ` · ${compact(more)} colder branches not shown` : ""));
  setText($("tree-none"), tree.nodes.length ? "" : noTree(snapshot));
  setHidden($("branch"), tree.nodes.length === 0);
  setHidden(document.querySelector(".names"), tree.nodes.length === 0);
  setHidden($("tree"), tree.nodes.length === 0);
  drawRows();
}

function noTree(snapshot) {
  if (snapshot.totals.requests === 0) {
    return "Branches grow with the first prompts: each shows a piece of prefix that prompts share, "
      + "and who holds it.";
  }
  return "The prompts so far were not tokenized here, or shorter than one block. Before upstreams, "
    + "give each its tokenizer: --upstream URL,tokenizer=FOLDER.";
}

function visible(nodes, level, rows) {
  nodes.forEach((node, at) => {
    Object.assign(node, { level, place: at + 1, of: nodes.length });
    rows.push(node);
    if (!tree.folded.has(node.id)) visible(node.children, level + 1, rows);
  });
  return rows;
}

function drawRows() {
  tree.rows = visible(tree.roots ?? [], 1, []);
  if (!tree.rows.some((node) => node.id === tree.chosen)) tree.chosen = tree.rows[0]?.id ?? null;
  keyed($("tree"), tree.rows, (node) => node.id, createRow, updateRow);
  drawBranch();
}

function createRow(node) {
  const row = make("li", "row");
  row.dataset.id = node.id;
  row.setAttribute("role", "treeitem");
  const [foldMark, label] = [make("span", "fold"), make("span")];
  foldMark.setAttribute("aria-hidden", "true");
  const bar = make("i");
  const [amount, holders] = [make("span"), make("span", "holders")];
  const [heat, age] = [make("span", "heat"), make("span", "age")];
  row.append(make("span", "name", foldMark, label), make("span", "size", bar, amount), holders, heat, age);
  row.parts = { foldMark, label, bar, amount, holders, heat, age };
  return row;
}

function updateRow(row, node) {
  const { foldMark, label, bar, amount, holders, heat, age } = row.parts;
  const isFolded = tree.folded.has(node.id);
  const hasChildren = node.children.length > 0;
  setAttr(row, "aria-level", node.level);
  setAttr(row, "aria-posinset", node.place);
  setAttr(row, "aria-setsize", node.of);
  setAttr(row, "aria-expanded", hasChildren ? !isFolded : null);
  setAttr(row, "aria-selected", node.id === tree.chosen);
  setAttr(row, "tabindex", node.id === tree.chosen ? 0 : -1);
  setStyle(row, "--level", String(node.level));
  setText(foldMark, hasChildren ? (isFolded ? "▸" : "▾") : "");
  setText(label, node.label ?? shortId(node.id));
  setStyle(bar, "width", `${Math.max(2, (node.tokens / tree.widest) * 60).toFixed(1)}%`);
  setText(amount, whole.format(node.tokens));
  slots(holders, node.holders, () => make("span", "chip"), (chip, held) => {
    setText(chip, String(held.replica));
    setStyle(chip, "--part", `${Math.round((held.tokens / node.tokens) * 100)}%`);
    setStyle(chip, "--held", held.device_tokens < held.tokens ? "var(--disk)" : "var(--device)");
  });
  setText(heat, percent(node.share));
  setText(age, since(node.used_s));
  setAttr(row, "aria-label", rowWords(node));
}

const shortId = (id) => `${id.slice(0, 4)}·${id.slice(4, 8)}`;

function rowWords(node) {
  const holders = node.holders.map((held) => held.replica);
  const held = holders.length === 0 ? "held by no replica"
    : `held by ${holders.length === 1 ? "replica" : "replicas"} ${holders.join(", ")}`;
  return `Branch ${node.label ?? node.id.slice(0, 8)}, ${plural(node.tokens, "token")}, ${held}, `
    + `${percent(node.share)} of prompts`;
}

function drawBranch() {
  const node = tree.rows.find((row) => row.id === tree.chosen);
  if (!node) return;
  const box = $("branch");
  if (!box.parts) {
    const parts = [make("h3"), make("p"), make("p"), make("ul")];
    parts[3].setAttribute("aria-label", "Who holds it");
    box.append(...parts);
    box.parts = parts;
  }
  const [title, where, use, holders] = box.parts;
  setText(title, `Branch ${node.label ?? shortId(node.id)}`);
  const from = node.start_tokens;
  setText(where, from === 0
    ? `The first ${plural(node.tokens, "token")} of a prompt`
      + `${node.children.length ? `, after which it forks into ${node.children.length}` : ""}.`
    : `Tokens ${whole.format(from + 1)} to ${whole.format(from + node.tokens)} of a prompt.`);
  setText(use, `${plural(node.prompts, "prompt")} went through it, ${percent(node.share)} of the last minutes'; `
    + `first ${since(node.age_s)}, last ${since(node.used_s)}.`);
  const lines = node.holders.length ? node.holders : [null];
  slots(holders, lines, () => make("li", "", make("span"), make("span")), (line, held) => {
    setText(line.firstChild, held ? `Replica ${held.replica}` : "No replica");
    setText(line.lastChild, held ? holderWords(node, held) : "holds it now; the next prompt recomputes it.");
  });
}

function holderWords(node, held) {
  const lower = held.tokens - held.device_tokens;
  const all = held.tokens === node.tokens ? "all of it"
    : `${whole.format(held.tokens)} of ${whole.format(node.tokens)} tokens`;
  return lower > 0 ? `${all}, ${whole.format(lower)} in a lower tier` : `${all}, on the device`;
}
