// The chart library, loaded once and only where a chart is drawn.
// Its map library, which no chart here uses, writes a <style> as it loads unless an element with this id is there; our
// content policy would refuse that and log an error.
const MAP_STYLE = "9f215cf04c5486422605d13261cb87401f4e7763b6296af81e98efbc0130da53";
let loading = null;

export const plotly = () => (loading ??= new Promise((resolve, reject) => {
  document.head.append(Object.assign(document.createElement("meta"), { id: MAP_STYLE }));
  const script = document.createElement("script");
  script.src = document.querySelector('meta[name="plotly"]').content;
  script.addEventListener("load", () => resolve(window.Plotly));
  script.addEventListener("error", () => reject(new Error("the chart library did not load")));
  document.head.append(script);
}));

// What a policy or a person called something, as text: the library would read tags in it.
export const plain = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;");
