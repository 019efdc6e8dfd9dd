// The sidebar: folded to its icons on request (boot.js applies it before the first paint), a drawer on phones. The run
// whose page this is, is marked among the recent ones.
const FOLDED = "collapsed";

function show() {
  const folded = document.documentElement.dataset.sidebar === FOLDED;
  for (const button of document.querySelectorAll("[data-sidebar-toggle]")) {
    const text = folded ? "Expand the sidebar" : "Collapse the sidebar";
    button.setAttribute("aria-expanded", String(!folded));
    button.setAttribute("aria-label", text);
    button.title = `${text} (Ctrl B)`;
  }
}

export function toggleSidebar() {
  const root = document.documentElement;
  if (root.dataset.sidebar === FOLDED) delete root.dataset.sidebar;
  else root.dataset.sidebar = FOLDED;
  try {
    localStorage.setItem("sidebar", root.dataset.sidebar ?? "");
  } catch {
    // Storage is blocked: the choice lasts for this page.
  }
  show();
  dispatchEvent(new Event("resize")); // charts fill what they now have
}

function mark() {
  const run = document.querySelector("[data-frame-run]")?.dataset.frameRun;
  const link = run && document.querySelector(`#recent-runs [data-run="${run}"]`);
  if (!link) return;
  link.setAttribute("aria-current", "true");
  // The status is pushed and this list is fetched: both say the step of the status.
  const [meter, steps] = [document.querySelector("#run-status progress"), link.querySelector("small")];
  if (meter && steps) steps.textContent = `${meter.value}/${meter.max}`;
}

export function startSidebar() {
  show();
  mark();
  document.addEventListener("click", ({ target }) => target.closest("[data-sidebar-toggle]") && toggleSidebar());
  document.addEventListener("htmx:afterSettle", mark);
  // A drawer that is open where the screen becomes wide would lie over the column that it is there.
  const drawer = document.getElementById("sidebar");
  matchMedia("(min-width: 64.0625rem)").addEventListener("change", ({ matches }) => matches && drawer?.matches(":popover-open") && drawer.hidePopover());
}
