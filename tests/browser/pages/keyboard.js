// Walking a page by Tab: which controls there are, to which the focus came, and where it could not be seen.
() => {
  const STOPS = "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']";
  const say = (element) => element.outerHTML.slice(0, 140).replace(/\s+/g, " ");
  const shown = (element) => element.checkVisibility({ opacityProperty: true, visibilityProperty: true, contentVisibilityAuto: true });
  const reached = new Map(); // control → whether the focus was there
  const seen = new Set(); // ids of those to which it came: a part of the page may be exchanged afterwards

  function mark() {
    for (const element of document.querySelectorAll(STOPS)) {
      const byArrows = element.type === "radio" && !element.checked;
      if (shown(element) && !element.disabled && !byArrows && !reached.has(element)) reached.set(element, false);
    }
  }

  // Sides of the ring around the focus that an edge of something around it cuts off.
  function cut(element) {
    const { outlineStyle, outlineWidth, outlineOffset } = getComputedStyle(element);
    if (outlineStyle === "none" || parseFloat(outlineWidth) < 2) return ["the whole ring"];
    const out = parseFloat(outlineOffset) + 1;
    const box = element.getBoundingClientRect();
    const ring = { left: box.left - out, top: box.top - out, right: box.right + out, bottom: box.bottom + out };
    const sides = new Set();
    const within = (left, top, right, bottom) => {
      if (ring.left < left) sides.add("left");
      if (ring.top < top) sides.add("top");
      if (ring.right > right) sides.add("right");
      if (ring.bottom > bottom) sides.add("bottom");
    };
    within(0, 0, innerWidth, innerHeight);
    for (let node = element.parentElement; node && node !== document.body; node = node.parentElement) {
      const { overflow, display } = getComputedStyle(node);
      if (overflow === "visible" || display === "contents") continue;
      const edge = node.getBoundingClientRect();
      const [left, top] = [edge.left + node.clientLeft, edge.top + node.clientTop];
      within(left, top, left + node.clientWidth, top + node.clientHeight);
    }
    return [...sides];
  }

  function covered(element) {
    const box = element.getClientRects()[0];
    const middle = element.matches("textarea, pre") ? box.top + 12 : (box.top + box.bottom) / 2; // of its first line
    const above = document.elementFromPoint((box.left + box.right) / 2, middle);
    return !above ? "nothing" : element.contains(above) || above.contains(element) ? "" : say(above);
  }

  // What is wrong where the focus is now, and what it is on; null when it has left the page.
  function look() {
    mark();
    const element = document.activeElement;
    if (!element || element === document.body) return null;
    reached.set(element, true);
    if (element.id) seen.add(element.id);
    const wrong = [];
    const sides = cut(element);
    if (sides.length > 1) wrong.push(`the focus is not seen (${sides.join(", ")}): ${say(element)}`);
    else if (covered(element)) wrong.push(`the focus is covered: ${say(element)} by ${covered(element)}`);
    return { wrong, folded: element.matches("details:not([open]) > summary"), ticksAll: element.matches("[data-tick-all]:not(:checked)") };
  }

  const missed = () => [...reached].filter(([element, was]) => !was && !seen.has(element.id) && element.isConnected && shown(element)).map(([element]) => `Tab does not lead to ${say(element)}`);
  window.keyboard = { look, missed };
}
