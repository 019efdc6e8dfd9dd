// The size of a chart, and the margins that the labels of its upright axes need.
const SETTLED = 200; // ms without a further change

// Margins as they were found before: finding them means measuring each label, a fifth of the time of an update.
export function fixMargin(layout, { l, r }) {
  Object.assign(layout.margin, { l, r });
  for (const axis of [layout.yaxis, layout.yaxis3]) if (axis) axis.automargin = false;
}

// Once the window, a panel or a full screen has its new size.
export function onResized(act) {
  let waiting = 0;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(act, SETTLED);
  });
  // A window that filled the screen already keeps its size, and says nothing.
  document.addEventListener("fullscreenchange", () => window.dispatchEvent(new Event("resize")));
}
