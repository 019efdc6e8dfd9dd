// Score against what it costs: a point an evaluation with its interval, a line through the levels of effort of one
// policy, and the front that nobody beats on both axes. With `data-pareto="plain"`, points alone: any number over another.
import { plotly } from "./plotly.js";
import { colour } from "./theme.js";

// The library would read tags in a name.
const plain = (text) => text.replace(/[<>&]/g, "·");

function traces(points, alone) {
  const policies = [...new Set(points.map((point) => point.policy))];
  const drawn = policies.map((policy, index) => {
    const own = points.filter((point) => point.policy === policy).sort((a, b) => a.x - b.x);
    const stroke = colour(`--series-${(index % 6) + 1}`);
    return {
      name: plain(policy), type: "scatter", mode: own.length > 1 && !alone ? "lines+markers" : "markers",
      x: own.map((point) => point.x), y: own.map((point) => point.y), text: own.map((point) => plain(point.name)),
      line: { color: stroke, width: 1.5 }, marker: { color: stroke, size: 9, symbol: own.map((point) => (point.front ? "diamond" : "circle")) },
      error_y: {
        type: "data", symmetric: false, color: stroke, thickness: 1, width: 3,
        array: own.map((point) => (point.high ?? point.y) - point.y), arrayminus: own.map((point) => point.y - (point.low ?? point.y)),
      },
      hovertemplate: `%{text}<br>%{y:${alone ? ".3~g" : ".1%"}} at %{x:.4~g}<extra></extra>`,
    };
  });
  if (alone) return drawn;
  const front = points.filter((point) => point.front).sort((a, b) => a.x - b.x);
  drawn.push({
    name: "Pareto front", type: "scatter", mode: "lines", x: front.map((point) => point.x), y: front.map((point) => point.y),
    line: { color: colour("--muted"), width: 1, dash: "dot", shape: "hv" }, hoverinfo: "skip",
  });
  return drawn;
}

function layout(element) {
  const text = colour("--muted");
  const grid = colour("--line");
  const alone = element.dataset.pareto === "plain";
  const axis = { gridcolor: grid, zeroline: false, linecolor: grid, tickfont: { size: 10.5, color: text }, automargin: true };
  return {
    margin: { l: 48, r: 12, t: 26, b: 40 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 11, color: text }, hovermode: "closest",
    hoverlabel: { bgcolor: colour("--surface"), bordercolor: grid, font: { color: colour("--text"), size: 11 } },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 10.5 }, bgcolor: "rgba(0,0,0,0)" }, showlegend: true,
    xaxis: { ...axis, title: { text: element.dataset.axis, font: { size: 11 } }, rangemode: alone ? "normal" : "tozero", tickprefix: element.dataset.unit },
    yaxis: alone ? { ...axis, title: { text: element.dataset.yaxis, font: { size: 11 } } } : { ...axis, tickformat: ".0%", range: [0, 1] },
  };
}

async function draw(element) {
  const plot = element.querySelector(".chart__plot");
  try {
    const Plotly = await plotly();
    plot.querySelector(".chart__wait")?.remove(); // it alone: another call may have drawn meanwhile
    await Plotly.react(plot, traces(JSON.parse(element.dataset.points), element.dataset.pareto === "plain"), layout(element), { displayModeBar: false, responsive: true, showTips: false });
    element.dataset.drawn = "1";
  } catch (error) {
    plot.textContent = `Not drawn: ${error.message}`;
  }
}

export function start() {
  const all = () => document.querySelectorAll("[data-pareto]").forEach(draw);
  all();
  document.addEventListener("oc:theme", all);
  document.addEventListener("htmx:afterSettle", all);
}
