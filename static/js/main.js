// Entry of every page: always-on behaviour, then the modules that this page's elements ask for.
import { startConfirm } from "./confirm.js";
import { copy } from "./copy.js";
import { startEdits } from "./edits.js";
import { startFailures } from "./failures.js";
import { startDrawer } from "./frame/drawer.js";
import { startShortcuts } from "./frame/shortcuts.js";
import { startSidebar } from "./frame/sidebar.js";
import { startTimes } from "./frame/times.js";
import { startToasts, toast } from "./frame/toast.js";
import { startLive } from "./live.js";
import { startTheme } from "./theme.js";

startTheme();
startTimes();
startFailures();
startEdits();
startLive();
startConfirm();
startSidebar();
startDrawer();
startShortcuts();
startToasts();

const pages = {
  "[data-chart]": () => import("./chart.js"),
  "[data-grid]": () => import("./charts/grid.js"),
  "[data-report-editor]": () => import("./reporteditor.js"),
  "[data-pareto]": () => import("./pareto.js"),
  "[data-trajectory]": () => import("./trajectory.js"),
  "[data-ways]": () => import("./ways.js"),
  "[data-partial]": () => import("./partial.js"),
  "[data-run-form]": () => import("./form/form.js"),
  "[data-bulk]": () => import("./select.js"),
  "[data-columns]": () => import("./columns.js"),
  "[data-rows-open]": () => import("./table/rows.js"),
  "#rows thead": () => import("./table/resize.js"),
  "[data-review]": () => import("./review.js"),
  "[data-questions]": () => import("./labels.js"),
  "[data-question-editor]": () => import("./questions.js"),
  "[data-key]": () => import("./keys.js"),
  "[data-api-docs]": () => import("./apidocs.js"),
  "#refused": () => import("./refused.js"),
};
const started = new Set();
function startModules() {
  for (const [selector, load] of Object.entries(pages)) {
    if (started.has(selector) || !document.querySelector(selector)) continue;
    started.add(selector);
    load().then((module) => module.start());
  }
}
startModules();
// A refresh may bring what the page did not have at first, such as the first score of a release.
document.addEventListener("htmx:afterSettle", startModules);

// An address may name a drawer, which then is open.
function openNamed() {
  const named = document.getElementById(location.hash.slice(1));
  if (named?.matches("details.drawer")) named.open = true;
}
openNamed();
addEventListener("hashchange", openNamed);

// A menu closes when the click or the focus goes elsewhere, or on Escape; what it asks in a dialog is still its own.
const openMenus = () => document.querySelectorAll(":is(details.menu, details.hint)[open]");
function closeOthers({ target }) {
  if (!target.closest("dialog")) for (const menu of openMenus()) if (!menu.contains(target)) menu.open = false;
}
// It hangs from its button's right edge, or from the left one where it would leave the screen.
function place({ target }) {
  if (!target.matches("details.menu[open]")) return;
  const panel = target.querySelector(".menu__panel");
  panel.classList.remove("menu__panel--rightwards");
  panel.classList.toggle("menu__panel--rightwards", panel.getBoundingClientRect().left < 0);
}
document.addEventListener("toggle", place, true);
document.addEventListener("click", closeOthers);
document.addEventListener("focusin", closeOthers);
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const menu of openMenus()) {
    if (menu.contains(document.activeElement)) menu.querySelector("summary").focus();
    menu.open = false;
  }
});

// A part that a person has a menu open in is not replaced under their hand; the next hint refreshes it. The answer to what they
// chose in that menu does replace it.
document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.requestConfig.verb !== "get") return;
  if (event.detail.target.querySelector?.(":is(details.menu, details.hint)[open], :popover-open")) event.detail.shouldSwap = false;
});

// Selects that submit their form, and filters that apply at once.
document.addEventListener("change", (event) => {
  if (event.target.matches("[data-submit], form[data-apply] :is(input, select)")) event.target.form.requestSubmit();
});

// Filters: empty fields stay out of the URL.
document.addEventListener("formdata", (event) => {
  if (!event.target.matches("form[data-filters]")) return;
  for (const [name, value] of [...event.formData.entries()]) if (value === "") event.formData.delete(name);
});

// Commands to copy. What a form of a menu has chosen takes the place of {its name}, and this page's origin that of {origin}.
document.addEventListener("click", async ({ target }) => {
  const button = target.closest("[data-snippet]");
  if (!button) return;
  const chosen = (whole, name) => (name === "origin" ? location.origin : button.form?.elements[name]?.value ?? whole);
  await copy(button.dataset.snippet.replace(/\{(what|format|origin)\}/g, chosen));
  toast("Command copied");
});

// Copy buttons: the text of the element that `data-copy` names, or of the <pre> beside the button.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const source = document.getElementById(button.dataset.copy) ?? button.closest(".io, .card").querySelector("pre");
  await copy(source.textContent.trim());
  toast("Copied");
});

// What tests wait for before they press a key: every key of the frame is heard from here on.
document.documentElement.dataset.ready = "";
