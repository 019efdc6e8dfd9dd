// The chart library, loaded once and only where a chart is drawn.
// `static/plotly/plotly.min.js` is the basic bundle of plotly.js 4.1.1 (lines, bars, pies), unchanged, with its licence: a
// quarter of what the whole library weighs.
let loading = null;

export const plotly = () => (loading ??= new Promise((resolve, reject) => {
  const script = document.createElement("script");
  script.src = document.querySelector('meta[name="plotly"]').content;
  script.addEventListener("load", () => resolve(window.Plotly));
  script.addEventListener("error", () => reject(new Error("the chart library did not load")));
  document.head.append(script);
}));

// What a policy or a person called something, as text: the library would read tags in it.
export const plain = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;");
