// Rows of a list: a press anywhere on a row opens what it is about, j and k (or the arrows) move through the rows, Enter opens.
// On a wide screen the row that has the focus, or that the mouse rests on, is shown beside the list.
import { relative } from "../frame/times.js";

const REST = 250; // ms
const WIDE = matchMedia("(min-width: 100rem)");
const OWN = "a, button, input, label, select, textarea, summary, [contenteditable]";

export function start() {
  const list = document.querySelector("[data-rows-open]");
  const pane = document.getElementById("preview");
  const links = () => [...list.querySelectorAll("tbody td.strong a")];
  const linkOf = (row) => row?.querySelector("td.strong a");
  let shown = "";

  list.addEventListener("click", (event) => {
    const row = event.target.closest("tbody tr");
    const link = linkOf(row);
    if (!link || event.target.closest(OWN) || String(getSelection())) return;
    if (event.ctrlKey || event.metaKey) window.open(link.href, "_blank", "noopener");
    else location.assign(link.href);
  });
  list.addEventListener("auxclick", (event) => {
    const link = linkOf(event.target.closest("tbody tr"));
    if (link && event.button === 1 && !event.target.closest(OWN)) window.open(link.href, "_blank", "noopener");
  });

  document.addEventListener("keydown", (event) => {
    const way = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[event.key];
    if (!way || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, dialog, details[open]")) return;
    const arrow = event.key.startsWith("Arrow");
    const here = links().indexOf(document.activeElement);
    if (arrow && here < 0) return; // the page scrolls
    const next = links()[here < 0 ? 0 : here + way];
    if (!next) return;
    event.preventDefault();
    next.focus();
    next.closest("tr").scrollIntoView({ block: "nearest" });
  });

  async function preview(link) {
    if (!pane || !WIDE.matches || link.href === shown) return;
    shown = link.href;
    const answer = await fetch(new URL("preview/", link.href));
    if (!answer.ok || shown !== link.href) return;
    const holder = document.createElement("template");
    holder.innerHTML = await answer.text();
    pane.replaceChildren(holder.content);
    relative(pane);
    mark();
  }
  function mark() {
    for (const row of list.querySelectorAll("tbody tr")) row.classList.toggle("is-current", linkOf(row)?.href === shown);
  }
  // A refresh of the rows leaves the focus where it was.
  let held = "";
  document.addEventListener("htmx:beforeSwap", () => {
    held = links().includes(document.activeElement) ? document.activeElement.href : "";
  });
  document.addEventListener("htmx:afterSwap", () => {
    const link = held && document.activeElement === document.body && links().find(({ href }) => href === held);
    if (link) link.focus({ preventScroll: true });
    mark();
  });
  list.addEventListener("focusin", (event) => {
    const link = linkOf(event.target.closest("tbody tr"));
    if (link) preview(link);
  });
  let rest = 0;
  list.addEventListener("pointerover", (event) => {
    clearTimeout(rest);
    const link = event.pointerType === "mouse" && linkOf(event.target.closest("tbody tr"));
    if (link) rest = setTimeout(preview, REST, link);
  });
  list.addEventListener("pointerleave", () => clearTimeout(rest));
}
