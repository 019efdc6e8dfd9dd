// Metric panels. A panel is mounted when it comes near the screen; its data are min–max–last buckets that the
// server computes for the range shown, so zooming in shows more, and no spike is ever sampled away. A panel draws one
// run or lays several over each other.
import { around, closest, placement } from "./charts/axis.js";
import { cursorAt, follow } from "./charts/cursor.js";
import { grouped, groupsOf } from "./charts/groups.js";
import { legend, values } from "./charts/legend.js";
import { same, series } from "./charts/series.js";
import { fixMargin, onResized } from "./charts/size.js";
import { smoothed } from "./charts/smoothing.js";
import { allDrawn, inTurn } from "./charts/turns.js";
import { onChange, set, startView, view } from "./chartview.js";
import { number, unitless } from "./format.js";
import { AXIS, marksOf, markTraces } from "./marks.js";
import { plotly } from "./plotly.js";
import { state } from "./stream.js";
import { colour, currentTheme } from "./theme.js";

const BUCKETS = 240;
const MARKERS = 60; // most values of a line that have a mark each; of more, marks hide the line and cost time
const DASHES = ["solid", "dot", "dash", "dashdot"];

const panels = new Map(); // element → Panel

class Panel {
  constructor(element) {
    this.element = element;
    this.plot = element.querySelector(".chart__plot");
    this.area = element.querySelector(".chart__area");
    this.rule = element.querySelector(".chart__cursor");
    this.key = element.querySelector(".chart__legend");
    this.hidden = new Set(); // names of lines that the legend hides
    this.last = element.querySelector(".chart__last");
    this.series = JSON.parse(element.dataset.series);
    this.runs = JSON.parse(element.dataset.runs);
    this.groups = groupsOf(this.runs, this.series.map(({ key }) => key));
    this.drawnRuns = this.groups ?? this.runs; // what has a line of each series
    this.unit = element.dataset.unit ?? "";
    this.rightUnit = element.dataset.rightUnit ?? "";
    this.ownAxis = element.dataset.axis; // of a panel that has one axis only
    // A panel of a report has a smoothing and a zoom of its own, too; all others share those of the toolbar.
    this.own = element.dataset.smooth === undefined ? null : { ...view, x: this.ownAxis, smooth: element.dataset.smooth, range: null };
    this.visible = false;
    this.dirty = true;
    this.busy = false;
    element.addEventListener("oc:refresh", () => {
      if (!this.runs.every((run) => this.told(run))) this.invalidate();
    });
  }

  get view() {
    return this.own ?? view;
  }

  zoom(range) {
    if (!this.own) return set({ range });
    this.own.range = range;
    return this.invalidate();
  }

  get axis() {
    return this.ownAxis ?? view.x;
  }

  // Whether news of a run's values come by themselves (oc:points), now or in a moment; else hints make the panel refetch.
  told({ id }) {
    const held = state(id);
    return held === "waiting" || (held !== null && this.axis === "step" && this.series.every(({ key }) => key in held.series));
  }

  // What was pushed of a run, if it has all series of the panel over its axis.
  streamed({ id }) {
    const held = state(id);
    if (held === null || held === "waiting" || this.axis !== "step") return null;
    return this.series.every(({ key }) => key in held.series) ? held : null;
  }

  pushed({ run, all, keys, from, marks }) {
    const mine = this.runs.find(({ id }) => id === run);
    if (!mine || !(all || this.told(mine))) return;
    const touched = this.series.some(({ key }) => keys.has(key)) && !(this.view.range && from > this.view.range[1]);
    if (all || touched || (marks && this.runs.length === 1)) this.invalidate();
  }

  invalidate() {
    this.dirty = true;
    if (this.visible) this.update();
  }

  // The series of a run: in the range of the zoom, whose buckets are narrower than those that are pushed, or all of it.
  fetch(run, range) {
    const held = range ? null : this.streamed(run);
    if (held) return held.series;
    const url = new URL(run.url, location.href);
    url.searchParams.set("buckets", BUCKETS);
    url.searchParams.set("axis", this.axis);
    if (range) {
      url.searchParams.set("from", range[0]);
      url.searchParams.set("to", range[1]);
    }
    return series(url, this.series.map((s) => s.key));
  }

  async update() {
    if (this.busy || !this.dirty) return;
    this.busy = true;
    this.dirty = false;
    try {
      const [single] = this.runs.length === 1 && this.runs[0].marks ? this.runs : [];
      const marks = single ? (this.streamed(single)?.marks ?? marksOf(single.marks, this.axis)) : [];
      const { range } = this.view;
      const shown = this.runs.map((run) => this.fetch(run, range));
      const whole = range ? this.runs.map((run) => this.fetch(run, null)) : shown;
      this.marks = await marks;
      [this.data, this.whole] = await Promise.all([Promise.all(shown), Promise.all(whole)]);
      if (this.groups) {
        const keys = this.series.map((s) => s.key);
        [this.data, this.whole] = [this.data, this.whole].map((data) => grouped(this.groups, data, keys));
      }
      // What was fetched first is pushed a moment later: the same values are not drawn twice.
      const shows = { axis: this.axis, range, marks: this.marks, rows: this.lines().map((line) => [line.run.id, line.series.key, line.rows]) };
      if (!this.drawn || !same(shows, this.shows)) await inTurn(() => this.draw());
      this.shows = shows;
      this.element.removeAttribute("title"); // of an update that failed
    } catch (error) {
      this.note(`Not updated: ${error.message}`);
    } finally {
      this.busy = false;
      // Once all that wait are drawn: those that have to ask again then share a request.
      if (this.dirty && this.visible) allDrawn().then(() => this.update());
    }
  }

  note(text) {
    if (this.drawn) {
      this.element.title = text;
      return;
    }
    const wait = document.createElement("div");
    wait.className = "chart__wait";
    wait.textContent = text;
    this.plot.replaceChildren(wait);
  }

  // [{run, series, rows}] of all lines that have values.
  lines() {
    return this.drawnRuns.flatMap((run, r) => this.series.map((series, s) => ({ run, r, series, s, rows: this.data[r][series.key] ?? [] }))).filter((l) => l.rows.length);
  }

  async draw() {
    const lines = this.lines();
    if (!lines.length && !this.drawn) {
      this.note(this.view.range || this.axis !== "step" ? "no values in this range" : "no values yet");
      return;
    }
    const Plotly = await plotly();
    if (!this.drawn) this.plot.replaceChildren();
    const place = placement(lines.flatMap((l) => l.rows.map((row) => row.x)), this.axis);
    const shown = lines.filter((line) => !this.hidden.has(this.name(line)));
    const last = lines.reduce((most, line) => Math.max(most, line.rows.at(-1).x), 0);
    const events = this.view.events === "on" && lines.length ? markTraces(this.marks, place.unit, last) : [];
    const layout = this.layout(place, shown, events.length > 0);
    const labels = this.labels();
    if (this.margin?.labels === labels) fixMargin(layout, this.margin);
    await Plotly.react(this.plot, [...shown.flatMap((line) => this.traces(line, place)), ...events], layout, {
      displayModeBar: false, responsive: true, doubleClick: false, showTips: false,
    });
    const { l, r } = this.plot._fullLayout._size;
    this.margin = { labels, l, r };
    this.place = place;
    if (!this.drawn) {
      this.drawn = true;
      this.plot.on("plotly_relayout", (change) => this.zoomed(change));
      this.plot.on("plotly_doubleclick", () => this.zoom(null));
      follow(this.area, this);
    }
    this.shownLines = lines;
    if (this.key) {
      const keys = lines.map((line) => ({ name: this.name(line), css: `swatch swatch--${this.number(line)}${this.dash(line)}` }));
      legend(this.key, keys, { hidden: this.hidden, toggled: () => inTurn(() => this.draw()) });
    }
    this.plot.setAttribute("aria-label", lines.map((l) => `${this.name(l)} ${number(l.rows.at(-1).last, this.unitOf(l))}`).join(", "));
    this.element.dataset.points = String(lines[0]?.rows.length ?? 0);
    this.read(cursorAt(this.axis));
  }

  // --- the cursor ---------------------------------------------------------------------------------------------------

  // The place of the nearest value of any line that is shown.
  nearest(x) {
    let best = null;
    for (const { rows } of this.shownLines) {
      const row = rows[closest(rows, x)];
      if (best === null || Math.abs(row.x - x) < Math.abs(best - x)) best = row.x;
    }
    return best;
  }

  // The value before or after a place on the first line; its ends for an infinite way.
  beside(x, way) {
    const [line] = this.shownLines;
    if (!line) return null;
    const last = line.rows.length - 1;
    if (!Number.isFinite(way)) return line.rows[way < 0 ? 0 : last].x;
    const at = x === null ? last - Math.min(way, 0) : closest(line.rows, x);
    return line.rows[Math.max(0, Math.min(at + way, last))].x;
  }

  // Head and legend say what is at the cursor, without one what came last.
  read(x) {
    if (!this.shownLines?.length) return;
    const rows = this.shownLines.map((line) => (x === null ? line.rows.at(-1) : line.rows[closest(line.rows, x)]));
    const texts = this.shownLines.map((line, index) => number(rows[index].last, this.unitOf(line)));
    if (this.key) values(this.key, texts);
    // A head with a long title has room for the number; the legend names its unit.
    const first = this.key ? unitless(rows[0].last, this.unitOf(this.shownLines[0])) : texts[0];
    const single = this.shownLines.length === 1 || (this.drawnRuns.length === 1 && (this.own || !this.ownAxis));
    const mark = x === null ? null : this.marks?.find((one) => Math.abs(one.x - x) < this.spacing() / 2);
    const step = x === null ? "" : rows[0].step === undefined ? `${number(x / this.place.unit)}${this.place.suffix}` : `step ${rows[0].step}`;
    this.last.textContent = [step, x === null && this.view.range ? "" : single ? first : "", mark?.text ?? ""].filter(Boolean).join(" · ");
    const axis = this.plot._fullLayout?.xaxis;
    this.rule.hidden = x === null || !axis;
    if (!this.rule.hidden) this.rule.style.transform = `translateX(${axis._offset + axis.l2p(x / this.place.unit)}px)`;
  }

  spacing() {
    const [{ rows }] = this.shownLines;
    return rows.length > 1 ? (rows.at(-1).x - rows[0].x) / (rows.length - 1) : 1;
  }

  // The rollouts of the step under the cursor, of the run whose line is nearest.
  open(x, tab) {
    const line = this.shownLines.find(({ run }) => run.rollouts);
    if (!line) return;
    const { step } = line.rows[closest(line.rows, x)];
    const url = new URL(line.run.rollouts, location.href);
    url.searchParams.set("step_min", step);
    url.searchParams.set("step_max", step);
    if (tab) window.open(url, "_blank", "noopener");
    else location.assign(url);
  }

  // The number of a line's colour: its run's where several are shown, else its series'.
  number({ r, s }) {
    return ((this.drawnRuns.length > 1 ? r : s) % 6) + 1;
  }

  // The legend shows a line's dashes where they tell the series of a run apart.
  dash({ s }) {
    if (this.drawnRuns.length < 2 || this.series.length < 2) return "";
    return ` swatch--line swatch--${DASHES[s % DASHES.length]}`;
  }

  unitOf({ series }) {
    return series.right ? this.rightUnit : this.unit;
  }

  // What a line is called: its series, its run, or both where both vary. An arrow points to the axis at the right.
  name({ run, series }) {
    if (this.drawnRuns.length === 1 && !this.groups) return series.right ? `${series.label} →` : series.label;
    return this.series.length === 1 ? run.name : `${run.name}, ${series.label}`;
  }

  traces(shown, place) {
    const { run, r, series, s, rows } = shown;
    const x = rows.map((row) => row.x / place.unit);
    const overlay = this.drawnRuns.length > 1;
    const stroke = colour(`--series-${this.number(shown)}`);
    const band = stroke.replace("rgb(", "rgba(").replace(")", ", 0.16)");
    const weight = this.element.dataset.markers ? 0 : Number(this.view.smooth); // single points far apart stay what they are
    const name = this.name({ run, series });
    const side = series.right ? { yaxis: "y3" } : {};
    const line = {
      x, y: smoothed(rows, this.whole[r][series.key] ?? rows, weight), name, type: "scatter",
      mode: this.element.dataset.markers && rows.length <= MARKERS ? "lines+markers" : rows.length === 1 ? "markers" : "lines",
      line: { color: stroke, width: 1.75, dash: overlay ? DASHES[s % DASHES.length] : "solid" }, marker: { color: stroke, size: 6 },
      hoverinfo: "skip", ...side,
    };
    const below = { ...side, x, type: "scatter", mode: "lines", line: { width: 1, color: band }, hoverinfo: "skip" };
    const spread = rows.some((row) => row.max > row.min);
    if (weight && !spread) return [{ ...below, y: rows.map((row) => row.last) }, line];
    if (!spread) return [line];
    // One outline, there and back: every trace costs a chart some milliseconds.
    const edge = [...rows.map((row) => row.max), ...rows.map((row) => row.min).reverse()];
    return [{ ...below, x: [...x, ...x.toReversed()], y: edge, line: { width: 0 }, fill: "toself", fillcolor: band }, line];
  }

  layout(place, lines, marked) {
    const text = colour("--muted");
    const grid = colour("--line");
    const axis = { gridcolor: grid, zeroline: false, linecolor: grid, tickfont: { size: 10.5, color: text }, ticklabeloverflow: "allow" };
    const upright = (unit) => ({
      ...axis, type: this.view.y, fixedrange: true, nticks: this.plot.clientHeight > 300 ? 0 : 5, tickformat: unit === "%" ? ".0~%" : unit.startsWith("bytes") ? "~s" : "~g",
      automargin: true, rangemode: unit === "%" && this.view.y === "linear" ? "tozero" : "normal",
    });
    const zoom = this.view.range?.map((edge) => edge / place.unit);
    const range = zoom ? { range: zoom } : around(lines, place);
    const ends = zoom ?? range.range;
    // Steps are whole: an axis of few of them has a tick each, never one between.
    const whole = this.axis === "step" && ends && ends[1] - ends[0] < 8 ? { tickmode: "linear", dtick: 1, tick0: 0 } : {};
    const flat = (right) => {
      const mine = lines.filter((line) => Boolean(line.series.right) === right).flatMap((line) => line.rows);
      // A series that never leaves zero has no −1 below it.
      return this.view.y === "linear" && mine.length && mine.every((row) => row.min === 0 && row.max === 0) ? { range: [0, 1], autorange: false } : {};
    };
    return {
      margin: { l: 40, r: 12, t: this.element.querySelector(".chart__unit") ? 20 : 8, b: 34 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 11, color: text }, hovermode: false, dragmode: "zoom", showlegend: false,
      xaxis: { ...axis, title: { text: place.title, font: axis.tickfont }, ...range, ...whole, type: "linear", fixedrange: false, tickformat: place.format, ticksuffix: place.suffix },
      yaxis: { ...upright(this.unit), ...flat(false) },
      ...(marked ? { yaxis2: AXIS } : {}),
      ...(this.rightUnit || this.series.some(({ right }) => right)
        ? { yaxis3: { ...upright(this.rightUnit), ...flat(true), overlaying: "y", side: "right", showgrid: false, tickmode: "auto" } } : {}),
    };
  }

  // What the labels of the upright axes depend on: while that stays, so do the margins.
  labels() {
    const lines = this.lines().filter((line) => !this.hidden.has(this.name(line)));
    const ends = [false, true].map((right) => {
      const rows = lines.filter(({ series }) => Boolean(series.right) === right).flatMap((line) => line.rows);
      return rows.reduce(([low, high], row) => [Math.min(low, row.min), Math.max(high, row.max)], [Infinity, -Infinity]);
    });
    return [ends, this.view.y, this.view.smooth, this.plot.clientWidth, this.plot.clientHeight].join();
  }

  zoomed(change) {
    const [low, high] = change["xaxis.range"] ?? [change["xaxis.range[0]"], change["xaxis.range[1]"]];
    if (low === undefined) return;
    const digits = this.axis === "time" ? 1 : 0;
    const round = (value, to) => Number((to(value * this.place.unit * 10 ** digits) / 10 ** digits).toFixed(digits));
    this.zoom([round(Number(low), Math.floor), round(Number(high), Math.ceil)]);
  }
}

function redraw() {
  for (const panel of panels.values()) if (panel.data && panel.drawn) inTurn(() => panel.draw());
}

function search({ target }) {
  if (!target.matches("[data-chart-search]")) return;
  const wanted = target.value.trim().toLowerCase();
  for (const { element } of panels.values()) {
    if (element.dataset.further !== undefined) element.hidden = !element.dataset.search.includes(wanted);
  }
}

// A panel over the whole screen and back.
async function enlarge(button) {
  const panel = button.closest(".chart");
  if (document.fullscreenElement) await document.exitFullscreen();
  else await panel.requestFullscreen();
}

export function start() {
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-chart-enlarge]");
    if (button) enlarge(button);
    const add = event.target.closest("[data-add-to-report]");
    if (add) import("./charts/addtoreport.js").then(({ addToReport }) => addToReport(add));
  });
  plotly().catch(() => {}); // it loads while the values come; draw() says if it does not
  startView();
  document.addEventListener("oc:points", ({ detail }) => panels.forEach((panel) => panel.pushed(detail)));
  onChange((refetch) => (refetch ? panels.forEach((panel) => panel.invalidate()) : redraw()));
  const observer = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) {
        const panel = panels.get(target);
        if (!panel) continue; // it has left the page
        panel.visible = isIntersecting;
        if (isIntersecting) panel.update();
      }
    },
    { rootMargin: "200px" },
  );
  const adopt = () => {
    for (const element of panels.keys()) if (!element.isConnected && panels.delete(element)) observer.unobserve(element);
    for (const element of document.querySelectorAll("[data-chart]")) {
      if (panels.has(element)) continue;
      panels.set(element, new Panel(element));
      observer.observe(element);
    }
  };
  adopt();
  document.addEventListener("htmx:afterSettle", adopt); // those behind “more metrics” come when it is opened
  document.addEventListener("input", search);
  onResized(() => {
    for (const panel of panels.values()) if (panel.drawn && panel.margin.labels !== panel.labels()) inTurn(() => panel.draw());
  });
  let theme = currentTheme();
  document.addEventListener("oc:theme", () => {
    if (theme !== currentTheme()) redraw();
    theme = currentTheme();
  });
}
