// Editing of a report: blocks are moved by buttons or by dragging, and removed; what is not saved is not lost without a question.
import { onDrag } from "./drag.js";

export function start() {
  let dirty = false;
  const editor = () => document.querySelector("[data-report-editor]");
  const blocks = () => [...document.querySelectorAll("#report-blocks > [data-block]")];

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-block-move], [data-block-remove]");
    if (!button) return;
    const block = button.closest("[data-block]");
    const all = blocks();
    const at = all.indexOf(block);
    dirty = true;
    if ("blockRemove" in button.dataset) {
      const next = all[at + 1] ?? all[at - 1];
      block.remove();
      (next?.querySelector("[data-block-remove]") ?? editor().querySelector(".formbar button")).focus();
      return;
    }
    const way = Number(button.dataset.blockMove);
    const other = all[at + way];
    if (!other) return;
    if (way > 0) other.after(block);
    else other.before(block);
    button.focus();
    block.scrollIntoView({ block: "nearest" });
  });
  onDrag(editor().parentElement, "[data-block]", (block, over, { top, height }, { clientY }) => {
    dirty = true;
    if (clientY > top + height / 2) over.after(block);
    else over.before(block);
  });

  // What is typed while the server draws a panel stays.
  let typed = [];
  document.addEventListener("htmx:beforeSwap", ({ detail: { target, requestConfig } }) => {
    typed = [];
    if (!target.matches(".reportblock__drawn")) return;
    for (const { id, name, value } of target.querySelectorAll("input[list]")) {
      if (value !== requestConfig.parameters[name]) typed.push({ id, value });
    }
  });
  document.addEventListener("htmx:afterSwap", () => {
    for (const { id, value } of typed) document.getElementById(id).value = value;
    typed = [];
  });

  document.addEventListener("input", ({ target }) => (dirty ||= Boolean(target.closest("[data-report-editor]"))));
  document.addEventListener("htmx:afterSettle", ({ detail }) => {
    const { target } = detail;
    if (target.id === "report-blocks") {
      dirty = true;
      blocks().at(-1).querySelector("textarea, input:not([type=hidden])").focus();
    } else if (target.matches("[data-report-editor]")) editor().querySelector("[aria-invalid], .field--bad input, .field--bad textarea")?.focus();
  });
  document.addEventListener("htmx:beforeRequest", ({ detail }) => {
    if (detail.elt.matches("[data-report-editor]")) dirty = false;
  });
  document.addEventListener("htmx:afterRequest", ({ detail }) => {
    if (detail.elt.matches("[data-report-editor]") && detail.xhr.status !== 200) dirty = true;
  });
  window.addEventListener("beforeunload", (event) => dirty && event.preventDefault());
}
