// Metric panels. A panel is mounted when it comes near the screen; its data are min–max–last buckets that the
// server computes for the range shown, so zooming in shows more, and no spike is ever sampled away.
import { number } from "./format.js";
import { colour, currentTheme } from "./theme.js";

const BUCKETS = 240;
// The bundle's map library, which no chart here uses, writes a <style> as it loads unless an element with this id is
// there; our content policy would refuse that and log an error.
const MAP_STYLE = "9f215cf04c5486422605d13261cb87401f4e7763b6296af81e98efbc0130da53";
const plotly = (() => {
  let loading = null;
  return () => (loading ??= new Promise((resolve, reject) => {
    document.head.append(Object.assign(document.createElement("meta"), { id: MAP_STYLE }));
    const script = document.createElement("script");
    script.src = document.querySelector('meta[name="plotly"]').content;
    script.addEventListener("load", () => resolve(window.Plotly));
    script.addEventListener("error", () => reject(new Error("the chart library did not load")));
    document.head.append(script);
  }));
})();

const view = { log: false, smooth: 0 };
const panels = new Set();

class Panel {
  constructor(element) {
    this.element = element;
    this.plot = element.querySelector(".chart__plot");
    this.last = element.querySelector(".chart__last");
    this.series = JSON.parse(element.dataset.series);
    this.unit = element.dataset.unit ?? "";
    this.range = null;
    this.visible = false;
    this.dirty = true;
    this.busy = false;
    element.addEventListener("oc:refresh", () => this.invalidate());
  }

  invalidate() {
    this.dirty = true;
    if (this.visible) this.update();
  }

  async update() {
    if (this.busy || !this.dirty) return;
    this.busy = true;
    this.dirty = false;
    try {
      const url = new URL(this.element.dataset.url, location.href);
      url.searchParams.set("keys", this.series.map((s) => s.key).join(","));
      url.searchParams.set("buckets", BUCKETS);
      if (this.range) {
        url.searchParams.set("from", Math.floor(this.range[0]));
        url.searchParams.set("to", Math.ceil(this.range[1]));
      }
      const response = await fetch(url, { headers: { Accept: "application/json" } });
      if (!response.ok) throw new Error(`the server answered ${response.status}`);
      this.data = (await response.json()).series;
      await this.draw();
    } catch (error) {
      this.note(`Not updated: ${error.message}`);
    } finally {
      this.busy = false;
      if (this.dirty && this.visible) this.update();
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

  async draw() {
    const filled = this.series.filter((s) => this.data[s.key]?.length);
    if (!filled.length) {
      this.note("no values yet");
      return;
    }
    const Plotly = await plotly();
    if (!this.drawn) this.plot.replaceChildren();
    const traces = filled.flatMap((s) => this.traces(s, this.series.indexOf(s), filled.length));
    await Plotly.react(this.plot, traces, this.layout(filled.length > 1), { displayModeBar: false, responsive: true, doubleClick: false, showTips: false });
    if (!this.drawn) {
      this.drawn = true;
      this.plot.on("plotly_relayout", (change) => this.zoomed(change));
      this.plot.on("plotly_doubleclick", () => this.zoom(null));
    }
    const newest = this.data[filled[0].key].at(-1);
    if (this.last && !this.range) this.last.textContent = number(newest.last, this.unit);
    this.element.dataset.points = String(this.data[filled[0].key].length);
  }

  traces(series, index, count) {
    const rows = this.data[series.key];
    const x = rows.map((row) => row.step);
    const stroke = colour(`--series-${(index % 6) + 1}`);
    const band = stroke.replace("rgb(", "rgba(").replace(")", ", 0.16)");
    const smooth = smoothed(rows.map((row) => row.last), view.smooth);
    const line = {
      x, y: smooth, name: series.label, type: "scatter", mode: this.element.dataset.markers ? "lines+markers" : rows.length === 1 ? "markers" : "lines",
      line: { color: stroke, width: 1.75 }, marker: { color: stroke, size: 6 },
      hovertemplate: `%{y:.4~g}<extra>${count > 1 ? series.label : ""}</extra>`, showlegend: count > 1,
    };
    const wide = rows.some((row) => row.max > row.min) || view.smooth > 0;
    if (!wide) return [line];
    const edge = { x, type: "scatter", mode: "lines", line: { width: 0 }, hoverinfo: "skip", showlegend: false };
    const low = view.smooth ? rows.map((row) => row.last) : rows.map((row) => row.min);
    const high = view.smooth ? low : rows.map((row) => row.max);
    if (view.smooth) return [{ ...edge, y: low, line: { width: 1, color: band } }, line];
    return [{ ...edge, y: low }, { ...edge, y: high, fill: "tonexty", fillcolor: band }, line];
  }

  layout(legend) {
    const text = colour("--muted");
    const grid = colour("--line");
    const axis = { gridcolor: grid, zeroline: false, linecolor: grid, tickfont: { size: 10.5, color: text }, automargin: true };
    return {
      uirevision: "step", margin: { l: 40, r: 12, t: legend ? 22 : 8, b: 26 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 11, color: text }, hovermode: "x unified", dragmode: "zoom",
      hoverlabel: { bgcolor: colour("--surface"), bordercolor: grid, font: { color: colour("--text"), size: 11 } },
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 10.5 }, bgcolor: "rgba(0,0,0,0)" }, showlegend: legend,
      xaxis: { ...axis, type: "linear", fixedrange: false, tickformat: "~d" },
      yaxis: { ...axis, type: view.log ? "log" : "linear", fixedrange: true, tickformat: this.unit === "%" ? ".0~%" : "~g", rangemode: this.unit === "%" && !view.log ? "tozero" : "normal" },
    };
  }

  zoomed(change) {
    const [low, high] = change["xaxis.range"] ?? [change["xaxis.range[0]"], change["xaxis.range[1]"]];
    if (low !== undefined) this.zoom([Number(low), Number(high)]);
  }

  zoom(range) {
    this.range = range;
    if (!range) window.Plotly.relayout(this.plot, { "xaxis.autorange": true });
    this.invalidate();
  }

  redraw() {
    if (this.data && this.drawn) this.draw();
  }
}

// Exponential moving average over the whole bucket series, debiased, so that the start is not pulled to zero.
function smoothed(values, weight) {
  if (!weight) return values;
  let sum = 0;
  let mass = 0;
  return values.map((value) => {
    sum = weight * sum + (1 - weight) * value;
    mass = weight * mass + (1 - weight);
    return sum / mass;
  });
}

function toolbar() {
  for (const group of document.querySelectorAll("[data-chart-option]")) {
    group.addEventListener("click", (event) => {
      const button = event.target.closest("button[value]");
      if (!button) return;
      for (const other of group.querySelectorAll("button")) other.setAttribute("aria-pressed", String(other === button));
      const name = group.dataset.chartOption;
      view[name] = name === "smooth" ? Number(button.value) : button.value === "log";
      for (const panel of panels) panel.redraw();
    });
  }
  const search = document.querySelector("[data-chart-search]");
  search?.addEventListener("input", () => {
    const wanted = search.value.trim().toLowerCase();
    for (const panel of panels) {
      if (panel.element.dataset.further !== undefined) panel.element.hidden = !panel.element.dataset.search.includes(wanted);
    }
  });
}

export function start() {
  const observer = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) {
        const panel = [...panels].find((p) => p.element === target);
        panel.visible = isIntersecting;
        if (isIntersecting) panel.update();
      }
    },
    { rootMargin: "200px" },
  );
  for (const element of document.querySelectorAll("[data-chart]")) {
    panels.add(new Panel(element));
    observer.observe(element);
  }
  toolbar();
  let theme = currentTheme();
  document.addEventListener("oc:theme", () => {
    if (theme !== currentTheme()) for (const panel of panels) panel.redraw();
    theme = currentTheme();
  });
}
