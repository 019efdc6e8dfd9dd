// Room for the labels at the sides of a chart. Plotly draws twice to find it; here it does so once, and again when labels get longer.
export const MARGIN = { l: 40, r: 12, t: 8, b: 34 };
const CONFIG = { displayModeBar: false, responsive: true, doubleClick: false, showTips: false };

// Draws, and returns what is known of the sides afterwards: {axes, longest, margin}. `known`: what it returned the last time.
export async function react(Plotly, plot, traces, layout, known) {
  const axes = Object.keys(layout).filter((name) => layout[name].automargin);
  const settled = known?.axes === axes.join();
  if (settled) {
    Object.assign(layout.margin, known.margin);
    for (const name of axes) layout[name].automargin = false;
  }
  await Plotly.react(plot, traces, layout, CONFIG);
  if (settled && longest(plot) <= known.longest) return known;
  if (settled) {
    Object.assign(layout.margin, MARGIN);
    for (const name of axes) layout[name].automargin = true;
    await Plotly.redraw(plot); // react would see too little of a change to look for room
  }
  const { l, r } = plot._fullLayout._size;
  return { axes: axes.join(), longest: longest(plot), margin: { l, r } };
}

const longest = (plot) =>
  [...plot.querySelectorAll(".ytick > text, .y3tick > text")].reduce((most, label) => Math.max(most, label.textContent.length), 0);
