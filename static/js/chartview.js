// How all charts of a page are shown: axis, scale, smoothing and zoom. The state lives in the URL, so that a link shows what its
// sender saw, and in the toolbar.
const DEFAULTS = { x: "step", y: "linear", smooth: "0", events: "on" };
const listeners = new Set();

export const view = { ...DEFAULTS, range: null };

export function onChange(listener) {
  listeners.add(listener);
}

function read() {
  const query = new URLSearchParams(location.search);
  for (const [name, usual] of Object.entries(DEFAULTS)) {
    const offered = [...document.querySelectorAll(`[data-chart-option="${name}"] button`)].map((b) => b.value);
    const asked = query.get(name);
    const slider = document.querySelector(`input[data-chart-range="${name}"]`);
    const fits = slider ? asked !== null && Number(asked) >= Number(slider.min) && Number(asked) <= Number(slider.max) : offered.includes(asked);
    view[name] = fits ? asked : usual;
  }
  const [low, high] = ["from", "to"].map((name) => (query.has(name) ? Number(query.get(name)) : NaN));
  view.range = Number.isFinite(low) && Number.isFinite(high) && low < high ? [low, high] : null;
}

function write() {
  const url = new URL(location.href);
  for (const [name, usual] of Object.entries(DEFAULTS)) {
    if (view[name] === usual) url.searchParams.delete(name);
    else url.searchParams.set(name, view[name]);
  }
  for (const [index, name] of ["from", "to"].entries()) {
    if (view.range) url.searchParams.set(name, String(view.range[index]));
    else url.searchParams.delete(name);
  }
  history.replaceState(history.state, "", url);
}

function show() {
  for (const group of document.querySelectorAll("[data-chart-option]")) {
    for (const button of group.querySelectorAll("button")) {
      button.setAttribute("aria-pressed", String(button.value === view[group.dataset.chartOption]));
    }
  }
  for (const button of document.querySelectorAll("[data-chart-reset]")) button.hidden = !view.range;
  for (const slider of document.querySelectorAll("input[data-chart-range]")) {
    slider.value = view[slider.dataset.chartRange];
    slider.nextElementSibling.textContent = Number(slider.value).toFixed(2);
  }
}

// `change` is part of the view; a new axis makes the zoom meaningless. Listeners learn whether other data are needed.
export function set(change) {
  const refetch = "range" in change || (change.x !== undefined && change.x !== view.x);
  if (change.x !== undefined && change.x !== view.x) view.range = null;
  Object.assign(view, change);
  write();
  show();
  for (const listener of listeners) listener(refetch);
}

export function startView() {
  read();
  show();
  for (const group of document.querySelectorAll("[data-chart-option]")) {
    group.addEventListener("click", (event) => {
      const button = event.target.closest("button[value]");
      if (button) set({ [group.dataset.chartOption]: button.value });
    });
  }
  for (const slider of document.querySelectorAll("input[data-chart-range]")) {
    slider.addEventListener("input", () => set({ [slider.dataset.chartRange]: String(Number(slider.value)) }));
  }
  for (const button of document.querySelectorAll("[data-chart-reset]")) {
    button.addEventListener("click", () => set({ range: null }));
  }
}
