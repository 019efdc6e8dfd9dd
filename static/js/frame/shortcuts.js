// Keys that work on every page, and the list of them. A page's own keys are listed by the page (`[data-key-help]`).
import { openHelp } from "./drawer.js";
import { toggleSidebar } from "./sidebar.js";

const LIST = [
  ["Ctrl K", "Search or jump to anything"],
  ["Ctrl B", "Collapse or expand the sidebar"],
  ["F1", "Help on this page"],
  ["?", "Keyboard shortcuts"],
  ["g h", "Home"],
  ["g r", "Runs"],
  ["g o", "Rollouts"],
  ["g t", "Tasks"],
  ["g e", "Evaluations"],
  ["g p", "Policies"],
  ["g n", "New run"],
];
const GOES = { h: "/", r: "/runs/", o: "/rollouts/", t: "/tasks/", e: "/evaluations/", p: "/policies/", n: "/runs/new/" };
const WAIT = 1200; // ms between the two keys of a pair
let dialog = null;
let lead = -Infinity; // when `g` was pressed

function build() {
  const made = Object.assign(document.createElement("dialog"), { className: "confirm", id: "shortcuts" });
  made.setAttribute("aria-labelledby", "shortcuts-title");
  const title = Object.assign(document.createElement("h2"), { id: "shortcuts-title", textContent: "Keyboard shortcuts" });
  const list = Object.assign(document.createElement("dl"), { className: "keys" });
  for (const [keys, what] of LIST) {
    const term = document.createElement("dt");
    for (const key of keys.split(" ")) term.append(Object.assign(document.createElement("kbd"), { textContent: key }), " ");
    list.append(term, Object.assign(document.createElement("dd"), { textContent: what }));
  }
  const form = Object.assign(document.createElement("form"), { method: "dialog", className: "row" });
  form.append(Object.assign(document.createElement("button"), { className: "button", textContent: "Close" }));
  made.append(title, list, form);
  document.body.append(made);
  return made;
}

export function showShortcuts() {
  dialog ??= build();
  dialog.showModal();
}

const palette = () => import("./palette.js").then((module) => module.open());
const typing = (target) => target.closest?.("input:not([type=radio], [type=checkbox]), textarea, select, [contenteditable]");

export function startShortcuts() {
  document.addEventListener("keydown", (event) => {
    const key = event.key.toLowerCase();
    if ((event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && document.getElementById("palette")) {
      if (key === "k") {
        event.preventDefault();
        return palette();
      }
      if (key === "b") {
        event.preventDefault();
        return toggleSidebar();
      }
    }
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target) || document.querySelector("dialog[open]")) return;
    if (event.key === "F1" && document.querySelector("[data-help]")) {
      event.preventDefault();
      openHelp();
    } else if (event.key === "?" && !document.querySelector("[data-key-help]") && document.getElementById("palette")) {
      showShortcuts();
    } else if (key === "g" && !document.querySelector("[data-trajectory]")) {
      lead = performance.now(); // on a trajectory `g` goes to a turn
    } else if (GOES[key] && performance.now() - lead < WAIT && document.getElementById("palette")) {
      location.assign(GOES[key]);
    } else lead = -Infinity;
  });
  document.addEventListener("click", ({ target }) => {
    if (target.closest("[data-palette-open]")) palette();
    if (target.closest("[data-shortcuts]")) showShortcuts();
  });
  if (document.documentElement.dataset.palette && document.getElementById("palette")) palette(); // asked for before (boot.js)
}
