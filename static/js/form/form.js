// Live validation of the run form: the server runs the same pydantic model that the trainer loads.
import { copy } from "../copy.js";
import { toast } from "../frame/toast.js";
import { startSearch } from "./search.js";
import { startSweep } from "./sweep.js";
import { startView } from "./view.js";

const DELAY = 300; // ms after the last key

export function start() {
  const form = document.querySelector("[data-run-form]");
  const summary = document.getElementById("plan");
  const bar = document.getElementById("formbar");
  const touched = new Set();
  let timer = null;
  let pending = null;

  // A command to copy is the answer to its button. What the server refuses is shown by the form itself.
  form.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy-answer]");
    if (!button) return;
    event.preventDefault();
    const response = await fetch(location.href, { method: "POST", body: new FormData(form, button) });
    if (!response.headers.get("Content-Type")?.startsWith("text/plain")) return toast("Fix the highlighted fields first", "bad");
    await copy(await response.text());
    toast("Command copied");
  });

  const stage = () => form.querySelector('[name="stage"]:checked')?.value;
  const control = (field) => field.querySelector("input, select, textarea");
  const view = startView(form);
  startSearch(form, view);
  startSweep(form);

  // Only the chosen stage is shown, submitted and validated.
  function showStage() {
    for (const section of form.querySelectorAll("[data-stage]")) {
      const active = section.dataset.stage === stage();
      section.hidden = !active;
      section.disabled = !active;
    }
  }

  // A field that is still empty and was not reached yet is not nagged about.
  function showErrors(field, errors) {
    const messages = touched.has(field.dataset.field) || control(field)?.value ? (errors ?? []) : [];
    field.classList.toggle("field--bad", messages.length > 0);
    field.querySelector(".field__error").textContent = messages.join(" ");
    control(field)?.setAttribute("aria-invalid", String(messages.length > 0));
  }

  // What the preset or the copied run has here, with the way back.
  function showChange(field, before) {
    const button = field.querySelector("[data-reset]");
    if (!button) return;
    field.classList.toggle("field--changed", before !== undefined);
    button.dataset.reset = before ?? "";
    button.textContent = before === undefined ? "" : before === "" ? "was off or empty" : `was ${before}`;
  }

  async function check() {
    pending?.abort();
    pending = new AbortController();
    try {
      const response = await fetch(form.dataset.check, { method: "POST", body: new FormData(form), signal: pending.signal });
      if (!response.ok) throw new Error(`the server answered ${response.status}`);
      const answer = await response.json();
      for (const field of form.querySelectorAll("[data-field]")) {
        showErrors(field, answer.errors[field.dataset.field]);
        showChange(field, answer.changes[field.dataset.field]);
      }
      summary.innerHTML = answer.plan; // rendered and escaped by the server, as is the bar
      bar.innerHTML = answer.bar;
      delete summary.dataset.problem;
    } catch (error) {
      if (error.name !== "AbortError") summary.dataset.problem = `Not checked: ${error.message}`;
    }
  }

  // A text that fills the form is sent with the settings as they are: when it is refused, they stay.
  document.getElementById("from-text").addEventListener("formdata", ({ formData }) => {
    for (const [name, value] of new FormData(form)) if (!formData.has(name)) formData.append(name, value);
  });

  form.addEventListener("input", ({ target }) => {
    if (!target.name || target.name === "view") return; // the search, or a value of a sweep that is being typed
    if (target.name === "stage") showStage();
    touched.add(target.name);
    clearTimeout(timer);
    timer = setTimeout(check, DELAY);
  });

  form.addEventListener("click", (event) => {
    const button = event.target.closest("[data-reset]");
    if (!button) return;
    const input = control(button.closest("[data-field]"));
    if (input.type === "checkbox") input.checked = button.dataset.reset !== "";
    else input.value = button.dataset.reset;
    input.dispatchEvent(new Event("input", { bubbles: true }));
    input.focus();
  });

  // A link of the summary or the bar leads to a field that the Basic view may not show.
  form.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#f-"]');
    const input = link && document.getElementById(link.hash.slice(1));
    if (!input) return;
    event.preventDefault();
    view.reveal(input);
    input.focus();
  });

  showStage();
  // What was typed or chosen before this module was there.
  const early = [...form.elements].filter((input) => input.name && input.name !== "view" && isEdited(input));
  for (const input of early) touched.add(input.name);
  if (early.length) check();
}

function isEdited(input) {
  if (input.type === "checkbox" || input.type === "radio") return input.checked !== input.defaultChecked;
  if (input.options) {
    const shown = [...input.options].find((option) => option.defaultSelected) ?? input.options[0];
    return shown !== undefined && input.value !== shown.value;
  }
  return input.type !== "hidden" && input.defaultValue !== undefined && input.value !== input.defaultValue;
}
