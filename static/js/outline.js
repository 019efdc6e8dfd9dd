// The overview of a transcript: a strip with all turns at once, and a list of them of which only the rows on the screen exist.
// Both are drawn from the facts that came with the page (`rollouts/trajectory/overview.py`); no turn is read for them.
import { colour } from "./theme.js";

const ROW = 26; // pixels of a row of the list
const SPARE = 8; // rows beyond the edges of the list
const FAILED = 1;
const FOUND = 2;
const SUMMARY = 4;
const LEGEND = 8; // tools in the legend, those of most turns first
const LANES = { tools: [4, 14], errors: [21, 9], findings: [32, 9] }; // top and height in pixels

export function startOutline(page, { go, onScreen }) {
  const strip = page.querySelector("[data-strip]");
  const said = page.querySelector("[data-strip-says]");
  const legend = page.querySelector("[data-strip-legend]");
  const frame = page.querySelector("[data-rows]");
  const list = document.getElementById("outline");
  const facts = JSON.parse(strip.dataset.strip);
  let { tools, colours } = facts; // name and class `tool-N` of each tool, the same in every rollout
  let only = new Set();
  let rows = []; // indices of the turns in the list
  let current = -1; // the turn that was gone to
  let framed = 0; // the turn that the strip frames, and says: gone to, in the middle of the screen, or chosen by key
  let held = false; // the keys chose it and have not gone to it: scrolling leaves it
  let paint = null; // colours of this theme
  let asked = 0;

  const total = () => facts.flags.length;
  const has = (index, bit) => (facts.flags[index] & bit) !== 0;
  const names = (index) => facts.used[index].map((one) => tools[one]);

  function kinds(index) {
    const found = names(index).map((name) => `tool:${name}`);
    if (!found.length) found.push("messages");
    for (const [bit, name] of [[FAILED, "errors"], [FOUND, "findings"], [SUMMARY, "summaries"]]) if (has(index, bit)) found.push(name);
    return found;
  }
  const shown = (index) => !only.size || kinds(index).some((kind) => only.has(kind));

  function words(index) {
    const marks = [[FAILED, "error"], [FOUND, "finding"], [SUMMARY, "summary"]].filter(([bit]) => has(index, bit)).map(([, name]) => name);
    const segment = facts.segments[index] ? [`segment ${facts.segments[index]}`] : [];
    return `Turn ${index + 1}: ${[names(index).join(", ") || "message", ...marks, ...segment].join(" · ")}`;
  }

  // --- the strip ----------------------------------------------------------------------------------------------------

  // Tools by how many turns call them.
  function ranked() {
    const counts = new Map();
    for (const used of facts.used) for (const one of used) counts.set(one, (counts.get(one) ?? 0) + 1);
    return [...counts].sort((a, b) => b[1] - a[1]).slice(0, LEGEND).map(([one]) => one);
  }

  function prepare() {
    const most = ranked();
    paint = { tools: new Map([...new Set(colours)].map((one) => [one, colour(`--tool-${one}`)])) };
    for (const [name, from] of [["line", "--line"], ["edge", "--line-strong"], ["bad", "--bad"], ["warn", "--warn"], ["summary", "--summary"], ["raised", "--raised"], ["text", "--text"]]) paint[name] = colour(from);
    legend.replaceChildren(...most.map((one) => {
      const entry = document.createElement("span");
      const swatch = document.createElement("i");
      swatch.className = `tool-${colours[one]}`;
      entry.append(swatch, ` ${tools[one]}`);
      return entry;
    }));
    for (const [css, name] of [["strip-bad", "error"], ["strip-warn", "finding"], ["strip-summary", "summary"]]) {
      const entry = legend.appendChild(document.createElement("span"));
      entry.append(Object.assign(document.createElement("i"), { className: css }), ` ${name}`);
    }
  }

  function draw() {
    asked = 0;
    if (!paint) prepare();
    const { clientWidth: width, clientHeight: height } = strip;
    if (!width || !total()) return;
    const scale = devicePixelRatio || 1;
    strip.width = width * scale;
    strip.height = height * scale;
    const pen = strip.getContext("2d");
    pen.scale(scale, scale);
    const per = width / total();
    const x = (index) => index * per;
    const bar = Math.max(per - (per > 4 ? 1 : 0), 1);
    const box = ([top, tall], index, tone, wide = bar) => {
      pen.fillStyle = tone;
      pen.fillRect(x(index), top, wide, tall);
    };
    for (let index = 0; index < total(); index += 1) {
      if (facts.segments[index] % 2) box([0, height], index, paint.raised, per + 0.5);
    }
    for (let index = 0; index < total(); index += 1) {
      pen.globalAlpha = shown(index) ? 1 : 0.2;
      const [first] = facts.used[index];
      box(LANES.tools, index, first === undefined ? paint.line : paint.tools.get(colours[first]));
    }
    // Marks come last and are wide enough to be seen among thousands.
    for (let index = 0; index < total(); index += 1) {
      pen.globalAlpha = shown(index) ? 1 : 0.2;
      if (has(index, FAILED)) box(LANES.errors, index, paint.bad, Math.max(bar, 2));
      if (has(index, FOUND)) box(LANES.findings, index, paint.warn, Math.max(bar, 3));
      if (has(index, SUMMARY)) box([0, height], index, paint.summary, 2);
    }
    pen.globalAlpha = 1;
    pen.strokeStyle = paint.text;
    pen.lineWidth = 1.5;
    pen.strokeRect(x(framed) - 1.5, 1, Math.max(per, 2) + 3, height - 2);
  }

  const redraw = () => (asked ||= requestAnimationFrame(draw));

  function point(index) {
    framed = Math.max(0, Math.min(index, total() - 1));
    strip.setAttribute("aria-valuemax", total());
    strip.setAttribute("aria-valuenow", framed + 1);
    strip.setAttribute("aria-valuetext", words(framed));
    redraw();
  }

  const under = (event) => Math.floor(((event.clientX - strip.getBoundingClientRect().left) / strip.clientWidth) * total());
  strip.addEventListener("pointermove", (event) => {
    if (total()) said.textContent = words(Math.max(0, Math.min(under(event), total() - 1)));
  });
  strip.addEventListener("pointerleave", () => (said.textContent = ""));
  strip.addEventListener("click", (event) => total() && go(Math.max(0, Math.min(under(event), total() - 1))));
  strip.addEventListener("blur", () => (held = false));
  strip.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !total()) return;
    const moves = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 20, PageDown: -20, Home: -total(), End: total() };
    if (event.key === "Enter" || event.key === " ") go(framed);
    else if (event.key in moves) {
      held = true;
      point(framed + moves[event.key]);
      said.textContent = words(framed);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  });

  // --- the list -----------------------------------------------------------------------------------------------------

  function row(place) {
    const index = rows[place];
    const item = document.createElement("li");
    item.style.transform = `translateY(${place * ROW}px)`;
    item.setAttribute("aria-setsize", rows.length);
    item.setAttribute("aria-posinset", place + 1);
    item.classList.toggle("outline__segment", index > 0 && facts.segments[index] !== facts.segments[index - 1]);
    const link = item.appendChild(document.createElement("a"));
    link.href = `#t=${index}`;
    link.dataset.place = place;
    link.title = words(index);
    if (index === current) link.setAttribute("aria-current", "true");
    const number = link.appendChild(document.createElement("span"));
    number.className = "faint";
    number.textContent = index + 1;
    const text = link.appendChild(document.createElement("span"));
    text.className = `clip${has(index, FAILED) ? " err" : ""}`;
    const mark = has(index, FOUND) ? "● " : has(index, SUMMARY) ? "↪ " : "";
    text.textContent = `${mark}${names(index).join(", ") || "message"}`;
    return item;
  }

  function fill() {
    const first = Math.max(0, Math.floor(frame.scrollTop / ROW) - SPARE);
    const end = Math.min(rows.length, Math.ceil((frame.scrollTop + frame.clientHeight) / ROW) + SPARE);
    const focused = list.contains(document.activeElement) ? Number(document.activeElement.dataset.place) : null;
    list.style.height = `${rows.length * ROW}px`;
    list.replaceChildren(...Array.from({ length: Math.max(0, end - first) }, (_, i) => row(first + i)));
    if (focused !== null) list.querySelector(`[data-place="${focused}"]`)?.focus({ preventScroll: true });
  }

  function toRow(place) {
    const top = place * ROW;
    if (top < frame.scrollTop) frame.scrollTop = top;
    else if (top + ROW > frame.scrollTop + frame.clientHeight) frame.scrollTop = top + ROW - frame.clientHeight;
  }

  frame.addEventListener("scroll", () => requestAnimationFrame(fill), { passive: true });
  list.addEventListener("keydown", (event) => {
    const way = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20, Home: -rows.length, End: rows.length }[event.key];
    if (!way || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    const place = Math.max(0, Math.min(Number(event.target.dataset.place) + way, rows.length - 1));
    toRow(place);
    fill();
    list.querySelector(`[data-place="${place}"]`)?.focus({ preventScroll: true });
  });

  // --- for the page -------------------------------------------------------------------------------------------------

  function narrow(chosen) {
    only = new Set(chosen ? chosen.split(",") : []);
    rows = facts.flags.map((_, index) => index).filter(shown);
    fill();
    redraw();
  }

  function move(index, { gone = false } = {}) {
    if (gone) [current, held] = [index, false];
    if (held) return;
    // The turn that was gone to stays the one that is framed while it is on the screen.
    point(!gone && current >= 0 && onScreen(current) ? current : index);
    const place = rows.indexOf(framed);
    if (place >= 0) toRow(place);
    fill();
  }

  // What came since: turns from `since` on, for a rollout that grows.
  function grow(more) {
    ({ tools, colours } = more);
    for (const name of ["used", "flags", "segments"]) facts[name].splice(more.since, Infinity, ...more[name]);
    paint = null;
    narrow([...only].join(","));
  }

  // The next turn this way with an error, a finding or a summary; null when there is none.
  function marked(from, way) {
    for (let index = from + way; index >= 0 && index < total(); index += way) if (facts.flags[index] && shown(index)) return index;
    return null;
  }

  new ResizeObserver(redraw).observe(strip);
  new ResizeObserver(fill).observe(frame);
  document.addEventListener("oc:theme", () => {
    paint = null;
    redraw();
  });
  narrow(new URL(location.href).searchParams.get("only"));
  return { grow, known: total, marked, move, narrow };
}
