// One cursor over all charts of a page. Pointing at a chart, or the arrow keys on it, shows a line at that place in each chart
// that is on the screen, and what each has there in its head and legend. A press on a chart opens the rollouts of that step.
const charts = new Map(); // area → its panel
let place = null; // {x, from, axis}: where the cursor is, in units of the axis
let asked = 0;

const MOVED = 4; // pixels from which a press is a drag

function show() {
  asked = 0;
  for (const panel of charts.values()) if (panel.visible && panel.drawn) panel.read(cursorAt(panel.axis));
}

function move(x, from) {
  place = x === null ? null : { x, from, axis: charts.get(from).axis };
  asked ||= requestAnimationFrame(show);
}

// Where the cursor is on charts with this axis.
export const cursorAt = (axis) => (place?.axis === axis ? place.x : null);

// `panel` has: plot (drawn by Plotly), axis, place.unit, nearest(x), step(x), open(step).
export function follow(area, panel) {
  if (charts.has(area)) return;
  charts.set(area, panel);
  const axis = () => panel.plot._fullLayout?.xaxis;
  const under = ({ clientX }) => {
    const found = axis();
    if (!found) return null;
    const pixel = clientX - panel.plot.getBoundingClientRect().left - found._offset;
    return pixel < 0 || pixel > found._length ? null : panel.nearest(found.p2l(pixel) * panel.place.unit);
  };
  let pressed = null;
  area.addEventListener("pointermove", (event) => panel.drawn && move(under(event), area));
  area.addEventListener("pointerleave", () => move(null, null));
  area.addEventListener("pointerdown", (event) => (pressed = event.button === 0 ? [event.clientX, event.clientY] : null), true);
  area.addEventListener("pointerup", (event) => {
    const still = pressed && Math.hypot(event.clientX - pressed[0], event.clientY - pressed[1]) < MOVED;
    pressed = null;
    const x = still && panel.drawn ? under(event) : null;
    if (x !== null) panel.open(x, event.ctrlKey || event.metaKey);
  }, true);
  area.addEventListener("keydown", (event) => {
    if (!panel.drawn || event.ctrlKey || event.metaKey || event.altKey || event.target !== area) return;
    const way = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
    if (way !== undefined) move(panel.beside(cursorAt(panel.axis), way), area);
    else if (event.key === "Enter" && cursorAt(panel.axis) !== null) panel.open(place.x, false);
    else if (event.key === "Escape") move(null, null);
    else return;
    event.preventDefault();
  });
  area.addEventListener("blur", () => place?.from === area && move(null, null));
}
