// What a person with weak sight, a keyboard or a narrow screen would stumble over on this page, as a list of sentences.
() => {
  const found = [];
  const say = (what, element) => found.push(`${what}: ${element.outerHTML.slice(0, 140).replace(/\s+/g, " ")}`);
  const shown = (element) => element.checkVisibility({ opacityProperty: true, visibilityProperty: true, contentVisibilityAuto: true });

  if (document.documentElement.scrollWidth > innerWidth) found.push(`the page scrolls sideways: ${document.documentElement.scrollWidth} > ${innerWidth}`);
  if (document.querySelectorAll("h1").length !== 1 && !document.querySelector(".gate")) found.push(`${document.querySelectorAll("h1").length} headings of level 1`);
  for (const head of document.querySelectorAll("table > thead")) {
    const moved = head.querySelector("th")?.getBoundingClientRect().top - head.getBoundingClientRect().top;
    if (shown(head) && !scrollY && Math.abs(moved) > 1) say(`head of a table ${moved} px from its place`, head.parentElement);
  }
  const ids = new Set();
  for (const { id } of document.querySelectorAll("[id]")) {
    if (ids.has(id)) found.push(`id ${id} occurs twice`);
    ids.add(id);
  }
  for (const element of document.querySelectorAll("[tabindex]")) if (element.tabIndex > 0) say("positive tabindex", element);
  for (const element of document.querySelectorAll("img:not([alt])")) say("image without alt", element);

  const name = (element) =>
    (element.getAttribute("aria-label") ?? "") + [...(element.labels ?? [])].map((l) => l.textContent).join("") +
    (element.getAttribute("aria-labelledby") ?? "") + element.textContent + (element.querySelector("[aria-label]") ? "x" : "") +
    (element.title ?? "") + (element.type === "submit" ? element.value : "");
  for (const element of document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary, [role=button]")) {
    if (shown(element) && !element.closest("[data-foreign]") && !name(element).trim()) say("control without a name", element);
  }

  // Contrast of every visible text with what lies behind it (WCAG 2.2, 1.4.3).
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const known = new Map();
  const rgba = (colour) => {
    if (!known.has(colour)) {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = colour;
      canvas.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
      known.set(colour, [r, g, b, a / 255]);
    }
    return known.get(colour);
  };
  const over = ([r, g, b, a], [x, y, z]) => [r * a + x * (1 - a), g * a + y * (1 - a), b * a + z * (1 - a)];
  const behind = (element) => {
    const layers = [];
    for (let node = element; node; node = node.parentElement) {
      const colour = rgba(getComputedStyle(node).backgroundColor);
      if (colour[3]) layers.push(colour);
      if (colour[3] === 1) break;
    }
    return layers.reduceRight((below, layer) => over(layer, below), rgba(getComputedStyle(document.body).backgroundColor));
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const seen = new Set();
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement;
    if (!walk.currentNode.textContent.trim() || seen.has(element)) continue;
    seen.add(element);
    if (element.closest("svg, option, [disabled], [data-foreign]") || !shown(element)) continue;
    const style = getComputedStyle(element);
    const ground = behind(element);
    const ink = over(rgba(style.color), ground);
    const [a, b] = [light(ink), light(ground)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5)) say(`contrast ${ratio.toFixed(2)}`, element);
  }
  return found;
}
