"""What assistive technology is told of a page, and what must be among it."""

# Roles of what can be operated, and of regions and pictures: each needs a name.
NAMED = {
    "button", "link", "textbox", "searchbox", "checkbox", "combobox", "slider", "tab", "switch",
    "menuitem", "option", "treeitem", "tree", "list", "region", "complementary", "navigation",
    "image", "img", "graphics-document", "form", "group", "radiogroup", "dialog",
}


def nodes(page):
    """The whole accessibility tree: roles and names, without what is ignored."""
    session = page.context.new_cdp_session(page)
    told = session.send("Accessibility.getFullAXTree")["nodes"]
    session.detach()
    for node in told:
        if not node.get("ignored"):
            role = node.get("role", {}).get("value", "")
            yield role, (node.get("name", {}).get("value") or "").strip(), node


def nameless(page):
    """Roles of nodes that need a name and have none."""
    found = []
    for role, name, node in nodes(page):
        if role in NAMED and not name:
            found.append(f"{role} {node.get('backendDOMNodeId', '')}")
    return found


def named(page, role, name):
    return any(a == role and name in b for a, b, _ in nodes(page))


# Contrast of texts against what is painted behind them (WCAG 2.1), in the page.
CONTRASTS = """
() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const over = (top, below) => {
    const a = top[3] / 255;
    return [0, 1, 2].map((at) => top[at] * a + below[at] * (1 - a)).concat(255);
  };
  const behind = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      layers.push(rgba(getComputedStyle(at).backgroundColor));
      if (layers.at(-1)[3] === 255) break;
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 255]);
  };
  const luminance = ([r, g, b]) => {
    const part = (v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const poor = [];
  for (const element of document.querySelectorAll("body *")) {
    const hasText = [...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!hasText || !element.checkVisibility() || element.closest("svg, script, style, noscript")) continue;
    const below = behind(element);
    const ink = over(rgba(getComputedStyle(element).color), below);
    const [a, b] = [luminance(ink), luminance(below)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const size = parseFloat(getComputedStyle(element).fontSize);
    if (ratio < (size >= 24 ? 3 : 4.5)) {
      poor.push(`${element.tagName} "${element.textContent.trim().slice(0, 30)}" ${ratio.toFixed(2)}`);
    }
  }
  return poor;
}
"""


def poor_contrasts(page):
    return page.evaluate(CONTRASTS)
