// What the server pushes of the runs that a page shows: the series of their headline charts, the marks on the axes, and
// parts of the page. A message says what it builds on; one that does not fit is answered by asking for everything again.
import { keepFocus } from "./focus.js";

const runs = new Map(); // run → {seq, series, marks}; null until everything was told
const kept = new Map(); // name of a part → HTML that waits for a menu to be closed

export const watches = () =>
  [...document.querySelectorAll("[data-watch]")].flatMap((element) =>
    element.dataset.watch.split(" ").filter(Boolean).map((run) => ({ run: Number(run), parts: element.dataset.watchParts !== undefined })),
  );

// From here on pushes are expected, and nobody refetches on a hint what a push will bring.
export function expect() {
  runs.clear();
  for (const { run } of watches()) runs.set(run, null);
}

export function forget() {
  runs.clear();
}

// Whether what this element shows comes by itself.
export const pushed = (element) => element.dataset.push !== undefined && runs.size > 0;

// null: not from here. "waiting": in a moment. Else the state.
export function state(run) {
  return runs.has(run) ? (runs.get(run) ?? "waiting") : null;
}

const patched = (list, [keep, rest], shape) => [...list.slice(0, keep), ...rest.map(shape)];
const toRow = ([step, min, max, last]) => ({ x: step, step, min, max, last });
const toMark = ([x, step, kind, text]) => ({ x, step, kind, text });

// Takes a message over; false when it builds on something else than what is here.
export function take(message) {
  if (!runs.has(message.run)) return true; // of before a pause
  if (message.parts) {
    for (const [name, html] of Object.entries(message.parts)) swap(name, html);
    return true;
  }
  const held = message.base === null ? { series: {}, marks: [] } : runs.get(message.run);
  if (!held || (message.base !== null && message.base !== held.seq)) return false;
  const series = { ...held.series };
  let from = Infinity; // the lowest step that changed
  for (const [key, tail] of Object.entries(message.series ?? {})) {
    series[key] = patched(series[key] ?? [], tail, toRow);
    from = Math.min(from, series[key][tail[0] - 1]?.step ?? -Infinity);
  }
  const marks = message.marks ? patched(held.marks, message.marks, toMark) : held.marks;
  runs.set(message.run, { seq: message.seq, series, marks });
  const detail = { run: message.run, all: message.base === null, keys: new Set(Object.keys(message.series ?? {})), from, marks: Boolean(message.marks) };
  document.dispatchEvent(new CustomEvent("oc:points", { detail }));
  return true;
}

function swap(name, html) {
  const target = document.querySelector(`[data-push="${name}"]`);
  if (!target) return;
  kept.delete(name);
  if (target.querySelector("details.menu[open], :popover-open")) {
    kept.set(name, html);
    return;
  }
  const refocus = keepFocus(target);
  window.htmx.swap(target, html, { swapStyle: "outerHTML" });
  refocus();
  // One text serves everybody; the token of this browser stands in every page's log-out form.
  const token = document.querySelector("input[name='csrfmiddlewaretoken']");
  for (const form of document.querySelectorAll(`[data-push="${name}"] form[method='post']`)) form.prepend(token.cloneNode());
}

export function startStream() {
  document.addEventListener(
    "toggle",
    ({ target }) => {
      if (target.open) return;
      for (const [name, html] of [...kept]) swap(name, html);
    },
    true,
  );
}
