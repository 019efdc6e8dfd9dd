// What happened in a run, on the axis of its charts: one request for all panels of a page, markers along the bottom.
import { colour } from "./theme.js";

const FRESH = 1500; // ms that an answer serves all panels; a hint refreshes them at most twice a second
const cache = new Map(); // address → {at, marks}

export const AXIS = { overlaying: "y", range: [0, 1], visible: false, fixedrange: true };

const KINDS = {
  sync: { symbol: "line-ns-open", size: 5, tone: "--faint" },
  checkpoint: { symbol: "square", size: 6, tone: "--muted" },
  eval: { symbol: "diamond", size: 7, tone: "--accent" },
  recovery: { symbol: "x", size: 7, tone: "--warn" },
  alert: { symbol: "triangle-up", size: 8, tone: "--bad" },
};

export function marksOf(address, axis) {
  const url = new URL(address, location.href);
  url.searchParams.set("axis", axis);
  const kept = cache.get(url.href);
  if (kept && performance.now() - kept.at < FRESH) return kept.marks;
  const marks = fetch(url, { headers: { Accept: "application/json" } }).then(async (response) => {
    if (!response.ok) throw new Error(`the server answered ${response.status}`);
    return (await response.json()).marks;
  });
  cache.set(url.href, { at: performance.now(), marks });
  return marks;
}

// One trace a kind; `last` is where the lines end: what came later must not stretch the axis.
export function markTraces(marks, unit, last) {
  return Object.entries(KINDS).flatMap(([kind, { symbol, size, tone }]) => {
    const mine = marks.filter((mark) => mark.kind === kind && mark.x <= last);
    if (!mine.length) return [];
    const stroke = colour(tone);
    return [{
      x: mine.map((mark) => mark.x / unit), y: mine.map(() => 0.03), yaxis: "y2", type: "scatter", mode: "markers", showlegend: false,
      marker: { symbol, size, color: stroke, line: { color: stroke, width: 1 } }, cliponaxis: false,
      hoverinfo: "skip", name: kind,
    }];
  });
}
